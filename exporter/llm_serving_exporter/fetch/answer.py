"""An answer as it comes: status line and headers, the connection's bytes, the body: bounded, decompressed, complete or refused."""

from __future__ import annotations

import http.client
import io
import re
import select
import socket
import ssl
import zlib
from collections.abc import Callable, Mapping
from selectors import EVENT_READ, EVENT_WRITE
from typing import cast

from llm_serving_exporter.errors import LLMServingExporterError
from llm_serving_exporter.fetch.waits import ScrapeError, SocketWait
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.sample import FailureReason

# --- Status line and headers of an answer.
#
# What servers send at every tick is read by one pattern; whatever is unusual in it is left to http.client, which takes 0.1 ms: most of
# what a GET costs here. Where both can read a head they say the same.


# 200, and lines of visible ASCII, none of which goes on with the next one
_USUAL = re.compile(rb"HTTP/1\.1 200(?: [\x20-\x7e]*)?\r\n((?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e]*\r\n)*)\r\n")
# as http.client: a head with more lines is refused
_MOST_LINES = 100
# what servers send is a tenth of this
_LONGEST_USUAL = 8192
# digits of a length that is an int to everybody
_LONGEST_LENGTH = 15


class Head(Struct, frozen=True):
    """An answer's status and headers, and what they say of its body."""

    status: int  # of HTTP
    headers: Mapping[str, str]  # by their names in lower case; of several of one name the first
    # bytes of the body; None: it is chunked, or lasts until the connection ends, or the header is no length
    length: int | None
    chunked: bool  # whether the body comes in chunks
    will_close: bool  # whether the connection ends with this answer


class IncompleteHeadError(Exception):
    """What has been received ends before the headers do; never leaves this package."""


class _Received(io.BytesIO):
    """What has been received of an answer, as http.client reads a status line and headers."""

    def __init__(self, received: bytes, *, at_end: bool) -> None:
        super().__init__(received)
        self._at_end = at_end
        # whether the end of the connection was taken for the end of the headers
        self.cut_short = False

    def readline(self, size: int | None = -1, /) -> bytes:
        line = super().readline(size)
        if not line.endswith(b"\n") and len(line) != size:
            if not self._at_end:
                raise IncompleteHeadError
            self.cut_short = True
        return line

    def makefile(self, mode: str) -> _Received:
        """http.client asks a socket for nothing else."""
        return self


def read_head(received: bytes, *, at_end: bool) -> tuple[Head, bytes]:
    """The head at the beginning of what has been received, and what comes after it. `at_end`: nothing more will come.

    Raises IncompleteHeadError where more has to come first, ConnectionResetError where the connection ended within it, and what
    http.client raises.
    """
    return read_usual_head(received) or _read_any_head(received, at_end=at_end)


def read_usual_head(received: bytes) -> tuple[Head, bytes] | None:
    """As `read_head`, of a head with nothing unusual in it; None of any other."""
    match = _USUAL.match(received, 0, _LONGEST_USUAL)
    if match is None:
        return None
    lines = match[1].decode("ascii").split("\r\n")
    headers: dict[str, str] = {}
    for line in lines[:-1]:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.lstrip(" \t")
    if len(headers) != len(lines) - 1 or len(headers) > _MOST_LINES - 1:  # a name stands twice, or there are too many
        return None
    length, coding = headers.get("content-length"), headers.get("transfer-encoding")
    will_close = "close" in headers.get("connection", "").lower()
    if coding is None and length is not None and len(length) <= _LONGEST_LENGTH and length.isdigit():
        return Head(200, headers, int(length), False, will_close), received[match.end() :]
    if length is None and coding is not None and coding.lower() == "chunked":
        return Head(200, headers, None, True, will_close), received[match.end() :]
    return None


def _read_any_head(received: bytes, *, at_end: bool) -> tuple[Head, bytes]:
    readable = _Received(received, at_end=at_end)
    response = http.client.HTTPResponse(cast(socket.socket, readable), method="GET")
    response.begin()
    if readable.cut_short:
        raise ConnectionResetError
    headers: dict[str, str] = {}
    for name, value in response.headers.items():
        headers.setdefault(name.lower(), value)
    chunked = bool(response.chunked)
    head = Head(response.status, headers, response.length, chunked, response.will_close)
    return head, received[readable.tell() :]


# --- One open connection: sends a request and receives the answer's bytes, all before one deadline and below one limit.


# One recv() of this size takes the whole page of an engine (50 to 80 KB) in one or two calls.
READ_BYTES = 64 * 1024

# http.client stops at 100 lines of 64 KiB each; a real answer's headers are below 2 KiB. The read buffer is on top
# because body bytes can come with the last headers.
HEADER_LIMIT_BYTES = 256 * 1024 + READ_BYTES

# as http.client: of a header, and of the line before a chunk
LONGEST_LINE = 65536
# a head is parsed again with each piece that ends a line of it, a hundred at most; one comes in one piece
_MOST_PARSED = 500


class Connection:
    """A connected socket that never blocks and carries one exchange at a time.

    Whatever receives raises what sockets raise, TimeoutError at the deadline, and ScrapeError (TOO_LARGE) beyond the limit.
    """

    def __init__(self, sock: socket.socket, monotonic: Callable[[], float]) -> None:
        self._sock = sock
        self._monotonic = monotonic
        self._deadline = 0.0
        self._limit = 0
        # received and not read yet
        self._rest = b""
        # bytes of the current answer so far, as they came from the wire (after TLS), headers included
        self.received = 0
        # whether the last read found the connection closed by the server
        self.at_end = False
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    def is_stale(self) -> bool:
        """Whether an idle connection must not be used again: closed by the server, or holding bytes nobody asked for.

        Such bytes (a second answer, a body longer than announced) would be taken for the next answer.
        """
        return bool(self._rest) or bool(self._poll.poll(0))

    async def exchange(self, request: bytes, deadline: float) -> Head:
        """Sends the request. Returns the head of the answer; its body is still to be read, from here.

        Raises what sockets and http.client raise; TimeoutError at the deadline.
        """
        self._deadline = deadline
        self.received, self._limit, self.at_end = 0, HEADER_LIMIT_BYTES, False
        await self._send(request)
        pieces: list[bytes] = []
        for _ in range(_MOST_PARSED):
            at_end = await self._receive_line(pieces)
            received = b"".join(pieces)
            pieces = [received]
            try:
                head, self._rest = read_head(received, at_end=at_end)
            except IncompleteHeadError:
                continue
            return head
        raise http.client.HTTPException("headers in too many pieces")

    async def _receive_line(self, pieces: list[bytes]) -> bool:
        """Adds what comes to `pieces` until a line may have ended, or is too long; whether the connection is at its end."""
        length = 0
        while True:
            try:
                piece = await self._receive()
            except ScrapeError as error:
                raise http.client.HTTPException("headers beyond 256 KiB") from error
            pieces.append(piece)
            length += len(piece)
            if not piece or b"\n" in piece or length > LONGEST_LINE:
                return not piece

    def limit_rest(self, count: int) -> None:
        """Allows `count` more bytes of this answer; a read beyond them raises ScrapeError (TOO_LARGE)."""
        self._limit = self.received + count

    async def read_some(self, most: int) -> bytes:
        """At least one and at most `most` bytes; b"" at the end of the connection."""
        if not self._rest:
            self._rest = await self._receive()
        found, self._rest = self._rest[:most], self._rest[most:]
        return found

    async def read_line(self) -> bytes:
        """Up to and with the next line feed, or the end of the connection. Raises http.client.LineTooLong."""
        line = b""
        while True:
            end = self._rest.find(b"\n") + 1
            if end:
                line, self._rest = line + self._rest[:end], self._rest[end:]
            else:
                line, self._rest = line + self._rest, b""
            if len(line) > LONGEST_LINE:
                raise http.client.LineTooLong("chunk size")
            if end:
                return line
            self._rest = await self._receive()
            if not self._rest:
                return line

    def close(self) -> None:
        """Closes the socket. May be called twice."""
        self._sock.close()

    async def _send(self, request: bytes) -> None:
        unsent = memoryview(request)
        while unsent:
            self._check_deadline()
            try:
                unsent = unsent[self._sock.send(unsent) :]
            except (BlockingIOError, ssl.SSLWantWriteError):
                await self._wait(EVENT_WRITE)
            except ssl.SSLWantReadError:
                await self._wait(EVENT_READ)

    async def _receive(self) -> bytes:
        """What has come, as soon as something has; b"" at the end of the connection."""
        while True:
            self._check_deadline()
            try:
                found = self._sock.recv(READ_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError):
                await self._wait(EVENT_READ)
                continue
            except ssl.SSLWantWriteError:
                await self._wait(EVENT_WRITE)
                continue
            self.at_end = not found
            self.received += len(found)
            if self.received > self._limit:
                raise ScrapeError(FailureReason.TOO_LARGE, "the answer exceeds the limit on bytes from the wire")
            return found

    def _check_deadline(self) -> None:
        if self._deadline <= self._monotonic():
            raise TimeoutError

    async def _wait(self, events: int) -> None:
        left = self._deadline - self._monotonic()
        if left <= 0 or not await SocketWait(self._sock, events, left):
            raise TimeoutError


# --- Answer -> body bytes: bounded, decompressed, complete or refused.


_GZIP = 16 + zlib.MAX_WBITS  # zlib.decompressobj: a gzip header and trailer, the largest window
_EXCERPT_BYTES = 4096

# A server compresses a page into one member. Each of thousands of empty members would cost a copy of the block.
_MAX_GZIP_MEMBERS = 100


class Body:
    """The bytes of an answer's body as they come, without their framing."""

    def __init__(self, response: Head, connection: Connection) -> None:
        self._connection, self._chunked = connection, response.chunked
        # bytes that are still to come of the body, or of the chunk; None: until the connection ends
        self._left: int | None = 0 if response.chunked else response.length
        # whether a chunk has been read, whose end comes before the next one
        self._in_chunks = False

    async def read_block(self) -> bytes:
        """The next bytes; b"" at the body's end. Raises http.client.IncompleteRead where it ends too early."""
        if self._left == 0 and not (self._chunked and await self._begin_chunk()):
            return b""
        most = READ_BYTES if self._left is None else min(self._left, READ_BYTES)
        block = await self._connection.read_some(most)
        if self._left is not None:
            if not block:
                raise http.client.IncompleteRead(b"", self._left)
            self._left -= len(block)
        return block

    async def _begin_chunk(self) -> bool:
        """Reads what stands before a chunk; False where there is none, after what stands behind the last one."""
        if self._in_chunks:
            ended = await self._connection.read_line()
            if not ended.endswith(b"\n"):
                raise http.client.IncompleteRead(b"")
            if ended.strip():
                raise http.client.HTTPException("a chunk is longer than it says")
        size = (await self._connection.read_line()).partition(b";")[0]
        try:
            self._left = int(size, 16)
        except ValueError:
            raise http.client.IncompleteRead(b"") from None
        if self._left < 0:
            raise http.client.HTTPException("a chunk's size is no size")
        self._in_chunks = True
        if self._left:
            return True
        while (await self._connection.read_line()) not in (b"\r\n", b"\n", b""):
            pass
        self._chunked = False
        return False


async def read_body(response: Head, connection: Connection, max_bytes: int) -> bytes:
    """The body after decompression.

    Raises ScrapeError: TOO_LARGE as soon as more than `max_bytes` would come out; ENCODING for an encoding that was not
    requested, and for a body that does not unpack; PROTOCOL for a length that is not a number. Raises
    http.client.IncompleteRead for a body that ends before the announced length. A body without length or chunks ends where
    the server closes the connection; only the parser can see that such a body was cut short.
    """
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity", "gzip", "x-gzip"):
        detail = "the body has a content encoding that was not asked for; only gzip is read"
        raise ScrapeError(FailureReason.ENCODING, detail, 200)
    plain = encoding in ("", "identity")
    length = response.length
    if length is None and not response.chunked:
        _refuse_unknown_framing(response)
    if length is not None and length > max_bytes:
        raise _too_large_error(max_bytes)
    body = Body(response, connection)
    return await _collect(body, max_bytes) if plain else await _unpack(body, max_bytes)


async def read_excerpt(response: Head, connection: Connection) -> str:
    """The beginning of an error's body as text: what the first read returned, "" where it failed."""
    try:
        raw = (await Body(response, connection).read_block())[:_EXCERPT_BYTES]
        if response.headers.get("content-encoding", "").strip().lower() in ("gzip", "x-gzip"):
            raw = zlib.decompressobj(_GZIP).decompress(raw, _EXCERPT_BYTES)
    except (OSError, ValueError, http.client.HTTPException, zlib.error, LLMServingExporterError):
        return ""  # the status is the news; its page only decorates it
    return raw.decode(errors="replace")


def _refuse_unknown_framing(response: Head) -> None:
    # http.client reads such answers to the end of the connection, which on a live one only comes with the deadline.
    if "content-length" in response.headers:
        raise ScrapeError(FailureReason.PROTOCOL, "the answer's Content-Length is not a length", 200)
    if "transfer-encoding" in response.headers:
        raise ScrapeError(FailureReason.ENCODING, "the answer's Transfer-Encoding is not chunked alone", 200)


async def _collect(body: Body, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    total = 0
    while block := await body.read_block():
        total += len(block)
        if total > max_bytes:
            raise _too_large_error(max_bytes)
        parts.append(block)
    return b"".join(parts)


async def _unpack(body: Body, max_bytes: int) -> bytes:
    """Gunzip block by block, each step's output bounded, so that a bomb costs `max_bytes` and one block at most."""
    parts: list[bytes] = []
    total, begun = 0, False
    unpacker, members = zlib.decompressobj(_GZIP), 1
    try:
        while block := await body.read_block():
            begun, packed = True, block
            while packed:
                if unpacker.eof:  # RFC 1952, 2.2: a file may have several members
                    unpacker, members = zlib.decompressobj(_GZIP), members + 1
                    if members > _MAX_GZIP_MEMBERS:
                        raise zlib.error
                part = unpacker.decompress(packed, READ_BYTES)
                total += len(part)
                if total > max_bytes:
                    raise _too_large_error(max_bytes)
                parts.append(part)
                packed = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
    except zlib.error as error:
        detail = "the body says gzip but does not unpack; does a proxy rewrite it?"
        raise ScrapeError(FailureReason.ENCODING, detail, 200) from error
    if begun and not unpacker.eof:
        raise ScrapeError(FailureReason.ENCODING, "the gzip body ends in the middle; was it cut off?", 200)
    return b"".join(parts)


def _too_large_error(max_bytes: int) -> ScrapeError:
    remedy = "check the path, or raise max_body_bytes if the page is that large"
    detail = f"the body exceeds {max_bytes} bytes after decompression; {remedy}"
    return ScrapeError(FailureReason.TOO_LARGE, detail, 200)
