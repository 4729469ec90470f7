"""Days of the week that are unlike the same day of other weeks. Pure.

A day is compared with days that are known whole, of the weeks before. Of at least `_ENOUGH_WEEKS` weeks only the same weekday counts; with
fewer all other days do, and the same weekday of each of those weeks must be unlike, too, so that a quiet Sunday is no news. Each figure is
looked at twice: as it is, and over the median day of its own week. Both must lie further from the median of what it is compared with than
`_SPREADS` robust standard deviations and than `_LEAST_CHANGE` of it, on the same side: growth from week to week and a step in the middle of
one move only one of the two. A false alarm is worse than a day that is missed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from llm_serving_exporter.report.evidence.usage import Line, Usage
from llm_serving_exporter.report.evidence.week import Week
from llm_serving_exporter.report.figures.past_weeks import Known

# Iglewicz and Hoaglin, How to Detect and Handle Outliers (1993): 3.5 robust standard deviations
_SPREADS = 3.5
# 1 / the third quartile of the normal distribution: makes a standard deviation of a median absolute deviation
_NORMAL = 1.4826
# of the median: a calm fleet's days differ by less, whatever their spread
_LEAST_CHANGE = 0.25
_ENOUGH_WEEKS = 4
# days that a median and a spread are taken from
_ENOUGH_DAYS = 6
# of the week's median day: unit costs of a day with fewer tokens say nothing
_LEAST_TOKENS = 0.1
# of the week's spend: below it nobody looks
_LEAST_SHARE = 0.005
SHOWN = 5


class Measure(StrEnum):
    """What was unlike."""

    SPEND = "spend"
    UNIT_COST = "USD per million tokens"
    TOKENS = "tokens"


@dataclass(frozen=True, slots=True)
class UnusualDay:
    """A day that is unlike others."""

    # number of the day in the week, 0 for Monday
    day: int
    # what was unlike
    measure: Measure
    # what it came to
    value: float
    # the median of what it is compared with
    usual: float
    # the model that made most of it; "" where it is not known
    model_name: str
    # the target that made most of it; "" where it is not known
    target: str
    # the hour that made most of it: Unix seconds at which it begins
    hour_begin: float

    @property
    def ratio(self) -> float:
        """Value over the usual one."""
        return self.value / self.usual


@dataclass(frozen=True, slots=True)
class _Day:
    """A whole day's figure, as it is and over the median day of its week."""

    # 0 for Monday
    day: int
    # the figure itself
    value: float
    # over the median day of its week
    relative: float


def find_unusual_days(week: Week, known: Sequence[Known], usage: Usage, usage_before: Usage) -> tuple[UnusualDay, ...]:
    """The days, in order; at most `SHOWN`. () for a span, and while fewer than two weeks are known. Usage is as it counts, after
    `count_once`: it says which model and target made the difference."""
    own = next((one for one in known if one.week.name == week.name), None)
    if week.is_span or own is None:
        return ()
    others = [one for one in known if one is not own and not one.week.is_span]
    found = []
    for measure, read in _READERS.items():
        days = list(_list_days(own, read))
        past = [list(_list_days(one, read)) for one in others]
        past = [one for one in past if one]
        for day in days:
            usual = _find_usual(day, days, past)
            if usual is not None:
                found.append((measure, day, usual))
    worth = [one for one in found if _is_worth_it(own, *one)]
    # a day whose spend is unlike needs no second line for the tokens that go with it
    shown = [
        _explain(week, measure, day, usual, usage, usage_before)
        for measure, day, usual in sorted(worth, key=lambda one: (one[1].day, list(Measure).index(one[0])))
    ]
    return tuple(shown[:SHOWN])


def _read_spend(usd: float, tokens: float | None) -> float | None:
    return usd


def _read_tokens(usd: float, tokens: float | None) -> float | None:
    return tokens


def _read_unit_cost(usd: float, tokens: float | None) -> float | None:
    return usd / tokens * 1e6 if tokens else None


_READERS: dict[Measure, Callable[[float, float | None], float | None]] = {
    Measure.SPEND: _read_spend,
    Measure.UNIT_COST: _read_unit_cost,
    Measure.TOKENS: _read_tokens,
}


def _list_days(of: Known, read: Callable[[float, float | None], float | None]) -> Iterator[_Day]:
    """The days of a week of which every hour is known."""
    values: dict[int, float] = {}
    sums = _sum_days(of)
    counted = [tokens for _, tokens in sums.values() if tokens]
    least = _LEAST_TOKENS * median(counted) if counted else 0.0
    for day, (usd, tokens) in sums.items():
        if read is _read_unit_cost and (tokens or 0.0) < least:
            continue
        value = read(usd, tokens)
        if value is not None:
            values[day] = value
    middle = median(values.values()) if values else 0.0
    if middle > 0:
        yield from (_Day(day, value, value / middle) for day, value in values.items())


def _sum_days(of: Known) -> dict[int, tuple[float, float | None]]:
    found: dict[int, tuple[float, float | None]] = {}
    for number in range(7):
        begins = [round(hour.begin) for hour in of.week.hours if hour.day == number]
        # an hour without data of a complete week cost nothing, as at night where everything is scaled to 0
        usd = [of.usd_by_hour.get(at, 0.0 if of.complete and of.usd_by_hour else None) for at in begins]
        if None in usd:
            continue
        tokens = [of.tokens_by_hour[at] for at in begins if at in of.tokens_by_hour]
        found[number] = sum(value for value in usd if value is not None), sum(tokens) if tokens else None
    return found


def _find_usual(day: _Day, own: Sequence[_Day], past: Sequence[Sequence[_Day]]) -> float | None:
    """What the day usually comes to where it is unlike that; None where it is like, or too little is known."""
    same = [other for week in past for other in week if other.day == day.day]
    if len(same) >= _ENOUGH_WEEKS:
        compared = same
    else:
        compared = [other for week in (own, *past) for other in week if other is not day]
        if not same or len(compared) < _ENOUGH_DAYS:
            return None
    side = _find_side(day.value, [other.value for other in compared])
    if not side or side != _find_side(day.relative, [other.relative for other in compared]):
        return None
    if len(same) < _ENOUGH_WEEKS and any(
        side * (day.value - other.value) <= _LEAST_CHANGE * other.value
        or side * (day.relative - other.relative) <= _LEAST_CHANGE * other.relative
        for other in same
    ):
        return None
    return median(other.value for other in same)


def _find_side(value: float, others: Sequence[float]) -> int:
    """1 for far above the others, -1 for far below, 0 for like them."""
    middle = median(others)
    spread = _NORMAL * median(abs(other - middle) for other in others)
    if middle <= 0 or abs(value - middle) <= max(_SPREADS * spread, _LEAST_CHANGE * middle):
        return 0
    return 1 if value > middle else -1


def _is_worth_it(own: Known, measure: Measure, day: _Day, usual: float) -> bool:
    """Whether the difference is worth a look: in USD, where the measure is money."""
    if usual <= 0:
        return False
    if measure is not Measure.SPEND:
        return True
    return abs(day.value - usual) >= _LEAST_SHARE * own.paid_usd


def _explain(week: Week, measure: Measure, day: _Day, usual: float, usage: Usage, usage_before: Usage) -> UnusualDay:
    """Which model, target and hour made the difference: those that are furthest from their own other days, on the day's side."""
    side = 1 if day.value > usual else -1
    tokens = measure is Measure.TOKENS
    # the unit cost is unlike because of the money, or of the tokens that it bought: money at the usual price of its tokens says which
    price = usual / 1e6 if measure is Measure.UNIT_COST else 0.0
    lines = _sum_owners(usage, tokens=tokens, price=price)
    before = _sum_owners(usage_before, tokens=tokens, price=price)
    best: tuple[float, str, str, float] = (0.0, "", "", next(hour.begin for hour in week.hours if hour.day == day.day))
    for who, hours in lines.items():
        by_day = [sum(hours[at] for at, hour in enumerate(week.hours) if hour.day == number) for number in range(7)]
        rest = [value for number, value in enumerate(by_day) if number != day.day]
        earlier = before.get(who)
        if earlier:
            rest.append(sum(earlier[day.day * 24 : day.day * 24 + 24]))
        apart = side * (by_day[day.day] - median(rest))
        if apart > best[0]:
            best = (apart, *who, _find_hour(week, hours, day.day, side))
    return UnusualDay(day.day, measure, day.value, usual, best[1], best[2], best[3])


def _sum_owners(usage: Usage, *, tokens: bool, price: float) -> dict[tuple[str, str], list[float]]:
    """By model and target: USD by hour, or tokens; with a `price` of a token USD less the tokens at that price."""

    def add(lines: Sequence[Line], factor: float) -> None:
        for line in lines:
            into = found.setdefault((line.owner.model_name, line.owner.target), [0.0] * len(line.hours))
            for at, value in enumerate(line.hours):
                into[at] += factor * (value or 0.0)

    found: dict[tuple[str, str], list[float]] = {}
    if not tokens:
        add(usage.cost, 1.0)
    if tokens or price:
        for lines in (usage.prompt_tokens, usage.decode_tokens):
            add(lines, 1.0 if tokens else -price)
    return found


def _find_hour(week: Week, hours: Sequence[float], day: int, side: int) -> float:
    """The hour of the day that is furthest from the same hour of the clock on other days."""
    usual: dict[int, list[float]] = {}
    for at, hour in enumerate(week.hours):
        if hour.day != day:
            usual.setdefault(hour.hour, []).append(hours[at])
    own = [(at, hour) for at, hour in enumerate(week.hours) if hour.day == day]
    _, best = max(own, key=lambda one: side * (hours[one[0]] - median(usual.get(one[1].hour, [0.0]))))
    return best.begin
