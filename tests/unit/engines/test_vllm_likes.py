"""Servers with vLLM's names that are not its Python front end: its Rust one, llm-d's simulator, NIM."""

from __future__ import annotations

import pytest

from llm_serving_exporter.engines.apply import Overrides
from llm_serving_exporter.engines.detect import detect, labels_needed
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.fetch.page import PageParser
from llm_serving_exporter.model.snapshot import Absence
from tests.support.builders.recordings import recording
from tests.support.builders.snapshots import engine_of, page_of, snapshot_of
from tests.support.servers.replica import readings

VLLM = RUNTIMES["vllm"]

L = 'engine="0",model_name="m"'


# what vLLM's Rust front end serves (facts runtimes-vllm-sglang 1.5): OpenMetrics, whole numbers, no cache_config_info, no process_*
RUST_IDLE = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name="m",engine="0"} 0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{model_name="m",engine="0"} 0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{model_name="m",engine="0"} 0
# EOF
"""
RUST_BUSY = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name="m",engine="0"} 1
# TYPE vllm:prompt_tokens counter
vllm:prompt_tokens_total{model_name="m",engine="0"} 700
# TYPE vllm:prompt_tokens_by_source counter
vllm:prompt_tokens_by_source_total{model_name="m",engine="0",source="local_compute"} 500
vllm:prompt_tokens_by_source_total{model_name="m",engine="0",source="local_cache_hit"} 200
# TYPE vllm:generation_tokens counter
vllm:generation_tokens_total{model_name="m",engine="0"} 90
# TYPE vllm:request_success counter
vllm:request_success_total{model_name="m",engine="0",finished_reason="stop"} 4
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_sum{model_name="m",engine="0"} 2.5
vllm:time_to_first_token_seconds_count{model_name="m",engine="0"} 5
vllm:time_to_first_token_seconds_bucket{model_name="m",engine="0",le="1.0"} 5
vllm:time_to_first_token_seconds_bucket{model_name="m",engine="0",le="+Inf"} 5
# EOF
"""
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def test_the_rust_front_end_gives_what_it_has() -> None:
    said = {"/version": '{"version":"0.33.0"}'}
    steps = [{**said, "/metrics": (200, OPENMETRICS, page.encode())} for page in (RUST_IDLE, RUST_IDLE, RUST_BUSY)]
    idle, _, busy = readings(steps)
    assert idle.runtime == "vllm"
    assert idle.snapshot.engines[0].requests_running == 0
    assert idle.snapshot.engines[0].decode_tokens_total is None
    assert busy.up
    assert busy.restarts_total == 0
    (engine,) = busy.snapshot.engines
    assert (engine.prompt_tokens_total, engine.prefill_tokens_total, engine.decode_tokens_total) == (700, 500, 90)
    assert engine.requests_finished_total == {"stop": 4}
    assert engine.time_to_first_token_seconds is not None
    assert busy.derived is not None
    for signal in ("kv_cache_capacity_tokens", "requests_rejected_total", "http_responses_total"):
        assert busy.derived.signals[signal] is Absence.NOT_EXPORTED
    # who restarts without a start time on its page is seen by a counter that falls
    assert busy.snapshot.process_start_unix_seconds is None


# llm-d-inference-sim v0.10.2 (facts runtimes-others 16.2): another label, no engine, old and new names at once
SIMULATED = """vllm:num_requests_running{model_name="m"} 2
vllm:num_requests_waiting{model_name="m"} 0
vllm:kv_cache_usage_perc{model_name="m"} 0.2
vllm:cache_config_info{block_size="16",num_gpu_blocks="1024"} 1
vllm:prompt_tokens_total{model_name="m"} 1000
vllm:generation_tokens_total{model_name="m"} 300
vllm:prefix_cache_queries_total{model_name="m"} 1000
vllm:prefix_cache_hits_total{model_name="m"} 400
# TYPE vllm:max_num_generation_tokens histogram
vllm:request_success_total{finish_reason="stop",model_name="m"} 7
vllm:request_success_total{finish_reason="length",model_name="m"} 3
""" + "".join(
    f"""vllm:{name}_bucket{{model_name="m",le="0.01"}} {count}
vllm:{name}_bucket{{model_name="m",le="+Inf"}} {count}
vllm:{name}_sum{{model_name="m"}} 1
vllm:{name}_count{{model_name="m"}} {count}
"""
    for name, count in (
        ("time_per_output_token_seconds", 290), ("inter_token_latency_seconds", 290), ("request_time_per_output_token_seconds", 10),
    )
)  # fmt: skip


def test_a_server_that_imitates_vllm_with_fewer_families_and_other_labels() -> None:
    snapshot = snapshot_of(SIMULATED)
    (engine,) = snapshot.engines
    assert (engine.model_name, engine.engine) == ("m", "0")
    assert engine.requests_finished_total == {"stop": 7, "length": 3}
    assert engine.kv_cache_capacity_tokens == 16_384
    assert engine.prefill_tokens_total == 600
    assert engine.inter_token_latency_seconds.count == 290
    assert engine.time_per_output_token_seconds.count == 10
    for field in ("preemptions_total", "engine_steps_total", "requests_rejected_total"):
        assert getattr(engine, field) is None
        assert snapshot.absent[field] is Absence.NOT_EXPORTED
    assert snapshot.unmapped_families == ()
    assert detect(PageParser(labels_needed()).parse(page_of(SIMULATED)).layout).runtime is VLLM


def test_nims_batch_limit_on_vllms_page() -> None:
    text = f'num_request_max{{model_name="m"}} 256\nvllm:num_requests_running{{{L}}} 3\n'
    assert engine_of(text).batch_limit_requests == 256
    # what the server's endpoint or the configuration says wins
    said = snapshot_of(text, overrides=Overrides(batch_limit_requests=64))
    assert [one.batch_limit_requests for one in said.engines] == [64]


NIM = {
    "/v1/metrics": recording("vllm-0.32").pages[60],
    "/version": recording("vllm-0.32").members["endpoints/version.body"],
    "/v1/models": recording("vllm-0.32").members["endpoints/v1_models.body"],
}


@pytest.mark.parametrize("runtime", [None, "vllm"])
def test_nim_serves_the_page_below_v1(runtime: str | None) -> None:
    (found,) = readings([NIM], runtime=runtime)
    assert found.runtime == "vllm"
    assert found.metrics_url.endswith("/v1/metrics")


def test_endpoints_beside_a_page_below_v1_are_where_they_always_are() -> None:
    found = readings([NIM, NIM])[-1]
    assert found.facts.version == "0.32.0"
    assert found.facts.context_limit_tokens == {"tiny-llama": 2048}
