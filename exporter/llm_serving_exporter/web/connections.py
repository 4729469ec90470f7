"""All connections, in the one thread that waits for them: who sends slowly, or takes slowly, costs a descriptor and no thread.

A connection is at one thing at a time (`Doing`), with a deadline. A whole request goes to the workers; their answer comes back and is
written from here.

No loop of asyncio: its protocols take as many lines here, 40 to 80 % more CPU for an answer, and two more KB for each connection
that waits.
"""

from __future__ import annotations

import logging
import selectors
import socket
import ssl
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from time import monotonic

from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.web.crowd import (
    RESERVE_SHARE,
    ROOM_SHARE,
    Limits,
    Reason,
    Refusals,
    choose_leaving,
    name_peer,
)
from llm_serving_exporter.web.exchange import Answer, Framing, Incoming, Response, plain, refuse_connection
from llm_serving_exporter.web.guard import Guard

_OVERLOAD = plain(503, "Too many connections at once: try again in a few seconds.")
_PLAIN_HTTP = plain(400, "This server speaks HTTPS: write https:// in place of http://.")
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_HANDSHAKE = b"\x16"  # the first byte of TLS: the type of its record
_READ_BYTES = 65536
# reads or writes of one client in one turn, so that one who sends or takes without end does not hold up the others
_MOST_A_TURN = 16
# connections accepted in one turn, so that a flood of them does not hold up those that there are
_ACCEPTED_A_TURN = 64
# accept() fails at once again and again while file descriptors are used up: not a reason to spin
ACCEPT_PAUSE_SECONDS = 0.2
# deadlines are looked at no more often
_SWEEP_SECONDS = 0.05
_NEVER = float("inf")


class Doing(Enum):
    """What a connection is at."""

    HELLO = auto()  # nothing has come that says whether it speaks TLS
    HANDSHAKE = auto()
    WAITING = auto()  # for a request
    READING = auto()  # a part of a request is there
    WORKING = auto()  # its answer is being made
    WRITING = auto()
    DRAINING = auto()  # its answer is out; what it still sends is thrown away


# of who is gone while its answer is made the selector would tell in every turn
_EVENTS = {Doing.WORKING: 0, Doing.WRITING: selectors.EVENT_WRITE}
_REASONS = {
    Doing.HELLO: Reason.SLOW,
    Doing.HANDSHAKE: Reason.SLOW,
    Doing.READING: Reason.SLOW,
    Doing.WRITING: Reason.UNREAD,
}
# bytes that a TLS socket, or one that never blocks, does not take or have now
_NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Client:
    """One connection: reads and writes without waiting. Compared by identity; used by the thread of `Connections` alone, but for what says
    otherwise. What reads or writes raises OSError where it has ended.

    `since`, `deadline`: in seconds of `time.monotonic`; a connection at work has no deadline (infinite).
    """

    __slots__ = (
        "_answer", "_connections", "_earns", "_has_ended", "_left", "_left_bytes", "_watched", "deadline", "doing", "framing", "has_earned",
        "hurries", "is_served", "peer", "since", "socket", "waits_for_check", "waits_for_thread",
    )  # fmt: skip

    def __init__(self, connections: Connections, source: socket.socket, peer: str, *, is_served: bool) -> None:
        self._connections, self.socket, self.peer = connections, source, peer
        # whether it is not only told that there is no room
        self.is_served = is_served
        self.framing = Framing(connections.limits)
        # the events that the selector tells of, 0 for none
        self._watched = 0
        # whether it sends no more
        self._has_ended = False
        # what is written to it; of that, the piece under way, and what later ones take in memory
        self._answer: Answer | None = None
        self._left, self._left_bytes = memoryview(b""), 0
        # whether that is what it asked for; and whether it has taken such an answer
        self._earns = self.has_earned = False
        # whether it has asked again before it took its answer, as nobody does who waits for one
        self.hurries = False
        # whether its request waits for a thread; and whether its password is still to be checked: set by the workers
        self.waits_for_thread = self.waits_for_check = False
        self.doing, self.since, self.deadline = Doing.WAITING, monotonic(), _NEVER

    @property
    def is_closed(self) -> bool:
        """Whether nobody waits for an answer any more. May be asked by any thread."""
        return self.socket.fileno() < 0

    @property
    def may_make_room(self) -> bool:
        """Whether it can be ended for others: an answer that is being made soon makes room by itself."""
        return self.doing is not Doing.WORKING or self.waits_for_check

    @property
    def unread_bytes(self) -> int:
        """What its answer takes in memory."""
        return len(self._left) + self._left_bytes

    def put_to(self, doing: Doing, seconds: float) -> None:
        """Puts it to something, with so much time for it."""
        self.doing, self.since = doing, monotonic()
        self.deadline = self.since + seconds
        self._connections.sweep_by(self.deadline)
        self._watch(_EVENTS.get(doing, selectors.EVENT_READ))

    def begin(self) -> None:
        """Does its first step."""
        if not self.is_served:
            self.refuse(_OVERLOAD)
            return
        # headers and body go out in one piece, nothing is to be waited for
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        is_tls, seconds = self._connections.is_tls, self._connections.limits.idle_seconds
        self.put_to(Doing.HELLO if is_tls else Doing.WAITING, seconds)
        # its request is often there already: it waits for no other newcomer
        self.go_on()

    def go_on(self) -> None:
        """Does what it can do now."""
        match self.doing:
            case Doing.HELLO:
                self._begin_tls()
            case Doing.HANDSHAKE:
                self._go_on_with_tls()
            case Doing.WAITING | Doing.READING:
                self._read()
            case Doing.WRITING:
                self._write()
            case Doing.DRAINING:
                self._drain()

    def close(self) -> None:
        """Ends it."""
        if self._connections.forget(self):
            self._watch(0)
            self._drop_answer()
            self.socket.close()

    def _watch(self, events: int) -> None:
        # not asked of the selector: of what it does not know it first makes a text, with two calls of the system
        selector = self._connections.selector
        if not self._watched and events:
            selector.register(self.socket, events, self)
        elif self._watched and not events:
            selector.unregister(self.socket)
        elif self._watched != events:
            selector.modify(self.socket, events, self)
        self._watched = events

    # --- TLS --------------------------------------------------------------------------------------------------------

    def _begin_tls(self) -> None:
        guard = self._connections.guard
        assert guard is not None
        try:
            first = self.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return
        if first == _HANDSHAKE:
            self._watch(0)
            self.socket = guard.context().wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
            self.put_to(Doing.HANDSHAKE, self._connections.limits.head_seconds)
            self._go_on_with_tls()
        elif first:
            self.refuse(_PLAIN_HTTP)
        else:
            self.close()

    def _go_on_with_tls(self) -> None:
        guard = self._connections.guard
        assert guard is not None
        assert isinstance(self.socket, ssl.SSLSocket)
        try:
            self.socket.do_handshake()
        except ssl.SSLWantReadError:
            self._watch(selectors.EVENT_READ)
        except ssl.SSLWantWriteError:
            self._watch(selectors.EVENT_WRITE)
        else:
            if guard.lets_in(self.socket):
                self.put_to(Doing.WAITING, self._connections.limits.idle_seconds)
                self._read()
            else:
                self.close()

    def _has_more(self) -> bool:
        """Whether TLS has bytes that the selector does not see."""
        return isinstance(self.socket, ssl.SSLSocket) and self.socket.pending() > 0

    # --- requests ---------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        with suppress(*_NOT_NOW):
            for _ in range(_MOST_A_TURN):
                data = self.socket.recv(_READ_BYTES)
                self._has_ended = not data
                self.framing.feed(data)
                if not self._has_more():
                    break
        self._look_for_request()

    def _look_for_request(self) -> None:
        limits, incoming = self._connections.limits, self.framing.take_request()
        if incoming is not None:
            self.put_to(Doing.WORKING, _NEVER)
            if not self._connections.submit(self, incoming):
                self._connections.refusals.add(Reason.CROWDED, self.peer)
                self.refuse(_OVERLOAD)
        elif self._has_ended:
            self.close()
        else:
            if self.framing.take_continue():
                with suppress(*_NOT_NOW):
                    self.socket.send(_CONTINUE)
            if self.framing.has_begun and self.doing is not Doing.READING:
                self.put_to(Doing.READING, limits.head_seconds)
            elif not self.framing.has_begun and self.doing is not Doing.WAITING:
                self.put_to(Doing.WAITING, limits.idle_seconds)

    # --- answers ----------------------------------------------------------------------------------------------------

    def refuse(self, response: Response) -> None:
        """Answers without reading a request, and ends."""
        self.begin_answer(refuse_connection(response), self._connections.limits.refusal_seconds)

    def begin_answer(self, answer: Answer, seconds: float | None = None, *, earns: bool = False) -> None:
        """Begins to write an answer; `seconds` for it, where not the usual ones. `earns`: it is what was asked for."""
        self._answer, self._earns = answer, earns
        self._left, self._left_bytes = memoryview(answer.data), answer.rest_bytes
        self.put_to(Doing.WRITING, self._connections.limits.write_seconds if seconds is None else seconds)
        self._write()

    def _write(self) -> None:
        with suppress(*_NOT_NOW):
            for _ in range(_MOST_A_TURN):
                if not self._left and not self._take_piece():
                    self._end_answer()
                    return
                self._left = self._left[self.socket.send(self._left) :]

    def _take_piece(self) -> bool:
        """Goes on to the next piece; whether there is one."""
        assert self._answer is not None
        self._left = memoryview(next(filter(None, self._answer.rest), b""))
        return bool(self._left)

    def _drop_answer(self) -> None:
        self._answer, self._left, self._left_bytes = None, memoryview(b""), 0

    def _end_answer(self) -> None:
        answer = self._answer
        assert answer is not None
        self._drop_answer()
        self.hurries |= self.framing.has_begun
        self.has_earned = not self.hurries and (self.has_earned or self._earns)
        if answer.drains:
            socket.socket.shutdown(self.socket, socket.SHUT_WR)  # not SSLSocket's: that drops the TLS state
            self.put_to(Doing.DRAINING, self._connections.limits.refusal_seconds)
        elif answer.closes or self._connections.stopping.is_set():
            self.close()
        else:
            self.put_to(Doing.WAITING, self._connections.limits.idle_seconds)
            if self._has_more():
                self._read()
            else:
                self._look_for_request()

    def _drain(self) -> None:
        with suppress(*_NOT_NOW):
            for _ in range(_MOST_A_TURN):
                if not self.socket.recv(_READ_BYTES):
                    self.close()
                    return


class Connections:
    """`run` serves until `stop`. `submit(client, incoming)`: has a request answered and `complete` called; False without room for it.

    Only `complete`, `stop` and `cut` may be called by other threads.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        limits: Limits,
        guard: Guard | None,
        submit: Callable[[Client, Incoming], bool],
        refusals: Refusals,
        log: logging.Logger,
    ) -> None:
        self._listeners, self.limits, self.guard, self.submit = listeners, limits, guard, submit
        self.refusals, self._log = refusals, log
        self.is_tls = guard is not None and guard.tls
        self.selector = selectors.DefaultSelector()
        self._clients: set[Client] = set()
        self._by_peer: Counter[str] = Counter()
        # those that are only told that there is no room
        self._refused = 0
        # answers that the workers have made
        self._completed: deque[tuple[Client, Answer, bool]] = deque()
        # when deadlines are to be looked at, and when it accepts again
        self._next_sweep = self._accepts_again_at = _NEVER
        # asked to end; and to end at once
        self.stopping, self._cutting = threading.Event(), threading.Event()
        self._bell, self._rung = socket.socketpair()
        for end in (self._bell, self._rung):
            end.setblocking(False)

    # --- by any thread ----------------------------------------------------------------------------------------------

    def complete(self, client: Client, answer: Answer, *, earned: bool) -> None:
        """Hands over the answer to a client's request. `earned`: it was what the client asked for."""
        self._completed.append((client, answer, earned))
        self._ring()

    def stop(self) -> None:
        """Accepts no more and ends every connection that waits; answers under way go on."""
        self.stopping.set()
        self._ring()

    def cut(self) -> None:
        """Ends every connection."""
        self._cutting.set()
        self._ring()

    def _ring(self) -> None:
        with suppress(OSError):  # full: it wakes anyway; closed: it has ended
            self._bell.send(b"\0")

    # --- by its own thread ------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Serves until it is stopped and the last connection has ended, or is cut."""
        self.selector.register(self._rung, selectors.EVENT_READ)
        self._listen(True)
        try:
            while not self._cutting.is_set() and not (self.stopping.is_set() and not self._clients):
                self._turn()
        finally:
            for client in list(self._clients):
                client.close()
            self.close()

    def close(self) -> None:
        """Gives back what it holds, once `run` has ended or was never called."""
        for each in (self.selector, self._bell, self._rung):
            each.close()

    def sweep_by(self, deadline: float) -> None:
        """Looks at deadlines then, or a moment later."""
        if deadline < self._next_sweep:
            self._next_sweep = min(self._next_sweep, max(deadline, monotonic() + _SWEEP_SECONDS))

    def forget(self, client: Client) -> bool:
        """Counts a connection no longer; whether it was counted until now."""
        if client not in self._clients:
            return False
        self._clients.remove(client)
        self._refused -= not client.is_served
        self._by_peer[client.peer] -= 1
        if not self._by_peer[client.peer]:
            del self._by_peer[client.peer]
        return True

    def _turn(self) -> None:
        until = min(self._next_sweep, self._accepts_again_at)
        for key, _ in self.selector.select(None if until == _NEVER else max(0.0, until - monotonic())):
            if key.fileobj is self._rung:
                self._rung.recv(4096)
            elif isinstance(key.data, Client):
                self._guard_against_faults(key.data, Client.go_on)
            else:
                self._accept(key.data)
        self._begin_answers()
        if self.stopping.is_set():
            self._listen(False)
            for client in list(self._clients):
                if client.doing not in (Doing.WORKING, Doing.WRITING, Doing.DRAINING):
                    client.close()
        now = monotonic()
        if now >= self._accepts_again_at:
            self._listen(not self.stopping.is_set())
        if now >= self._next_sweep:
            self._end_overdue(now)

    def _begin_answers(self) -> None:
        while self._completed:
            client, answer, earned = self._completed.popleft()
            if not client.is_closed:
                self._guard_against_faults(client, partial(Client.begin_answer, answer=answer, earns=earned))
                if client.unread_bytes:
                    self._bound_unread()

    def _guard_against_faults(self, client: Client, do: Callable[[Client], None]) -> None:
        try:
            do(client)
        except OSError as error:
            self._log.debug("a connection ended: %s", error)
            client.close()
        except Exception:  # noqa: BLE001  # logged with its traceback; one connection must not end the server
            self._log.exception("a connection failed; this is a bug, please report it")
            client.close()

    def _end_overdue(self, now: float) -> None:
        for client in list(self._clients):
            if client.deadline <= now:
                if reason := _REASONS.get(client.doing):
                    self.refusals.add(reason, client.peer)
                client.close()
        self._next_sweep = max(now + _SWEEP_SECONDS, min((client.deadline for client in self._clients), default=_NEVER))

    # --- who comes, and who makes room --------------------------------------------------------------------------------

    def _listen(self, on: bool) -> None:
        self._accepts_again_at = _NEVER
        for listener in self._listeners:
            if listener.fileno() < 0:
                continue
            listens = listener in self.selector.get_map()
            if on and not listens:
                self.selector.register(listener, selectors.EVENT_READ, listener)
            elif listens and not on:
                self.selector.unregister(listener)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPTED_A_TURN):
            try:
                source, address = listener.accept()
            except BlockingIOError:
                return
            except ConnectionError:  # it has gone again
                continue
            except OSError:
                self.refusals.add(Reason.DESCRIPTORS, "")
                self._make_room()
                self._listen(False)
                self._accepts_again_at = monotonic() + ACCEPT_PAUSE_SECONDS
                return
            self.admit(source, name_peer(address))

    @property
    def _is_full(self) -> bool:
        return len(self._clients) - self._refused >= self.limits.connections

    def admit(self, source: socket.socket, peer: str) -> None:
        """Takes in a connection that has come, or tells it that there is no room."""
        if self._is_full:
            self._begin_answers()  # who is given an answer is at work no longer, and can make room
            self._make_room()
        is_full = self._is_full
        if is_full:
            self.refusals.add(Reason.CROWDED, peer)
            if self.is_tls or self._refused >= self.limits.refusals:
                source.close()
                return
        source.setblocking(False)
        client = Client(self, source, peer, is_served=not is_full)
        self._clients.add(client)
        self._by_peer[peer] += 1
        self._refused += is_full
        self._guard_against_faults(client, Client.begin)

    def _make_room(self) -> None:
        for client in self.choose_leaving():
            if not client.has_earned or client.doing is Doing.WRITING:
                self.refusals.add(Reason.MADE_ROOM, client.peer)
            client.close()

    def choose_leaving(self) -> list[Client]:
        """Who makes room for others; one whose request waits for a thread where nobody else can."""
        most = self.limits.connections
        candidates = [client for client in self._clients if client.is_served and client.may_make_room]
        leaving = choose_leaving(candidates, self._by_peer, max(1, most // ROOM_SHARE), most // RESERVE_SHARE)
        if leaving:
            return leaving
        return choose_leaving([client for client in self._clients if client.waits_for_thread], self._by_peer, 1)

    @property
    def unread_bytes(self) -> int:
        """What answers that are not taken yet hold in memory. May be asked by any thread."""
        return add_up(client.unread_bytes for client in list(self._clients))

    def _bound_unread(self) -> None:
        unread = self.unread_bytes
        if unread <= self.limits.unread_bytes:
            return
        readers = [client for client in self._clients if client.doing is Doing.WRITING]
        # but for the last of them: one page may be larger than all that is allowed together
        for client in choose_leaving(readers, self._by_peer, len(readers))[:-1]:
            self.refusals.add(Reason.UNREAD, client.peer)
            unread -= client.unread_bytes
            client.close()
            if unread <= self.limits.unread_bytes:
                return
