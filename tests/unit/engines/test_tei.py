"""Text Embeddings Inference's traps, one by one. Pages are made from the facts (runtimes-others 4)."""

from __future__ import annotations

import json

import pytest

from llm_serving_exporter.engines.detect import detect
from llm_serving_exporter.engines.hooks.huggingface import read_tei_info
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.fetch.page import PageParser
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot, ServerFacts
from tests.support.builders.snapshots import engine_of, page_of, snapshot_of
from tests.support.paths import TESTS
from tests.support.servers.replica import readings

TEI = RUNTIMES["tei"]

MADE = TESTS / "made"
PAGE = (MADE / "tei.prom").read_text()
LATER = (MADE / "tei-later.prom").read_text()
INFO = {
    "model_id": "BAAI/bge-m3",
    "served_model_name": "embedder",
    "model_dtype": "float16",
    "max_input_length": 8192,
    "max_batch_tokens": 16384,
    "max_batch_requests": None,
    "max_concurrent_requests": 512,
    "version": "1.9.3",
}


def test_prefill_is_what_was_batched_not_what_was_tokenised() -> None:
    engine = engine_of("te_request_input_length_sum 1000\nte_batch_next_tokens_sum 700\n", runtime=TEI)
    assert (engine.prompt_tokens_total, engine.prefill_tokens_total) == (1000, 700)


def test_looks_into_an_empty_queue_are_no_steps() -> None:
    # 3 batches of 4 and 5 polls of an empty queue
    page = """# TYPE te_batch_next_size histogram
te_batch_next_size_bucket{le="1"} 5
te_batch_next_size_bucket{le="4"} 8
te_batch_next_size_bucket{le="+Inf"} 8
te_batch_next_size_sum 12
te_batch_next_size_count 8
te_batch_next_tokens_sum 100
"""
    assert engine_of(page, runtime=TEI).engine_steps_total is None
    assert "engine_steps_total" in TEI.missing


def test_requests_are_inputs_embedded_or_classified_and_a_clients_fault_is_not_the_servers() -> None:
    engine = engine_of(
        """te_request_success{method="single"} 3
te_embed_success 40
te_predict_success 2
te_request_failure{err="inference"} 1
te_request_failure{err="dropped"} 4
te_request_failure{err="validation"} 8
te_request_failure{err="tokenization"} 16
te_request_failure{err="overloaded"} 32
""",
        runtime=TEI,
    )
    assert engine.requests_finished_total == {"success": 42, "error": 1, "abort": 4}
    assert engine.requests_rejected_total == {"overloaded": 32}


def test_an_embedding_server_without_a_running_gauge_is_an_engine() -> None:
    assert EngineSnapshot("m", "0", prefill_tokens_total=1.0).is_engine
    assert not EngineSnapshot("m", "", prefill_tokens_total=1.0).is_engine  # a family without the engine's label
    assert not EngineSnapshot("m", "0", prompt_tokens_total=1.0).is_engine


def test_it_has_neither_a_decode_rate_of_0_nor_a_batch() -> None:
    routes = {"/info": json.dumps(INFO)}
    before, after = readings([{"/metrics": PAGE, **routes}, {"/metrics": LATER, **routes}])
    assert after.runtime == "tei"
    engine, derived = after.snapshot.engines[0], after.derived.engines[0]
    assert set(derived.phase_tokens_per_second) == {"prefill"}
    earlier = before.snapshot.engines[0].prefill_tokens_total
    assert engine.prefill_tokens_total is not None
    assert earlier is not None
    assert derived.phase_tokens_per_second["prefill"] == pytest.approx((engine.prefill_tokens_total - earlier) / 10)
    assert (derived.batch_size_mean, derived.batch_utilization_ratio, engine.decode_tokens_total) == (None, None, None)
    assert after.derived.signals["phase_tokens_per_second_decode"]


def test_info_names_it_and_says_its_limits() -> None:
    routes = {"/info": json.dumps({**INFO, "max_batch_requests": 64})}
    *_, after = readings([{"/metrics": PAGE, **routes}, {"/metrics": LATER, **routes}])
    engine = after.snapshot.engines[0]
    assert (engine.model_name, engine.context_limit_tokens, engine.batch_limit_requests) == ("embedder", 8192, 64)
    facts = after.facts
    assert (facts.dtype, facts.version, facts.batched_tokens_limit) == ("float16", "1.9.3", 16384)
    assert facts.model_roots == {"embedder": "BAAI/bge-m3"}


def test_a_batch_limit_that_was_not_set_is_absent() -> None:
    assert read_tei_info(INFO, ServerFacts()).batch_limit_requests is None
    assert read_tei_info({"model_id": "m"}, ServerFacts()).model_names == ("m",)  # before served_model_name
    assert read_tei_info([INFO], ServerFacts()) == ServerFacts()


def test_a_histogram_that_comes_as_a_summary_is_refused() -> None:
    page = 'te_queue_size 1\nte_request_duration{quantile="0.5"} 1\nte_request_duration_sum 9\nte_request_duration_count 9\n'
    snapshot = snapshot_of(page, runtime=TEI)
    assert snapshot.engines[0].e2e_request_latency_seconds is None
    assert snapshot.absent["e2e_request_latency_seconds"] is Absence.INVALID


def test_its_short_prefix_alone_is_nobodys() -> None:
    assert detect(PageParser().parse(page_of(PAGE)).layout).runtimes == (TEI,)
    assert detect(PageParser().parse(page_of("te_something 1\nte_request 2\n")).layout).runtimes == ()
    assert snapshot_of(PAGE, runtime=TEI).unmapped_families == ()
