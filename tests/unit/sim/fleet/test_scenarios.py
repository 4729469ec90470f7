"""What each shipped scenario is there for, proved on the fleet's own counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from llm_serving_exporter.sim.fleet.fleet import Fleet
from llm_serving_exporter.sim.fleet.rate import DAY_SECONDS
from llm_serving_exporter.sim.fleet.scenario import Scenario
from llm_serving_exporter.sim.fleet.scenario_file import load, names
from llm_serving_exporter.sim.fleet.truth import Truth

MINUTE, HOUR = 60.0, 3600.0


def starting(scenario: Scenario, hour: float, weekday: int = 2) -> Scenario:
    """The same from another hour of the week on."""
    daily = replace(scenario.rate.daily, begins_seconds=weekday * DAY_SECONDS + hour * HOUR)
    return replace(scenario, rate=replace(scenario.rate, daily=daily))


def minutes(fleet: Fleet, begin: float, end: float, step: float = 0.25) -> Iterator[float]:
    """The fleet at each quarter of a minute from `begin` to `end`, in minutes."""
    at = begin
    while at <= end:
        fleet.advance(at * MINUTE)
        yield at
        at += step


def truth(fleet: Fleet, begin: float, end: float) -> Truth:
    fleet.advance(end * MINUTE)
    return fleet.truth(begin * MINUTE, end * MINUTE)


def p99(found: Truth) -> float:
    value = found.ttft_quantile_seconds(0.99)
    assert value is not None
    return value


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


def test_kv_pressure_keeps_the_cache_full_with_requests_waiting() -> None:
    fleet = load("kv-pressure").fleet()
    assert max(engine.kv_usage_ratio for _ in minutes(fleet, 0, 19) for engine in fleet.engines()) < 0.9
    for _ in minutes(fleet, 26, 50):
        assert all(engine.kv_usage_ratio > 0.95 for engine in fleet.engines())
        assert all(engine.waiting for engine in fleet.engines())
    found = truth(fleet, 25, 50)
    assert found.counts.preemptions / found.counts.finished > 0.1
    assert found.counts.finished > 50
    fleet.advance(70 * MINUTE)
    assert fleet.waiting == 0, "it recovers"


def test_prefix_cache_drop_takes_every_hit() -> None:
    fleet = load("prefix-cache-drop").fleet()
    before, after = truth(fleet, 30, 60), truth(fleet, 60, 90)
    assert before.counts.hit_tokens / before.counts.queried_tokens > 0.6
    assert after.counts.hit_tokens == 0
    assert after.counts.queried_tokens > 10_000
    assert p99(after) < 1.0


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


def test_node_loss_leaves_too_little_until_the_node_is_back() -> None:
    fleet = load("node-loss-under-load").fleet()
    before = truth(fleet, 5, 25)
    assert p99(before) < 2.5
    assert all(fleet.waiting > 0 for _ in minutes(fleet, 33, 54, 0.5))
    assert sum(replica.ready for replica in fleet.replicas.values()) == 3
    lost = truth(fleet, 33, 54)
    assert (lost.ttft_quantile_seconds(0.5) or 0.0) > 2.5
    assert lost.lost == 0
    assert fleet.totals().retried > 0
    after = truth(fleet, 68, 78)
    assert p99(after) < 2.5
    assert sum(replica.ready for replica in fleet.replicas.values()) == 4


def test_a_rolling_update_goes_unnoticed() -> None:
    fleet = load("rolling-update").fleet()
    assert min(sum(replica.ready for replica in fleet.replicas.values()) for _ in minutes(fleet, 19, 40)) == 3
    assert all(replica.starts == 2 for replica in fleet.replicas.values())
    found = truth(fleet, 0, 50)
    assert found.lost == found.unrouted == 0
    assert p99(found) < 2.5


def test_scale_to_zero_and_back_loses_nothing() -> None:
    fleet = load("scale-to-zero-and-back").fleet()
    fleet.advance(23 * MINUTE)
    for _ in minutes(fleet, 23, 49, 1.0):
        assert not any(replica.engine for replica in fleet.replicas.values())
    found = truth(fleet, 0, 75)
    assert sum(replica.ready for replica in fleet.replicas.values()) == 3
    assert found.lost == found.unrouted == 0
    assert truth(fleet, 55, 75).counts.finished > 500


def test_traffic_vanishes_while_the_engines_are_up() -> None:
    fleet = load("traffic-vanished").fleet()
    before, after = truth(fleet, 15, 45), truth(fleet, 46, 76)
    assert after.decode_tokens + after.prefill_tokens < 0.1 * (before.decode_tokens + before.prefill_tokens)
    assert (before.decode_tokens + before.prefill_tokens) / 1800 > 10
    assert after.peak_waiting <= 2
    assert all(replica.ready for replica in fleet.replicas.values())


def test_error_burst_is_a_quarter_of_the_requests_for_twenty_minutes() -> None:
    fleet = load("error-burst").fleet()
    shares = []
    for begin in (10, 31, 52):
        found = truth(fleet, begin, begin + 18)
        shares.append(found.counts.finished_error / found.counts.finished)
    assert shares[0] == shares[2] == 0.0
    assert shares[1] == pytest.approx(0.25, abs=0.04)


def test_engine_hang_stops_one_engine_that_still_looks_ready() -> None:
    fleet = load("engine-hang").fleet()
    fleet.advance(20 * MINUTE)
    hung = fleet.replica("replica-1")
    before = hung.counts
    for _ in minutes(fleet, 20.25, 31.75):
        assert hung.ready
        assert hung.load > 0
        assert hung.engine is not None
        assert hung.engine.shown.running > 0, "which is what an alert can see"
        assert hung.counts.generated_tokens == before.generated_tokens
    fleet.advance(40 * MINUTE)
    assert hung.counts.generated_tokens > before.generated_tokens
    others = truth(fleet, 22, 31)
    assert p99(others) < 2.5, "the router sends new requests elsewhere"


def test_a_restart_is_one_restart() -> None:
    fleet = load("restart").fleet()
    found = truth(fleet, 0, 40)
    assert [replica.starts for replica in fleet.replicas.values()] == [2, 1, 1]
    assert fleet.replica("replica-0").started_seconds == 15 * MINUTE
    assert found.unrouted == found.lost == 0
    assert p99(found) < 2.5


def test_slow_degradation_does_three_fifths_of_what_was_done_while_requests_waited() -> None:
    scenario = load("slow-degradation")
    fleet = scenario.fleet()
    best, now = 0.0, []
    for begin in range(0, 60, 5):
        found = truth(fleet, begin, begin + 5)
        if found.peak_waiting:
            best = max(best, found.decode_tokens)
    fleet.advance(102 * MINUTE)
    for begin in range(102, 122, 5):
        now.append(truth(fleet, begin, begin + 5).decode_tokens)
        assert fleet.waiting > 0
    assert best > 0, "the hour before knows a queue too"
    assert all(0.5 < tokens / best < 0.7 for tokens in now)


def test_weekend_idle_has_a_tenth_of_the_traffic() -> None:
    friday, saturday = (starting(load("weekend-idle"), 12.0, day).fleet() for day in (4, 5))
    busy, idle = truth(friday, 0, 120), truth(saturday, 0, 120)
    assert idle.arrived / busy.arrived == pytest.approx(0.1, abs=0.02)
    assert p99(busy) < 2.5


def test_history_is_the_same_load_before_the_scenario_without_its_events() -> None:
    scenario = load("error-burst")
    assert scenario.history is not None
    scenario = replace(scenario, history=replace(scenario.history, days=0.05, factor=0.5))
    begin = scenario.begin_seconds(with_history=True)
    assert begin == pytest.approx(0.05 * DAY_SECONDS)
    fleet = scenario.fleet(with_history=True)
    fleet.advance(begin + 50 * MINUTE)
    calm, burst = fleet.truth(0.0, begin), fleet.truth(begin + 31 * MINUTE, begin + 49 * MINUTE)
    assert calm.arrived / begin == pytest.approx(0.75, rel=0.06)
    assert calm.counts.finished_error == 0
    assert burst.counts.finished_error / burst.counts.finished == pytest.approx(0.25, abs=0.04)
    assert burst.arrived / (18 * MINUTE) == pytest.approx(1.5, rel=0.1)
