"""The usual head by one pattern, against http.client."""

from __future__ import annotations

import http.client

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.fetch.answer import Head, IncompleteHeadError, _read_any_head, read_head, read_usual_head
from tests.support.rows import check_rows

UVICORN = (
    b"HTTP/1.1 200 OK\r\ndate: Mon, 23 Nov 2026 10:00:00 GMT\r\nserver: uvicorn\r\ncontent-length: 3\r\n"
    b"content-type: text/plain; version=0.0.4; charset=utf-8\r\n\r\nabc"
)
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: Chunked\r\nConnection: Keep-Alive, close\r\n\r\n3\r\nabc"


@pytest.mark.parametrize("answer", [UVICORN, CHUNKED])
def test_a_usual_head_is_read_without_http_client(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = _read_any_head(answer, at_end=False)
    monkeypatch.setattr(http.client, "HTTPResponse", None)
    assert read_head(answer, at_end=False) == theirs


@check_rows(
    "answer",
    [
        UVICORN.replace(b"200", b"503"),
        UVICORN.replace(b"HTTP/1.1", b"HTTP/1.0"),
        UVICORN.replace(b"content-length: 3\r\n", b""),  # until the connection ends
        UVICORN.replace(b"content-length: 3", b"content-length: 3\r\ncontent-length: 4"),
        UVICORN.replace(b"content-length: 3", b"content-length: -3"),
        UVICORN.replace(b"content-length: 3", b"content-length: " + "\N{ARABIC-INDIC DIGIT THREE}".encode()),
        UVICORN.replace(b"content-length: 3", b"content-length: 3\r\ntransfer-encoding: chunked"),
        UVICORN.replace(b"content-length: 3", b"transfer-encoding: gzip, chunked"),
        UVICORN.replace(b"server: uvicorn", b"server: a\r\n b"),  # folded
        UVICORN.replace(b"\r\n", b"\n"),
    ],
)
def test_an_unusual_one_is_left_to_http_client(answer: bytes) -> None:
    assert read_usual_head(answer) is None


@check_rows("end", range(1, len(UVICORN) - 3))
def test_one_that_is_cut_waits_for_the_rest(end: int) -> None:
    with pytest.raises(IncompleteHeadError):
        read_head(UVICORN[:end], at_end=False)


NAMES = st.sampled_from(
    [
        "Content-Length",
        "content-length",
        "Transfer-Encoding",
        "Connection",
        "Content-Type",
        "X-a",
        "x y",
        "",
        "é",
        "Content-Length ",
    ]
)
VALUES = st.one_of(
    st.sampled_from(
        [
            "3",
            "03",
            "+3",
            "3 ",
            "\t3",
            "1e3",
            "9" * 20,
            "chunked",
            "CHUNKED",
            "chunked, chunked",
            "close",
            "keep-alive",
            "text/plain",
        ]
    ),
    st.text(st.characters(max_codepoint=255), max_size=6),
)
ENDS = st.sampled_from([b"\r\n"] * 8 + [b"\n", b"\r", b"\r\r\n"])


@given(
    st.sampled_from(
        [
            b"HTTP/1.1 200 OK",
            b"HTTP/1.1 200",
            b"HTTP/1.1 200 ",
            b"HTTP/1.1  200 OK",
            b"http/1.1 200 OK",
            b"HTTP/1.1 2000 OK",
        ]
    ),
    st.lists(st.tuples(NAMES, VALUES, ENDS), max_size=5),
    st.sampled_from([b"", b"abc", b"\r\n"]),
)
def test_where_both_read_a_head_they_say_the_same(
    status: bytes, lines: list[tuple[str, str, bytes]], body: bytes
) -> None:
    block = b"".join(f"{name}: {value}".encode("latin-1") + end for name, value, end in lines)
    answer = status + b"\r\n" + block + b"\r\n" + body
    ours = read_usual_head(answer)
    if ours is None:
        return
    theirs = _read_any_head(answer, at_end=False)
    assert isinstance(ours[0], Head)
    assert ours == theirs
