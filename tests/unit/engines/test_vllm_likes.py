"""Servers with vLLM's names that are not its V1 engine behind its Python front end: V0, the Rust one, llm-d's simulator, NIM, Ray Serve."""

import pytest

from llm_serving_exporter.engines.apply import Overrides
from llm_serving_exporter.engines.detect import detect, labels_needed
from llm_serving_exporter.engines.mapping import ERRORS
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.fetch.page import PageParser
from llm_serving_exporter.model.snapshot import Absence, Quality
from tests.support.builders.golden_cases import MADE
from tests.support.builders.recordings import recording
from tests.support.builders.snapshots import engine_of, page_of, snapshot_of
from tests.support.paths import TESTS
from tests.support.servers.replica import Replica, readings

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
    assert idle.server.runtime == "vllm"
    assert idle.page.snapshot.engines[0].requests_running == 0
    assert idle.page.snapshot.engines[0].decode_tokens_total is None
    assert busy.page.up
    assert busy.server.restarts_total == 0
    (engine,) = busy.page.snapshot.engines
    assert (engine.prompt_tokens_total, engine.prefill_tokens_total, engine.decode_tokens_total) == (700, 500, 90)
    assert engine.requests_finished_total == {"stop": 4}
    assert engine.time_to_first_token_seconds is not None
    assert busy.page.derived is not None
    for signal in ("kv_cache_capacity_tokens", "requests_rejected_total", "http_responses_total"):
        assert busy.page.derived.signals[signal] is Absence.NOT_EXPORTED
    # who restarts without a start time on its page is seen by a counter that falls
    assert busy.page.snapshot.process_start_unix_seconds is None


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
    assert found.server.runtime == "vllm"
    assert found.server.metrics_url.endswith("/v1/metrics")


def test_endpoints_beside_a_page_below_v1_are_where_they_always_are() -> None:
    found = readings([NIM, NIM])[-1]
    assert found.server.facts.version == "0.32.0"
    assert found.server.facts.context_limit_tokens == {"tiny-llama": 2048}


# --- vLLM's V0 engine, up to 0.8: what it counts, and what only looks like it ---


V0_PAGE = (MADE / "vllm-0.6.6.prom").read_text()


def test_the_v0_engine_gives_what_it_counts() -> None:
    snapshot = snapshot_of(V0_PAGE, "0.6.6")
    (engine,) = snapshot.engines
    assert (engine.model_name, engine.engine) == ("tiny", "0")
    assert (engine.requests_running, engine.requests_waiting, engine.kv_cache_usage_ratio) == (5, 2, 0.35)
    assert engine.kv_cache_capacity_tokens == 1024 * 16
    assert (engine.decode_tokens_total, engine.preemptions_total, engine.engine_steps_total) == (20_000, 4, 4200)
    assert engine.inter_token_latency_seconds.count == 19_895
    assert engine.time_per_output_token_seconds is None
    assert engine.requests_finished_total == {"stop": 70, "length": 30}
    assert snapshot.unmapped_families == ()


def test_prompts_of_the_v0_engine_include_what_it_computed_again() -> None:
    known, unknown = snapshot_of(V0_PAGE, "0.6.6"), snapshot_of(V0_PAGE, None)
    assert known.engines[0].prompt_tokens_total == unknown.engines[0].prompt_tokens_total == 50_000
    assert known.quality["prompt_tokens_total"] is Quality.APPROXIMATE
    for later in ("0.8.0", "0.8.5", "0.9.2"):
        assert "prompt_tokens_total" not in snapshot_of(V0_PAGE, later).quality
    assert snapshot_of(V0_PAGE, "0.7.3").quality["prompt_tokens_total"] is Quality.APPROXIMATE


def test_a_hit_rate_without_its_counters_gives_no_prefix_tokens() -> None:
    # gpu_prefix_cache_hit_rate is a mean since the start; -1 = caching off
    snapshot = snapshot_of(V0_PAGE, "0.6.6")
    for field in ("prefix_cache_query_tokens_total", "prefix_cache_hit_tokens_total", "prefill_tokens_total"):
        assert getattr(snapshot.engines[0], field) is None
        assert snapshot.absent[field] is Absence.NOT_EXPORTED
    off = V0_PAGE.replace(
        'gpu_prefix_cache_hit_rate{model_name="tiny"} 0.25', 'gpu_prefix_cache_hit_rate{model_name="tiny"} -1.0'
    )
    off = off.replace('enable_prefix_caching="True"', 'enable_prefix_caching="False"')
    snapshot = snapshot_of(off, "0.6.6")
    assert snapshot.absent["prefix_cache_query_tokens_total"] is Absence.NOT_CONFIGURED
    assert snapshot.engines[0].prefill_tokens_total == 50_000


def test_speculation_counters_of_the_v0_engine_are_not_counts() -> None:
    # it adds the worker's running totals to them at each log interval
    for version, why in (("0.6.6", Absence.NOT_EXPORTED), (None, Absence.VERSION_UNKNOWN)):
        snapshot = snapshot_of(V0_PAGE, version)
        assert snapshot.engines[0].speculative_draft_tokens_total is None
        assert snapshot.absent["speculative_accepted_tokens_total"] is why
    v1 = f"""vllm:spec_decode_num_drafts_total{{{L}}} 10
vllm:spec_decode_num_draft_tokens_total{{{L}}} 30
vllm:spec_decode_num_accepted_tokens_total{{{L}}} 12
"""
    for known in ("0.8.5", "0.32.0", None):
        engine = engine_of(v1, known)
        assert (engine.speculative_draft_tokens_total, engine.speculative_accepted_tokens_total) == (30, 12)


def test_the_older_of_two_queue_times_is_read_only_without_the_newer() -> None:
    # 0.6.4 to 0.9.0 have both
    older = [line for line in V0_PAGE.splitlines() if "vllm:request_queue_time_seconds" not in line]
    queue = engine_of("\n".join(older) + "\n", "0.6.6").request_queue_time_seconds
    assert (queue.count, queue.sum) == (100, 20)
    both = V0_PAGE.replace(
        'vllm:time_in_queue_requests_sum{model_name="tiny"} 20.0',
        'vllm:time_in_queue_requests_sum{model_name="tiny"} 99.0',
    )
    queue = engine_of(both, "0.6.6").request_queue_time_seconds
    assert queue.sum == 20


# --- NVIDIA NIM 1.x: names without prefix, on a path of its own ---


RUNTIME = RUNTIMES["nim"]

NIM_MADE = TESTS / "made"
NIM_PAGE, NIM_LATER = (NIM_MADE / f"nim{which}.prom" for which in ("", "-later"))
NIM_LABELS = 'model_name="m"'


def detected(text: str) -> list[str]:
    return [runtime.name for runtime in detect(PageParser(lambda name: True).parse(page_of(text)).layout).runtimes]


def test_two_names_that_stand_together_nowhere_else_tell_its_page() -> None:
    assert detected(f"num_request_max{{{NIM_LABELS}}} 4\n") == []
    assert (
        detected(f"gpu_cache_usage_perc{{{NIM_LABELS}}} 0.5\ntime_to_first_token_seconds_count{{{NIM_LABELS}}} 4\n")
        == []
    )


def test_a_newer_image_with_its_back_ends_names_is_the_back_end() -> None:
    engine = 'engine="0",model_name="m"'
    newer = (
        f"num_request_max{{{NIM_LABELS}}} 256\ngpu_cache_usage_perc{{{NIM_LABELS}}} 0.5\n"
        f"vllm:num_requests_running{{{engine}}} 3\nvllm:generation_tokens_total{{{engine}}} 7\n"
    )
    assert detected(newer) == ["vllm"]
    # and its batch limit, which vLLM itself shows nowhere
    assert engine_of(newer).batch_limit_requests == 256


def test_its_page_is_found_under_v1() -> None:
    with Replica() as server:
        found = readings(
            [{"/v1/metrics": NIM_PAGE.read_bytes()}, {"/v1/metrics": NIM_LATER.read_bytes()}], replica=server
        )
        assert [(one.server.runtime, one.page.up) for one in found] == [("nim", True)] * 2
        # found once, then known
        assert server.asked.count("/metrics") == 1
        assert found[0].server.metrics_url.endswith("/v1/metrics")


def test_what_it_says() -> None:
    engine = engine_of(NIM_PAGE.read_text(), runtime=RUNTIME)
    assert engine.model_name == "meta/llama-3.1-8b-instruct"
    assert (engine.requests_running, engine.requests_waiting, engine.batch_limit_requests) == (24, 3, 256)
    # "perc" is a share
    assert engine.kv_cache_usage_ratio == 0.375
    assert (engine.prompt_tokens_total, engine.decode_tokens_total) == (240_000, 60_000)
    # at most: what a cache gave is in it
    assert engine.prefill_tokens_total == 240_000
    assert engine.time_to_first_token_seconds.edges[-1] == 10


def test_computed_prompts_are_bounded_by_what_was_sent() -> None:
    assert snapshot_of(NIM_PAGE.read_text(), runtime=RUNTIME).quality["prefill_tokens_total"] is Quality.APPROXIMATE


def test_it_counts_no_errors() -> None:
    assert not snapshot_of(NIM_PAGE.read_text(), runtime=RUNTIME).errors_counted
    failed = f'num_requests_running{{{NIM_LABELS}}} 1\nrequest_finish_total{{{NIM_LABELS},finished_reason="error"}} 2\n'
    snapshot = snapshot_of(failed, runtime=RUNTIME)
    assert snapshot.engines[0].requests_finished_total == {"error": 2}
    assert not snapshot.errors_counted
    assert RUNTIME.missing[ERRORS]


def test_failures_are_no_further_finished_requests() -> None:
    # they are the finished ones of every reason but stop and length
    engine = engine_of(NIM_PAGE.read_text(), runtime=RUNTIME)
    assert engine.requests_finished_total == {"abort": 10, "length": 50, "stop": 240}
    # an image without reasons: a client's abort is not told from an error
    early = engine_of(
        f"num_requests_running{{{NIM_LABELS}}} 1\nrequest_success_total{{{NIM_LABELS}}} 9\nrequest_failure_total{{{NIM_LABELS}}} 2\n",
        runtime=RUNTIME,
    )
    assert early.requests_finished_total == {"success": 9}


# --- ray Serve LLM: vLLM's families through Ray's node agent, several replicas and models on one page ---


RAY = RUNTIMES["ray-vllm"]

RAY_PAGE = (MADE / "ray_vllm.prom").read_text()
RAY_LATER = (MADE / "ray_vllm-later.prom").read_text()
# two replicas of one model, one of another; 0badcafe, a replica that has gone, left its counters on the page
LIVING = [("llama-3.1-8b", "c9d0e1f2/0"), ("qwen3-8b", "a1b2c3d4/0"), ("qwen3-8b", "e5f6a7b8/0")]
DEAD = ("qwen3-8b", "0badcafe/0")


def labels(replica: str = "r1", model: str = "m", worker: str = "w1", **more: str) -> str:
    found = {"ReplicaId": replica, "WorkerId": worker, "engine": "0", "model_name": model, **more}
    return ",".join(f'{key}="{value}"' for key, value in found.items() if value != "-")


def without_gauges(text: str) -> str:
    """The page once its replicas have been idle for two of Ray's report intervals."""
    gauges = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE") and line.endswith(" gauge")}
    lines = [line for line in text.splitlines() if not any(gauge in line for gauge in gauges)]
    return "\n".join(lines) + "\n"


def test_the_page_is_recognised_and_read() -> None:
    layout = PageParser(labels_needed()).parse(page_of(RAY_PAGE)).layout
    assert detect(layout).runtime is RAY
    first, _, last = readings([{"/metrics": page} for page in (RAY_PAGE, RAY_PAGE, RAY_LATER)])
    assert first.server.runtime == "ray-vllm"
    assert last.page.up
    assert last.server.restarts_total == 0
    rates = {engine.engine: engine.phase_tokens_per_second for engine in last.page.derived.engines}
    # what was counted in the 20 s between the first page and the last
    assert rates == {
        "a1b2c3d4/0": {"prefill": 7000 / 20, "decode": 3000 / 20},
        "e5f6a7b8/0": {"prefill": 4000 / 20, "decode": 1800 / 20},
        "c9d0e1f2/0": {"prefill": 1000 / 20, "decode": 400 / 20},
    }


def test_vllms_own_page_is_not_rays() -> None:
    text = 'vllm:num_requests_running{engine="0",model_name="m"} 1\nvllm:generation_tokens_total{engine="0",model_name="m"} 1\n'
    assert detect(PageParser(labels_needed()).parse(page_of(text)).layout).runtime is VLLM
    assert snapshot_of(text.replace("vllm:", "ray_vllm_")).engines == ()


def test_replicas_stay_apart_and_one_that_has_gone_is_left_out() -> None:
    snapshot = snapshot_of(RAY_PAGE, None, runtime=RAY)
    assert [(engine.model_name, engine.engine) for engine in snapshot.engines] == LIVING
    assert [engine.decode_tokens_total for engine in snapshot.engines] == [9000, 40_000, 26_000]
    assert "0badcafe" in RAY_PAGE


def test_an_idle_server_is_no_server_that_has_gone() -> None:
    # the agent lets gauges go that nobody sets, and an idle engine sets none: nothing tells idle from dead then
    idle = without_gauges(RAY_PAGE)
    assert "num_requests_running" not in idle
    snapshot = snapshot_of(idle, None, runtime=RAY)
    assert {(engine.model_name, engine.engine) for engine in snapshot.engines} == {*LIVING, DEAD}
    for field in ("requests_running", "requests_waiting", "kv_cache_usage_ratio", "kv_cache_capacity_tokens"):
        assert snapshot.absent[field] is Absence.IDLE
    busy, quiet, again = readings([{"/metrics": page} for page in (RAY_PAGE, idle, RAY_LATER)])
    assert (busy.page.up, quiet.page.up, again.page.up) == (True, True, True)
    assert again.server.restarts_total == 0


def test_sums_that_ray_makes_up_are_not_read() -> None:
    snapshot = snapshot_of(RAY_PAGE, None, runtime=RAY)
    for engine in snapshot.engines:
        assert engine.time_to_first_token_seconds.sum is None
        assert engine.time_to_first_token_seconds.mean() is None
        assert engine.time_to_first_token_seconds.quantile(0.9) is not None
    last = readings([{"/metrics": page} for page in (RAY_PAGE, RAY_PAGE, RAY_LATER)])[-1]
    for derived in last.page.derived.engines:
        assert derived.latency["ttft"].mean_seconds is None
        assert derived.latency["ttft"].quantiles
    # 0.13 to 0.15 tell computed prompt tokens by such a sum only
    text = f"""ray_vllm_num_requests_running{{{labels()}}} 1
ray_vllm_request_prefill_kv_computed_tokens_sum{{{labels()}}} 550
ray_vllm_request_prefill_kv_computed_tokens_count{{{labels()}}} 3
"""
    assert snapshot_of(text, None, runtime=RAY).engines[0].prefill_tokens_total is None


def test_a_histogram_with_other_edges_than_the_nodes_first_is_missing_not_mixed() -> None:
    engines = {engine.engine: engine for engine in snapshot_of(RAY_PAGE, None, runtime=RAY).engines}
    assert engines["c9d0e1f2/0"].request_prompt_tokens is None
    assert engines["c9d0e1f2/0"].time_to_first_token_seconds is not None
    assert engines["a1b2c3d4/0"].request_prompt_tokens.count == 140


def test_a_family_without_the_model_is_its_replicas_models() -> None:
    # cache_config_info has no model_name, and the page has two models
    capacities = {
        engine.engine: engine.kv_cache_capacity_tokens for engine in snapshot_of(RAY_PAGE, None, runtime=RAY).engines
    }
    assert capacities == {"a1b2c3d4/0": 198_144, "e5f6a7b8/0": 198_144, "c9d0e1f2/0": 131_072}


def test_a_counter_that_has_counted_nothing_is_absent_not_zero() -> None:
    engines = {engine.engine: engine for engine in snapshot_of(RAY_PAGE, None, runtime=RAY).engines}
    assert engines["a1b2c3d4/0"].preemptions_total == 5
    assert engines["e5f6a7b8/0"].preemptions_total is None


@pytest.mark.parametrize("prefix", ["ray_vllm_", "ray_vllm:"])
def test_the_deprecated_gauge_of_a_counter_is_not_read(prefix: str) -> None:
    # the older way out of Ray (OpenCensus) has each counter once more as a gauge without _total; older releases kept the colon
    text = f"""# TYPE {prefix}generation_tokens gauge
{prefix}generation_tokens{{{labels()}}} 90
# TYPE {prefix}generation_tokens_total counter
{prefix}generation_tokens_total{{{labels()}}} 90
# TYPE {prefix}num_requests_running gauge
{prefix}num_requests_running{{{labels()}}} 1
"""
    snapshot = snapshot_of(text, None, runtime=RAY)
    assert snapshot.engines[0].decode_tokens_total == 90
    assert snapshot.unmapped_families == ()
    assert detect(PageParser(labels_needed()).parse(page_of(text)).layout).runtime is RAY


def test_values_are_ten_seconds_old_and_the_window_is_longer() -> None:
    snapshot = snapshot_of(RAY_PAGE, None, runtime=RAY)
    assert set(snapshot.refreshed_every.values()) == {10}
    assert snapshot.quality["decode_tokens_total"] is Quality.SLOW
    assert snapshot.quality["requests_running"] is Quality.SLOW
    assert snapshot.quality["e2e_request_latency_seconds"] is Quality.LAGGING
    # twelve refreshes, not the minute that is configured
    many = readings([{"/metrics": RAY_PAGE}] * 20)[-1]
    assert many.page.derived.window_seconds == 120


def test_the_agents_own_start_and_web_server_say_nothing_of_the_engines() -> None:
    text = f"""ray_vllm_num_requests_running{{{labels()}}} 1
process_start_time_seconds 1.7951e+09
http_requests_total{{handler="x",method="POST",status="2xx"}} 3
"""
    snapshot = snapshot_of(text, None, runtime=RAY)
    assert snapshot.process_start_unix_seconds is None
    assert snapshot.engines[0].http_responses_total is None
    last = readings([{"/metrics": text}] * 2)[-1]
    assert last.page.derived.signals["http_responses_total"] is Absence.NOT_EXPORTED
