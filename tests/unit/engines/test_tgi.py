"""TGI's traps, one by one. Pages are made from the facts (runtimes-others 3)."""

from __future__ import annotations

import json

import pytest

from llm_serving_exporter.engines.detect import detect
from llm_serving_exporter.engines.hooks.huggingface import read_tgi_info
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.fetch.page import PageParser
from llm_serving_exporter.model.numbers import Histogram
from llm_serving_exporter.model.reading import State
from llm_serving_exporter.model.snapshot import Absence, Quality, ServerFacts
from tests.support.builders.snapshots import engine_of, page_of, snapshot_of
from tests.support.paths import TESTS
from tests.support.rows import check_rows
from tests.support.servers.replica import readings

TGI = RUNTIMES["tgi"]

MADE = TESTS / "made"
PAGE = (MADE / "tgi.prom").read_text()
LATER = (MADE / "tgi-later.prom").read_text()
INFO = {"model_id": "org/model-7b", "max_total_tokens": 4096, "max_concurrent_requests": 128, "version": "3.3.7"}

# the 35 edges that the server makes: 0.0001 s x 1.5 each (router/src/server.rs)
EDGES = tuple(0.0001 * 1.5**power for power in range(1, 36))


def test_counters_have_no_suffix_and_prompt_tokens_are_the_sum_of_validated_lengths() -> None:
    engine = engine_of(
        """# TYPE tgi_request_input_length histogram
tgi_request_input_length_bucket{le="100"} 1
tgi_request_input_length_bucket{le="+Inf"} 3
tgi_request_input_length_sum 900
tgi_request_input_length_count 3
# TYPE tgi_request_success counter
tgi_request_success 2
""",
        runtime=TGI,
    )
    assert engine.prompt_tokens_total == engine.prefill_tokens_total == 900
    assert engine.request_prompt_tokens == Histogram((100.0,), (1.0,), 3.0, 900.0)
    assert engine.requests_finished_total == {"success": 2}
    assert engine.decode_tokens_total is None  # not observed yet: absent, not 0


def test_device_time_is_the_time_of_batches() -> None:
    engine = engine_of(
        """# TYPE tgi_batch_inference_duration histogram
tgi_batch_inference_duration_sum{method="prefill"} 12.5
tgi_batch_inference_duration_sum{method="decode"} 30
tgi_batch_inference_duration_count{method="prefill"} 40
tgi_batch_current_size 1
""",
        runtime=TGI,
    )
    assert engine.device_busy_seconds == 42.5


def test_what_is_not_live_says_so() -> None:
    quality = snapshot_of(PAGE, runtime=TGI).quality
    assert quality["decode_tokens_total"] is Quality.LAGGING
    assert quality["prefill_tokens_total"] is Quality.APPROXIMATE
    assert "decode_tokens_live" not in quality
    assert "prompt_tokens_total" not in quality


def test_failures_are_told_apart_and_a_clients_fault_is_not_the_servers() -> None:
    engine = engine_of(
        """# TYPE tgi_request_failure counter
tgi_request_success 7
tgi_request_failure{err="generation"} 1
tgi_request_failure{err="incomplete"} 2
tgi_request_failure{err="dropped"} 4
tgi_request_failure{err="validation"} 8
tgi_request_failure{err="template"} 16
tgi_request_failure{err="overloaded"} 32
""",
        runtime=TGI,
    )
    assert engine.requests_finished_total == {"success": 7, "error": 3, "abort": 4}
    assert engine.requests_rejected_total == {"overloaded": 32}


def test_only_failures_so_far_are_read_without_a_success() -> None:
    engine = engine_of('# TYPE tgi_request_failure counter\ntgi_request_failure{err="generation"} 1\n', runtime=TGI)
    assert engine.requests_finished_total == {"error": 1}
    assert engine.requests_rejected_total is None


def test_steps_are_those_of_both_methods_and_not_the_other_counters_of_steps() -> None:
    engine = engine_of(
        """tgi_batch_inference_count{method="prefill"} 40
tgi_batch_inference_count{method="decode"} 400
tgi_batch_inference_success{method="prefill"} 39
tgi_batch_inference_failure{method="prefill"} 1
tgi_batch_concat{reason="chunking"} 30
""",
        runtime=TGI,
    )
    assert engine.engine_steps_total == 440


def test_a_summary_gives_its_sum_and_count_and_is_no_histogram() -> None:
    # one event a step of a sequence, its value the tokens beyond the first: 3 steps of 1, 2 and 4 tokens are 7 tokens
    page = """# TYPE tgi_request_skipped_tokens summary
tgi_request_skipped_tokens{quantile="0"} 0
tgi_request_skipped_tokens{quantile="0.5"} 1
tgi_request_skipped_tokens{quantile="1"} 3
tgi_request_skipped_tokens_sum 4
tgi_request_skipped_tokens_count 3
"""
    engine = engine_of(page, runtime=TGI)
    assert (engine.decode_tokens_live, engine.speculative_accepted_tokens_total) == (7, 4)


def test_a_histogram_that_comes_as_a_summary_is_refused() -> None:
    # what the exporter makes of a histogram for which nobody set buckets
    page = """# TYPE tgi_request_duration summary
tgi_request_duration{quantile="0.5"} 1.5
tgi_request_duration{quantile="0.99"} 2.5
tgi_request_duration_sum 20
tgi_request_duration_count 10
# TYPE tgi_batch_current_size gauge
tgi_batch_current_size 1
"""
    snapshot = snapshot_of(page, runtime=TGI)
    assert snapshot.engines[0].e2e_request_latency_seconds is None
    assert snapshot.absent["e2e_request_latency_seconds"] is Absence.INVALID


def test_durations_have_the_servers_own_edges() -> None:
    found = engine_of(PAGE, runtime=TGI).e2e_request_latency_seconds
    assert found.edges == pytest.approx(EDGES)


def test_the_mean_time_per_token_contains_prefill_and_is_no_tpot() -> None:
    engine = engine_of(PAGE, runtime=TGI)
    assert "tgi_request_mean_time_per_token_duration_count" in PAGE
    assert engine.time_per_output_token_seconds is None
    assert engine.time_to_first_token_seconds is None
    assert {"time_per_output_token_seconds", "time_to_first_token_seconds"} <= set(TGI.missing)


def test_other_back_ends_have_no_batch_series() -> None:
    # TensorRT-LLM's and llama.cpp's count nothing of the batch
    text = "\n".join(
        line
        for line in PAGE.splitlines()
        if "tgi_batch_" not in line and "tgi_queue" not in line and "skipped" not in line
    )
    snapshot = snapshot_of(text + "\n", runtime=TGI)
    engine = snapshot.engines[0]
    assert (engine.requests_running, engine.engine_steps_total, engine.decode_tokens_live) == (None, None, None)
    assert snapshot.absent["engine_steps_total"] is Absence.NOT_EXPORTED
    assert engine.is_engine
    assert engine.decode_tokens_total == 24438


def test_an_idle_fresh_server_has_an_empty_page_and_is_idle() -> None:
    (reading,) = readings([{"/metrics": (200, "text/plain", b""), "/info": json.dumps(INFO)}], runtime="tgi")
    assert (reading.up, reading.state, reading.model_name) == (True, State.READY, "org/model-7b")
    assert reading.derived.signals["decode_tokens_total"] is Absence.IDLE


def test_the_model_is_named_by_info_and_the_admission_cap_is_no_batch_limit() -> None:
    routes = {"/info": json.dumps(INFO)}
    before, after = readings([{"/metrics": PAGE, **routes}, {"/metrics": LATER, **routes}])
    assert before.runtime == after.runtime == "tgi"
    engine = after.snapshot.engines[0]
    assert (engine.model_name, engine.engine, engine.context_limit_tokens) == ("org/model-7b", "0", 4096)
    assert engine.batch_limit_requests is None
    assert after.facts.version == "3.3.7"
    assert after.facts.model_roots == {"org/model-7b": "org/model-7b"}
    # of the live tokens, not of those booked at the end
    later, earlier = engine.decode_tokens_live, before.snapshot.engines[0].decode_tokens_live
    assert later is not None
    assert earlier is not None
    assert after.derived.engines[0].phase_tokens_per_second["decode"] == pytest.approx((later - earlier) / 10)


def test_info_before_2_3_says_dtype_and_may_say_the_batch_limit() -> None:
    old = {"model_id": "m", "model_dtype": "torch.float16", "max_batch_size": 48, "version": "2.2.0"}
    facts = read_tgi_info(old, ServerFacts())
    assert (facts.dtype, facts.batch_limit_requests, facts.version) == ("float16", 48, "2.2.0")
    assert read_tgi_info({**old, "max_batch_size": None}, ServerFacts()).batch_limit_requests is None


@check_rows(
    "answer", [None, [], "x", {}, {"model_id": 3, "max_total_tokens": True}, {"model_id": "m", "max_total_tokens": -1}]
)
def test_any_json_is_borne(answer: object) -> None:
    facts = read_tgi_info(answer, ServerFacts())
    assert facts.context_limit_tokens == {}
    assert facts.batch_limit_requests is None


def test_a_page_is_recognised_and_known_whole() -> None:
    assert detect(PageParser().parse(page_of(PAGE)).layout).runtimes == (TGI,)
    assert snapshot_of(PAGE, runtime=TGI).unmapped_families == ()
