"""Cumulative histograms as the engines keep them, their differences and what can be read from them."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from operator import add, sub
from typing import NamedTuple


class Quantile(NamedTuple):
    """A quantile read from buckets.

    `value` is in the histogram's unit. `clipped` is "top" where the rank falls into the +Inf bucket (then the
    value is the top finite edge and means "at least"), "bottom" where it falls into the first bucket (then it is that
    bucket's edge and means "at most"), else "".
    """

    value: float
    clipped: str


@dataclass(frozen=True, slots=True)
class Histogram:
    """`edges`: finite upper bounds, ascending. `cumulative`: events <= each edge. `count`: all events. `sum`: their total.

    Between edges nothing is known: all counts are the engine's own. Without edges only count and sum are known. `sum` is None where the
    engine's is not what was observed.
    """

    edges: tuple[float, ...]
    cumulative: tuple[float, ...]
    count: float
    sum: float | None

    def since(self, earlier: Histogram | None) -> Histogram | None:
        """Events between two readings of one engine life. None where the layout changed or a count fell (a reset)."""
        if earlier is None or earlier.edges != self.edges or earlier.count > self.count:
            return None
        return Histogram(
            self.edges,
            tuple(map(sub, self.cumulative, earlier.cumulative)),
            self.count - earlier.count,
            None if self.sum is None or earlier.sum is None else self.sum - earlier.sum,
        )

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

        Below the first edge nothing is known but that edge, so that it stands for the value ("at most"), where PromQL would
        interpolate from 0. None without events or without finite edges.
        """
        if self.count <= 0 or not self.edges:
            return None
        rank = q * self.count
        position = bisect_left(self.cumulative, rank)
        if position == 0:
            return Quantile(self.edges[0], "bottom")
        if position == len(self.edges):
            return Quantile(self.edges[-1], "top")
        lower, below = self.edges[position - 1], self.cumulative[position - 1]
        share = (rank - below) / (self.cumulative[position] - below)
        return Quantile(lower + (self.edges[position] - lower) * share, "")

    def edge_at_or_below(self, threshold: float) -> float | None:
        """The largest finite edge <= threshold: the strictest edge that can stand for it. None where there is none."""
        best = None
        for edge in self.edges:
            if edge > threshold:
                break
            best = edge
        return best

    def count_at_or_below(self, edge: float) -> float:
        """Events <= an edge of this histogram. KeyError-free: raises ValueError where it is not an edge."""
        return self.cumulative[self.edges.index(edge)]
