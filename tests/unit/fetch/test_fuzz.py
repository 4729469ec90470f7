"""Whatever a server sends, the answer is a Page or a Refusal, never an exception."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from llm_serving_exporter.fetch.http import JsonAnswer
from llm_serving_exporter.model.sample import FailureReason, Page, Refusal
from llm_serving_exporter.model.target import HttpSettings
from tests.support.servers.blocking_client import BlockingClient
from tests.support.servers.faultbehaviours import raw
from tests.support.servers.faultserver import FaultServer

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


ANSWERS = st.binary(max_size=300) | st.lists(TOKENS, max_size=30).map(b"".join) | mutated()


@pytest.fixture(scope="module")
def server():
    with FaultServer(raw(b"")) as running:
        yield running


@given(ANSWERS)
@example(b"")
@example(GOOD)
@example(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nup 1\n")
@example(b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n")
@example(b"HTTP/1.1 302 x\r\nLocation: http://[v1.x]:y/\r\n\r\n")
def test_any_bytes_as_an_answer(server, answer):
    server.behave("/metrics", raw(answer))
    client = BlockingClient(server.url, SETTINGS)
    try:
        metrics, side = client.get_metrics("/metrics"), client.get_json("/metrics")
    finally:
        client.close()
    assert isinstance(metrics, (Page, Refusal))
    assert isinstance(side, (JsonAnswer, Refusal))
    for got in (metrics, side):
        if isinstance(got, Refusal):
            assert got.reason is not FailureReason.INTERNAL, got.detail
            assert got.detail.isprintable()
            assert len(got.detail) < 400


@given(st.text(max_size=40))
def test_any_path(server, path):
    client = BlockingClient(server.url, SETTINGS)
    try:
        got = client.get_metrics(path)
    finally:
        client.close()
    assert isinstance(got, Refusal)
    assert got.reason in (FailureReason.CLOSED, FailureReason.STATUS), got.detail


@given(st.text(max_size=60))
def test_any_excerpt_is_one_short_printable_line(text):
    from llm_serving_exporter.fetch.waits import EXCERPT_CHARACTERS, quote_first_line

    line = quote_first_line(text)
    assert line == "" or line.isprintable()
    assert len(line) <= EXCERPT_CHARACTERS
