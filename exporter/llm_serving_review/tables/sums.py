"""Sums of amounts, by key and by hour. All go through `fsum`: exact, then rounded once, so that order and grouping change no digit."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from math import fsum
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


def sum_known(values: Iterable[float | None]) -> float | None:
    """The sum of the values that are known; None where none is."""
    known = [value for value in values if value is not None]
    return fsum(known) if known else None


def group_by_key(pairs: Iterable[tuple[K, T]]) -> dict[K, list[T]]:
    """What each key has, both in the order in which they come."""
    found: dict[K, list[T]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def sum_by_key(pairs: Iterable[tuple[K, float]]) -> dict[K, float]:
    """The sum of each key's amounts, the keys in the order in which they come."""
    return {key: fsum(amounts) for key, amounts in group_by_key(pairs).items()}
