"""Time and size: nothing that a server sends, or does not send, takes more than the settings allow."""

from __future__ import annotations

import contextlib
import socket
import time
import tracemalloc

import pytest

from llm_serving_exporter.model.sample import FailureReason
from tests.support.rows import check_rows
from tests.support.servers import faultbehaviours as fault

CAP = 1 << 20
BODY = b"up 1\n" * 100
CHUNKED = "Transfer-Encoding: chunked"


def sends(*pieces, keep=False):
    """An answer in pieces, each sent as it is made."""

    def answer(exchange):
        for piece in pieces:
            exchange.send(piece)
        return keep

    return answer


@pytest.mark.parametrize("part", ["headers", "body"])
def test_byte_at_a_time_ends_at_the_deadline(once, part):
    # Every read succeeds well within the timeout; the whole would take two minutes.
    started = time.monotonic()
    got = once.refusal(fault.drip(BODY, interval_seconds=0.25, part=part), timeout_seconds=2.0)
    assert 2.0 <= time.monotonic() - started < 60
    assert got.reason is FailureReason.TIMEOUT
    assert "did not complete its answer within 2 s" in got.detail


def test_slow_redirects_share_one_deadline(once):
    answer = fault.head(302, None, "Location: /metrics", "Content-Length: 0")

    def slow(exchange):
        if exchange.wait(0.25):
            return False
        exchange.send(answer)
        return True

    assert once.refusal(slow, timeout_seconds=0.6).reason is FailureReason.TIMEOUT


def test_deadline_is_counted_on_the_injected_clock(once):
    now = [0.0]

    def monotonic() -> float:
        now[0] += 30.0  # each look at the clock is half a minute later
        return now[0]

    assert once.refusal(fault.page(BODY), clocks={"monotonic": monotonic}).reason is FailureReason.TIMEOUT


def test_slow_error_page_does_not_hide_its_status(once):
    got = once.refusal(fault.raw(fault.head(500, fault.TEXT, "Content-Length: 100"), keep=True), timeout_seconds=2.0)
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
        got = make_client(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout_seconds=0.3).refusal()
    # a kernel may take it into the backlog after all: then it is the answer that does not come
    said = {FailureReason.UNREACHABLE: "did not accept a connection in time", FailureReason.TIMEOUT: "sent no answer"}
    assert said[got.reason] in got.detail


def test_tls_handshake_counts_into_the_deadline(make_client):
    with socket.create_server(("127.0.0.1", 0)) as listener:  # the backlog accepts; nobody ever answers
        got = make_client(f"https://127.0.0.1:{listener.getsockname()[1]}", timeout_seconds=2.0).refusal()
    assert got.reason is FailureReason.TIMEOUT
    assert "TLS handshake" in got.detail


def test_next_attempt_after_a_timeout_starts_afresh(client_of):
    with client_of({"/metrics": fault.silent()}, timeout_seconds=2.0) as (server, client):
        assert client.refusal().reason is FailureReason.TIMEOUT
        server.behave("/metrics", fault.page(BODY))
        client.page()
        assert server.connections == 2


PROTOCOL, TOO_LARGE = FailureReason.PROTOCOL, FailureReason.TOO_LARGE
ABSURD_SIZES = (b"-1", b"-5", b"f" * 24, b"0x10", b"7fffffff")


@check_rows(
    ("behaviour", "reasons"),
    [
        (fault.endless(framing="chunked"), [TOO_LARGE]),
        (fault.endless(framing="close"), [TOO_LARGE]),
        (fault.gzip_bomb(64 << 20), [TOO_LARGE]),
        # the body never comes
        (fault.raw(fault.head(200, fault.TEXT, f"Content-Length: {CAP + 1}"), keep=True), [TOO_LARGE]),
        *(
            (sends(fault.head(200, fault.TEXT, CHUNKED) + size + b"\r\n", *[b"x" * 65536] * 1024), [PROTOCOL, TOO_LARGE])
            for size in ABSURD_SIZES
        ),
        # framing without a body
        (sends(fault.head(200, fault.TEXT, CHUNKED) + fault.chunk(BODY) + b"0\r\n", *[b"X-Trailer: " + b"t" * 10_000 + b"\r\n"] * 10_000),
         [TOO_LARGE]),
        (fault.continue_flood(), [PROTOCOL]),
    ],
    ids=["chunked", "close", "bomb", "announced", *map(bytes.decode, ABSURD_SIZES), "trailers", "interim"],
    shared=["once"],
)  # fmt: skip
def test_nothing_without_end_is_read_beyond_the_cap(once, behaviour, reasons):
    tracemalloc.start()
    got = once.refusal(behaviour, max_body_bytes=CAP)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert got.reason in reasons
    assert got.reason is not TOO_LARGE or "limit" in got.detail or "max_body_bytes" in got.detail
    assert peak < 2 * CAP


@check_rows(
    "framing",
    [{}, {"framing": "chunked"}, {"framing": "close"}, {"compress": True}],
    shared=["once"],
)
def test_body_of_exactly_the_cap_is_taken(once, framing):
    assert len(once.page(fault.page(b"x" * CAP, **framing), max_body_bytes=CAP).body) == CAP


def test_headers_that_come_byte_by_byte_are_read(once):
    answer = fault.head(200, "text/plain", f"X-Long: {'a' * 1500}", f"Content-Length: {len(BODY)}") + BODY
    assert once.page(sends(*(bytes([byte]) for byte in answer), keep=True)).body == BODY


@pytest.mark.parametrize(
    "chunk", [b"4\r\nup 1 2 3\r\n0\r\n\r\n", b"5\r\nup 1\n\r0\r\n\r\n", b"-5\r\nup 1\n\r\n0\r\n\r\n"]
)
def test_chunks_that_are_not_as_long_as_they_say_are_refused(once, chunk):
    got = once.refusal(sends(fault.head(200, "text/plain", CHUNKED) + chunk))
    assert got.reason in (FailureReason.PROTOCOL, FailureReason.CLOSED)
