"""LightLLM's traps, one by one. Pages are made from the facts (runtimes-others 15)."""

from __future__ import annotations

import pytest

from llm_serving_exporter.engines.detect import detect
from llm_serving_exporter.engines.hooks.others import read_lightllm_load, read_lightllm_model
from llm_serving_exporter.engines.mapping import ERRORS
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.fetch.page import PageParser
from llm_serving_exporter.model.snapshot import Quality, ServerFacts
from tests.support.builders.snapshots import engine_of, page_of, snapshot_of
from tests.support.paths import TESTS
from tests.support.rows import check_rows
from tests.support.servers.replica import readings

LIGHTLLM = RUNTIMES["lightllm"]

MADE = TESTS / "made"
PAGE = (MADE / "lightllm.prom").read_text()
LATER = (MADE / "lightllm-later.prom").read_text()

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
    assert all(f"# TYPE {name} " in PAGE for name in NEVER)
    engine = engine_of(PAGE, runtime=LIGHTLLM)
    assert (engine.request_queue_time_seconds, engine.engine_steps_total) == (None, None)
    read = {name for row in LIGHTLLM.rows for name in (*row.samples, *row.minus)}
    assert not {name for name in read if name.removesuffix("_sum").removesuffix("_count") in NEVER}
    assert {"request_queue_time_seconds", "engine_steps_total"} <= set(LIGHTLLM.missing)


def test_first_token_is_ttft_and_inference_is_from_arrival_to_the_end() -> None:
    engine = engine_of(PAGE, runtime=LIGHTLLM)
    # 150 requests in the made page; 35 edges from 0.0015 s
    assert engine.time_to_first_token_seconds.count == engine.e2e_request_latency_seconds.count == 150
    assert engine.e2e_request_latency_seconds.edges[0] == pytest.approx(0.0015)
    assert len(engine.e2e_request_latency_seconds.edges) == 35


def test_prefill_is_prompts_less_hits_which_are_booked_later() -> None:
    text = "lightllm_request_input_length_sum 1000.0\nlightllm_cache_length_sum 300.0\n"
    snapshot = snapshot_of(text, runtime=LIGHTLLM)
    engine = snapshot.engines[0]
    assert (engine.prompt_tokens_total, engine.prefill_tokens_total) == (1000, 700)
    assert engine.cached_prompt_tokens_total == engine.prefix_cache_hit_tokens_total == 300
    assert engine.prefix_cache_query_tokens_total == 1000
    assert "prefill_tokens_total" in snapshot.may_fall
    assert snapshot.quality["prefill_tokens_total"] is Quality.APPROXIMATE
    assert snapshot.quality["cached_prompt_tokens_total"] is Quality.LAGGING


def test_prefill_does_not_fall_when_hits_are_booked() -> None:
    # a prompt of 500 comes in; later it ends, with 400 of it hits, and nothing else came
    page = "lightllm_batch_current_size 1\nlightllm_request_input_length_sum {}\nlightllm_cache_length_sum {}\n"
    steps = [{"/metrics": page.format(prompt, hits)} for prompt, hits in ((1000, 300), (1500, 300), (1500, 700))]
    found = [reading.snapshot.engines[0].prefill_tokens_total for reading in readings(steps) if reading.snapshot]
    assert found == [0, 500, 500]


def test_paused_requests_are_no_count_of_preemptions() -> None:
    assert "lightllm_batch_pause_size 1.0" in PAGE
    assert engine_of(PAGE, runtime=LIGHTLLM).preemptions_total is None
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
    *_, after = readings([{"/metrics": PAGE, **beside}, {"/metrics": LATER, **beside}])
    assert after.runtime == "lightllm"
    engine = after.snapshot.engines[0]
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
    assert read_lightllm_model(answer, ServerFacts()) == ServerFacts()


def test_a_page_is_recognised_and_known_whole() -> None:
    assert detect(PageParser().parse(page_of(PAGE)).layout).runtimes == (LIGHTLLM,)
    assert snapshot_of(PAGE, runtime=LIGHTLLM).unmapped_families == ()
