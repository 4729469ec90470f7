"""How much of a week is in its figures. Time before the first data and time in gaps is in none. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from math import fsum

from llm_serving_exporter.model.record import Struct
from llm_serving_review.evidence.usage import Gap, Usage, sum_by_hour
from llm_serving_review.evidence.week import HOUR_SECONDS, Week
from llm_serving_review.figures.totals import Totals


class Seen(Struct, frozen=True):
    """How much of a week's GPU time is in its figures."""

    hours: float  # hours that are seen; an hour without one of two equal targets counts half
    of: float  # all hours of the week
    is_span: bool = False  # whether it is a span of hours and no week

    @property
    def missing_share(self) -> float:
        """Of the week's GPU time."""
        return 1 - self.hours / self.of


def measure_coverage(week: Week, usage: Usage, sums: Totals, gaps: Iterable[Gap] | None, begins: int) -> Seen:
    """Hours that are in the figures. `gaps` None: gaps are unknown, so hours without any data count as missing. `begins`: hours before the
    first data of all."""
    if gaps is None:
        known = sum_by_hour(usage.gpu_seconds, len(week.hours))
        there = (hour.seconds for hour, value in zip(week.hours, known, strict=True) if value is not None)
        return Seen(fsum(there) / HOUR_SECONDS, week.length_hours, week.is_span)
    left = (week.end - week.hours[begins].begin) / HOUR_SECONDS
    lost = fsum(missing_gpu_seconds(gap) for gap in gaps) / HOUR_SECONDS
    have = sums.gpu_hours or 0.0
    return Seen(left * have / (have + lost) if lost else left, week.length_hours, week.is_span)


def missing_gpu_seconds(gap: Gap) -> float:
    """GPU time of the gap that is in no figure; a target whose number of GPUs is unknown counts as one GPU."""
    missing = gap.missing_gpu_seconds
    return gap.end - gap.begin if missing is None else missing
