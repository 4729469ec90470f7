"""Threads that make answers: made when there is something to do, gone a moment after."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

# a thread that has found nothing to do for so long ends
IDLE_SECONDS = 0.5
Task = Callable[[], None]


class Workers:
    """Runs tasks in at most `most` threads. Those that come `first` wait for no other."""

    def __init__(self, most: int, most_queued: int, name: str, log: logging.Logger) -> None:
        self._most, self._most_queued, self._name, self._log = most, most_queued, name, log
        self._changed = threading.Condition()
        self._first: deque[Task] = deque()
        self._rest: deque[Task] = deque()
        self._threads: set[threading.Thread] = set()
        self._free = 0
        self._stopping = False

    def submit(self, task: Task, *, first: bool = False) -> bool:
        """Has a task run; False where too many wait already, or no thread can be had."""
        with self._changed:
            if self._stopping or (not first and len(self._rest) >= self._most_queued):
                return False
            queue = self._first if first else self._rest
            queue.append(task)
            if self._free >= len(self._first) + len(self._rest):
                self._changed.notify()
            elif len(self._threads) < self._most and not self._start() and not self._threads:
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
            while (task := self._take_task()) is not None:
                task()
        finally:
            with self._changed:
                self._threads.discard(threading.current_thread())

    def _take_task(self) -> Task | None:
        with self._changed:
            self._free += 1
            try:
                self._changed.wait_for(lambda: self._stopping or self._first or self._rest, IDLE_SECONDS)
                if self._first:
                    return self._first.popleft()
                if self._rest:
                    return self._rest.popleft()
                # under the lock: whoever submits next must not count on it
                self._threads.discard(threading.current_thread())
                return None
            finally:
                self._free -= 1
