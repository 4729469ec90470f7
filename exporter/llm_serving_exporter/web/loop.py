"""The one thread that waits for all clients: who sends slowly, or takes slowly, costs a descriptor and no thread.

A connection is at one thing at a time (`clients.Doing`), with a deadline. A whole request goes to the workers; their answer comes back and
is written from here.
"""

from __future__ import annotations

import logging
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from llm_serving_exporter.web.clients import Client, Doing
from llm_serving_exporter.web.connection import Answer
from llm_serving_exporter.web.conversations import OVERLOAD, Conversations
from llm_serving_exporter.web.crowd import name_peer
from llm_serving_exporter.web.framing import Raw
from llm_serving_exporter.web.guard import Guard
from llm_serving_exporter.web.guests import Guests
from llm_serving_exporter.web.limits import Limits
from llm_serving_exporter.web.refusals import Reason, Refusals

# accept() fails at once again and again while file descriptors are used up: not a reason to spin
ACCEPT_PAUSE_SECONDS = 0.2
# connections accepted in one turn, so that a flood of them does not hold up those that there are
_ACCEPTED_A_TURN = 64
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
        self._refusals, self._log, self._monotonic = refusals, log, monotonic
        self._completed: deque[tuple[Client, Answer, bool]] = deque()
        self._selector = selectors.DefaultSelector()
        self._guests = Guests(limits, self._selector, monotonic)
        self._accepts_again_at = 0.0
        # asked to end; and to end at once
        self.stopping, self._cutting = threading.Event(), threading.Event()
        self._conversations = Conversations(self._guests, limits, guard, submit, refusals, self.stopping.is_set)
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
            while not self._cutting.is_set() and not (self.stopping.is_set() and not self._guests):
                self._turn()
        finally:
            for client in self._guests:
                self._guests.close(client)
            self.close()

    def close(self) -> None:
        """Gives back what it holds, once `run` has ended or was never called."""
        self._selector.close()
        self._wake_reader.close()
        self._wake_writer.close()

    def _turn(self) -> None:
        now = self._monotonic()
        wait = max(0.0, min(self._guests.next_sweep, self._accepts_again_at or float("inf")) - now)
        for key, _ in self._selector.select(None if wait == float("inf") else wait):
            if key.fileobj is self._wake_reader:
                with suppress(BlockingIOError):
                    self._wake_reader.recv(4096)
            elif isinstance(key.data, Client):
                self._guarded(key.data, self._conversations.go_on)
            else:
                self._accept(key.fileobj)
        self._begin_answers()
        if self.stopping.is_set():
            self._listen(False)
            for client in self._guests:
                if client.doing not in (Doing.WORKING, Doing.WRITING, Doing.DRAINING):
                    self._guests.close(client)
        now = self._monotonic()
        if self._accepts_again_at and now >= self._accepts_again_at:
            self._accepts_again_at = 0.0
            self._listen(not self.stopping.is_set())
        if now >= self._guests.next_sweep:
            self._end_overdue(now)

    def _begin_answers(self) -> None:
        while self._completed:
            client, answer, earned = self._completed.popleft()
            if client in self._guests:
                self._guarded(client, partial(self._conversations.begin_answer, answer=answer, earns=earned))

    def _guarded(self, client: Client, do: Callable[[Client], None]) -> None:
        try:
            do(client)
        except OSError as error:
            self._log.debug("a connection ended: %s", error)
            self._guests.close(client)
        except Exception:  # noqa: BLE001  # logged with its traceback; one connection must not end the server
            self._log.exception("a connection failed; this is a bug, please report it")
            self._guests.close(client)

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
            except ConnectionError:  # it has gone again
                continue
            except OSError:
                self._refusals.add(Reason.DESCRIPTORS, "")
                self._make_room()
                self._listen(False)
                self._accepts_again_at = self._monotonic() + ACCEPT_PAUSE_SECONDS
                return
            self._admit(source, name_peer(address))

    def _admit(self, source: socket.socket, peer: str) -> None:
        if self._guests.is_full:
            self._begin_answers()  # who is given an answer is at work no longer, and can make room
            self._make_room()
        serves = not self._guests.is_full
        is_tls = self._guard is not None and self._guard.tls
        if not serves:
            self._refusals.add(Reason.CROWDED, peer)
            if is_tls or not self._guests.may_refuse:
                source.close()
                return
        source.setblocking(False)
        client = Client(source, peer, Doing.HELLO if is_tls else Doing.WAITING, self._monotonic(), self._limits)
        self._guests.add(client, serves=serves)

        def begin(client: Client) -> None:
            if serves:
                # headers and body go out in one piece, nothing is to be waited for
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._guests.put_to(client, client.doing, self._limits.idle_seconds)
                # its request is often there already: it waits for no other newcomer
                self._conversations.go_on(client)
            else:
                self._conversations.refuse(client, OVERLOAD)

        self._guarded(client, begin)

    def _make_room(self) -> None:
        for client in self._guests.choose_leaving():
            if not client.has_earned or client.doing is Doing.WRITING:
                self._refusals.add(Reason.MADE_ROOM, client.peer)
            self._guests.close(client)

    def _end_overdue(self, now: float) -> None:
        for client in self._guests.find_overdue(now):
            reason = _REASONS.get(client.doing)
            if reason is not None:
                self._refusals.add(reason, client.peer)
            self._guests.close(client)
