"""Where requests end, in whatever pieces they come."""

from __future__ import annotations

import pytest

from llm_serving_exporter.web.framing import Framing, Raw
from llm_serving_exporter.web.limits import Limits
from tests.support.rows import check_rows

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST /-/reload HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n"


def taken(*pieces: bytes, limits: Limits | None = None) -> list[Raw]:
    framing, found = Framing(limits or Limits()), []
    for piece in pieces:
        framing.feed(piece)
        while (raw := framing.take_request()) is not None:
            found.append(raw)
    return found


@check_rows("size", [1, 2, 3, 7, 1000])
def test_requests_are_the_same_in_pieces_of_any_size(size: int) -> None:
    data = b"\r\n\n" + GET + b" \t\r\n" + POST + b"abc" + GET.replace(b"\r\n", b"\n")
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert taken(*pieces) == [Raw(GET), Raw(POST, b"abc"), Raw(GET.replace(b"\r\n", b"\n"))]


def test_a_body_is_waited_for_unless_it_is_to_be_refused() -> None:
    assert taken(POST, b"ab") == []
    for header in (
        b"Content-Length: 1025",
        b"Content-Length: -1",
        b"Content-Length: 1\r\nContent-Length: 1",
        b"Transfer-Encoding: chunked\r\nContent-Length: 3",
    ):
        head = POST.replace(b"Content-Length: 3", header)
        assert taken(head) == [Raw(head)]


def test_what_is_no_request_line_is_known_by_its_end() -> None:
    assert taken(b"GET /\r\n") == [Raw(b"GET /\r\n")]
    assert taken(b"\x16\x03\x01") == []


@pytest.mark.parametrize("beginning", [b"", b"GET /", b"GET / HTTP/1.1\r\nA: "])
def test_a_head_without_end_is_refused_at_its_bound(beginning: bytes) -> None:
    limits = Limits(head_bytes=100)
    framing = Framing(limits)
    framing.feed(beginning + b"a" * (100 - len(beginning)))
    assert framing.take_request() is None
    framing.feed(b"a")
    assert framing.take_request() == Raw(b"", too_large=True)
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
