"""Which job is due when, by a clock that is handed in: starts no thread and reads no time."""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Callable, Coroutine
from inspect import iscoroutinefunction

from llm_serving_exporter.fetch.waits import Wait
from llm_serving_exporter.model.record import Struct

# jobs run up to this share of their interval, and at most so many seconds, earlier or later: it keeps many exporters from asking one
# server in step, and is small against the interval, so that rates stay smooth and two runs are within a tenth of it
JITTER_SHARE, LONGEST_JITTER_SECONDS = 0.03, 0.5


# jobs that wait for servers run at beats that all jobs of an interval share, this share of it and at most so many seconds apart: those of
# one beat find the interpreter's code in the processor's caches, where each of thousands that runs alone takes twice as long
BEAT_SHARE, LONGEST_BEAT_SECONDS = 0.03, 0.5


# what a job does: it blocks, or gives a coroutine, which waits as `fetch.waits` says and holds no thread meanwhile
Run = Callable[[], Coroutine[Wait, bool, None] | None]


class Job(Struct):
    """Something that is done at intervals."""

    # what it is called; a job replaces another of its name
    name: str
    # between two runs
    seconds: float
    run: Run
    # whether that gives a coroutine
    waits: bool
    # when it is planned next, without jitter
    planned_at: float
    # when it is due next, with jitter
    due_at: float


class Timetable:
    """Jobs by name. `jitter(low, high)`: a random number between the two. All times are in seconds of one clock that never falls."""

    def __init__(self, jitter: Callable[[float, float], float] = random.uniform) -> None:
        self._jitter = jitter
        self._jobs: dict[str, Job] = {}
        # entries of jobs that were planned again since are left out when their time comes
        self._queue: list[tuple[float, int, Job]] = []
        self._numbers = itertools.count()

    def add(self, name: str, seconds: float, run: Run, first_at: float, then_at: float | None = None) -> None:
        """Plans a job at `first_at` and every `seconds` from then on. Replaces a job of that name.

        `then_at`: when one of the later runs is planned, where they are not to be whole intervals from the first.
        """
        planned_at = first_at if then_at is None else then_at
        self._jobs[name] = job = Job(name, seconds, run, iscoroutinefunction(run), planned_at, first_at)
        self._push(job)

    def remove(self, name: str) -> None:
        """Ends a job, if there is one of that name."""
        self._jobs.pop(name, None)

    def take_due(self, now: float) -> list[Job]:
        """The jobs that are due, first come first; each has its next time then.

        What was missed meanwhile is made up for once, and the next run is then at least half an interval away.
        """
        found = []
        while self._queue and self._queue[0][0] <= now:
            at, _number, job = heapq.heappop(self._queue)
            if self._is_current(at, job):
                found.append(job)
                job.planned_at += job.seconds * ((now - job.planned_at + job.seconds / 2) // job.seconds + 1.0)
                width = min(JITTER_SHARE * job.seconds, LONGEST_JITTER_SECONDS)
                job.due_at = _find_beat(job, job.planned_at + self._jitter(-width, width))
                self._push(job)
        return found

    def next_at(self) -> float | None:
        """When the next job is due; None without jobs."""
        while self._queue and not self._is_current(self._queue[0][0], self._queue[0][2]):
            heapq.heappop(self._queue)
        return self._queue[0][0] if self._queue else None

    def _is_current(self, at: float, job: Job) -> bool:
        return job.due_at == at and self._jobs.get(job.name) is job

    def _push(self, job: Job) -> None:
        heapq.heappush(self._queue, (job.due_at, next(self._numbers), job))


def _find_beat(job: Job, at: float) -> float:
    """The first beat of the job at or after a moment. One that blocks has a thread of its own, and no beats."""
    beat = min(BEAT_SHARE * job.seconds, LONGEST_BEAT_SECONDS)
    return math.ceil(at / beat) * beat if job.waits else at
