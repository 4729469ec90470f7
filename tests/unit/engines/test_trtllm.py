"""trtllm-serve's traps, one by one: what its page says and what may be read from it."""

from __future__ import annotations

from llm_serving_exporter.engines.detect import detect
from llm_serving_exporter.engines.json_answers import MAX_MODELS, read_model_names, read_version
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.fetch.page import PageParser
from llm_serving_exporter.model.snapshot import Quality, ServerFacts
from tests.support.builders.recordings import page
from tests.support.builders.snapshots import engine_of, page_of, snapshot_of
from tests.support.paths import TESTS
from tests.support.rows import check_rows
from tests.support.servers.replica import Replica, readings

RUNTIME = RUNTIMES["trtllm"]

L = 'engine_type="trtllm",model_name="m"'
P = f'{L},pid="7"'
PATH = "/prometheus/metrics"
OLD = (TESTS / "made" / "trtllm-1.1.prom").read_text()


def detected(text: str) -> list[str]:
    return [runtime.name for runtime in detect(PageParser(lambda name: True).parse(page_of(text)).layout).runtimes]


def test_its_pages_are_recognised_and_a_dynamo_worker_is_not_it() -> None:
    assert detected(page("trtllm-050f80de", 0).decode()) == ["trtllm"]
    assert detected(page("trtllm-050f80de", 160).decode()) == ["trtllm"]
    assert detected(OLD) == ["trtllm"]
    worker = f"trtllm_request_success_total{{{L}}} 1\ndynamo_component_requests_total 1\n"
    assert "trtllm" not in detected(worker)
    # names that any application may have
    assert detected("time_to_first_token_seconds_count 1\nrequest_success_total 1\n") == []


def test_the_json_that_reading_empties_is_never_asked() -> None:
    with Replica() as server:
        (reading,) = readings([{PATH: page("trtllm-050f80de", 46), "/metrics": "[]"}], replica=server)
        assert reading.runtime == "trtllm"
        assert "/metrics" not in server.asked
    with Replica() as server:
        (reading,) = readings([{"/metrics": "[]"}], replica=server, runtime="trtllm")
        assert not reading.up
        assert server.asked == [PATH]


def test_a_model_called_undefined_has_no_name_until_the_server_says_one() -> None:
    (engine,) = snapshot_of(OLD, runtime=RUNTIME).engines
    assert engine.model_name == ""
    named = snapshot_of(OLD, facts=ServerFacts(model_names=("Qwen/Qwen3-8B",)), runtime=RUNTIME)
    assert named.engines[0].model_name == "Qwen/Qwen3-8B"
    listed = '{"object": "list", "data": [{"id": "Qwen/Qwen3-8B", "object": "model"}]}'
    found = readings([{PATH: OLD, "/v1/models": listed}] * 2)
    snapshot = found[-1].snapshot
    assert [engine.model_name for engine in snapshot.engines] == ["Qwen/Qwen3-8B"]


def test_the_five_families_of_1_1_and_1_2_are_read_without_prefix() -> None:
    (engine,) = snapshot_of(OLD, runtime=RUNTIME).engines
    assert engine.requests_finished_total == {"stop": 30, "length": 10}
    for name, count in (
        ("time_to_first_token_seconds", 40),
        ("time_per_output_token_seconds", 40),
        ("e2e_request_latency_seconds", 40),
        # a queue time of 0 was left out there
        ("request_queue_time_seconds", 30),
    ):
        assert getattr(engine, name).count == count
    assert engine.decode_tokens_total is None


def test_the_first_version_called_the_reason_otherwise() -> None:
    engine = engine_of('request_success_total{engine_type="undefined",finish_reason="length"} 4\n', runtime=RUNTIME)
    assert engine.requests_finished_total == {"length": 4}


def test_errors_are_counted_from_1_3_on() -> None:
    assert not snapshot_of(OLD, runtime=RUNTIME).errors_counted
    assert snapshot_of(page("trtllm-050f80de", 46).decode(), runtime=RUNTIME).errors_counted


def test_a_gauge_of_several_processes_is_their_largest_not_their_sum() -> None:
    engine = engine_of(
        f"""trtllm_num_requests_running{{{L},pid="7"}} 5
trtllm_num_requests_running{{{L},pid="8"}} 0
trtllm_kv_cache_max_blocks{{{L},pid="7"}} 100
trtllm_kv_cache_max_blocks{{{L},pid="8"}} 100
trtllm_kv_cache_tokens_per_block{{{L},pid="7"}} 32
trtllm_kv_cache_tokens_per_block{{{L},pid="8"}} 32
""",
        runtime=RUNTIME,
    )
    assert engine.requests_running == 5
    assert engine.kv_cache_capacity_tokens == 3200


def test_gauges_are_slow_and_freeze_while_limits_do_not() -> None:
    snapshot = snapshot_of(page("trtllm-050f80de", 46).decode(), runtime=RUNTIME)
    assert snapshot.freezes == {"requests_running", "requests_waiting", "kv_cache_usage_ratio"}
    assert {snapshot.quality[field] for field in snapshot.freezes} == {Quality.SLOW}
    (engine,) = snapshot.engines
    # "running" is admitted requests, so their limit is the one that belongs to it
    assert (engine.requests_running, engine.batch_limit_requests) == (31, 32)
    assert engine.kv_block_tokens == 32


def test_prefill_is_what_iterations_computed_else_prompts_less_cached_tokens() -> None:
    tokens = f"trtllm_prompt_tokens_total{{{L}}} 1000\ntrtllm_prompt_cached_tokens_total{{{L}}} 400\n"
    without = snapshot_of(tokens, runtime=RUNTIME)
    assert without.engines[0].prefill_tokens_total == 600
    # the two are not booked at one instant
    assert "prefill_tokens_total" in without.may_fall
    statistics = f"trtllm_prefill_batch_tokens_sum{{{L}}} 640\ntrtllm_prefill_batch_tokens_count{{{L}}} 3\n"
    counted = snapshot_of(tokens + statistics, runtime=RUNTIME)
    assert counted.engines[0].prefill_tokens_total == 640
    assert "prefill_tokens_total" not in counted.may_fall
    # iterations with context tokens are not all iterations
    assert counted.engines[0].engine_steps_total is None
    assert "engine_steps_total" in RUNTIME.missing


def test_the_mean_of_a_request_is_not_taken_for_the_gap_between_tokens() -> None:
    (engine,) = snapshot_of(page("trtllm-050f80de", 46).decode(), runtime=RUNTIME).engines
    assert engine.time_per_output_token_seconds is not None
    assert engine.inter_token_latency_seconds is None


def test_clients_errors_are_no_errors_of_the_engine() -> None:
    engine = engine_of(
        f"""trtllm_request_success_total{{{L},finished_reason="stop"}} 90
trtllm_request_success_total{{{L},finished_reason="cancelled"}} 2
trtllm_request_error_total{{{L},http_code="400"}} 7
trtllm_request_error_total{{{L},http_code="500"}} 2
trtllm_request_error_total{{{L},http_code="503"}} 1
""",
        runtime=RUNTIME,
    )
    assert engine.requests_finished_total == {"stop": 90, "abort": 2, "error": 3}
    assert engine.http_responses_total == {"4xx": 7, "5xx": 3}


def test_what_the_configuration_on_the_page_says() -> None:
    engine = engine_of(
        f"""trtllm_num_requests_running{{{P}}} 1
trtllm_model_config_info{{{P},dtype="bfloat16",max_model_len="32768",quantization="none"}} 1.0
trtllm_kv_cache_config_info{{{P},cache_dtype="fp8",page_size="32"}} 1.0
""",
        runtime=RUNTIME,
    )
    assert (engine.context_limit_tokens, engine.kv_cache_dtype, engine.kv_block_tokens) == (32768, "fp8", 32)


def test_every_recorded_family_is_read_or_known() -> None:
    assert snapshot_of(page("trtllm-050f80de", 160).decode(), runtime=RUNTIME).unmapped_families == ()
    new = snapshot_of(f"# TYPE trtllm_new gauge\ntrtllm_num_requests_running{{{P}}} 1\n", runtime=RUNTIME)
    assert new.unmapped_families == ("trtllm_new",)


@check_rows("answer", [None, 7, [], "x", {}, {"data": 3}, {"data": [3, {}, {"id": 4}]}, {"version": []}])
def test_side_endpoints_that_say_nothing_change_nothing(answer: object) -> None:
    known = ServerFacts(version="1.3.0", model_names=("m",))
    assert read_version(answer, known) == known
    assert read_model_names(answer, known) == known


def test_side_endpoints() -> None:
    assert read_version({"version": "1.3.0rc9"}, ServerFacts()).version == "1.3.0rc9"
    many = {"data": [{"id": f"m{number}"} for number in range(MAX_MODELS + 5)]}
    assert len(read_model_names(many, ServerFacts()).model_names) == MAX_MODELS
