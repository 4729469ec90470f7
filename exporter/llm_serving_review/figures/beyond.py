"""What the review says beyond its own week: the weeks before it, the month, and days that are unlike others. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from llm_serving_exporter.model.record import Struct
from llm_serving_review.evidence.past import Past
from llm_serving_review.evidence.usage import Evidence, Hours, Usage
from llm_serving_review.evidence.week import HOUR_SECONDS
from llm_serving_review.figures.month import MonthToDate, sum_month
from llm_serving_review.figures.past_weeks import describe_read_week, list_known_weeks
from llm_serving_review.figures.trend import TrendWeek, build_trend
from llm_serving_review.figures.unusual_days import UnusualDay, find_unusual_days


class Beyond(Struct, frozen=True):
    """Beyond the week."""

    trend: tuple[TrendWeek, ...] = ()  # the last weeks, the earliest first; () where nothing is known of any before
    month: MonthToDate | None = None  # the calendar month to date; None where nothing is known of it
    unusual: tuple[UnusualDay, ...] = ()  # days that are unlike others
    weeks_before: int = 0  # how many weeks before are known, which is what days are compared with
    refused: tuple[str, ...] = ()  # files of earlier reviews that were left out, in sentences


NOT_BEYOND = Beyond()


class ReadWeek(Struct, frozen=True):
    """One of the two weeks whose counters were read."""

    usage: Usage  # as it counts, after `count_once`
    paid_usd: float | None  # GPU time, unused commitments and electricity; None for no cost
    hours_seen: float  # hours that are in its figures
    pools_by_hour: Hours = ()  # what pools add to GPU time by hour, mostly less than nothing; () without pools


def look_beyond(evidence: Evidence, past: Past, identity: Sequence[str], now: ReadWeek, before: ReadWeek) -> Beyond:
    """Looks at the weeks before, the month and the days."""
    read = [
        describe_read_week(week, one.usage, one.paid_usd, one.hours_seen, gaps or (), one.pools_by_hour, identity)
        for week, one, gaps in (
            (evidence.previous, before, evidence.gaps_before),
            (evidence.week, now, evidence.gaps),
        )
        if one.paid_usd is not None
    ]
    known = list_known_weeks(evidence.week, past, identity, read)
    return Beyond(
        build_trend(evidence.week, known),
        sum_month(evidence.week, known, evidence.book.budget_usd_per_month),
        find_unusual_days(evidence.week, known, now.usage, before.usage),
        sum(1 for one in known if one.week.begin + HOUR_SECONDS < evidence.week.begin and not one.week.is_span),
        past.refused,
    )
