"""Faults that last: one log line where a fault begins, one where it ends, none while it goes on."""

from __future__ import annotations

import logging
from collections.abc import Mapping


class FaultLog:
    """The faults that hold now, by a key. Bounded: beyond `limit` a new key is neither kept nor logged."""

    def __init__(self, log: logging.Logger, limit: int = 256) -> None:
        self._log = log
        self._limit = limit
        self._open: dict[str, str] = {}

    def begin_fault(self, key: str, message: str, level: int = logging.WARNING) -> None:
        """Log `message` unless the same one stands under `key` already."""
        if self._open.get(key) == message or (key not in self._open and len(self._open) >= self._limit):
            return
        self._open[key] = message
        self._log.log(level, "%s", message)

    def end_fault(self, key: str, message: str) -> None:
        """Log `message` if a fault stood under `key`."""
        if self._open.pop(key, None) is not None:
            self._log.info("%s", message)

    def replace_faults(self, kind: str, current: Mapping[str, str], ended: str) -> None:
        """Make `current` (name -> message) the faults of a kind: those that are new begin, those that it lacks end."""
        for name, message in current.items():
            self.begin_fault(f"{kind} {name}", message)
        names = [key.removeprefix(f"{kind} ") for key in self._open if key.startswith(f"{kind} ")]
        for name in names:
            if name not in current:
                self.end_fault(f"{kind} {name}", f"GPU {name} {ended}")

    def is_open(self, key: str) -> bool:
        """Whether a fault stands under `key`."""
        return key in self._open
