"""Threads that make answers, made when there is something to do and gone a moment after; and the row of those whose password is to be
compared with its hash, which takes 50 ms and more."""

from __future__ import annotations

import logging
import random
import threading
from collections import Counter, deque
from collections.abc import Callable
from typing import NamedTuple

# a thread that has found nothing to do for so long ends
IDLE_SECONDS = 0.5
# threads that are kept for tasks which come first, where there are more than these
_KEPT = 2
Task = Callable[[], None]


class Workers:
    """Runs tasks in at most `most` threads. Those that come `first` wait for no other, and two threads are kept for them."""

    def __init__(self, most: int, most_queued: int, name: str, log: logging.Logger) -> None:
        self._most, self._most_queued, self._name, self._log = most, most_queued, name, log
        self._most_rest = most - _KEPT if most > _KEPT else most
        self._changed = threading.Condition()
        self._first: deque[Task] = deque()
        self._rest: deque[Task] = deque()
        self._threads: set[threading.Thread] = set()
        # threads at a task, by whether it came first
        self._busy: Counter[bool] = Counter()
        self._stopping = False

    def submit(self, task: Task, *, first: bool = False) -> bool:
        """Has a task run; False where too many wait already, or no thread can be had."""
        with self._changed:
            if self._stopping or (not first and len(self._rest) >= self._most_queued):
                return False
            queue = self._first if first else self._rest
            queue.append(task)
            self._changed.notify()
            is_short = len(self._threads) - self._busy.total() < self._count_ready()
            if is_short and len(self._threads) < self._most and not self._start() and not self._threads:
                queue.pop()
                return False
            return True

    def stop(self) -> list[threading.Thread]:
        """Runs no further task; the threads that still are at one."""
        with self._changed:
            self._stopping = True
            self._first.clear()
            self._rest.clear()
            self._changed.notify_all()
            return list(self._threads)

    def _start(self) -> bool:
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError as error:  # no more threads to be had
            self._threads.discard(thread)
            self._log.warning("a request waits for a thread: %s", error)
            return False
        return True

    def _run(self) -> None:
        try:
            while (taken := self._take_task()) is not None:
                task, first = taken
                try:
                    task()
                finally:
                    with self._changed:
                        self._busy[first] -= 1
        finally:
            with self._changed:
                self._threads.discard(threading.current_thread())

    def _take_task(self) -> tuple[Task, bool] | None:
        """The next task, and whether it comes first; None where there was nothing to do for a while, or all of it ends."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or self._count_ready(), IDLE_SECONDS)
            if not self._count_ready():
                # under the lock: whoever submits next must not count on it
                self._threads.discard(threading.current_thread())
                return None
            first = bool(self._first)
            self._busy[first] += 1
            return (self._first if first else self._rest).popleft(), first

    def _count_ready(self) -> int:
        return len(self._first) + min(len(self._rest), self._most_rest - self._busy[False])


# --- Passwords.


class Waiting(NamedTuple):
    """A request whose password has not been seen before."""

    # compares, and goes on with the request
    check: Task
    # what is done with the request instead, where too many wait
    refuse: Task


class PasswordLane:
    """Who waits until a password has been compared with its hash. Peers take turns, and of one peer's requests any may be next: guessers of
    one address do not hold up others, and one among guessers of its own address has the same chance as each of them."""

    def __init__(self, workers: Workers, most: int) -> None:
        self._workers, self._most = workers, most
        self._lock = threading.Lock()
        # by peer; whose turn is next stands first
        self._waiting: dict[str, list[Waiting]] = {}

    def submit(self, peer: str, request: Waiting) -> None:
        """Has a password checked, or the request of somebody refused."""
        refused: Waiting | None = None
        with self._lock:
            if sum(map(len, self._waiting.values())) >= self._most:
                refused = self._pick(max(self._waiting, key=lambda name: len(self._waiting[name])))
            self._waiting.setdefault(peer, []).append(request)
        if refused is None and not self._workers.submit(self._check_next, first=True):
            refused = self._take_next()
        if refused is not None:
            refused.refuse()

    def _check_next(self) -> None:
        following = self._take_next()
        if following is not None:
            following.check()

    def _take_next(self) -> Waiting | None:
        with self._lock:
            if not self._waiting:
                return None
            peer = next(iter(self._waiting))
            following = self._pick(peer)
            if peer in self._waiting:  # to the end of the row
                self._waiting[peer] = self._waiting.pop(peer)
            return following

    def _pick(self, peer: str) -> Waiting:
        """Any request of a peer, as the lock's holder."""
        requests = self._waiting[peer]
        picked = requests.pop(random.randrange(len(requests)))
        if not requests:
            del self._waiting[peer]
        return picked
