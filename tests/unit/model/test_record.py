"""Records of both kinds are copied, listed and written alike; the reference is the standard library's own."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from llm_serving_exporter.model.record import Struct, as_dict, field, is_record, name_fields, replace
from llm_serving_exporter.model.window import EngineWindow
from tests.support.builders.windows import engine


class Pair(NamedTuple):
    least: float
    most: float


WHOLE = Pair(0.0, 1.0)


class Part(Struct, frozen=True):
    name: str
    pair: Pair = WHOLE
    by_name: Mapping[str, Any] = field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class LibraryPart:
    name: str
    pair: Pair = WHOLE
    by_name: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def test_both_kinds_are_copied_with_changes() -> None:
    assert replace(Part("a", by_name={"x": 1}), name="b") == Part("b", by_name={"x": 1})
    assert replace(LibraryPart("a", by_name={"x": 1}), name="b") == LibraryPart("b", by_name={"x": 1})
    with pytest.raises(TypeError):
        replace(Part("a"), nome="b")
    with pytest.raises(TypeError):
        replace(LibraryPart("a"), nome="b")


def test_both_kinds_name_their_fields() -> None:
    expected = ("name", "pair", "by_name")
    assert name_fields(Part) == name_fields(Part("a")) == expected
    assert name_fields(LibraryPart) == name_fields(LibraryPart("a")) == expected
    assert is_record(Part("a"))
    assert is_record(LibraryPart("a"))
    assert not any(map(is_record, (Part, LibraryPart, Pair(0.0, 1.0), {}, None)))


def test_what_is_within_a_record_is_written_too() -> None:
    def nest(part: Any) -> Any:
        return part("top", by_name={"in": [part("a", Pair(1.0, 2.0)), (part("b"),)], "other": LibraryPart("c")})

    written = as_dict(nest(Part))
    assert written == as_dict(nest(LibraryPart)) == dataclasses.asdict(nest(LibraryPart))
    assert written["by_name"]["in"][0]["pair"].most == 2.0


def test_what_was_asked_of_a_window_is_no_part_of_it() -> None:
    asked, fresh = (EngineWindow((engine(requests_running=3.0),), 0.0) for _ in range(2))
    assert asked.mean("requests_running") == 3.0
    assert asked == fresh
    assert name_fields(asked) == ("readings", "elapsed_seconds", "still_zero")
