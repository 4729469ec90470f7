"""A histogram as engines keep it: counts by bucket, sum, count."""

from __future__ import annotations

from bisect import bisect_left

from llm_serving_exporter.model.numbers import add_up


class Tally:
    """`edges`: upper bounds, ascending, without +Inf. `counts` has one more, not cumulative. `total` is the sum of what was observed."""

    __slots__ = ("counts", "edges", "total")

    def __init__(self, edges: tuple[float, ...]) -> None:
        self.edges = edges
        self.counts = [0] * (len(edges) + 1)
        self.total = 0.0

    @property
    def count(self) -> int:
        """Observations."""
        return add_up(self.counts)

    def bucket(self, value: float) -> int:
        """Where a value falls: the first bucket whose bound is not below it."""
        return bisect_left(self.edges, value)

    def observe(self, value: float, times: int = 1) -> None:
        """Books `value`, `times` times."""
        self.counts[bisect_left(self.edges, value)] += times
        self.total += value * times
