"""Nobody can hold the web server up, and it stops when told."""

import threading
from urllib.parse import urlsplit

import pytest

from llm_serving_exporter.settings.config import WebConfig
from llm_serving_exporter.web.exchange import Request, Response
from llm_serving_exporter.web.server import Limits, WebServer
from tests.support.servers.webclient import ask, client, connect, raw, status_of, until_closed
from tests.support.waiting import PATIENCE_SECONDS, wait_until

# --- that nobody can hold it up -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "start", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\n"], ids=["silent", "in the line", "in the headers"]
)
def test_a_client_that_does_not_finish_its_request_is_closed(make_server, start):
    server = make_server(limits=Limits(head_seconds=0.2, idle_seconds=0.2))
    assert raw(server, start) == b""


def test_a_client_that_drips_is_closed_at_the_deadline_of_the_whole_request(make_server):
    server = make_server(limits=Limits(head_seconds=0.3))
    stop = threading.Event()
    with connect(server) as source:
        source.sendall(b"GET / HTTP/1.1\r\n")

        def drip() -> None:
            while not stop.wait(0.05):
                try:
                    source.sendall(b"A: b\r\n")
                except OSError:
                    return

        dripper = threading.Thread(target=drip)
        dripper.start()
        try:
            assert until_closed(source) == b""
        finally:
            stop.set()
            dripper.join()


def test_a_client_that_does_not_read_its_answer_is_closed(make_server):
    huge = b"x" * 50_000_000
    asked = threading.Event()

    def answer(_request: Request) -> Response:
        asked.set()
        return Response(200, "text/plain", huge)

    server = make_server(routes={"/": {"GET": answer}}, limits=Limits(write_seconds=0.3))
    # whatever else this process runs, and the acceptor
    before = threading.active_count()
    with connect(server) as source:
        source.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_until(asked.is_set, "the request")
        wait_until(lambda: threading.active_count() <= before, "the connection's thread to give up")
        assert len(until_closed(source)) < len(huge)


def busy_server(make_server, **limits: int) -> tuple[WebServer, threading.Event, threading.Semaphore]:
    """A server whose page /slow waits for the event; the semaphore counts requests that are in it."""
    release, inside = threading.Event(), threading.Semaphore(0)

    def slow(_request: Request) -> Response:
        inside.release()
        assert release.wait(PATIENCE_SECONDS)
        return Response(200, "text/plain", b"done")

    routes = {"/slow": {"GET": slow}, "/": {"GET": lambda _request: Response(200, "text/plain", b"ok")}}
    return make_server(routes=routes, limits=Limits(**limits)), release, inside


def test_beyond_the_limit_of_busy_connections_there_is_a_503(make_server):
    server, release, inside = busy_server(make_server, connections=2)
    busy = [connect(server) for _ in range(2)]
    try:
        for source in busy:
            source.sendall(b"GET /slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert inside.acquire(timeout=PATIENCE_SECONDS)
        answer, body = ask(server, "/")
        assert (answer.status, answer.getheader("Connection")) == (503, "close")
        assert b"Too many connections" in body
        release.set()
        assert [status_of(until_closed(source)) for source in busy] == [200, 200]
        assert ask(server, "/")[0].status == 200
    finally:
        release.set()
        for source in busy:
            source.close()


def test_beyond_the_refusals_connections_are_closed_at_once(make_server):
    server, release, inside = busy_server(make_server, connections=1, refusals=0)
    with connect(server) as busy:
        busy.sendall(b"GET /slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert inside.acquire(timeout=PATIENCE_SECONDS)
        with connect(server) as refused:
            assert until_closed(refused) == b""
        release.set()
        assert status_of(until_closed(busy)) == 200


def test_idle_connections_make_room_oldest_first(make_server):
    server = make_server(limits=Limits(connections=3, idle_seconds=PATIENCE_SECONDS))
    idle = [client(server) for _ in range(3)]
    try:
        for connection in idle:
            connection.request("GET", "/")
            connection.getresponse().read()
        # a connection is idle a moment after its answer has been read
        wait_until(lambda: ask(server, "/")[0].status == 200, "room for one more")
        assert until_closed(idle[0].sock) == b""
        idle[2].request("GET", "/")
        assert idle[2].getresponse().status == 200
    finally:
        for connection in idle:
            connection.close()


# --- start and stop -----------------------------------------------------------------------------------------------


def test_stop_ends_idle_connections_and_lets_an_answer_end(make_server):
    server, release, inside = busy_server(make_server)
    with connect(server) as idle, connect(server) as busy:
        busy.sendall(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        assert inside.acquire(timeout=PATIENCE_SECONDS)
        stopper = threading.Thread(target=server.stop)
        stopper.start()
        assert until_closed(idle) == b""
        release.set()
        answer = until_closed(busy)
        stopper.join(PATIENCE_SECONDS)
        assert answer.endswith(b"done")
        assert b"Connection: close" in answer
    assert not stopper.is_alive()
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("web-")] == []
    with pytest.raises(ConnectionRefusedError):
        connect(server)


def test_a_page_that_hangs_does_not_hold_up_the_stop(make_server):
    server, release, inside = busy_server(make_server)
    with connect(server) as busy:
        busy.sendall(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        assert inside.acquire(timeout=PATIENCE_SECONDS)
        server.stop()  # returns although the page still waits
        assert not release.is_set()
        assert until_closed(busy) == b""
        release.set()
        for thread in threading.enumerate():
            if thread.name == "web-connection":
                thread.join(PATIENCE_SECONDS)


def test_stop_without_start_frees_the_port_and_twice_is_once():
    server = WebServer(WebConfig(listen_addresses=("127.0.0.1:0",)), {})
    port = urlsplit(server.url).port
    server.stop()
    server.stop()
    again = WebServer(WebConfig(listen_addresses=(f"127.0.0.1:{port}",)), {})
    again.stop()
