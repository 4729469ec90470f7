"""What each shipped scenario is there for, proved on the fleet's own counts: loads."""

from __future__ import annotations

import pytest

from llm_serving_simulator.fleet.scenario import load, names
from tests.support.builders.simfleet import HOUR, MINUTE, minutes, p99, starting, truth


def test_the_scenarios_that_were_promised_are_there_and_sound() -> None:
    assert names() == [
        "calm-day", "engine-hang", "error-burst", "kv-pressure", "long-context-burst", "node-loss-under-load", "prefill-flood",
        "prefix-cache-drop", "restart", "rolling-update", "scale-to-zero-and-back", "slow-degradation", "traffic-vanished", "weekend-idle",
    ]  # fmt: skip
    for name in names():
        scenario = load(name)
        assert scenario.name == name
        assert all(event.at_seconds < scenario.duration_seconds for event in scenario.events)
        for alert in scenario.alerts:
            assert alert.name.startswith("LLMServing")
            assert alert.after_seconds + (alert.within_seconds or 0.0) <= scenario.duration_seconds
        # cheap to simulate: 0.2 to 5 requests/s a replica at most
        assert scenario.rate.highest / len(scenario.replicas) <= 5.0


def test_calm_day_is_calm_at_its_peak() -> None:
    scenario = starting(load("calm-day"), 14.0)
    fleet = scenario.fleet()
    found = truth(fleet, 0, 120)
    assert found.arrived / (2 * HOUR) == pytest.approx(scenario.rate.highest, rel=0.05)
    assert p99(found) < 0.5
    assert found.peak_waiting <= 5
    assert found.counts.busy_seconds / (2 * HOUR * 4) < 0.6
    assert found.counts.rejected == found.counts.preemptions == found.unrouted == found.lost == 0


@pytest.mark.e2e
def test_prefill_flood_takes_half_of_busy_time_and_slows_every_step() -> None:
    scenario = load("prefill-flood")
    fleet = scenario.fleet()
    fleet.advance(20 * MINUTE)
    before = [engine.books.itl.counts[:] for engine in fleet.engines()]
    found = truth(fleet, 20, 40)
    efficiency = scenario.replicas[0].engine.compute_efficiency
    assert found.counts.compute_seconds / efficiency / found.counts.busy_seconds > 0.45
    events, slow = 0, 0
    assert scenario.slo.itl is not None
    for engine, earlier in zip(fleet.engines(), before, strict=True):
        grown = [later - old for later, old in zip(engine.books.itl.counts, earlier, strict=True)]
        events += sum(grown)
        slow += sum(grown[engine.books.itl.edges.index(scenario.slo.itl) + 1 :])
    assert events > 500
    assert slow / events > 0.15, "ITL p95 above its threshold, and far above what a 1 % budget burns 14 times over"
    assert found.counts.preemptions == 0


@pytest.mark.e2e
def test_kv_pressure_keeps_the_cache_full_with_requests_waiting() -> None:
    fleet = load("kv-pressure").fleet()
    assert max(engine.kv.usage_ratio for _ in minutes(fleet, 0, 19) for engine in fleet.engines()) < 0.9
    for _ in minutes(fleet, 26, 50):
        assert all(engine.kv.usage_ratio > 0.95 for engine in fleet.engines())
        assert all(engine.waiting for engine in fleet.engines())
    found = truth(fleet, 25, 50)
    assert found.counts.preemptions / found.counts.finished > 0.1
    assert found.counts.finished > 50
    fleet.advance(70 * MINUTE)
    assert fleet.waiting == 0, "it recovers"


@pytest.mark.e2e
def test_prefix_cache_drop_takes_every_hit() -> None:
    fleet = load("prefix-cache-drop").fleet()
    before, after = truth(fleet, 30, 60), truth(fleet, 60, 90)
    assert before.counts.hit_tokens / before.counts.queried_tokens > 0.6
    assert after.counts.hit_tokens == 0
    assert after.counts.queried_tokens > 10_000
    assert p99(after) < 1.0


@pytest.mark.e2e
def test_long_context_burst_leaves_room_for_fewer_than_four_of_its_tail() -> None:
    scenario = load("long-context-burst")
    fleet = scenario.fleet()
    fleet.advance(75 * MINUTE)
    capacity = scenario.replicas[0].engine.kv_capacity_tokens

    def tail(begin: float, end: float) -> float:
        lengths = sorted(
            record.request.prompt_tokens
            for record in fleet.ledger.records
            if begin * MINUTE <= record.arrived_seconds < end * MINUTE
        )
        assert len(lengths) >= 1000
        return lengths[int(0.99 * len(lengths))]

    assert capacity / tail(0, 30) > 10
    assert capacity / tail(30, 75) < 4


def test_traffic_vanishes_while_the_engines_are_up() -> None:
    fleet = load("traffic-vanished").fleet()
    before, after = truth(fleet, 15, 45), truth(fleet, 46, 76)
    assert after.decode_tokens + after.prefill_tokens < 0.1 * (before.decode_tokens + before.prefill_tokens)
    assert (before.decode_tokens + before.prefill_tokens) / 1800 > 10
    assert after.peak_waiting <= 2
    assert all(replica.ready for replica in fleet.replicas.values())


@pytest.mark.e2e
def test_weekend_idle_has_a_tenth_of_the_traffic() -> None:
    friday, saturday = (starting(load("weekend-idle"), 12.0, day).fleet() for day in (4, 5))
    busy, idle = truth(friday, 0, 120), truth(saturday, 0, 120)
    assert idle.arrived / busy.arrived == pytest.approx(0.1, abs=0.02)
    assert p99(busy) < 2.5
