"""SGLang's traps, one by one: what the page says and what may be read from it."""

from llm_serving_exporter.engines.detect import detect
from llm_serving_exporter.engines.hooks.sglang import read_loads, read_models, read_server_info
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.fetch.page import PageParser
from llm_serving_exporter.model.snapshot import EXPORTED_FIELDS, Absence, EngineSnapshot, Quality, ServerFacts
from tests.made.sglang_ranks import page as ranks
from tests.support.builders.recordings import page, recording
from tests.support.builders.snapshots import engine_of, page_of, snapshot_of
from tests.support.paths import TESTS
from tests.support.rows import check_rows
from tests.support.servers.replica import readings

SGLANG = RUNTIMES["sglang"]

MADE = TESTS / "made"
S = 'engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"'
T = 'engine_type="unified",model_name="m"'


def engine(text: str, version: str | None = "0.5.23") -> EngineSnapshot:
    return engine_of(text, version, SGLANG)


def recorded(number: int) -> EngineSnapshot:
    return engine(page("sglang-0.5.23", number).decode())


def made(name: str, version: str | None = "0.5.23") -> EngineSnapshot:
    return engine((MADE / f"sglang-{name}.prom").read_text(), version)


def test_device_time_is_the_busiest_ranks_and_leaves_out_passes_without_a_request() -> None:
    def counted(name: str, version: str) -> float | None:
        text = "".join(
            f'sglang:{name}_total{{{T},pp_rank="0",tp_rank="{rank}",category="{mode}"}} {seconds}\n'
            for rank, mode, seconds in (
                (0, "decode", 100), (1, "decode", 101), (0, "extend", 20), (1, "extend", 19), (0, "idle", 7),
            )
        )  # fmt: skip
        running = f"sglang:num_running_reqs{{{S}}} 1\n"
        return engine_of(text + running, runtime=SGLANG, version=version).device_busy_seconds

    assert counted("forward_execution_seconds", "0.5.23") == 121
    assert counted("gpu_execution_seconds", "0.5.8") == 121


def test_live_decode_is_decode_passes_and_first_tokens_and_what_ended_is_exact() -> None:
    text = f"""sglang:realtime_tokens_total{{{S},mode="prefill_compute"}} 1000
sglang:realtime_tokens_total{{{S},mode="prefill_cache"}} 300
sglang:generation_tokens_total{{{T},is_streaming="true"}} 20
"""
    first = f"""sglang:time_to_first_token_seconds_count{{{T},is_streaming="true"}} 7
sglang:time_to_first_token_seconds_count{{{T},is_streaming="false"}} 2
"""
    live = f'sglang:realtime_tokens_total{{{S},mode="decode"}} 40\n'
    snapshot = snapshot_of(text + first + live, runtime=SGLANG)
    assert snapshot.engines[0].decode_tokens_live == 40 + 7 + 2
    assert snapshot.engines[0].decode_pass_tokens == 40
    assert snapshot.engines[0].prefill_tokens_total == 1000
    assert snapshot.engines[0].decode_tokens_total == 20
    assert snapshot.quality["decode_tokens_total"] is Quality.LAGGING
    assert "decode_tokens_live" not in snapshot.quality
    # nothing was decoded yet
    before = snapshot_of(text + first, runtime=SGLANG)
    assert {"decode_pass_tokens", "decode_tokens_live"} <= before.still_zero
    assert before.engines[0].decode_tokens_total == 20


def test_passes_that_decode_are_told_from_those_that_compute_prompts() -> None:
    text = "".join(
        f'sglang:cuda_graph_passes_total{{{S},mode="{mode}"}} {passes}\n'
        for mode, passes in (("decode_cuda_graph", 90), ("decode_none", 10), ("prefill_none", 7))
    )
    assert (engine(text).decode_steps_total, engine(text).engine_steps_total) == (100, 107)


def test_tokens_in_use_are_the_pages_own_count() -> None:
    """`token_usage` is of the fullest pool, with two decimals."""
    text = f"""sglang:token_usage{{{S}}} 0.92
sglang:full_token_usage{{{S}}} 0.12
sglang:max_total_num_tokens{{{S}}} 1000000
"""
    assert engine(f"{text}sglang:kv_used_tokens{{{S}}} 120345\n").kv_used_tokens == 120_345
    assert engine(text).kv_used_tokens == 120_000


def test_a_server_of_embeddings_generates_nothing() -> None:
    # it observes a time to first token for each request (tokenizer_manager.py, collect_metrics), of which no token comes
    text = f"""sglang:realtime_tokens_total{{{S},mode="prefill_compute"}} 1000
sglang:time_to_first_token_seconds_count{{{T},is_streaming="false"}} 7
sglang:generation_tokens_total{{{T},is_streaming="false"}} 0
"""
    assert engine(text).decode_tokens_total == 0


def test_cached_tokens_are_added_over_their_sources() -> None:
    text = "".join(
        f'sglang:cached_tokens_total{{{T},cache_source="{source}"}} {tokens}\n'
        for source, tokens in (("device", 50), ("host", 20), ("storage_mooncake", 7), ("total", 3))
    )
    assert engine(text).cached_prompt_tokens_total == 80


def test_hits_are_looked_up_too() -> None:
    # upstream's own help text: rate(sum of *_hit) / rate(sum of all modes)
    modes = {"input": 600, "device_hit": 300, "host_hit": 80, "storage_hit": 20}
    text = "".join(f'sglang:prefill_effective_tokens_total{{{S},mode="{m}"}} {n}\n' for m, n in modes.items())
    live = f"""sglang:realtime_tokens_total{{{S},mode="prefill_compute"}} 700
sglang:realtime_tokens_total{{{S},mode="prefill_cache"}} 450
"""
    one = engine(text + live)
    assert (one.prefix_cache_query_tokens_total, one.prefix_cache_hit_tokens_total) == (1000, 400)
    one = engine(live, "0.5.10")
    assert (one.prefix_cache_query_tokens_total, one.prefix_cache_hit_tokens_total) == (1150, 450)
    assert (one.prefix_cache_queries, one.prefix_cache_hits) == (1150, 450)


def test_ranks_of_one_tensor_parallel_engine_count_once() -> None:
    one, eight = recorded(46), engine(ranks(8, dp=False).decode())
    for field in (*EXPORTED_FIELDS, "decode_context_tokens", "kv_block_tokens", "role"):
        assert getattr(eight, field) == getattr(one, field), field
    # 956 forward passes: decode passes stand there eight times, prefill passes once
    assert eight.engine_steps_total == 956


def test_data_parallel_ranks_are_engines_whatever_their_tp_rank() -> None:
    one = recorded(46)
    snapshot = snapshot_of(ranks(8, dp=True).decode(), "0.5.23", runtime=SGLANG)
    engines = {engine.engine: engine for engine in snapshot.engines}
    assert set(engines) == {"", *map(str, range(8))}
    for rank in range(8):
        found = engines[str(rank)]
        assert found.is_engine
        assert found.requests_running == one.requests_running == 32
        assert found.kv_cache_capacity_tokens == 40960
        assert found.prefill_tokens_total == one.prefill_tokens_total
        assert found.request_queue_time_seconds == one.request_queue_time_seconds
        assert found.prompt_tokens_total is None
    # request series name no rank: they are nobody's in particular, first tokens among them
    assert not engines[""].is_engine
    assert engines[""].prompt_tokens_total == one.prompt_tokens_total
    first = float(294)  # time_to_first_token_seconds_count of the page, streamed (234) and not (60)
    assert engines[""].decode_tokens_total == one.decode_tokens_total
    assert engines[""].decode_tokens_live == first
    total = sum(found.decode_tokens_live or 0 for found in snapshot.engines)
    assert total == 8 * ((one.decode_tokens_live or 0) - first) + first


def test_stages_of_a_pipeline_tell_the_same() -> None:
    text = "".join(
        f"sglang:{name}{{{S.replace(chr(112) + 'p_rank=' + chr(34) + '0', chr(112) + 'p_rank=' + chr(34) + stage)}}} {value}\n"
        for stage in "01"
        for name, value in (("num_running_reqs", 4), ("max_total_num_tokens", 1000))
    )
    one = engine(text)
    assert (one.requests_running, one.kv_cache_capacity_tokens) == (4, 1000)


def test_queues_by_priority_are_parts_and_requests_by_priority_are_all_there_is() -> None:
    text = f"""sglang:num_running_reqs{{{S},priority=""}} 5
sglang:num_running_reqs{{{S},priority="1"}} 3
sglang:num_running_reqs{{{S},priority="2"}} 2
sglang:num_queue_reqs{{{S},priority=""}} 4
sglang:num_queue_reqs{{{S},priority="1"}} 4
sglang:num_grammar_queue_reqs{{{S},priority=""}} 1
sglang:prompt_tokens_total{{{T},priority="1",is_streaming="true"}} 100
sglang:prompt_tokens_total{{{T},priority="2",is_streaming="true"}} 10
sglang:prompt_tokens_total{{{T},priority="",is_streaming="true"}} 1
"""
    one = engine(text)
    assert (one.requests_running, one.requests_waiting, one.prompt_tokens_total) == (5, 5, 111)


def test_largest_of_the_processes_of_a_gauge_with_pid() -> None:
    text = f'sglang:num_running_reqs{{{S},pid="7"}} 2\nsglang:num_running_reqs{{{S},pid="8"}} 3\n'
    assert engine(text).requests_running == 3


TTFT = """# TYPE sglang:time_to_first_token_seconds histogram
sglang:time_to_first_token_seconds_sum{labels} {sum}
sglang:time_to_first_token_seconds_bucket{{le="0.1",labels}} 1
sglang:time_to_first_token_seconds_bucket{{le="+Inf",labels}} {count}
sglang:time_to_first_token_seconds_count{labels} {count}
"""


def ttft(labels: str, count: int) -> str:
    text = TTFT.replace("{labels}", f"{{{labels}}}").replace(",labels}}", f",{labels}}}").replace("{{", "{")
    return text.replace("{sum}", str(count)).replace("{count}", str(count))


def test_first_token_times_of_requests_that_stream_only() -> None:
    whole = engine(ttft(f'{T},is_streaming="true"', 5) + ttft(f'{T},is_streaming="false"', 9))
    assert whole.time_to_first_token_seconds.count == 5
    old = engine(ttft(T, 4), "0.5.10")
    assert old.time_to_first_token_seconds.count == 4
    snapshot = snapshot_of(ttft(f'{T},is_streaming="false"', 9) + f"sglang:num_running_reqs{{{S}}} 1\n", runtime=SGLANG)
    assert snapshot.engines[0].time_to_first_token_seconds is None
    assert snapshot.absent["time_to_first_token_seconds"] is Absence.IDLE


def test_finished_and_aborted_and_http_answers_to_requests() -> None:
    one = engine(
        f"""sglang:num_requests_total{{{T},is_streaming="true"}} 30
sglang:num_requests_total{{{T},is_streaming="false"}} 4
sglang:num_aborted_requests_total{{{T}}} 5
sglang:http_responses_total{{endpoint="/v1/chat/completions",method="POST",status_code="200"}} 30
sglang:http_responses_total{{endpoint="/generate",method="POST",status_code="200"}} 4
sglang:http_responses_total{{endpoint="/generate",method="POST",status_code="400"}} 2
sglang:http_responses_total{{endpoint="/generate",method="POST",status_code="503"}} 1
sglang:http_responses_total{{endpoint="/metrics",method="GET",status_code="200"}} 9000
sglang:http_responses_total{{endpoint="/health_generate",method="GET",status_code="503"}} 80
"""
    )
    assert one.requests_finished_total == {"success": 34, "abort": 5}
    assert one.http_responses_total == {"2xx": 34, "4xx": 2, "5xx": 1}


def test_errors_are_known_by_http_answers_from_0_5_7_on() -> None:
    assert snapshot_of(page("sglang-0.5.23", 46).decode(), "0.5.23", runtime=SGLANG).errors_counted
    assert not snapshot_of((MADE / "sglang-0.4.6.prom").read_text(), "0.4.6", runtime=SGLANG).errors_counted


def test_aborts_alone_are_known() -> None:
    assert engine(f"sglang:num_aborted_requests_total{{{T}}} 5\n").requests_finished_total == {"abort": 5}


def test_0_4_6_has_no_live_counters() -> None:
    snapshot = snapshot_of((MADE / "sglang-0.4.6.prom").read_text(), "0.4.6", runtime=SGLANG)
    one = snapshot.engines[0]
    assert (one.model_name, one.engine, one.role) == ("tiny", "0", None)
    assert (one.prompt_tokens_total, one.cached_prompt_tokens_total) == (5000, 1200)
    assert one.prefill_tokens_total == 5000 - 1200
    assert one.decode_tokens_total == 800
    assert (one.prefix_cache_query_tokens_total, one.prefix_cache_hit_tokens_total) == (5000, 1200)
    assert one.inter_token_latency_seconds is not None
    assert (one.requests_running, one.requests_waiting, one.kv_cache_usage_ratio) == (3, 1, 0.09)
    for field in ("prompt_tokens_total", "prefill_tokens_total", "decode_tokens_total"):
        assert snapshot.quality[field] is Quality.LAGGING
    assert snapshot.may_fall == {"prefill_tokens_total"}
    assert snapshot.unmapped_families == ()


def test_without_a_hit_yet_everything_was_computed_where_hits_are_counted() -> None:
    text = 'sglang:prompt_tokens_total{model_name="m"} 500\nsglang:num_running_reqs{model_name="m"} 0\n'
    assert engine(text, "0.4.6").prefill_tokens_total == 500
    assert engine(text, "0.4.2").prefill_tokens_total is None
    assert snapshot_of(text, None, runtime=SGLANG).absent["prefill_tokens_total"] is Absence.VERSION_UNKNOWN


def test_older_names() -> None:
    text = """sglang:time_per_output_token_seconds_sum{model_name="m"} 1
sglang:time_per_output_token_seconds_bucket{le="0.1",model_name="m"} 2
sglang:time_per_output_token_seconds_bucket{le="+Inf",model_name="m"} 2
sglang:time_per_output_token_seconds_count{model_name="m"} 2
"""
    old = engine(text, "0.4.2").inter_token_latency_seconds
    assert old.count == 2
    newer = engine(text.replace("time_per_output_token", "queue").replace("_seconds_", "_time_s_"), "0.5.2")
    assert newer.request_queue_time_seconds.count == 2
    assert engine('sglang:total_retracted_reqs{model_name="m",tp_rank="0"} 3\n', "0.4.10").preemptions_total == 3


def test_a_prefill_worker_counts_no_first_tokens_and_a_decode_worker_no_prompts() -> None:
    prefill, decode = made("prefill"), made("decode")
    assert (prefill.role, decode.role) == ("prefill", "decode")
    assert prefill.prefill_tokens_total == 7000
    assert prefill.decode_tokens_total is None  # its nine first tokens are counted where they are sent
    assert (decode.decode_tokens_total, decode.decode_tokens_live) == (1100, 1500 + 12)
    assert decode.prefill_tokens_total is None  # 6000 prompt tokens came as KV
    assert decode.prefix_cache_query_tokens_total is None
    assert decode.decode_context_tokens == 6400


def test_the_queues_of_disaggregation_are_waiting_too() -> None:
    # decode: 1 queued, 3 without memory, 2 whose KV is on its way, one of them to host memory; prefill: 1 queued, 2 being sent
    assert made("decode").requests_waiting == 1 + 3 + 2
    assert made("prefill").requests_waiting == 1 + 2


def test_disaggregation_queues_by_rank_and_priority_count_once_and_under_their_older_names() -> None:
    def queue(name: str, value: int) -> str:
        ranks = (S, S.replace('tp_rank="0"', 'tp_rank="1"'), f'{S},priority="5"')
        return "".join(f"sglang:num_{name}_queue_reqs{{{labels}}} {value}\n" for labels in ranks)

    now = f"sglang:num_queue_reqs{{{S}}} 1\n" + queue("prefill_bootstrap", 2) + queue("prefill_inflight", 4)
    assert engine(now).requests_waiting == 7
    then = f"sglang:num_queue_reqs{{{S}}} 1\n" + queue("prefill_prealloc", 2) + queue("prefill_infight", 4)
    assert engine(then, "0.4.9").requests_waiting == 7


def test_a_dynamic_worker_does_both() -> None:
    assert engine(f"sglang:num_running_reqs{{{S.replace('unified', 'dynamic')}}} 1\n").role == "unified"


def test_the_engines_own_estimates_are_not_read() -> None:
    one = engine(f"sglang:estimated_read_bytes_per_gpu_total{{{S}}} 1e15\nsglang:num_running_reqs{{{S}}} 1\n")
    assert one.estimated_read_bytes_per_gpu is None
    assert one.estimated_flops_per_gpu is None


def test_gauges_are_slow_and_their_limits_constant() -> None:
    snapshot = snapshot_of(page("sglang-0.5.23", 46).decode(), "0.5.23", runtime=SGLANG)
    assert {name for name, how in snapshot.quality.items() if how is Quality.SLOW} == {
        "requests_running", "requests_waiting", "requests_deferred", "kv_connector", "kv_cache_usage_ratio", "decode_context_tokens",
        "accepted_tokens_per_step", "kv_used_tokens", "state_cache_usage_ratio",
    }  # fmt: skip
    assert snapshot.freezes == {"decode_context_tokens"}
    one = snapshot.engines[0]
    assert (one.kv_cache_capacity_tokens, one.context_limit_tokens, one.kv_block_tokens) == (40960, 32768, 1)


def test_an_openmetrics_scrape_renames_samples() -> None:
    body = recording("sglang-0.5.23").members["endpoints/metrics-2.body"].decode()
    assert "sglang_num_running_reqs{" in body
    kind = "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores"
    snapshot = snapshot_of(body, "0.5.23", content_type=kind, runtime=SGLANG)
    assert [one.kv_cache_capacity_tokens for one in snapshot.engines] == [40960]
    assert snapshot.unmapped_families == ()


def test_every_declared_family_is_read_or_known_and_a_new_one_is_told() -> None:
    declared = (MADE / "sglang-declared.types").read_text()
    assert declared.count("# TYPE") == 173
    text = declared + f"sglang:num_running_reqs{{{S}}} 1\n# TYPE sglang:brand_new_total counter\n"
    assert snapshot_of(text, runtime=SGLANG).unmapped_families == ("sglang:brand_new_total",)


def test_a_dynamo_worker_with_its_names_is_not_taken_for_it() -> None:
    text = f"dynamo_component_requests_total 1\nsglang:num_running_reqs{{{S}}} 1\n"
    assert detect(PageParser().parse(page_of(text)).layout, {"sglang": SGLANG}).runtimes == ()


# /server_info of an SGLang server (upstream's docs/basic_usage/native_api.ipynb), cut to what matters
INFO = {
    "model_path": "qwen/qwen2.5-0.5b-instruct", "served_model_name": "qwen", "dtype": "auto", "quantization": None,
    "kv_cache_dtype": "auto", "max_running_requests": 128, "chunked_prefill_size": 8192, "max_prefill_tokens": 16384, "tp_size": 1,
    "pp_size": 1, "dp_size": 1, "enable_dp_attention": False, "speculative_algorithm": None, "mamba_ssm_dtype": None,
    "context_length": None, "api_key": "secret", "version": "0.5.23",
    "internal_states": [{"dtype": "bfloat16", "effective_max_running_requests_per_dp": 96}],
}  # fmt: skip


def test_server_info() -> None:
    facts = read_server_info(INFO, ServerFacts())
    assert facts == ServerFacts(
        version="0.5.23",
        batch_limit_requests=96,
        tensor_parallel_size=1,
        pipeline_parallel_size=1,
        data_parallel_size=1,
        all_ranks_shown=True,
        experts_spread=False,
        model_roots={"qwen": "qwen/qwen2.5-0.5b-instruct"},
        dtype="bfloat16",
        quantization="",
        kv_cache_dtype="auto",
        batched_tokens_limit=8192,
        speculation=False,
    )


def test_data_parallel_attention_splits_the_tensor_parallel_group() -> None:
    sizes = {"tp_size": 8, "dp_size": 4, "enable_dp_attention": True, "max_running_requests": 512}
    spread = read_server_info({**INFO, **sizes, "internal_states": []}, ServerFacts())
    assert (spread.tensor_parallel_size, spread.data_parallel_size, spread.experts_spread) == (2, 4, True)
    assert spread.batch_limit_requests == 512 // 4
    copies = read_server_info({**INFO, **sizes, "enable_dp_attention": False, "internal_states": []}, ServerFacts())
    assert (copies.tensor_parallel_size, copies.data_parallel_size, copies.experts_spread) == (8, 4, False)
    assert copies.batch_limit_requests == 512


def test_speculation_and_limits_of_a_step() -> None:
    facts = read_server_info({**INFO, "speculative_algorithm": "EAGLE3", "chunked_prefill_size": -1}, ServerFacts())
    assert (facts.speculation, facts.batched_tokens_limit) == (True, 16384)


def test_models_and_loads() -> None:
    listed = {"data": [{"id": "qwen", "root": "qwen", "max_model_len": 32768}, {"id": "lora", "max_model_len": None}]}
    facts = read_models(listed, ServerFacts())
    assert (facts.context_limit_tokens, facts.model_roots) == ({"qwen": 32768}, {})
    loads = {
        "version": "0.5.23", "accelerator": "NVIDIA H200", "num_accelerators": 2,
        "loads": [{"dp_rank": 0, "max_running_requests": 64}, {"dp_rank": 1, "max_running_requests": 60}],
    }  # fmt: skip
    facts = read_loads(loads, ServerFacts())
    assert facts == ServerFacts(version="0.5.23", batch_limit_requests=60, gpu_name="NVIDIA H200", gpu_count=2)


def test_over_http_with_all_its_endpoints() -> None:
    body = page("sglang-0.5.23", 46)
    routes = {
        "/metrics": body,
        "/server_info": '{"model_path": "/models/tiny", "served_model_name": "tiny-llama", "tp_size": 2, "version": "0.5.23"}',
        "/v1/models": '{"data": [{"id": "tiny-llama", "max_model_len": 32768}]}',
        "/v1/loads": '{"version": "0.5.23", "num_accelerators": 2, "loads": [{"max_running_requests": 48}]}',
    }
    last = readings([routes, routes], runtimes=(SGLANG,))[-1]
    assert last.server.runtime == "sglang"
    assert last.page.snapshot.engines[0].batch_limit_requests == 48
    assert last.server.facts.model_roots == {"tiny-llama": "/models/tiny"}
    assert last.server.facts.gpu_count == 2


def test_nim_passes_its_page_on_under_v1() -> None:
    last = readings([{"/v1/metrics": page("sglang-0.5.23", 46)}] * 2, runtime="sglang")[-1]
    assert (last.page.up, last.server.metrics_url.rpartition("/v1/")[2]) == (True, "metrics")


def test_what_a_step_yields_under_speculation() -> None:
    """Its inter-token events are one a token, so that steps are fewer; 0 without speculation."""
    labels = 'engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"'
    page = f"sglang:num_running_reqs{{{labels}}} 4\nsglang:spec_accept_length{{{labels}}} 2.6\n"
    assert engine_of(page, runtime=SGLANG).accepted_tokens_per_step == 2.6


# --- SGLang's labels that tell whose a series is: the role of a worker, and what no rank label merges ---


@check_rows(("role", "computed"), [("unified", 500), ("prefill", 500), ("decode", None)])
@check_rows("hits", ["", "sglang:cached_tokens_total{{{labels}}} 0\n"])
def test_up_to_0_5_6_a_decode_worker_counts_prompts_that_it_does_not_compute(
    role: str, computed: int | None, hits: str
) -> None:
    # a worker whose cache has found nothing yet has no counter of hits, which is another row
    labels = f'engine_type="{role}",model_name="m"'
    text = f"sglang:num_running_reqs{{{labels}}} 1\nsglang:prompt_tokens_total{{{labels}}} 500\n"
    snapshot = snapshot_of(text + hits.format(labels=labels), "0.5.5", runtime=SGLANG)
    assert snapshot.engines[0].prefill_tokens_total == computed
    assert snapshot.absent.get("prefill_tokens_total") is (Absence.NOT_CONFIGURED if computed is None else None)


def test_shares_of_one_engine_are_never_added() -> None:
    # --extra-metric-labels (facts runtimes-vllm-sglang 2.1) may be any
    labels = 'engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"'
    text = "".join(
        f'sglang:token_usage{{{labels},zone="{zone}"}} {share}\n'
        for zone, share in (("a", 0.3), ("b", 0.4), ("c", 0.2))
    )
    assert engine_of(text, "0.5.23", runtime=SGLANG).kv_cache_usage_ratio == 0.4
