"""The web server over real sockets: what it answers and what it refuses."""

import gzip
import logging
import re

import pytest

from llm_serving_exporter.web.exchange import Request, Response
from llm_serving_exporter.web.server import Limits
from tests.support.rows import check_rows
from tests.support.servers.webclient import ask, client, connect, raw, status_of, until_closed

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
