"""Gaps from presence alone, and what counters at their edges say."""

from __future__ import annotations

import pytest

from llm_serving_exporter.clients.json_api import Sample
from llm_serving_review.evidence.gaps import (
    Silence,
    add_recovered,
    clip_to_week,
    crosses_hour,
    describe_gap,
    find_silences,
    measure_growth,
)
from tests.support.builders.costevidence import WEEK, joined, owner, usage

HOUR = 3600.0
BEGIN = WEEK.begin
WHO = ((), "a:8000")
OTHER = ((), "b:8000")


def there(*spans: tuple[float, float]) -> list[tuple[float, float]]:
    return [(BEGIN + begin, BEGIN + end) for begin, end in spans]


def test_minutes_between_data_are_a_gap() -> None:
    found = find_silences({WHO: there((0, HOUR), (2 * HOUR, 168 * HOUR))}, WEEK.end)
    assert found == [Silence(WHO, BEGIN + HOUR, BEGIN + 2 * HOUR)]


def test_what_comes_is_no_gap_and_what_goes_is_to_be_asked_about() -> None:
    presence = {WHO: there((30 * HOUR, 168 * HOUR)), OTHER: there((0, 90 * HOUR))}
    assert find_silences(presence, WEEK.end) == [Silence(OTHER, BEGIN + 90 * HOUR, None, alone=True)]


def test_where_all_data_end_those_that_were_there_last_have_a_gap() -> None:
    presence = {WHO: there((0, 100 * HOUR)), OTHER: there((0, 90 * HOUR))}
    assert find_silences(presence, WEEK.end) == [
        Silence(OTHER, BEGIN + 90 * HOUR, None, alone=True),
        Silence(WHO, BEGIN + 100 * HOUR, None),
    ]
    gap = clip_to_week(Silence(WHO, BEGIN + 100 * HOUR, None), WEEK)
    assert gap is not None
    assert (gap.end, gap.ends) == (WEEK.end, False)


def test_only_the_part_within_the_week_counts() -> None:
    gap = clip_to_week(Silence(WHO, BEGIN - HOUR, BEGIN + HOUR), WEEK)
    assert gap is not None
    assert (gap.begin, gap.end) == (BEGIN, BEGIN + HOUR)
    assert clip_to_week(Silence(WHO, BEGIN - 2 * HOUR, BEGIN - HOUR), WEEK) is None
    assert clip_to_week(Silence(WHO, WEEK.end, WEEK.end + HOUR), WEEK) is None


def test_only_what_no_hour_saw_is_recovered() -> None:
    assert not crosses_hour(Silence(WHO, BEGIN + 600, BEGIN + 1800), WEEK)
    assert crosses_hour(Silence(WHO, BEGIN + 3000, BEGIN + 4200), WEEK)


def samples(usd: float, seconds: float, instance: str = "1", **more: float) -> list[Sample]:
    own = {
        "target": "a:8000",
        "model_name": "m",
        "role": "unified",
        "engine": "0",
        "rate": "spot",
        "instance": instance,
    }
    found: list[Sample] = [
        ({**own, "__name__": "llm_serving_cost_usd_total", "phase": "decode", "method": "roofline"}, usd),
        ({**own, "__name__": "llm_serving_gpu_seconds_total", "state": "busy"}, seconds),
    ]
    for name, value in more.items():
        found.append(
            ({"target": "a:8000", "gpu_name": "H100", "rate": "spot", "__name__": f"llm_serving_{name}"}, value)
        )
    return found


BOOK = {"target_gpus": 2.0, "gpu_price_usd_per_hour": 2.0}
SILENCE = Silence(WHO, BEGIN + 0.5 * HOUR, BEGIN + 2.5 * HOUR)


def gap_of(before: list[Sample], after: list[Sample]):
    gap = clip_to_week(SILENCE, WEEK)
    assert gap is not None
    grown = measure_growth(before, after, (), ())
    return describe_gap(gap, SILENCE, grown, WEEK), grown


def test_counters_that_went_on_leave_nothing_missing() -> None:
    # two hours of two GPUs at $2
    gap, grown = gap_of(samples(10.0, 100.0, **BOOK), samples(18.0, 100.0 + 4 * HOUR))
    assert gap.recovered == {"cost": 8.0, "gpu_seconds": 4 * HOUR}
    assert gap.estimated_usd == 0.0
    week = usage(owner(), {"decode": 168.0})
    filled = add_recovered(week, gap, SILENCE, grown, WEEK)
    (line,) = filled.cost
    assert line.total == pytest.approx(176.0)
    assert [round((line.hours[hour] or 0) - 1.0, 6) for hour in range(4)] == [2.0, 4.0, 2.0, 0.0]


def test_counters_that_began_again_show_what_they_counted_since() -> None:
    gap, _ = gap_of(samples(10.0, 9000.0, **BOOK), samples(2.0, 1 * HOUR))
    assert gap.recovered["cost"] == 2.0
    # three of four GPU-hours
    assert gap.estimated_usd == pytest.approx(6.0)


def test_a_pair_counts_once() -> None:
    before = [*samples(10.0, 0.0, "1", **BOOK), *samples(50.0, 0.0, "2")]
    after = [*samples(18.0, 4 * HOUR, "1"), *samples(57.0, 3.5 * HOUR, "2")]
    gap, _ = gap_of(before, after)
    assert gap.recovered["cost"] == 8.0
    assert gap.seen_gpu_seconds == 4 * HOUR


def test_more_than_the_gpus_had_is_not_believed() -> None:
    gap, grown = gap_of(samples(10.0, 0.0, **BOOK), samples(900.0, 400 * HOUR))
    assert gap.recovered == {}
    assert gap.estimated_usd == 8.0
    week = joined(usage(owner(), {"decode": 168.0}))
    assert add_recovered(week, gap, SILENCE, grown, WEEK) == week


def test_without_a_price_or_gpus_nothing_is_guessed() -> None:
    gap, _ = gap_of(samples(10.0, 0.0), samples(10.0, 0.0))
    assert gap.missing_gpu_seconds is None
    assert gap.estimated_usd is None
