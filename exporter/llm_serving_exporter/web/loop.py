"""The one thread that waits for all clients: who sends slowly, or takes slowly, costs a descriptor and no thread.

A connection is at one thing at a time (`clients.Doing`), with a deadline. A whole request goes to the workers; their answer comes back and
is written from here.
"""

from __future__ import annotations

import logging
import selectors
import socket
import ssl
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from llm_serving_exporter.web.clients import Client, Doing
from llm_serving_exporter.web.connection import Answer, refuse_connection
from llm_serving_exporter.web.crowd import RESERVE_SHARE, ROOM_SHARE, choose_leaving, name_peer
from llm_serving_exporter.web.exchange import Response, plain
from llm_serving_exporter.web.framing import Raw
from llm_serving_exporter.web.guard import Guard
from llm_serving_exporter.web.limits import Limits
from llm_serving_exporter.web.refusals import Reason, Refusals

# accept() fails at once again and again while file descriptors are used up: not a reason to spin
ACCEPT_PAUSE_SECONDS = 0.2
# connections accepted in one turn, so that a flood of them does not hold up those that there are
_ACCEPTED_A_TURN = 64
# deadlines are looked at no more often
_SWEEP_SECONDS = 0.05
_OVERLOAD = plain(503, "Too many connections at once: try again in a few seconds.")
_PLAIN_HTTP = plain(400, "This server speaks HTTPS: write https:// in place of http://.")
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_REASONS = {
    Doing.HELLO: Reason.SLOW,
    Doing.HANDSHAKE: Reason.SLOW,
    Doing.READING: Reason.SLOW,
    Doing.WRITING: Reason.UNREAD,
}


class Loop:
    """`run` serves until `stop`. `submit(client, raw)`: has a request answered and `complete` called; False where there is no room for it.

    Only `complete`, `stop` and `cut` may be called by other threads.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        limits: Limits,
        guard: Guard | None,
        submit: Callable[[Client, Raw], bool],
        refusals: Refusals,
        log: logging.Logger,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._listeners, self._limits, self._guard = listeners, limits, guard
        self._submit, self._refusals, self._log, self._monotonic = submit, refusals, log, monotonic
        self._clients: set[Client] = set()
        self._by_peer: Counter[str] = Counter()
        # those that only get a 503
        self._refused: set[Client] = set()
        self._unread_bytes = 0
        self._completed: deque[tuple[Client, Answer, bool]] = deque()
        self._selector = selectors.DefaultSelector()
        self._next_sweep = float("inf")
        self._accepts_again_at = 0.0
        # asked to end; and to end at once
        self.stopping, self._cutting = threading.Event(), threading.Event()
        self._wake_reader, self._wake_writer = socket.socketpair()
        for end in (self._wake_reader, self._wake_writer):
            end.setblocking(False)

    # --- by any thread --------------------------------------------------------------------------------------------

    def complete(self, client: Client, answer: Answer, *, earned: bool) -> None:
        """Hands over the answer to a client's request. `earned`: it was what the client asked for."""
        self._completed.append((client, answer, earned))
        self._wake()

    def stop(self) -> None:
        """Accepts no more and ends every connection that waits; answers under way go on."""
        self.stopping.set()
        self._wake()

    def cut(self) -> None:
        """Ends every connection."""
        self._cutting.set()
        self._wake()

    def _wake(self) -> None:
        with suppress(OSError):  # full: it wakes anyway; closed: it has ended
            self._wake_writer.send(b"\0")

    # --- by its own thread ----------------------------------------------------------------------------------------

    def run(self) -> None:
        """Serves until it is stopped and the last connection has ended, or is cut."""
        self._selector.register(self._wake_reader, selectors.EVENT_READ)
        self._listen(True)
        try:
            while not self._cutting.is_set() and not (self.stopping.is_set() and not self._clients):
                self._turn()
        finally:
            for client in list(self._clients):
                self._close(client)
            self.close()

    def close(self) -> None:
        """Gives back what it holds, once `run` has ended or was never called."""
        self._selector.close()
        self._wake_reader.close()
        self._wake_writer.close()

    def _turn(self) -> None:
        now = self._monotonic()
        wait = max(0.0, min(self._next_sweep, self._accepts_again_at or float("inf")) - now)
        for key, _ in self._selector.select(None if wait == float("inf") else wait):
            if key.fileobj is self._wake_reader:
                with suppress(BlockingIOError):
                    self._wake_reader.recv(4096)
            elif isinstance(key.data, Client):
                self._guarded(key.data, self._step)
            else:
                self._accept(key.fileobj)
        while self._completed:
            client, answer, earned = self._completed.popleft()
            client.has_earned |= earned
            if client in self._clients:
                self._guarded(client, partial(self._begin_answer, answer=answer))
        if self.stopping.is_set():
            self._listen(False)
            for client in list(self._clients):
                if client.doing not in (Doing.WORKING, Doing.WRITING, Doing.DRAINING):
                    self._close(client)
        now = self._monotonic()
        if self._accepts_again_at and now >= self._accepts_again_at:
            self._accepts_again_at = 0.0
            self._listen(not self.stopping.is_set())
        if now >= self._next_sweep:
            self._sweep(now)

    def _guarded(self, client: Client, do: Callable[[Client], None]) -> None:
        try:
            do(client)
        except OSError as error:
            self._log.debug("a connection ended: %s", error)
            self._close(client)
        except Exception:  # noqa: BLE001  # logged with its traceback; one connection must not end the server
            self._log.exception("a connection failed; this is a bug, please report it")
            self._close(client)

    def _listen(self, on: bool) -> None:
        for listener in self._listeners:
            if listener.fileno() < 0:
                continue
            known = listener in self._selector.get_map()
            if on and not known:
                self._selector.register(listener, selectors.EVENT_READ)
            elif known and not on:
                self._selector.unregister(listener)

    # --- who comes ------------------------------------------------------------------------------------------------

    def _accept(self, listener: object) -> None:
        assert isinstance(listener, socket.socket)
        for _ in range(_ACCEPTED_A_TURN):
            try:
                source, address = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                self._log.warning("a connection could not be accepted: %s", error)
                self._make_room(self._monotonic())
                self._listen(False)
                self._accepts_again_at = self._monotonic() + ACCEPT_PAUSE_SECONDS
                return
            self._admit(source, name_peer(address))

    def _admit(self, source: socket.socket, peer: str) -> None:
        now = self._monotonic()
        if len(self._clients) - len(self._refused) >= self._limits.connections:
            self._make_room(now)
        serves = len(self._clients) - len(self._refused) < self._limits.connections
        is_tls = self._guard is not None and self._guard.tls
        if not serves:
            self._refusals.add(Reason.CROWDED, peer)
            if len(self._refused) >= self._limits.refusals or is_tls:
                source.close()
                return
        source.setblocking(False)
        client = Client(source, peer, Doing.HELLO if is_tls else Doing.WAITING, now, self._limits)
        self._clients.add(client)
        self._by_peer[peer] += 1

        def begin(client: Client) -> None:
            if serves:
                # headers and body go out in one piece, nothing is to be waited for
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._set(client, client.doing, self._limits.idle_seconds)
            else:
                self._begin_refusal(client, _OVERLOAD)

        if not serves:
            self._refused.add(client)
        self._guarded(client, begin)

    def _make_room(self, now: float) -> None:
        asked = [client for client in self._clients if client.may_make_room]
        most = self._limits.connections
        for client in choose_leaving(asked, self._by_peer, now, max(1, most // ROOM_SHARE), most // RESERVE_SHARE):
            if not client.has_earned or client.doing is Doing.WRITING:
                self._refusals.add(Reason.MADE_ROOM, client.peer)
            self._close(client)

    # --- what they do ---------------------------------------------------------------------------------------------

    def _set(self, client: Client, doing: Doing, seconds: float | None) -> None:
        """Puts a connection to something, with so much time for it; None leaves the deadline that it has."""
        if doing is not client.doing or seconds is not None:
            client.since = self._monotonic()
        client.doing = doing
        if seconds is not None:
            client.deadline = client.since + seconds
            self._next_sweep = min(self._next_sweep, max(client.deadline, client.since + _SWEEP_SECONDS))
        if doing is Doing.WORKING:
            self._watch(client, 0)
        elif doing is Doing.WRITING or client.wants_write:
            self._watch(client, selectors.EVENT_WRITE)
        else:
            self._watch(client, selectors.EVENT_READ)

    def _watch(self, client: Client, events: int) -> None:
        known = self._selector.get_map().get(client.socket)
        if known is None and events:
            self._selector.register(client.socket, events, client)
        elif known is not None and not events:  # a client that is gone would be told of in every turn
            self._selector.unregister(client.socket)
        elif known is not None and known.events != events:
            self._selector.modify(client.socket, events, client)

    def _step(self, client: Client) -> None:
        match client.doing:
            case Doing.HELLO:
                self._begin_tls(client)
            case Doing.HANDSHAKE:
                self._go_on_with_tls(client)
            case Doing.WAITING | Doing.READING:
                client.read()
                self._look_for_request(client)
            case Doing.WRITING:
                self._go_on_writing(client)
            case Doing.DRAINING:
                if client.drain():
                    self._close(client)

    def _begin_tls(self, client: Client) -> None:
        guard, is_tls = self._guard, client.peek_is_tls()
        assert guard is not None
        if is_tls is None:
            return
        if not is_tls:
            self._begin_refusal(client, _PLAIN_HTTP)
            return
        self._watch(client, 0)
        client.socket = guard.context().wrap_socket(client.socket, server_side=True, do_handshake_on_connect=False)
        self._set(client, Doing.HANDSHAKE, self._limits.head_seconds)
        self._go_on_with_tls(client)

    def _go_on_with_tls(self, client: Client) -> None:
        guard = self._guard
        assert guard is not None
        assert isinstance(client.socket, ssl.SSLSocket)
        if not client.shake_hands():
            self._set(client, Doing.HANDSHAKE, None)
        elif not guard.lets_in(client.socket):
            self._close(client)
        else:
            self._set(client, Doing.WAITING, self._limits.idle_seconds)
            client.read()
            self._look_for_request(client)

    def _look_for_request(self, client: Client) -> None:
        raw = client.framing.take_request()
        if raw is not None:
            self._set(client, Doing.WORKING, float("inf"))
            if not self._submit(client, raw):
                self._refusals.add(Reason.CROWDED, client.peer)
                self._begin_refusal(client, _OVERLOAD)
        elif client.has_ended:
            self._close(client)
        else:
            if client.framing.take_continue():
                client.say(_CONTINUE)
            if not client.framing.has_begun:
                self._set(client, Doing.WAITING, None if client.doing is Doing.WAITING else self._limits.idle_seconds)
            elif client.doing is Doing.READING:
                self._set(client, Doing.READING, None)
            else:
                self._set(client, Doing.READING, self._limits.head_seconds)

    def _begin_refusal(self, client: Client, response: Response) -> None:
        self._begin_answer(client, refuse_connection(response), self._limits.refusal_seconds)

    def _begin_answer(self, client: Client, answer: Answer, seconds: float | None = None) -> None:
        client.output = memoryview(answer.data)
        client.closes, client.drains = answer.closes or self.stopping.is_set(), answer.drains
        self._unread_bytes += len(answer.data)
        self._set(client, Doing.WRITING, self._limits.write_seconds if seconds is None else seconds)
        self._go_on_writing(client)
        if self._unread_bytes > self._limits.unread_bytes:
            self._cut_slowest_readers()

    def _go_on_writing(self, client: Client) -> None:
        self._unread_bytes -= client.write()
        if client.output:
            return
        if client.drains:
            client.end_writing()
            self._set(client, Doing.DRAINING, self._limits.refusal_seconds)
        elif client.closes:
            self._close(client)
        else:
            self._set(client, Doing.WAITING, self._limits.idle_seconds)
            if client.has_more():
                client.read()
            self._look_for_request(client)

    def _cut_slowest_readers(self) -> None:
        now = self._monotonic()
        readers = [client for client in self._clients if client.doing is Doing.WRITING]
        for client in choose_leaving(readers, self._by_peer, now, len(readers)):
            self._refusals.add(Reason.UNREAD, client.peer)
            self._close(client)
            if self._unread_bytes <= self._limits.unread_bytes:
                return

    # --- who goes -------------------------------------------------------------------------------------------------

    def _sweep(self, now: float) -> None:
        for client in [client for client in self._clients if client.deadline <= now]:
            reason = _REASONS.get(client.doing)
            if reason is not None:
                self._refusals.add(reason, client.peer)
            self._close(client)
        first = min((client.deadline for client in self._clients), default=float("inf"))
        self._next_sweep = max(first, now + _SWEEP_SECONDS)

    def _close(self, client: Client) -> None:
        if client not in self._clients:
            return
        self._watch(client, 0)
        self._clients.remove(client)
        self._refused.discard(client)
        self._by_peer[client.peer] -= 1
        if not self._by_peer[client.peer]:
            del self._by_peer[client.peer]
        self._unread_bytes -= len(client.output)
        client.output = memoryview(b"")
        client.socket.close()
