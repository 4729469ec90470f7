"""SGLang's traps that need more than a page (test_pages.py): recorded pages, ranks, side endpoints."""

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


def test_errors_are_known_by_http_answers_from_0_5_7_on() -> None:
    assert snapshot_of(page("sglang-0.5.23", 46).decode(), "0.5.23", runtime=SGLANG).errors_counted
    assert not snapshot_of((MADE / "sglang-0.4.6.prom").read_text(), "0.4.6", runtime=SGLANG).errors_counted


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
