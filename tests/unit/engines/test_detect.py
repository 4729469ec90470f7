"""Which runtime a page is recognised as: every page of every recording, pages made from the facts, and pages of nobody."""

from collections.abc import Iterable

import pytest

from llm_serving_exporter.engines.detect import Detection, detect, labels_needed
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.fetch.page import PageParser
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.sample import FailureReason
from tests.support.builders.recordings import names, recording
from tests.support.builders.snapshots import page_of, snapshot_of
from tests.support.paths import TESTS
from tests.support.rows import check_rows
from tests.support.servers.replica import readings

MADE = TESTS / "made"

# what a run's pages are, by the beginning of its name; None: its page has nothing of its own
EXPECTED = {
    "vllm-router-": "vllm-router",
    "vllm-": "vllm",
    "sglang-": "sglang",
    "lmdeploy-": "lmdeploy",
    "trtllm-": "trtllm",
    "llamacpp-": "llamacpp",
    "dynamo-1.6.1-frontend": "dynamo-frontend",
    "dynamo-1.6.1-worker": "dynamo-worker",
    "infinity-": None,
    "litellm-": "litellm",
}
ROUTERS = {
    "smg-engine-metrics": "an SGLang model gateway (its workers' pages in one)",
    "dynamo-router": "a Dynamo router, or of a Dynamo frontend under another DYN_METRICS_PREFIX",
    "trtllm-disaggregated": "TensorRT-LLM's disaggregated server",
}
# pages made from the facts that are not called as their runtime
MADE_OF = {
    "dynamo-worker-vllm": "dynamo-worker",
    "production-stack-router": "vllm-stack-router",
    "smg": "sglang-gateway",
}
VLLM_PAGE = """# TYPE vllm:generation_tokens counter
vllm:generation_tokens_total{engine="0",model_name="m"} 5
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 1
"""
SGLANG_PAGE = """# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 1
# TYPE sglang:token_usage gauge
sglang:token_usage{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 0.25
# TYPE sglang:realtime_tokens_total counter
sglang:realtime_tokens_total{engine_type="unified",mode="decode",model_name="m",tp_rank="0"} 7
"""
FASTAPI_PAGE = """# TYPE http_requests_total counter
http_requests_total{handler="/v1/chat",method="POST",status="2xx"} 5
# TYPE http_request_duration_highr_seconds histogram
http_request_duration_highr_seconds_bucket{le="1.0"} 5
http_request_duration_highr_seconds_bucket{le="+Inf"} 5
http_request_duration_highr_seconds_sum 1.5
http_request_duration_highr_seconds_count 5
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.7e9
"""
NODE_EXPORTER_PAGE = """# TYPE go_goroutines gauge
go_goroutines 8
# TYPE node_cpu_seconds_total counter
node_cpu_seconds_total{cpu="0",mode="idle"} 1000
# TYPE promhttp_metric_handler_requests_total counter
promhttp_metric_handler_requests_total{code="200"} 3
"""
PROCESS_PAGE = """# TYPE python_info gauge
python_info{version="3.12.1"} 1
# TYPE process_resident_memory_bytes gauge
process_resident_memory_bytes 1000
"""


def seen_on(text: str, content_type: str = "text/plain") -> Detection:
    return detect(PageParser(labels_needed()).parse(page_of(text, content_type=content_type)).layout)


def answer(text: str) -> str | None:
    return name_of(seen_on(text))


def name_all(texts: Iterable[str]) -> list[str | None]:
    """What each page of one server is; a layout that stays is what it was."""
    parser, layout, found = PageParser(labels_needed()), None, []
    for text in texts:
        before, layout = layout, parser.parse(page_of(text)).layout
        found.append(found[-1] if layout is before else name_of(detect(layout)))
    return found


def name_of(found: Detection) -> str | None:
    assert len(found.runtimes) <= 1, [runtime.name for runtime in found.runtimes]
    if found.router is not None:
        return found.router.title
    return found.runtime.name if found.runtime is not None else None


def expected(run: str) -> str | None:
    beginning = max((known for known in EXPECTED if run.removeprefix("h100-").startswith(known)), key=len)
    return EXPECTED[beginning]


def refusal(reading: TargetReading) -> tuple[FailureReason | None, str]:
    """Why the last attempt failed."""
    return reading.page.last.reason, reading.page.last.detail


def only_reading(*pages: str | bytes, **target: object) -> TargetReading:
    return readings([{"/metrics": page} for page in pages], **target)[-1]


@check_rows("run", names)
def test_every_recorded_page_is_what_it_is(run: str) -> None:
    pages = recording(run).pages
    answers = name_all(pages[number].decode() for number in pages if not pages[number].startswith(b"{"))
    assert answers
    assert set(answers) == {expected(run)}, answers


@pytest.mark.parametrize("name", ROUTERS)
def test_a_page_of_a_router_is_refused_with_what_to_point_at(name: str) -> None:
    found = seen_on((MADE / f"{name}.prom").read_text())
    assert (found.router.title, found.runtimes) == (ROUTERS[name], ())
    assert found.router.instead.startswith("point url at")


@check_rows("name", sorted(path.stem for path in MADE.glob("*.prom") if path.stem not in ROUTERS))
def test_a_page_made_from_the_facts_is_what_it_is_and_known_whole(name: str) -> None:
    text, name = (MADE / f"{name}.prom").read_text(), name.removesuffix("-later").replace("_", "-")
    runtime = MADE_OF.get(name) or max((known for known in RUNTIMES if name.startswith(known)), key=len)
    assert answer(text) == runtime
    assert snapshot_of(text, None, runtime=RUNTIMES[runtime]).unmapped_families == ()


@check_rows("run", lambda: [run for run in names() if expected(run)])
def test_no_family_of_a_recorded_page_is_unknown(run: str) -> None:
    pages = recording(run).pages
    for number in (min(pages), max(pages)):
        snapshot = snapshot_of(pages[number].decode(), None, runtime=RUNTIMES[str(expected(run))])
        assert snapshot.unmapped_families == (), number


def test_a_router_is_said_to_be_one_by_the_running_exporter() -> None:
    reason, detail = refusal(only_reading((MADE / "trtllm-disaggregated.prom").read_bytes()))
    assert reason is FailureReason.NOT_AN_ENGINE
    assert detail == (
        "/metrics is the page of TensorRT-LLM's disaggregated server, not of an engine; point url at its context and generation servers"
    )


def test_the_label_that_tells_a_router_is_not_looked_for_on_the_engine() -> None:
    assert answer(VLLM_PAGE) == "vllm"
    assert answer(SGLANG_PAGE) == "sglang"


def test_two_runtimes_on_one_page_are_ambiguous_and_both_are_named() -> None:
    reason, detail = refusal(only_reading(VLLM_PAGE + SGLANG_PAGE))
    assert reason is FailureReason.UNKNOWN_RUNTIME
    assert detail == "/metrics has families of vLLM and SGLang; set runtime for the target to the one that is meant"


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_the_setting_settles_an_ambiguous_page(name: str) -> None:
    reading = only_reading(VLLM_PAGE + SGLANG_PAGE, runtime=name)
    assert (reading.page.up, reading.server.runtime) == (True, name)


@pytest.mark.parametrize(
    ("page", "seen"),
    [
        (FASTAPI_PAGE, "http_request_duration_highr_seconds, http_requests_total"),
        (NODE_EXPORTER_PAGE, "node_cpu_seconds_total"),
        (PROCESS_PAGE, "only python_* and process_* families"),
    ],
    ids=["fastapi", "node_exporter", "process"],
)
def test_a_page_of_nobody_is_unknown_and_says_what_was_seen(page: str, seen: str) -> None:
    reason, detail = refusal(only_reading(page))
    assert reason is FailureReason.UNKNOWN_RUNTIME
    assert f"no known runtime on /metrics (seen: {seen})" in detail


def test_an_empty_page_is_empty_not_unknown() -> None:
    reason, _ = refusal(only_reading(""))
    assert reason is FailureReason.EMPTY


def test_an_imitation_that_lacks_most_families_is_still_its_engine() -> None:
    # llm-d's simulator (facts runtimes-others 16.2): vLLM's names, no engine label, another label for the finish reason
    page = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name="m"} 1
# TYPE vllm:generation_tokens counter
vllm:generation_tokens_total{model_name="m"} 9
# TYPE vllm:request_success counter
vllm:request_success_total{finish_reason="stop",model_name="m"} 2
"""
    reading = only_reading(page)
    assert (reading.page.up, reading.server.runtime) == (True, "vllm")
    assert [
        engine.decode_tokens_total for engine in (reading.page.snapshot.engines if reading.page.snapshot else ())
    ] == [9]


@pytest.mark.parametrize(("page", "name"), [(VLLM_PAGE, "vllm"), (SGLANG_PAGE, "sglang")], ids=["vllm", "sglang"])
def test_names_with_underscores_are_recognised_too(page: str, name: str) -> None:
    # an OpenMetrics scrape without escaping=allow-utf-8 renames samples, TYPE lines keep the colon (captures README, surprise 7)
    renamed = "".join(
        line if line.startswith("#") else line.replace(":", "_", 1) for line in page.splitlines(keepends=True)
    )
    found = seen_on(renamed + "# EOF\n", "application/openmetrics-text; version=1.0.0")
    assert [runtime.name for runtime in found.runtimes] == [name]


def test_a_worker_of_dynamo_is_not_the_engine_that_it_passes_on() -> None:
    head = """# TYPE dynamo_component_requests_total counter
dynamo_component_requests_total{dynamo_component="backend",dynamo_endpoint="generate",worker_id="1"} 5
"""
    assert answer(head + VLLM_PAGE) == answer(head + SGLANG_PAGE) == answer(head) == "dynamo-worker"


def test_a_wrong_setting_says_what_is_there() -> None:
    reason, detail = refusal(only_reading(VLLM_PAGE, runtime="llamacpp"))
    assert reason is FailureReason.UNKNOWN_RUNTIME
    assert "/metrics has nothing of llama.cpp" in detail
    assert "seen: a page of vLLM" in detail
    assert "check runtime and metrics_path of the target" in detail


def test_another_runtime_that_takes_the_address_is_recognised_without_the_setting() -> None:
    steps = [{"/metrics": VLLM_PAGE}, {"/metrics": SGLANG_PAGE}, {"/metrics": SGLANG_PAGE}]
    first, between, then = readings(steps)
    assert first.server.runtime == "vllm"
    assert (between.page.up, refusal(between)[0]) == (False, FailureReason.UNKNOWN_RUNTIME)
    assert (then.page.up, then.server.runtime) == (True, "sglang")


def test_no_two_runtimes_share_a_fingerprint() -> None:
    marks = [(runtime.name, one) for runtime in RUNTIMES.values() for one in runtime.fingerprints]
    for name, one in marks:
        assert not [other for other, same in marks if same == one and other != name], (name, one)
