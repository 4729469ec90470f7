"""A server that has had no request since its start, and counters that begin at 0 or are born above it."""

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import isfinite
from typing import Any

import pytest

from llm_serving_exporter.derive.slo import server_errors
from llm_serving_exporter.engines.plan import may_be_silent
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.model.derived import EngineDerived, Limiter, ServerErrors, SloCount
from llm_serving_exporter.model.reading import State, TargetReading
from llm_serving_exporter.model.sample import FailureReason
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot, Quality
from tests.support.builders.discovered_pods import plain_pod, targets_of
from tests.support.builders.golden_cases import CASES, MADE, Case, vllm_says
from tests.support.builders.recordings import page, recording
from tests.support.builders.recordings import page as recorded_page
from tests.support.rows import check_rows
from tests.support.servers.replica import UNIX_START, Answer, Replica, Routes, readings

# --- A server that has had no request since its start, and whose page says so by saying nothing
# It is idle where its runtime is set or an endpoint shows it, unknown where neither is, never down. With its first request it goes on as
# the same server, counted from 0.


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
class Silent:
    """A runtime whose page may be empty before its first request."""

    runtime: str  # as it is set
    says: Routes  # what its endpoints answer
    first: bytes  # its page after its first requests
    path: str = "/metrics"  # of its page
    counts_tokens: bool = True  # of both phases apart


SILENT = {
    case.runtime: case
    for case in (
        Silent("sglang", {"/v1/models": models("sglang", "m")}, page("sglang-0.5.23", 46)),
        Silent("tgi", {"/info": json.dumps(TGI_INFO)}, (MADE / "tgi.prom").read_bytes()),
        Silent("tei", {"/info": json.dumps(TEI_INFO)}, (MADE / "tei.prom").read_bytes()),
        Silent(
            "trtllm", {"/v1/models": models("tensorrt_llm", "m")}, page("trtllm-050f80de", 46), "/prometheus/metrics"
        ),
        Silent(
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
    assert {name for name, runtime in RUNTIMES.items() if may_be_silent(runtime)} == SILENT.keys() | OTHERS


@check_rows("body", [EMPTY, OF_THE_PROCESS], ids=["empty", "process"])
@check_rows("configured", [True, False], ids=["configured", "shown"])
@check_rows("case", SILENT.values(), ids=SILENT)
def test_a_silent_server_is_idle_and_its_first_requests_are_counted(
    case: Silent, configured: bool, body: Answer
) -> None:
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
    case = SILENT["tgi"]
    worked, rest = {"/metrics": case.first, **case.says}, {"/metrics": EMPTY, **case.says}
    found = readings([worked, worked, rest, rest, worked])
    assert [one.server.restarts_total for one in found] == [0, 0, 0, 1, 1]
    assert [one.server.state for one in found] == [State.READY] * 5
    assert increases(found[-1]) == pytest.approx(counted(found[-1]))


def test_one_page_with_a_gap_counts_nothing_again() -> None:
    case = SILENT["tgi"]
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
    case = SILENT["tgi"]
    with Replica() as server:
        readings([{"/metrics": EMPTY, **case.says}] * 30, replica=server, seconds=60.0)
        # to recognise it, and for its facts
        assert server.asked.count("/info") <= 3
        assert server.asked.count("/v1/models") <= 1


def test_the_limits_of_an_idle_server_are_known() -> None:
    reading = readings([{"/metrics": EMPTY, **SILENT["tgi"].says}] * 2)[-1]
    (engine,) = reading.page.snapshot.engines
    assert engine.context_limit_tokens == 4096
    assert reading.server.facts.version == "3.3.7"


# --- Every runtime's page right after its start, all at zero: an idle server, whichever way its runtime is known, for as long as it rests


REST_TICKS = 40  # of ten seconds: longer than what is booked late is waited for
TYPE = re.compile(r"# TYPE (\S+) (\S+)")
# gauges of what goes on now; others are limits and sizes
NOW = re.compile(
    r"running|waiting|pending|queue|usage|used|active|processing|deferred|throughput|_per_second|busy|in_?flight|batch_current"
)


@dataclass(frozen=True)
class Door(Case):
    """A front door's page, which stands in tests/made once."""

    def steps(self) -> list[Routes]:
        return [{self.path: (MADE / f"{self.made}.prom").read_bytes()}]


FRONT_DOORS = (
    "litellm", "envoy-ai-gateway", "gen-ai", "llm-d-epp", "smg", "sglang-router", "production-stack-router",
)  # fmt: skip
# of engines of which there are recordings one with nothing to do
FURTHER = re.compile(r"-(light|saturated|kv-pressure|prefill-heavy|restarted|overload|given-up|drained|rejections)$")


@cache
def list_pages() -> dict[str, Case]:
    """Every page that is text, by the case's name."""
    pages = {
        name: case
        for name, case in CASES.items()
        if isinstance(case.steps()[-1].get(case.path), (bytes, str)) and not case.path.endswith("perf_metrics")
    }
    return pages | {name: Door(made=name) for name in FRONT_DOORS}


def list_quick() -> list[str]:
    """A page of each runtime."""
    return [name for name in list_pages() if not FURTHER.search(name) or "dynamo" in name]


def list_further() -> list[str]:
    return [name for name in list_pages() if name not in list_quick()]


def to_fresh(text: str) -> str:
    """A page with everything that counts, and everything that goes on, at 0; what was never counted keeps its labels."""
    kinds = dict(TYPE.findall(text))

    def reset(line: str) -> str:
        name = re.split(r"[{ ]", line, maxsplit=1)[0]
        base = re.sub(r"_(total|bucket|count|sum|created)$", "", name)
        kind = kinds.get(name) or kinds.get(base) or kinds.get(f"{base}_total") or ""
        moves = kind in ("counter", "histogram", "summary") or (kind == "gauge" and NOW.search(name))
        if line.startswith("#") or not line.strip() or not moves:
            return line
        return re.sub(r"(\}|^[^{ ]+) +\S+", r"\1 0", line, count=1)

    return "\n".join(map(reset, text.splitlines())) + "\n"


def make_fresh(case: Case) -> Routes:
    step = dict(case.steps()[-1])
    body = step[case.path]
    text = body.decode() if isinstance(body, bytes) else body
    assert isinstance(text, str)
    step[case.path] = to_fresh(text)
    return step


def rest(case: Case, ticks: int = REST_TICKS, **more: object) -> list[TargetReading]:
    return readings([make_fresh(case)] * ticks, **{**case.target, **more})


def check_rest(found: list[TargetReading]) -> None:
    for reading in found:
        assert (reading.page.up, reading.server.state) == (True, State.READY), reading.page.problem
        assert not [name for name, quality in reading.page.derived.quality.items() if quality is Quality.SUSPECT]
        assert not reading.page.derived.causes
        verdict = reading.page.derived.verdict
        assert verdict is None or verdict.state in (Limiter.STARVED, Limiter.UNKNOWN)
        for engine in reading.page.derived.engines:
            values: Mapping[str, float] = engine.phase_tokens_per_second
            assert all(isfinite(value) and value == 0 for value in values.values())
    assert found[-1].server.restarts_total == 0


@check_rows("name", list_quick)
def test_a_fresh_page_is_idle(name: str) -> None:
    check_rest(rest(list_pages()[name]))


@pytest.mark.e2e
@check_rows("name", list_further)
def test_a_further_fresh_page_is_idle(name: str) -> None:
    check_rest(rest(list_pages()[name]))


@check_rows("name", list_quick)
def test_the_same_where_its_runtime_is_set(name: str) -> None:
    check_set(name)


@pytest.mark.e2e
@check_rows("name", list_further)
def test_the_same_of_a_further_page_where_its_runtime_is_set(name: str) -> None:
    check_set(name)


def check_set(name: str) -> None:
    case = list_pages()[name]
    recognised = rest(case, 1)[0].server.runtime
    set_to = rest(case, 6, runtime=recognised)
    check_rest(set_to)
    assert set_to[0].server.runtime == recognised


def test_nearly_every_runtime_is_tried() -> None:
    tried = {rest(case, 1)[0].server.runtime for case in list_pages().values()}
    # JSON pages, servers without a page
    assert len(RUNTIMES.keys() - tried) <= 6, RUNTIMES.keys() - tried


@check_rows("name", sorted(RUNTIMES))
def test_an_annotation_sets_the_runtime_as_the_configuration_does(name: str) -> None:
    wishes = {"scrape": "true", "port": "8000", "runtime": name}
    pod = plain_pod(annotations={f"llm-serving-exporter/{key}": text for key, text in wishes.items()})
    (target,) = targets_of([pod])
    assert target.runtime == name


# --- Counters that are born above 0: what they count began at 0, where the page before proves it


L = 'engine="0",model_name="m"'
TOKENS = f"vllm:generation_tokens_total{{{L}}} "
OTHER = (
    'vllm:num_requests_running{engine="1",model_name="m"} 1\nvllm:generation_tokens_total{engine="1",model_name="m"} 90'
)


def page_of_counters(*counters: str) -> dict[str, str]:
    running, prompt = f"vllm:num_requests_running{{{L}}} 1", f"vllm:prompt_tokens_total{{{L}}} 100"
    return {"/metrics": "\n".join((running, prompt, *counters, ""))}


def decoded(reading: TargetReading, engine: int = 0) -> float | None:
    """Generated tokens a second over the window."""
    return reading.page.derived.engines[engine].phase_tokens_per_second.get("decode")


def play(*pages: dict[str, str] | None) -> list[TargetReading]:
    return readings(pages, seconds=5.0, runtime="vllm")


def test_what_a_new_counter_has_counted_is_an_increase() -> None:
    found = play(
        page_of_counters(), page_of_counters(), page_of_counters(TOKENS + "500"), page_of_counters(TOKENS + "520")
    )
    assert [decoded(reading) for reading in found] == [None, None, 50.0, pytest.approx(520 / 15)]


def test_the_first_page_is_a_baseline() -> None:
    assert decoded(play(page_of_counters(TOKENS + "500"), page_of_counters(TOKENS + "500"))[-1]) == 0.0


def test_after_a_gap_it_is_a_baseline_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    found = play(page_of_counters(), None, None, page_of_counters(TOKENS + "500"), page_of_counters(TOKENS + "510"))
    # over the window before it the counter is not known
    assert decoded(found[-1]) in (None, 2.0)
    assert "decode_tokens_total: first seen after a gap" in caplog.text


def test_a_cut_page_invents_no_events() -> None:
    """A page without the counter between two that have it."""
    found = play(page_of_counters(TOKENS + "500"), page_of_counters(), page_of_counters(TOKENS + "510"))
    assert decoded(found[-1]) == 1.0


def test_an_engine_that_comes_with_its_counters_is_a_baseline() -> None:
    found = play(
        page_of_counters(TOKENS + "500"),
        page_of_counters(TOKENS + "500", OTHER),
        page_of_counters(TOKENS + "500", OTHER),
    )
    assert decoded(found[-1], 1) == 0.0


# of the server's own clock; the third of the pages is read at 10 s
CREATED = f"vllm:generation_tokens_created{{{L}}} "


@check_rows(
    ("created", "a_second"),
    [
        (UNIX_START - 3600.0, None),  # the pages before lacked what was there: they were cut, or another worker's
        (UNIX_START + 8.0, 50.0),
        (UNIX_START + 3600.0, 50.0),  # a clock that runs ahead: the page before decides
        (0.0, None),
    ],
)
def test_the_time_that_the_page_says_decides(created: float, a_second: float | None) -> None:
    found = play(page_of_counters(), page_of_counters(), page_of_counters(TOKENS + "500", f"{CREATED}{created}"))
    assert decoded(found[-1]) == a_second


def test_a_label_that_is_new_is_born_though_its_name_is_old() -> None:
    """The youngest series of a name decides: one of another engine may be an hour old."""
    other = CREATED.replace('engine="0"', 'engine="1"')
    lines = (TOKENS + "500", f"{CREATED}{UNIX_START + 8.0}", f"{other}{UNIX_START - 3600.0}")
    assert decoded(play(page_of_counters(), page_of_counters(), page_of_counters(*lines))[-1]) == 50.0


def test_a_real_page_that_lost_a_counter_invents_no_events() -> None:
    """The recording's own times say that the counter is as old as the engine."""
    whole = [recorded_page("vllm-0.32-mfu", number).decode() for number in (40, 45, 50)]
    cut = [re.sub(r"(?m)^vllm:generation_tokens_total.*\n", "", text) for text in whole[:2]]
    found = play(*({"/metrics": text} for text in (*cut, whole[2])))
    assert "vllm:generation_tokens_created" in whole[0]
    assert decoded(found[-1]) is None


# --- Counters that alerts watch stand at 0 before their first event: an increase() over a counter that is born at 1 is 0


SGLANG = recording("sglang-0.5.23")


def sglang(number: int, version: str | None = "0.5.23") -> Routes:
    said = {} if version is None else {"/server_info": json.dumps({"version": version})}
    return {"/metrics": SGLANG.pages[number], **said}


def engine(reading: TargetReading) -> tuple[EngineSnapshot, EngineDerived]:
    (snapshot,), (derived,) = reading.page.snapshot.engines, reading.page.derived.engines
    return snapshot, derived


def test_an_idle_sglang_has_them_all_at_zero_where_its_version_is_known() -> None:
    """Its page has none of them before the first request; the recorded one has, with the edges that were supposed."""
    _, idle, busy = readings([sglang(0), sglang(0), sglang(78)])
    snapshot, derived = engine(idle)
    assert snapshot.requests_finished_total is None
    assert snapshot.preemptions_total == 0.0
    assert derived.slo == {"ttft": SloCount(0.0, 0.0, 2.5, 2.0), "errors": SloCount(0.0, 0.0)}
    assert derived.server_errors == ServerErrors(0.0, 0.0, 0.0, 0.0)
    assert idle.page.derived is not None
    for signal in ("slo_ttft", "slo_errors", "preemptions_total"):
        assert idle.page.derived.signals[signal] is Absence.AVAILABLE

    snapshot, derived = engine(busy)
    assert snapshot.preemptions_total > 0
    assert busy.server.restarts_total == 0
    assert (derived.slo["ttft"].counted_seconds, derived.slo["errors"].bad) == (2.0, 0.0)
    assert derived.slo["ttft"].bad > 0


@pytest.mark.parametrize("version", [None, "0.4.1"])
def test_what_a_version_may_not_have_is_absent_and_not_zero(version: str | None) -> None:
    snapshot, derived = engine(readings([sglang(0, version), sglang(0, version)])[-1])
    assert snapshot.preemptions_total is None
    assert "errors" not in derived.slo


def test_the_first_answer_of_a_vllm_is_counted_where_it_is_an_error() -> None:
    """The recorded page declares the HTTP counters and has no sample of them before the first answer."""
    run = recording("vllm-0.32")
    page = run.pages[0].decode()
    failed = f'{page}http_requests_total{{handler="/v1/completions",method="POST",status="5xx"}} 1.0\n'
    steps = [{**vllm_says(run, 0), "/metrics": text} for text in (page, page, failed)]
    found = [engine(reading)[1].server_errors for reading in readings(steps)]
    assert [one.uncovered_total for one in found if one is not None] == [0.0, 0.0, 1.0]


def test_the_first_request_of_a_server_is_counted_where_it_fails() -> None:
    """Text Embeddings Inference has no counter before its first event."""
    queue = "# TYPE te_queue_size gauge\nte_queue_size 0\n"
    failed = f'{queue}# TYPE te_request_failure counter\nte_request_failure{{err="inference"}} 1\n'
    found = readings([{"/metrics": queue}, {"/metrics": failed}], runtime="tei", model_name="m")
    assert [engine(reading)[1].slo["errors"] for reading in found] == [SloCount(0.0, 0.0), SloCount(0.0, 1.0)]


def test_answers_that_are_missing_for_a_page_are_not_counted_again() -> None:
    def reading(failed: float | None) -> list[EngineSnapshot]:
        return [EngineSnapshot("m", "0", http_responses_total=None if failed is None else {"5xx": failed})]

    found = server_errors(reading(None), None, awaited=True)
    for failed in (3.0, None, 3.0, 5.0):
        found = server_errors(reading(failed), found, awaited=failed is None)
    assert found.uncovered_total == 5.0
    assert server_errors(reading(None), None) is None


def test_restarts_stand_at_zero_before_the_first_page() -> None:
    (refused,) = readings([None])
    assert (refused.page.up, refused.server.restarts_total) == (False, 0)


def test_a_restart_of_an_engine_whose_preemptions_are_gone_with_it_is_one() -> None:
    """Its first page after the restart has none of the counters."""
    found = readings([sglang(0), sglang(78), sglang(0), sglang(78)])
    assert [reading.server.restarts_total for reading in found] == [0, 0, 1, 1]


def test_of_several_engines_only_what_each_has_itself_is_at_zero() -> None:
    """Whether a counter of the page's will stand under an engine, or under none, shows with its first event."""
    page = "".join(
        f'sglang:num_running_reqs{{dp_rank="{rank}",engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"}} 0\n'
        for rank in (0, 1)
    )
    steps = [{"/metrics": page, "/server_info": json.dumps({"version": "0.5.23"})}] * 2
    idle = readings(steps, runtime="sglang")[-1]
    assert [one.preemptions_total for one in idle.page.snapshot.engines] == [0.0, 0.0]
    assert [one.slo for one in idle.page.derived.engines] == [{}, {}]
