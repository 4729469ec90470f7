"""Triton's traps, with the TensorRT-LLM back end, with vLLM's, and with one that reports nothing."""

from __future__ import annotations

import pytest

from llm_serving_exporter.engines.detect import detect
from llm_serving_exporter.engines.mapping import Runtime
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.fetch.page import PageParser
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot, Quality
from tests.support.builders.snapshots import engine_of, page_of, snapshot_of
from tests.support.paths import TESTS
from tests.support.servers.replica import readings

TRITON = RUNTIMES["triton"]
TRTLLM = RUNTIMES["triton-trtllm"]
VLLM = RUNTIMES["triton-vllm"]

MADE = TESTS / "made"
PAGES = {
    "triton-trtllm": (MADE / "triton_trtllm.prom").read_text(),
    "triton-vllm": (MADE / "triton_vllm.prom").read_text(),
    "triton": (MADE / "triton.prom").read_text(),
}
RUNTIMES = {"triton-trtllm": TRTLLM, "triton-vllm": VLLM, "triton": TRITON}

L = 'model="m",version="1"'
ALIVE = f'nv_trt_llm_request_metrics{{{L},request_type="scheduled"}} 3\n'


def blocks(**values: float) -> str:
    return ALIVE + "".join(
        f'nv_trt_llm_kv_cache_block_metrics{{{L},kv_cache_block_type="{kind}"}} {value}\n'
        for kind, value in values.items()
    )


def only(name: str) -> EngineSnapshot:
    (engine,) = snapshot_of(PAGES[name], runtime=RUNTIMES[name]).engines
    return engine


@pytest.mark.parametrize("name", PAGES)
def test_each_page_is_one_runtimes(name: str) -> None:
    layout = PageParser(lambda wanted: True).parse(page_of(PAGES[name])).layout
    assert [runtime.name for runtime in detect(layout).runtimes] == [name]
    assert snapshot_of(PAGES[name], runtime=RUNTIMES[name]).unmapped_families == ()


@pytest.mark.parametrize("name", PAGES)
def test_it_is_read_over_http(name: str) -> None:
    later = (MADE / f"{name.replace('-', '_')}-later.prom").read_text()
    found = readings([{"/metrics": PAGES[name]}, {"/metrics": later}])
    assert [(reading.runtime, reading.up) for reading in found] == [(name, True)] * 2
    assert found[-1].restarts_total == 0


def test_only_the_engine_of_an_ensemble_is_one() -> None:
    # the ensemble itself, pre- and post-processing stand on the page with requests of their own
    engine = only("triton-trtllm")
    assert (engine.model_name, engine.engine) == ("tensorrt_llm", "1")
    assert engine.requests_finished_total == {"success": 200, "abort": 5, "error": 1, "other": 0}
    assert engine.requests_rejected_total == {"rejected": 3}


@pytest.mark.parametrize("runtime", RUNTIMES.values(), ids=RUNTIMES)
def test_counters_without_total_in_microseconds_are_seconds(runtime: Runtime) -> None:
    engine = only(runtime.name)
    # 2 s and 0.5 ms a request; a histogram of vLLM's is preferred where there is one
    e2e, queue = engine.e2e_request_latency_seconds, engine.request_queue_time_seconds
    assert queue.count == 200
    assert queue.sum == pytest.approx(0.1)
    assert queue.edges == ()
    assert (e2e.count, e2e.sum) == (200, pytest.approx(400 if runtime is not TRITON else 0.2 * 2000))


def test_the_first_response_is_in_milliseconds_and_switched_off_by_default() -> None:
    engine = only("triton-trtllm")
    ttft = engine.time_to_first_token_seconds
    assert (ttft.edges, ttft.count, ttft.sum) == ((0.1, 0.5, 2.0, 5.0), 200, pytest.approx(64))
    without = snapshot_of(ALIVE, runtime=TRTLLM)
    assert without.absent["time_to_first_token_seconds"] is Absence.NOT_EXPORTED


def test_lengths_are_token_counters_booked_at_the_end_and_bound_prefill() -> None:
    snapshot = snapshot_of(PAGES["triton-trtllm"], runtime=TRTLLM)
    (engine,) = snapshot.engines
    assert (engine.prompt_tokens_total, engine.decode_tokens_total) == (90_000, 50_000)
    assert snapshot.quality["decode_tokens_total"] is Quality.LAGGING
    # at most: reused blocks are in it
    assert engine.prefill_tokens_total == 90_000
    assert snapshot.quality["prefill_tokens_total"] is Quality.APPROXIMATE
    assert engine.request_prompt_tokens.edges == (10, 50, 100, 500, 1000)


def test_gauges_are_read_by_their_label_not_by_their_place() -> None:
    engine = only("triton-trtllm")
    assert (engine.requests_running, engine.batch_limit_requests) == (48, 64)
    # the engine's queue and Triton's before it
    assert engine.requests_waiting == 6 + 2
    assert (engine.kv_cache_usage_ratio, engine.kv_cache_capacity_tokens) == (0.5, 6144 * 64)
    assert engine.engine_steps_total == 5000


def test_a_used_share_that_the_fraction_contradicts_is_refused() -> None:
    agreed = snapshot_of(blocks(used=50, max=100, fraction=0.51, tokens_per=64), runtime=TRTLLM)
    assert agreed.engines[0].kv_cache_usage_ratio == 0.5
    # the back end's own example page: 1 used of 6239, and a fraction of 0.4875
    shifted = snapshot_of(blocks(used=1, max=6239, fraction=0.4875, tokens_per=64), runtime=TRTLLM)
    assert shifted.engines[0].kv_cache_usage_ratio is None
    assert shifted.absent["kv_cache_usage_ratio"] is Absence.INCONSISTENT


def test_gauges_of_the_last_iteration_fade_when_nothing_moves() -> None:
    page = {"/metrics": PAGES["triton-trtllm"]}
    # iterations are counted: while they move, gauges are fresh although no request ends
    steps = [page, *({"/metrics": PAGES["triton-trtllm"].replace("} 5000\n", f"}} {5000 + n}\n")} for n in range(1, 6))]
    found = readings([*steps, steps[-1], steps[-1], steps[-1], steps[-1]], runtime="triton-trtllm")
    running = [one.snapshot.engines[0].requests_running for one in found if one.snapshot is not None]
    assert running == [None, 48, 48, 48, 48, 48, 48, 48, 48, None]


def test_without_the_engines_queue_tritons_is_read_alone() -> None:
    engine = engine_of(f"{ALIVE}nv_inference_pending_request_count{{{L}}} 4\n", runtime=TRTLLM)
    assert engine.requests_waiting == 4


def test_an_ensembles_failure_of_a_part_is_no_error_of_its_own() -> None:
    # a client that left a part is OTHER for the whole (facts runtimes-others 6.1)
    text = f"""nv_inference_request_success{{{L}}} 9
nv_inference_request_failure{{{L},reason="BACKEND"}} 1
nv_inference_request_failure{{{L},reason="OTHER"}} 4
"""
    snapshot = snapshot_of(text, runtime=TRITON)
    assert snapshot.engines[0].requests_finished_total == {"success": 9, "error": 1, "other": 4}
    assert snapshot.errors_counted


def test_before_24_08_nothing_says_why_a_request_failed() -> None:
    # the label came with core's #377; its series stand from the start, so that the page shows which it is
    text = f"nv_inference_request_success{{{L}}} 50\nnv_inference_request_failure{{{L}}} 50\n"
    snapshot = snapshot_of(text, runtime=TRITON)
    assert snapshot.engines[0].requests_finished_total == {"success": 50, "failed": 50}
    assert not snapshot.errors_counted


def versions(*numbers: int, tokens: int) -> str:
    return "".join(
        f"""nv_inference_request_success{{model="m",version="{number}"}} {tokens}
vllm:prompt_tokens_total{{model="m",version="{number}"}} {tokens}
vllm:generation_tokens_total{{model="m",version="{number}"}} {tokens}
"""
        for number in numbers
    )


def test_versions_of_one_model_are_engines_of_their_own() -> None:
    text = ALIVE + 'nv_trt_llm_request_metrics{model="m",version="2",request_type="scheduled"} 4\n'
    found = snapshot_of(text, runtime=TRTLLM).engines
    assert [(one.model_name, one.engine, one.requests_running) for one in found] == [("m", "1", 3), ("m", "2", 4)]


def test_a_version_that_is_unloaded_is_no_restart() -> None:
    pages = [versions(1, 2, tokens=100), versions(1, 2, tokens=110), versions(2, tokens=120), versions(2, tokens=130)]
    found = readings([{"/metrics": text} for text in pages])
    assert [(one.runtime, one.restarts_total) for one in found] == [("triton-vllm", 0)] * 4


def test_vllms_name_for_the_gap_between_tokens_is_read_as_that() -> None:
    engine = only("triton-vllm")
    assert engine.model_name == "llama-3.1-8b"
    assert engine.inter_token_latency_seconds.count == 50_000
    assert engine.time_per_output_token_seconds is None
    assert engine.e2e_request_latency_seconds.edges[0] == 1
    # the back end shows neither batch nor KV cache
    assert (engine.requests_running, engine.kv_cache_usage_ratio, engine.requests_waiting) == (None, None, 2)
    assert engine.is_engine


def test_a_back_end_that_reports_nothing_leaves_requests_and_means() -> None:
    snapshot = snapshot_of(PAGES["triton"], runtime=TRITON)
    (engine,) = snapshot.engines
    assert engine.requests_finished_total == {"success": 200, "abort": 5, "error": 1, "other": 0}
    assert engine.decode_tokens_total is None
    assert TRITON.missing["decode_tokens_total"]
