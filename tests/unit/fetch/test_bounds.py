"""Time and size: nothing that a server sends, or does not send, takes more than the settings allow."""

from __future__ import annotations

import contextlib
import socket
import time
import tracemalloc

import pytest

from llm_serving_exporter.model.sample import FailureReason, Page, Refusal
from tests.support.rows import check_rows
from tests.support.servers.faultbehaviours import (
    TEXT,
    chunk,
    continue_flood,
    drip,
    endless,
    gzip_bomb,
    head,
    page,
    raw,
    silent,
)
from tests.support.servers.faultserver import FaultServer

CAP = 1 << 20
BODY = b"up 1\n" * 100


def refusal(got: Page | Refusal) -> Refusal:
    assert isinstance(got, Refusal)
    return got


@pytest.mark.parametrize("part", ["headers", "body"])
def test_byte_at_a_time_ends_at_the_deadline(make_client, part):
    # Every read succeeds well within the timeout; the whole would take two minutes.
    with FaultServer(drip(BODY, interval_seconds=0.25, part=part)) as server:
        started = time.monotonic()
        got = refusal(make_client(server.url, timeout_seconds=2.0).get_metrics("/metrics"))
        assert 2.0 <= time.monotonic() - started < 60
    assert got.reason is FailureReason.TIMEOUT
    assert "did not complete its answer within 2 s" in got.detail


def test_slow_redirects_share_one_deadline(make_client):
    answer = head(302, None, "Location: /metrics", "Content-Length: 0")

    def slow(exchange):
        if exchange.wait(0.25):
            return False
        exchange.send(answer)
        return True

    with FaultServer(slow) as server:
        got = refusal(make_client(server.url, timeout_seconds=0.6).get_metrics("/metrics"))
    assert got.reason is FailureReason.TIMEOUT


def test_deadline_is_counted_on_the_injected_clock(make_client):
    now = [0.0]

    def monotonic() -> float:
        now[0] += 30.0  # each look at the clock is half a minute later
        return now[0]

    with FaultServer(page(BODY)) as server:
        got = refusal(make_client(server.url, {"monotonic": monotonic}).get_metrics("/metrics"))
    assert got.reason is FailureReason.TIMEOUT


def test_slow_error_page_does_not_hide_its_status(make_client):
    with FaultServer(raw(head(500, TEXT, "Content-Length: 100"), keep=True)) as server:
        got = refusal(make_client(server.url, timeout_seconds=2.0).get_metrics("/metrics"))
    assert (got.reason, got.status) == (FailureReason.STATUS, 500)


def test_server_that_never_accepts(make_client):
    """A full backlog: the kernel drops the SYN, as a firewall would."""
    with socket.socket() as listener, contextlib.ExitStack() as stack:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        got = refusal(
            make_client(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout_seconds=0.3).get_metrics("/metrics")
        )
    # a kernel may take it into the backlog after all: then it is the answer that does not come
    said = {FailureReason.UNREACHABLE: "did not accept a connection in time", FailureReason.TIMEOUT: "sent no answer"}
    assert said[got.reason] in got.detail


def test_tls_handshake_counts_into_the_deadline(make_client):
    with socket.create_server(("127.0.0.1", 0)) as listener:  # the backlog accepts; nobody ever answers
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        got = refusal(make_client(url, timeout_seconds=2.0).get_metrics("/metrics"))
    assert got.reason is FailureReason.TIMEOUT
    assert "TLS handshake" in got.detail


def test_next_attempt_after_a_timeout_starts_afresh(make_client):
    with FaultServer({"/metrics": silent()}) as server:
        client = make_client(server.url, timeout_seconds=2.0)
        assert refusal(client.get_metrics("/metrics")).reason is FailureReason.TIMEOUT
        server.behave("/metrics", page(BODY))
        assert isinstance(client.get_metrics("/metrics"), Page)
        assert server.connections == 2


@pytest.mark.parametrize("framing", ["chunked", "close"])
def test_endless_body_stops_at_the_cap(make_client, framing):
    with FaultServer(endless(framing=framing)) as server:
        client = make_client(server.url, max_body_bytes=CAP)
        tracemalloc.start()
        got = refusal(client.get_metrics("/metrics"))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert got.reason is FailureReason.TOO_LARGE
    assert "max_body_bytes" in got.detail
    assert peak < 2 * CAP


def test_gzip_bomb_stops_at_the_cap(make_client):
    with FaultServer(gzip_bomb(64 << 20)) as server:
        client = make_client(server.url, max_body_bytes=CAP)
        tracemalloc.start()
        got = refusal(client.get_metrics("/metrics"))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert got.reason is FailureReason.TOO_LARGE
    assert peak < 2 * CAP


def test_announced_length_beyond_the_cap_is_refused_without_reading(make_client):
    answer = raw(head(200, TEXT, f"Content-Length: {CAP + 1}"), keep=True)  # the body never comes
    with FaultServer(answer) as server:
        got = refusal(make_client(server.url, max_body_bytes=CAP).get_metrics("/metrics"))
    assert got.reason is FailureReason.TOO_LARGE


def test_body_of_exactly_the_cap_is_taken(make_client):
    body = b"x" * CAP
    for behaviour in (
        page(body),
        page(body, framing="chunked"),
        page(body, framing="close"),
        page(body, compress=True),
    ):
        with FaultServer(behaviour) as server:
            got = make_client(server.url, max_body_bytes=CAP).get_metrics("/metrics")
        assert isinstance(got, Page)
        assert len(got.body) == CAP


@check_rows(
    "size",
    [b"-1", b"-5", b"ffffffffffffffffffffffff", b"0x10", b"7fffffff"],
    ids=lambda size: size.decode(),
    shared=["make_client"],
)
def test_absurd_chunk_sizes_do_not_read_without_end(make_client, size):
    start = head(200, TEXT, "Transfer-Encoding: chunked") + size + b"\r\n"

    def answer(exchange):
        exchange.send(start)
        for _ in range(64 << 4):
            exchange.send(b"x" * 65536)
        return False

    with FaultServer(answer) as server:
        client = make_client(server.url, max_body_bytes=CAP)
        tracemalloc.start()
        got = refusal(client.get_metrics("/metrics"))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert got.reason in (FailureReason.PROTOCOL, FailureReason.TOO_LARGE)
    assert peak < 2 * CAP


def test_framing_without_a_body_has_its_limit_too(make_client):
    trailer = b"X-Trailer: " + b"t" * 1000 + b"\r\n"

    def answer(exchange):
        exchange.send(head(200, TEXT, "Transfer-Encoding: chunked") + chunk(BODY) + b"0\r\n")
        for _ in range(10_000):
            exchange.send(trailer * 10)
        return False

    with FaultServer(answer) as server:
        got = refusal(make_client(server.url, max_body_bytes=CAP).get_metrics("/metrics"))
    assert got.reason is FailureReason.TOO_LARGE


def test_flood_of_interim_answers_has_its_limit(make_client):
    with FaultServer(continue_flood()) as server:
        got = refusal(make_client(server.url).get_metrics("/metrics"))
    assert got.reason is FailureReason.PROTOCOL


def test_headers_that_come_byte_by_byte_are_read(make_client):
    answer = head(200, "text/plain", f"X-Long: {'a' * 1500}", f"Content-Length: {len(BODY)}") + BODY

    def drip_all(exchange):
        for byte in answer:
            exchange.send(bytes([byte]))
        return True

    with FaultServer(drip_all) as server:
        got = make_client(server.url).get_metrics("/metrics")
    assert isinstance(got, Page)
    assert got.body == BODY


@pytest.mark.parametrize(
    "chunk", [b"4\r\nup 1 2 3\r\n0\r\n\r\n", b"5\r\nup 1\n\r0\r\n\r\n", b"-5\r\nup 1\n\r\n0\r\n\r\n"]
)
def test_chunks_that_are_not_as_long_as_they_say_are_refused(make_client, chunk):
    def answer(exchange):
        exchange.send(head(200, "text/plain", "Transfer-Encoding: chunked") + chunk)
        return False

    with FaultServer(answer) as server:
        got = refusal(make_client(server.url).get_metrics("/metrics"))
    assert got.reason in (FailureReason.PROTOCOL, FailureReason.CLOSED)
