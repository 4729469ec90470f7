"""Host names -> addresses, in a few threads of their own: `getaddrinfo` blocks for as long as the system's resolver is set to try.

A name that hangs is asked for once at a time, however many targets have it, and holds one of these threads, never one that other work
needs. Names that hung before come after the others and get half of the threads at most.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from llm_serving_exporter.clock import elapsed_seconds
from llm_serving_exporter.model.target import encode_host
from llm_serving_exporter.scrape.waits import FutureWait

# (family, kind, protocol, canonical name, address), as `getaddrinfo` gives them
Found = Sequence[tuple[int, int, int, str, tuple[object, ...]]]
GetAddresses = Callable[[str, int], Found]

MOST_THREADS = 16
# the resolver keeps what it was told for as long as it is told to; this is for targets that are read together
KEPT_SECONDS = 2.0
# a look-up that took this long hangs
SLOW_SECONDS = 2.0
# a thread that has had nothing to look up for so long ends
_IDLE_SECONDS = 10.0
_MOST_KEPT = 4096


def get_addresses(host: str, port: int) -> Found:
    """As the system's resolver says. Raises OSError or UnicodeError."""
    return _ask_system(host, port)


def _ask_system(host: str, port: int, flags: int = 0) -> Found:
    return socket.getaddrinfo(encode_host(host), port, type=socket.SOCK_STREAM, flags=flags)


class Resolver:
    """Looks names up, for any number of threads. `ask`: what it asks, which may block."""

    def __init__(self, ask: GetAddresses | None = None, monotonic: Callable[[], float] = elapsed_seconds) -> None:
        self._ask, self._monotonic = ask, monotonic
        self._changed = threading.Condition()
        # asked for and not answered yet, and those of them that no thread has taken
        self._pending: dict[tuple[str, int], Future[Found]] = {}
        self._fresh: deque[tuple[str, int]] = deque()
        self._hung: deque[tuple[str, int]] = deque()
        # names whose last look-up took long, and answers with when they came
        self._slow: set[str] = set()
        self._known: dict[tuple[str, int], tuple[float, Future[Found]]] = {}
        self._threads = self._idle = self._on_slow = 0

    async def look_up(self, host: str, port: int, seconds: float) -> Found | None:
        """The addresses of a host; None where nobody answers within so many seconds. Raises OSError or UnicodeError."""
        try:
            # an address needs nobody to ask
            return _ask_system(host, port, socket.AI_NUMERICHOST)
        except (OSError, UnicodeError):
            pass
        future = self._submit((host, port))
        if not future.done() and not await FutureWait(future, seconds):
            return None
        return future.result()

    def _submit(self, key: tuple[str, int]) -> Future[Found]:
        with self._changed:
            known = self._known.get(key)
            if known is not None and self._monotonic() - known[0] < KEPT_SECONDS:
                return known[1]
            pending = self._pending.get(key)
            if pending is not None:
                return pending
            future = self._pending[key] = Future[Found]()
            (self._hung if key[0] in self._slow else self._fresh).append(key)
            if self._idle:
                self._changed.notify()
            elif self._threads < MOST_THREADS:
                self._start()
            return future

    def _start(self) -> None:
        try:
            threading.Thread(target=self._run, name="look-up", daemon=True).start()
        except RuntimeError:
            return  # no thread to be had: those that there are take it, or its deadline passes
        self._threads += 1

    def _choose_next(self) -> tuple[str, int] | None:
        """What a thread is to look up next, as the lock's holder; None where it is to end."""
        while True:
            if self._fresh:
                return self._fresh.popleft()
            if self._hung and self._on_slow < MOST_THREADS // 2:
                return self._hung.popleft()
            self._idle += 1
            woken = self._changed.wait(_IDLE_SECONDS)
            self._idle -= 1
            if not woken:
                self._threads -= 1
                return None

    def _run(self) -> None:
        while True:
            with self._changed:
                key = self._choose_next()
                if key is None:
                    return
                slow = key[0] in self._slow
                self._on_slow += slow
                future = self._pending[key]
            started = self._monotonic()
            answer: Found | None = None
            failure: Exception | None = None
            try:
                # the module's own, so that it can be replaced
                answer = (self._ask or get_addresses)(*key)
            except Exception as error:  # noqa: BLE001  # whoever waits is told
                failure = error
            now = self._monotonic()
            with self._changed:
                self._on_slow -= slow
                del self._pending[key]
                (self._slow.add if now - started > SLOW_SECONDS else self._slow.discard)(key[0])
                if answer is not None:
                    if len(self._known) >= _MOST_KEPT:
                        self._known.clear()
                    self._known[key] = now, future
                if self._hung:
                    self._changed.notify()
            if answer is not None:
                future.set_result(answer)
            else:
                future.set_exception(failure or OSError("no answer"))


# one for the process: a name that hangs hangs for everybody
RESOLVER = Resolver()
