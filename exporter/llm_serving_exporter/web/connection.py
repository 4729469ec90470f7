"""One connection: bytes -> requests -> responses -> bytes, within bounds of size and time.

The standard library parses; this module has the deadlines, the sizes and the refusals.
"""

from __future__ import annotations

import gzip
import io
import re
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from llm_serving_exporter.web.exchange import Handler, Request, Response, plain

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

GZIP_LEVEL = 4
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


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of the web server."""

    # served at the same time
    connections: int = 64
    # connections beyond these that still get a 503
    refusals: int = 16
    # from a request's first byte to its last, and for the TLS handshake
    head_seconds: float = 10.0
    # how long a kept connection may wait for its next request: above the usual scrape intervals of 15, 30 and 60 s
    idle_seconds: float = 75.0
    # for one whole answer
    write_seconds: float = 30.0
    # for the answer to a client whose request is not read
    refusal_seconds: float = 1.0
    # of a request's line and headers
    head_bytes: int = 32 * 1024
    # of a request's body, which no page reads
    body_bytes: int = 1024


class _HeadTooLargeError(Exception):
    """A request beyond the size limit; never leaves this module."""


class _Incoming(io.RawIOBase):
    """A socket's bytes until a deadline and a budget run out; each recv gets only the time that is left."""

    def __init__(self, source: socket.socket) -> None:
        self._source = source
        self._deadline = 0.0
        self._budget = 0

    def allow(self, seconds: float, size: int) -> None:
        self._deadline = time.monotonic() + seconds
        self._budget = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        view = memoryview(buffer)[: self._budget]
        if not view:
            raise _HeadTooLargeError
        self._source.settimeout(left)
        size = self._source.recv_into(view)
        self._budget -= size
        return size


def drain(source: socket.socket, limits: Limits) -> None:
    """Ends our side and takes what the client still sends, for a moment. Raises OSError."""
    source.shutdown(socket.SHUT_WR)
    deadline = time.monotonic() + limits.refusal_seconds
    while (left := deadline - time.monotonic()) > 0:
        source.settimeout(left)
        if not source.recv(65536):
            return


def answer_and_close(source: socket.socket, limits: Limits, response: Response) -> None:
    """Answers a client whose request is not read. Every fault is quiet."""
    try:
        source.settimeout(limits.refusal_seconds)
        head = f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}\r\nContent-Type: {response.content_type}\r\n"
        source.sendall(
            f"{head}Connection: close\r\nContent-Length: {len(response.body)}\r\n\r\n".encode() + response.body
        )
        drain(source, limits)
    except OSError:
        return


class Connection(BaseHTTPRequestHandler):
    """Serves a connection until it ends: everything happens in the constructor, as the base class has it.

    `idle` is called with True before the wait for a request and with False at its first byte. `stopping` says whether to
    close after the answer under way. Every fault of the client ends the connection quietly.
    """

    protocol_version = "HTTP/1.1"

    def __init__(
        self,
        source: socket.socket,
        handler: Handler,
        limits: Limits,
        idle: Callable[[bool], None],
        stopping: Callable[[], bool],
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self._handler, self._limits, self._idle, self._stopping = handler, limits, idle, stopping
        self._fixed = {name: content for name, content in {**dict(BASE_HEADERS), **dict(headers)}.items() if content}
        # neither the address nor a server object is used: nothing here looks names up or logs requests
        super().__init__(source, ("", 0), None)  # type: ignore[arg-type]  # there is no server object

    def setup(self) -> None:
        """Bounded reading in place of the base class's files."""
        self._socket: socket.socket = self.request
        self._incoming = _Incoming(self._socket)
        self.rfile = self._reader = io.BufferedReader(self._incoming, 8192)
        self.wfile = io.BytesIO()  # what the base class writes (100 Continue) goes out by `_send`

    def finish(self) -> None:
        """Nothing is buffered."""
        self.rfile.close()

    def handle(self) -> None:
        """Requests until one of the two sides ends it."""
        try:
            self.close_connection = False
            while not self.close_connection:
                self._idle(True)
                self._incoming.allow(self._limits.idle_seconds, self._limits.head_bytes)
                there = len(self._reader.peek(1))
                if not there:
                    return
                self._idle(False)
                self._incoming.allow(self._limits.head_seconds, max(0, self._limits.head_bytes - there))
                try:
                    self.handle_one_request()
                except _HeadTooLargeError:
                    self._refuse(431, f"The request is larger than {self._limits.head_bytes} bytes.")
        except OSError:
            return  # gone, too slow, or a TLS record that is none

    def handle_one_request(self) -> None:
        """Reads, checks and answers one request."""
        self.command, self.requestline, self.request_version = "", "", self.protocol_version
        self.raw_requestline = self.rfile.readline()
        if not self.raw_requestline.endswith(b"\n"):
            raise ConnectionError
        if not self.raw_requestline.strip():
            return  # empty lines before a request are to be skipped: RFC 9112, section 2.2
        if len(self.raw_requestline.split()) != 3:  # the parser would take two words for HTTP/0.9
            self._refuse(400, "This is not an HTTP/1.1 request.")
            return
        if not self.parse_request() or not self._body_read():
            return
        target = self.path if self.path.startswith("/") else _absolute(self.path)
        path, _, query = target.partition("?")
        headers: dict[str, str] = {}
        for name, value in self.headers.items():
            key = name.lower()
            headers[key] = f"{headers[key]}, {value}" if key in headers else value
        request = Request(self.command, path, query, headers)
        self._answer(self._handler(request), compress=_accepts_gzip(headers.get("accept-encoding", "")))

    def _body_read(self) -> bool:
        """Takes a small body off the connection: no page wants one. False where it was refused."""
        if "transfer-encoding" in self.headers:
            self._refuse(411, "No page takes a request body.")
            return False
        lengths = self.headers.get_all("content-length", ["0"])
        if len(lengths) != 1 or not re.fullmatch(r"[0-9]{1,15}", lengths[0].strip(" \t")):
            self._refuse(400, "Content-Length is not one whole number.")
            return False
        length = int(lengths[0])
        if length > self._limits.body_bytes:
            self._refuse(413, f"The request's body is larger than {self._limits.body_bytes} bytes; no page takes one.")
            return False
        if len(self.rfile.read(length)) < length:
            raise ConnectionError
        return True

    def _refuse(self, status: int, line: str) -> None:
        self.close_connection = True
        self._answer(plain(status, line), compress=False)
        # closing with unread bytes would reset the connection and destroy the answer on its way
        drain(self._socket, self._limits)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the base class's parser calls: a line of plain text instead of its HTML."""
        self._refuse(int(code), f"{HTTPStatus(code).phrase}.")

    def handle_expect_100(self) -> bool:
        """A client that waits before it sends a body is told to go on; the size is checked right after."""
        self._send(b"HTTP/1.1 100 Continue\r\n\r\n")
        return True

    def _answer(self, response: Response, *, compress: bool) -> None:
        body = response.body
        headers = {"Date": formatdate(usegmt=True), "Content-Type": response.content_type, **self._fixed}
        if len(body) > GZIP_FROM_BYTES:
            headers["Vary"] = "Accept-Encoding"
            if compress:
                body = gzip.compress(body, GZIP_LEVEL, mtime=0)
                headers["Content-Encoding"] = "gzip"
        headers |= dict(response.headers)
        headers["Content-Length"] = str(len(body))
        if self.close_connection or self._stopping():
            self.close_connection = True
            headers["Connection"] = "close"
        elif self.request_version == "HTTP/1.0":
            headers["Connection"] = "keep-alive"
        lines = [f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        head = "\r\n".join((*lines, "\r\n")).encode("latin-1", "replace")
        self._send(head if self.command == "HEAD" else head + body)

    def _send(self, data: bytes) -> None:
        deadline = time.monotonic() + self._limits.write_seconds
        rest = memoryview(data)
        while rest:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._socket.settimeout(left)
            rest = rest[self._socket.send(rest) :]


def _absolute(target: str) -> str:
    """The path and query of an absolute-form target, which RFC 9112, section 3.2.2 has every server accept."""
    try:
        parts = urlsplit(target)
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https"):
        return ""
    return f"{parts.path or '/'}?{parts.query}"


def _accepts_gzip(header: str) -> bool:
    for entry in header.split(","):
        coding, _, parameters = entry.partition(";")
        if coding.strip().lower() in ("gzip", "*"):
            return not re.fullmatch(r"\s*q\s*=\s*0(\.0*)?\s*", parameters)
    return False


def is_tls(source: socket.socket, seconds: float) -> bool:
    """Whether the client's first byte opens a TLS handshake (record type 22); False for a plain request or no byte at all."""
    source.settimeout(seconds)
    return source.recv(1, socket.MSG_PEEK) == b"\x16"


def handshake(source: socket.socket, context: ssl.SSLContext, seconds: float) -> ssl.SSLSocket:
    """The TLS side of a connection. `seconds` bounds the whole handshake. Raises OSError; the socket is then still open."""
    secured = context.wrap_socket(source, server_side=True, do_handshake_on_connect=False)
    secured.settimeout(seconds)
    try:
        secured.do_handshake()
    except OSError:
        secured.close()
        raise
    return secured
