"""When the daemon's jobs run: each at its own interval, spread over time, in a few threads."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Protocol

from llm_serving_exporter.clock import LONGEST_WAIT_SECONDS, elapsed_seconds
from llm_serving_exporter.daemon.timetable import Job, Run, Timetable
from llm_serving_exporter.daemon.waiting import Waiting
from llm_serving_exporter.fetch.waits import Wait

log = logging.getLogger("llm_serving_exporter.daemon")

# jobs that block (GPUs, the kubelet, files on a file system that hangs) have threads of their own: there are fewer such jobs than threads
BLOCKING_THREADS = 8
# steps of jobs that wait for servers parse and derive, one at a time by the interpreter's lock: one thread runs them all, and another
# takes its place where one of them hangs, as with a token on a file system that does
STEP_THREADS = 8
# of both; threads are made as needed
MAX_THREADS = BLOCKING_THREADS + STEP_THREADS
# a step that is still under way after one to two of these hangs
HANGS_AFTER_SECONDS = 0.25


class _Step(NamedTuple):
    """What a coroutine does next."""

    # whose it is
    job: Job
    # None: the job's run begins
    coroutine: Coroutine[Wait, bool, None] | None
    # whether what it waited for came about; None where its run begins
    came_about: bool | None


class Schedule(Protocol):
    """Runs jobs by name at intervals. Tests bring one that they drive themselves."""

    def start(self) -> None:
        """Begins to run jobs."""
        ...

    def stop(self) -> None:
        """Runs no further job; does not wait for those under way."""
        ...

    def every(
        self, name: str, seconds: float, job: Run, delay_seconds: float = 0.0, phase_seconds: float | None = None
    ) -> None:
        """Runs a job every `seconds`, first after `delay_seconds`. Replaces a job of that name. It never runs twice at a time.

        `phase_seconds`: how long from now one of the later runs is planned, where they are not to be whole intervals from the first.
        """
        ...

    def cancel(self, name: str) -> None:
        """Ends a job, if there is one of that name."""
        ...


class ThreadSchedule:
    """A `Schedule` by elapsed time. A run that is missed is made up for once; one whose last run is still under way is left out.

    A job that blocks has a thread of a pool until it ends. Those that are coroutines share the thread that waits for all of them in one
    selector: however many servers hang, the others are read on time, and a tick wakes no other thread. A loop of its own, because a library
    that plans by the calendar brings 5 MB and plans by the wall clock. `monotonic`: elapsed seconds. `speed`: seconds of the jobs' own, by
    which their intervals are stated, to an elapsed one; not 1 beside a simulated fleet.
    """

    def __init__(self, monotonic: Callable[[], float] = elapsed_seconds, speed: float = 1.0) -> None:
        self._monotonic, self._speed = monotonic, speed
        self._blocking = ThreadPoolExecutor(BLOCKING_THREADS, thread_name_prefix="job")
        # made when this starts: it holds descriptors
        self._waiting: Waiting | None = None
        self._table = Timetable()
        # guards the timetable and the names
        self._lock = threading.Lock()
        # names of jobs that run, or wait for a thread
        self._running: set[str] = set()
        # by name: jobs that wait for a server, or make a step
        self._begun: dict[str, Coroutine[Wait, bool, None]] = {}
        # steps that can be made now, by whichever thread runs them
        self._ready: deque[_Step] = deque()
        self._stopping = threading.Event()
        # the thread that runs steps, and those that ran them until one hung
        self._thread, self._relieved = self._make_thread(), set[threading.Thread]()
        # whether a step is under way, and how many came before it
        self._in_step, self._steps = False, 0
        self._watch = threading.Thread(target=self._relieve_who_hangs, name="schedule-watch", daemon=True)

    def start(self) -> None:
        """As in `Schedule`."""
        self._waiting = Waiting(self._monotonic)
        self._thread.start()
        self._watch.start()

    def stop(self) -> None:
        """As in `Schedule`."""
        self._stopping.set()
        self._ring()
        self._blocking.shutdown(wait=False, cancel_futures=True)

    def every(
        self, name: str, seconds: float, job: Run, delay_seconds: float = 0.0, phase_seconds: float | None = None
    ) -> None:
        """As in `Schedule`. A job that raises is logged, and tried again at the next interval."""
        now = self._monotonic()
        then = None if phase_seconds is None else now + phase_seconds / self._speed
        with self._lock:
            self._table.add(name, seconds / self._speed, job, now + delay_seconds / self._speed, then)
        self._ring()

    def cancel(self, name: str) -> None:
        """As in `Schedule`."""
        with self._lock:
            self._table.remove(name)

    def _ring(self) -> None:
        if self._waiting is not None:
            self._waiting.ring()

    def _make_thread(self) -> threading.Thread:
        return threading.Thread(target=self._run, name="schedule", daemon=True)

    def _run(self) -> None:
        own, waiting = threading.current_thread(), self._waiting
        assert waiting is not None
        while self._leads(own):
            if self._stopping.is_set():
                waiting.close()
                for coroutine in list(self._begun.values()):
                    _give_up(coroutine)
                return
            self._begin_due()
            # no more than there are now, so that what is due meanwhile is not late
            for _ in range(len(self._ready)):
                self._in_step = True
                self._make_step(waiting)
                if not self._leads(own) or self._stopping.is_set():
                    break
                self._in_step = False
            else:
                self._wait(waiting)
        with self._lock:
            self._relieved.discard(own)

    def _leads(self, own: threading.Thread) -> bool:
        """Whether the thread still is the one that runs steps."""
        if self._thread is own:
            return True
        with self._lock:  # held while another one starts, which may be refused
            return self._thread is own

    def _begin_due(self) -> None:
        with self._lock:
            due = [job for job in self._table.take_due(self._monotonic()) if job.name not in self._running]
            self._running.update(job.name for job in due)
        for job in due:
            if job.waits:
                self._ready.append(_Step(job, None, None))
            else:
                self._submit(job)

    def _wait(self, waiting: Waiting) -> None:
        with self._lock:
            following = self._table.next_at()
        left = 0.0 if self._ready else LONGEST_WAIT_SECONDS
        if following is not None:
            left = min(left, following - self._monotonic())
        waiting.wait_and_wake(max(0.0, left))

    def _submit(self, job: Job) -> None:
        try:
            self._blocking.submit(self._run_blocking, job)
        except RuntimeError as error:
            if not self._stopping.is_set():
                # no further thread may be started: the pool has put the job into its queue by then, for the threads that there are
                log.error("job %s waits for a thread: %s", job.name, error)

    def _run_blocking(self, job: Job) -> None:
        try:
            job.run()
        except Exception:
            log.exception("job %s failed; this is a bug, please report it", job.name)
        self._end_run(job)

    def _end_run(self, job: Job) -> None:
        with self._lock:
            self._running.discard(job.name)

    def _make_step(self, waiting: Waiting) -> None:
        """Runs a job to its next wait, or to its end. One that fails is a fault of ours: logged, and tried again at the next interval."""
        job, coroutine, came_about = self._ready.popleft()
        self._steps += 1
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
        if wait is None or coroutine is None:
            self._begun.pop(job.name, None)
            self._end_run(job)
            return
        self._begun[job.name] = coroutine
        waiting.begin(wait, partial(self._wake, job, coroutine))
        if self._stopping.is_set():
            _give_up(coroutine)

    def _wake(self, job: Job, coroutine: Coroutine[Wait, bool, None], came_about: bool) -> None:
        self._ready.append(_Step(job, coroutine, came_about))

    # --- by a thread of its own -----------------------------------------------------------------------------------

    def _relieve_who_hangs(self) -> None:
        """Has another thread run the steps where one hangs. The one that does ends once its step is over."""
        seen = 0
        while not self._stopping.wait(HANGS_AFTER_SECONDS):
            steps = self._steps
            if not self._in_step or steps != seen:
                seen = steps
                continue
            with self._lock:
                if len(self._relieved) < STEP_THREADS - 1:
                    self._relieve()

    def _relieve(self) -> None:
        """As the lock's holder."""
        hanging, self._thread = self._thread, self._make_thread()
        self._relieved.add(hanging)
        self._in_step = False
        try:
            self._thread.start()
        except RuntimeError as error:
            log.error("a step hangs, and the others wait for it: %s", error)
            self._relieved.discard(hanging)
            self._thread, self._in_step = hanging, True


def _give_up(coroutine: Coroutine[Wait, bool, None]) -> None:
    """Has a job that nobody will wake again close its sockets: the collector of cycles may come to them before it comes to the job."""
    with suppress(ValueError):  # it makes a step in a thread that hangs, and is given up after that
        coroutine.close()
