"""The bytes of a connection -> requests, and an answer -> the bytes that go out. No socket and no clock but that of Date: whoever sends
slowly waits for the rest of a request without a thread."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator, Mapping
from email.utils import formatdate
from http import HTTPStatus
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.web.crowd import Limits

PLAIN = "text/plain; charset=utf-8"


class Request(Struct, frozen=True):
    """A request without its body, which no page reads."""

    # GET, HEAD or another
    method: str
    # without the query
    path: str
    # what follows "?"; "" without one
    query: str
    # by name in lower case; the values of a repeated name are joined by ", "
    headers: Mapping[str, str]


class LargeBody(Protocol):
    """A body that is kept compressed: too large to be in memory as it is."""

    def __len__(self) -> int:
        """Bytes as it is, not compressed."""

    @property
    def gzip_bytes(self) -> int:
        """Bytes with gzip, which is about what it takes in memory."""

    def read(self) -> Iterator[bytes]:
        """All of it as it is, piece by piece; each is made when it is taken."""

    def read_gzip(self) -> Iterator[bytes]:
        """All of it with gzip, piece by piece."""


class Response(Struct, frozen=True):
    """An answer, as its page makes it."""

    # HTTP status
    status: int
    # value of Content-Type
    content_type: str
    # not compressed, unless it is large
    body: bytes | LargeBody
    # added to the server's own; they replace those of the same name
    headers: tuple[tuple[str, str], ...] = ()


Handler = Callable[[Request], Response]


def plain(status: int, line: str, *headers: tuple[str, str]) -> Response:
    """One line of plain text; the caller writes its full stop."""
    return Response(status, PLAIN, f"{line}\n".encode(), headers)


# --- What comes in.

_BLANK_LINES = re.compile(rb"(?:[ \t\v\f\r]*\n)+")
_HEAD_END = re.compile(rb"\n\r?\n")
# RFC 9112, sections 3 and 5: no control character anywhere, no line that goes on with the next one; other bytes are letters. No part can
# match what the part behind it can, so that no line takes longer than its length
_REQUEST_LINE = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+)[ \t]+([^\x00-\x20\x7f]+)[ \t]+HTTP/(\d)\.(\d)[ \t]*")
_HEADER = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):([^\x00-\x08\x0a-\x1f\x7f]*)")
_WORDS = 3  # of a request line
_MOST_HEADERS = 100
_NO_REQUEST = Request("", "", "", {})


class Incoming(NamedTuple):
    """One request as it was sent, whole, or as much of it as shows that it is none."""

    # empty where not even its line could be read
    request: Request
    # the minor version of HTTP/1
    version: int = 1
    # as long as Content-Length says; 0 of what is refused, after which nothing is read
    body_bytes: int = 0
    # the answer to what is none; None for the page to answer
    refusal: Response | None = None

    @property
    def closes(self) -> bool:
        """Whether the connection ends with the answer."""
        option = self.request.headers.get("connection", "").lower()
        return self.refusal is not None or option == "close" or (self.version == 0 and option != "keep-alive")


class Framing:
    """The bytes of one connection that no request has been made of yet."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._bytes = bytearray()
        # how far the end of the head has been looked for
        self._searched = 0
        # the request whose body is still to come
        self._begun: Incoming | None = None
        self._has_continued = False

    @property
    def has_begun(self) -> bool:
        """Whether there is a part of a request."""
        return bool(self._bytes) or self._begun is not None

    def feed(self, data: bytes) -> None:
        """Adds what came."""
        self._bytes += data

    def take_request(self) -> Incoming | None:
        """The first request of what came; None where its end is still to come. After one that is refused nothing is to be read."""
        incoming, self._begun = self._begun or self._take_head(), None
        if incoming is None:
            return None
        if len(self._bytes) < incoming.body_bytes:
            self._begun = incoming
            return None
        del self._bytes[: incoming.body_bytes if incoming.refusal is None else None]
        self._has_continued = False
        return incoming

    def take_continue(self) -> bool:
        """Whether the client is to be told, for the first time in this request, that it may send the body."""
        if self._begun is None or self._has_continued:
            return False
        self._has_continued = self._begun.request.headers.get("expect", "").lower() == "100-continue"
        return self._has_continued

    def _take_head(self) -> Incoming | None:
        if blank := _BLANK_LINES.match(self._bytes):  # to be skipped: RFC 9112, section 2.2
            del self._bytes[: blank.end()]
            self._searched = 0
        line_end = self._bytes.find(b"\n") + 1
        if line_end and len(self._bytes[:line_end].split()) != _WORDS:
            return _refuse(400, "This is not an HTTP/1.1 request.")
        end = _HEAD_END.search(self._bytes, max(0, self._searched - 2)) if line_end else None
        size = len(self._bytes) if end is None else end.end()
        if size > self._limits.head_bytes:
            return _refuse(431, f"The request is larger than {self._limits.head_bytes} bytes.")
        if end is None:
            self._searched = size
            return None
        head = bytes(self._bytes[: end.start()])
        del self._bytes[:size]
        self._searched = 0
        return read_head(head, self._limits.body_bytes)


def read_head(head: bytes, most_body_bytes: int) -> Incoming:
    """The request of a line and headers, without the empty line after them. One that asks for a longer body is refused."""
    line, *lines = head.split(b"\n")
    parts = _REQUEST_LINE.fullmatch(line.removesuffix(b"\r"))
    if parts is None:
        return _refuse(400, "Bad Request.")
    if parts[3] != b"1":
        return _refuse(505, "HTTP Version Not Supported.")
    target = parts[2].decode("latin-1")
    path, _, query = (target if target.startswith("/") else _read_absolute(target)).partition("?")
    if path.startswith("//"):  # an address that ends with "/", joined to a path
        path = f"/{path.lstrip('/')}"
    headers: dict[str, str] = {}
    request = Request(parts[1].decode(), path, query, headers)
    if len(lines) > _MOST_HEADERS:
        return _refuse(431, "Request Header Fields Too Large.", request)
    for header in lines:
        pair = _HEADER.fullmatch(header.removesuffix(b"\r"))
        if pair is None:
            return _refuse(400, "Bad Request.", request)
        name, value = pair[1].decode().lower(), pair[2].strip(b" \t").decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    # what stands in front may read either: RFC 9112, section 3.2
    if "," in headers.get("host", ""):
        return _refuse(400, "A request has one Host.", request)
    if "transfer-encoding" in headers:
        return _refuse(411, "No page takes a request body.", request)
    length = headers.get("content-length", "0")
    if not re.fullmatch(r"[0-9]{1,15}", length):
        return _refuse(400, "Content-Length is not one whole number.", request)
    if int(length) > most_body_bytes:
        return _refuse(413, f"The request's body is larger than {most_body_bytes} bytes; no page takes one.", request)
    return Incoming(request, min(int(parts[4]), 1), int(length))


def _refuse(status: int, line: str, request: Request = _NO_REQUEST) -> Incoming:
    return Incoming(request, refusal=plain(status, line))


def _read_absolute(target: str) -> str:
    """The path and query of an absolute-form target, which RFC 9112, section 3.2.2 has every server accept."""
    try:
        parts = urlsplit(target)
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https"):
        return ""
    return f"{parts.path or '/'}?{parts.query}"


# --- What goes out.

# the quickest: the way to a scraper is short, and a core that compresses does nothing else
GZIP_LEVEL = 1
# below this the gzip header and the work outweigh what is saved; one packet carries about 1.4 kB
GZIP_FROM_BYTES = 1024

BASE_HEADERS = (
    # every page shows this moment, and some of them show configuration
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "deny"),
    ("Referrer-Policy", "no-referrer"),
    (
        "Content-Security-Policy",
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
)


class Answer(NamedTuple):
    """What goes out for a request."""

    # head and body, as they go over the wire; of a large body as much as `rest` has not
    data: bytes
    # HTTP status
    status: int
    # whether the connection ends with it
    closes: bool
    # whether the client may still be sending, so that closing at once would destroy the answer on its way
    drains: bool = False
    # pieces that follow `data`, each made when it is taken
    rest: Iterator[bytes] = iter(())
    # what they take in memory until the last of them is taken
    rest_bytes: int = 0


def make_answer(
    incoming: Incoming, response: Response, headers: tuple[tuple[str, str], ...] = (), *, closes: bool = False
) -> Answer:
    """What goes out for a response. `headers`: replace ours, an empty value removes one. `closes`: whether the connection is to end."""
    fixed = {name: content for name, content in {**dict(BASE_HEADERS), **dict(headers)}.items() if content}
    sent = {"Date": formatdate(usegmt=True), "Content-Type": response.content_type, **fixed}
    body, size = response.body, len(response.body)
    compresses = size > GZIP_FROM_BYTES and _accepts_gzip(incoming.request.headers)
    if size > GZIP_FROM_BYTES:
        sent["Vary"] = "Accept-Encoding"
    if compresses:
        sent["Content-Encoding"] = "gzip"
        if isinstance(body, bytes):
            body = gzip.compress(body, GZIP_LEVEL, mtime=0)
        size = len(body) if isinstance(body, bytes) else body.gzip_bytes
    sent |= {**dict(response.headers), "Content-Length": str(size)}
    closes = closes or incoming.closes
    if closes:
        sent["Connection"] = "close"
    elif incoming.version == 0:
        sent["Connection"] = "keep-alive"
    head, drains = _write_head(response.status, sent), incoming.refusal is not None
    if incoming.request.method == "HEAD":
        return Answer(head, response.status, closes, drains)
    if isinstance(body, bytes):
        return Answer(head + body, response.status, closes, drains)
    rest = body.read_gzip() if compresses else body.read()
    return Answer(head, response.status, closes, drains, rest, body.gzip_bytes)


def refuse_connection(response: Response) -> Answer:
    """The answer to a client whose request is not read: a line, as `plain` makes it."""
    assert isinstance(response.body, bytes)
    headers = {"Content-Type": response.content_type, "Connection": "close", "Content-Length": str(len(response.body))}
    return Answer(_write_head(response.status, headers) + response.body, response.status, closes=True, drains=True)


def _write_head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = (f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{name}: {value}" for name, value in headers.items()))
    return "\r\n".join((*lines, "\r\n")).encode("latin-1", "replace")


def _accepts_gzip(headers: Mapping[str, str]) -> bool:
    for entry in headers.get("accept-encoding", "").split(","):
        coding, _, parameters = entry.partition(";")
        if coding.strip().lower() in ("gzip", "*"):
            return not re.fullmatch(r"\s*q\s*=\s*0(\.0*)?\s*", parameters)
    return False
