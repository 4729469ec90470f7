"""Parsed samples of one page.

A page's layout (which series stand on which line) changes only when a series appears or a server restarts, so it is an
object of its own that consecutive pages share: what is computed from it once serves every page with that layout.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SeriesKey:
    """Name as written on the wire (`:` kept) and labels, unescaped, sorted by label name."""

    name: str
    labels: tuple[tuple[str, str], ...]

    def label(self, name: str) -> str | None:
        """The label's value, or None where the series lacks it ("" is a value)."""
        for key, value in self.labels:
            if key == name:
                return value
        return None


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """What a page consists of, without values. Compared by identity: the same object means the same layout.

    `keys`: the samples that were asked for, in page order, duplicates included. `types`: family name -> type of every
    TYPE line, as written on the wire. `names`: every sample name on the page, asked for or not. `series_count`: samples on the page.
    """

    keys: tuple[SeriesKey, ...]
    types: Mapping[str, str]
    names: frozenset[str]
    series_count: int


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """The values of one page, aligned with `layout.keys`. NaN and infinities are kept as the page has them."""

    layout: Layout
    values: tuple[float, ...]
