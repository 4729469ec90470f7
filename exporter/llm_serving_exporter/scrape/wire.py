"""One open connection: sends a request and reads the answer's bytes, all before one deadline and below one limit."""

from __future__ import annotations

import http.client
import io
import select
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from llm_serving_exporter.model.attempt import FailureReason
from llm_serving_exporter.scrape.failure import ScrapeError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# One recv() of this size takes the whole page of an engine (50 to 80 KB) in one or two calls.
READ_BYTES = 64 * 1024

# http.client stops at 100 lines of 64 KiB each; a real answer's headers are below 2 KiB. The read buffer is on top
# because body bytes can come with the last headers.
HEADER_LIMIT_BYTES = 256 * 1024 + READ_BYTES


class _Reader(io.RawIOBase):
    """The socket as http.client's buffered reader sees it. Each read may take the time that is left before the deadline."""

    def __init__(self, sock: socket.socket, monotonic: Callable[[], float]) -> None:
        self._sock = sock
        self._monotonic = monotonic
        self.deadline = 0.0
        self.received = 0
        self.limit = 0
        self.at_end = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        left = self.deadline - self._monotonic()
        if left <= 0:
            raise TimeoutError
        self._sock.settimeout(left)
        count = self._sock.recv_into(buffer)
        self.at_end = count == 0
        self.received += count
        if self.received > self.limit:
            raise ScrapeError(FailureReason.TOO_LARGE, "the answer exceeds the limit on bytes from the wire")
        return count

    def readall(self) -> bytes:
        # Reached where http.client would read to the end of the connection at once (a chunk of size -1, for one).
        raise http.client.HTTPException("the answer's framing asks for a read without an end")

    def close(self) -> None:
        """Does nothing: http.client closes its reader after each answer, and the connection is used again."""


class Connection:
    """A connected socket that carries one exchange at a time."""

    def __init__(self, sock: socket.socket, monotonic: Callable[[], float]) -> None:
        self._sock = sock
        self._monotonic = monotonic
        self._reader = _Reader(sock, monotonic)
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    @property
    def received(self) -> int:
        """Bytes of the current answer so far, as they came from the wire (after TLS), headers included."""
        return self._reader.received

    @property
    def at_end(self) -> bool:
        """Whether the last read found the connection closed by the server."""
        return self._reader.at_end

    def is_stale(self) -> bool:
        """Whether an idle connection must not be used again: closed by the server, or holding bytes nobody asked for.

        Such bytes (a second answer, a body longer than announced) would be taken for the next answer.
        """
        return bool(self._poll.poll(0))

    def exchange(self, request: bytes, deadline: float) -> http.client.HTTPResponse:
        """Sends the request. Returns the answer with its status line and headers read, and its body still to be read.

        Raises what sockets and http.client raise; TimeoutError at the deadline.
        """
        reader = self._reader
        reader.deadline = deadline
        reader.received = 0
        reader.at_end = False
        reader.limit = HEADER_LIMIT_BYTES
        unsent = memoryview(request)
        while unsent:
            left = deadline - self._monotonic()
            if left <= 0:
                raise TimeoutError
            self._sock.settimeout(left)
            unsent = unsent[self._sock.send(unsent) :]
        # HTTPResponse asks a socket for nothing but makefile().
        response = http.client.HTTPResponse(cast(socket.socket, self), method="GET")
        try:
            response.begin()
        except ScrapeError as error:
            raise http.client.HTTPException("headers beyond 256 KiB") from error
        if reader.at_end:  # http.client takes the end of the connection for the end of the headers
            raise ConnectionResetError
        return response

    def limit_rest(self, count: int) -> None:
        """Allows `count` more bytes of this answer; a read beyond them raises ScrapeError (TOO_LARGE)."""
        self._reader.limit = self._reader.received + count

    def makefile(self, mode: str) -> io.BufferedReader:
        """The buffered reader of one answer (http.client's view of a socket)."""
        return io.BufferedReader(self._reader, READ_BYTES)

    def close(self) -> None:
        """Closes the socket. May be called twice."""
        self._sock.close()
