"""The simulated engine against a naive one, closed forms and conservation."""

from __future__ import annotations

import random

import pytest

from llm_serving_exporter.derive.roof import decode_ceiling, prefill_floor_seconds
from llm_serving_simulator.fleet.engine import Engine
from llm_serving_simulator.fleet.spec import EngineSpec
from llm_serving_simulator.fleet.workload import Outcome, Record, Request
from tests.support.builders.naiveengine import simulate
from tests.support.rows import check_rows

SMALL = EngineSpec(kv_blocks=2048, context_limit_tokens=8192, max_num_seqs=16, max_num_batched_tokens=512)


def load(seed: int, count: int, rate: float, *, prompt: int = 600, output: int = 120) -> list[Request]:
    rng = random.Random(seed)
    at, requests = 0.0, []
    for _ in range(count):
        at += rng.expovariate(rate)
        prefix = rng.choice([None, "a", "b", "c"])
        head = {"a": 320, "b": 200, "c": 1000}.get(prefix or "", 0)
        requests.append(Request(at, head + rng.randint(1, 2 * prompt), rng.randint(1, 2 * output), prefix, head))
    return requests


def serve(spec: EngineSpec, requests: list[Request], longest_run: int | None = None) -> tuple[Engine, list[Record]]:
    engine = Engine(spec, longest_run=longest_run)
    records = [engine.submit(request, request.at_seconds) for request in requests]
    engine.advance(1e9)
    return engine, records


@check_rows(
    ("spec", "rate", "preempts"),
    [
        (SMALL, 2.0, False),
        (SMALL, 40.0, False),
        (EngineSpec(kv_blocks=512, context_limit_tokens=8192, max_num_seqs=32, max_num_batched_tokens=256), 30.0, True),
        (EngineSpec(kv_blocks=520, context_limit_tokens=8192, max_num_seqs=8, prefix_caching=False), 20.0, True),
        (
            EngineSpec(
                kv_blocks=600, context_limit_tokens=8192, max_num_seqs=24, tensor=2, pipeline=2, block_tokens=32
            ),
            30.0,
            False,
        ),
        (
            EngineSpec(model="Qwen/Qwen3-30B-A3B", kv_blocks=512, context_limit_tokens=8192, max_num_seqs=24, tensor=2),
            20.0,
            True,
        ),
    ],
)
def test_runs_of_steps_do_what_a_loop_a_token_does(spec: EngineSpec, rate: float, preempts: bool) -> None:
    requests = load(7, 120, rate, output=200 if preempts else 120)
    lives, preemptions = simulate(spec, requests)
    for longest_run in (None, 1):
        engine, records = serve(spec, requests, longest_run)
        assert engine.books.counts.preemptions == preemptions
        assert [record.preemptions for record in records] == [life.preemptions for life in lives]
        assert [record.hit_tokens for record in records] == [life.hits for life in lives]
        for record, life in zip(records, lives, strict=True):
            assert record.outcome is Outcome.FINISHED
            assert record.first_token_seconds == pytest.approx(life.token_times[0], rel=1e-6)
            assert record.ended_seconds == pytest.approx(life.ended, rel=1e-6)
        gaps = [
            later - earlier
            for life in lives
            for earlier, later in zip(life.token_times, life.token_times[1:], strict=False)
        ]
        assert engine.books.itl.count == len(gaps)
        assert engine.books.itl.total == pytest.approx(sum(gaps), rel=1e-6)
        below = [sum(gap <= edge * (1 + 1e-9) for gap in gaps) for edge in engine.books.itl.edges]
        cumulative = [sum(engine.books.itl.counts[: i + 1]) for i in range(len(below))]
        assert cumulative == below
        assert engine.kv.free == engine.kv.blocks, "everything was given back"
        assert not any(engine._batch._block_steps)
    assert (preemptions > 0) is preempts


def test_engines_of_any_size_do_what_a_loop_a_token_does() -> None:
    preempted = 0
    for seed in range(40):
        rng = random.Random(seed)
        block = rng.choice([1, 4, 16, 32])
        blocks = rng.choice([1500, 3000, 8000]) // block
        spec = EngineSpec(
            kv_blocks=blocks,
            context_limit_tokens=blocks * block,
            block_tokens=block,
            max_num_seqs=rng.choice([1, 3, 8, 32]),
            max_num_batched_tokens=rng.choice([64, 256, 1024]),
            prefix_caching=rng.random() < 0.8,
            pipeline=rng.choice([1, 2]),
            compute_efficiency=rng.choice([0.6, 0.02]),
        )
        at, requests = 0.0, []
        for _ in range(40):
            at += rng.expovariate(rng.choice([1, 10, 100]))
            prefix = rng.choice([None, "a", "b", "c", "d"])
            head = {"a": 48, "b": 100, "c": 333, "d": 16}.get(prefix or "", 0)
            requests.append(Request(at, head + rng.randint(1, 400), rng.randint(1, 300), prefix, head))
        lives, preemptions = simulate(spec, requests)
        engine, records = serve(spec, requests)
        preempted += preemptions
        assert engine.books.counts.preemptions == preemptions, seed
        for record, life in zip(records, lives, strict=True):
            assert (record.hit_tokens, record.preemptions) == (life.hits, life.preemptions), seed
            assert record.ended_seconds == pytest.approx(life.ended, rel=1e-6), seed
    assert preempted > 50


def test_how_often_it_is_looked_at_changes_no_digit() -> None:
    requests = load(3, 150, 8.0)
    spec = EngineSpec(kv_blocks=520, context_limit_tokens=8192, max_num_seqs=12)
    once, records = serve(spec, requests)
    often = Engine(spec)
    at, others = 0.0, []
    for request in requests:
        while at < request.at_seconds:
            often.advance(at)
            at += 0.0173
        others.append(often.submit(request, request.at_seconds))
    for _ in range(200_000):
        if not often.load:
            break
        often.advance(at)
        at += 0.0173
    assert often.books.counts == once.books.counts
    for name in ("ttft", "itl", "e2e", "iteration", "queue"):
        mine, others_ = getattr(often.books, name), getattr(once.books, name)
        assert (mine.counts, mine.total) == (others_.counts, others_.total), name
    assert others == records


def test_one_request_alone_takes_the_floor_of_its_prefill_over_the_efficiency() -> None:
    spec = EngineSpec(
        bandwidth_efficiency=0.5, compute_efficiency=0.5, overhead_seconds=0.002, max_num_batched_tokens=8192
    )
    _, (record,) = serve(spec, [Request(10.0, 4000, 50)])
    floor = prefill_floor_seconds(spec.roof, 4000)
    assert floor is not None
    assert record.ttft_seconds == pytest.approx(floor / 0.5 + 0.002, rel=1e-9)
    # the second of two with the same beginning computes its own part only
    _, records = serve(spec, [Request(0.0, 4000, 2, "p", 3200), Request(9.0, 4000, 2, "p", 3200)])
    short = prefill_floor_seconds(spec.roof, 4000, 3200)
    assert short is not None
    assert records[1].hit_tokens == 3200
    assert records[1].ttft_seconds == pytest.approx(short / 0.5 + 0.002, rel=1e-9)


@pytest.mark.parametrize("pipeline", [1, 2])
def test_steady_decode_runs_at_the_ceiling_times_the_efficiency(pipeline: int) -> None:
    spec = EngineSpec(bandwidth_efficiency=0.7, overhead_seconds=0.0, pipeline=pipeline)
    batch, prompt, output = 32, 1000, 2001
    engine = Engine(spec)
    records = [engine.submit(Request(0.0, prompt, output), 0.0) for _ in range(batch)]
    engine.advance(1e9)
    last = max(record.first_token_seconds or 0.0 for record in records)
    end = records[-1].ended_seconds or 0.0
    # contexts of the steps between the last first token and the end go from about 1,001 to 3,000: their mean decides
    measured = batch * (output - 1) / (end - last)
    ceiling = decode_ceiling(spec.roof, batch, prompt + output / 2)
    assert ceiling is not None
    assert measured == pytest.approx(0.7 * ceiling.tokens_per_second, rel=0.01)


def test_mean_running_is_arrival_rate_times_time_in_service() -> None:
    requests = load(11, 3000, 3.0)
    engine = Engine(EngineSpec(max_num_batched_tokens=2048))
    records, area, at = [], 0.0, 0.0
    for request in requests:
        while at < request.at_seconds:
            engine.advance(at)
            area += len(engine.running) * 0.05
            at += 0.05
        records.append(engine.submit(request, request.at_seconds))
    engine.advance(1e9)
    end = requests[-1].at_seconds
    served = sum((record.ended_seconds or 0.0) - record.arrived_seconds for record in records)
    waited = engine.books.queue.total
    assert area / end == pytest.approx((served - waited) / end, rel=0.03)


def test_tokens_booked_are_those_of_finished_lost_and_under_way() -> None:
    spec = EngineSpec(kv_blocks=520, context_limit_tokens=8192, max_num_seqs=12)
    engine = Engine(spec)
    records = [engine.submit(request, request.at_seconds) for request in load(5, 200, 10.0)]
    counts = engine.books.counts
    lost = engine.crash()
    done = [record for record in records if record.outcome is Outcome.FINISHED]
    assert len(done) + len(lost) == len(records)
    assert lost, "the test needs some under way"
    assert counts.generated_tokens == sum(record.generated_tokens for record in done + lost)
    assert counts.generated_tokens == counts.decode_pass_tokens + counts.first_tokens + _resumed(engine)
    started = [record for record in records if record.first_token_seconds is not None]
    assert counts.prompt_tokens == sum(record.request.prompt_tokens for record in started)
    assert counts.hit_tokens <= counts.queried_tokens
    assert engine.books.ttft.count == counts.first_tokens == len(started)


def _resumed(engine: Engine) -> int:
    """Tokens that came from a prefill after a preemption: ITL events that no decode pass made."""
    return engine.books.itl.count - engine.books.counts.decode_pass_tokens


def test_what_is_too_large_or_too_many_is_rejected() -> None:
    engine = Engine(EngineSpec(kv_blocks=512, context_limit_tokens=8192, max_num_seqs=1, max_waiting=2))
    assert engine.submit(Request(0.0, 8000, 193), 0.0).outcome is Outcome.REJECTED
    outcomes = [engine.submit(Request(0.0, 100, 1000), 0.0).outcome for _ in range(5)]
    # one runs, two wait, the others are refused
    assert outcomes == [Outcome.UNDER_WAY] * 3 + [Outcome.REJECTED] * 2
    assert (engine.books.counts.rejected_size, engine.books.counts.rejected_queue) == (1, 2)


def test_a_hung_engine_books_nothing_and_goes_on_afterwards() -> None:
    engine = Engine(SMALL)
    record = engine.submit(Request(0.0, 100, 400), 0.0)
    engine.advance(1.0)
    before = engine.books.counts.generated_tokens
    assert 0 < before < 400
    engine.hang(1.0)
    late = engine.submit(Request(50.0, 100, 10), 50.0)
    engine.advance(100.0)
    assert engine.books.counts.generated_tokens == before
    assert engine.load == 2
    engine.resume(101.0)
    engine.advance(1000.0)
    assert (record.outcome, record.generated_tokens) == (Outcome.FINISHED, 400)
    assert late.first_token_seconds is not None
    assert late.first_token_seconds > 101.0
    # one gap of about a hundred seconds, above the top edge of 80 s
    assert engine.books.itl.counts[-1] == 1
    assert engine.books.itl.total == pytest.approx(
        (record.ended_seconds or 0)
        - (record.first_token_seconds or 0)
        + (late.ended_seconds or 0)
        - late.first_token_seconds
    )


def test_a_slowed_engine_takes_as_many_times_longer() -> None:
    normal, slowed = Engine(SMALL), Engine(SMALL)
    slowed.slow_down(2.5, 0.0)
    one, other = (engine.submit(Request(0.0, 500, 300), 0.0) for engine in (normal, slowed))
    normal.advance(1e6)
    slowed.advance(1e6)
    assert other.ended_seconds == pytest.approx(2.5 * (one.ended_seconds or 0.0))


def test_requests_fail_by_their_luck_and_the_share_of_errors() -> None:
    engine = Engine(SMALL)
    engine.error_share = 0.5
    records = [engine.submit(Request(0.0, 50, 5, luck=luck), 0.0) for luck in (0.1, 0.49, 0.5, 0.9)]
    engine.advance(100.0)
    assert [record.outcome for record in records] == [Outcome.ERROR] * 2 + [Outcome.FINISHED] * 2
    assert engine.books.counts.finished_error == 2


def test_a_reset_or_blind_prefix_cache_finds_nothing() -> None:
    engine = Engine(SMALL)
    hits = []
    for number, fault in enumerate(["", "", "reset", "", "blind", ""]):
        at = 10.0 * number
        if fault == "reset":
            engine.reset_prefix_cache(at)
        engine.prefix_lookups = fault != "blind"
        hits.append(engine.submit(Request(at, 100, 5, "p", 64), at))
        engine.advance(at + 9.0)
    assert [record.hit_tokens for record in hits] == [0, 64, 0, 64, 0, 64]
    assert engine.books.counts.queried_tokens == 600
