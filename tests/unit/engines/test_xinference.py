"""Xinference's traps, one by one. Pages are made from the facts (runtimes-others 15)."""

from __future__ import annotations

from llm_serving_exporter.engines.detect import detect
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.fetch.page import PageParser
from llm_serving_exporter.model.record import name_fields
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot, Quality
from tests.support.builders.snapshots import engine_of, page_of, snapshot_of
from tests.support.paths import TESTS
from tests.support.servers.replica import readings

XINFERENCE = RUNTIMES["xinference"]

MADE = TESTS / "made"
PAGE = (MADE / "xinference.prom").read_text()
LATER = (MADE / "xinference-later.prom").read_text()
L = 'engine="vLLM",model_name="qwen2.5-instruct",model_uid="chat",replica_index="0"'


def test_two_names_of_one_count_are_read_once_and_have_no_further_suffix() -> None:
    page = f"""xinference:generate_tokens_total{{{L}}} 500
xinference:output_tokens_total_counter{{{L}}} 500
xinference:input_tokens_total_counter{{{L}}} 900
"""
    snapshot = snapshot_of(page, runtime=XINFERENCE)
    engine = snapshot.engines[0]
    assert (engine.decode_tokens_total, engine.prompt_tokens_total) == (500, 900)
    # at most: what a cache gave is in it
    assert engine.prefill_tokens_total == 900
    assert snapshot.quality["prefill_tokens_total"] is Quality.APPROXIMATE
    assert snapshot.quality["decode_tokens_total"] is Quality.LAGGING


def test_before_2_8_only_the_other_name_is_there() -> None:
    page = 'xinference:output_tokens_total_counter{model="chat"} 500\n'
    engine = engine_of(page, runtime=XINFERENCE)
    assert (engine.decode_tokens_total, engine.model_name, engine.engine) == (500, "chat", "0")


def test_ttft_is_of_streams_because_of_others_it_is_the_whole_duration() -> None:
    name = "xinference:time_to_first_token_seconds"
    page = "".join(
        f"""{name}_bucket{{{L},stream="{stream}",le="1"}} {fast}
{name}_bucket{{{L},stream="{stream}",le="+Inf"}} {count}
{name}_sum{{{L},stream="{stream}"}} {total}
{name}_count{{{L},stream="{stream}"}} {count}
"""
        for stream, fast, count, total in (("true", 4, 5, 3.5), ("false", 0, 7, 70.0))
    )
    found = engine_of(page, runtime=XINFERENCE).time_to_first_token_seconds
    assert (found.edges, found.cumulative, found.count, found.sum) == ((1.0,), (4.0,), 5.0, 3.5)


def _engines(text: str) -> dict[tuple[str, str], EngineSnapshot]:
    return {(one.model_name, one.engine): one for one in snapshot_of(text, runtime=XINFERENCE).engines}


def test_every_model_and_replica_is_an_engine_and_the_label_engine_is_what_runs_inside() -> None:
    engines = _engines(PAGE)
    assert set(engines) == {("chat", "0"), ("chat", "1"), ("embed", "0")}
    assert [engines[key].requests_running for key in sorted(engines)] == [6, 3, 1]


def test_no_limit_is_absent_and_not_minus_one() -> None:
    engines = _engines(PAGE)
    assert "} -1\n" in PAGE
    assert engines["chat", "0"].batch_limit_requests == 16
    assert engines["embed", "0"].batch_limit_requests is None
    assert "batch_limit_requests" not in _exported(PAGE, "embed")
    unlimited = snapshot_of(f"xinference:model_request_limit{{{L}}} -1\n", None, runtime=XINFERENCE)
    assert unlimited.absent["batch_limit_requests"] is Absence.NOT_CONFIGURED


def _exported(text: str, model: str) -> set[str]:
    one = _engines(text)[model, "0"]
    return {name for name in name_fields(one) if getattr(one, name) is not None}


def test_refusals_are_those_of_which_nobody_knows_whether_they_stream() -> None:
    page = f"""xinference:model_serve_count{{{L}}} 2
xinference:model_request_total{{{L},stream="true"}} 50
xinference:model_request_total{{{L},stream="false"}} 20
xinference:model_request_total{{{L},stream="unknown"}} 4
xinference:model_request_errors_total{{{L}}} 5
"""
    engine = engine_of(page, runtime=XINFERENCE)
    assert engine.requests_rejected_total == {"request_limit": 4}
    assert engine.requests_finished_total is None
    assert "requests_finished_total" in XINFERENCE.missing


def test_a_duration_that_ends_when_a_stream_starts_is_no_e2e() -> None:
    assert "xinference:model_request_duration_seconds_count" in PAGE
    assert "e2e_request_latency_seconds" not in _exported(PAGE, "chat")


def test_the_supervisors_page_says_the_memory_of_a_model_over_its_gpus() -> None:
    page = """# TYPE xinference:worker_gpu_utilization_percent gauge
xinference:worker_gpu_utilization_percent{gpu_index="0"} 93
# TYPE xinference:worker_gpu_memory_used_bytes gauge
xinference:worker_gpu_memory_used_bytes{gpu_index="0"} 7e10
# TYPE xinference:model_gpu_memory_used_bytes gauge
xinference:model_gpu_memory_used_bytes{model_uid="chat",replica_index="0",gpu_index="0"} 2e10
xinference:model_gpu_memory_used_bytes{model_uid="chat",replica_index="0",gpu_index="1"} 3e10
xinference:model_gpu_memory_used_bytes{model_uid="embed",replica_index="0",gpu_index="1"} 1e9
"""
    engines = _engines(page)
    assert engines["chat", "0"].model_gpu_memory_bytes == 5e10
    assert engines["embed", "0"].model_gpu_memory_bytes == 1e9
    assert not any(one.is_engine for one in engines.values())


def test_a_worker_is_read_tick_by_tick() -> None:
    *_, after = readings([{"/metrics": PAGE}, {"/metrics": LATER}])
    assert after.runtime == "xinference"
    assert after.snapshot is not None
    rates = {(one.model_name, one.engine): one.phase_tokens_per_second for one in after.derived.engines}
    assert set(rates["chat", "0"]) == {"prefill", "decode"}
    assert rates["chat", "0"]["decode"] > 0
    assert rates["embed", "0"] == {}  # it does not decode


def test_a_page_is_recognised_and_known_whole() -> None:
    assert detect(PageParser().parse(page_of(PAGE)).layout).runtimes == (XINFERENCE,)
    assert snapshot_of(PAGE, runtime=XINFERENCE).unmapped_families == ()
