"""When the daemon's jobs run: each at its own interval, in threads, spread over time."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.interval import IntervalTrigger

log = logging.getLogger("llm_serving_exporter.daemon")

# jobs that block (a wedged engine holds a thread until its deadline) must not starve the others; threads are made as needed
# (at the default deadline of 80 % of the interval, this many threads carry 320 targets that all hang)
MAX_THREADS = 256
# jobs run up to this share of their interval, and at most so many seconds, earlier or later: it keeps many exporters from asking one
# server in step, and is small against the interval, so that rates stay smooth
JITTER_SHARE, LONGEST_JITTER_SECONDS = 0.05, 0.5


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

    def plan_again(self, spread_seconds: float) -> None:
        """Runs every job within the next `spread_seconds`, and from then on at its interval: the wall clock was set."""
        ...


class ThreadSchedule:
    """A `Schedule` by the wall clock, each run in a thread of a pool. A run that is missed is made up for once."""

    def __init__(self) -> None:
        self._scheduler = BackgroundScheduler(
            executors={"default": ThreadPoolExecutor(MAX_THREADS)},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
            timezone=UTC,
        )

    def start(self) -> None:
        """As in `Schedule`."""
        self._scheduler.start()

    def stop(self) -> None:
        """As in `Schedule`."""
        self._scheduler.shutdown(wait=False)

    def every(self, name: str, seconds: float, job: Callable[[], None], delay_seconds: float = 0.0) -> None:
        """As in `Schedule`. A job that raises is logged, and tried again at the next interval."""
        jitter = min(JITTER_SHARE * seconds, LONGEST_JITTER_SECONDS)
        trigger = IntervalTrigger(seconds=seconds, timezone=UTC, jitter=jitter)
        first = datetime.now(UTC) + timedelta(seconds=delay_seconds)
        self._scheduler.add_job(
            partial(_run_guarded, name, job), trigger, id=name, next_run_time=first, replace_existing=True
        )

    def cancel(self, name: str) -> None:
        """As in `Schedule`."""
        if self._scheduler.get_job(name):
            self._scheduler.remove_job(name)

    def plan_again(self, spread_seconds: float) -> None:
        """As in `Schedule`."""
        for job in self._scheduler.get_jobs():
            delay = random.uniform(0, spread_seconds)
            self._scheduler.modify_job(job.id, next_run_time=datetime.now(UTC) + timedelta(seconds=delay))


def _run_guarded(name: str, job: Callable[[], None]) -> None:
    """A job that fails is a fault of ours: logged, and tried again at the next interval."""
    try:
        job()
    except Exception:
        log.exception("job %s failed; this is a bug, please report it", name)
