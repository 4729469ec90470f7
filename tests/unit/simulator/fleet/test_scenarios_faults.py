"""What each shipped scenario is there for, proved on the fleet's own counts: faults and changes."""

from __future__ import annotations

import pytest

from llm_serving_exporter.model.record import replace
from llm_serving_simulator.fleet.scenario import History, load
from llm_serving_simulator.fleet.workload import DAY_SECONDS, Lengths, Mix
from tests.support.builders.simfleet import MINUTE, minutes, p99, truth


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


@pytest.mark.e2e
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


@pytest.mark.e2e
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


def test_requests_change_so_long_after_the_scenarios_beginning_with_a_history_before_it() -> None:
    """Prompts have 10 tokens, from the scenario's second minute on 1,000; the history before it has ten minutes."""
    mixes = (
        Mix(Lengths(10, least=10, most=10), Lengths(5, least=5, most=5)),
        Mix(Lengths(1000, least=1000, most=1000), Lengths(5, least=5, most=5), from_seconds=2 * MINUTE),
    )
    scenario = replace(load("error-burst"), mixes=mixes, history=History(10 * MINUTE / DAY_SECONDS), events=())
    fleet = scenario.fleet(with_history=True)
    before, after = truth(fleet, 0, 11), truth(fleet, 13, 15)
    assert before.counts.prompt_tokens == 10 * len(before.ttft_seconds) > 0
    assert after.counts.prompt_tokens == 1000 * len(after.ttft_seconds) > 0


@pytest.mark.e2e
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
