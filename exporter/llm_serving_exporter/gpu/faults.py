"""Faults that last: one log line where a fault begins, one where it ends, none while it goes on; and when to try
again."""

from __future__ import annotations

import logging
from collections.abc import Mapping

FIRST_RETRY_SECONDS = 1.0  # below any sampling interval: the first retry is the next pass
LONGEST_RETRY_SECONDS = 60.0


class FaultLog:
    """The faults that hold now, by a key. Bounded: beyond `limit` a new key is neither kept nor logged."""

    def __init__(self, log: logging.Logger, limit: int = 256) -> None:
        self._log = log
        self._limit = limit
        self._open: dict[str, str] = {}

    def begin(self, key: str, message: str, level: int = logging.WARNING) -> None:
        """Log `message` unless the same one stands under `key` already."""
        if self._open.get(key) == message or (key not in self._open and len(self._open) >= self._limit):
            return
        self._open[key] = message
        self._log.log(level, "%s", message)

    def end(self, key: str, message: str) -> None:
        """Log `message` if a fault stood under `key`."""
        if self._open.pop(key, None) is not None:
            self._log.info("%s", message)

    def settle(self, kind: str, current: Mapping[str, str], ended: str) -> None:
        """Make `current` (name -> message) the faults of a kind: those that are new begin, those that it lacks end."""
        for name, message in current.items():
            self.begin(f"{kind} {name}", message)
        names = [key.removeprefix(f"{kind} ") for key in self._open if key.startswith(f"{kind} ")]
        for name in names:
            if name not in current:
                self.end(f"{kind} {name}", f"GPU {name} {ended}")

    def holds(self, key: str) -> bool:
        """Whether a fault stands under `key`."""
        return key in self._open


class Backoff:
    """When the next try is due: at once, then `first` seconds after a failure, doubling up to `longest`."""

    def __init__(self, first: float = FIRST_RETRY_SECONDS, longest: float = LONGEST_RETRY_SECONDS) -> None:
        self._first = first
        self._longest = longest
        self._delay = first
        self._due_at: float | None = None

    def due(self, now: float) -> bool:
        """Whether a try is allowed at `now` (monotonic seconds)."""
        return self._due_at is None or now >= self._due_at

    def failed(self, now: float) -> None:
        """A try failed at `now`."""
        self._due_at = now + self._delay
        self._delay = min(self._delay * 2, self._longest)

    def reset(self) -> None:
        """A try succeeded."""
        self._delay = self._first
        self._due_at = None
