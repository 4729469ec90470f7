"""The cost review on its schedule: runs it in a process of its own, catches up once on missed ones, retries a failed one for a day.

A process of its own, because a review reads two weeks of a fleet's series: the daemon keeps its size, and outlives whatever becomes of it.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from apscheduler.triggers.cron import CronTrigger

from llm_serving_exporter.clock import elapsed_seconds
from llm_serving_exporter.errors import ReviewRunsError
from llm_serving_exporter.model.reading import ReviewRuns
from llm_serving_exporter.settings.config import ReviewSchedule
from llm_serving_exporter.state import review_runs
from llm_serving_exporter.state.review_runs import Runs

log = logging.getLogger("llm_serving_exporter.review")

RETRY_SECONDS, RETRIED_FOR_SECONDS = 3600.0, 86_400.0
LONGEST_RUN_SECONDS = 3600.0
# how far back the last due time is looked for: each span holds it before the next one is tried, so that no schedule takes many steps
_LOOKED_BACK = (3600.0, 86_400.0, 8 * 86_400.0, 32 * 86_400.0, 370 * 86_400.0)
_MOST_STEPS = 2000
_KEPT_LINES = 20


def last_due(schedule: ReviewSchedule, now: float) -> float | None:
    """The latest time at or before `now` (Unix seconds) that the schedule names; None without one within a year."""
    if schedule.cron is None:
        return None
    zone = ZoneInfo(schedule.timezone)
    trigger = CronTrigger.from_crontab(schedule.cron, timezone=zone)
    for span in _LOOKED_BACK:
        found: float | None = None
        at = datetime.fromtimestamp(now - span, zone)
        for _ in range(_MOST_STEPS):
            at = trigger.get_next_fire_time(None, at)
            if at is None or at.timestamp() > now:
                break
            found = float(at.timestamp())
            at = datetime.fromtimestamp(found, UTC).astimezone(zone) + timedelta(seconds=1)
        if found is not None:
            return found
    return None


def next_due(schedule: ReviewSchedule, now: float) -> float | None:
    """The first time after `now` (Unix seconds) that the schedule names; None without one within a year."""
    if schedule.cron is None:
        return None
    zone = ZoneInfo(schedule.timezone)
    trigger = CronTrigger.from_crontab(schedule.cron, timezone=zone)
    found = trigger.get_next_fire_time(None, datetime.fromtimestamp(now, zone) + timedelta(seconds=1))
    if found is None or found.timestamp() - now > _LOOKED_BACK[-1]:
        return None
    return float(found.timestamp())


def first_missed(schedule: ReviewSchedule, since: float, due: float) -> float:
    """The first time after `since` that the schedule names, `due` where that is not before it: a review that is missed again and again has
    been late since the first."""
    if schedule.cron is None or since >= due:
        return due
    found = next_due(schedule, since)
    return due if found is None else min(due, found)


def wants_run(runs: Runs, due: float | None, now: float) -> bool:
    """Whether a review that was due has yet to be made: at once where none was tried since, and again each hour where it failed, for a day
    from the first of these runs on."""
    if due is None or (runs.last_success is not None and runs.last_success >= due):
        return False
    if runs.last_run is None or runs.last_run < due:
        return True
    first = runs.tried_since if runs.tried_since is not None and runs.tried_since >= due else runs.last_run
    return now - first < RETRIED_FOR_SECONDS and now - runs.last_run >= RETRY_SECONDS


class ReviewRunner:
    """`run_when_due` is called every half minute by one thread at a time. `command`: what makes a review; `wall`: Unix seconds.

    A run is noted in the file before it is started, and not started where that fails: whatever ends it, the exporter and its machine
    included, it is not started at once again. A step of the wall clock: what was due within it is made once. Where it is put back to before
    what is known of runs, the next one is counted from there.
    """

    def __init__(
        self,
        schedule: ReviewSchedule,
        *,
        command: Sequence[str] = (sys.executable, "-m", "llm_serving_exporter", "report", "--deliver"),
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = elapsed_seconds,
    ) -> None:
        self.schedule = schedule
        self._command = (*command, "--config.file", schedule.settings_file)
        self._wall, self._monotonic = wall, monotonic
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._said: list[str] = []
        self._started, self._started_monotonic = 0.0, 0.0
        # what was last tried, and when by the monotonic clock: should the file forget it
        self._tried: tuple[float, float] | None = None
        self._problem = ""
        # the wall clock against elapsed time at the last look; None before the first
        self._offset: float | None = None
        # when the wall clock was put back to before what is known of runs: nothing that was due before then is made
        self._put_back_at = float("-inf")

    def run_when_due(self) -> ReviewRuns | None:
        """Starts a review that is due, and ends one that takes too long; what is to be published. Never raises."""
        now = self._wall()
        due = last_due(self.schedule, now)
        runs, problem = None, ""
        try:
            known = review_runs.begin_runs(self.schedule.folder, now, due)
            runs = known.drop_future(now)
            if self._was_put_back(now) and runs != known:
                self._put_back_at = now
            if due is not None and due < max(runs.since, self._put_back_at):
                due = None  # before anybody had asked for it
            if self._process is not None:
                self._follow(self._process, now)
            elif due is not None and self.schedule.run and wants_run(runs, due, now) and not self._just_tried(due):
                self._start(now, due)
        except ReviewRunsError as error:
            problem = str(error)
            if self._process is not None:
                self._follow(self._process, now)
        if problem and problem != self._problem:
            log.error("%s", problem)
        self._problem = problem
        following = next_due(self.schedule, now)
        if runs is None:
            return ReviewRuns(due, next_due=following)
        since = runs.since if runs.last_success is None else max(runs.since, runs.last_success)
        late = first_missed(self.schedule, since, due) if due is not None else None
        return ReviewRuns(late, runs.last_run, runs.last_success, following)

    def _was_put_back(self, now: float) -> bool:
        """Whether the wall clock was put back since the last look."""
        before, self._offset = self._offset, now - self._monotonic()
        return before is not None and before - self._offset > review_runs.AHEAD_SECONDS

    def _just_tried(self, due: float) -> bool:
        return self._tried is not None and due <= self._tried[0] and self._monotonic() - self._tried[1] < RETRY_SECONDS

    def close(self) -> None:
        """Ends a review under way."""
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()

    def _start(self, now: float, due: float) -> None:
        """Notes a run and starts it. Raises ReviewRunsError where it cannot be noted: then it is not started."""
        review_runs.record_attempt(self.schedule.folder, now, due)
        log.info("the cost review is due: making it")
        self._said, self._started, self._started_monotonic = [], now, self._monotonic()
        self._tried = due, self._started_monotonic
        try:
            # the same program, with words of its own and a path of the configuration
            self._process = subprocess.Popen(  # noqa: S603
                self._command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                errors="replace",
            )  # fmt: skip
        except OSError as error:
            log.error("the cost review cannot be started: %s", error)
            return
        self._reader = threading.Thread(target=self._read, args=(self._process, self._said), daemon=True)
        self._reader.start()

    @staticmethod
    def _read(process: subprocess.Popen[str], said: list[str]) -> None:
        assert process.stderr is not None
        with process.stderr:
            for line in process.stderr:
                said.append(line.rstrip()[:500])
                del said[:-_KEPT_LINES]

    def _follow(self, process: subprocess.Popen[str], now: float) -> None:
        status = process.poll()
        if status is None:
            if self._monotonic() - self._started_monotonic > LONGEST_RUN_SECONDS:
                log.error("the cost review takes longer than an hour: it is ended")
                process.kill()
            return
        self._process = None
        if self._reader is not None:
            self._reader.join(5)
        level = logging.INFO if status == 0 else logging.ERROR
        log.log(level, "the cost review ended with status %d: %s", status, "; ".join(self._said) or "it said nothing")
        if status != 0:
            self._note_failure(now)

    def _note_failure(self, now: float) -> None:
        """A command that was killed has not noted its end itself."""
        try:
            runs = review_runs.read_runs(self.schedule.folder)
            if runs is None or runs.last_run is None or runs.last_run <= self._started:
                review_runs.record_run(self.schedule.folder, now, succeeded=False)
        except ReviewRunsError as error:
            log.error("%s", error)
