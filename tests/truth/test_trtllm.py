"""TensorRT-LLM's collector, fed by a simulation that counted what it did: what the counters say, and where they may differ."""

from __future__ import annotations

from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot, Quality, Snapshot
from tests.support.builders.recordings import page, recording
from tests.support.builders.snapshots import snapshot_of
from tests.support.servers.replica import readings

RUNTIME = RUNTIMES["trtllm"]

RUN = "trtllm-050f80de"
PATH = "/prometheus/metrics"
# every request of the phases before it has finished at this page, and none of the next was scheduled
DRAINED, BEFORE = 60, ("idle_before", "light", "saturated", "drain_1")
PRESSED = ("kv_pressure", "drain_2")
# those of the aborted requests: at their start all that was scheduled before had finished
ABORTED = ("decode_heavy", "aborts", "idle_after")
LAST = 160


def truth(count: str, phases: tuple[str, ...] | None = None) -> int:
    counted = recording(RUN).json("client/truth.json")["truth"]
    return sum(counted.get(phase, {}).get(count, 0) for phase in phases or counted)


def at(number: int) -> tuple[Snapshot, EngineSnapshot]:
    snapshot = snapshot_of(page(RUN, number).decode(), runtime=RUNTIME)
    (engine,) = snapshot.engines
    return snapshot, engine


def test_where_all_requests_have_finished_every_token_counter_is_exact() -> None:
    _, engine = at(DRAINED)
    assert (engine.model_name, engine.engine) == ("tiny-llama", "0")
    assert engine.prompt_tokens_total == truth("prompt_tokens", BEFORE) > 0
    assert engine.cached_prompt_tokens_total == truth("cached_tokens", BEFORE) > 0
    assert engine.decode_tokens_total == truth("gen_tokens", BEFORE) > 0
    assert engine.prefill_tokens_total == truth("prompt_tokens", BEFORE) - truth("cached_tokens", BEFORE)
    assert sum(engine.requests_finished_total.values()) == truth("finished", BEFORE)


def test_tokens_are_booked_when_a_request_finishes_and_said_to_be() -> None:
    # nothing finished between these pages, although several thousand tokens were generated
    _, earlier = at(DRAINED)
    snapshot, later = at(66)
    assert (later.decode_tokens_total, later.prompt_tokens_total) == (
        earlier.decode_tokens_total,
        earlier.prompt_tokens_total,
    )
    assert {snapshot.quality[name] for name in ("decode_tokens_total", "prompt_tokens_total")} == {Quality.LAGGING}
    # computed context tokens come from the iterations, here while requests run
    assert later.prefill_tokens_total is not None
    assert earlier.prefill_tokens_total is not None
    assert later.prefill_tokens_total > earlier.prefill_tokens_total


def test_at_the_end_only_aborted_requests_and_recomputed_prompts_differ() -> None:
    _, engine = at(LAST)
    finished = engine.requests_finished_total
    assert finished.keys() == {"stop", "length"}
    assert sum(finished.values()) == truth("finished")
    assert truth("arrived") - truth("finished") == truth("aborted") > 0
    # tokens of the aborted requests are booked nowhere. How many they had truth.json does not say: no more than was counted in the phases
    # in which they ran
    until_then = tuple(phase for phase in recording(RUN).json("client/truth.json")["truth"] if phase not in ABORTED)
    assert truth("scheduled", until_then) == truth("finished", until_then)
    for field, counted in (
        ("prompt_tokens_total", "prompt_tokens"),
        ("cached_prompt_tokens_total", "cached_tokens"),
        ("decode_tokens_total", "gen_tokens"),
    ):
        lost = truth(counted) - getattr(engine, field)
        assert 0 < lost <= truth(counted, ABORTED), field
    # computed: aborted ones too, and what retracted requests had computed again. That is not in truth.json either: they were fewer than the
    # requests of the phases in which it happened, which had so many tokens of prompt and answer
    again = (engine.prefill_tokens_total or 0.0) - (truth("prompt_tokens") - truth("cached_tokens"))
    assert 0 < truth("retractions") == truth("retractions", PRESSED) < truth("scheduled", PRESSED)
    assert truth("cached_tokens", PRESSED) == 0
    assert truth("retractions") <= again <= truth("prompt_tokens", PRESSED) + truth("gen_tokens", PRESSED)
    # those answered with HTTP 400 are the clients' errors
    errors = [line for line in page(RUN, LAST).decode().splitlines() if line.startswith("trtllm_request_error_total{")]
    assert ['http_code="400"' in line for line in errors] == [True]
    assert engine.http_responses_total == {"4xx": float(errors[0].split()[-1])}


def test_gauges_that_froze_with_the_last_request_are_not_shown_as_load() -> None:
    run = recording(RUN)
    # pages 148 to 160 are the same: the last request is gone, and the page says that it runs
    assert run.pages[148] == run.pages[LAST]
    at_work, frozen = {PATH: run.pages[138]}, {PATH: run.pages[LAST]}
    found = readings([at_work, {PATH: run.pages[148]}, frozen, frozen, frozen, frozen], runtime="trtllm")
    snapshots = [reading.snapshot for reading in found]
    running = [snapshot.engines[0].requests_running for snapshot in snapshots if snapshot is not None]
    # the first page: nobody knows since when; then 30 s after the last count moved
    assert running == [None, 1, 1, 1, 1, None]
    last = snapshots[-1]
    assert last is not None
    for field in ("requests_running", "requests_waiting", "kv_cache_usage_ratio"):
        assert last.absent[field] is Absence.STALE
    assert last.engines[0].kv_cache_capacity_tokens == 1280 * 32
    assert last.engines[0].batch_limit_requests == 32
