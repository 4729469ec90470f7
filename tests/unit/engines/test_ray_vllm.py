"""Ray Serve LLM: vLLM's families through Ray's node agent, several replicas and models on one page, and what the agent does to them."""

from __future__ import annotations

import pytest

from llm_serving_exporter.engines.detect import detect, labels_needed
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.fetch.page import PageParser
from llm_serving_exporter.model.snapshot import EXPORTED_FIELDS, Absence, Quality
from tests.support.builders.golden_cases import MADE
from tests.support.builders.snapshots import page_of, snapshot_of
from tests.support.servers.replica import readings

RAY = RUNTIMES["ray-vllm"]
VLLM = RUNTIMES["vllm"]

PAGE = (MADE / "ray_vllm.prom").read_text()
LATER = (MADE / "ray_vllm-later.prom").read_text()
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
    layout = PageParser(labels_needed()).parse(page_of(PAGE)).layout
    assert detect(layout).runtime is RAY
    first, _, last = readings([{"/metrics": page} for page in (PAGE, PAGE, LATER)])
    assert first.runtime == "ray-vllm"
    assert last.up
    assert last.restarts_total == 0
    rates = {engine.engine: engine.phase_tokens_per_second for engine in last.derived.engines}
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
    snapshot = snapshot_of(PAGE, None, runtime=RAY)
    assert [(engine.model_name, engine.engine) for engine in snapshot.engines] == LIVING
    assert [engine.decode_tokens_total for engine in snapshot.engines] == [9000, 40_000, 26_000]
    assert "0badcafe" in PAGE


def test_an_idle_server_is_no_server_that_has_gone() -> None:
    # the agent lets gauges go that nobody sets, and an idle engine sets none: nothing tells idle from dead then
    idle = without_gauges(PAGE)
    assert "num_requests_running" not in idle
    snapshot = snapshot_of(idle, None, runtime=RAY)
    assert {(engine.model_name, engine.engine) for engine in snapshot.engines} == {*LIVING, DEAD}
    for field in ("requests_running", "requests_waiting", "kv_cache_usage_ratio", "kv_cache_capacity_tokens"):
        assert snapshot.absent[field] is Absence.IDLE
    busy, quiet, again = readings([{"/metrics": page} for page in (PAGE, idle, LATER)])
    assert (busy.up, quiet.up, again.up) == (True, True, True)
    assert again.restarts_total == 0


def test_sums_that_ray_makes_up_are_not_read() -> None:
    snapshot = snapshot_of(PAGE, None, runtime=RAY)
    for engine in snapshot.engines:
        assert engine.time_to_first_token_seconds.sum is None
        assert engine.time_to_first_token_seconds.mean() is None
        assert engine.time_to_first_token_seconds.quantile(0.9) is not None
    last = readings([{"/metrics": page} for page in (PAGE, PAGE, LATER)])[-1]
    assert last.derived is not None
    for derived in last.derived.engines:
        assert derived.latency["ttft"].mean_seconds is None
        assert derived.latency["ttft"].quantiles
    # 0.13 to 0.15 tell computed prompt tokens by such a sum only
    text = f"""ray_vllm_num_requests_running{{{labels()}}} 1
ray_vllm_request_prefill_kv_computed_tokens_sum{{{labels()}}} 550
ray_vllm_request_prefill_kv_computed_tokens_count{{{labels()}}} 3
"""
    assert snapshot_of(text, None, runtime=RAY).engines[0].prefill_tokens_total is None


def test_a_histogram_with_other_edges_than_the_nodes_first_is_missing_not_mixed() -> None:
    engines = {engine.engine: engine for engine in snapshot_of(PAGE, None, runtime=RAY).engines}
    assert engines["c9d0e1f2/0"].request_prompt_tokens is None
    assert engines["c9d0e1f2/0"].time_to_first_token_seconds is not None
    assert engines["a1b2c3d4/0"].request_prompt_tokens.count == 140


def test_a_family_without_the_model_is_its_replicas_models() -> None:
    # cache_config_info has no model_name, and the page has two models
    capacities = {
        engine.engine: engine.kv_cache_capacity_tokens for engine in snapshot_of(PAGE, None, runtime=RAY).engines
    }
    assert capacities == {"a1b2c3d4/0": 198_144, "e5f6a7b8/0": 198_144, "c9d0e1f2/0": 131_072}


def test_a_counter_that_has_counted_nothing_is_absent_not_zero() -> None:
    engines = {engine.engine: engine for engine in snapshot_of(PAGE, None, runtime=RAY).engines}
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


def test_usage_of_two_workers_that_nothing_tells_apart_is_nobodys() -> None:
    # outside Serve ReplicaId is ""
    text = "".join(
        f"""ray_vllm_num_requests_running{{{labels("", worker=worker)}}} 1
ray_vllm_kv_cache_usage_perc{{{labels("", worker=worker)}}} 0.6
"""
        for worker in ("w1", "w2")
    )
    snapshot = snapshot_of(text, None, runtime=RAY)
    assert snapshot.engines[0].kv_cache_usage_ratio is None
    assert snapshot.absent["kv_cache_usage_ratio"] is Absence.DUPLICATE


def test_values_are_ten_seconds_old_and_the_window_is_longer() -> None:
    snapshot = snapshot_of(PAGE, None, runtime=RAY)
    assert set(snapshot.refreshed_every.values()) == {10}
    assert snapshot.quality["decode_tokens_total"] is Quality.SLOW
    assert snapshot.quality["requests_running"] is Quality.SLOW
    assert snapshot.quality["e2e_request_latency_seconds"] is Quality.LAGGING
    # twelve refreshes, not the minute that is configured
    many = readings([{"/metrics": PAGE}] * 20)[-1]
    assert many.derived.window_seconds == 120


def test_the_agents_own_start_and_web_server_say_nothing_of_the_engines() -> None:
    text = f"""ray_vllm_num_requests_running{{{labels()}}} 1
process_start_time_seconds 1.7951e+09
http_requests_total{{handler="x",method="POST",status="2xx"}} 3
"""
    snapshot = snapshot_of(text, None, runtime=RAY)
    assert snapshot.process_start_unix_seconds is None
    assert snapshot.engines[0].http_responses_total is None
    last = readings([{"/metrics": text}] * 2)[-1]
    assert last.derived.signals["http_responses_total"] is Absence.NOT_EXPORTED


def test_every_field_has_a_row_or_a_reason() -> None:
    assert set(EXPORTED_FIELDS) <= {row.field for row in RAY.rows} | set(RAY.missing)
    assert not {row.field for row in RAY.rows} & set(RAY.missing)
    for row in RAY.rows:
        assert row.source.startswith("https://")
        assert row.refresh_seconds == 10
    assert snapshot_of(PAGE, None, runtime=RAY).unmapped_families == ()
