"""vLLM's traps that need more than a page (test_pages.py): recorded pages, facts and settings beside them, several engines."""

import pytest

from llm_serving_exporter.catalogue.serving import SERVING
from llm_serving_exporter.engines.apply import Overrides
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.model.snapshot import EXPORTED_FIELDS, Absence, ServerFacts
from tests.support.builders.recordings import page, recording
from tests.support.builders.snapshots import engine_of, snapshot_of

VLLM = RUNTIMES["vllm"]

L = 'engine="0",model_name="m"'


def test_passed_through_series_and_snapshot_fields_are_the_same() -> None:
    assert {metric.name for metric in SERVING} == set(EXPORTED_FIELDS)


def test_families_without_an_engine_label_are_not_fanned_out() -> None:
    text = """vllm:num_requests_running{engine="0",model_name="m"} 1
vllm:num_requests_running{engine="1",model_name="m"} 2
vllm:admission_rejections_total{model_name="m",reason="max_num_queued_reqs"} 7
http_requests_total{handler="/v1/completions",method="POST",status="2xx"} 3
http_requests_total{handler="none",method="GET",status="4xx"} 2
"""
    engines = {engine.engine: engine for engine in snapshot_of(text).engines}
    assert engines[""].requests_rejected_total == {"max_num_queued_reqs": 7}
    assert engines[""].http_responses_total == {"2xx": 3, "4xx": 2}
    assert engines["0"].requests_rejected_total is None
    assert engines["1"].requests_running == 2


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1"])
def test_values_that_cannot_be_are_absent(value: str) -> None:
    text = page("vllm-0.32", 60).decode()
    lines = [line if line.startswith("#") else line.rsplit(" ", 1)[0] + f" {value}" for line in text.splitlines()]
    snapshot = snapshot_of("\n".join(lines) + "\n")
    for engine in snapshot.engines:
        assert {field for field in EXPORTED_FIELDS if getattr(engine, field) is not None} <= {
            "kv_cache_capacity_tokens"
        }
    assert snapshot.absent["decode_tokens_total"] is Absence.IMPLAUSIBLE
    assert snapshot.absent["time_to_first_token_seconds"] is Absence.IMPLAUSIBLE
    assert snapshot.process_start_unix_seconds is None or value == "-1"


def test_a_page_with_web_framework_series_only_is_nobodys() -> None:
    text = 'http_requests_total{handler="/x",method="POST",status="2xx"} 3\nprocess_start_time_seconds 1000\n'
    assert snapshot_of(text).engines == ()


def test_a_configured_model_name_is_only_for_a_page_that_names_none() -> None:
    one = "vllm:num_requests_running 1\n"
    assert snapshot_of(one, overrides=Overrides("mine")).engines[0].model_name == "mine"
    two = """vllm:num_requests_running{engine="0",model_name="a"} 1
vllm:num_requests_running{engine="1",model_name="b"} 1
vllm:cache_config_info{engine="1",kv_cache_size_tokens="6144"} 1
"""
    names = {(engine.model_name, engine.engine) for engine in snapshot_of(two, overrides=Overrides("mine")).engines}
    assert names == {("a", "0"), ("b", "1"), ("", "1")}


def test_text_from_outside_is_fit_to_be_sent_and_shown() -> None:
    text = 'vllm:num_requests_running{engine="0",model_name="m\x1b[2J\\nx"} 1\n'
    assert snapshot_of(text).engines[0].model_name == "m\N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER}x"
    assert (
        VLLM.endpoints[0].read({"version": "0.32.0\ud800"}, ServerFacts()).version == "0.32.0\N{REPLACEMENT CHARACTER}"
    )
    long = 'vllm:num_requests_running{engine="0",model_name="%s"} 1\n' % ("x" * 10_000)
    assert snapshot_of(long).engines[0].model_name == "x" * 200


def test_limits_from_config_win_over_endpoints() -> None:
    text = f"vllm:num_requests_running{{{L}}} 0\n"
    facts = ServerFacts("0.32.0", {"m": 2048, "adapter": 4096}, batch_limit_requests=16)
    said = snapshot_of(text, facts=facts).engines[0]
    assert (said.batch_limit_requests, said.context_limit_tokens) == (16, 2048)
    configured = snapshot_of(text, facts=facts, overrides=Overrides(None, 32, 1024)).engines[0]
    assert (configured.batch_limit_requests, configured.context_limit_tokens) == (32, 1024)
    assert snapshot_of(text).engines[0].batch_limit_requests is None


def test_the_dtype_of_recurrent_state_is_on_recorded_pages() -> None:
    assert engine_of(page("vllm-0.32", 60).decode()).state_dtype == "float32"
    assert engine_of(page("vllm-logger-0.10.2-v1", 0).decode()).state_dtype == "auto"
    assert engine_of(page("vllm-logger-0.8.5-v1", 0).decode()).state_dtype is None


def test_a_kv_cache_cut_by_decode_context_parallelism_holds_as_many_times_more() -> None:
    """vLLM logs it as "Multiplying the GPU KV cache size by the dcp_world_size 2. GPU KV cache size: 1,723,584 tokens"
    (https://github.com/vllm-project/vllm/pull/24864, a trial of Qwen3-235B with -tp 8 -dcp 2); its page has the blocks before."""
    info = 'vllm:cache_config_info{{engine="0",block_size="16",num_gpu_blocks="53862"{}}} 1\n'
    running = f"vllm:num_requests_running{{{L}}} 0\n"

    def read(labels: str = "", parts: int | None = None, configured: int | None = None) -> tuple[object, object]:
        facts = ServerFacts("0.11.2", decode_context_parallel_size=parts)
        overrides = Overrides(decode_context_parallel_size=configured)
        (engine,) = snapshot_of(running + info.format(labels), facts=facts, overrides=overrides).engines
        return engine.kv_cache_capacity_tokens, engine.kv_block_tokens

    assert read() == (861_792, 16)
    assert read(parts=2) == read(configured=2) == read(parts=4, configured=2) == (1_723_584, 32)
    # the label of 0.24 is of all of them (get_kv_cache_capacity)
    assert read(',kv_cache_size_tokens="1723584"', parts=2) == (1_723_584, 32)


def test_endpoints_are_read_from_a_real_server() -> None:
    members = recording("vllm-0.32").members
    import json

    facts = ServerFacts()
    for endpoint, member in zip(
        VLLM.endpoints, ("version", "v1_models", "server_info_config_format_json"), strict=True
    ):
        facts = endpoint.read(json.loads(members[f"endpoints/{member}.body"]), facts)
    assert facts == ServerFacts(
        "0.32.0", {"tiny-llama": 2048}, 16, 1, 1, 1, 1, 1,
        experts_spread=False, model_roots={"tiny-llama": "/models/tiny-llama-mid"}, dtype="torch.bfloat16", quantization="",
        kv_cache_dtype="auto", state_dtype="float32", batched_tokens_limit=1024, speculation=False,
    )  # fmt: skip
