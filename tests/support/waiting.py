"""Waiting for what a real program does in real time.

A deadline ends only a test that fails anyway, so it is generous: a process on a busy machine may stand still for many seconds. A test
waits for a condition, never for a number of seconds.
"""

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_SECONDS = 120.0
_INTERVAL_SECONDS = 0.02

Found = TypeVar("Found")


def wait_until(look: Callable[[], Found], awaited: str, evidence: Callable[[], str] = str) -> Found:
    """The first true value of `look`. Fails after PATIENCE_SECONDS, with what was awaited and the evidence, such as a log."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := look()):
        assert time.monotonic() < deadline, f"{awaited} did not come about in {PATIENCE_SECONDS:g} s\n{evidence()}"
        time.sleep(_INTERVAL_SECONDS)
    return found
