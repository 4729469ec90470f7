"""Parsed samples of one page.

A page's layout (which series stand on which line) changes only when a series appears or a server restarts, so it is an
object of its own that consecutive pages share: what is computed from it once serves every page with that layout.
"""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.model.record import Struct


class SeriesKey(Struct, frozen=True):
    """What identifies a sample on a page."""

    name: str  # as on the wire (`:` kept)
    labels: tuple[tuple[str, str], ...]  # (name, value) unescaped, sorted by name

    def label(self, name: str) -> str | None:
        """The label's value, or None where the series lacks it ("" is a value)."""
        for key, value in self.labels:
            if key == name:
                return value
        return None


class Layout(Struct, frozen=True, eq=False, weakref=True):
    """What a page consists of, without values. Compared by identity: the same object means the same layout.

    Targets whose pages are alike share one.
    """

    keys: tuple[SeriesKey, ...]  # the samples that were asked for, in page order, duplicates included
    types: Mapping[str, str]  # family name -> type of every TYPE line, as on the wire
    names: frozenset[str]  # every sample name on the page, asked for or not
    series_count: int  # samples on the page, asked for or not


class Samples(Struct, frozen=True, eq=False):
    """The values of one page."""

    layout: Layout  # shared with other pages of the same layout
    values: tuple[float, ...]  # one for each of `layout.keys`; NaN and infinities as the page has them
