"""A server that has had no request since its start, and whose page says so by saying nothing: idle where its runtime is set or an endpoint
shows it, unknown where neither is, never down. With its first request it goes on as the same server, counted from 0."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from llm_serving_exporter.engines.plan import may_be_silent
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.model.reading import State, TargetReading
from llm_serving_exporter.model.sample import FailureReason
from llm_serving_exporter.model.snapshot import Absence
from tests.support.builders.golden_cases import MADE
from tests.support.builders.recordings import page
from tests.support.rows import check_rows
from tests.support.servers.replica import Answer, Replica, Routes, readings

EMPTY: Answer = (200, "text/plain; version=0.0.4", b"")
OF_THE_PROCESS = (
    "# TYPE python_info gauge\npython_info 1\n# TYPE process_start_time_seconds gauge\n"
    "process_start_time_seconds 1.795148e+09\n"
)
TGI_INFO = {"model_id": "m", "max_total_tokens": 4096, "max_best_of": 2, "max_stop_sequences": 4, "version": "3.3.7"}
TEI_INFO = {"model_id": "m", "max_input_length": 512, "max_batch_tokens": 16384, "tokenization_workers": 4, "version": "1.9.3"}  # fmt: skip


def models(owner: str, *names: str) -> str:
    return json.dumps(
        {"object": "list", "data": [{"id": name, "object": "model", "owned_by": owner} for name in names]}
    )


@dataclass(frozen=True)
class Case:
    """A runtime whose page may be empty before its first request."""

    runtime: str  # as it is set
    says: Routes  # what its endpoints answer
    first: bytes  # its page after its first requests
    path: str = "/metrics"  # of its page
    counts_tokens: bool = True  # of both phases apart


CASES = {
    case.runtime: case
    for case in (
        Case("sglang", {"/v1/models": models("sglang", "m")}, page("sglang-0.5.23", 46)),
        Case("tgi", {"/info": json.dumps(TGI_INFO)}, (MADE / "tgi.prom").read_bytes()),
        Case("tei", {"/info": json.dumps(TEI_INFO)}, (MADE / "tei.prom").read_bytes()),
        Case(
            "trtllm",
            {"/v1/models": models("tensorrt_llm", "m")},
            page("trtllm-050f80de", 46),
            "/prometheus/metrics",
        ),
        Case(
            "mistralrs",
            {"/v1/models": models("local", "default", "m")},
            (MADE / "mistralrs.prom").read_bytes(),
            counts_tokens=False,
        ),
    )
}
# recognised by their pages only: some have families of their own from the start, a front door's are born with its first request
OTHERS = {
    "dynamo-frontend", "dynamo-worker", "envoy-ai-gateway", "gen-ai", "litellm", "llm-d-epp", "sglang-gateway", "sglang-router",
    "vllm-router", "vllm-stack-router", "xinference",
}  # fmt: skip


def signals(reading: TargetReading) -> dict[str, Absence]:
    return dict(reading.page.derived.signals)


def increases(reading: TargetReading) -> tuple[float, float]:
    """Tokens of both phases that the exporter's own window holds."""
    rates = [one.phase_tokens_per_second for one in reading.page.derived.engines]
    seconds = reading.page.derived.window_seconds
    prefill, decode = (sum(rate.get(phase, 0.0) for rate in rates) * seconds for phase in ("prefill", "decode"))
    return prefill, decode


def counted(reading: TargetReading) -> tuple[float, float]:
    """Tokens of both phases that the server has counted since its start."""
    engines = reading.page.snapshot.engines
    # with those of requests under way, where they are counted
    decoded = [one.decode_tokens_total if one.decode_tokens_live is None else one.decode_tokens_live for one in engines]
    return sum(one.prefill_tokens_total or 0.0 for one in engines), sum(value or 0.0 for value in decoded)


def test_every_runtime_whose_page_may_be_silent_is_tried_here() -> None:
    assert {name for name, runtime in RUNTIMES.items() if may_be_silent(runtime)} == CASES.keys() | OTHERS


@check_rows("body", [EMPTY, OF_THE_PROCESS], ids=["empty", "process"])
@check_rows("configured", [True, False], ids=["configured", "shown"])
@check_rows("case", CASES.values(), ids=CASES)
def test_a_silent_server_is_idle_and_its_first_requests_are_counted(case: Case, configured: bool, body: Answer) -> None:
    target: dict[str, Any] = {"runtime": case.runtime} if configured else {}
    rest = {case.path: body, **case.says}
    *idle, first = readings([rest, rest, rest, {case.path: case.first, **case.says}], **target)
    for reading in idle:
        assert (reading.page.up, reading.server.state, reading.server.runtime) == (True, State.READY, case.runtime)
        assert reading.server.model_name == "m"
        for signal in ("prefill_tokens_total", "requests_finished_total"):
            assert signals(reading)[signal] is Absence.IDLE
        assert counted(reading) == (0.0, 0.0)
    assert (first.page.up, first.server.runtime, first.server.restarts_total) == (True, case.runtime, 0)
    assert (sum(counted(first)) > 0) is case.counts_tokens
    assert increases(first) == pytest.approx(counted(first))
    # of the tick alone too, which is what the cost of it is split by
    ticks = [one.tick for one in first.page.derived.engines if one.tick is not None]
    assert sum(tick.prefill_tokens or 0.0 for tick in ticks) == pytest.approx(counted(first)[0])
    latencies = [one.e2e_request_latency_seconds for one in first.page.snapshot.engines]
    answered = sum(one.count for one in latencies if one)
    assert answered > 0
    latencies = [one.latency.get("e2e") for one in first.page.derived.engines]
    assert sum(one.events for one in latencies if one is not None) == answered


@check_rows("name", sorted(OTHERS))
def test_one_that_is_known_by_its_page_only_is_idle_where_it_is_set(name: str) -> None:
    (reading,) = readings([{"/metrics": EMPTY}], runtime=name)
    assert (reading.page.up, reading.server.state, reading.server.runtime) == (True, State.READY, name)


def test_families_that_are_declared_and_not_read_are_those_of_a_server_at_rest() -> None:
    """Xinference declares its families, and counts them by model once there is a request."""
    first = (MADE / "xinference.prom").read_text()
    declared = "".join(line for line in first.splitlines(keepends=True) if line.startswith("# TYPE"))
    assert declared
    rest = f"{declared}# TYPE xinference:worker_gpu_utilization_percent gauge\nxinference:worker_gpu_utilization_percent 3\n"
    *idle, busy = readings([{"/metrics": rest}, {"/metrics": rest}, {"/metrics": first}])
    for reading in idle:
        assert (reading.page.up, reading.server.state, reading.server.runtime) == (True, State.READY, "xinference")
        assert signals(reading)["decode_tokens_total"] is Absence.IDLE
    assert (busy.page.up, busy.server.restarts_total) == (True, 0)
    assert sum(counted(busy)) > 0
    assert increases(busy) == pytest.approx(counted(busy))


@check_rows("body", [EMPTY, OF_THE_PROCESS], ids=["empty", "process"])
@check_rows("name", ["vllm", "llamacpp", "lmdeploy", "nim", "ray-vllm", "triton", "lightllm"])
def test_one_that_shows_its_families_from_the_start_is_not_idle_without_them(name: str, body: Answer) -> None:
    path = RUNTIMES[name].paths[0]
    (reading,) = readings([{path: body}], runtime=name)
    assert (reading.page.up, reading.server.state) == (False, State.UNKNOWN)


@check_rows("path", ["/metrics", "/prometheus/metrics"])
@check_rows("body", [EMPTY, OF_THE_PROCESS], ids=["empty", "process"])
def test_a_silent_page_that_nobody_claims_is_unknown_and_not_down(body: Answer, path: str) -> None:
    (reading,) = readings([{path: body, "/v1/models": models("somebody", "m"), "/info": '{"model_id": "m"}'}])
    assert (reading.page.up, reading.server.state, reading.server.runtime) == (False, State.UNKNOWN, "")
    assert reading.page.last.reason in (FailureReason.EMPTY, FailureReason.UNKNOWN_RUNTIME)


def test_a_vllm_that_shows_nothing_is_told_apart() -> None:
    """It has its families from the start, so that this is no rest."""
    (reading,) = readings([{"/metrics": OF_THE_PROCESS, "/v1/models": models("vllm", "m")}])
    assert (reading.page.up, reading.server.state) == (False, State.UNKNOWN)
    assert "vLLM answers beside /metrics" in reading.page.problem
    assert "--disable-log-stats" in reading.page.problem


def test_a_setting_that_an_endpoint_contradicts_is_refused() -> None:
    (reading,) = readings([{"/metrics": OF_THE_PROCESS, "/v1/models": models("vllm", "m")}], runtime="sglang")
    assert (reading.page.up, reading.server.state) == (False, State.UNKNOWN)
    assert "has nothing of SGLang (seen: beside it, vLLM)" in reading.page.problem


def test_a_page_of_something_else_is_no_rest() -> None:
    (reading,) = readings([{"/metrics": "acme_total 3\n", "/info": json.dumps(TGI_INFO)}], runtime="tgi")
    assert (reading.page.up, reading.server.state) == (False, State.UNKNOWN)
    (reading,) = readings([{"/metrics": "acme_total 3\n", "/info": json.dumps(TGI_INFO)}])
    assert (reading.page.up, reading.server.runtime) == (False, "")


def test_a_server_that_restarts_and_rests_has_restarted_and_counts_from_zero_again() -> None:
    case = CASES["tgi"]
    worked, rest = {"/metrics": case.first, **case.says}, {"/metrics": EMPTY, **case.says}
    found = readings([worked, worked, rest, rest, worked])
    assert [one.server.restarts_total for one in found] == [0, 0, 0, 1, 1]
    assert [one.server.state for one in found] == [State.READY] * 5
    assert increases(found[-1]) == pytest.approx(counted(found[-1]))


def test_one_page_with_a_gap_counts_nothing_again() -> None:
    case = CASES["tgi"]
    worked, gap = {"/metrics": case.first, **case.says}, {"/metrics": EMPTY, **case.says}
    # the window's start is the gap: what came before it is not known to be new
    found = readings([worked, gap, worked, *[worked] * 7], window_seconds=60.0)
    assert {one.server.restarts_total for one in found} == {0}
    assert all(sum(increases(one)) == 0 for one in found)


def test_endpoints_that_answer_as_something_else_are_asked_seldom() -> None:
    routes = {"/metrics": EMPTY, "/v1/models": models("somebody", "m")}
    with Replica() as server:
        readings([routes] * 38, replica=server, seconds=60.0)
        # at 60 s, and 60, 120, 240, 480, 600, 600 s later
        assert server.asked.count("/v1/models") == 7
        assert server.asked.count("/info") == 7
    # a page that shows something else each time is no reason to ask each time
    with Replica() as server:
        readings([{"/metrics": f"acme_{tick}_total 3\n"} for tick in range(100)], replica=server)
        assert server.asked.count("/v1/models") < 15


def test_an_idle_server_is_asked_who_it_is_once() -> None:
    case = CASES["tgi"]
    with Replica() as server:
        readings([{"/metrics": EMPTY, **case.says}] * 30, replica=server, seconds=60.0)
        # to recognise it, and for its facts
        assert server.asked.count("/info") <= 3
        assert server.asked.count("/v1/models") <= 1


def test_the_limits_of_an_idle_server_are_known() -> None:
    reading = readings([{"/metrics": EMPTY, **CASES["tgi"].says}] * 2)[-1]
    (engine,) = reading.page.snapshot.engines
    assert engine.context_limit_tokens == 4096
    assert reading.server.facts.version == "3.3.7"
