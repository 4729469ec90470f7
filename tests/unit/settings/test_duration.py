from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.settings.kinds import format_duration, parse_duration
from llm_serving_exporter.settings.problems import InvalidValueError
from tests.support.rows import check_rows


@check_rows(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("0s", 0.0),
        ("500ms", 0.5),
        ("1ms", 0.001),
        ("5s", 5.0),
        ("2.5s", 2.5),
        ("0.1s", 0.1),
        ("1m30s", 90.0),
        ("1m0.5s", 60.5),
        ("1h", 3600.0),
        ("1d", 86_400.0),
        ("1w", 604_800.0),
        ("1y", 31_536_000.0),
        ("1y2w3d4h5m6s7ms", 31_536_000 + 2 * 604_800 + 3 * 86_400 + 4 * 3600 + 5 * 60 + 6 + 0.007),
    ],
)
def test_reads_what_prometheus_reads(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@check_rows(
    "text",
    [
        "",
        " ",
        "5",
        "1.5",
        "-5s",
        "+5s",
        "5 s",
        "5S",
        "5sec",
        "s",
        "1s1m",
        "1m1m",
        "1.5h",
        ".5s",
        "5.s",
        "1e3s",
        "٥s",
        "5µs",
        "5s ",
        "\n",
        "5s\n",
        "off",
        "300y",
        "9" * 400 + "s",
        "1" * 400,
        "nan",
        "inf",
    ],
)
def test_refuses_anything_else_with_what_to_write(text: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        parse_duration(text)
    assert caught.value.fix.endswith(".")


@given(st.text(alphabet="0123456789.ymwdhs- e\n", max_size=20))
def test_any_text_is_a_number_of_seconds_or_refused(text: str) -> None:
    try:
        seconds = parse_duration(text)
    except InvalidValueError:
        return
    assert 0 <= seconds < 1e10


@given(st.integers(min_value=0, max_value=10**12))
def test_what_is_shown_reads_back_to_the_same(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds / 1000)) == milliseconds / 1000


@check_rows(("seconds", "text"), [(0.2, "200ms"), (2.5, "2.5s"), (4.0, "4s"), (90.0, "1m30s"), (0.0, "0")])
def test_shows_the_usual_form(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
