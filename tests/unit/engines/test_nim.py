"""NVIDIA NIM 1.x: names without prefix, on a path of its own."""

from __future__ import annotations

from llm_serving_exporter.engines.detect import detect
from llm_serving_exporter.engines.mapping import ERRORS
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.fetch.page import PageParser
from llm_serving_exporter.model.snapshot import Quality
from tests.support.builders.snapshots import engine_of, page_of, snapshot_of
from tests.support.paths import TESTS
from tests.support.servers.replica import Replica, readings

RUNTIME = RUNTIMES["nim"]

MADE = TESTS / "made"
PAGE, LATER = (MADE / f"nim{which}.prom" for which in ("", "-later"))
L = 'model_name="m"'


def detected(text: str) -> list[str]:
    return [runtime.name for runtime in detect(PageParser(lambda name: True).parse(page_of(text)).layout).runtimes]


def test_two_names_that_stand_together_nowhere_else_tell_its_page() -> None:
    assert detected(PAGE.read_text()) == ["nim"]
    assert detected(f"num_request_max{{{L}}} 4\n") == []
    assert detected(f"gpu_cache_usage_perc{{{L}}} 0.5\ntime_to_first_token_seconds_count{{{L}}} 4\n") == []


def test_a_newer_image_with_its_back_ends_names_is_the_back_end() -> None:
    engine = 'engine="0",model_name="m"'
    newer = (
        f"num_request_max{{{L}}} 256\ngpu_cache_usage_perc{{{L}}} 0.5\n"
        f"vllm:num_requests_running{{{engine}}} 3\nvllm:generation_tokens_total{{{engine}}} 7\n"
    )
    assert detected(newer) == ["vllm"]
    # and its batch limit, which vLLM itself shows nowhere
    assert engine_of(newer).batch_limit_requests == 256


def test_its_page_is_found_under_v1() -> None:
    with Replica() as server:
        found = readings([{"/v1/metrics": PAGE.read_bytes()}, {"/v1/metrics": LATER.read_bytes()}], replica=server)
        assert [(one.runtime, one.up) for one in found] == [("nim", True)] * 2
        # found once, then known
        assert server.asked.count("/metrics") == 1
        assert found[0].metrics_url.endswith("/v1/metrics")


def test_what_it_says() -> None:
    engine = engine_of(PAGE.read_text(), runtime=RUNTIME)
    assert engine.model_name == "meta/llama-3.1-8b-instruct"
    assert (engine.requests_running, engine.requests_waiting, engine.batch_limit_requests) == (24, 3, 256)
    # "perc" is a share
    assert engine.kv_cache_usage_ratio == 0.375
    assert (engine.prompt_tokens_total, engine.decode_tokens_total) == (240_000, 60_000)
    # at most: what a cache gave is in it
    assert engine.prefill_tokens_total == 240_000
    assert engine.time_to_first_token_seconds.edges[-1] == 10


def test_computed_prompts_are_bounded_by_what_was_sent() -> None:
    assert snapshot_of(PAGE.read_text(), runtime=RUNTIME).quality["prefill_tokens_total"] is Quality.APPROXIMATE


def test_it_counts_no_errors() -> None:
    assert not snapshot_of(PAGE.read_text(), runtime=RUNTIME).errors_counted
    failed = f'num_requests_running{{{L}}} 1\nrequest_finish_total{{{L},finished_reason="error"}} 2\n'
    snapshot = snapshot_of(failed, runtime=RUNTIME)
    assert snapshot.engines[0].requests_finished_total == {"error": 2}
    assert not snapshot.errors_counted
    assert RUNTIME.missing[ERRORS]


def test_failures_are_no_further_finished_requests() -> None:
    # they are the finished ones of every reason but stop and length
    engine = engine_of(PAGE.read_text(), runtime=RUNTIME)
    assert engine.requests_finished_total == {"abort": 10, "length": 50, "stop": 240}
    # an image without reasons: a client's abort is not told from an error
    early = engine_of(
        f"num_requests_running{{{L}}} 1\nrequest_success_total{{{L}}} 9\nrequest_failure_total{{{L}}} 2\n",
        runtime=RUNTIME,
    )
    assert early.requests_finished_total == {"success": 9}
