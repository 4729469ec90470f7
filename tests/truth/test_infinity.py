"""What the exporter reads from a real Infinity server, model list included, against what the load client counted (groundtruth.json)."""

from typing import Any

import pytest

from llm_serving_exporter.model.snapshot import EngineSnapshot
from tests.support.builders.recordings import recording
from tests.support.servers.replica import Routes, readings

RUN = recording("infinity-0.0.78")


def answers(number: int) -> Routes:
    return {"/metrics": RUN.pages[number], "/models": RUN.members[f"json/models-{number:04}.json"]}


@pytest.fixture(scope="module")
def engines() -> dict[int, EngineSnapshot]:
    found = {}
    for number, one in zip(RUN.pages, readings([answers(number) for number in RUN.pages]), strict=True):
        assert one.page.snapshot is not None, one.page.problem
        assert one.server.runtime == "infinity"
        (found[number],) = one.page.snapshot.engines
    return found


def client(phase: str) -> dict[str, Any]:
    truth: dict[str, Any] = RUN.json("groundtruth.json")[phase]["truth"]
    return truth


def test_every_answer_of_the_run_is_counted_and_no_scrape(engines: dict[int, EngineSnapshot]) -> None:
    completed = sum(client(phase).get("completed", 0) for phase in RUN.json("groundtruth.json"))
    given_up = client("p4_timeouts")["client_timeout_abort"]
    assert (completed, given_up) == (1632, 268)
    last = engines[208]
    # the server answered those that nobody waited for any more, too
    assert last.http_responses_total == {"2xx": completed + given_up, "4xx": client("p5_errors")["http_422"]}
    assert last.requests_finished_total == {"success": 1900}
    assert last.e2e_request_latency_seconds.count == 1900 + 6  # refused ones have a duration too


def test_phases_in_which_nobody_gives_up_are_exact(engines: dict[int, EngineSnapshot]) -> None:
    first, second = client("p1_single")["completed"], client("p2_batch32")["completed"]
    assert engines[4].http_responses_total is None
    assert engines[20].http_responses_total == {"2xx": first} == {"2xx": 1524}
    assert engines[36].http_responses_total == {"2xx": first + second + 1}  # the first of p3 is answered


def test_nothing_is_there_before_the_first_request(engines: dict[int, EngineSnapshot]) -> None:
    assert engines[0].http_responses_total is None
    assert engines[0].requests_finished_total is None
    assert engines[0].e2e_request_latency_seconds is None
    assert (engines[0].requests_waiting, engines[0].batch_limit_requests) == (0, 16)
    assert engines[0].model_name == "minilm"


def test_quiet_counters_are_not_an_idle_server(engines: dict[int, EngineSnapshot]) -> None:
    """After 268 requests that nobody waits for any more, 3649 inputs are left; the next answer took 111.6 s."""
    assert engines[36].requests_waiting == 384  # p3: 40 requests of 16 inputs
    waiting = [engines[number].requests_waiting for number in (84, 100, 120, 160, 192, 196, 208)]
    assert waiting == [3649, 3009, 2753, 1217, 65, 0, 0]
    assert client("p5_errors")["completed"] == 3
