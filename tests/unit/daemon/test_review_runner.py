"""The cost review on its schedule: when it is due, what is caught up, what is tried again, and a process that fails or hangs."""

import errno
import json
import os
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from llm_serving_exporter.daemon.review_runner import (
    LONGEST_RUN_SECONDS,
    ReviewRunner,
    first_missed,
    last_due,
    next_due,
    wants_run,
)
from llm_serving_exporter.model.reading import ReviewRuns
from llm_serving_exporter.settings.config import ReviewSchedule
from llm_serving_exporter.state import review_runs
from llm_serving_exporter.state.review_runs import NAME, Runs, begin_runs
from tests.support.waiting import PATIENCE_SECONDS, wait_until

HOUR, DAY = 3600.0, 86_400.0


def unix(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


def schedule(cron: str = "0 7 * * mon", zone: str = "UTC", folder: str = "", *, run: bool = True) -> ReviewSchedule:
    return ReviewSchedule("report.yml", folder, cron, zone, run)


@pytest.mark.parametrize(
    ("cron", "zone", "now", "due"),
    [
        # 2026-11-16 and 23 are Mondays
        ("0 7 * * mon", "UTC", "2026-11-16T07:00:00", "2026-11-16T07:00:00"),
        ("0 7 * * mon", "UTC", "2026-11-16T06:59:59", "2026-11-09T07:00:00"),
        ("0 7 * * mon", "UTC", "2026-11-22T23:00:00", "2026-11-16T07:00:00"),
        ("0 7 * * mon", "Europe/Berlin", "2026-11-16T07:00:00", "2026-11-16T07:00:00"),
        # the week of a clock change: still at 7 by the clock on the wall
        ("0 7 * * mon", "Europe/Berlin", "2026-10-26T07:30:00", "2026-10-26T07:00:00"),
        ("0 7 * * mon", "Europe/Berlin", "2026-03-30T06:59:00", "2026-03-23T07:00:00"),
        ("*/5 * * * *", "UTC", "2026-11-16T07:04:59", "2026-11-16T07:00:00"),
        ("0 7 1 * *", "UTC", "2026-11-16T00:00:00", "2026-11-01T07:00:00"),
        ("0 7 1 1 *", "UTC", "2026-11-16T00:00:00", "2026-01-01T07:00:00"),
    ],
)
def test_when_it_was_last_due(cron: str, zone: str, now: str, due: str) -> None:
    assert last_due(schedule(cron, zone), unix(now, zone)) == unix(due, zone)


def test_a_day_that_no_year_has_is_never_due() -> None:
    assert last_due(schedule("0 7 30 2 *"), unix("2026-11-16T00:00:00")) is None
    assert next_due(schedule("0 7 30 2 *"), unix("2026-11-16T00:00:00")) is None


@pytest.mark.parametrize(
    ("zone", "now", "due"),
    [
        ("UTC", "2026-11-16T06:59:59", "2026-11-16T07:00:00"),
        ("UTC", "2026-11-16T07:00:00", "2026-11-23T07:00:00"),
        # 167 and 169 hours later: at 7 by the clock on the wall
        ("Europe/Berlin", "2026-03-23T07:30:00", "2026-03-30T07:00:00"),
        ("Europe/Berlin", "2026-10-19T07:30:00", "2026-10-26T07:00:00"),
    ],
)
def test_when_it_is_next_due(zone: str, now: str, due: str) -> None:
    assert next_due(schedule(zone=zone), unix(now, zone)) == unix(due, zone)


DUE = 1_000_000.0


@pytest.mark.parametrize(
    ("runs", "now", "wanted"),
    [
        (Runs(0.0), DUE, True),
        (Runs(0.0, DUE - 5, DUE - 5), DUE + 60, True),
        (Runs(0.0, DUE + 60, DUE + 60), DUE + 120, False),
        # missed for days: caught up
        (Runs(0.0, DUE - 7 * DAY, DUE - 7 * DAY), DUE + 3 * DAY, True),
        # failed: again after an hour, for a day
        (Runs(0.0, DUE + 60, None), DUE + 120, False),
        (Runs(0.0, DUE + 60, DUE - DAY), DUE + 60 + HOUR, True),
        (Runs(0.0, DUE + 23 * HOUR, None, tried_since=DUE), DUE + 24 * HOUR, False),
        # caught up late and failed: for a day from then on
        (Runs(0.0, DUE + 3 * DAY, None), DUE + 3 * DAY + 2 * HOUR, True),
        (Runs(0.0, DUE + 3 * DAY + 22 * HOUR, None, tried_since=DUE + 3 * DAY), DUE + 3 * DAY + 23 * HOUR, True),
        (Runs(0.0, DUE + 3 * DAY + 23 * HOUR, None, tried_since=DUE + 3 * DAY), DUE + 4 * DAY, False),
        # what was tried for the week before is another matter
        (Runs(0.0, DUE + 60, None, tried_since=DUE - 7 * DAY), DUE + 60 + HOUR, True),
    ],
)
def test_when_one_is_made(runs: Runs, now: float, wanted: bool) -> None:
    assert wants_run(runs, DUE, now) is wanted


def test_a_review_that_is_missed_again_is_late_since_the_first() -> None:
    daily, first, day = schedule("0 7 * * *"), unix("2026-11-16T07:00:00"), 86_400.0
    due = first + 3 * day
    assert first_missed(daily, first - 60, due) == first
    assert first_missed(daily, first + 60, due) == first + day
    assert first_missed(daily, due + 60, due) == due
    # made on time, and due again now
    assert first_missed(daily, due - day + 60, due) == due


def test_nothing_due_is_nothing_to_make() -> None:
    assert not wants_run(Runs(0.0), None, DUE)


# --- the process ---------------------------------------------------------------------------------------------------

# a review that notes its success as the command does; its settings come behind
GOOD = """
import os, sys
from llm_serving_exporter.state import review_runs
review_runs.record_run(os.path.dirname(sys.argv[2]), float(open(sys.argv[2]).read()), succeeded=True)
"""
BAD = "import sys; sys.stderr.write('Prometheus at http://p cannot be reached\\n'); sys.exit(1)"
HANGS = "import time; time.sleep(3600)"


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def runner(tmp_path: Path, clock: Clock, code: str, *, run: bool = True) -> ReviewRunner:
    settings = tmp_path / "report.yml"
    settings.write_text(str(clock.now))
    plan = ReviewSchedule(str(settings), str(tmp_path), "0 7 * * mon", "UTC", run)
    return ReviewRunner(plan, command=(sys.executable, "-c", code), wall=clock, monotonic=clock)


def ended(found: ReviewRunner, look: Callable[[], ReviewRuns | None]) -> ReviewRuns | None:
    def is_over() -> bool:
        if found._process is not None:
            look()
        return found._process is None

    wait_until(is_over, "the end of the review")
    return look()


MONDAY = unix("2026-11-16T07:00:00")


def told(due: float, last_run: float | None = None, last_success: float | None = None) -> ReviewRuns:
    """What is published on that Monday, and in the week from then on."""
    return ReviewRuns(due, last_run, last_success, MONDAY + 7 * DAY)


@pytest.mark.process
@pytest.mark.seam("report")
def test_a_review_is_made_when_it_is_due_and_once(tmp_path: Path) -> None:
    clock = Clock(MONDAY - 60)
    found = runner(tmp_path, clock, GOOD)
    # the Monday before, nobody had asked for one yet
    assert found.run_when_due() == ReviewRuns(next_due=MONDAY)
    assert found._process is None
    clock.now = MONDAY + 1
    (tmp_path / "report.yml").write_text(str(clock.now))
    assert found.run_when_due() == told(MONDAY, None, None)
    assert found._process is not None
    assert ended(found, found.run_when_due) == told(MONDAY, MONDAY + 1, MONDAY + 1)
    assert found._process is None


@pytest.mark.process
def test_a_missed_one_is_caught_up_at_the_start(tmp_path: Path) -> None:
    begin_runs(str(tmp_path), MONDAY - 30 * DAY)
    clock = Clock(MONDAY + 3 * DAY)
    found = runner(tmp_path, clock, GOOD)
    found.run_when_due()
    assert ended(found, found.run_when_due) == told(MONDAY, clock.now, clock.now)
    clock.now += HOUR
    found.run_when_due()
    assert found._process is None


@pytest.mark.process
def test_one_that_fails_is_told_and_tried_again_after_an_hour(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    begin_runs(str(tmp_path), MONDAY - DAY)
    clock = Clock(MONDAY)
    found = runner(tmp_path, clock, BAD)
    found.run_when_due()
    assert ended(found, found.run_when_due) == told(MONDAY, MONDAY, None)
    assert "ended with status 1: Prometheus at http://p cannot be reached" in caplog.text
    clock.now += HOUR - 1
    found.run_when_due()
    assert found._process is None
    clock.now += 1
    found.run_when_due()
    assert found._process is not None
    ended(found, found.run_when_due)


@pytest.mark.process
def test_one_that_hangs_is_ended_and_counts_as_failed(tmp_path: Path) -> None:
    begin_runs(str(tmp_path), MONDAY - DAY)
    clock = Clock(MONDAY)
    found = runner(tmp_path, clock, HANGS)
    found.run_when_due()
    clock.now += LONGEST_RUN_SECONDS + 1
    assert ended(found, found.run_when_due) == told(MONDAY, clock.now, None)


def test_an_exporter_that_only_tells_makes_none(tmp_path: Path) -> None:
    begin_runs(str(tmp_path), MONDAY - DAY)
    found = runner(tmp_path, Clock(MONDAY + HOUR), GOOD, run=False)
    assert found.run_when_due() == told(MONDAY, None, None)
    assert found._process is None


@pytest.mark.process
def test_a_program_that_is_not_there_is_a_failed_run(tmp_path: Path) -> None:
    begin_runs(str(tmp_path), MONDAY - DAY)
    clock = Clock(MONDAY)
    plan = ReviewSchedule(str(tmp_path / "report.yml"), str(tmp_path), "0 7 * * mon", "UTC", True)
    found = ReviewRunner(plan, command=(str(tmp_path / "nothing"),), wall=clock, monotonic=clock)
    found.run_when_due()
    assert found.run_when_due() == told(MONDAY, MONDAY, None)


def test_a_folder_that_cannot_be_used_is_told_once_and_nothing_is_made(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / NAME).mkdir()
    found = runner(tmp_path, Clock(MONDAY), GOOD)
    assert found.run_when_due() == found.run_when_due() == told(MONDAY)
    assert found._process is None
    assert caplog.text.count("cannot be read") == 1


@pytest.mark.process
def test_a_file_that_was_spoilt_does_not_lose_the_review_that_is_due(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("{")
    found = runner(tmp_path, Clock(MONDAY + 1), GOOD)
    assert found.run_when_due() == told(MONDAY)
    assert ended(found, found.run_when_due) == told(MONDAY, MONDAY + 1, MONDAY + 1)


@pytest.mark.process
def test_a_run_that_cannot_be_noted_is_not_started(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_runs(str(tmp_path), MONDAY - DAY)
    # a file system that is read-only or full; permissions would not stop a test that runs as root
    before = os.replace

    def refuses(_source: object, target: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(target))

    monkeypatch.setattr(os, "replace", refuses)
    found = runner(tmp_path, Clock(MONDAY), GOOD)
    for _ in range(3):
        assert found.run_when_due() == told(MONDAY)
        assert found._process is None
    assert caplog.text.count("cannot be written: Read-only file system") == 1
    monkeypatch.setattr(os, "replace", before)
    assert ended(found, found.run_when_due) == told(MONDAY)
    assert ended(found, found.run_when_due) == told(MONDAY, MONDAY, MONDAY)


@pytest.mark.process
def test_an_exporter_that_dies_with_its_review_does_not_start_it_at_once_again(tmp_path: Path) -> None:
    begin_runs(str(tmp_path), MONDAY - DAY)
    clock = Clock(MONDAY)
    first = runner(tmp_path, clock, HANGS)
    first.run_when_due()
    first._process.kill()
    first._process.wait(PATIENCE_SECONDS)
    clock.now += 30
    again = runner(tmp_path, clock, GOOD)
    assert again.run_when_due() == told(MONDAY, MONDAY)
    assert again._process is None
    clock.now = MONDAY + HOUR
    (tmp_path / "report.yml").write_text(str(clock.now))
    again.run_when_due()
    assert ended(again, again.run_when_due) == told(MONDAY, clock.now, clock.now)
    first._reader.join(PATIENCE_SECONDS)


@pytest.mark.process
def test_a_file_that_forgets_does_not_start_another_at_once(tmp_path: Path) -> None:
    begin_runs(str(tmp_path), MONDAY - DAY)
    found = runner(tmp_path, Clock(MONDAY), BAD)
    found.run_when_due()
    ended(found, found.run_when_due)
    (tmp_path / NAME).write_text(json.dumps({"version": 1, "since_unix_seconds": MONDAY - DAY}))
    assert found.run_when_due() == told(MONDAY)
    assert found._process is None


@pytest.mark.process
def test_a_step_of_the_wall_clock_ends_no_review(tmp_path: Path) -> None:
    begin_runs(str(tmp_path), MONDAY - DAY)
    wall, monotonic = Clock(MONDAY), Clock(0.0)
    found = runner(tmp_path, wall, HANGS)
    found._monotonic = monotonic
    found.run_when_due()
    wall.now += 2 * LONGEST_RUN_SECONDS
    found.run_when_due()
    process = found._process
    assert process.poll() is None
    monotonic.now += LONGEST_RUN_SECONDS + 1
    found.run_when_due()
    assert process.wait(PATIENCE_SECONDS) != 0
    found.run_when_due()
    found._reader.join(PATIENCE_SECONDS)


@pytest.mark.process
def test_the_end_of_the_exporter_ends_its_review(tmp_path: Path) -> None:
    begin_runs(str(tmp_path), MONDAY - DAY)
    found = runner(tmp_path, Clock(MONDAY), HANGS)
    found.run_when_due()
    process = found._process
    found.close()
    assert process.wait(PATIENCE_SECONDS) != 0
    assert review_runs.read_runs(str(tmp_path)) == Runs(MONDAY - DAY, MONDAY, tried_since=MONDAY)
    found._reader.join(PATIENCE_SECONDS)


# --- a wall clock that is stepped ----------------------------------------------------------------------------------

YEAR = 365 * DAY


class Stepped:
    """A runner by two clocks: what is due at its wall clock is made, and counted."""

    def __init__(self, tmp_path: Path, now: float) -> None:
        self.wall, self.elapsed, self.made = Clock(now), Clock(0.0), 0
        self._settings = tmp_path / "report.yml"
        self.runner = runner(tmp_path, self.wall, GOOD)
        self.runner._monotonic = self.elapsed

    def look(self, *, step: float = 0.0, after: float = 30.0) -> ReviewRuns | None:
        """What is published after the clocks went on, the wall clock by a step more."""
        self.wall.now += after + step
        self.elapsed.now += after
        self._settings.write_text(str(self.wall.now))
        found = self.runner.run_when_due()
        if self.runner._process is None:
            return found
        self.made += 1
        return ended(self.runner, self.runner.run_when_due)


@pytest.fixture
def stepped(tmp_path: Path) -> Stepped:
    """On a Wednesday, with the review of Monday made."""
    begin_runs(str(tmp_path), MONDAY - 30 * DAY)
    found = Stepped(tmp_path, MONDAY + 60)
    found.look()
    assert found.made == 1
    found.look(after=2 * DAY)
    assert found.made == 1
    return found


@pytest.mark.process
@pytest.mark.parametrize("step", [HOUR, -HOUR, 2 * DAY, -DAY, 300.0, -300.0])
def test_a_step_with_nothing_due_in_it_makes_nothing_and_the_next_is_counted_from_now(
    stepped: Stepped, step: float
) -> None:
    found = stepped.look(step=step)
    assert stepped.made == 1
    assert found.next_due == MONDAY + 7 * DAY
    stepped.look(after=MONDAY + 7 * DAY + 60 - stepped.wall.now)
    assert stepped.made == 2


@pytest.mark.process
@pytest.mark.parametrize("step", [7 * DAY, YEAR, 20 * YEAR])
def test_what_lay_within_a_step_is_made_once_and_not_again_when_the_clock_is_put_right(
    stepped: Stepped, step: float
) -> None:
    stepped.look(step=step)
    assert stepped.made == 2
    found = stepped.look()
    assert stepped.made == 2
    assert stepped.wall.now < found.next_due <= stepped.wall.now + 7 * DAY
    stepped.look(step=-step)
    stepped.look()
    assert stepped.made == 2
    stepped.look(after=MONDAY + 7 * DAY + 60 - stepped.wall.now)
    assert stepped.made == 3


@pytest.mark.process
@pytest.mark.parametrize("step", [-YEAR, -20 * YEAR])
def test_a_clock_that_is_put_back_to_before_all_that_is_known_counts_from_there(stepped: Stepped, step: float) -> None:
    found = stepped.look(step=step)
    stepped.look()
    assert stepped.made == 1
    assert stepped.wall.now < found.next_due <= stepped.wall.now + 7 * DAY
    stepped.look(after=found.next_due + 60 - stepped.wall.now)
    assert stepped.made == 2
    # put right: the review of Monday was made before the step
    stepped.look(step=-step)
    stepped.look()
    assert stepped.made == 2 + (stepped.wall.now >= MONDAY + 7 * DAY)


@pytest.mark.process
def test_a_review_that_failed_is_tried_again_though_the_clock_was_corrected_a_little(tmp_path: Path) -> None:
    begin_runs(str(tmp_path), MONDAY - DAY)
    wall, elapsed = Clock(MONDAY + HOUR / 2), Clock(0.0)
    found = runner(tmp_path, wall, BAD)
    found._monotonic = elapsed
    found.run_when_due()
    ended(found, found.run_when_due)
    wall.now += HOUR / 2 - 300.0
    elapsed.now += HOUR / 2
    found.run_when_due()
    assert found._process is None
    wall.now += HOUR
    elapsed.now += HOUR
    found.run_when_due()
    assert found._process is not None
    ended(found, found.run_when_due)


@pytest.mark.process
def test_a_slewed_clock_makes_one_review(tmp_path: Path) -> None:
    begin_runs(str(tmp_path), MONDAY - DAY)
    found = Stepped(tmp_path, MONDAY - 600)
    for _ in range(30):
        found.look(step=-5.0)
    for _ in range(40):
        found.look(step=15.0)
    assert found.made == 1
