"""Crowds of strangers: whoever asks for a page and takes it is answered beside them."""

import contextlib
import logging
import socket
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from llm_serving_exporter.model.record import replace
from llm_serving_exporter.web.crowd import TOLD_EVERY_SECONDS, Reason, Refusals
from llm_serving_exporter.web.exchange import Response
from llm_serving_exporter.web.server import Limits, WebServer
from llm_serving_exporter.web.workers import PasswordLane, Waiting, Workers
from tests.support.rows import check_rows
from tests.support.servers.webaccess import HASH, write
from tests.support.servers.webclient import ask, client, connect
from tests.support.waiting import PATIENCE_SECONDS, wait_until

CROWD = 40
PASSWORD = "correct horse"
LIMITS = Limits(
    connections=16,
    refusals=2,
    idle_seconds=PATIENCE_SECONDS,
    head_seconds=PATIENCE_SECONDS,
    write_seconds=PATIENCE_SECONDS,
)


@contextmanager
def crowd(server: WebServer, data: bytes, *, own_address: bool) -> Iterator[list[socket.socket]]:
    """Connections that send this and no more."""
    parts = urlsplit(server.url)
    made = []
    try:
        for number in range(CROWD):
            source = socket.socket()
            source.settimeout(PATIENCE_SECONDS)
            made.append(source)
            source.bind(("127.0.0.1" if own_address else f"127.0.0.{2 + number % 20}", 0))
            with contextlib.suppress(ConnectionError):
                source.connect((parts.hostname, parts.port))
                source.sendall(data)
        yield made
    finally:
        for source in made:
            source.close()


@pytest.mark.parametrize("own_address", [False, True], ids=["others", "own address"])
@pytest.mark.parametrize(
    "data", [b"", b"GET / HT", b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n"], ids=["mute", "slow", "do not read"]
)
def test_a_scrape_is_answered_beside_a_crowd(make_server, data: bytes, own_address: bool) -> None:
    big = Response(200, "text/plain", b"x" * 8_000_000)
    routes = {"/big": {"GET": lambda _request: big}, "/": {"GET": lambda _request: Response(200, "text/plain", b"ok")}}
    server = make_server(routes=routes, limits=LIMITS)
    kept = client(server)
    try:
        with crowd(server, data, own_address=own_address):
            for _ in range(3):
                assert ask(server, "/")[1] == b"ok"
                kept.request("GET", "/")
                assert kept.getresponse().read() == b"ok"
    finally:
        kept.close()


def test_a_page_larger_than_all_that_may_be_unread_is_read_whole(make_server) -> None:
    big = Response(200, "text/plain", b"x" * 8_000_000)
    routes = {"/big": {"GET": lambda _request: big}}
    server = make_server(routes=routes, limits=replace(LIMITS, unread_bytes=1_000_000))
    for _ in range(2):
        assert ask(server, "/big")[1] == big.body
    with crowd(server, b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n", own_address=False):
        wait_until(lambda: sum(server.refusals.counts().values()) == CROWD - 1, "all but the last to be cut")
        assert ask(server, "/big")[1] == big.body
    assert server.refusals.counts()["unread"] > 0


def test_a_kept_connection_that_was_answered_stays_while_strangers_make_room(make_server) -> None:
    server = make_server(limits=LIMITS)
    kept = client(server)
    try:
        kept.request("GET", "/")
        kept.getresponse().read()
        port = kept.sock.getsockname()[1]
        with crowd(server, b"GET", own_address=False):
            time.sleep(1.1)  # those who have just come are given a moment
            with crowd(server, b"GET", own_address=False):
                kept.request("GET", "/")
                assert kept.getresponse().status == 200
                assert kept.sock.getsockname()[1] == port
        assert server.refusals.counts()["made_room"] > 0
    finally:
        kept.close()


@pytest.mark.parametrize("own_address", [False, True], ids=["others", "own address"])
def test_who_knows_the_password_does_not_wait_for_those_who_guess(
    make_server, tmp_path, monkeypatch, own_address
) -> None:
    checked, release = threading.Semaphore(0), threading.Event()

    def slow(password: bytes, expected: str) -> bool:
        checked.release()
        if password != PASSWORD.encode():
            release.wait(PATIENCE_SECONDS)
        return password == PASSWORD.encode()

    monkeypatch.setattr("llm_serving_exporter.web.guard._matches", slow)
    server = make_server(config_file=write(tmp_path, f"basic_auth_users: {{alice: {HASH}}}"), limits=LIMITS)

    def basic(word: str) -> str:
        return f"Basic {b64encode(f'alice:{word}'.encode()).decode()}"

    assert ask(server, "/", Authorization=basic(PASSWORD))[0].status == 200
    with crowd(server, b"", own_address=own_address) as guessers:
        for number, source in enumerate(guessers):
            with contextlib.suppress(OSError):
                source.sendall(
                    f"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: {basic(f'guess {number}')}\r\n\r\n".encode()
                )
        assert checked.acquire(timeout=PATIENCE_SECONDS)
        for _ in range(3):
            assert ask(server, "/", Authorization=basic(PASSWORD))[0].status == 200
        release.set()
    assert ask(server, "/", Authorization=basic("guess 0"))[0].status == 401
    assert server.refusals.counts()["denied"] > 0


def test_of_too_many_who_wait_for_a_check_one_of_the_crowd_is_refused() -> None:
    log = logging.getLogger("test")
    workers, blocked, begun = Workers(1, 100, "web-test", log), threading.Event(), threading.Event()
    lane, done, lock = PasswordLane(workers, 4), [], threading.Lock()

    def note(what: str) -> None:
        with lock:
            done.append(what)

    def hold() -> None:
        begun.set()
        blocked.wait(PATIENCE_SECONDS)

    lane.submit("first", Waiting(hold, lambda: note("never")))
    assert begun.wait(PATIENCE_SECONDS)
    for number in range(8):
        lane.submit("crowd", Waiting(lambda number=number: note(f"crowd {number}"), lambda: note("refused")))
    lane.submit("alone", Waiting(lambda: note("alone"), lambda: note("alone refused")))
    assert done == ["refused"] * 5
    blocked.set()
    wait_until(lambda: len(done) == 9, "all of them")
    # after one of the crowd at most
    assert "alone" in done[5:7]
    for thread in workers.stop():
        thread.join(PATIENCE_SECONDS)


def test_refusals_are_counted_and_told_once_a_minute(caplog) -> None:
    now = [0.0]
    caplog.set_level(logging.WARNING)
    refusals = Refusals(logging.getLogger("test"), lambda: now[0])
    for number in range(1000):
        refusals.add(Reason.SLOW, f"192.0.2.{number % 3}")
    assert len(caplog.records) == 1
    now[0] += TOLD_EVERY_SECONDS
    refusals.add(Reason.CROWDED, "192.0.2.0")
    assert len(caplog.records) == 2
    assert "999 slow, 1 crowded" in caplog.text
    assert refusals.counts() == {**dict.fromkeys((reason.value for reason in Reason), 0), "slow": 1000, "crowded": 1}


@check_rows(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/", {}, 200),
        ("POST", "/-/reload", {}, 200),
        # somebody opens the page
        ("GET", "/", {"Sec_Fetch_Site": "none", "Sec_Fetch_Dest": "document"}, 200),
        ("GET", "/", {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Dest": "document", "Sec_Fetch_Mode": "navigate"}, 200),
        # a form of another site, a script of one, and a script of a site whose name points here
        ("POST", "/-/reload", {"Origin": "https://elsewhere.example", "Sec_Fetch_Site": "cross-site"}, 403),
        ("POST", "/-/reload", {"Origin": "null"}, 403),
        ("PUT", "/-/reload", {"Sec_Fetch_Site": "same-origin", "Sec_Fetch_Dest": "empty"}, 403),
        ("GET", "/", {"Sec_Fetch_Site": "same-origin", "Sec_Fetch_Dest": "empty"}, 403),
        ("GET", "/", {"Origin": "https://elsewhere.example"}, 403),
    ],
    shared=["make_server"],
)
def test_scripts_and_forms_of_other_sites_get_nothing(make_server, method, path, headers, status) -> None:
    server = make_server()
    assert ask(server, path, method, **headers)[0].status == status
    assert server.refusals.counts()["browser"] == (status == 403)


def test_threads_that_answer_are_gone_a_moment_after(make_server) -> None:
    server = make_server()
    with connect(server):
        ask(server, "/")
        wait_until(lambda: not [one for one in threading.enumerate() if one.name == "web-connection"], "no thread left")
