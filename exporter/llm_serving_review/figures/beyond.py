"""What the review says beyond its own week: the weeks before it, the month, and days that are unlike others. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from math import fsum
from statistics import median

from llm_serving_exporter.model.record import Struct, replace
from llm_serving_review.evidence.past import Past, WeekSpend
from llm_serving_review.evidence.week import HOUR_SECONDS, Week
from llm_serving_review.figures.past_weeks import MonthToDate, TrendWeek, build_trend, list_known_weeks, sum_month
from llm_serving_review.tables.facts import BEFORE, NOW, FactTable
from llm_serving_review.tables.sums import group_by_key

# --- Days of the week that are unlike the same day of other weeks. Pure.
#
# A day's ratio is its figure over the median of the same weekday in the weeks before; only days that are known whole count. A day is
# unlike where its ratio is further from 1, and further from the median ratio of its own week, than `_SPREADS` robust standard deviations
# and than `_LEAST_CHANGE`, both times on the same side. So a quiet Sunday, growth from week to week, and a step from one day on move only
# one of the two. A false alarm is worse than a day that is missed: the spread is the larger of the week's own and that of the weeks
# before, and with few of those a day must be further off.


# Iglewicz and Hoaglin, How to Detect and Handle Outliers (1993): 3.5 robust standard deviations
_SPREADS = 3.5
# 1 / the third quartile of the normal distribution: makes a standard deviation of a median absolute deviation
_NORMAL = 1.4826
# a calm fleet's days differ by less, whatever their spread; with one week to compare with twice as much
_LEAST_CHANGE = 0.25
# weeks before from which on their own spread counts
_ENOUGH_WEEKS = 3
# days of the week that its median is taken from
_ENOUGH_DAYS = 4
# of the week's median day: unit costs of a day with fewer tokens say nothing
_LEAST_TOKENS = 0.1
# of the week's spend: below it nobody looks
_LEAST_SHARE = 0.005
# of a week's hours: with fewer nothing is compared with it
_MOSTLY = 0.95
SHOWN = 5


class Measure(StrEnum):
    """What was unlike."""

    SPEND = "spend"
    UNIT_COST = "USD per million tokens"
    TOKENS = "tokens"


class UnusualDay(Struct, frozen=True):
    """A day that is unlike others."""

    day: int  # number of the day in the week, 0 for Monday
    measure: Measure  # what was unlike
    value: float  # what it came to
    usual: float  # the median of what it is compared with
    model_name: str  # the model that made most of it; "" where it is not known
    target: str  # the target that made most of it; "" where it is not known
    hour_begin: float  # the hour that made most of it: Unix seconds at which it begins

    @property
    def ratio(self) -> float:
        """Value over the usual one."""
        return self.value / self.usual


def find_unusual_days(facts: FactTable, known: Sequence[WeekSpend]) -> tuple[UnusualDay, ...]:
    """The days, in order; at most `SHOWN`. () for a span, and while fewer than two weeks are known. Facts say which model and target made
    the difference."""
    week = facts.weeks[NOW]
    own = next((one for one in known if one.week.name == week.name), None)
    if week.is_span or own is None:
        return ()
    others = [
        one
        for one in known
        if one is not own and not one.week.is_span and one.hours_seen >= _MOSTLY * one.week.length_hours
    ]
    days, past = _measure_days(own), [_measure_days(one) for one in others]
    found = [
        (day, measure, value, usual)
        for measure, of_week in days.items()
        for day, value, usual in _find_unlike(of_week, [one[measure] for one in past])
    ]
    first: dict[int, UnusualDay] = {}
    for day, measure, value, usual in sorted(found, key=lambda one: (one[0], list(Measure).index(one[1]))):
        # a day whose spend is unlike needs no second line for the tokens that go with it
        is_worth_it = measure is not Measure.SPEND or abs(value - usual) >= _LEAST_SHARE * own.paid_usd
        if is_worth_it and day not in first:
            first[day] = _explain(facts, UnusualDay(day, measure, value, usual, "", "", 0.0))
    return tuple(first.values())[:SHOWN]


def _measure_days(of: WeekSpend) -> dict[Measure, dict[int, float]]:
    """The days of a week of which every hour is known, by their number."""
    spend = _sum_days(of, of.usd_by_hour)
    # a unit cost has both sides of the same engines
    counted = _sum_days(of, of.counted_usd_by_hour or of.usd_by_hour)
    some = [tokens for _, tokens in counted.values() if tokens]
    least = _LEAST_TOKENS * median(some) if some else 0.0
    return {
        Measure.SPEND: {day: usd for day, (usd, _) in spend.items()},
        Measure.UNIT_COST: {
            day: usd / tokens * 1e6 for day, (usd, tokens) in counted.items() if tokens and tokens >= least
        },
        Measure.TOKENS: {day: tokens for day, (_, tokens) in spend.items() if tokens is not None},
    }


def _sum_days(of: WeekSpend, usd_by_hour: Mapping[int, float]) -> dict[int, tuple[float, float | None]]:
    found: dict[int, tuple[float, float | None]] = {}
    for number in range(7):
        if number in of.doubtful_days:
            continue
        begins = [round(hour.begin) for hour in of.week.hours if hour.day == number]
        # an hour without data of a complete week cost nothing, as at night where everything is scaled to 0
        usd = [usd_by_hour.get(at, 0.0 if of.complete and usd_by_hour else None) for at in begins]
        if None in usd:
            continue
        tokens = [of.tokens_by_hour[at] for at in begins if at in of.tokens_by_hour]
        found[number] = fsum(value for value in usd if value is not None), fsum(tokens) if tokens else None
    return found


def _find_unlike(own: Mapping[int, float], past: Sequence[Mapping[int, float]]) -> Iterator[tuple[int, float, float]]:
    """Each day that is unlike, with its figure and the usual one: that of the weekday at the level of the week."""
    usual = {
        day: median(week[day] for week in past if day in week) for day in range(7) if any(day in week for week in past)
    }
    ratios = _divide(own, usual)
    if len(ratios) < _ENOUGH_DAYS:
        return
    level = median(ratios.values())
    weeks = min(sum(1 for week in past if day in week) for day in ratios)
    spread = _measure_spread([ratios])
    if weeks >= _ENOUGH_WEEKS:
        # a median of few values lies too near to each of them
        spread = max(spread, _measure_spread([_divide(week, usual) for week in past]) * weeks / (weeks - 1))
    least = max(_SPREADS * spread, _LEAST_CHANGE * (1 + 1 / weeks))
    for day, ratio in ratios.items():
        apart, apart_in_week = ratio - 1, ratio / level - 1
        if min(abs(apart), abs(apart_in_week)) > least and apart * apart_in_week > 0:
            yield day, own[day], usual[day] * level


def _divide(week: Mapping[int, float], usual: Mapping[int, float]) -> dict[int, float]:
    found = {day: value / usual[day] for day, value in week.items() if usual.get(day, 0.0) > 0}
    return found if found and median(found.values()) > 0 else {}


def _measure_spread(weeks: Sequence[Mapping[int, float]]) -> float:
    """A robust standard deviation of ratios around the median of their own week, as a share of it."""
    apart = [abs(ratio / median(week.values()) - 1) for week in weeks if week for ratio in week.values()]
    return _NORMAL * median(apart) if apart else 0.0


def _explain(facts: FactTable, found: UnusualDay) -> UnusualDay:
    """The day with the model, target and hour that are furthest from their own other days, on the day's side."""
    week, day, measure, usual = facts.weeks[NOW], found.day, found.measure, found.usual
    side = 1 if found.value > usual else -1
    tokens = measure is Measure.TOKENS
    # the unit cost is unlike because of the money, or of the tokens that it bought: money at the usual price of its tokens says which
    price = usual / 1e6 if measure is Measure.UNIT_COST else 0.0
    lines, before = (_sum_owners(facts, name, tokens=tokens, price=price) for name in (NOW, BEFORE))
    best: tuple[float, str, str, float] = (0.0, "", "", next(hour.begin for hour in week.hours if hour.day == day))
    for who, hours in lines.items():
        by_day = [fsum(hours[at] for at, hour in enumerate(week.hours) if hour.day == number) for number in range(7)]
        rest = [value for number, value in enumerate(by_day) if number != day]
        earlier = before.get(who)
        if earlier:
            rest.append(fsum(earlier[day * 24 : day * 24 + 24]))
        apart = side * (by_day[day] - median(rest))
        if apart > best[0]:
            best = (apart, *who, _find_hour(week, hours, day, side))
    return replace(found, model_name=best[1], target=best[2], hour_begin=best[3])


def _sum_owners(facts: FactTable, week: str, *, tokens: bool, price: float) -> dict[tuple[str, str], list[float]]:
    """By model and target: USD by hour, or tokens; with a `price` of a token USD less the tokens at that price."""
    factors = {
        "cost": 0.0 if tokens else 1.0,
        **dict.fromkeys(("prompt_tokens", "decode_tokens"), 1.0 if tokens else -price),
    }
    of_owner = group_by_key(
        ((row["model_name"], row["target"]), [factor * (value or 0.0) for value in row["hours"]])
        for row in facts.rows(
            "select * from line where week = :week and quantity in ('cost', 'prompt_tokens', 'decode_tokens') order by fact",
            week=week,
        )
        if (factor := factors[row["quantity"]])
    )
    return {who: [fsum(values) for values in zip(*each, strict=True)] for who, each in of_owner.items()}


def _find_hour(week: Week, hours: Sequence[float], day: int, side: int) -> float:
    """The hour of the day that is furthest from the same hour of the clock on other days."""
    usual: dict[int, list[float]] = {}
    for at, hour in enumerate(week.hours):
        if hour.day != day:
            usual.setdefault(hour.hour, []).append(hours[at])
    own = [(at, hour) for at, hour in enumerate(week.hours) if hour.day == day]
    _, best = max(own, key=lambda one: side * (hours[one[0]] - median(usual.get(one[1].hour, [0.0]))))
    return best.begin


class Beyond(Struct, frozen=True):
    """Beyond the week."""

    trend: tuple[TrendWeek, ...] = ()  # the last weeks, the earliest first; () where nothing is known of any before
    month: MonthToDate | None = None  # the calendar month to date; None where nothing is known of it
    unusual: tuple[UnusualDay, ...] = ()  # days that are unlike others
    weeks_before: int = 0  # how many weeks before are known, which is what days are compared with
    refused: tuple[str, ...] = ()  # files of earlier reviews that were left out, in sentences


NOT_BEYOND = Beyond()


def look_beyond(facts: FactTable, past: Past, read: Sequence[WeekSpend], budget_usd_per_month: float | None) -> Beyond:
    """Looks at the weeks before, the month and the days. `read`: what the review read the counters of, where it has a cost."""
    week = facts.weeks[NOW]
    known = list_known_weeks(week, past, read)
    return Beyond(
        build_trend(week, known),
        sum_month(week, known, budget_usd_per_month),
        find_unusual_days(facts, known),
        sum(1 for one in known if one.week.begin + HOUR_SECONDS < week.begin and not one.week.is_span),
        past.refused,
    )
