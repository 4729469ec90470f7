"""One request -> one answer, as bytes: the standard library parses; the refusals and the headers are here."""

from __future__ import annotations

import gzip
import io
import re
from collections.abc import Callable, Iterator, Mapping
from email.utils import formatdate
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import NamedTuple
from urllib.parse import urlsplit

from llm_serving_exporter.web.exchange import Handler, Request, Response, plain
from llm_serving_exporter.web.framing import Raw
from llm_serving_exporter.web.limits import Limits

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


def answer_request(
    raw: Raw,
    handler: Handler,
    limits: Limits,
    headers: tuple[tuple[str, str], ...] = (),
    *,
    closes: Callable[[], bool] = lambda: False,
) -> Answer:
    """The answer to a request, whatever it is.

    `headers`: replace ours, an empty value removes one. `closes`: whether the connection is to end, asked when the
    page is made.
    """
    return _Exchange(raw, handler, limits, headers, closes=closes).answer


def refuse_connection(response: Response) -> Answer:
    """The answer to a client whose request is not read: a line, as `plain` makes it."""
    assert isinstance(response.body, bytes)
    head = (
        f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}\r\nContent-Type: {response.content_type}\r\n"
    )
    head += f"Connection: close\r\nContent-Length: {len(response.body)}\r\n\r\n"
    return Answer(head.encode() + response.body, response.status, closes=True, drains=True)


class _Exchange(BaseHTTPRequestHandler):
    """Everything happens in the constructor, as the base class has it."""

    protocol_version = "HTTP/1.1"

    def __init__(
        self,
        raw: Raw,
        handler: Handler,
        limits: Limits,
        headers: tuple[tuple[str, str], ...],
        *,
        closes: Callable[[], bool],
    ) -> None:
        self._raw, self._handler, self._limits = raw, handler, limits
        self._fixed = {name: content for name, content in {**dict(BASE_HEADERS), **dict(headers)}.items() if content}
        self._closes = closes
        self.answer = Answer(b"", 0, closes=True)
        # neither a socket, the address nor a server object is used: nothing here waits, looks names up or logs requests
        super().__init__(None, ("", 0), None)  # type: ignore[arg-type]

    def setup(self) -> None:
        """The request's own bytes in place of the base class's files."""
        self.rfile, self.wfile = io.BufferedReader(io.BytesIO(self._raw.head)), io.BytesIO()
        self.command, self.requestline, self.request_version = "", "", self.protocol_version
        self.close_connection = False

    def finish(self) -> None:
        """Nothing is open."""

    def handle(self) -> None:
        """Checks and answers the request."""
        if self._raw.too_large:
            self._refuse(431, f"The request is larger than {self._limits.head_bytes} bytes.")
            return
        self.raw_requestline = self.rfile.readline()
        if len(self.raw_requestline.split()) != 3:  # the parser would take two words for HTTP/0.9
            self._refuse(400, "This is not an HTTP/1.1 request.")
            return
        if not self.parse_request():
            return
        # what stands in front may read either: RFC 9112, section 3.2, and RFC 9110, section 5.5
        if len(self.headers.get_all("host", [])) > 1 or b"\0" in self._raw.head:
            self._refuse(400, "A request has one Host, and no zero byte.")
            return
        if not self._is_body_taken():
            return
        target = self.path if self.path.startswith("/") else _read_absolute(self.path)
        path, _, query = target.partition("?")
        headers: dict[str, str] = {}
        for name, value in self.headers.items():
            key = name.lower()
            headers[key] = f"{headers[key]}, {value}" if key in headers else value
        request = Request(self.command, path, query, headers)
        self._answer(self._handler(request), compress=_accepts_gzip(headers))

    def _is_body_taken(self) -> bool:
        """Whether the body is one that is taken off the connection: small, since no page wants one."""
        if "transfer-encoding" in self.headers:
            self._refuse(411, "No page takes a request body.")
            return False
        lengths = self.headers.get_all("content-length", ["0"])
        if len(lengths) != 1 or not re.fullmatch(r"[0-9]{1,15}", lengths[0].strip(" \t")):
            self._refuse(400, "Content-Length is not one whole number.")
            return False
        if int(lengths[0]) > self._limits.body_bytes:
            self._refuse(413, f"The request's body is larger than {self._limits.body_bytes} bytes; no page takes one.")
            return False
        if int(lengths[0]) != len(
            self._raw.body
        ):  # read otherwise than where the request was cut off: nothing can follow
            self._refuse(400, "The request's headers are not what they seem.")
            return False
        return True

    def _refuse(self, status: int, line: str) -> None:
        self.close_connection = True
        self._answer(plain(status, line), compress=False, drains=True)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the base class's parser calls: a line of plain text instead of its HTML."""
        self._refuse(int(code), f"{HTTPStatus(code).phrase}.")

    def handle_expect_100(self) -> bool:
        """The client was told before its body came."""
        return True

    def _answer(self, response: Response, *, compress: bool, drains: bool = False) -> None:
        body = response.body
        headers = {"Date": formatdate(usegmt=True), "Content-Type": response.content_type, **self._fixed}
        size = len(body)
        if size > GZIP_FROM_BYTES:
            headers["Vary"] = "Accept-Encoding"
            if compress:
                headers["Content-Encoding"] = "gzip"
                if isinstance(body, bytes):
                    body = gzip.compress(body, GZIP_LEVEL, mtime=0)
                size = len(body) if isinstance(body, bytes) else body.gzip_bytes
        headers |= dict(response.headers)
        headers["Content-Length"] = str(size)
        if self.close_connection or self._closes():
            self.close_connection = True
            headers["Connection"] = "close"
        elif self.request_version == "HTTP/1.0":
            headers["Connection"] = "keep-alive"
        lines = [f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        head = "\r\n".join((*lines, "\r\n")).encode("latin-1", "replace")
        if self.command == "HEAD":
            self.answer = Answer(head, response.status, self.close_connection, drains)
        elif isinstance(body, bytes):
            self.answer = Answer(head + body, response.status, self.close_connection, drains)
        else:
            rest = body.read_gzip() if compress else body.read()
            self.answer = Answer(head, response.status, self.close_connection, drains, rest, body.gzip_bytes)


def _read_absolute(target: str) -> str:
    """The path and query of an absolute-form target, which RFC 9112, section 3.2.2 has every server accept."""
    try:
        parts = urlsplit(target)
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https"):
        return ""
    return f"{parts.path or '/'}?{parts.query}"


def _accepts_gzip(headers: Mapping[str, str]) -> bool:
    for entry in headers.get("accept-encoding", "").split(","):
        coding, _, parameters = entry.partition(";")
        if coding.strip().lower() in ("gzip", "*"):
            return not re.fullmatch(r"\s*q\s*=\s*0(\.0*)?\s*", parameters)
    return False
