"""The traps of LMDeploy, LightLLM and mistral.rs, one by one. Pages of the latter two are made from the facts (runtimes-others 15)."""

import json

import pytest

from llm_serving_exporter.engines.hooks.others import read_lightllm_load, read_lmdeploy_info, read_mistralrs_models
from llm_serving_exporter.engines.mapping import ERRORS
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot, Quality, ServerFacts
from tests.support.builders.recordings import recording
from tests.support.builders.snapshots import engine_of, snapshot_of
from tests.support.paths import TESTS
from tests.support.rows import check_rows
from tests.support.servers.replica import readings

RUNTIME = RUNTIMES["lmdeploy"]

RUN = recording("lmdeploy-0.18.0")


def page(number: int) -> str:
    return RUN.pages[number].decode()


def without(text: str, *families: str) -> str:
    """The page of a version that lacks these families."""
    return "".join(line for line in text.splitlines(keepends=True) if not any(name in line for name in families))


def read(text: str) -> EngineSnapshot:
    return engine_of(text, None, RUNTIME)


def test_prompt_tokens_hold_cached_ones_and_prefill_does_not() -> None:
    found = read(page(160))
    assert (found.prompt_tokens_total, found.cached_prompt_tokens_total) == (530972, 131264)
    assert found.prefill_tokens_total == 530972 - 131264


def test_hits_are_booked_at_the_end_so_that_prefill_may_dip_and_says_so() -> None:
    snapshot = snapshot_of(page(160), None, runtime=RUNTIME)
    assert snapshot.may_fall == {"prefill_tokens_total"}
    assert snapshot.quality["prefill_tokens_total"] is Quality.APPROXIMATE
    assert snapshot.quality["cached_prompt_tokens_total"] is Quality.LAGGING


def test_a_version_without_cached_tokens_gives_an_upper_bound_of_prefill_and_no_hits() -> None:
    snapshot = snapshot_of(without(page(160), "cached_tokens"), None, runtime=RUNTIME)
    (found,) = snapshot.engines
    assert found.prefill_tokens_total == found.prompt_tokens_total == 530972
    assert snapshot.quality["prefill_tokens_total"] is Quality.APPROXIMATE
    assert snapshot.may_fall == frozenset()
    assert found.cached_prompt_tokens_total is None
    assert found.prefix_cache_hits is None
    assert snapshot.absent["prefix_cache_hit_tokens_total"] is Absence.NOT_EXPORTED


def test_ends_by_reason_have_neutral_words_and_nothing_is_counted_twice() -> None:
    """570 that ended well and 22 that did not; num_requests_succeeded is the same 570."""
    assert read(page(160)).requests_finished_total == {"success": 570, "failed": 22}
    assert "lmdeploy:num_requests_succeeded{" in page(160)


def test_gauges_are_refreshed_every_ten_seconds_and_the_window_is_long_enough_for_it() -> None:
    snapshot = snapshot_of(page(48), None, runtime=RUNTIME)
    assert set(snapshot.refreshed_every.values()) == {10.0}
    assert {snapshot.quality[name] for name in ("requests_running", "requests_waiting", "kv_cache_usage_ratio")} == {
        Quality.SLOW
    }
    reading = readings([{"/metrics": page(0)}] * 16, window_seconds=30.0)[-1]
    assert reading.page.derived.window_seconds == 120.0  # twelve refreshes


def test_the_gap_between_outputs_is_the_series_without_a_unit() -> None:
    found = read(page(160))
    assert found.inter_token_latency_seconds.count == 39608
    assert found.inter_token_latency_seconds.sum == 2001.8931832313538
    # one event an output, not a request: not what this field means elsewhere
    assert found.time_per_output_token_seconds is None


def test_the_gap_had_the_other_name_at_first() -> None:
    found = read(without(page(160), "iter_token_latency"))
    assert found.inter_token_latency_seconds.sum == pytest.approx(944.8962115327519)


def test_tokens_of_an_output_are_not_engine_steps() -> None:
    assert read(page(160)).engine_steps_total is None
    assert "lmdeploy:iteration_tokens_total_count" in page(160)


def test_every_family_of_the_page_is_read_or_known() -> None:
    snapshot = snapshot_of(page(160), None, runtime=RUNTIME)
    assert snapshot.unmapped_families == ()
    assert snapshot.absent == {}


def test_an_openmetrics_scrape_renames_the_samples_and_reads_the_same() -> None:
    """endpoints/metrics-2, taken while nothing ran, as page 104."""
    body = RUN.members["endpoints/metrics-2.body"].decode()
    assert "\nlmdeploy_prompt_tokens_total{" in body
    snapshot = snapshot_of(body, None, runtime=RUNTIME, content_type="application/openmetrics-text; version=1.0.0")
    assert snapshot.engines == (read(page(104)),)
    assert snapshot.engines[0].prompt_tokens_total == 230644


def test_engine_info_is_json_in_a_json_string() -> None:
    said = json.dumps({"tp_size": 4, "ep_size": 1, "dp_size": 1, "pp_size": None, "dp_rank": 0, "num_gpu_blocks": 0})
    for answer in (said, json.loads(said)):
        found = read_lmdeploy_info(answer, ServerFacts())
        assert (found.tensor_parallel_size, found.pipeline_parallel_size, found.data_parallel_size) == (4, None, 1)
        assert found.experts_spread is None


def test_with_data_parallelism_attention_has_a_share_of_the_group() -> None:
    found = read_lmdeploy_info({"tp_size": 1, "ep_size": 8, "dp_size": 4}, ServerFacts())
    assert (found.tensor_parallel_size, found.data_parallel_size, found.experts_spread) == (2, 4, True)


def test_the_side_endpoints_are_asked_and_their_absence_costs_nothing() -> None:
    beside = {
        "/v1/models": '{"object":"list","data":[{"id":"tiny-llama","root":"tiny-llama","owned_by":"lmdeploy"}]}',
        "/distserve/engine_info": (200, "application/json", json.dumps('{"tp_size":2,"dp_size":1}').encode()),
    }
    with_them, without_them = (readings([{"/metrics": page(48), **routes}] * 2)[-1] for routes in (beside, {}))
    assert with_them.server.runtime == without_them.server.runtime == "lmdeploy"
    assert with_them.server.facts.model_names == ("tiny-llama",)
    assert with_them.server.facts.tensor_parallel_size == 2
    assert without_them.page.up
    assert without_them.server.facts == ServerFacts()


# --- LightLLM's traps, one by one. Pages are made from the facts (runtimes-others 15) ---


LIGHTLLM = RUNTIMES["lightllm"]

MADE = TESTS / "made"
LIGHTLLM_PAGE = (MADE / "lightllm.prom").read_text()
LIGHTLLM_LATER = (MADE / "lightllm-later.prom").read_text()

# declared in lightllm/server/metrics/metrics.py, observed nowhere: at 0, or without a series, for ever
NEVER = (
    "lightllm_request_duration",
    "lightllm_request_validation_duration",
    "lightllm_request_queue_duration_bucket",
    "lightllm_batch_inference_count_total",
    "lightllm_batch_inference_duration_bucket",
    "lightllm_batch_next_size",
)


def test_what_is_declared_and_never_observed_is_not_read_as_0() -> None:
    assert all(f"# TYPE {name} " in LIGHTLLM_PAGE for name in NEVER)
    engine = engine_of(LIGHTLLM_PAGE, runtime=LIGHTLLM)
    assert (engine.request_queue_time_seconds, engine.engine_steps_total) == (None, None)
    read = {name for row in LIGHTLLM.rows for name in (*row.samples, *row.minus)}
    assert not {name for name in read if name.removesuffix("_sum").removesuffix("_count") in NEVER}
    assert {"request_queue_time_seconds", "engine_steps_total"} <= set(LIGHTLLM.missing)


def test_first_token_is_ttft_and_inference_is_from_arrival_to_the_end() -> None:
    engine = engine_of(LIGHTLLM_PAGE, runtime=LIGHTLLM)
    # 150 requests in the made page; 35 edges from 0.0015 s
    assert engine.time_to_first_token_seconds.count == engine.e2e_request_latency_seconds.count == 150
    assert engine.e2e_request_latency_seconds.edges[0] == pytest.approx(0.0015)
    assert len(engine.e2e_request_latency_seconds.edges) == 35


def test_prefill_does_not_fall_when_hits_are_booked() -> None:
    # a prompt of 500 comes in; later it ends, with 400 of it hits, and nothing else came
    page = "lightllm_batch_current_size 1\nlightllm_request_input_length_sum {}\nlightllm_cache_length_sum {}\n"
    steps = [{"/metrics": page.format(prompt, hits)} for prompt, hits in ((1000, 300), (1500, 300), (1500, 700))]
    found = [
        reading.page.snapshot.engines[0].prefill_tokens_total for reading in readings(steps) if reading.page.snapshot
    ]
    assert found == [0, 500, 500]


def test_paused_requests_are_no_count_of_preemptions() -> None:
    assert "lightllm_batch_pause_size 1.0" in LIGHTLLM_PAGE
    assert engine_of(LIGHTLLM_PAGE, runtime=LIGHTLLM).preemptions_total is None
    assert "preemptions_total" in LIGHTLLM.missing


def test_counters_have_the_suffix_and_every_error_answer_is_a_failure_whoever_made_it() -> None:
    snapshot = snapshot_of(
        "lightllm_request_count_total 9\nlightllm_request_success_total 7\nlightllm_request_failure_total 2\n",
        runtime=LIGHTLLM,
    )
    assert snapshot.engines[0].requests_finished_total == {"success": 7, "failed": 2}
    # mistakes of clients among them make no errors SLO
    assert not snapshot.errors_counted
    assert ERRORS in LIGHTLLM.missing


def test_side_endpoints_name_the_model_and_fill_the_kv_cache() -> None:
    beside = {"/get_model_name": '{"model_name": "served"}', "/token_load": '{"current_load": 0.25}'}
    *_, after = readings([{"/metrics": LIGHTLLM_PAGE, **beside}, {"/metrics": LIGHTLLM_LATER, **beside}])
    assert after.server.runtime == "lightllm"
    engine = after.page.snapshot.engines[0]
    assert (engine.model_name, engine.kv_cache_usage_ratio, engine.requests_running) == ("served", 0.25, 22)


@check_rows(
    ("answer", "load"),
    [
        ({"current_load": [0.5, 0.25]}, 0.375),  # data parallel: one a rank
        ({"current_load": 0}, 0.0),
        ({"current_load": True}, None),
        ({"current_load": [True, 0.5]}, 0.5),
        ({"current_load": 10**400}, None),
        ({"current_load": float("nan")}, None),
        ({"current_load": "0.5"}, None),
        ({}, None),
        ([], None),
        (None, None),
    ],
)
def test_any_answer_is_borne(answer: object, load: float | None) -> None:
    assert [value for _, value in read_lightllm_load(answer)] == ([] if load is None else [load])


# --- mistral.rs's traps, one by one. Pages are made from the facts (runtimes-others 15) ---


MISTRALRS = RUNTIMES["mistralrs"]

MISTRALRS_PAGE = (MADE / "mistralrs.prom").read_text()
MISTRALRS_LATER = (MADE / "mistralrs-later.prom").read_text()
MODELS = {"object": "list", "data": [{"id": "default", "root": "default"}, {"id": "Qwen/Qwen3-8B"}]}


def test_one_counter_of_both_phases_gives_neither() -> None:
    assert "mistralrs_tokens_processed_total 61234" in MISTRALRS_PAGE
    snapshot = snapshot_of(MISTRALRS_PAGE, runtime=MISTRALRS)
    engine = snapshot.engines[0]
    assert (engine.prefill_tokens_total, engine.decode_tokens_total, engine.prompt_tokens_total) == (None, None, None)
    assert snapshot.absent["decode_tokens_total"] is Absence.NOT_EXPORTED


def test_gauges_are_read_beside_latencies_that_name_models_and_what_is_none() -> None:
    engine = engine_of(MISTRALRS_PAGE, runtime=MISTRALRS)  # one engine: the label is no identity
    assert 'model="none"' in MISTRALRS_PAGE
    assert 'model="Qwen/Qwen3-8B"' in MISTRALRS_PAGE
    assert (engine.requests_running, engine.batch_limit_requests) == (12, 32)
    assert engine.time_to_first_token_seconds.count == 90


def test_the_prefix_cache_counts_sequences_which_give_a_ratio_and_no_tokens() -> None:
    engine = engine_of(MISTRALRS_PAGE, runtime=MISTRALRS)
    assert (engine.prefix_cache_queries, engine.prefix_cache_hits) == (102, 30)
    assert (engine.prefix_cache_query_tokens_total, engine.prefix_cache_hit_tokens_total) == (None, None)
    *_, after = readings([{"/metrics": MISTRALRS_PAGE}, {"/metrics": MISTRALRS_LATER}])
    # 110 + 15 looked up and 36 found in the later page, 102 and 30 in the first
    assert after.page.derived.engines[0].prefix_cache_hit_ratio == pytest.approx((36 - 30) / (125 - 102))


def test_http_answers_are_by_class_and_e2e_is_of_answered_requests_for_text() -> None:
    engine = engine_of(MISTRALRS_PAGE, runtime=MISTRALRS)
    assert engine.http_responses_total == {"2xx": 97, "4xx": 5}
    assert engine.e2e_request_latency_seconds.count == 90  # without the seven of /v1/models


def test_e2e_leaves_out_requests_that_were_refused_on_a_path_for_text() -> None:
    def answers(status: int, count: int) -> str:
        labels = f'method="POST",path="/v1/chat/completions",model="m",status="{status}"'
        name = "http_request_duration_seconds"
        buckets = f'{name}_bucket{{{labels},le="1"}} {count}\n{name}_bucket{{{labels},le="+Inf"}} {count}\n'
        return f"{buckets}{name}_sum{{{labels}}} {count}\n{name}_count{{{labels}}} {count}\n"

    page = "mistralrs_sequences_running 1\n" + answers(200, 5) + answers(422, 90)
    e2e = engine_of(page, runtime=MISTRALRS).e2e_request_latency_seconds
    assert (e2e.count, e2e.sum) == (5, 5)


def test_the_model_is_named_by_the_list_of_models_whose_first_is_an_alias() -> None:
    beside = {"/v1/models": json.dumps(MODELS)}
    *_, after = readings([{"/metrics": MISTRALRS_PAGE, **beside}, {"/metrics": MISTRALRS_LATER, **beside}])
    assert after.server.runtime == "mistralrs"
    assert [engine.model_name for engine in after.page.snapshot.engines] == ["Qwen/Qwen3-8B"]


def test_several_models_are_not_guessed_among() -> None:
    two = {"data": [*MODELS["data"], {"id": "other"}, {"id": "adapter", "parent": "other"}]}
    assert read_mistralrs_models(two, ServerFacts()).model_names == ("Qwen/Qwen3-8B", "other")
    snapshot = snapshot_of(MISTRALRS_PAGE, runtime=MISTRALRS, facts=read_mistralrs_models(two, ServerFacts()))
    assert snapshot.engines[0].model_name == ""
