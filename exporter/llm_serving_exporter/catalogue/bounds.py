"""Which values can be: declared once for everything that is read or published, checked by one comparison that NaN fails too."""

from __future__ import annotations

from math import isfinite
from operator import le

from llm_serving_exporter.model.numbers import Histogram
from llm_serving_exporter.model.record import Struct

# events of a kind that one engine can have counted: a million a second for thirty years
MOST_EVENTS = 1e15
# of what was reached over what can be: above 1 one of its inputs is wrong, beyond this it tells nothing at all
MOST_RATIO = 10.0


class Bounds(Struct, frozen=True):
    """The range of a value, in its base unit; of a histogram, that of one event. Raises ValueError for a range that is none."""

    least: float  # the least that can be
    most: float  # the most that can be
    # from here on something is wrong, although the value can be: it is published and suspect; None: there is no such edge
    suspect_above: float | None = None

    def __post_init__(self) -> None:
        edge = self.least if self.suspect_above is None else self.suspect_above
        if not (isfinite(self.least) and isfinite(self.most) and self.least <= edge <= self.most):
            raise ValueError(f"{self.least} to {self.most}, suspect above {self.suspect_above}, is no range")

    def admits(self, value: float) -> bool:
        """Whether the value can be. NaN and infinity cannot."""
        return self.least <= value <= self.most

    def suspects(self, value: float) -> bool:
        """Whether the value can be, and something is wrong all the same."""
        return self.suspect_above is not None and value > self.suspect_above

    def admits_histogram(self, found: Histogram) -> bool:
        """Whether its buckets ascend to its count, and its sum is one that so many events within the range can have.

        A page may be read between an event's sum and its count: the sum may be one event ahead.
        """
        counts, count, total = found.cumulative, found.count, found.sum
        # NaN fails every comparison
        if not (all(map(le, (0.0, *counts), (*counts, count))) and count <= MOST_EVENTS):
            return False
        return total is None or self.least * count <= total <= self.most * (count + 1.0)
