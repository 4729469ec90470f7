"""Cells of a bill -> values. Texts repeat from line to line, so that what was read once is kept, within bounds."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import Generic, TypeVar

from llm_serving_exporter.settings.problems import shown
from llm_serving_review.bills.charge import LineError

T = TypeVar("T")
Row = Sequence[str]
_MOST_KEPT = 8192
_LARGEST = 1e12
# what programs write for nothing
_NOTHING = frozenset({"", "null", "none", "\\n", "nan"})
_HOUR_UNITS = frozenset({"h", "hr", "hrs", "hour", "hours", "1 hour", "1 hours", "instance-hours", "instance hours"})
_TIME_UNIT = re.compile(r"(?<![a-z])(?:h|hrs?|hours?|s|secs?|seconds?)(?![a-z])")
# the largest JSON in a cell that is read
_LONGEST_JSON = 65_536


class Remembered(Generic[T]):
    """A function of a text that remembers its last values."""

    def __init__(self, read: Callable[[str], T]) -> None:
        self._read = read
        self._known: dict[str, T] = {}

    def __call__(self, text: str) -> T:
        """Its value. Raises what the function raises."""
        try:
            return self._known[text]
        except KeyError:
            if len(self._known) >= _MOST_KEPT:
                self._known.clear()
            found = self._known[text] = self._read(text)
            return found


def parse_time(text: str) -> float:
    """A time of a bill in Unix seconds: ISO 8601, as FOCUS and CUR have it, or as databases export it; without an offset it is UTC.

    Raises ValueError.
    """
    cleaned = text.strip()
    for word in (" UTC", " utc", " Z"):
        cleaned = cleaned.removesuffix(word)
    found = datetime.fromisoformat(cleaned)
    try:
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
    except (OverflowError, OSError) as error:
        raise ValueError(str(error)) from None


read_time = Remembered(parse_time)


def read_usd(row: Row, position: int, column: str) -> float:
    """An amount. Raises LineError; an empty cell is one."""
    text = row[position].strip()
    try:
        # the common case at once; Python alone takes digits with underscores
        found = float(text)
    except ValueError:
        if text.lower() in _NOTHING:
            raise LineError(column, "the amount is empty", "Export the bill again, with this column filled.") from None
        raise LineError(
            column, f"{shown(text)} is not an amount", "Write a plain number with a point, as in -12.5."
        ) from None
    if not isfinite(found) or abs(found) > _LARGEST or "_" in text:
        raise LineError(column, f"{shown(text)} is not an amount", "Write a plain number with a point, as in -12.5.")
    return found


def read_quantity(text: str) -> float | None:
    """A quantity; None where there is none that can be used. It refines the comparison, and is never part of an amount."""
    try:
        found = float(text)
    except ValueError:
        return None
    return found if isfinite(found) and 0 <= found <= _LARGEST and "_" not in text else None


def read_period(row: Row, begin: int, end: int, columns: tuple[str, str]) -> tuple[float, float]:
    """Begin and end of a charge. Raises LineError."""
    found = []
    for position, column in zip((begin, end), columns, strict=True):
        try:
            found.append(read_time(row[position]))
        except ValueError:
            raise LineError(
                column, f"{shown(row[position])} is not a time", "Write it as in 2026-11-16T00:00:00Z."
            ) from None
    if not found[0] < found[1]:
        raise LineError(columns[1], "the period ends before it begins", "Export the bill again.")
    return found[0], found[1]


def counts_hours(unit: str) -> bool:
    """Whether a unit is an hour of an instance."""
    return unit.strip().lower() in _HOUR_UNITS


def counts_time(unit: str) -> bool:
    """Whether a unit is a time of anything, as in "gibibyte hour"."""
    return _TIME_UNIT.search(unit.lower()) is not None


def _parse_map(text: str) -> Mapping[str, str]:
    if not text or len(text) > _LONGEST_JSON:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if isinstance(found, list):
        # as some databases write maps
        pairs = (one for one in found if isinstance(one, dict) and "key" in one)
        return {str(one["key"]): str(one.get("value", "")) for one in pairs}
    if not isinstance(found, dict):
        return {}
    return {str(key): str(value) for key, value in found.items() if isinstance(value, str | int | float)}


read_map = Remembered(_parse_map)
