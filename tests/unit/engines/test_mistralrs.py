"""mistral.rs's traps, one by one. Pages are made from the facts (runtimes-others 15)."""

from __future__ import annotations

import json

import pytest

from llm_serving_exporter.engines.detect import detect
from llm_serving_exporter.engines.hooks.others import read_mistralrs_models
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.fetch.page import PageParser
from llm_serving_exporter.model.snapshot import Absence, ServerFacts
from tests.support.builders.snapshots import engine_of, page_of, snapshot_of
from tests.support.paths import TESTS
from tests.support.rows import check_rows
from tests.support.servers.replica import readings

MISTRALRS = RUNTIMES["mistralrs"]

MADE = TESTS / "made"
PAGE = (MADE / "mistralrs.prom").read_text()
LATER = (MADE / "mistralrs-later.prom").read_text()
MODELS = {"object": "list", "data": [{"id": "default", "root": "default"}, {"id": "Qwen/Qwen3-8B"}]}


def test_one_counter_of_both_phases_gives_neither() -> None:
    assert "mistralrs_tokens_processed_total 61234" in PAGE
    snapshot = snapshot_of(PAGE, runtime=MISTRALRS)
    engine = snapshot.engines[0]
    assert (engine.prefill_tokens_total, engine.decode_tokens_total, engine.prompt_tokens_total) == (None, None, None)
    assert snapshot.absent["decode_tokens_total"] is Absence.NOT_EXPORTED


def test_counters_of_the_phases_apart_lack_first_tokens_which_are_added_as_answers_end() -> None:
    # 10 answers of 20 tokens: 19 each by completion steps; one is still under way
    engine = engine_of(
        """mistralrs_sequences_running 1
mistralrs_tokens_processed_total 1190
mistralrs_prefill_tokens_processed_total 1000
mistralrs_decode_tokens_processed_total 190
mistralrs_sequences_completed_total{reason="stop"} 5
mistralrs_sequences_completed_total{reason="length"} 3
mistralrs_sequences_completed_total{reason="canceled"} 1
mistralrs_sequences_completed_total{reason="generated_image"} 2
mistralrs_sequences_completed_total{reason="error"} 1
""",
        runtime=MISTRALRS,
    )
    assert (engine.prefill_tokens_total, engine.decode_tokens_total, engine.decode_pass_tokens) == (1000, 199, 190)


def test_gauges_are_read_beside_latencies_that_name_models_and_what_is_none() -> None:
    engine = engine_of(PAGE, runtime=MISTRALRS)  # one engine: the label is no identity
    assert 'model="none"' in PAGE
    assert 'model="Qwen/Qwen3-8B"' in PAGE
    assert (engine.requests_running, engine.batch_limit_requests) == (12, 32)
    assert engine.time_to_first_token_seconds.count == 90


def test_waiting_is_the_schedulers_queue_and_the_one_before_it() -> None:
    engine = engine_of(
        "mistralrs_sequences_waiting 3\nmistralrs_requests_pending_admission 2\nmistralrs_sequences_running 1\n",
        runtime=MISTRALRS,
    )
    assert engine.requests_waiting == 5


def test_kv_usage_is_used_over_total_and_absent_without_paged_attention() -> None:
    used = "mistralrs_kv_cache_blocks_used 30\nmistralrs_kv_cache_blocks_total 120\nmistralrs_sequences_running 1\n"
    assert engine_of(used, runtime=MISTRALRS).kv_cache_usage_ratio == 0.25
    assert engine_of("mistralrs_sequences_running 1\n", runtime=MISTRALRS).kv_cache_usage_ratio is None
    # before the cache is made both are 0: no ratio
    none = "mistralrs_kv_cache_blocks_used 0\nmistralrs_kv_cache_blocks_total 0\nmistralrs_sequences_running 1\n"
    assert engine_of(none, runtime=MISTRALRS).kv_cache_usage_ratio is None


def test_the_prefix_cache_counts_sequences_which_give_a_ratio_and_no_tokens() -> None:
    engine = engine_of(PAGE, runtime=MISTRALRS)
    assert (engine.prefix_cache_queries, engine.prefix_cache_hits) == (102, 30)
    assert (engine.prefix_cache_query_tokens_total, engine.prefix_cache_hit_tokens_total) == (None, None)
    *_, after = readings([{"/metrics": PAGE}, {"/metrics": LATER}])
    # 110 + 15 looked up and 36 found in the later page, 102 and 30 in the first
    assert after.derived.engines[0].prefix_cache_hit_ratio == pytest.approx((36 - 30) / (125 - 102))


def test_reasons_are_the_neutral_ones() -> None:
    reasons = ("stop", "length", "canceled", "error", "tool_calls", "generated_image", "generated_speech")
    page = "".join(f'mistralrs_sequences_completed_total{{reason="{reason}"}} 1\n' for reason in reasons)
    engine = engine_of(page, runtime=MISTRALRS)
    assert engine.requests_finished_total == {"stop": 2, "length": 1, "abort": 1, "error": 1, "success": 2}


def test_http_answers_are_by_class_and_e2e_is_of_answered_requests_for_text() -> None:
    engine = engine_of(PAGE, runtime=MISTRALRS)
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


def test_a_histogram_that_comes_as_a_summary_is_refused() -> None:
    # the exporter makes a summary of every histogram for which nobody set buckets
    name = "mistralrs_time_to_first_token_seconds"
    page = f'mistralrs_sequences_running 1\n{name}{{quantile="0.5"}} 1\n{name}_sum 9\n{name}_count 9\n'
    snapshot = snapshot_of(page, runtime=MISTRALRS)
    assert snapshot.engines[0].time_to_first_token_seconds is None
    assert snapshot.absent["time_to_first_token_seconds"] is Absence.INVALID


def test_the_model_is_named_by_the_list_of_models_whose_first_is_an_alias() -> None:
    beside = {"/v1/models": json.dumps(MODELS)}
    *_, after = readings([{"/metrics": PAGE, **beside}, {"/metrics": LATER, **beside}])
    assert after.runtime == "mistralrs"
    assert [engine.model_name for engine in after.snapshot.engines] == ["Qwen/Qwen3-8B"]


def test_several_models_are_not_guessed_among() -> None:
    two = {"data": [*MODELS["data"], {"id": "other"}, {"id": "adapter", "parent": "other"}]}
    assert read_mistralrs_models(two, ServerFacts()).model_names == ("Qwen/Qwen3-8B", "other")
    snapshot = snapshot_of(PAGE, runtime=MISTRALRS, facts=read_mistralrs_models(two, ServerFacts()))
    assert snapshot.engines[0].model_name == ""


@check_rows("answer", [None, [], {"data": 3}, {"data": [3, {"id": 4}]}, {"data": [{"id": "default"}]}])
def test_any_json_is_borne(answer: object) -> None:
    assert read_mistralrs_models(answer, ServerFacts()) == ServerFacts()


def test_a_page_is_recognised_and_known_whole() -> None:
    assert detect(PageParser().parse(page_of(PAGE)).layout).runtimes == (MISTRALRS,)
    assert snapshot_of(PAGE, runtime=MISTRALRS).unmapped_families == ()
