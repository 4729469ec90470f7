"""What an exchange waits for. Code that talks to a server is a coroutine which yields such a wait wherever it would block.

Whoever runs it decides how it waits: `drive` blocks its own thread, the daemon's schedule has one selector for every exchange, so that a
server that hangs costs a descriptor and no thread. There is no event loop of asyncio here: what is needed of one is this page.
"""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Coroutine, Generator
from concurrent.futures import Future
from selectors import EVENT_READ, EVENT_WRITE
from typing import Any, TypeVar

from llm_serving_exporter.errors import LLMServingExporterError
from llm_serving_exporter.model.sample import FailureReason
from llm_serving_exporter.model.text import on_one_line

# --- The error of a failed exchange inside this stage; `http` turns it into a `Refusal`.


EXCERPT_CHARACTERS = 200


class ScrapeError(LLMServingExporterError):
    """An exchange that ended with a named reason; never leaves the stage.

    `detail` is a sentence for the user, without secrets; `status` is the HTTP status, None where no answer came.
    """

    def __init__(self, reason: FailureReason, detail: str, status: int | None = None) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.status = status


def quote_first_line(text: str) -> str:
    """The first line that is not blank, printable and at most 200 characters long; "" where there is none."""
    return next((shown for line in text.splitlines() if (shown := on_one_line(line, EXCERPT_CHARACTERS))), "")


# --- The waits.


T = TypeVar("T")

_POLLED = {EVENT_READ: select.POLLIN, EVENT_WRITE: select.POLLOUT}


class Wait:
    """Something that comes about within `seconds`, or does not. Awaited, it says which: True or False."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __await__(self) -> Generator[Wait, bool, bool]:
        return (yield self)

    def block(self) -> bool:
        """Waits in the caller's thread."""
        raise NotImplementedError


class SocketWait(Wait):
    """Until a socket can be read or written: `events` is EVENT_READ or EVENT_WRITE of `selectors`."""

    __slots__ = ("events", "sock")

    def __init__(self, sock: socket.socket, events: int, seconds: float) -> None:
        super().__init__(seconds)
        self.sock, self.events = sock, events

    def block(self) -> bool:
        """As in `Wait`."""
        poll = select.poll()
        poll.register(self.sock, _POLLED[self.events])
        # rounded up: a wait that ends before its time would ask again and again in its last millisecond
        return bool(poll.poll(int(self.seconds * 1000) + 1))


class FutureWait(Wait):
    """Until another thread has done something, well or not."""

    __slots__ = ("future",)

    def __init__(self, future: Future[Any], seconds: float) -> None:
        super().__init__(seconds)
        self.future = future

    def block(self) -> bool:
        """As in `Wait`."""
        done = threading.Event()
        self.future.add_done_callback(lambda _future: done.set())
        return done.wait(min(self.seconds, threading.TIMEOUT_MAX))


def drive(coroutine: Coroutine[Wait, bool, T]) -> T:
    """What the coroutine returns, or raises; the caller's thread waits for what it waits for."""
    try:
        wait = coroutine.send(None)  # type: ignore[arg-type]  # the first send of every coroutine
        while True:
            wait = coroutine.send(wait.block())
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # of T, by its declaration
