"""A level of running requests is the batch's limit only where nothing else can hold it."""

from collections.abc import Mapping
from typing import Any

from llm_serving_exporter.derive.batch import Plateaus, add_observed_limits, follow_plateaus
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot, LimitSource, Quality, Snapshot
from tests.support.builders.windows import engine
from tests.support.rows import check_rows

# of a tick of 5 s: 100 steps of 32 sequences, as many prompts as end
TICK = {"steps": 100.0, "decoded": 3200.0, "prompts": 16.0, "prefill": 16_000.0}
FULL = {
    "requests_running": 32.0, "requests_waiting": 9.0, "kv_cache_usage_ratio": 0.3, "requests_deferred": 0.0, "preemptions_total": 0.0,
    "kv_cache_capacity_tokens": 400_000.0, "context_limit_tokens": 65_536.0,
}  # fmt: skip


def at(tick: int, name: str = "0", **changed: Any) -> EngineSnapshot:
    """The reading after so many ticks. `changed`: gauges, or what a tick has done."""
    done = {key: tick * changed.pop(key, value) for key, value in TICK.items()}
    return engine(**done, **{**FULL, **changed}, engine=name)


def follow(*readings: EngineSnapshot | tuple[EngineSnapshot, ...], seconds: float = 5.0, **page: Any) -> Plateaus:
    known: Plateaus = {}
    for number, one in enumerate(readings):
        engines = one if isinstance(one, tuple) else (one,)
        snapshot = Snapshot(engines, "vllm", 0.0, 100.0 + seconds * number, **page)
        known = follow_plateaus(known, snapshot, seconds)
    return known


def limit(*readings: EngineSnapshot, **how: Any) -> float | None:
    return follow(*readings, **how)["m", "0"].limit


def test_five_readings_over_twenty_seconds() -> None:
    assert limit(*(at(tick) for tick in range(5))) == 32.0
    assert limit(*(at(tick) for tick in range(4))) is None
    assert limit(*(at(tick) for tick in range(5)), seconds=4.0) is None
    assert limit(*(at(tick) for tick in range(6)), seconds=4.0) == 32.0
    assert limit(*(at(tick) for tick in range(3)), seconds=10.0) is None


@check_rows(
    "changed",
    [
        {"requests_waiting": 0.0},
        {"kv_cache_usage_ratio": 0.9},
        {"kv_cache_usage_ratio": None},
        {"requests_deferred": 1.0},
        # vLLM before 0.20 does not say why requests wait
        {"requests_deferred": None},
        {"requests_running": 0.0},
        # a tenth and more of them does not decode
        {"decoded": 2870.0},
        {"steps": 0.0},
        # the steps' own tokens bind: 2,048 is the least that vLLM sets
        {"prefill": 170_000.0},
        {"engine_steps_total": None},
        {"preemptions_total": None},
        # nobody was let in, and the longest request would not fit
        {"prompts": 0.0, "kv_cache_usage_ratio": 0.85},
    ],
    ids=str,
)
def test_what_else_holds_a_level(changed: Mapping[str, Any]) -> None:
    assert limit(*(at(tick, **dict(changed)) for tick in range(12))) is None


@check_rows(
    "changed",
    [
        {"kv_cache_usage_ratio": 0.89},
        {"decoded": 2880.0},
        {"prompts": 0.0},
        {"prompts": 0.0, "kv_cache_usage_ratio": 0.83},
    ],
    ids=str,
)
def test_what_does_not(changed: Mapping[str, Any]) -> None:
    assert limit(*(at(tick, **dict(changed)) for tick in range(5))) == 32.0


def test_more_tokens_of_a_step_are_no_bound_where_a_step_had_more() -> None:
    """Long prompts in a queue: 2,800 of the 8,192 tokens that steps before the queue had."""
    many = {"prefill": 100 * 2768.0}
    before = replace(at(0), prefill_tokens_total=-100 * 8160.0, requests_waiting=0.0, engine_steps_total=-100.0)
    assert limit(*(at(tick, **many) for tick in range(5))) is None
    assert limit(before, *(at(tick, **many) for tick in range(5))) == 32.0


def test_a_preemption_begins_it_anew() -> None:
    readings = [at(tick, preemptions_total=float(tick >= 3)) for tick in range(8)]
    assert limit(*readings[:7]) is None
    assert limit(*readings) == 32.0


def test_readings_between_two_steps_show_fewer() -> None:
    """225 of 256 in one reading of five, on an H100; with more of them the level is no level."""
    running = [32.0, 28.0, 32.0, 31.0, 32.0]
    assert limit(*(at(tick, requests_running=value) for tick, value in enumerate(running))) == 32.0
    running = [32.0, 28.0, 31.0, 31.0, 32.0, 30.0, 31.0]
    assert limit(*(at(tick, requests_running=value) for tick, value in enumerate(running))) is None


def test_a_gap_begins_it_anew_and_keeps_what_is_known() -> None:
    known = follow(*(at(tick) for tick in range(4)))
    late = Snapshot((at(5),), "vllm", 0.0, 100.0 + 15.0 + 60.0)
    assert follow_plateaus(known, late, 5.0)["m", "0"].limit is None
    known = follow(*(at(tick) for tick in range(5)))
    assert follow_plateaus(known, replace(late, monotonic_seconds=200.0), 5.0)["m", "0"].limit == 32.0


def test_each_rank_for_itself() -> None:
    pages = [(at(tick), at(tick, "1", requests_waiting=0.0), at(tick, "2", requests_running=31.0)) for tick in range(5)]
    known = follow(*pages)
    assert {engine: one.limit for (_, engine), one in known.items()} == {"0": 32.0, "1": None, "2": 31.0}
    shown = add_observed_limits(
        Snapshot(pages[-1], "vllm", 0.0, 0.0, absent={"batch_limit_requests": Absence.NOT_EXPORTED}), known
    )
    assert [(one.batch_limit_requests, one.batch_limit_source) for one in shown.engines] == [
        (32.0, LimitSource.OBSERVED), (None, None), (31.0, LimitSource.OBSERVED),
    ]  # fmt: skip
    assert shown.absent == {}


def test_a_gauge_that_is_not_of_the_moment_and_a_limit_that_is_said_leave_nothing_to_observe() -> None:
    readings = [at(tick) for tick in range(5)]
    assert follow(*readings, quality={"requests_running": Quality.LAGGING}) == {}
    assert follow(*(replace(one, batch_limit_requests=64.0) for one in readings)) == {}
