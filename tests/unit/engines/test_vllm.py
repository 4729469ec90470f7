"""vLLM's traps, one by one: what the page says and what may be read from it."""

import pytest

from llm_serving_exporter.catalogue.serving import SERVING
from llm_serving_exporter.engines.apply import Overrides
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.model.snapshot import EXPORTED_FIELDS, Absence, Quality, ServerFacts
from tests.support.builders.recordings import page, recording
from tests.support.builders.snapshots import engine_of, snapshot_of
from tests.support.rows import check_rows

VLLM = RUNTIMES["vllm"]

L = 'engine="0",model_name="m"'


def test_passed_through_series_and_snapshot_fields_are_the_same() -> None:
    assert {metric.name for metric in SERVING} == set(EXPORTED_FIELDS)


def test_prefill_is_what_was_computed_not_what_was_sent() -> None:
    engine = engine_of(
        f"""vllm:prompt_tokens_total{{{L}}} 1000
vllm:prompt_tokens_by_source_total{{{L},source="local_compute"}} 600
vllm:prompt_tokens_by_source_total{{{L},source="local_cache_hit"}} 300
vllm:prompt_tokens_by_source_total{{{L},source="external_kv_transfer"}} 100
vllm:prompt_tokens_cached_total{{{L}}} 400
"""
    )
    assert engine.prompt_tokens_total == 1000
    assert engine.prefill_tokens_total == 600
    assert engine.cached_prompt_tokens_total == 400


def test_names_with_underscores_are_the_same_samples() -> None:
    # an OpenMetrics scrape without escaping=allow-utf-8: samples renamed, TYPE lines not
    text = f"""# TYPE vllm:generation_tokens counter
vllm_generation_tokens_total{{{L}}} 5.0
# TYPE vllm:num_requests_running gauge
vllm_num_requests_running{{{L}}} 2.0
# EOF
"""
    engine = snapshot_of(text, content_type="application/openmetrics-text; version=1.0.0").engines[0]
    assert (engine.decode_tokens_total, engine.requests_running) == (5, 2)


@pytest.mark.parametrize("version", ["0.9.2", "0.10.2"])
def test_old_and_new_names_at_once_are_not_added(version: str) -> None:
    engine = engine_of(
        f"""vllm:gpu_prefix_cache_queries_total{{{L}}} 100
vllm:gpu_prefix_cache_hits_total{{{L}}} 40
vllm:prefix_cache_queries_total{{{L}}} 100
vllm:prefix_cache_hits_total{{{L}}} 40
vllm:gpu_cache_usage_perc{{{L}}} 0.5
vllm:kv_cache_usage_perc{{{L}}} 0.5
""",
        version,
    )
    assert engine.prefix_cache_query_tokens_total == 100
    assert engine.prefix_cache_hit_tokens_total == engine.cached_prompt_tokens_total == 40
    assert engine.kv_cache_usage_ratio == 0.5


OLD_PREFIX = """vllm:prompt_tokens_total{engine="0",model_name="m"} 3200
vllm:gpu_prefix_cache_queries_total{engine="0",model_name="m"} 200
vllm:gpu_prefix_cache_hits_total{engine="0",model_name="m"} 50
vllm:cache_config_info{block_size="16",num_gpu_blocks="%s"} 1
"""


@pytest.mark.parametrize(("version", "blocks"), [("0.8.5", "2560"), (None, "None")])
def test_prefix_counters_of_0_8_count_blocks(version: str | None, blocks: str) -> None:
    # 200 blocks x 16 tokens looked up, 50 x 16 found; 3200 sent less 800 found were computed.
    # Without a version, num_gpu_blocks="None" gives 0.8 away.
    engine = engine_of(OLD_PREFIX % blocks, version)
    assert (engine.prefix_cache_query_tokens_total, engine.prefix_cache_hit_tokens_total) == (3200, 800)
    assert (engine.cached_prompt_tokens_total, engine.prefill_tokens_total) == (800, 2400)


def test_the_same_counters_of_0_9_count_tokens() -> None:
    engine = engine_of(OLD_PREFIX % "2560", "0.9.1")
    assert (engine.prefix_cache_query_tokens_total, engine.prefix_cache_hit_tokens_total) == (200, 50)
    assert engine.prefill_tokens_total == 3150


def test_an_unknown_unit_is_absent_and_the_ratio_still_there() -> None:
    snapshot = snapshot_of(OLD_PREFIX % "2560", version=None)
    for field in ("prefix_cache_query_tokens_total", "cached_prompt_tokens_total", "prefill_tokens_total"):
        assert getattr(snapshot.engines[0], field) is None
        assert snapshot.absent[field] is Absence.VERSION_UNKNOWN
    assert (snapshot.engines[0].prefix_cache_queries, snapshot.engines[0].prefix_cache_hits) == (200, 50)


def test_prefill_of_0_13_to_0_15_is_booked_at_the_end() -> None:
    text = f"""vllm:prompt_tokens_total{{{L}}} 1000
vllm:prefix_cache_hits_total{{{L}}} 400
vllm:request_prefill_kv_computed_tokens_sum{{{L}}} 550
vllm:request_prefill_kv_computed_tokens_count{{{L}}} 3
"""
    snapshot = snapshot_of(text, "0.14.1")
    assert snapshot.engines[0].prefill_tokens_total == 550
    assert snapshot.quality["prefill_tokens_total"] is Quality.LAGGING


def test_without_prefix_caching_every_old_prompt_token_was_computed() -> None:
    text = """vllm:prompt_tokens_total{model_name="m"} 700
vllm:cache_config_info{block_size="16",enable_prefix_caching="False",num_gpu_blocks="100"} 1
"""
    assert engine_of(text, "0.8.5").prefill_tokens_total == 700
    on = snapshot_of(text.replace("False", "True"), "0.8.5")
    assert on.engines[0].prefill_tokens_total is None
    assert on.absent["prefill_tokens_total"] is Absence.NOT_EXPORTED


def test_an_engine_without_the_label_is_engine_0() -> None:
    engine = engine_of('vllm:generation_tokens_total{model_name="m"} 5\n', "0.8.5")
    assert (engine.model_name, engine.engine) == ("m", "0")


def test_capacity_under_data_parallelism_is_the_engines_share() -> None:
    # before 0.24 the num_gpu_blocks label is the sum over the engines, repeated on each
    text = "".join(
        f"""vllm:num_requests_running{{engine="{engine}",model_name="m"}} 1
vllm:cache_config_info{{block_size="32",engine="{engine}",num_gpu_blocks="384"}} 1
"""
        for engine in (0, 1)
    )
    assert [engine.kv_cache_capacity_tokens for engine in snapshot_of(text, "0.20.0").engines] == [6144, 6144]
    newer = text.replace('num_gpu_blocks="384"', 'kv_cache_size_tokens="6144",num_gpu_blocks="384"')
    assert [engine.kv_cache_capacity_tokens for engine in snapshot_of(newer, "0.32.0").engines] == [6144, 6144]


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


def test_a_gauge_with_a_series_per_process_is_read_once() -> None:
    # 0.9.2 to 0.11.0 with several API servers
    text = f"""vllm:kv_cache_usage_perc{{{L},pid="11"}} 0.0
vllm:kv_cache_usage_perc{{{L},pid="12"}} 0.4
"""
    assert engine_of(text, "0.11.0").kv_cache_usage_ratio == 0.4


def test_counters_of_several_processes_are_not_taken_for_one() -> None:
    # only what differs in nothing but the process is one value: two ranks stay two
    text = """vllm:num_requests_running{engine="0",model_name="m",pid="11"} 3
vllm:num_requests_running{engine="0",model_name="m",pid="12"} 2
vllm:num_requests_running{engine="1",model_name="m",pid="11"} 0
vllm:num_requests_running{engine="1",model_name="m",pid="12"} 5
"""
    assert [engine.requests_running for engine in snapshot_of(text, "0.11.0").engines] == [3, 5]


def test_gauges_that_wait_for_their_first_value_are_idle_not_zero() -> None:
    text = f"""# TYPE vllm:num_requests_running gauge
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{{{L}}} 0
"""
    snapshot = snapshot_of(text)
    assert snapshot.engines[0].requests_running is None
    assert snapshot.absent["requests_running"] is Absence.IDLE


def test_duplicate_series_void_their_field_only() -> None:
    # /metrics/ of a server with several API processes has http_* twice, with different values
    text = f"""vllm:generation_tokens_total{{{L}}} 5
http_requests_total{{handler="x",method="POST",status="2xx"}} 3
http_requests_total{{handler="x",method="POST",status="2xx"}} 9
"""
    snapshot = snapshot_of(text)
    assert snapshot.engines[0].decode_tokens_total == 5
    assert snapshot.engines[0].http_responses_total is None
    assert snapshot.absent["http_responses_total"] is Absence.DUPLICATE


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


def test_a_histogram_that_falls_is_none() -> None:
    text = f"""vllm:time_to_first_token_seconds_bucket{{{L},le="1.0"}} 5
vllm:time_to_first_token_seconds_bucket{{{L},le="2.0"}} 4
vllm:time_to_first_token_seconds_bucket{{{L},le="+Inf"}} 6
vllm:time_to_first_token_seconds_count{{{L}}} 6
vllm:time_to_first_token_seconds_sum{{{L}}} 6
"""
    snapshot = snapshot_of(text)
    assert snapshot.engines[0].time_to_first_token_seconds is None
    assert snapshot.absent["time_to_first_token_seconds"] is Absence.IMPLAUSIBLE


def test_transferred_kv_is_not_computed_either() -> None:
    engine = engine_of(
        f"""vllm:prompt_tokens_total{{{L}}} 1000
vllm:prefix_cache_hits_total{{{L}}} 100
vllm:external_prefix_cache_hits_total{{{L}}} 800
""",
        "0.12.0",
    )
    assert (engine.prefill_tokens_total, engine.cached_prompt_tokens_total) == (100, 900)


def test_with_prefix_caching_off_there_is_no_hit_ratio_to_wait_for() -> None:
    text = f"""vllm:prefix_cache_queries_total{{{L}}} 0
vllm:prefix_cache_hits_total{{{L}}} 0
vllm:cache_config_info{{enable_prefix_caching="False",engine="0"}} 1
"""
    snapshot = snapshot_of(text)
    assert snapshot.engines[0].prefix_cache_queries is None
    assert snapshot.absent["prefix_cache_query_tokens_total"] is Absence.NOT_CONFIGURED


def test_a_page_with_web_framework_series_only_is_nobodys() -> None:
    text = 'http_requests_total{handler="/x",method="POST",status="2xx"} 3\nprocess_start_time_seconds 1000\n'
    assert snapshot_of(text).engines == ()


def test_steps_counted_by_several_api_servers_are_not_exact() -> None:
    text = f"vllm:iteration_tokens_total_count{{{L}}} 9\n"
    assert snapshot_of(text).quality["engine_steps_total"] is Quality.APPROXIMATE
    assert "engine_steps_total" not in snapshot_of(text + "process_start_time_seconds 1000\n").quality


def test_hits_of_a_kv_connector_are_hits() -> None:
    engine = engine_of(
        f"""vllm:prefix_cache_queries_total{{{L}}} 1000
vllm:prefix_cache_hits_total{{{L}}} 300
vllm:external_prefix_cache_queries_total{{{L}}} 700
vllm:external_prefix_cache_hits_total{{{L}}} 200
"""
    )
    assert (engine.prefix_cache_query_tokens_total, engine.prefix_cache_hit_tokens_total) == (1000, 500)


def test_sleep_is_a_state_of_its_own() -> None:
    text = f"""vllm:engine_sleep_state{{{L},sleep_state="awake"}} 0
vllm:engine_sleep_state{{{L},sleep_state="weights_offloaded"}} 1
vllm:engine_sleep_state{{{L},sleep_state="discard_all"}} 0
"""
    assert snapshot_of(text).sleeping
    assert not snapshot_of(text.replace('awake"} 0', 'awake"} 1')).sleeping
    assert not snapshot_of(f"vllm:num_requests_running{{{L}}} 0\n").sleeping


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


def test_a_start_that_is_no_time_is_not_taken_for_one() -> None:
    for start in ("1e+308", "0", "NaN"):
        assert (
            snapshot_of(
                f"vllm:num_requests_running{{{L}}} 1\nprocess_start_time_seconds {start}\n"
            ).process_start_unix_seconds
            is None
        )


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


def test_finished_requests_of_vllm_itself_keep_their_label() -> None:
    text = f"""vllm:request_success_total{{{L},finished_reason="stop"}} 7
vllm:request_success_total{{{L},finished_reason="repetition"}} 1
"""
    assert engine_of(text).requests_finished_total == {"stop": 7, "repetition": 1}


@check_rows(
    ("reasons", "version", "counted"),
    [
        (("stop", "error"), None, True),  # every reason has its series from the start
        (("stop",), "0.33.0", True),  # the Rust front end: a series at its first event
        (("stop",), "0.12.0", False),  # counted since 0.13 (facts runtimes-vllm-sglang 1.2)
        (("stop",), None, False),
    ],
)
def test_errors_are_counted_where_the_page_or_the_version_shows_it(
    reasons: tuple[str, ...], version: str | None, counted: bool
) -> None:
    text = "".join(f'vllm:request_success_total{{{L},finished_reason="{reason}"}} 7\n' for reason in reasons)
    snapshot = snapshot_of(text, version)
    assert snapshot.engines[0].requests_finished_total == dict.fromkeys(reasons, 7)
    assert snapshot.errors_counted is counted
    # HTTP answers tell as well
    assert snapshot_of(f'{text}http_requests_total{{status="2xx"}} 7\n', version).errors_counted


def test_what_the_exporter_asks_is_no_answer_to_a_user() -> None:
    """A vLLM with --api-key refuses GET /v1/models, and its instrumentation counts that."""
    page = """# TYPE http_requests_total counter
http_requests_total{handler="/v1/models",method="GET",status="4xx"} 3
http_requests_total{handler="/v1/chat/completions",method="POST",status="2xx"} 60
http_requests_total{handler="/v1/chat/completions",method="POST",status="4xx"} 2
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 0
"""
    (engine,) = snapshot_of(page).engines
    assert engine.http_responses_total == {"2xx": 60, "4xx": 2}
