"""Answers that are kept compressed: what goes over the wire, and what one who does not read them holds."""

import gzip
import logging
import time
from collections.abc import Iterator

import pytest

from llm_serving_exporter.expose.encode import Spool
from llm_serving_exporter.web.exchange import Request, Response
from llm_serving_exporter.web.server import Limits, WebServer
from tests.support.servers.webclient import ask, client, connect, raw, status_of, until_closed
from tests.support.waiting import wait_until

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
    assert (answer.status, answer.getheader("Content-Encoding"), answer.getheader("Vary")) == (
        200,
        None,
        "Accept-Encoding",
    )
    assert int(answer.getheader("Content-Length")) == len(TEXT)
    assert body.decode() == TEXT
    wait_until(lambda: unread(server) == 0, "the last of it to be counted as sent")


def test_it_is_sent_with_gzip(server: WebServer, spool: Spool) -> None:
    answer, body = ask(server, "/", **GZIP)
    assert answer.getheader("Content-Encoding") == "gzip"
    assert int(answer.getheader("Content-Length")) == len(body) == spool.gzip_bytes
    assert gzip.decompress(body).decode() == TEXT


def test_head_has_the_length_and_no_body(server: WebServer, spool: Spool) -> None:
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
