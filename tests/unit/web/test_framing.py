"""Where requests end, in whatever pieces they come, and what is refused before anybody answers it."""

import time

import pytest

from llm_serving_exporter.web.crowd import Limits
from llm_serving_exporter.web.exchange import Framing, Incoming
from tests.support.rows import check_rows

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
