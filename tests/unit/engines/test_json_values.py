"""What is taken from a JSON answer, and what is not."""

from __future__ import annotations

import json
from math import inf, nan

import pytest

from llm_serving_exporter.engines.json_answers import LARGEST, MOST_WHOLE, listed, mapping, number, text, whole
from tests.support.rows import check_rows

# 400 digits: json.loads makes a whole number of them, which no float holds
HUGE = json.loads("9" * 400)


@pytest.mark.parametrize("value", [1, 7, MOST_WHOLE])
def test_whole_numbers(value: int) -> None:
    assert whole(value) == value


@check_rows("value", [0, -1, MOST_WHOLE + 1, HUGE, -HUGE, True, False, 1.0, nan, inf, "1", None, [1], {}])
def test_what_is_no_whole_number(value: object) -> None:
    assert whole(value) is None


@check_rows("value", [0, -1, 1.5, -1.5, MOST_WHOLE, 10**18, -(10**18), LARGEST])
def test_numbers(value: float) -> None:
    found = number(value)
    assert (found, type(found)) == (value, float)


@check_rows("value", [10**18 + 1, HUGE, -HUGE, 1e19, 1e308, nan, inf, -inf, True, False, "1", None, [], {}])
def test_what_is_no_number(value: object) -> None:
    assert number(value) is None


def test_texts() -> None:
    assert text("a" * 300) == "a" * 200
    assert text("a" * 300, 3) == "aaa"
    assert text("a\nb\ud800") == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}"
    for other in ("", None, 3, True, ["a"], {"a": 1}):
        assert text(other) is None


def test_objects_and_lists() -> None:
    assert mapping({"a": 1}) == {"a": 1}
    assert listed([1, 2, 3], 2) == [1, 2]
    for other in (None, 3, True, "ab", 1.5):
        assert mapping(other) == {}
        assert listed(other, 2) == []
    assert mapping([1]) == {}
    assert listed({"a": 1}, 2) == []
