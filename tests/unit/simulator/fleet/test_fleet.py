"""Replicas behind a router: who serves what, what is lost, and that nothing depends on how time is cut."""

from __future__ import annotations

import pytest

from llm_serving_simulator.fleet.fleet import Fleet, ReplicaSpec, ReplicaState
from llm_serving_simulator.fleet.spec import EngineSpec
from llm_serving_simulator.fleet.workload import (
    Lengths,
    Mix,
    Outcome,
    PoissonWorkload,
    Prefixes,
    Profile,
    Request,
    Step,
)
from tests.support.builders.simfleet import TraceWorkload

ENGINE = EngineSpec(loading_seconds=30.0)
MIX = Mix(Lengths(400), Lengths(100, most=400), Prefixes(0.5, 4, 512))


def specs(count: int = 3, engine: EngineSpec = ENGINE) -> list[ReplicaSpec]:
    return [ReplicaSpec(f"r{number}", (f"n{number}",), engine) for number in range(count)]


def poisson(rate: float, seed: int = 1) -> PoissonWorkload:
    return PoissonWorkload(Profile(rate), [MIX], seed)


def trace(*rows: tuple[float, int, int]) -> TraceWorkload:
    return TraceWorkload(Request(*row) for row in rows)


def test_the_same_scenario_gives_the_same_numbers_whatever_the_steps() -> None:
    found = []
    for step in (600.0, 7.3, 0.31):
        fleet = Fleet(specs(), poisson(2.0), retry=True)
        fleet.call_at(100.0, lambda fleet=fleet: fleet.lose_node("n1"))
        fleet.call_at(130.0, lambda fleet=fleet: fleet.slow_down(3.0))
        fleet.call_at(200.0, lambda fleet=fleet: fleet.return_node("n1"))
        fleet.call_at(300.0, lambda fleet=fleet: fleet.rolling_update())
        at = 0.0
        while at < 600.0:
            at = min(at + step, 600.0)
            fleet.advance(at)
        found.append((fleet.totals(), fleet.truth(0.0, 600.0), list(fleet.ledger.records)))
    assert found[0] == found[1] == found[2]


def test_requests_go_to_the_replica_with_the_fewest() -> None:
    fleet = Fleet(specs(), trace(*[(0.001 * number, 200, 500) for number in range(9)]))
    fleet.advance(0.1)
    assert [replica.load for replica in fleet.replicas.values()] == [3, 3, 3]


def test_a_lost_node_takes_every_replica_that_touches_it() -> None:
    wide = EngineSpec(tensor=2, loading_seconds=30.0)
    fleet = Fleet(
        [ReplicaSpec("a", ("n0", "n1"), wide), ReplicaSpec("b", ("n1",), ENGINE), ReplicaSpec("c", ("n2",), ENGINE)],
        trace(*[(0.01 * number, 200, 2000) for number in range(9)], (50.0, 10, 10)),
    )
    fleet.advance(1.0)
    fleet.lose_node("n1")
    assert [replica.state for replica in fleet.replicas.values()] == [
        ReplicaState.DOWN, ReplicaState.DOWN, ReplicaState.READY,
    ]  # fmt: skip
    assert fleet.totals().lost == 6
    assert [record.outcome for record in fleet.ledger.records].count(Outcome.LOST) == 6
    fleet.advance(60.0)
    fleet.return_node("n1")
    assert fleet.replica("a").state is ReplicaState.LOADING
    fleet.advance(89.9)
    assert not fleet.replica("a").ready
    fleet.advance(90.0)
    assert fleet.replica("a").ready
    engine = fleet.replica("a").engine
    assert engine is not None
    assert engine.books.counts.submitted == 0, "counters begin at 0 again"
    assert fleet.replica("a").counts.submitted == 3, "but the truth remembers"
    with pytest.raises(KeyError):
        fleet.lose_node("n9")


def test_lost_requests_are_tried_again_where_that_is_asked_for() -> None:
    fleet = Fleet(specs(2), trace(*[(0.01 * number, 200, 1000) for number in range(8)]), retry=True)
    fleet.advance(1.0)
    fleet.lose_node("n0")
    fleet.advance(300.0)
    assert fleet.totals().retried == 4
    assert fleet.totals().lost == 0
    assert {record.outcome for record in fleet.ledger.records} == {Outcome.FINISHED}
    fleet.lose_node("n1")
    assert fleet.waiting == fleet.running == 0


def test_without_a_ready_replica_requests_find_none() -> None:
    fleet = Fleet(specs(1), trace((1.0, 10, 10), (20.0, 10, 10), (60.0, 10, 10)))
    fleet.advance(10.0)
    fleet.restart("r0")
    fleet.advance(100.0)
    assert [record.outcome for record in fleet.ledger.records] == [
        Outcome.FINISHED, Outcome.UNROUTED, Outcome.FINISHED,
    ]  # fmt: skip
    assert fleet.truth(0.0, 100.0).unrouted == 1


def test_a_rolling_update_loses_nothing_and_leaves_all_but_one_ready() -> None:
    fleet = Fleet(specs(), poisson(1.0))
    fleet.advance(100.0)
    fleet.rolling_update()
    least, at = 3, 100.0
    while any(replica.starts < 2 or not replica.ready for replica in fleet.replicas.values()):
        at += 1.0
        fleet.advance(at)
        least = min(least, sum(replica.ready for replica in fleet.replicas.values()))
        assert at < 1000.0
    assert least == 2
    assert fleet.totals().lost == fleet.totals().unrouted == 0


def test_scaling_down_drains_and_up_loads() -> None:
    fleet = Fleet(specs(), poisson(1.0))
    fleet.advance(100.0)
    fleet.scale(0)
    fleet.advance(300.0)
    assert {replica.state for replica in fleet.replicas.values()} == {ReplicaState.STOPPED}
    assert fleet.totals().lost == 0
    assert fleet.totals().unrouted > 100
    fleet.scale(2)
    assert [replica.state for replica in fleet.replicas.values()].count(ReplicaState.LOADING) == 2
    fleet.advance(331.0)
    assert sum(replica.ready for replica in fleet.replicas.values()) == 2


def test_truth_between_marks_adds_up_to_the_whole() -> None:
    fleet = Fleet(specs(2), poisson(3.0))
    fleet.advance(600.0)
    parts = [fleet.truth(begin, begin + 100.0) for begin in range(0, 600, 100)]
    whole = fleet.truth(0.0, 600.0)
    for name in ("generated_tokens", "prompt_tokens", "hit_tokens", "finished_stop", "submitted"):
        assert sum(getattr(part.counts, name) for part in parts) == getattr(whole.counts, name)
    assert sum(len(part.ttft_seconds) for part in parts) == len(whole.ttft_seconds) == whole.counts.first_tokens
    finished = [record for record in fleet.ledger.records if record.outcome is Outcome.FINISHED]
    under_way = [record for record in fleet.ledger.records if record.outcome is Outcome.UNDER_WAY]
    assert len(finished) + len(under_way) == whole.arrived
    assert whole.counts.finished == len(finished)
    assert max(part.peak_waiting for part in parts) == whole.peak_waiting


def test_arrivals_follow_the_rate_and_lengths_their_distribution() -> None:
    rate = Profile(4.0, steps=(Step(1000.0, 0.25), Step(2000.0, 2.0)))
    times, prompts, shared = [], [], 0
    for request in PoissonWorkload(rate, [MIX], 5).requests():
        if request.at_seconds > 3000.0:
            break
        times.append(request.at_seconds)
        prompts.append(request.prompt_tokens - request.prefix_tokens)
        shared += request.prefix is not None
    counts = [sum(begin <= at < begin + 1000.0 for at in times) for begin in (0.0, 1000.0, 2000.0)]
    for count, expected in zip(counts, (4000, 1000, 8000), strict=True):
        assert count == pytest.approx(expected, abs=5 * expected**0.5)
    assert sorted(prompts)[len(prompts) // 2] == pytest.approx(400, rel=0.05)
    assert shared / len(times) == pytest.approx(0.5, abs=0.03)


def test_a_rate_that_falls_to_nothing_for_ever_ends_nothing() -> None:
    workload = PoissonWorkload(Profile(2.0, steps=(Step(100.0, 0.0),)), [MIX], 1)
    fleet = Fleet(specs(1), workload)
    fleet.advance(100_000.0)
    assert fleet.now_seconds == 100_000.0
    assert fleet.totals().arrived == pytest.approx(200, abs=60)
    assert fleet.totals().counts.finished == fleet.totals().arrived


def test_a_long_tail_is_as_long_as_it_says() -> None:
    import random

    lengths = Lengths(300, 0.3, most=100_000, tail_share=0.1, tail_from=8000, tail_alpha=2.0)
    rng = random.Random(1)
    drawn = [lengths.draw(rng) for _ in range(20_000)]
    long = [length for length in drawn if length >= 8000]
    assert len(long) / len(drawn) == pytest.approx(0.1, abs=0.01)
    # Pareto: a quarter of those beyond x is beyond 2 x at alpha 2
    assert sum(length >= 16000 for length in long) / len(long) == pytest.approx(0.25, abs=0.03)
