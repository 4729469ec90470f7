"""Every way in which there is no page, through a real socket, with a sentence that says what to do; the server that behaves so."""

from __future__ import annotations

import contextlib
import gzip
import socket
import threading
from collections.abc import Callable
from contextlib import closing

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from llm_serving_exporter.fetch.http import JsonAnswer
from llm_serving_exporter.fetch.waits import EXCERPT_CHARACTERS, quote_first_line
from llm_serving_exporter.model.sample import FailureReason, Page, Refusal
from llm_serving_exporter.model.target import HttpSettings, Secret
from tests.support.rows import check_rows
from tests.support.servers import faultbehaviours as fault
from tests.support.servers.faultserver import Behaviour, FaultServer
from tests.support.waiting import PATIENCE_SECONDS
from tests.unit.fetch.conftest import BlockingClient, MakeClient

BODY = b"up 1\n" * 1000
GZIP, PACKED_BODY = ("Content-Encoding: gzip",), gzip.compress(BODY)
CREDENTIALS = "set auth.bearer_token_file, auth.bearer_token_env or auth.basic"
PROTOBUF = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily"


def framed(*headers: str, body: bytes = BODY, keep: bool = True) -> Behaviour:
    """An answer with these headers, after which the connection stays open."""
    return fault.raw(fault.head(200, fault.TEXT, *headers) + body, keep=keep)


ANSWERS: list[tuple[str, Behaviour, FailureReason, int | None, str]] = [
    ("silent", fault.silent(), FailureReason.TIMEOUT, None, "sent no answer within"),
    ("hang-up", fault.hang_up(), FailureReason.CLOSED, None, "hung up before the first byte"),
    ("reset", fault.hang_up(reset=True), FailureReason.CLOSED, None, "hung up"),
    ("short-body", fault.truncated(BODY, 100), FailureReason.CLOSED, None, "of a complete answer"),
    ("short-gzip", framed("Content-Length: 999", *GZIP, body=PACKED_BODY, keep=False), FailureReason.CLOSED, None, "of a complete answer"),
    ("short-chunk", fault.truncated(BODY, 100, framing="chunked"), FailureReason.CLOSED, None, "of a complete answer"),
    ("no-status-line-end", fault.raw(b"HTTP/1.1 20"), FailureReason.PROTOCOL, None, "does not answer in HTTP/1"),
    ("cut-headers", fault.raw(fault.head(200, fault.TEXT)[:-4]), FailureReason.CLOSED, None, "of a complete answer"),
    ("garbage", fault.garbage(), FailureReason.PROTOCOL, None, "does not answer in HTTP/1; is the port right?"),
    ("tls-port", fault.raw(b"\x15\x03\x01\x00\x02\x02\x46"), FailureReason.SPEAKS_TLS, None, "begin with https://"),
    ("http-2", fault.raw(b"HTTP/2 200\r\n\r\n"), FailureReason.PROTOCOL, None, "breaks HTTP"),
    ("header-flood", fault.header_flood(), FailureReason.PROTOCOL, None, "breaks HTTP or its limits"),
    ("long-header", fault.raw(fault.head(200, "x" * 70_000)), FailureReason.PROTOCOL, None, "breaks HTTP or its limits"),
    ("large-headers", framed(*(f"X-{n}: {'y' * 8000}" for n in range(60))), FailureReason.PROTOCOL, None, "breaks HTTP or its limits"),
    ("bad-length", framed("Content-Length: many"), FailureReason.PROTOCOL, 200, "Content-Length is not a length"),
    ("negative-length", framed("Content-Length: -1"), FailureReason.PROTOCOL, 200, "Content-Length is not a length"),
    ("bad-chunk", framed("Transfer-Encoding: chunked", body=b"zz\r\n"), FailureReason.PROTOCOL, None, "breaks HTTP"),
    ("401", fault.status(401, b"who?"), FailureReason.UNAUTHORIZED, 401, CREDENTIALS),
    ("403", fault.status(403, b"no"), FailureReason.UNAUTHORIZED, 403, CREDENTIALS),
    ("loading", fault.loading(), FailureReason.LOADING, 503, "Loading model"),
    ("503-text", fault.status(503, b"busy"), FailureReason.STATUS, 503, "answered /metrics with 503: busy"),
    ("500-json", fault.status(500, b"{}", "application/json"), FailureReason.STATUS, 500, "with 500: {}"),
    ("404", fault.status(404, b"no\n"), FailureReason.STATUS, 404, "is the path right, and are metrics switched on?"),
    ("204", fault.status(204), FailureReason.STATUS, 204, "with 204"),
    ("304", fault.status(304), FailureReason.STATUS, 304, "with 304"),
    ("206", fault.status(206, BODY), FailureReason.STATUS, 206, "with 206"),
    ("redirect", fault.redirect("http://other.invalid/m"), FailureReason.REDIRECT, 302, "http://other.invalid/m, which is not"),
    ("loop", fault.redirect("/metrics"), FailureReason.REDIRECT, 302, "more than 3 times"),
    ("html", fault.page(b"<html>", "text/html; charset=utf-8"), FailureReason.CONTENT_TYPE, 200, "text/html"),
    ("json", fault.page(b"{}", "application/json"), FailureReason.CONTENT_TYPE, 200, "application/json"),
    ("protobuf", fault.page(b"\x00", PROTOBUF), FailureReason.CONTENT_TYPE, 200, "application/vnd.google.protobuf"),
    ("br", fault.page(BODY, headers=("Content-Encoding: br",)), FailureReason.ENCODING, 200, "not asked for"),
    ("not-gzip", fault.page(BODY, headers=GZIP), FailureReason.ENCODING, 200, "does not unpack"),
    ("cut-gzip", fault.page(gzip.compress(BODY)[:-9], headers=GZIP), FailureReason.ENCODING, 200, "ends in the middle"),
    ("gzip-and-more", fault.page(gzip.compress(BODY) + b"more", headers=GZIP), FailureReason.ENCODING, 200, "unpack"),
    ("gzip-members", fault.page(gzip.compress(b"") * 2000, headers=GZIP), FailureReason.ENCODING, 200, "unpack"),
    ("transfer-gzip", framed("Transfer-Encoding: gzip, chunked", body=fault.chunk(BODY)), FailureReason.ENCODING, 200, "not chunked alone"),
    ("large", fault.page(b"x" * 70_000), FailureReason.TOO_LARGE, 200, "exceeds 65536 bytes"),
    ("empty", fault.page(b""), FailureReason.EMPTY, 200, "is empty"),
    ("blank", fault.page(b" \r\n\n"), FailureReason.EMPTY, 200, "is empty"),
    ("empty-gzip", fault.page(gzip.compress(b""), headers=GZIP), FailureReason.EMPTY, 200, "is empty"),
]  # fmt: skip


@check_rows(
    ("behaviour", "reason", "code", "says"),
    [row[1:] for row in ANSWERS],
    ids=[r[0] for r in ANSWERS],
    shared=["once"],
)
def test_answer_is_refused(once, behaviour, reason, code, says):
    timeout = 1.0 if reason is FailureReason.TIMEOUT else 20.0
    refused = once.refusal(behaviour, timeout_seconds=timeout, max_body_bytes=65536)
    assert (refused.reason, refused.status) == (reason, code)
    assert says in refused.detail


def no_name(make_client: MakeClient) -> Refusal:
    return make_client(f"http://{'x' * 64}.invalid:8000").refusal()


def refused_port(make_client: MakeClient) -> Refusal:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    return make_client(f"http://127.0.0.1:{port}").refusal()


def no_route(make_client: MakeClient) -> Refusal:
    # The kernel has no route for TCP to the limited broadcast address (RFC 919); no packet leaves the machine.
    return make_client("http://255.255.255.255:8000", timeout_seconds=1.0).refusal()


def plain_port_asked_for_tls(make_client: MakeClient) -> Refusal:
    with FaultServer(fault.page(BODY)) as server:
        return make_client(f"https://{server.authority}").refusal()


def no_token_file(make_client: MakeClient) -> Refusal:
    with FaultServer(fault.page(BODY)) as server:
        refused = make_client(server.url, bearer_token=Secret(file="/nonexistent/token")).refusal()
        assert server.connections == 0
        return refused


def broken_clock(make_client: MakeClient) -> Refusal:
    """The one fault of ours that can be brought in from outside: an injected clock that fails once."""
    calls: list[None] = []

    def wall() -> float:
        calls.append(None)
        if len(calls) == 1:
            raise LookupError("a secret that must not be shown")
        return 1.0

    with FaultServer(fault.page(BODY)) as server:
        return make_client(server.url, {"wall": wall}).refusal()


WITHOUT_ANSWER: list[tuple[Callable[[MakeClient], Refusal], FailureReason, str]] = [
    (no_name, FailureReason.DNS, "does not resolve"),
    (refused_port, FailureReason.REFUSED, "nothing listens on 127.0.0.1:"),
    (no_route, FailureReason.UNREACHABLE, "255.255.255.255:8000 cannot be reached"),
    (plain_port_asked_for_tls, FailureReason.TLS, "begin with http://"),
    (no_token_file, FailureReason.CREDENTIALS, "bearer_token file /nonexistent/token cannot be read"),
    (broken_clock, FailureReason.INTERNAL, "LookupError"),
]


@check_rows(("provoke", "reason", "says"), WITHOUT_ANSWER, shared=["make_client"])
def test_no_answer_at_all(make_client, provoke, reason, says):
    refused = provoke(make_client)
    assert (refused.reason, refused.status) == (reason, None)
    assert says in refused.detail
    assert "a secret" not in refused.detail


def test_every_reason_of_this_stage_is_reached_above():
    members = list(FailureReason)
    scrape = set(members[: members.index(FailureReason.MALFORMED)]) | {FailureReason.INTERNAL}
    assert {row[2] for row in ANSWERS} | {row[1] for row in WITHOUT_ANSWER} == scrape


def test_every_detail_is_one_printable_line(once):
    page_of_noise = b"\r\n \x00\x1b[31mred\x07\xff and   more" + b"y" * 5000 + b"\nsecond line"
    detail = once.refusal(fault.status(500, page_of_noise)).detail
    assert detail.isprintable()
    assert "[31mred � and more" in detail
    assert "second line" not in detail
    assert len(detail) < 300


def test_error_page_in_gzip_is_shown_unpacked(once):
    assert "engine is dead" in once.refusal(fault.page(b"engine is dead", code=500, compress=True)).detail


@check_rows(
    "content_type",
    [
        None, "", "text/plain", "text/plain; version=1.0.0; charset=utf-8", "Text/Plain;charset=utf-8",
        "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores",
    ],
    shared=["once"],
)  # fmt: skip
def test_content_types_of_metrics_pages_are_accepted(once, content_type):
    assert once.page(fault.page(BODY, content_type)).content_type == (content_type or "")


def test_gzip_of_several_members_is_one_page(once):
    assert once.page(fault.page(gzip.compress(b"a 1\n") + gzip.compress(b"b 2\n"), headers=GZIP)).body == b"a 1\nb 2\n"


@check_rows(
    "behaviour",
    [fault.page(b""), fault.status(500), fault.status(401), fault.page(b"", "text/html"), fault.redirect("/metrics?b")],
    shared=["once"],
)
def test_query_of_the_path_is_not_shown(once, behaviour):
    refused = once.refusal(behaviour, "/metrics\n?key=hunter22")
    assert once.requests[0].target == "/metrics%0A?key=hunter22"
    assert "/metrics%0A" in refused.detail
    assert "hunter22" not in refused.detail


# --- the fault server itself ---


@check_rows(
    "behaviour",
    [
        fault.page(b"up 1\n"),
        fault.silent(),
        fault.drip(b"x" * 1000, interval_seconds=10),
        fault.endless(),
        fault.endless(framing="close"),
    ],
    ids=["idle", "silent", "drip", "endless-chunked", "endless-close"],
)
def test_it_ends_with_clients_still_connected(behaviour):
    with contextlib.ExitStack() as stack:
        with FaultServer(behaviour) as server:
            for _ in range(3):
                client = stack.enter_context(
                    socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_SECONDS)
                )
                client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            server.wait_for_requests(3)
        assert [thread for thread in threading.enumerate() if thread.name.startswith("faultserver")] == []
        with pytest.raises(ConnectionRefusedError):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_SECONDS))


# --- whatever a server sends, the answer is a Page or a Refusal, never an exception ---


SETTINGS = HttpSettings(timeout_seconds=20.0, max_body_bytes=4096, headers=(("X-Key", "sesame"),))

GOOD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nup 1\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nup 1\n\r\n0\r\n\r\n"
PACKED = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(b"up 1\n" * 50, mtime=0)
MOVED = b"HTTP/1.1 302 Found\r\nLocation: /metrics/\r\nContent-Length: 0\r\n\r\n"
WAITING = b"HTTP/1.1 503 No\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
SEEDS = (GOOD, CHUNKED, PACKED, MOVED, WAITING)

TOKENS = st.sampled_from(
    b"HTTP/1.1 |200 OK|503 x|302 x|\r\n|\r\n\r\n|\n|: |Content-Length: |-1|0|Transfer-Encoding: chunked|ffff|"
    b"Content-Encoding: gzip|Content-Type: |multipart/x; boundary=a|Location: |//|http://[|/x|Connection: close|"
    b"\x1f\x8b\x08\x00|=?utf-8?q?=00?=|\xff".split(b"|")
)


@st.composite
def mutated(draw) -> bytes:
    data = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(data)))
        kind = draw(st.sampled_from(["insert", "delete", "replace", "cut", "repeat"]))
        if kind == "insert":
            data[at:at] = draw(TOKENS | st.binary(max_size=20))
        elif kind == "delete":
            del data[at : at + draw(st.integers(1, 20))]
        elif kind == "replace":
            data[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
        elif kind == "cut":
            del data[at:]
        else:
            data[at:at] = data[at : at + 40] * draw(st.integers(1, 30))
    return bytes(data)


ANY_ANSWERS = st.binary(max_size=300) | st.lists(TOKENS, max_size=30).map(b"".join) | mutated()


@pytest.fixture(scope="module")
def server():
    with FaultServer(fault.raw(b"")) as running:
        yield running


@given(ANY_ANSWERS)
@example(b"")
@example(GOOD)
@example(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nup 1\n")
@example(b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n")
@example(b"HTTP/1.1 302 x\r\nLocation: http://[v1.x]:y/\r\n\r\n")
def test_any_bytes_as_an_answer(server, answer):
    server.behave("/metrics", fault.raw(answer))
    with closing(BlockingClient(server.url, SETTINGS)) as client:
        metrics, side = client.get_metrics("/metrics"), client.get_json("/metrics")
    assert isinstance(metrics, (Page, Refusal))
    assert isinstance(side, (JsonAnswer, Refusal))
    for got in (metrics, side):
        if isinstance(got, Refusal):
            assert got.reason is not FailureReason.INTERNAL, got.detail
            assert got.detail.isprintable()
            assert len(got.detail) < 400


@given(st.text(max_size=40))
def test_any_path(server, path):
    with closing(BlockingClient(server.url, SETTINGS)) as client:
        got = client.refusal(path)
    assert got.reason in (FailureReason.CLOSED, FailureReason.STATUS), got.detail


@given(st.text(max_size=60))
def test_any_excerpt_is_one_short_printable_line(text):
    line = quote_first_line(text)
    assert line == "" or line.isprintable()
    assert len(line) <= EXCERPT_CHARACTERS
