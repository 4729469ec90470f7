"""Sums with the same digits on every Python, and histograms as the engines keep them."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from functools import reduce
from operator import add, sub
from typing import NamedTuple, overload

from llm_serving_exporter.model.record import Struct


@overload
def add_up(numbers: Iterable[int]) -> int: ...
@overload
def add_up(numbers: Iterable[float]) -> float: ...
def add_up(numbers: Iterable[float]) -> float:
    """Their sum, one after the other, 0 without any: the same digits on every Python. `sum` compensates for rounding since 3.12."""
    return reduce(add, numbers, 0)


def resolution(value: float, digits: int) -> float:
    """The step between two neighbouring numbers of so many significant digits at `value`, in its unit."""
    if value <= 0:
        return 0.0
    return 10.0 ** (math.floor(math.log10(value)) + 1 - digits)


class Quantile(NamedTuple):
    """A quantile read from buckets."""

    value: float  # in the histogram's unit
    # "top": the rank is above the top finite edge, which is `value` and means "at least"; "bottom": it is in the first
    # bucket, whose edge is `value` and means "at most"; "": neither
    clipped: str


class Grown(NamedTuple):
    """How many events there were between two readings."""

    events: float  # all of them
    total: float | None  # what they add up to; None: the engine's sum is not of what was observed

    def mean(self) -> float | None:
        """Total over events; None without one of them."""
        return self.total / self.events if self.events > 0 and self.total is not None else None


# fewer events have a mean, and no median that would come out alike with the next few
FEWEST_EVENTS = 10


def has_enough_events(events: float, q: float) -> bool:
    """Whether so many events have a quantile of rank `q`: one of them at least has to lie above it (a p99 takes a hundred)."""
    return events >= max(FEWEST_EVENTS, round(1 / (1 - q)))


class Histogram(Struct, frozen=True):
    """A cumulative histogram with the engine's own counts: nothing is known of how events lie between two edges.

    Without edges only `count` and `sum` are known.
    """

    edges: tuple[float, ...]  # finite upper bounds, ascending; () where the engine has no buckets
    cumulative: tuple[float, ...]  # for each edge, the events at or below it
    count: float  # all events, those above the top edge included
    sum: float | None  # total of all events; None: the engine's is not of what was observed

    def grown_since(self, earlier: Histogram | None) -> Grown | None:
        """How many events there were between two readings of one engine life, without their buckets. None as for `since`."""
        # most pages were read by one plan, which has the edges once
        if earlier is None or (earlier.edges is not self.edges and earlier.edges != self.edges):
            return None
        count = self.count - earlier.count
        total = None if self.sum is None or earlier.sum is None else self.sum - earlier.sum
        return None if count < 0 or (total is not None and total < 0) else Grown(count, total)

    def since(self, earlier: Histogram | None) -> Histogram | None:
        """Events between two readings of one engine life. None where the layout changed, or the count or the sum fell (a reset)."""
        grown = self.grown_since(earlier)
        if grown is None or earlier is None:
            return None
        return Histogram(self.edges, tuple(map(sub, self.cumulative, earlier.cumulative)), grown.events, grown.total)

    def plus(self, other: Histogram) -> Histogram | None:
        """Events of two engines together. None where their edges differ."""
        if other.edges != self.edges:
            return None
        return Histogram(
            self.edges,
            tuple(map(add, self.cumulative, other.cumulative)),
            self.count + other.count,
            None if self.sum is None or other.sum is None else self.sum + other.sum,
        )

    def mean(self) -> float | None:
        """Sum over count; None without events or without a sum."""
        return self.sum / self.count if self.count > 0 and self.sum is not None else None

    def quantile(self, q: float) -> Quantile | None:
        """Quantile by linear interpolation inside the bucket of rank q x count, as PromQL's histogram_quantile does.

        In the first bucket the value is its edge ("at most"): where the events lie below it is not known. PromQL would interpolate
        from 0. None without events or without finite edges.
        """
        if self.count <= 0 or not self.edges:
            return None
        rank = q * self.count
        position = self._find(q)
        if position == 0:
            return Quantile(self.edges[0], "bottom")
        if position == len(self.edges):
            return Quantile(self.edges[-1], "top")
        lower, below = self.edges[position - 1], self.cumulative[position - 1]
        share = (rank - below) / (self.cumulative[position] - below)
        return Quantile(lower + (self.edges[position] - lower) * share, "")

    def bucket(self, q: float) -> tuple[float, float] | None:
        """The edges between which the quantile lies. None without events, below the first edge and above the top one."""
        position = self._find(q)
        if self.count <= 0 or not 0 < position < len(self.edges):
            return None
        return self.edges[position - 1], self.edges[position]

    def _find(self, q: float) -> int:
        return bisect_left(self.cumulative, q * self.count)

    def edge_at_or_below(self, threshold: float) -> float | None:
        """The largest finite edge <= threshold: the strictest edge that can stand for it. None where there is none."""
        best = None
        for edge in self.edges:
            if edge > threshold:
                break
            best = edge
        return best

    def count_at_or_below(self, edge: float) -> float:
        """Events at or below an edge. Raises ValueError where this histogram has no such edge."""
        return self.cumulative[self.edges.index(edge)]
