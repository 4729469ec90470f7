"""The fleet over HTTP: doors that open and shut, control, and time that runs faster."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request

import pytest

from llm_serving_exporter.errors import ListenError
from llm_serving_simulator.fleet.server import FleetServer, ScaledClock
from tests.support.builders.simfleet import HandClock, small_fleet
from tests.support.rows import check_rows
from tests.support.waiting import PATIENCE_SECONDS, wait_until


def get(url: str, data: bytes | None = None) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(url, data=data, timeout=PATIENCE_SECONDS) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def refused(url: str) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=PATIENCE_SECONDS):
            return False
    except ConnectionRefusedError:
        return True


def test_a_lost_nodes_port_refuses_and_a_loading_replica_says_so() -> None:
    clock = HandClock()
    with FleetServer(small_fleet(2), clock=clock) as server:
        url = server.url("r0")
        assert get(f"{url}/metrics")[0] == 200
        assert get(f"{server.control_url}/nodes/n0/lose", b"")[0] == 200
        assert refused(url)
        assert get(f"{server.url('r1')}/health")[0] == 200
        clock.seconds = 10.0
        assert get(f"{server.control_url}/nodes/n0/return", b"")[0] == 200
        assert not refused(url)
        status, body = get(f"{url}/metrics")
        assert (status, b"loading" in body) == (503, True)
        assert get(f"{url}/health")[0] == 503
        clock.seconds = 40.0
        status, body = get(f"{url}/metrics")
        assert status == 200
        assert b"process_start_time_seconds 1.80000001e+09" in body


def test_a_hung_engine_answers_and_its_counters_stand_still() -> None:
    clock = HandClock()
    with FleetServer(small_fleet(), clock=clock) as server:
        url = f"{server.url('r0')}/metrics"
        clock.seconds = 60.0
        assert get(f"{server.control_url}/replicas/r0/hang", b"")[0] == 200

        def tokens() -> bytes:
            return next(line for line in get(url)[1].splitlines() if line.startswith(b"vllm:generation_tokens_total"))

        before = tokens()
        clock.seconds = 120.0
        assert tokens() == before
        assert get(f"{server.url('r0')}/health")[0] == 200
        assert get(f"{server.control_url}/replicas/r0/resume", b"")[0] == 200
        clock.seconds = 130.0
        assert tokens() != before


def test_control_tells_the_fleet_and_its_truth() -> None:
    clock = HandClock()
    fleet = small_fleet(2)
    with FleetServer(fleet, clock=clock) as server:
        clock.seconds = 100.0
        said = json.loads(get(f"{server.control_url}/fleet")[1])
        assert said["seconds"] == 100.0
        assert [(one["name"], one["url"], one["nodes"], one["state"]) for one in said["replicas"]] == [
            ("r0", server.url("r0"), ["n0"], "ready"),
            ("r1", server.url("r1"), ["n1"], "ready"),
        ]
        truth = json.loads(get(f"{server.control_url}/truth?begin=0&end=100")[1])
        assert truth["decode_tokens"] == fleet.truth(0.0, 100.0).decode_tokens > 0
        assert truth["ttft_seconds"]["count"] == truth["counts"]["first_tokens"]


@check_rows(
    ("method", "path", "status", "says"),
    [
        ("POST", "/nodes/n9/lose", 404, "there is no 'n9' here"),
        ("POST", "/replicas/x/hang", 404, "there is no 'x' here"),
        ("POST", "/nodes/n0/eat", 404, "lose|return"),
        ("POST", "/slow/0", 400, "above 0"),
        ("POST", "/errors/1.5", 400, "from 0 to 1"),
        ("POST", "/errors/x", 400, "'x' is not a number"),
        ("GET", "/truth?begin=nan", 400, "'nan' is not a number"),
        ("GET", "/", 404, "GET /fleet or GET /truth"),
    ],
)
def test_what_cannot_be_done_is_said(method: str, path: str, status: int, says: str) -> None:
    with FleetServer(small_fleet(), clock=HandClock()) as server:
        found, body = get(server.control_url + path, b"" if method == "POST" else None)
        assert found == status
        assert says in json.loads(body)["error"]


def test_a_fleet_runs_by_itself_at_its_speed() -> None:
    with FleetServer(small_fleet(), speed=200.0) as server:
        wait_until(lambda: server.fleet.now_seconds > 100.0, "the hundredth second")
        assert server.fleet.totals().counts.finished > 50


def test_the_clock_runs_so_many_times_as_fast() -> None:
    now = [50.0]
    clock = ScaledClock(30.0, 1000.0, 0.0, lambda: now[0])
    now[0] = 52.0
    assert (clock.monotonic(), clock.wall()) == (60.0, 1060.0)
    with pytest.raises(ValueError, match="above 0"):
        ScaledClock(0.0)


def test_a_taken_port_is_an_error_and_leaves_nothing_behind() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ListenError, match=rf"127\.0\.0\.1:{port}: the port is already in use .* with --port$"):
            FleetServer(small_fleet(), first_port=port)
        with pytest.raises(ListenError, match=rf"127\.0\.0\.1:{port}: .* with --control-port$"):
            FleetServer(small_fleet(), control_port=port)
        with pytest.raises(ListenError, match=r"127\.0\.0\.1:65536: ports end at 65535; .* with --port$"):
            FleetServer(small_fleet(2), first_port=65535)
