"""The web server over real sockets: what it answers, what it refuses, and that nobody can hold it up."""

from __future__ import annotations

import gzip
import http.client
import logging
import re
import socket
import threading
from urllib.parse import urlsplit

import pytest

from llm_serving_exporter.config.types import WebConfig
from llm_serving_exporter.errors import ListenError
from llm_serving_exporter.expose.exchange import Request, Response
from llm_serving_exporter.expose.server import Limits, WebServer

PATIENT = 20.0


def connect(server: WebServer, host: str | None = None) -> socket.socket:
    parts = urlsplit(server.url)
    return socket.create_connection((host or parts.hostname, parts.port), timeout=PATIENT)


def client(server: WebServer, host: str | None = None) -> http.client.HTTPConnection:
    parts = urlsplit(server.url)
    return http.client.HTTPConnection(host or parts.hostname, parts.port, timeout=PATIENT)


def ask(
    server: WebServer, path: str, method: str = "GET", body: bytes | None = None, **headers: str
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = client(server)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


def until_closed(source: socket.socket) -> bytes:
    """All that comes until the server closes; a reset counts as a close."""
    received = b""
    try:
        while piece := source.recv(65536):
            received += piece
    except ConnectionError:
        pass
    return received


def raw(server: WebServer, data: bytes) -> bytes:
    with connect(server) as source:
        source.sendall(data)
        return until_closed(source)


def status_of(answer: bytes) -> int:
    match = re.match(rb"HTTP/1\.1 (\d+) ", answer)
    assert match, answer
    return int(match[1])


# --- what it answers ----------------------------------------------------------------------------------------------


def test_a_page_with_its_query(make_server):
    answer, body = ask(make_server(), "/?a=1&b=%20")
    assert (answer.status, body) == (200, b"GET / a=1&b=%20")
    assert answer.getheader("Content-Type") == "text/plain"


def test_headers_reach_the_handler_in_lower_case_and_joined(make_server):
    seen: list[Request] = []

    def page(request: Request) -> Response:
        seen.append(request)
        return Response(200, "text/plain", b"")

    server = make_server(routes={"/": {"GET": page}})
    raw(server, b"GET / HTTP/1.1\r\nHost: x\r\nACCEPT: a\r\naccept: b\r\nConnection: close\r\n\r\n")
    assert seen[0].headers["accept"] == "a, b"


def test_one_connection_serves_many_requests(make_server):
    connection = client(make_server())
    try:
        connection.connect()
        own_port = connection.sock.getsockname()[1]
        for _ in range(3):
            connection.request("GET", "/")
            assert connection.getresponse().read() == b"GET / "
            assert connection.sock.getsockname()[1] == own_port
    finally:
        connection.close()


def test_requests_sent_at_once_are_answered_in_order(make_server):
    both = raw(
        make_server(),
        b"GET /?1 HTTP/1.1\r\nHost: x\r\n\r\n\r\nGET /?2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    )
    assert re.findall(rb"GET / (\d)", both) == [b"1", b"2"]


def test_http_1_0_is_answered_and_closed(make_server):
    answer = raw(make_server(), b"GET / HTTP/1.0\r\n\r\n")
    assert status_of(answer) == 200
    assert b"Connection: close" in answer


def test_absolute_form_target(make_server):
    answer = raw(make_server(), b"GET http://anywhere/?q HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert answer.endswith(b"GET / q")


def test_head_has_the_length_and_no_body(make_server):
    answer, body = ask(make_server(), "/big", "HEAD")
    assert (answer.status, body) == (200, b"")
    assert answer.getheader("Content-Length") == str(14 * 20_000)


def test_a_large_page_is_compressed_for_who_takes_it(make_server):
    server = make_server()
    plain_answer, whole = ask(server, "/big", Accept_Encoding="identity")
    answer, body = ask(server, "/big", Accept_Encoding="deflate, gzip;q=0.5")
    assert plain_answer.getheader("Content-Encoding") is None
    assert answer.getheader("Content-Encoding") == "gzip"
    assert answer.getheader("Vary") == "Accept-Encoding"
    assert gzip.decompress(body) == whole
    assert len(body) < len(whole) / 10


@pytest.mark.parametrize("header", ["gzip;q=0", "gzip; q=0.000", "br", ""])
def test_a_page_is_not_compressed_for_who_does_not_take_it(make_server, header):
    answer, body = ask(make_server(), "/big", Accept_Encoding=header)
    assert answer.getheader("Content-Encoding") is None
    assert len(body) == 14 * 20_000


def test_a_small_page_is_not_compressed(make_server):
    answer, _ = ask(make_server(), "/", Accept_Encoding="gzip")
    assert answer.getheader("Content-Encoding") is None


def test_every_answer_is_for_now_and_cannot_be_framed_or_sniffed(make_server):
    server = make_server()
    for path in ("/", "/nowhere"):
        answer, _ = ask(server, path)
        assert answer.getheader("Cache-Control") == "no-store"
        assert answer.getheader("X-Content-Type-Options") == "nosniff"
        assert "default-src 'none'" in (answer.getheader("Content-Security-Policy") or "")
        assert answer.getheader("Server") is None


# --- what it refuses ----------------------------------------------------------------------------------------------


def test_no_such_page(make_server):
    answer, body = ask(make_server(), "/nowhere")
    assert (answer.status, body) == (404, b"There is no such page here; / lists them.\n")


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [("POST", "/", "GET, HEAD"), ("OPTIONS", "/", "GET, HEAD"), ("GET", "/-/reload", "POST, PUT")],
)
def test_no_such_method(make_server, method, path, allow):
    answer, body = ask(make_server(), path, method)
    assert (answer.status, answer.getheader("Allow")) == (405, allow)
    assert body.endswith(b" only.\n")


def test_a_page_that_fails_is_logged_and_leaves_the_server_alive(make_server, caplog):
    server = make_server()
    connection = client(server)
    try:
        for _ in range(2):
            connection.request("GET", "/broken")
            answer = connection.getresponse()
            assert answer.status == 500
            assert b"own fault" not in answer.read()
    finally:
        connection.close()
    assert ask(server, "/")[0].status == 200
    assert "RuntimeError: the page's own fault" in caplog.text


def test_a_small_body_is_taken_and_ignored(make_server):
    connection = client(make_server())
    try:
        connection.request("POST", "/-/reload", b"x" * 1024)
        assert connection.getresponse().read() == b"POST /-/reload "
        connection.request("GET", "/")  # the body is off the connection
        assert connection.getresponse().read() == b"GET / "
    finally:
        connection.close()


def test_a_client_that_waits_before_its_body_is_told_to_go_on(make_server):
    with connect(make_server()) as source:
        source.sendall(
            b"POST /-/reload HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
        )
        assert source.recv(1024) == b"HTTP/1.1 100 Continue\r\n\r\n"
        source.sendall(b"ok")
        assert status_of(until_closed(source)) == 200


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"POST /-/reload HTTP/1.1\r\nHost: x\r\nContent-Length: 1025\r\n\r\n" + b"x" * 1025, 413),
        (b"POST /-/reload HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999\r\n\r\n", 413),
        (b"POST /-/reload HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
        (b"GET /\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 505),
        (b"GET / HTTP/x.y\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n", 400),
        (b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nA: " + b"a" * 40_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 101 + b"\r\n", 431),
    ],
)  # fmt: skip
def test_what_is_not_a_proper_request_gets_an_answer_and_a_close(make_server, request_bytes, status):
    answer = raw(make_server(), request_bytes)
    assert status_of(answer) == status
    assert b"Connection: close" in answer
    assert b"<html" not in answer.lower()


def test_nothing_a_client_does_is_logged_as_a_fault(make_server, caplog):
    server = make_server(limits=Limits(refusal_seconds=0.2))
    caplog.set_level(logging.INFO)
    for data in (
        b"",
        b"GET",
        b"\x00\xff" * 100,
        b"GET / HTTP/1.1\r\nHo",
        b"POST /-/reload HTTP/1.1\r\nContent-Length: 9\r\n\r\nx",
    ):
        with connect(server) as source:
            source.sendall(data)
    with connect(server) as source:  # asks for much and leaves
        source.sendall(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n" * 20)
    assert ask(server, "/")[0].status == 200
    server.stop()
    assert caplog.text == ""


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
    server = make_server(
        routes={"/": {"GET": lambda _request: Response(200, "text/plain", huge)}}, limits=Limits(write_seconds=0.3)
    )
    with connect(server) as source:
        source.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        while threading.active_count() > 2:  # main and acceptor: the connection's thread has given up
            threading.Event().wait(0.02)
        assert len(until_closed(source)) < len(huge)


def busy_server(make_server, **limits: int) -> tuple[WebServer, threading.Event, threading.Semaphore]:
    """A server whose page /slow waits for the event; the semaphore counts requests that are in it."""
    release, inside = threading.Event(), threading.Semaphore(0)

    def slow(_request: Request) -> Response:
        inside.release()
        assert release.wait(PATIENT)
        return Response(200, "text/plain", b"done")

    routes = {"/slow": {"GET": slow}, "/": {"GET": lambda _request: Response(200, "text/plain", b"ok")}}
    return make_server(routes=routes, limits=Limits(**limits)), release, inside


def test_beyond_the_limit_of_busy_connections_there_is_a_503(make_server):
    server, release, inside = busy_server(make_server, connections=2)
    busy = [connect(server) for _ in range(2)]
    try:
        for source in busy:
            source.sendall(b"GET /slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert inside.acquire(timeout=PATIENT)
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
        assert inside.acquire(timeout=PATIENT)
        with connect(server) as refused:
            assert until_closed(refused) == b""
        release.set()
        assert status_of(until_closed(busy)) == 200


def test_idle_connections_make_room_oldest_first(make_server):
    server = make_server(limits=Limits(connections=3, idle_seconds=PATIENT))
    idle = [client(server) for _ in range(3)]
    try:
        for connection in idle:
            connection.request("GET", "/")
            connection.getresponse().read()
        answer, _ = ask(server, "/")
        assert answer.status == 200
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
        assert inside.acquire(timeout=PATIENT)
        stopper = threading.Thread(target=server.stop)
        stopper.start()
        assert until_closed(idle) == b""
        release.set()
        answer = until_closed(busy)
        stopper.join(PATIENT)
        assert answer.endswith(b"done")
        assert b"Connection: close" in answer
    assert not stopper.is_alive()
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("web-")] == []
    with pytest.raises(ConnectionRefusedError):
        connect(server)


def test_stop_without_start_frees_the_port_and_twice_is_once():
    server = WebServer(WebConfig(listen_address="127.0.0.1:0"), {})
    port = urlsplit(server.url).port
    server.stop()
    server.stop()
    again = WebServer(WebConfig(listen_address=f"127.0.0.1:{port}"), {})
    again.stop()


def test_a_port_without_host_listens_on_both_families(make_server):
    server = make_server(":0")
    assert urlsplit(server.url).hostname == "127.0.0.1"
    hosts = ["127.0.0.1", "::1"] if socket.has_dualstack_ipv6() else ["127.0.0.1"]
    for host in hosts:
        connection = client(server, host)
        connection.request("GET", "/")
        assert connection.getresponse().status == 200
        connection.close()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_an_ipv6_address(make_server):
    server = make_server("[::1]:0")
    assert server.url.startswith("http://[::1]:")
    assert ask(server, "/")[0].status == 200


def test_a_host_name(make_server):
    assert ask(make_server("localhost:0"), "/")[0].status == 200


def test_a_taken_port(make_server):
    address = make_server().url.removeprefix("http://")
    with pytest.raises(ListenError) as caught:
        WebServer(WebConfig(listen_address=address), {})
    assert str(caught.value) == (
        f"cannot listen on {address}: the port is already in use by another process; "
        "choose another address with --web.listen-address"
    )


@pytest.mark.parametrize(
    ("address", "cause"),
    [
        ("192.0.2.1:0", "not an address of this machine"),
        ("no-such-host.invalid:0", "the host name does not resolve"),
        ("a..b:0", "this is not a host name"),
        ("10077", "this is not host:port"),
        ("::1:10077", "this is not host:port"),
        ("127.0.0.1:99999", "this is not host:port"),
    ],
)
def test_an_address_that_cannot_be_had(address, cause):
    with pytest.raises(ListenError, match=re.escape(f"cannot listen on {address}: {cause}")) as caught:
        WebServer(WebConfig(listen_address=address), {})
    assert "--web.listen-address" in str(caught.value)
