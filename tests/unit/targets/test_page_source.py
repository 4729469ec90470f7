"""Where a page and what stands beside it are looked for, what is never asked twice, which failure is told, and the state that follows."""

import json
import re
import time
from collections.abc import Callable

import pytest
import trustme

from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.model.reading import State, TargetReading
from llm_serving_exporter.model.sample import FailureReason
from llm_serving_exporter.model.snapshot import EngineSnapshot, Snapshot
from llm_serving_exporter.model.target import HttpSettings, PodFault, PodState, Target
from llm_serving_exporter.settings.config import Config
from llm_serving_exporter.targets.host import TargetHost
from llm_serving_exporter.targets.page_source import (
    FIRST_RETRY_SECONDS,
    LONGEST_RETRY_SECONDS,
    SHORTEST_TIMEOUT_SECONDS,
    place_beside,
)
from llm_serving_exporter.targets.server import choose_failed_state, choose_good_state
from tests.support.builders.golden_cases import MADE
from tests.support.builders.lying_pages import Server
from tests.support.builders.recordings import page, recording
from tests.support.paths import TESTS
from tests.support.rows import check_rows
from tests.support.servers import faultbehaviours as fault
from tests.support.servers.driven_exporter import DrivenExporter
from tests.support.servers.faultserver import Behaviour, FaultServer
from tests.support.servers.llamacpp import BUSY, IDLE, routes, slots
from tests.support.servers.replica import UNIX_START, Answer, Replica, Routes, readings
from tests.support.servers.tls_replica import TlsReplica

# --- Where a page is looked for, what is never asked twice, and which failure is told


VLLM = page("vllm-0.32", 60)
TRTLLM = page("trtllm-050f80de", 160)
FORBIDDEN = (401, "application/json", b'{"error":"unauthorized"}')
LIST = (200, "application/json", b'[{"iter": 1, "iterLatencyMS": 3.5}]')


def test_a_page_at_its_usual_place_is_found_and_asked_for_there_ever_after() -> None:
    with Replica() as server:
        found = readings([{"/metrics": VLLM}] * 3, replica=server)
    assert [one.page.up for one in found] == [True] * 3
    assert server.asked.count("/prometheus/metrics") == 1
    assert server.asked.count("/metrics") == 3


def test_a_server_that_guards_unknown_paths_is_read_all_the_same() -> None:
    (found,) = readings([{"/metrics": VLLM, "/prometheus/metrics": FORBIDDEN}])
    assert (found.page.up, found.server.runtime) == (True, "vllm")


def test_a_guarded_page_is_told_before_one_that_is_not_there() -> None:
    (found,) = readings([{"/v1/metrics": FORBIDDEN}])
    assert found.page.last.reason is FailureReason.UNAUTHORIZED
    assert "/v1/metrics" in found.page.problem


def test_nothing_anywhere_is_told_of_the_usual_place() -> None:
    (found,) = readings([{}])
    assert (found.page.last.reason, found.page.last.status) == (FailureReason.STATUS, 404)
    assert "/metrics" in found.page.problem
    assert "/prometheus" not in found.page.problem


def test_json_that_is_emptied_by_reading_is_asked_for_once_at_most() -> None:
    """TensorRT-LLM without return_perf_metrics has only its JSON; a second reader would take the iterations away from the first."""
    with Replica() as server:
        found = readings([{"/metrics": LIST}] * 4, replica=server)
    assert all(one.page.last is not None and one.page.last.reason is FailureReason.CONTENT_TYPE for one in found)
    assert server.asked.count("/metrics") == 1
    for one in found:
        assert one.server.state is State.UNKNOWN
        assert "`return_perf_metrics: true`" in one.page.problem
        assert "`runtime: trtllm-json`" in one.page.problem


def test_an_outage_is_no_reason_to_read_the_json_again_before_ten_minutes_are_over() -> None:
    steps: list[Routes | None] = [{"/metrics": LIST}, None, {"/metrics": LIST}, None, None, *[{"/metrics": LIST}] * 5]
    with Replica() as server:
        readings(steps, replica=server, seconds=60.0)  # 60 to 600 s
        assert server.asked.count("/metrics") == 1
    with Replica() as server:
        # ticks at 300 s, 600 s …: asked at 300 s, and 600, 1200, 2400, 3600 s later
        readings([{"/metrics": LIST}] * 28, replica=server, seconds=300.0)
        assert server.asked.count("/metrics") == 5


def test_another_server_where_there_was_json_is_found() -> None:
    steps: list[Routes | None] = [{"/metrics": LIST}, None, *[{"/metrics": VLLM}] * 10]
    found = readings(steps, seconds=60.0)  # asked at 60 s, and again at 660 s
    assert [one.page.up for one in found] == [False] * 10 + [True] * 2
    assert found[-1].server.runtime == "vllm"
    # TensorRT-LLM with its page switched on is found at once
    (_, _, trtllm) = readings([{"/metrics": LIST}, None, {"/prometheus/metrics": TRTLLM, "/metrics": LIST}])
    assert (trtllm.page.up, trtllm.server.runtime) == (True, "trtllm")


def test_an_html_page_in_its_place_is_gone_with_the_next_tick() -> None:
    """A gateway's answer while the engine is away."""
    away = (200, "text/html", b"<html>back soon</html>")
    first, second = readings([{"/metrics": away, "/prometheus/metrics": away}, {"/metrics": VLLM}])
    assert first.page.last.reason is FailureReason.CONTENT_TYPE
    assert "TensorRT" not in first.page.problem
    assert second.page.up


@check_rows(
    ("body", "reason"),
    [
        ("", FailureReason.EMPTY),
        ("\n", FailureReason.EMPTY),
        ("# TYPE acme_total counter\nacme_total 3\n", FailureReason.UNKNOWN_RUNTIME),
        ("process_start_time_seconds 1.7e9\n", FailureReason.UNKNOWN_RUNTIME),
    ],
)
def test_a_page_at_tensorrt_llms_place_that_shows_nothing_keeps_its_json_from_being_read(
    body: str, reason: FailureReason
) -> None:
    idle: Routes = {"/prometheus/metrics": body, "/metrics": LIST}
    with Replica() as server:
        found = readings([idle, idle, {"/prometheus/metrics": TRTLLM, "/metrics": LIST}], replica=server)
        assert "/metrics" not in server.asked
    for one in found[:2]:
        assert (one.page.up, one.server.state) == (False, State.UNKNOWN)
        assert one.page.last.reason is reason
        assert "/prometheus/metrics" in one.page.problem
    assert (found[2].page.up, found[2].server.runtime) == (True, "trtllm")


@check_rows(
    "answer", [FORBIDDEN, (401, "text/plain", b""), (404, "text/plain", b""), (200, "text/html", b"<html>"), LIST]
)
def test_an_answer_that_is_no_page_at_tensorrt_llms_place_is_passed_by(answer: Answer) -> None:
    (found,) = readings([{"/prometheus/metrics": answer, "/metrics": VLLM}])
    assert (found.page.up, found.server.runtime) == (True, "vllm")


def test_an_empty_page_elsewhere_does_not_end_the_search() -> None:
    (found,) = readings([{"/metrics": "", "/v1/metrics": VLLM}])
    assert (found.page.up, found.server.runtime) == (True, "vllm")


def asked_for_lists(pages: list[str], seconds: float = 10.0) -> int:
    """How often a server with these pages that nobody knows was asked for the model list that could tell it."""
    with Replica() as server:
        readings([{"/metrics": page} for page in pages], replica=server, seconds=seconds)
        return server.asked.count("/models")


def test_an_unknown_page_is_looked_up_elsewhere_once_and_seldom_again() -> None:
    one, other = "acme_total 3\n", "acme_total 3\nanother_total 1\n"
    assert asked_for_lists([one] * 6) == 1  # 10 to 60 s
    assert asked_for_lists([one, "acme_total 4\n", *[one] * 4]) == 1  # other values are the same page
    # at 60 s, and 60, 120, 240, 480, 600, 600 s later
    assert asked_for_lists([one] * 38, seconds=60.0) == 7
    # another page is another question
    assert asked_for_lists([one, one, other, other]) == 2


def test_what_tells_the_runtime_later_is_seen() -> None:
    infinity = recording("infinity-0.0.78")
    late, models = infinity.pages[84], infinity.members["json/models-0084.json"]
    found = readings([*[{"/metrics": late}] * 3, *[{"/metrics": late, "/models": models}] * 5])
    assert [one.server.runtime for one in found] == [""] * 6 + ["infinity"] * 2


def test_tensorrt_llms_page_is_found_without_touching_its_json() -> None:
    with Replica() as server:
        (found,) = readings([{"/prometheus/metrics": TRTLLM, "/metrics": LIST}], replica=server)
    assert (found.page.up, found.server.runtime) == (True, "trtllm")
    assert "/metrics" not in server.asked


def test_a_page_that_was_found_is_looked_for_anew_when_another_server_has_the_address() -> None:
    """vLLM's /metrics is TensorRT-LLM's JSON, which is emptied by reading; NIM's page is elsewhere altogether."""
    nim = (MADE / "nim.prom").read_bytes()
    with Replica() as server:
        found = readings(
            [{"/metrics": VLLM}, {"/metrics": VLLM}, *[{"/metrics": LIST}] * 4, *[{"/v1/metrics": nim}] * 3],
            replica=server,
        )
        read = server.asked.count("/metrics")
    assert [one.page.up for one in found] == [True, True, False, False, False, False, True, True, True]
    # vLLM's twice, the JSON once where vLLM's page was and once in the search
    assert read == 4
    assert (found[-1].server.runtime, found[-1].server.restarts_total) == ("nim", 1)


def test_a_setting_that_does_not_fit_says_what_the_page_is() -> None:
    (found,) = readings([{"/metrics": VLLM}], runtime="sglang")
    assert "has nothing of SGLang (seen: a page of vLLM)" in found.page.problem


# --- servers that speak TLS ---------------------------------------------------------------------------------------


def read_secure(ticks: int, **target: object) -> tuple[list[TargetReading], TlsReplica]:
    """A server that speaks TLS alone, of which the URL says http, and its readings."""
    authority = trustme.CA()
    with (
        TlsReplica({"/metrics": VLLM, "/version": '{"version": "0.32.0"}'}, authority) as server,
        authority.cert_pem.tempfile() as ca_file,
    ):
        now = [0.0]
        host = TargetHost(Config(targets=()), monotonic=lambda: now[0], wall=lambda: UNIX_START + now[0])
        http = HttpSettings(ca_file=ca_file)
        hosted = host.add_target(Target("a", f"http://127.0.0.1:{server.port}", http=http, **target))
        found = []
        for _ in range(ticks):
            now[0] += 10.0
            found.append(hosted.tick())
            hosted.refresh_facts()
        host.close()
    return found, server


def test_a_url_that_says_http_is_told_to_say_https_and_nobody_is_down() -> None:
    (found,), _ = read_secure(1)
    assert (found.server.state, found.page.up) == (State.UNKNOWN, False)
    assert "speaks TLS, and is asked by plain HTTP; let the target's url begin with https://" in found.page.problem
    assert "crash" not in found.page.problem


def test_a_pod_whose_scheme_is_a_guess_is_asked_by_tls_once_it_shows_that_it_speaks_it() -> None:
    found, server = read_secure(3, may_speak_tls=True)
    assert [one.page.up for one in found] == [True] * 3
    assert found[-1].server.metrics_url == f"https://127.0.0.1:{server.port}/metrics"
    # what stands beside the page is asked in the same way
    assert found[-1].server.facts.version == "0.32.0"
    assert server.plain == 1


# --- a page alone that fails --------------------------------------------------------------------------------------

BROKEN = (500, "text/plain", b"Internal Server Error")


@check_rows(
    ("page", "health", "runtime"),
    [
        (BROKEN, "/health", None),
        (BROKEN, "/health", "vllm"),
        ((503, "text/html", b"<html>busy"), "/health", "sglang"),
        ((502, "text/html", b"<html>"), "/health", None),
        (BROKEN, "/health/liveliness", "litellm"),
        (BROKEN, "/v1/health/ready", "nim"),
    ],
)
def test_a_page_that_fails_is_no_engine_that_is_down(page: Answer, health: str, runtime: str | None) -> None:
    path = "/v1/metrics" if runtime == "nim" else "/metrics/" if runtime == "litellm" else "/metrics"
    with Replica() as server:
        found = readings([{path: page, health: b"{}"}] * 3, replica=server, runtime=runtime)
    for one in found:
        assert (one.server.state, one.page.up) == (State.UNKNOWN, False)
        assert one.page.last.reason is FailureReason.PAGE_FAILS
        assert f"{health} says that the server is well: its page alone fails" in one.page.problem
    # asked once before it is said, at each tick
    assert server.asked.count(health) == 3


@check_rows(
    ("page", "health", "state"),
    [
        (fault.silent(), fault.page(b"{}"), State.UNKNOWN),
        (fault.drip(b"a 1\n" * 99, interval_seconds=0.1), fault.page(b"{}"), State.UNKNOWN),
        (fault.status(529, b"busy"), fault.page(b"{}"), State.UNKNOWN),
        (fault.silent(), fault.silent(), State.DOWN),
        (fault.silent(), fault.status(503, b"dead"), State.DOWN),
    ],
)
def test_a_page_that_hangs_is_asked_about_in_the_time_that_is_left_of_the_interval(
    page: Behaviour, health: Behaviour, state: State
) -> None:
    with FaultServer({"/metrics": page, "/health": health}) as server:
        host = TargetHost(Config(targets=()), monotonic=time.monotonic, wall=time.time)
        target = Target("a", server.url, runtime="vllm", interval_seconds=2.0, http=HttpSettings(timeout_seconds=0.5))
        found = host.add_target(target).tick()
        host.close()
    assert found.server.state is state
    assert (found.page.last.reason is FailureReason.PAGE_FAILS) == (state is State.UNKNOWN)


@check_rows("health", [None, (503, "application/json", b"{}"), BROKEN])
def test_a_server_that_is_not_well_either_is_down(health: Answer | None) -> None:
    routes: dict[str, Answer] = {"/metrics": BROKEN} | ({"/health": health} if health is not None else {})
    (found,) = readings([routes])
    assert (found.server.state, found.page.last.reason) == (State.DOWN, FailureReason.STATUS)


def test_a_page_that_is_well_again_goes_on() -> None:
    found = readings([{"/metrics": VLLM}, {"/metrics": BROKEN, "/health": b""}, {"/metrics": VLLM}])
    assert [one.server.state for one in found] == [State.READY, State.UNKNOWN, State.READY]


def test_a_pod_that_crashes_is_down_whatever_its_page_says() -> None:
    for of_pod, state in ((None, State.UNKNOWN), (PodFault.CRASH_LOOP, State.DOWN)):
        pod = PodState(fault=of_pod)
        assert choose_failed_state(FailureReason.PAGE_FAILS, 500, pod, 0.0) is state


# --- Where an endpoint stands beside a metrics page, and how long it may take


VLLM_TABLE = RUNTIMES["vllm"]


@check_rows(
    ("page", "endpoint", "expected"),
    [
        ("/metrics", "/version", "/version"),
        ("/vllm/metrics", "/version", "/vllm/version"),
        ("/metrics?model=a", "/version", "/version?model=a"),
        ("/metrics", "/server_info?config_format=json", "/server_info?config_format=json"),
        ("/metrics?model=a", "/server_info?config_format=json", "/server_info?config_format=json&model=a"),
    ],
)
def test_an_endpoint_has_the_prefix_and_the_query_of_the_page(page: str, endpoint: str, expected: str) -> None:
    assert place_beside(VLLM_TABLE, page, endpoint) == expected


@pytest.mark.parametrize(
    ("page_seconds", "endpoint_seconds"), [(4.0, 1.0), (2.0, 2.0), (5.0, SHORTEST_TIMEOUT_SECONDS)]
)
def test_an_endpoint_may_take_what_the_interval_leaves_beside_the_page(
    page_seconds: float, endpoint_seconds: float
) -> None:
    server = Server({"/metrics": recording("vllm-0.32-mfu").pages[20]})
    given: set[float] = set()

    def connect(base_url: str, settings: HttpSettings, **clocks: Callable[[], float]) -> object:
        given.add(settings.timeout_seconds)
        return server.connect(base_url, settings, **clocks)

    http = HttpSettings(timeout_seconds=page_seconds)
    with DrivenExporter("http://one", connect=connect, interval_seconds=5.0, http=http) as exporter:
        exporter.tick()
        exporter.tick()
    assert given == {page_seconds, endpoint_seconds}


# --- Endpoints asked at each tick: what a refusal means for the next ticks


PAGE = (TESTS / "made" / "lightllm.prom").read_bytes()
LOAD = "/token_load"
# the busy page with nothing running any more
RESTING = re.sub(r"(?m)^llamacpp:requests_processing .*$", "llamacpp:requests_processing 0", BUSY)


def steps(answer: Answer, ticks: int) -> list[Routes | None]:
    return [{"/metrics": PAGE, LOAD: answer}] * ticks


@check_rows("status", [408, 429, 500, 502, 503, 504])
def test_a_server_that_is_busy_is_asked_again_at_once(status: int) -> None:
    with Replica() as server:
        found = readings(steps((status, "text/plain", b"busy"), 4), replica=server)
        assert server.asked.count(LOAD) == 4
    assert all(one.page.up for one in found)


@check_rows("status", [400, 401, 403, 404, 405, 410, 501])
def test_a_refusal_for_good_is_tried_again_after_a_minute_then_ever_more_seldom(status: int) -> None:
    assert (FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS) == (60.0, 600.0)
    with Replica() as server:
        # ticks at 60, 120 … 2280 s: asked at 60, and 60, 120, 240, 480, 600, 600 s later
        readings(steps((status, "application/json", b"{}"), 38), replica=server, seconds=60.0)
        assert server.asked.count(LOAD) == 7


def test_what_is_switched_on_later_is_seen_and_asked_at_each_tick_from_then_on() -> None:
    off, on = (404, "application/json", b"{}"), json.dumps({"current_load": 0.25})
    with Replica() as server:
        found = readings([*steps(off, 3), *steps(on, 7)], replica=server)
        assert server.asked.count(LOAD) == 1 + 4  # at 10 s, then from 70 s on
        usage = [one.page.snapshot.engines[0].kv_cache_usage_ratio for one in found if one.page.snapshot is not None]
        assert usage == [None] * 6 + [0.25] * 4
        # a refusal after that is the first again
        server.asked.clear()
        readings([*steps(off, 2), *steps(on, 2), *steps(off, 3)], replica=server, seconds=60.0)
        assert server.asked.count(LOAD) == 2 + 1 + 2  # at 60, 120, 240 s; then at 300, 360 s, not at 420 s


def test_a_server_at_rest_that_refused_is_not_taken_to_have_the_endpoint() -> None:
    off = (501, "application/json", b'{"error":{"code":501}}')
    found = readings([routes(BUSY, off), *[routes(RESTING, off)] * 8], runtime="llamacpp")
    assert [one.server.restarts_total for one in found] == [0] * 9
    for one in found[1:]:
        assert one.page.snapshot.engines[0].kv_cache_usage_ratio is None
        assert one.page.snapshot.engines[0].decode_tokens_live is None


def test_a_server_at_rest_says_what_it_had_last() -> None:
    said = json.dumps(slots(60))
    *_, last = readings([routes(BUSY, said), routes(RESTING, said)], runtime="llamacpp")
    assert last.page.snapshot.engines[0].kv_cache_usage_ratio == 0.0


def test_a_page_that_does_not_say_whether_the_server_works_says_nothing_of_its_cache() -> None:
    said = json.dumps(slots(60))
    unsaid = re.sub(r"(?m)^llamacpp:requests_processing .*\n", "", BUSY)
    with Replica() as server:
        *_, last = readings([routes(BUSY, said), routes(unsaid, said)], runtime="llamacpp", replica=server)
        assert server.asked.count("/slots") == 1
    assert last.page.snapshot.engines[0].kv_cache_usage_ratio is None


def test_a_server_that_came_back_is_not_taken_to_have_the_old_ones_cache() -> None:
    said = json.dumps(slots(60))
    steps = [routes(BUSY, said), routes(IDLE, said), routes(IDLE, said)]
    found = readings(steps, runtime="llamacpp")
    assert [one.server.restarts_total for one in found] == [0, 1, 1]
    engines = [one.page.snapshot.engines[0] for one in found if one.page.snapshot]
    # on the tick of the restart too
    assert [bool(one.kv_cache_capacity_tokens) for one in engines] == [True, False, False]


def test_a_server_that_came_back_without_slots_has_rates_from_its_first_tick_on() -> None:
    """A refusal before the restart was seen counts like one after it: tokens under way are counted on all its pages or on none."""
    working = re.sub(r"(?m)^(llamacpp:requests_processing) .*$", r"\1 1", IDLE)
    pages = [{"/metrics": page} for page in (BUSY, working, IDLE, IDLE)]
    *_, last = readings(pages, runtime="llamacpp")
    assert last.server.restarts_total == 1
    assert last.page.derived.engines[0].phase_tokens_per_second["decode"] == 0.0


# --- What a target is doing, by its last attempt and by its pod


START = 1_700_000_000.0
NEW = PodState(loading_since_seconds=START, loading_limit_seconds=600.0)
SERVED = PodState(was_ready=True, loading_since_seconds=START, loading_limit_seconds=600.0)
CRASHING = PodState(loading_since_seconds=START, fault=PodFault.CRASH_LOOP)
LOST = PodState(was_ready=True, loading_since_seconds=START, fault=PodFault.NODE_LOST)
REFUSED, LOADING, STATUS = FailureReason.REFUSED, FailureReason.LOADING, FailureReason.STATUS


@check_rows(
    ("pod", "reason", "status", "state"),
    [
        # without Kubernetes the page alone decides
        (None, REFUSED, None, State.DOWN),
        (None, LOADING, 503, State.LOADING),
        (None, STATUS, 500, State.DOWN),
        (None, STATUS, 404, State.UNKNOWN),
        (None, FailureReason.MALFORMED, 200, State.UNKNOWN),
        # before it was Ready for the first time
        (NEW, REFUSED, None, State.LOADING),
        (NEW, FailureReason.TIMEOUT, None, State.LOADING),
        (NEW, LOADING, 503, State.LOADING),
        (NEW, STATUS, 503, State.LOADING),
        (NEW, STATUS, 404, State.UNKNOWN),
        (NEW, FailureReason.UNKNOWN_RUNTIME, 200, State.UNKNOWN),
        # afterwards
        (SERVED, REFUSED, None, State.DOWN),
        (SERVED, LOADING, 503, State.DOWN),
        (SERVED, FailureReason.UNAUTHORIZED, 401, State.UNKNOWN),
        # Kubernetes knows better, whoever answers at the address
        (CRASHING, REFUSED, None, State.DOWN),
        (CRASHING, LOADING, 503, State.DOWN),
        (LOST, FailureReason.TIMEOUT, None, State.DOWN),
        (LOST, FailureReason.UNAUTHORIZED, 401, State.DOWN),
    ],
)
def test_the_state_of_a_target_that_could_not_be_read(
    pod: PodState | None, reason: FailureReason, status: int | None, state: State
) -> None:
    assert choose_failed_state(reason, status, pod, START + 600) is state


def test_loading_has_a_limit() -> None:
    assert choose_failed_state(REFUSED, None, NEW, START + 601) is State.DOWN
    assert choose_failed_state(LOADING, 503, NEW, START + 601) is State.DOWN


def test_a_good_page_is_believed_whatever_kubernetes_says_of_the_pod() -> None:
    awake, asleep = (Snapshot((EngineSnapshot("m", "0", awake=awake),), "vllm", START, 1.0) for awake in (1.0, 0.0))
    for pod in (None, NEW, SERVED, CRASHING, LOST):
        assert choose_good_state(awake, pod) is State.READY
        assert choose_good_state(asleep, pod) is State.SLEEPING
    # but for a replica that has lost a part of itself, which its leader's page does not show
    assert choose_good_state(awake, PodState(was_ready=True, fault=PodFault.WORKER_LOST)) is State.DOWN
