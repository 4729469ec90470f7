"""Calm days in which no alert fires, and days in which exactly those fire that must; every rule evaluated each minute.

A rule that yields nothing is silent too. So what was recorded is held against the fleet's own counts, and the same replay over a
history with faults has to find them.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from llm_serving_exporter.sim.fleet.rate import DAY_SECONDS, Step
from llm_serving_exporter.sim.fleet.scenario import Event
from tests.e2e.replay import HOUR, MINUTE, WATCHDOG, Replayed, calm, recorded_by, replayed, rules_in_order, settings_for

# recorded only where requests wait, which on a calm day none does for five minutes
OF_QUEUES = frozenset(
    {
        "model:llm_serving_reference_work_per_replica:rate5m_waiting",
        "model:llm_serving_reference_work_per_replica:p90_7d",
        "model_gpu:llm_serving_phase_tokens:max_rate5m_waiting",
        "model_gpu:llm_serving_reference_work:max_rate5m_waiting",
        "model_gpu:llm_serving_replica_work:best",
    }
)
# recorded once there is a history of days
OF_DAYS = frozenset(
    {
        "model:llm_serving_prefix_cache_hit:median7d",
        "model_gpu:llm_serving_bandwidth_ceiling:median7d",
        "model:llm_serving_tokens:same_hour_median7d",
        "model:llm_serving_tokens:same_hour_week_ago",
    }
)
# a week for the baselines, and the week that counts
WEEK = 7 * DAY_SECONDS


def errors(at_seconds: float) -> tuple[Event, ...]:
    """One request in four fails for twenty minutes."""
    return Event(at_seconds, "errors", value=0.25), Event(at_seconds + 20 * MINUTE, "errors", value=0.0)


def hang(at_seconds: float) -> tuple[Event, ...]:
    """One engine makes no step for twelve minutes."""
    one = ("replica-1",)
    return Event(at_seconds, "hang", replicas=one), Event(at_seconds + 12 * MINUTE, "resume", replicas=one)


def no_hits(at_seconds: float) -> tuple[Event, ...]:
    """Nothing is found in the prefix cache for two hours."""
    return Event(at_seconds, "prefix-cache-off"), Event(at_seconds + 2 * HOUR, "prefix-cache-on")


def no_traffic(at_seconds: float) -> tuple[Step, ...]:
    """Hardly a request comes for an hour."""
    return Step(at_seconds, 0.02), Step(at_seconds + HOUR, 1.0)


def days_of(folder: Path, counted_seconds: float, asked: Mapping[str, Any]) -> Replayed:
    """One history; `asked` is what `calm` takes: a scenario cannot be handed to another process."""
    return replayed(calm(**asked), folder, counted_seconds)


def both(
    folder: Path, counted_seconds: float, quiet: Mapping[str, Any], faulty: Mapping[str, Any]
) -> tuple[Replayed, Replayed]:
    """Two histories, side by side."""
    with ProcessPoolExecutor(2) as pool:
        first = pool.submit(days_of, folder / "calm", counted_seconds, quiet)
        second = pool.submit(days_of, folder / "faults", counted_seconds, faulty)
        return first.result(), second.result()


def assert_calm(seen: Replayed, *, days: float, unrecorded: frozenset[str]) -> None:
    """Nothing but the watchdog fired, although everything was recorded, and rightly."""
    assert set(seen.fired) == {WATCHDOG}, seen.fired
    assert seen.minutes == days * DAY_SECONDS / MINUTE + 1
    assert seen.recorded == recorded_by(rules_in_order(settings_for(calm(days=days)))) - unrecorded
    for phase, (recorded, counted) in seen.tokens.items():
        assert counted > 1e6
        assert recorded == pytest.approx(counted, rel=0.02), phase


def assert_found(seen: Replayed, wanted: dict[str, tuple[float, float]]) -> None:
    """Exactly these fired: each after its cause, and within that time of it."""
    assert set(seen.fired) == {WATCHDOG, *wanted}, seen.fired
    for name, (cause, within) in wanted.items():
        assert cause < seen.fired[name] <= cause + within, f"{name} at {seen.fired[name]:.0f} s"


@pytest.mark.e2e
def test_nothing_fires_in_twelve_calm_hours(tmp_path: Path) -> None:
    asked = {"days": 0.5, "from_hour": 8.0}
    events = (*errors(5 * HOUR), *hang(8 * HOUR))
    seen, found = both(tmp_path, 12 * HOUR, asked, {**asked, "events": events})
    assert_calm(seen, days=0.5, unrecorded=OF_QUEUES | OF_DAYS)
    assert_found(
        found,
        {
            "LLMServingSLOBurnFast": (5 * HOUR, 20 * MINUTE),
            "LLMServingSLOBurnSlow": (5 * HOUR, HOUR),
            "LLMServingStalled": (8 * HOUR, 10 * MINUTE),
        },
    )


@pytest.mark.soak
def test_nothing_fires_in_a_calm_week(tmp_path: Path) -> None:
    # Monday, the fifth day after a Wednesday and a week
    monday = WEEK + 5 * DAY_SECONDS
    events = (*errors(monday + 8 * HOUR), *hang(monday + 11 * HOUR), *no_hits(monday + 14 * HOUR))
    faults = {"days": 13, "events": events, "rates": no_traffic(monday + 19 * HOUR)}
    seen, found = both(tmp_path, WEEK, {"days": 14}, faults)
    assert_calm(seen, days=14, unrecorded=OF_QUEUES)
    assert_found(
        found,
        {
            "LLMServingSLOBurnFast": (monday + 8 * HOUR, 20 * MINUTE),
            "LLMServingSLOBurnSlow": (monday + 8 * HOUR, HOUR),
            "LLMServingStalled": (monday + 11 * HOUR, 10 * MINUTE),
            "LLMServingHitRateDropped": (monday + 14 * HOUR, 75 * MINUTE),
            "LLMServingTrafficVanished": (monday + 19 * HOUR, 40 * MINUTE),
        },
    )
