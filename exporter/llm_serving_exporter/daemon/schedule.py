"""When the daemon's jobs run: each at its own interval, in threads, spread over time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from llm_serving_exporter.clock import LONGEST_WAIT_SECONDS, elapsed_seconds
from llm_serving_exporter.daemon.timetable import Job, Timetable

log = logging.getLogger("llm_serving_exporter.daemon")

# jobs that block (a wedged engine holds a thread until its deadline) must not starve the others; threads are made as needed
# (at the default deadline of 80 % of the interval, this many threads carry 320 targets that all hang)
MAX_THREADS = 256


class Schedule(Protocol):
    """Runs jobs by name at intervals. Tests bring one that they drive themselves."""

    def start(self) -> None:
        """Begins to run jobs."""
        ...

    def stop(self) -> None:
        """Runs no further job; does not wait for those under way."""
        ...

    def every(self, name: str, seconds: float, job: Callable[[], None], delay_seconds: float = 0.0) -> None:
        """Runs a job every `seconds`, first after `delay_seconds`. Replaces a job of that name. It never runs twice at a time."""
        ...

    def cancel(self, name: str) -> None:
        """Ends a job, if there is one of that name."""
        ...


class ThreadSchedule:
    """A `Schedule` by elapsed time, each run in a thread of a pool. A run that is missed is made up for once; one whose last run is
    still under way is left out.

    A loop of its own, because a library that plans by the calendar brings 5 MB and plans by the wall clock. `monotonic`: elapsed seconds.
    `speed`: seconds of the jobs' own, by which their intervals are stated, to an elapsed one; not 1 beside a simulated fleet.
    """

    def __init__(self, monotonic: Callable[[], float] = elapsed_seconds, speed: float = 1.0) -> None:
        self._monotonic, self._speed = monotonic, speed
        self._pool = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="job")
        self._table = Timetable()
        # guards all that follows and the timetable; told when what is due next may have changed
        self._changed = threading.Condition()
        # names of jobs that run, or wait for a thread
        self._running: set[str] = set()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="schedule", daemon=True)

    def start(self) -> None:
        """As in `Schedule`."""
        self._thread.start()

    def stop(self) -> None:
        """As in `Schedule`."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def every(self, name: str, seconds: float, job: Callable[[], None], delay_seconds: float = 0.0) -> None:
        """As in `Schedule`. A job that raises is logged, and tried again at the next interval."""
        with self._changed:
            self._table.add(name, seconds / self._speed, job, self._monotonic() + delay_seconds / self._speed)
            self._changed.notify()

    def cancel(self, name: str) -> None:
        """As in `Schedule`."""
        with self._changed:
            self._table.remove(name)

    def _run(self) -> None:
        with self._changed:
            while not self._stopping:
                for job in self._table.take_due(self._monotonic()):
                    if job.name not in self._running:
                        self._running.add(job.name)
                        self._submit(job)
                following = self._table.next_at()
                left = LONGEST_WAIT_SECONDS if following is None else following - self._monotonic()
                self._changed.wait(min(max(0.0, left), LONGEST_WAIT_SECONDS))

    def _submit(self, job: Job) -> None:
        try:
            self._pool.submit(self._run_guarded, job)
        except RuntimeError as error:
            # no further thread may be started: the pool has put the job into its queue by then, for the threads that there are
            log.error("job %s waits for a thread: %s", job.name, error)

    def _run_guarded(self, job: Job) -> None:
        """A job that fails is a fault of ours: logged, and tried again at the next interval."""
        try:
            job.run()
        except Exception:
            log.exception("job %s failed; this is a bug, please report it", job.name)
        finally:
            with self._changed:
                self._running.discard(job.name)
