"""Days that are unlike others. Calm fleets are the larger part: an alarm that means nothing costs more than one that is missed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from zoneinfo import ZoneInfo

import pytest

from llm_serving_exporter.model.record import replace
from llm_serving_review.evidence.past import Source, WeekSpend
from llm_serving_review.evidence.usage import Gap, Line, Usage
from llm_serving_review.evidence.week import Week, parse_week, week_before
from llm_serving_review.figures.beyond import Measure, UnusualDay, find_unusual_days
from llm_serving_review.figures.past_weeks import describe_read_week
from llm_serving_review.tables.facts import NOW
from tests.support.builders.costevidence import facts_of, owner
from tests.support.rows import check_rows

ZONE = ZoneInfo("UTC")
WEEK = parse_week("2026-W46", ZONE)
# weekday, weeks ago -> USD of the day, tokens of the day
Shape = Callable[[int, int], tuple[float, float]]


def weeks(count: int) -> list[Week]:
    found = [WEEK]
    while len(found) < count:
        found.append(week_before(found[-1], ZONE))
    return found


def known(week: Week, ago: int, shape: Shape, seen: float = 168.0) -> WeekSpend:
    usd, tokens = {}, {}
    for hour in week.hours:
        day_usd, day_tokens = shape(hour.day, ago)
        usd[round(hour.begin)], tokens[round(hour.begin)] = day_usd / 24, day_tokens / 24
    return WeekSpend(week, Source.FILE, sum(usd.values()), sum(tokens.values()), None, seen, 0.0, usd, tokens)


def look(count: int, shape: Shape, usage: Usage | None = None, before: Usage | None = None) -> Sequence[UnusualDay]:
    """What is found with that many weeks, the week under review included."""
    found = [known(week, ago, shape) for ago, week in enumerate(weeks(count))]
    return find_unusual_days(facts_of(usage or Usage(), before or Usage()), found)


def calm(seed: int, noise: float, weekend: float = 0.6, growth: float = 0.0) -> Shape:
    random = Random(seed)
    drawn = {(day, ago): random.gauss(1.0, noise) for ago in range(12) for day in range(7)}

    def shape(day: int, ago: int) -> tuple[float, float]:
        level = (weekend if day >= 5 else 1.0) * (1.0 - growth) ** ago * drawn[day, ago]
        # money is steadier than load, as fleets have a floor
        return 1000.0 * (0.5 + 0.5 * level), 1e9 * level

    return shape


@check_rows("count", [2, 4, 12])
@check_rows("noise", [0.0, 0.08])
@check_rows("growth", [0.0, 0.04])
def test_a_calm_fleet_has_none(count: int, noise: float, growth: float) -> None:
    """Sundays are quiet, every week is larger than the last, days differ by chance: nobody is told."""
    # 8 weeks with 7 days each and three figures a day; 40 have at most one alarm
    assert not any(look(count, calm(seed, noise, growth=growth)) for seed in range(8))


@pytest.mark.parametrize("count", [3, 12])
def test_a_step_from_one_day_on_is_no_unusual_day(count: int) -> None:
    """A fleet that is half as large again from Wednesday on, or from Monday on: that is what changed the week, not a day."""
    for begin in (0, 2):
        shape = calm(1, 0.03)

        def stepped(day: int, ago: int, begin: int = begin, shape: Shape = shape) -> tuple[float, float]:
            usd, tokens = shape(day, ago)
            factor = 1.5 if ago == 0 and day >= begin else 1.0
            return usd * factor, tokens * factor

        assert look(count, stepped) == ()


@check_rows("count", [2, 3, 6, 12])
def test_a_day_that_doubles_is_found_once(count: int) -> None:
    for seed in range(4):
        shape = calm(seed, 0.04)

        def spiked(day: int, ago: int, shape: Shape = shape) -> tuple[float, float]:
            usd, tokens = shape(day, ago)
            return (usd * 2, tokens) if (day, ago) == (3, 0) else (usd, tokens)

        (day,) = look(count, spiked)
        assert (day.day, day.measure) == (3, Measure.SPEND)
        assert day.ratio == pytest.approx(2.0, rel=0.15)


def test_a_quiet_day_and_a_dear_one_are_found() -> None:
    shape = calm(5, 0.03)

    def odd(day: int, ago: int) -> tuple[float, float]:
        usd, tokens = shape(day, ago)
        if ago == 0 and day == 1:
            return usd, tokens * 0.3
        return usd, tokens

    (day,) = look(8, odd)
    assert (day.day, day.measure) == (1, Measure.UNIT_COST)
    assert day.value > 3 * day.usual


def test_it_says_who_made_it_and_when() -> None:
    shape = calm(2, 0.02)

    def spiked(day: int, ago: int) -> tuple[float, float]:
        usd, tokens = shape(day, ago)
        return (usd + 900, tokens) if (day, ago) == (3, 0) else (usd, tokens)

    def line(target: str, model: str, extra: dict[int, float]) -> Line:
        return Line(
            owner(target, model), ("idle", "spot", "x"), tuple(10.0 + extra.get(hour, 0.0) for hour in range(168))
        )

    batch = dict.fromkeys(range(3 * 24 + 8, 3 * 24 + 18), 90.0) | {3 * 24 + 11: 140.0}
    usage = Usage(cost=(line("steady:1", "m", {}), line("batch:1", "qwen", batch), line("noisy:1", "m", {80: 12.0})))
    (day,) = look(6, spiked, usage, Usage(cost=(line("steady:1", "m", {}),)))
    assert (day.model_name, day.target) == ("qwen", "batch:1")
    assert day.hour_begin == WEEK.hours[3 * 24 + 11].begin


def test_days_with_gaps_are_neither_judged_nor_compared_with() -> None:
    shape = calm(3, 0.02)
    found = [known(week, ago, shape, 160.0) for ago, week in enumerate(weeks(8))]
    # half of Thursday is not known: it looks like half of the spend
    for begin in [round(hour.begin) for hour in WEEK.hours if hour.day == 3][:12]:
        del found[0].usd_by_hour[begin]
    assert find_unusual_days(facts_of(Usage()), found) == ()


def test_a_gap_of_one_target_makes_no_unusual_day() -> None:
    """Of four targets two are not seen on Thursday: half of the spend is not there, and the gap says so."""
    targets = [owner(f"t{number}:1", "m") for number in range(4)]

    def use(dark: bool) -> Usage:
        def hours(number: int) -> tuple[float | None, ...]:
            gone = dark and number < 2
            return tuple(None if gone and 72 <= hour < 96 else 10.0 for hour in range(168))

        return Usage(
            cost=tuple(Line(one, ("idle", "spot", "x"), hours(number)) for number, one in enumerate(targets)),
            gpu_seconds=tuple(Line(one, ("idle", "spot"), hours(number)) for number, one in enumerate(targets)),
        )

    begin, end = WEEK.begin + 3 * 86_400, WEEK.begin + 4 * 86_400
    gaps = tuple(Gap((), f"t{number}:1", begin, end, True, 1.0, 10.0) for number in range(2))
    (_, *before) = weeks(6)
    past = [describe_read_week(facts_of(use(dark=False), week=week), NOW, 6720.0, 168.0, ()) for week in before]
    seen = describe_read_week(facts_of(use(dark=True)), NOW, 6240.0, 162.0, gaps)
    assert seen.doubtful_days == {3}
    assert find_unusual_days(facts_of(use(dark=True), use(dark=False)), [seen, *past]) == ()
    # without a gap it would be one
    assert len(find_unusual_days(facts_of(use(dark=True)), [replace(seen, doubtful_days=frozenset()), *past])) == 1


def test_a_first_week_and_a_span_have_nothing_to_compare_with() -> None:
    assert look(1, calm(1, 0.5)) == ()
