"""How often somebody was refused, and why: counted for a series, told in the log at most once a minute."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from enum import StrEnum

# between two lines of the log
TOLD_EVERY_SECONDS = 60.0
# peers whose refusals are counted between two lines; the worst of them is named
_MOST_PEERS = 1000


class Reason(StrEnum):
    """Why a connection was refused or cut."""

    CROWDED = "crowded"  # there were too many, and nobody could make room: answered with 503, or not at all
    MADE_ROOM = "made_room"  # it was the slowest of the peer with the most connections
    DESCRIPTORS = "descriptors"  # the process may open no more: it waits, and is tried again
    SLOW = "slow"  # its request or handshake did not come to an end in time
    UNREAD = "unread"  # it did not take its answer in time, or too much of it
    PASSWORD = "password"  # noqa: S105  # too many waited for a password to be checked: answered with 429
    DENIED = "denied"  # name and password were not right: answered with 401
    BROWSER = "browser"  # another site's page asked through somebody's browser: answered with 403


class Refusals:
    """Counts since the start; used by any thread."""

    def __init__(self, log: logging.Logger, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._log, self._monotonic = log, monotonic
        self._lock = threading.Lock()
        self._counts: Counter[Reason] = Counter()
        self._untold: Counter[Reason] = Counter()
        self._peers: Counter[str] = Counter()
        self._told_at: float | None = None

    def add(self, reason: Reason, peer: str) -> None:
        """Counts one; the first, and then at most one a minute, is told with what came since."""
        with self._lock:
            self._counts[reason] += 1
            self._untold[reason] += 1
            if peer in self._peers or len(self._peers) < _MOST_PEERS:
                self._peers[peer] += 1
            now = self._monotonic()
            if self._told_at is not None and now - self._told_at < TOLD_EVERY_SECONDS:
                return
            self._told_at = now
            what = ", ".join(f"{count} {found.value}" for found, count in self._untold.most_common())
            worst, most = self._peers.most_common(1)[0] if self._peers else ("", 0)
            self._untold.clear()
            self._peers.clear()
        self._log.warning(
            "connections refused or cut since the last such line: %s; %d of them of %s", what, most, worst
        )

    def counts(self) -> Mapping[str, int]:
        """How many of each reason, 0 for those that have not occurred."""
        with self._lock:
            return {reason.value: self._counts[reason] for reason in Reason}
