"""Who waits until a password has been compared with its hash, which takes 50 ms and more: one at a time, each peer in its turn."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import NamedTuple

from llm_serving_exporter.web.workers import Workers


class Waiting(NamedTuple):
    """A request whose password has not been seen before."""

    # compares, and goes on with the request
    check: Callable[[], None]
    # what is done with the request instead, where too many wait
    refuse: Callable[[], None]


class PasswordLane:
    """Peers take turns, and of one peer's requests any may be next: guessers of one address do not hold up others, and one among guessers
    of its own address has the same chance as each of them."""

    def __init__(self, workers: Workers, most: int) -> None:
        self._workers, self._most = workers, most
        self._lock = threading.Lock()
        # by peer; whose turn is next stands first
        self._waiting: dict[str, list[Waiting]] = {}

    def submit(self, peer: str, one: Waiting) -> None:
        """Has a password checked, or the request of somebody refused."""
        refused: Waiting | None = None
        with self._lock:
            if sum(map(len, self._waiting.values())) >= self._most:
                crowded = max(self._waiting, key=lambda name: len(self._waiting[name]))
                refused = self._take_one_of(crowded)
            self._waiting.setdefault(peer, []).append(one)
        if refused is not None:
            refused.refuse()
        elif not self._workers.submit(self._check_next, first=True):
            self._refuse_next()

    def _check_next(self) -> None:
        found = self._pick()
        if found is not None:
            found.check()

    def _refuse_next(self) -> None:
        found = self._pick()
        if found is not None:
            found.refuse()

    def _pick(self) -> Waiting | None:
        with self._lock:
            if not self._waiting:
                return None
            peer = next(iter(self._waiting))
            found = self._take_one_of(peer)
            if peer in self._waiting:  # to the end of the row
                self._waiting[peer] = self._waiting.pop(peer)
            return found

    def _take_one_of(self, peer: str) -> Waiting:
        found = self._waiting[peer].pop(random.randrange(len(self._waiting[peer])))
        if not self._waiting[peer]:
            del self._waiting[peer]
        return found
