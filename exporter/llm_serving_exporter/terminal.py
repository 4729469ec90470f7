"""What commands share: how they print, and how they end."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def ended_by_signal() -> Iterator[threading.Event]:
    """An event that SIGINT, SIGTERM and SIGHUP set; the handlers before are put back. Main thread only, as signals are."""
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        ended.set()

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup: the terminal may go
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def say(text: str) -> None:
    """One line, at once. A reader that went away (`| head`) ends nothing: what is served may still be wanted."""
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # else each further line, and the interpreter when it ends, would try once more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
