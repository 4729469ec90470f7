"""The web server over real sockets: where it listens, what it answers and refuses, where requests end, that nobody holds it up."""

import gzip
import http.client
import logging
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from llm_serving_exporter.errors import ListenError
from llm_serving_exporter.expose.encode import Spool
from llm_serving_exporter.settings.config import WebConfig
from llm_serving_exporter.web.crowd import Limits
from llm_serving_exporter.web.exchange import Framing, Incoming, Request, Response
from llm_serving_exporter.web.server import WebServer
from tests.support.rows import check_rows
from tests.support.servers.webclient import ask, client, connect, raw, status_of, until_closed
from tests.support.waiting import PATIENCE_SECONDS, wait_until

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


@check_rows("header", ["gzip;q=0", "gzip; q=0.000", "br", ""], shared=["make_server"])
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


@check_rows(
    ("request_bytes", "status"),
    [
        (b"POST /-/reload HTTP/1.1\r\nHost: x\r\nContent-Length: 1025\r\n\r\n" + b"x" * 1025, 413),
        (b"POST /-/reload HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999\r\n\r\n", 413),
        (b"POST /-/reload HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: \x00\r\n\r\n", 400),
        (b"GET /\x00 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 505),
        (b"GET / HTTP/x.y\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n", 400),
        (b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nA: " + b"a" * 40_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 101 + b"\r\n", 431),
    ],
    shared=["make_server"],
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


# --- Where the web server listens, and how it says that it cannot


def test_a_port_without_host_listens_on_both_families(make_server):
    server = make_server(":0")
    assert urlsplit(server.url).hostname == "127.0.0.1"
    hosts = ["127.0.0.1", "::1"] if socket.has_dualstack_ipv6() else ["127.0.0.1"]
    for host in hosts:
        connection = client(server, host)
        connection.request("GET", "/")
        assert connection.getresponse().status == 200
        connection.close()


def test_the_log_says_where_it_listens_in_truth(make_server):
    everywhere, v4, one = make_server(":0"), make_server("0.0.0.0:0"), make_server("127.0.0.1:0")
    of = "" if socket.has_dualstack_ipv6() else " of IPv4"
    port = urlsplit(everywhere.url).port
    assert everywhere.places == (f"every address{of}, port {port}: http://127.0.0.1:{port} on this machine",)
    assert v4.places[0].startswith("every address of IPv4, port ")
    assert one.places == (one.url,)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_an_ipv6_address(make_server):
    server = make_server("[::1]:0")
    assert server.url.startswith("http://[::1]:")
    assert ask(server, "/")[0].status == 200


def test_several_addresses_are_all_served(make_server):
    server = make_server("127.0.0.1:0", "127.0.0.2:0", "localhost:0")
    assert server.url == server.urls[0]
    assert len(set(server.urls)) == 3
    for url in server.urls:
        where = urlsplit(url)
        with closing(http.client.HTTPConnection(where.hostname, where.port, timeout=5)) as connection:
            connection.request("GET", "/")
            assert connection.getresponse().status == 200


def test_where_one_of_several_cannot_be_had_none_is_taken(make_server):
    taken = make_server().url.removeprefix("http://")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = f"127.0.0.1:{probe.getsockname()[1]}"
    with pytest.raises(ListenError, match=re.escape(taken)):
        WebServer(WebConfig(listen_addresses=(free, taken)), {})
    assert make_server(free).url.endswith(free)


def test_a_host_name(make_server):
    assert ask(make_server("localhost:0"), "/")[0].status == 200


def test_a_taken_port(make_server):
    address = make_server().url.removeprefix("http://")
    with pytest.raises(ListenError) as caught:
        WebServer(WebConfig(listen_addresses=(address,)), {})
    assert str(caught.value) == (
        f"cannot listen on {address}: the port is already in use by another process; "
        "choose another address with --web.listen-address"
    )


@check_rows(
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
        WebServer(WebConfig(listen_addresses=(address,)), {})
    assert "--web.listen-address" in str(caught.value)


# --- Where requests end, in whatever pieces they come, and what is refused before anybody answers it


GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST /-/reload HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n"


def taken(*pieces: bytes, limits: Limits | None = None) -> list[Incoming]:
    framing, found = Framing(limits or Limits()), []
    for piece in pieces:
        framing.feed(piece)
        while (asked := framing.take_request()) is not None:
            found.append(asked)
    return found


def statuses(*pieces: bytes, limits: Limits | None = None) -> list[int]:
    """Of the refusals; 0 of what is a request."""
    return [asked.refusal.status if asked.refusal else 0 for asked in taken(*pieces, limits=limits)]


@check_rows("size", [1, 2, 3, 7, 1000])
def test_requests_are_the_same_in_pieces_of_any_size(size: int) -> None:
    data = b"\r\n\n" + GET + b" \t\r\n" + POST + b"abc" + GET.replace(b"\r\n", b"\n")
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    asked = taken(*pieces)
    assert asked == taken(GET) + taken(POST, b"abc") + taken(GET)
    assert [(one.request.method, one.request.path, one.body_bytes) for one in asked] == [
        ("GET", "/", 0),
        ("POST", "/-/reload", 3),
        ("GET", "/", 0),
    ]


def test_a_body_is_waited_for_unless_it_is_to_be_refused() -> None:
    assert taken(POST, b"ab") == []
    for header, status in (
        (b"Content-Length: 1025", 413),
        (b"Content-Length: -1", 400),
        (b"Content-Length: 1\r\nContent-Length: 1", 400),
        (b"Transfer-Encoding: chunked\r\nContent-Length: 3", 411),
    ):
        assert statuses(POST.replace(b"Content-Length: 3", header)) == [status]


def test_what_is_no_request_line_is_known_by_its_end() -> None:
    assert statuses(b"GET /\r\n") == [400]
    assert taken(b"\x16\x03\x01") == []


@pytest.mark.parametrize("beginning", [b"", b"GET /", b"GET / HTTP/1.1\r\nA: "])
def test_a_head_without_end_is_refused_at_its_bound(beginning: bytes) -> None:
    limits = Limits(head_bytes=100)
    framing = Framing(limits)
    framing.feed(beginning + b"a" * (100 - len(beginning)))
    assert framing.take_request() is None
    framing.feed(b"a")
    asked = framing.take_request()
    assert asked.refusal.status == 431
    assert not framing.has_begun


def test_who_waits_before_its_body_is_told_once_a_request() -> None:
    framing = Framing(Limits())
    for _ in range(2):
        framing.feed(POST.replace(b"Host", b"Expect: 100-Continue\r\nHost"))
        assert framing.take_request() is None
        assert [framing.take_continue() for _ in range(2)] == [True, False]
        framing.feed(b"abc")
        assert framing.take_request() is not None
    framing.feed(POST)
    assert framing.take_request() is None
    assert not framing.take_continue()


@check_rows(
    "head",
    [
        # a line that goes on with the one before it, no name, a space before the colon, no colon, what ends a line elsewhere
        b"A: b\r\n c: d",
        b": b",
        b"Content-Length : 3",
        b"A",
        b"A: b\x0bc",
        b"A: b\rContent-Length: 3",
        b"A: \x00",
        b"A: b\r",
        b"Host: b",
    ],
)
def test_no_header_may_be_read_otherwise_by_what_stands_in_front(head: bytes) -> None:
    assert statuses(GET.replace(b"\r\n\r\n", b"\r\n" + head + b"\r\n\r\n")) == [400]


@check_rows(
    ("line", "status"),
    [
        (b"GET / HTTP/1.0", 0),
        (b"GET  /\t HTTP/1.9", 0),
        ("GET /?target=à HTTP/1.1".encode(), 0),
        (b"G(T / HTTP/1.1", 400),
        (b"GET /\x01 HTTP/1.1", 400),
        (b"GET / http/1.1", 400),
        (b"GET / HTTP/0.9", 505),
        (b"GET / HTTP/2.0", 505),
    ],
)
def test_a_request_line_is_one_of_http_1(line: bytes, status: int) -> None:
    assert statuses(line + b"\r\nHost: a\r\n\r\n") == [status]


@check_rows(
    ("target", "path", "query"),
    [
        (b"/a?b?c", "/a", "b?c"),
        (b"//a", "/a", ""),
        (b"http://x", "/", ""),
        (b"http://x/a?b", "/a", "b"),
        (b"*", "", ""),
        (b"ftp://x/a", "", ""),
        (b"http://[/a", "", ""),
    ],
)
def test_a_target_has_a_path_and_a_query(target: bytes, path: str, query: str) -> None:
    (asked,) = taken(GET.replace(b"/", target, 1))
    assert (asked.request.path, asked.request.query) == (path, query)


@check_rows("head", [b"A: b%b\0", b"A:%bb\0", b"A%b", b"%b"])
def test_no_line_takes_longer_than_its_length(head: bytes) -> None:
    """A pattern that tries again from each of its spaces takes seconds for them, in the thread that all clients wait for."""
    began = time.thread_time()
    assert statuses(GET.replace(b"\r\n\r\n", b"\r\n" + head % (b" " * 30_000) + b"\r\n\r\n")) == [400]
    assert time.thread_time() - began < 1.0


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


# --- Answers that are kept compressed: what goes over the wire, and what one who does not read them holds


# as a page: much of it again and again
TEXT = "".join(f'llm_serving_up{{target="replica-{number}"}} 1.0\n' for number in range(200_000))
GZIP = {"Accept_Encoding": "gzip"}


@pytest.fixture(scope="module")
def spool() -> Spool:
    found = Spool()
    found.add_parts(TEXT)
    return found


@pytest.fixture
def server(make_server, spool: Spool) -> WebServer:
    routes = {"/": {"GET": lambda _request: Response(200, "text/plain", spool)}, "/small": {"GET": small}}
    return make_server(routes=routes)


def small(_request: Request) -> Response:
    return Response(200, "text/plain", b"small")


def unread(server: WebServer) -> int:
    return server._connections.unread_bytes


def test_it_is_sent_as_it_is(server: WebServer) -> None:
    answer, body = ask(server, "/")
    assert answer.status == 200
    assert answer.getheader("Content-Encoding") is None
    assert answer.getheader("Vary") == "Accept-Encoding"
    assert int(answer.getheader("Content-Length")) == len(TEXT)
    assert body.decode() == TEXT
    wait_until(lambda: unread(server) == 0, "the last of it to be counted as sent")


def test_it_is_sent_with_gzip(server: WebServer, spool: Spool) -> None:
    answer, body = ask(server, "/", **GZIP)
    assert answer.getheader("Content-Encoding") == "gzip"
    assert int(answer.getheader("Content-Length")) == len(body) == spool.gzip_bytes
    assert gzip.decompress(body).decode() == TEXT


def test_head_of_a_large_answer_has_the_length_and_no_body(server: WebServer, spool: Spool) -> None:
    connection = client(server)
    try:
        for headers, size in (({}, len(TEXT)), ({"Accept-Encoding": "gzip"}, spool.gzip_bytes)):
            connection.request("HEAD", "/", headers=headers)
            answer = connection.getresponse()
            assert (answer.status, int(answer.getheader("Content-Length")), answer.read()) == (200, size, b"")
        connection.request("GET", "/small")  # no byte of a body stands before it
        assert connection.getresponse().read() == b"small"
    finally:
        connection.close()
    wait_until(lambda: unread(server) == 0, "the last of it to be counted as sent")


def test_http_1_0_takes_it_and_the_connection_ends(server: WebServer, spool: Spool) -> None:
    answer = raw(server, b"GET / HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert status_of(answer) == 200
    assert b"Connection: close" in head
    assert b"Transfer-Encoding" not in head
    assert gzip.decompress(body).decode() == TEXT


def test_the_connection_is_kept_for_the_next_request(server: WebServer) -> None:
    connection = client(server)
    try:
        for _ in range(3):
            connection.request("GET", "/", headers={"Accept-Encoding": "gzip"})
            assert len(gzip.decompress(connection.getresponse().read())) == len(TEXT)
            connection.request("GET", "/small")
            assert connection.getresponse().read() == b"small"
    finally:
        connection.close()


def test_who_reads_slowly_gets_all_of_it(server: WebServer) -> None:
    received = b""
    with connect(server) as source:
        source.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        for _ in range(20):
            received += source.recv(20_000)
            time.sleep(0.01)
        received += until_closed(source)
    assert received.partition(b"\r\n\r\n")[2].decode() == TEXT


def test_who_never_reads_holds_what_is_kept_and_is_closed(make_server, spool: Spool) -> None:
    """Of a page of megabytes: not what it would be as text."""
    readers, routes = 5, {"/": {"GET": lambda _request: Response(200, "text/plain", spool)}}
    server = make_server(routes=routes, limits=Limits(write_seconds=2.0, unread_bytes=10 * len(TEXT)))
    sources = [connect(server) for _ in range(readers)]
    try:
        for source in sources:
            source.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_until(lambda: unread(server) >= readers * spool.gzip_bytes, "all of them to be answered")
        # besides a piece each that is on its way
        assert unread(server) < readers * (spool.gzip_bytes + 100_000) < len(TEXT)
        wait_until(lambda: unread(server) == 0, "their time to be over")
        assert server.refusals.counts()["unread"] == readers
        assert all(len(until_closed(source)) < len(TEXT) for source in sources)
    finally:
        for source in sources:
            source.close()


class Broken(Spool):
    """Fails behind its first piece."""

    def read(self) -> Iterator[bytes]:
        yield next(super().read())
        raise RuntimeError("the page's own fault")


def test_a_body_that_fails_ends_its_connection_alone(make_server, caplog: pytest.LogCaptureFixture) -> None:
    broken = Broken()
    broken.add_parts(TEXT)
    routes = {"/": {"GET": lambda _request: Response(200, "text/plain", broken)}, "/small": {"GET": small}}
    server = make_server(routes=routes)
    with caplog.at_level(logging.ERROR), connect(server) as source:
        source.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        # cut before the length that was said: nobody takes it for a page
        assert len(until_closed(source)) < len(TEXT)
    assert "a connection failed" in caplog.text
    wait_until(lambda: unread(server) == 0, "the last of it to be counted as sent")
    assert ask(server, "/small")[1] == b"small"
