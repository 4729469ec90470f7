"""Threads that make answers: made when there is something to do, gone a moment after."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable

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
            while (found := self._take_task()) is not None:
                task, first = found
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
        """Tasks that a free thread may take."""
        return len(self._first) + min(len(self._rest), self._most_rest - self._busy[False])
