"""One connection of the web server, between two turns of the loop."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum, auto

from llm_serving_exporter.web.framing import Framing
from llm_serving_exporter.web.limits import Limits

_READ_BYTES = 65536
# of one client in one turn of the loop, so that one who sends or takes without end does not hold up the others
_MOST_A_TURN = 16


class Doing(Enum):
    """What a connection is at."""

    HELLO = auto()  # nothing has come that says whether it speaks TLS
    HANDSHAKE = auto()
    WAITING = auto()  # for a request
    READING = auto()  # a part of a request is there
    WORKING = auto()  # its answer is being made
    WRITING = auto()
    DRAINING = auto()  # its answer is out; what it still sends is thrown away


class Client:
    """Reads and writes without waiting. Compared by identity; used by the loop's thread alone.

    `since`, `deadline`: seconds of the loop's clock; a connection at work has no deadline (infinite).
    """

    __slots__ = (
        "closes", "deadline", "doing", "drains", "earns", "framing", "has_earned", "has_ended", "hurries", "output", "peer", "rest",
        "rest_bytes", "since", "socket", "waits_for_check", "waits_for_thread", "wants_write", "watched",
    )  # fmt: skip

    def __init__(self, source: socket.socket, peer: str, doing: Doing, now: float, limits: Limits) -> None:
        self.socket, self.peer, self.doing, self.since = source, peer, doing, now
        self.framing = Framing(limits)
        self.deadline = float("inf")
        # what of its answer is still to be written
        self.output = memoryview(b"")
        # pieces of it that come after that, and what they take in memory
        self.rest: Iterator[bytes] = iter(())
        self.rest_bytes = 0
        # whether what is written to it is what it asked for; and whether it has taken such an answer
        self.earns = self.has_earned = False
        # whether it has asked again before it took its answer, as nobody does who waits for one
        self.hurries = False
        # whether it sends no more
        self.has_ended = False
        # what follows its answer
        self.closes = self.drains = False
        # whether its request waits for a thread; and whether its password is still to be checked: set by the workers
        self.waits_for_thread = self.waits_for_check = False
        # whether the next step waits until it can be written to, rather than read from
        self.wants_write = False
        # the events that the selector tells of, 0 for none
        self.watched = 0

    @property
    def may_make_room(self) -> bool:
        """Whether it can be ended for others: an answer that is being made soon makes room by itself."""
        return self.doing is not Doing.WORKING or self.waits_for_check

    @property
    def is_closed(self) -> bool:
        """Whether nobody waits for an answer any more. May be asked by any thread."""
        return self.socket.fileno() < 0

    def peek_is_tls(self) -> bool | None:
        """Whether its first byte opens a TLS handshake (record type 22); None before it. Raises OSError."""
        try:
            first = self.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return None
        if not first:
            raise ConnectionError
        return first == b"\x16"

    def shake_hands(self) -> bool:
        """Goes on with the handshake; whether it is over. Raises OSError."""
        assert isinstance(self.socket, ssl.SSLSocket)
        try:
            self.socket.do_handshake()
        except ssl.SSLWantReadError:
            self.wants_write = False
            return False
        except ssl.SSLWantWriteError:
            self.wants_write = True
            return False
        self.wants_write = False
        return True

    def read(self) -> None:
        """Takes what came. Raises OSError."""
        for _ in range(_MOST_A_TURN):
            try:
                data = self.socket.recv(_READ_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError):
                return
            if not data:
                self.has_ended = True
                return
            self.framing.feed(data)
            if not self.has_more():
                return

    def has_more(self) -> bool:
        """Whether TLS has bytes that the selector does not see."""
        return isinstance(self.socket, ssl.SSLSocket) and self.socket.pending() > 0

    def drain(self) -> bool:
        """Throws away what came; whether it has ended. Raises OSError."""
        for _ in range(_MOST_A_TURN):
            try:
                if not self.socket.recv(_READ_BYTES):
                    return True
            except (BlockingIOError, ssl.SSLWantReadError):
                break
        return False

    @property
    def unread_bytes(self) -> int:
        """What its answer takes in memory."""
        return len(self.output) + self.rest_bytes

    def write(self) -> bool:
        """Writes what of its answer can be written now; whether that was the last of it. Raises OSError."""
        for _ in range(_MOST_A_TURN):
            if not self.output and not self._take_piece():
                return True
            try:
                sent = self.socket.send(self.output)
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                return False
            self.output = self.output[sent:]
        return not self.output and not self._take_piece()

    def _take_piece(self) -> bool:
        """Goes on to the next piece; whether there is one."""
        for piece in self.rest:
            if piece:
                self.output = memoryview(piece)
                return True
        self.drop_answer()
        return False

    def drop_answer(self) -> None:
        """Forgets what has not been written."""
        self.output, self.rest, self.rest_bytes = memoryview(b""), iter(()), 0

    def say(self, data: bytes) -> None:
        """Writes a few bytes between a request's head and its body. Raises OSError."""
        with suppress(BlockingIOError, ssl.SSLWantWriteError):
            self.socket.send(data)

    def end_writing(self) -> None:
        """Says that nothing more comes. Raises OSError."""
        # not SSLSocket.shutdown: that drops the TLS state
        socket.socket.shutdown(self.socket, socket.SHUT_WR)
