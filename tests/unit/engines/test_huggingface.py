"""The traps of TGI and of Text Embeddings Inference, one by one. Pages are made from the facts (runtimes-others 3 and 4)."""

import json

import pytest

from llm_serving_exporter.engines.detect import detect
from llm_serving_exporter.engines.hooks.huggingface import read_tei_info, read_tgi_info
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.fetch.page import PageParser
from llm_serving_exporter.model.numbers import Histogram
from llm_serving_exporter.model.reading import State
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot, Quality, ServerFacts
from tests.support.builders.snapshots import engine_of, page_of, snapshot_of
from tests.support.paths import TESTS
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


def test_what_is_not_live_says_so() -> None:
    quality = snapshot_of(PAGE, runtime=TGI).quality
    assert quality["decode_tokens_total"] is Quality.LAGGING
    assert quality["prefill_tokens_total"] is Quality.APPROXIMATE
    assert "decode_tokens_live" not in quality
    assert "prompt_tokens_total" not in quality


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
    assert (reading.page.up, reading.server.state, reading.server.model_name) == (True, State.READY, "org/model-7b")
    assert reading.page.derived.signals["decode_tokens_total"] is Absence.IDLE


def test_the_model_is_named_by_info_and_the_admission_cap_is_no_batch_limit() -> None:
    routes = {"/info": json.dumps(INFO)}
    before, after = readings([{"/metrics": PAGE, **routes}, {"/metrics": LATER, **routes}])
    assert before.server.runtime == after.server.runtime == "tgi"
    engine = after.page.snapshot.engines[0]
    assert (engine.model_name, engine.engine, engine.context_limit_tokens) == ("org/model-7b", "0", 4096)
    assert engine.batch_limit_requests is None
    assert after.server.facts.version == "3.3.7"
    assert after.server.facts.model_roots == {"org/model-7b": "org/model-7b"}
    # of the live tokens, not of those booked at the end
    later, earlier = engine.decode_tokens_live, before.page.snapshot.engines[0].decode_tokens_live
    assert after.page.derived.engines[0].phase_tokens_per_second["decode"] == pytest.approx((later - earlier) / 10)


def test_info_before_2_3_says_dtype_and_may_say_the_batch_limit() -> None:
    old = {"model_id": "m", "model_dtype": "torch.float16", "max_batch_size": 48, "version": "2.2.0"}
    facts = read_tgi_info(old, ServerFacts())
    assert (facts.dtype, facts.batch_limit_requests, facts.version) == ("float16", 48, "2.2.0")
    assert read_tgi_info({**old, "max_batch_size": None}, ServerFacts()).batch_limit_requests is None


# --- Text Embeddings Inference's traps, one by one. Pages are made from the facts (runtimes-others 4) ---


TEI = RUNTIMES["tei"]

TEI_PAGE = (MADE / "tei.prom").read_text()
TEI_LATER = (MADE / "tei-later.prom").read_text()
TEI_INFO = {
    "model_id": "BAAI/bge-m3",
    "served_model_name": "embedder",
    "model_dtype": "float16",
    "max_input_length": 8192,
    "max_batch_tokens": 16384,
    "max_batch_requests": None,
    "max_concurrent_requests": 512,
    "version": "1.9.3",
}


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


def test_an_embedding_server_without_a_running_gauge_is_an_engine() -> None:
    assert EngineSnapshot("m", "0", prefill_tokens_total=1.0).is_engine
    assert not EngineSnapshot("m", "", prefill_tokens_total=1.0).is_engine  # a family without the engine's label
    assert not EngineSnapshot("m", "0", prompt_tokens_total=1.0).is_engine


def test_it_has_neither_a_decode_rate_of_0_nor_a_batch() -> None:
    routes = {"/info": json.dumps(TEI_INFO)}
    before, after = readings([{"/metrics": TEI_PAGE, **routes}, {"/metrics": TEI_LATER, **routes}])
    assert after.server.runtime == "tei"
    engine, derived = after.page.snapshot.engines[0], after.page.derived.engines[0]
    assert set(derived.phase_tokens_per_second) == {"prefill"}
    earlier = before.page.snapshot.engines[0].prefill_tokens_total
    assert derived.phase_tokens_per_second["prefill"] == pytest.approx((engine.prefill_tokens_total - earlier) / 10)
    assert (derived.batch_size_mean, derived.batch_utilization_ratio, engine.decode_tokens_total) == (None, None, None)
    assert after.page.derived.signals["phase_tokens_per_second_decode"]


def test_info_names_it_and_says_its_limits() -> None:
    routes = {"/info": json.dumps({**TEI_INFO, "max_batch_requests": 64})}
    *_, after = readings([{"/metrics": TEI_PAGE, **routes}, {"/metrics": TEI_LATER, **routes}])
    engine = after.page.snapshot.engines[0]
    assert (engine.model_name, engine.context_limit_tokens, engine.batch_limit_requests) == ("embedder", 8192, 64)
    facts = after.server.facts
    assert (facts.dtype, facts.version, facts.batched_tokens_limit) == ("float16", "1.9.3", 16384)
    assert facts.model_roots == {"embedder": "BAAI/bge-m3"}


def test_a_batch_limit_that_was_not_set_is_absent() -> None:
    assert read_tei_info(TEI_INFO, ServerFacts()).batch_limit_requests is None
    assert read_tei_info({"model_id": "m"}, ServerFacts()).model_names == ("m",)  # before served_model_name
    assert read_tei_info([TEI_INFO], ServerFacts()) == ServerFacts()


def test_its_short_prefix_alone_is_nobodys() -> None:
    assert detect(PageParser().parse(page_of("te_something 1\nte_request 2\n")).layout).runtimes == ()
