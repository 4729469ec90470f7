"""When the daemon's jobs run: each at its own interval, spread over time, in a few threads."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from inspect import iscoroutinefunction
from typing import Protocol

from llm_serving_exporter.clock import LONGEST_WAIT_SECONDS, elapsed_seconds
from llm_serving_exporter.daemon.timetable import Job, Run, Timetable
from llm_serving_exporter.daemon.waiting import Waiting
from llm_serving_exporter.scrape.waits import Wait

log = logging.getLogger("llm_serving_exporter.daemon")

# jobs that block (GPUs, the kubelet, files on a file system that hangs) have threads of their own: there are fewer such jobs than threads
BLOCKING_THREADS = 8
# steps of jobs that wait for servers only parse and derive, one at a time by the interpreter's lock; more than one thread, because a step
# may read a file
STEP_THREADS = 8
# of both; threads are made as needed
MAX_THREADS = BLOCKING_THREADS + STEP_THREADS


class Schedule(Protocol):
    """Runs jobs by name at intervals. Tests bring one that they drive themselves."""

    def start(self) -> None:
        """Begins to run jobs."""
        ...

    def stop(self) -> None:
        """Runs no further job; does not wait for those under way."""
        ...

    def every(self, name: str, seconds: float, job: Run, delay_seconds: float = 0.0) -> None:
        """Runs a job every `seconds`, first after `delay_seconds`. Replaces a job of that name. It never runs twice at a time."""
        ...

    def cancel(self, name: str) -> None:
        """Ends a job, if there is one of that name."""
        ...


class ThreadSchedule:
    """A `Schedule` by elapsed time. A run that is missed is made up for once; one whose last run is still under way is left out.

    A job that blocks has a thread of a pool until it ends. One that is a coroutine has one only between its waits, all of which one
    selector waits for: however many servers hang, the others are read on time. A loop of its own, because a library that plans by the
    calendar brings 5 MB and plans by the wall clock. `monotonic`: elapsed seconds. `speed`: seconds of the jobs' own, by which their
    intervals are stated, to an elapsed one; not 1 beside a simulated fleet.
    """

    def __init__(self, monotonic: Callable[[], float] = elapsed_seconds, speed: float = 1.0) -> None:
        self._monotonic, self._speed = monotonic, speed
        self._blocking = ThreadPoolExecutor(BLOCKING_THREADS, thread_name_prefix="job")
        self._steps = ThreadPoolExecutor(STEP_THREADS, thread_name_prefix="step")
        # made when this starts: it holds descriptors
        self._waiting: Waiting | None = None
        self._table = Timetable()
        # guards the timetable and all that follows
        self._lock = threading.Lock()
        # names of jobs that run, or wait for a thread
        self._running: set[str] = set()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="schedule", daemon=True)

    def start(self) -> None:
        """As in `Schedule`."""
        self._waiting = Waiting(self._monotonic)
        self._thread.start()

    def stop(self) -> None:
        """As in `Schedule`."""
        self._stopping = True
        self._ring()
        for pool in (self._blocking, self._steps):
            pool.shutdown(wait=False, cancel_futures=True)

    def every(self, name: str, seconds: float, job: Run, delay_seconds: float = 0.0) -> None:
        """As in `Schedule`. A job that raises is logged, and tried again at the next interval."""
        with self._lock:
            self._table.add(name, seconds / self._speed, job, self._monotonic() + delay_seconds / self._speed)
        self._ring()

    def cancel(self, name: str) -> None:
        """As in `Schedule`."""
        with self._lock:
            self._table.remove(name)

    def _ring(self) -> None:
        if self._waiting is not None:
            self._waiting.ring()

    def _run(self) -> None:
        waiting = self._waiting
        assert waiting is not None
        while not self._stopping:
            with self._lock:
                due = [job for job in self._table.take_due(self._monotonic()) if job.name not in self._running]
                self._running.update(job.name for job in due)
                following = self._table.next_at()
            for job in due:
                self._submit(
                    self._steps if iscoroutinefunction(job.run) else self._blocking, job.name, self._begin, job
                )
            left = LONGEST_WAIT_SECONDS if following is None else following - self._monotonic()
            waiting.wait_and_wake(min(max(0.0, left), LONGEST_WAIT_SECONDS))
        waiting.close()

    def _submit(self, pool: ThreadPoolExecutor, name: str, function: Callable[..., None], *arguments: object) -> None:
        try:
            pool.submit(function, *arguments)
        except RuntimeError as error:
            if not self._stopping:
                # no further thread may be started: the pool has put the job into its queue by then, for the threads that there are
                log.error("job %s waits for a thread: %s", name, error)

    def _begin(self, job: Job) -> None:
        self._step(job, None, None)

    def _step(self, job: Job, coroutine: Coroutine[Wait, bool, None] | None, came_about: bool | None) -> None:
        """Runs a job to its next wait, or to its end. One that fails is a fault of ours: logged, and tried again at the next interval."""
        wait = None
        try:
            if coroutine is None:
                coroutine = job.run()
            if coroutine is not None:
                wait = coroutine.send(came_about)  # type: ignore[arg-type]  # None: the first send of every coroutine
        except StopIteration:
            pass
        except Exception:
            log.exception("job %s failed; this is a bug, please report it", job.name)
        if wait is not None and self._waiting is not None:
            self._waiting.begin(wait, partial(self._submit, self._steps, job.name, self._step, job, coroutine))
            return
        with self._lock:
            self._running.discard(job.name)
