"""LMDeploy's traps: gauges that hold counts, words of a Python enum, hits booked after their prompts, names of other versions."""

from __future__ import annotations

import json

import pytest

from llm_serving_exporter.engines.hooks.others import read_lmdeploy_info
from llm_serving_exporter.engines.json_answers import read_model_names
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot, Quality, ServerFacts
from tests.support.builders.recordings import recording
from tests.support.builders.snapshots import engine_of, snapshot_of
from tests.support.rows import check_rows
from tests.support.servers.replica import readings

RUNTIME = RUNTIMES["lmdeploy"]

RUN = recording("lmdeploy-0.18.0")
LABELS = 'engine="0",model_name="m"'


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


def test_reasons_that_are_never_counted_are_left_out() -> None:
    counted = "\n".join(
        f'lmdeploy:request_success_total{{{LABELS},finished_reason="ResponseType.{word}"}} {value}'
        for word, value in (
            ("FINISH", 7),
            ("CANCEL", 2),
            ("OUT_OF_MEMORY", 1),
            ("INTERNAL_ENGINE_ERROR", 3),
            ("SUCCESS", 9),
        )
    )
    found = read(f"# TYPE lmdeploy:request_success counter\n{counted}\n")
    assert found.requests_finished_total == {"success": 7}


def test_gauges_are_refreshed_every_ten_seconds_and_the_window_is_long_enough_for_it() -> None:
    snapshot = snapshot_of(page(48), None, runtime=RUNTIME)
    assert set(snapshot.refreshed_every.values()) == {10.0}
    assert {snapshot.quality[name] for name in ("requests_running", "requests_waiting", "kv_cache_usage_ratio")} == {
        Quality.SLOW
    }
    reading = readings([{"/metrics": page(0)}] * 16, window_seconds=30.0)[-1]
    assert reading.derived.window_seconds == 120.0  # twelve refreshes


def test_those_that_wait_for_the_api_server_wait_too() -> None:
    text = f"lmdeploy:num_requests_waiting{{{LABELS}}} 3\nlmdeploy:num_api_requests_waiting{{{LABELS}}} 5\n"
    assert read(text).requests_waiting == 8
    assert read(f"lmdeploy:num_requests_waiting{{{LABELS}}} 3\n").requests_waiting == 3


def test_the_gauge_of_unfinished_requests_of_old_versions_is_no_queue() -> None:
    """Up to 0.12.0; clients that went away stay in it."""
    text = f"lmdeploy:num_requests_waiting{{{LABELS}}} 3\nlmdeploy:num_requests_unfinished{{{LABELS}}} 900\n"
    snapshot = snapshot_of(f"# TYPE lmdeploy:num_requests_unfinished gauge\n{text}", None, runtime=RUNTIME)
    assert snapshot.engines[0].requests_waiting == 3
    assert snapshot.unmapped_families == ()


def test_the_gap_between_outputs_is_the_series_without_a_unit() -> None:
    found = read(page(160))
    assert (found.inter_token_latency_seconds.count, found.inter_token_latency_seconds.sum) == (
        39608,
        2001.8931832313538,
    )
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


@check_rows("answer", [None, 5, [], "", "{", "[" * 4096, '"x"', {"tp_size": True, "dp_size": "2"}, {"data": 3}])
def test_odd_json_says_nothing(answer: object) -> None:
    assert read_lmdeploy_info(answer, ServerFacts()) == ServerFacts()
    assert read_model_names(answer, ServerFacts()) == ServerFacts()


def test_the_side_endpoints_are_asked_and_their_absence_costs_nothing() -> None:
    beside = {
        "/v1/models": '{"object":"list","data":[{"id":"tiny-llama","root":"tiny-llama","owned_by":"lmdeploy"}]}',
        "/distserve/engine_info": (200, "application/json", json.dumps('{"tp_size":2,"dp_size":1}').encode()),
    }
    with_them, without_them = (readings([{"/metrics": page(48), **routes}] * 2)[-1] for routes in (beside, {}))
    assert with_them.runtime == without_them.runtime == "lmdeploy"
    assert with_them.facts.model_names == ("tiny-llama",)
    assert with_them.facts.tensor_parallel_size == 2
    assert without_them.up
    assert without_them.facts == ServerFacts()
