"""The weeks before and the one under review, each by hour and in sums, wherever they are known from. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, timedelta
from math import fsum
from zoneinfo import ZoneInfo

from llm_serving_exporter.model.record import Struct, replace
from llm_serving_review.evidence.past import WEEKS, Past, Source, WeekSpend, list_weeks_before, mark_hours
from llm_serving_review.evidence.usage import Gap, Hours, Usage
from llm_serving_review.evidence.week import HOUR_SECONDS, Week, find_midnight
from llm_serving_review.figures.totals import NOTHING, read_totals
from llm_serving_review.tables.facts import NOW, FactTable, write_key
from llm_serving_review.tables.sums import sum_by_key

# of the targets' time of a day
_LITTLE_SHARE = 0.02
# mark of a week of which no pool is taken off
BEFORE_COMMITMENTS = "before commitments"


def describe_read_week(
    facts: FactTable, name: str, paid_usd: float, hours_seen: float, gaps: Iterable[Gap], pools_by_hour: Hours = ()
) -> WeekSpend:
    """A week of which the review read the counters. `name`: NOW or BEFORE. `pools_by_hour`: () without pools."""
    gaps, week = tuple(gaps), facts.weeks[name]
    return replace(
        _describe(facts, name, Source.COUNTERS, hours_seen),
        paid_usd=paid_usd,
        missing_usd=fsum(gap.estimated_usd or 0.0 for gap in gaps),
        pools_by_hour=_index_hours(week, pools_by_hour) if pools_by_hour else {},
        doubtful_days=frozenset(_find_doubtful_days(facts, name, gaps)),
    )


def _describe(facts: FactTable, name: str, source: Source, seen: float | None = None) -> WeekSpend:
    """`seen`: hours that are in the figures; None for those with a cost."""
    week, sums = facts.weeks[name], read_totals(facts).get((name, ""), NOTHING)
    usd = _index_hours(week, facts.sum_hours(name, "quantity = 'cost'"))
    prompt, made = (facts.sum_hours(name, f"quantity = '{of}_tokens' and tokens") for of in ("prompt", "decode"))
    both = tuple(None if a is None or b is None else a + b for a, b in zip(prompt, made, strict=True))
    counted = None if sums.counted is None else facts.sum_hours(name, "quantity = 'cost' and tokens")
    seen = float(len(usd)) if seen is None else seen
    return WeekSpend(
        week,
        source,
        sums.all_usd or 0.0,
        sums.tokens,
        sums.blended_usd_per_million,
        seen,
        usd_by_hour=usd,
        tokens_by_hour=_index_hours(week, both),
        counted_usd_by_hour=_index_hours(week, counted) if counted else {},
        marks=mark_hours(seen, week),
    )


def _find_doubtful_days(facts: FactTable, name: str, gaps: Sequence[Gap]) -> Iterator[int]:
    week = facts.weeks[name]
    there = facts.rows("select distinct who from line where week = :week and quantity = 'gpu_seconds'", week=name)
    targets = len({row["who"] for row in there} | {write_key((gap.extra, gap.target)) for gap in gaps})
    for day in range(len(week.days)):
        hours = [hour for hour in week.hours if hour.day == day]
        missing = fsum(
            max(0.0, min(gap.end, hour.end) - max(gap.begin, hour.begin))
            for gap in gaps
            if gap.begin < hours[-1].end and hours[0].begin < gap.end
            for hour in hours
        )
        if missing > _LITTLE_SHARE * targets * fsum(hour.seconds for hour in hours):
            yield day


def list_known_weeks(week: Week, past: Past, read: Sequence[WeekSpend]) -> tuple[WeekSpend, ...]:
    """What is known of the weeks before and of those that were read, the earliest first. A week's own review wins over what is left of
    its counters, these over records."""
    found = {one.week.name: one for one in read}
    before = {one.name for one in list_weeks_before(week)}
    for one in past.weeks:
        name = one.week.name
        if name in before and (one.source is Source.FILE or name not in found):
            found[name] = one
    return tuple(sorted(found.values(), key=lambda one: one.week.begin))


def describe_recorded_week(week: Week, usage: Usage, identity: Sequence[str] = ()) -> WeekSpend:
    """A week as the hourly records have it: without prices, commitments and gaps."""
    facts = FactTable({NOW: (week, usage)}, identity)
    found = _describe(facts, NOW, Source.RECORDS)
    before_pools = facts.sum_total(NOW, "quantity = 'cost' and rate = 'pool'")
    mark = BEFORE_COMMITMENTS if before_pools else "without unused commitments"
    return replace(found, marks=(mark, *found.marks))


def _index_hours(week: Week, values: Hours) -> dict[int, float]:
    return {round(hour.begin): value for hour, value in zip(week.hours, values, strict=True) if value is not None}


def zone_of(week: Week) -> ZoneInfo:
    """The zone that days and months are of."""
    return ZoneInfo(week.zone)


# --- Twelve weeks, the one under review last. Pure.


class TrendWeek(Struct, frozen=True):
    """A week of the trend."""

    name: str  # as in "2026-W46"
    known: WeekSpend | None  # what is known of it; None for nothing, which is not 0


def build_trend(week: Week, known: Sequence[WeekSpend]) -> tuple[TrendWeek, ...]:
    """The last weeks, the earliest first; () where nothing is known but the week itself. Of a span: the weeks before it."""
    by_name = {one.week.name: one for one in known}
    names = [] if week.is_span else [week.name]
    # a week may still have run when a span ended
    names += [one.name for one in list_weeks_before(week, WEEKS - 1) if one.end <= week.end]
    found = tuple(TrendWeek(name, by_name.get(name)) for name in reversed(names[:WEEKS]))
    return found if any(one.known is not None for one in found if one.name != week.name) else ()


# --- The calendar month to date, its forecast, and when its budget is reached. Pure.
#
# Forecast = what the month's known hours came to + the hours that remain x what an hour of the last seven days cost. Hours that have
# passed and are not known are estimated apart, at the mean of the known ones.


# of the spend of an hour: what the run rate is taken from
_RATE_SECONDS = 7 * 24 * HOUR_SECONDS
_ORDER = {Source.RECORDS: 0, Source.COUNTERS: 1, Source.FILE: 2}


class MonthDay(Struct, frozen=True):
    """A day of the month that has passed."""

    day: date
    usd: float | None  # what is paid for it; None where no hour of it is known


class MonthToDate(Struct, frozen=True):
    """The calendar month in which what is reviewed ends."""

    first: date
    next_first: date  # the first day of the next
    until: float  # the end of what is reviewed, which is how far the month is known; Unix seconds
    usd: float  # GPU time, unused commitments and electricity of its known hours
    known_hours: float  # hours that are in `usd`
    unknown_hours: float  # hours that have passed and are not
    unknown_usd: (
        float  # what those may have cost at the mean of the known ones, with gaps of single targets; 0 for none
    )
    usd_per_hour: float  # USD of an hour of the last seven days
    rate_hours: float  # hours on which that rests
    hours_left: float  # hours of the month that remain
    budget_usd: float | None  # of the month; None for no budget
    budget_reached: (
        float | None
    )  # when the budget is reached by the known hours and the run rate; None for not in this month, or no budget
    days: tuple[MonthDay, ...]  # the days that have passed

    @property
    def forecast_usd(self) -> float:
        """What the month comes to; what is not known of it is not in it."""
        return self.usd + self.usd_per_hour * self.hours_left

    @property
    def is_over(self) -> bool:
        """Whether nothing remains of it."""
        return self.hours_left <= 0


def sum_month(week: Week, known: Sequence[WeekSpend], budget_usd: float | None) -> MonthToDate | None:
    """The month of the last hour of what is reviewed; None where nothing of it is known."""
    zone = zone_of(week)
    last = datetime.fromtimestamp(week.end - 1, zone).date()
    first = last.replace(day=1)
    next_first = (first + timedelta(days=31)).replace(day=1)
    begin, end = find_midnight(first, zone), find_midnight(next_first, zone)
    paid: dict[int, float] = {}
    for one in sorted(known, key=lambda found: _ORDER[found.source]):
        paid |= one.paid_by_hour
    # what is reviewed is the last word on its own hours
    paid |= next((one.paid_by_hour for one in known if one.week.name == week.name), {})
    passed = [begin + number * HOUR_SECONDS for number in range(round((week.end - begin) / HOUR_SECONDS))]
    there = {at: paid[round(at)] for at in passed if round(at) in paid}
    rate_usd, rate_hours = _find_rate(week, known, paid)
    if not there or not rate_hours:
        return None
    total = fsum(there.values())
    unknown = float(len(passed) - len(there))
    missing = unknown * total / len(there) + _sum_gaps(known, begin, week.end)
    hours_left = (end - week.end) / HOUR_SECONDS
    return MonthToDate(
        first,
        next_first,
        week.end,
        total,
        float(len(there)),
        unknown,
        missing,
        rate_usd / rate_hours,
        rate_hours,
        hours_left,
        budget_usd,
        _find_reached(there, week.end, end, rate_usd / rate_hours, budget_usd),
        tuple(_list_days(first, last, there, zone)),
    )


def _find_rate(week: Week, known: Sequence[WeekSpend], paid: dict[int, float]) -> tuple[float, float]:
    """USD and hours of the last seven days. A whole week counts the hours that are seen, so that gaps do not make it cheap."""
    for one in known:
        if one.week.name == week.name and not week.is_span:
            return one.paid_usd, one.hours_seen
    recent = [usd for at, usd in paid.items() if week.end - _RATE_SECONDS <= at < week.end]
    return fsum(recent), float(len(recent))


def _find_reached(
    paid: dict[float, float], until: float, end: float, usd_per_hour: float, budget_usd: float | None
) -> float | None:
    if budget_usd is None:
        return None
    total = 0.0
    for at, usd in sorted(paid.items()):
        total += usd
        if total >= budget_usd:
            return at + HOUR_SECONDS
    if usd_per_hour <= 0:
        return None
    reached = until + (budget_usd - total) / usd_per_hour * HOUR_SECONDS
    return reached if reached <= end else None


def _sum_gaps(known: Sequence[WeekSpend], begin: float, end: float) -> float:
    """Estimated cost of gaps in the part of each week that is in the month. What of a span lies in a week of a file is in that week's."""
    of_files = max((one.week.end for one in known if one.source is Source.FILE), default=begin)
    found = []
    for one in known:
        since = max(begin, of_files) if one.week.is_span else begin
        inside = max(0.0, min(one.week.end, end) - max(one.week.begin, since))
        found.append(one.missing_usd * inside / (one.week.end - one.week.begin))
    return fsum(found)


def _list_days(first: date, last: date, paid: dict[float, float], zone: ZoneInfo) -> Iterable[MonthDay]:
    by_day = sum_by_key((datetime.fromtimestamp(at, zone).date(), usd) for at, usd in paid.items())
    for number in range((last - first).days + 1):
        day = first + timedelta(days=number)
        yield MonthDay(day, by_day.get(day))
