"""Everything that waits for a socket or another thread, in one selector: a server that hangs costs a descriptor, no thread."""

from __future__ import annotations

import heapq
import itertools
import selectors
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from llm_serving_exporter.fetch.waits import FutureWait, SocketWait, Wait

# told whether it came about, or the time was over
Wake = Callable[[bool], None]


class _Entry:
    """One wait. `wake` is None once it is over."""

    __slots__ = ("wake",)

    def __init__(self, wake: Wake) -> None:
        self.wake: Wake | None = wake


class Waiting:
    """Waits that any thread may begin; one thread at a time, that of `wait_and_wake`, ends them. `monotonic`: elapsed seconds.

    A socket stays registered when its wait ends, since the next one is mostly for the same event; it is let go where that comes about
    while nobody waits for it.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        # guards all that follows; never held while something is woken
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._bell, self._rung = socket.socketpair()
        for end in (self._bell, self._rung):
            end.setblocking(False)
        self._selector.register(self._rung, selectors.EVENT_READ)
        # by descriptor: the socket that is registered with it, and for what
        self._registered: dict[int, tuple[socket.socket, int]] = {}
        # by descriptor: who waits, or waited last, for it
        self._entries: dict[int, _Entry] = {}
        # (deadline, number, entry); entries that are over are left out when their time comes
        self._deadlines: list[tuple[float, int, _Entry]] = []
        self._numbers = itertools.count()
        # when `wait_and_wake` comes back by itself
        self._looks_until = 0.0
        self._closed = False

    def begin(self, wait: Wait, wake: Wake) -> None:
        """Has `wake` called, by whichever thread, once it came about or its time is over. Not at all once this is closed."""
        entry = _Entry(wake)
        deadline = self._monotonic() + wait.seconds
        with self._lock:
            if self._closed:
                return
            heapq.heappush(self._deadlines, (deadline, next(self._numbers), entry))
            usable = not isinstance(wait, SocketWait) or self._register(entry, wait)
            sooner = deadline < self._looks_until
        if not usable:
            # not that it came about: whoever finds that it did not would ask again at once, and again
            self._end(entry, came_about=False)
        elif isinstance(wait, FutureWait):
            wait.future.add_done_callback(lambda _future: self._end(entry, came_about=True))
        if sooner:
            self.ring()

    def ring(self) -> None:
        """Has `wait_and_wake` come back."""
        # refused where it is full, so that it rings anyway, or closed
        with suppress(OSError):
            self._bell.send(b"\0")

    def wait_and_wake(self, seconds: float) -> None:
        """Waits, at most so long, until something came about, and wakes whoever waits for it."""
        now = self._monotonic()
        with self._lock:
            until = now + seconds
            if self._deadlines:
                until = min(until, self._deadlines[0][0])
            self._looks_until = until
        found = self._selector.select(max(0.0, until - now))
        over: list[Wake] = []
        came: list[Wake] = []
        now = self._monotonic()
        with self._lock:
            self._looks_until = 0.0
            for key, _events in found:
                entry = self._entries.get(key.fd)
                if entry is None:
                    self._drain()
                elif (wake := _end_wait(entry)) is not None:
                    came.append(wake)
                else:
                    self._let_go(key.fd)
            while self._deadlines and self._deadlines[0][0] <= now:
                _deadline, _number, entry = heapq.heappop(self._deadlines)
                wake = _end_wait(entry)
                if wake is not None:
                    over.append(wake)
        for wake in came:
            wake(True)
        for wake in over:
            wake(False)

    def close(self) -> None:
        """Forgets everything that waits; wakes nobody. By the thread of `wait_and_wake`."""
        with self._lock:
            self._closed = True
            self._deadlines.clear()
            self._selector.close()
            self._bell.close()
            self._rung.close()

    def _end(self, entry: _Entry, *, came_about: bool) -> None:
        with self._lock:
            wake = _end_wait(entry)
        if wake is not None:
            wake(came_about)
            self.ring()

    def _register(self, entry: _Entry, wait: SocketWait) -> bool:
        """Whether the socket can be waited for: nobody closed it meanwhile, and the kernel has room for it."""
        number = wait.sock.fileno()
        known = self._registered.get(number)
        try:
            if known is None:
                self._selector.register(wait.sock, wait.events)
            elif known[0] is not wait.sock:
                # its number was another socket's, which was closed: who waits for that one does so until its deadline
                self._let_go(number)
                self._selector.register(wait.sock, wait.events)
            elif known[1] != wait.events:
                self._selector.modify(wait.sock, wait.events)
        except (OSError, ValueError):
            self._registered.pop(number, None)
            return False
        self._registered[number], self._entries[number] = (wait.sock, wait.events), entry
        return True

    def _let_go(self, number: int) -> None:
        self._selector.unregister(number)
        del self._registered[number], self._entries[number]

    def _drain(self) -> None:
        try:
            while self._rung.recv(4096):
                pass
        except OSError:
            return


def _end_wait(entry: _Entry) -> Wake | None:
    """Ends a wait, as the lock's holder; None where it is over already."""
    wake, entry.wake = entry.wake, None
    return wake
