"""Everything that waits for a socket or another thread, in one selector: a server that hangs costs a descriptor, no thread."""

from __future__ import annotations

import heapq
import itertools
import selectors
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from llm_serving_exporter.scrape.waits import FutureWait, SocketWait, Wait

# told whether it came about, or the time was over
Wake = Callable[[bool], None]


class _Entry:
    """One wait. `wake` is None once it is over; `number`: the descriptor that is registered for it, -1 where none is."""

    __slots__ = ("number", "wake")

    def __init__(self, wake: Wake) -> None:
        self.wake: Wake | None = wake
        self.number = -1


class Waiting:
    """Waits that any thread may begin; one thread, that of `wait_and_wake`, ends them. `monotonic`: elapsed seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        # guards all that follows; never held while something is woken
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._bell, self._rung = socket.socketpair()
        for end in (self._bell, self._rung):
            end.setblocking(False)
        self._selector.register(self._rung, selectors.EVENT_READ)
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
                if key.data is None:
                    self._drain()
                elif (wake := self._end_wait(key.data)) is not None:
                    came.append(wake)
            while self._deadlines and self._deadlines[0][0] <= now:
                _deadline, _number, entry = heapq.heappop(self._deadlines)
                wake = self._end_wait(entry)
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
            wake = self._end_wait(entry)
        if wake is not None:
            wake(came_about)

    def _end_wait(self, entry: _Entry) -> Wake | None:
        """Ends a wait, as the lock's holder; None where it is over already."""
        wake, entry.wake = entry.wake, None
        if wake is not None and entry.number >= 0 and not self._closed:
            self._unregister(entry)
        return wake

    def _register(self, entry: _Entry, wait: SocketWait) -> bool:
        """Whether the socket can be waited for: nobody closed it meanwhile, and the kernel has room for it."""
        try:
            try:
                key = self._selector.register(wait.sock, wait.events, entry)
            except KeyError:
                # its number was another socket's, which was closed while somebody waited for it: that wait ends at its deadline
                self._selector.unregister(wait.sock)
                key = self._selector.register(wait.sock, wait.events, entry)
        except (OSError, ValueError):
            return False
        entry.number = key.fd
        return True

    def _unregister(self, entry: _Entry) -> None:
        try:
            key = self._selector.get_key(entry.number)
        except KeyError:
            return
        if key.data is entry:  # else the socket was closed meanwhile, and another one has its number
            self._selector.unregister(entry.number)

    def _drain(self) -> None:
        try:
            while self._rung.recv(4096):
                pass
        except OSError:
            return
