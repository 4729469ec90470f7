"""One open connection: sends a request and receives the answer's bytes, all before one deadline and below one limit."""

from __future__ import annotations

import http.client
import select
import socket
import ssl
from collections.abc import Callable
from selectors import EVENT_READ, EVENT_WRITE

from llm_serving_exporter.model.sample import FailureReason
from llm_serving_exporter.scrape.failure import ScrapeError
from llm_serving_exporter.scrape.head import Head, IncompleteHeadError, read_head
from llm_serving_exporter.scrape.waits import SocketWait

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
