"""The replay over real sockets: its timeline on a clock of ours, its answers as the recorded server gave them."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator

import pytest

from llm_serving_simulator.replay import Position, ReplayServer, Timeline, demo_recording, split_address
from tests.support.builders.recordings import page, recording
from tests.support.rows import check_rows
from tests.support.servers.stepped import SteppedServer
from tests.support.waiting import PATIENCE_SECONDS


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def stepped() -> Iterator[SteppedServer]:
    with SteppedServer(recording("vllm-0.32")) as server:
        yield server


def get(server: ReplayServer, path: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_SECONDS)
    try:
        connection.request(method, path, headers={"Accept": "application/openmetrics-text", "Accept-Encoding": "gzip"})
        answer = connection.getresponse()
        return answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def test_metrics_are_answered_as_vllm_does_whatever_is_accepted(stepped: SteppedServer) -> None:
    stepped.show(60)
    status, headers, body = get(stepped, "/metrics?name[]=up")
    assert (status, body) == (200, page("vllm-0.32", 60))
    assert headers["content-type"] == "text/plain; version=1.0.0; charset=utf-8"
    assert headers["content-length"] == str(len(body))
    assert headers["server"] == "uvicorn"
    assert "content-encoding" not in headers


def test_side_endpoints(stepped: SteppedServer) -> None:
    assert get(stepped, "/version")[::2] == (200, b'{"version":"0.32.0"}')
    assert b'"max_model_len":2048' in get(stepped, "/v1/models")[2]
    assert get(stepped, "/health")[::2] == (200, b"")
    assert get(stepped, "/nothing-here")[::2] == (404, b'{"detail":"Not Found"}')
    assert get(stepped, "/metrics", method="POST")[0] == 501


def test_stepping(stepped: SteppedServer) -> None:
    assert get(stepped, "/metrics")[2] == page("vllm-0.32", 0)
    stepped.show(7)
    assert get(stepped, "/metrics")[2] == get(stepped, "/metrics")[2] == page("vllm-0.32", 7)
    with pytest.raises(KeyError):
        stepped.show(221)


def test_advancing_moves_one_page_a_get_and_stays_on_the_last() -> None:
    with SteppedServer(recording("vllm-0.32-restart"), advance=True) as server:
        server.show(22)
        shown = [get(server, "/metrics")[2] for _ in range(3)]
        assert shown == [page("vllm-0.32-restart", number) for number in (22, 72, 73)]
        server.show(102)
        assert get(server, "/metrics")[2] == get(server, "/metrics")[2] == page("vllm-0.32-restart", 102)


def test_a_connection_serves_many_requests_and_closing_ends_it() -> None:
    server = SteppedServer(recording("vllm-0.32"))
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_SECONDS)
    for number in (1, 2, 3):
        server.show(number)
        connection.request("GET", "/metrics")
        assert connection.getresponse().read() == page("vllm-0.32", number)
    threads_before = threading.active_count()
    server.close()
    assert threading.active_count() == threads_before - 2, "the listener and the connection's thread"
    assert connection.sock is not None
    assert connection.sock.recv(1) == b""
    connection.close()


def test_a_client_that_hangs_up_harms_nothing(stepped: SteppedServer) -> None:
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", stepped.port)) as client:
            client.sendall(b"GET /metrics HTTP/1.1\r\n")
    assert get(stepped, "/metrics")[0] == 200


def test_a_taken_port_is_an_oserror(stepped: SteppedServer) -> None:
    with pytest.raises(OSError, match="in use"):
        SteppedServer(recording("vllm-0.32"), port=stepped.port)


def test_timeline_shows_the_page_recorded_at_or_before_the_moment() -> None:
    clock, run = Clock(), recording("vllm-0.32")
    timeline = Timeline(run, clock)
    times = run.timestamps
    assert timeline.position() == Position(0, 0, 0.0)
    for number in (1, 59, 220):
        clock.now = 1000.0 + times[number] - times[0] + 1e-6
        assert timeline.position().page_number == number
        assert timeline.body() == run.pages[number]
        clock.now -= 2e-6
        assert timeline.position().page_number == number - 1


def test_timeline_goes_round_with_counters_going_on() -> None:
    clock = Clock()
    timeline = Timeline(recording("vllm-0.32"), clock)
    assert timeline.round_seconds == pytest.approx(221, abs=0.01)
    clock.now += timeline.round_seconds - 0.01
    last = counter(timeline.body())
    assert timeline.position().page_number == 220
    clock.now += 0.02
    assert (timeline.position().round_number, timeline.position().page_number) == (1, 0)
    assert counter(timeline.body()) == last
    clock.now += 100
    assert counter(timeline.body()) > last
    clock.now = 0.0
    assert timeline.position() == Position(0, 0, 0.0), "a clock before the start is the start"


def test_speed_shortens_the_round() -> None:
    clock = Clock()
    timeline = Timeline(recording("vllm-0.32"), clock, speed=10.0)
    clock.now += timeline.round_seconds / 10 + 0.01
    assert timeline.position().round_number == 1


def test_page_seconds_cover_the_round() -> None:
    timeline = Timeline(recording("vllm-0.32"), Clock())
    seconds = timeline.page_seconds()
    assert [number for number, _ in seconds] == list(range(221))
    assert sum(length for _, length in seconds) == pytest.approx(timeline.round_seconds)
    assert min(length for _, length in seconds) > 0.5


def test_pages_without_their_times_are_no_timeline() -> None:
    with pytest.raises(ValueError, match=r"others\.tar\.xz: a timeline needs two pages and when each was recorded"):
        Timeline(recording("vllm-logger-0.10.2-v1"), Clock())


@pytest.mark.parametrize(
    ("text", "address"),
    [("127.0.0.1:0", ("127.0.0.1", 0)), (":8000", ("127.0.0.1", 8000)), ("[::1]:80", ("::1", 80))],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert split_address(text) == address


@check_rows("text", ["8000", "host", "host:", "host:x", "host:70000", ""])
def test_bad_addresses(text: str) -> None:
    with pytest.raises(ValueError, match="not host:port"):
        split_address(text)


@pytest.mark.process
@pytest.mark.seam("replay")
def test_as_a_program_it_prints_its_url_and_ends_on_sigterm() -> None:
    command = [sys.executable, "-m", "llm_serving_simulator.replay", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            with urllib.request.urlopen(f"{url}/metrics", timeout=PATIENCE_SECONDS) as answer:
                assert answer.read() == demo_recording().pages[0]
            os.kill(process.pid, signal.SIGTERM)
            assert process.wait(timeout=PATIENCE_SECONDS) == 0
        finally:
            process.terminate()  # nothing where it has ended


def counter(body: bytes) -> float:
    line = next(line for line in body.splitlines() if line.startswith(b"vllm:generation_tokens_total{"))
    return float(line.split()[-1])
