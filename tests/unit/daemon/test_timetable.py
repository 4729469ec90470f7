"""Which jobs are due when: intervals are kept, what is missed is made up for once, a job that was replaced runs no more."""

import random

import pytest

from llm_serving_exporter.daemon.timetable import (
    BEAT_SHARE,
    JITTER_SHARE,
    LONGEST_BEAT_SECONDS,
    LONGEST_JITTER_SECONDS,
    Timetable,
)


def do_nothing() -> None:
    """What a job does here."""


def steady() -> Timetable:
    return Timetable(lambda low, high: (low + high) / 2)


def names(table: Timetable, now: float) -> list[str]:
    return [job.name for job in table.take_due(now)]


def test_a_job_is_due_at_its_first_time_and_every_interval_from_then_on() -> None:
    table = steady()
    assert table.next_at() is None
    table.add("a", 5.0, do_nothing, 2.0)
    due = []
    for _ in range(4):
        at = table.next_at()
        assert names(table, at - 0.001) == []
        assert names(table, at) == ["a"]
        due.append(at)
    assert due == [2.0, 7.0, 12.0, 17.0]


def test_jobs_that_are_due_come_in_the_order_of_their_times() -> None:
    table = steady()
    for name, first in (("late", 3.0), ("early", 1.0), ("next", 2.0), ("far", 9.0)):
        table.add(name, 60.0, do_nothing, first)
    assert names(table, 4.0) == ["early", "next", "late"]


@pytest.mark.parametrize(
    ("late", "following"),
    [(0.1, 15.0), (2.4, 15.0), (2.6, 20.0), (5.0, 20.0), (32.4, 45.0), (32.6, 50.0)],
)
def test_what_was_missed_is_made_up_for_once_and_the_times_stay(late: float, following: float) -> None:
    table = steady()
    table.add("a", 5.0, do_nothing, 10.0)
    now = 10.0 + late
    assert names(table, now) == ["a"]
    assert names(table, now) == []
    assert table.next_at() == following
    assert 2.5 <= following - now <= 7.5


def test_a_job_that_is_replaced_or_ended_runs_no_more() -> None:
    table = steady()
    table.add("a", 5.0, do_nothing, 1.0)
    table.add("b", 5.0, do_nothing, 1.0)
    table.add("a", 60.0, do_nothing, 3.0)
    table.remove("b")
    table.remove("never there")
    assert names(table, 2.0) == []
    assert table.next_at() == 3.0
    [job] = table.take_due(3.0)
    assert job.seconds == 60.0


def test_a_job_that_comes_back_at_the_same_time_runs_once() -> None:
    table = steady()
    table.add("a", 5.0, do_nothing, 1.0)
    table.remove("a")
    table.add("a", 5.0, do_nothing, 1.0)
    assert names(table, 1.0) == ["a"]


@pytest.mark.parametrize(
    ("first", "then", "second"), [(2.0, 6.0, 21.0), (5.0, 14.0, 14.0), (0.0, 0.0, 15.0), (1.0, 9.0, 9.0)]
)
def test_later_runs_may_have_a_place_of_their_own(first: float, then: float, second: float) -> None:
    """Half an interval at least lies between the first and the second."""
    table = steady()
    table.add("a", 15.0, do_nothing, first, then)
    assert names(table, first - 0.001) == []
    assert names(table, first) == ["a"]
    assert table.next_at() == second
    assert names(table, second) == ["a"]
    assert table.next_at() == second + 15.0


@pytest.mark.parametrize("seconds", [0.2, 5.0, 600.0])
def test_jitter_neither_adds_up_nor_has_a_job_due_twice_at_a_time(seconds: float) -> None:
    table = Timetable(random.Random(18).uniform)
    table.add("a", seconds, do_nothing, 0.0)
    widest = min(JITTER_SHARE * seconds, LONGEST_JITTER_SECONDS)
    moments = []
    for _ in range(1000):
        at = table.next_at()
        assert at is not None
        assert names(table, at) == ["a"]
        moments.append(at)
    off = [at - number * seconds for number, at in enumerate(moments)]
    assert max(map(abs, off)) <= widest + 1e-6
    assert max(off) - min(off) > widest


def test_jobs_that_are_replaced_again_and_again_leave_nothing_behind() -> None:
    table = steady()
    for now in range(0, 5000, 5):
        table.add("a", 5.0, do_nothing, float(now))
        assert names(table, float(now)) == ["a"]
    assert len(table._queue) <= 3


@pytest.mark.parametrize("gone", [3600.0, 20 * 365 * 86_400.0])
def test_however_long_a_machine_slept_each_job_runs_once_and_nothing_is_listed(gone: float) -> None:
    table = Timetable()
    for number in range(500):
        table.add(f"job {number}", 1.0, do_nothing, number / 500)
    woken = 100.0 + gone
    assert len(names(table, woken)) == 500
    assert names(table, woken) == []
    assert len(table._queue) == 500
    # none is further away than an interval and a half
    assert len(names(table, woken + 1.5 + LONGEST_JITTER_SECONDS)) == 500


async def wait_for_nothing() -> None:
    """What a job that waits for servers does here."""


@pytest.mark.parametrize("seconds", [1.0, 5.0, 15.0, 60.0])
def test_jobs_that_wait_share_beats_and_keep_their_times(seconds: float) -> None:
    table, choose = Timetable(random.Random(7).uniform), random.Random(3)
    beat = min(BEAT_SHARE * seconds, LONGEST_BEAT_SECONDS)
    widest = min(JITTER_SHARE * seconds, LONGEST_JITTER_SECONDS)
    firsts = {f"target {number}": choose.uniform(0.0, seconds) for number in range(300)}
    for name, first in firsts.items():
        table.add(name, seconds, wait_for_nothing, first)
    ran: dict[str, list[float]] = {name: [] for name in firsts}
    together = []
    while (at := table.next_at()) is not None and at < 20 * seconds:
        due = names(table, at)
        for name in due:
            ran[name].append(at)
        if at > seconds:
            together.append(len(due))
    for name, first in firsts.items():
        assert ran[name][0] == first  # a first run waits for no beat
        for number, at in enumerate(ran[name][1:], 1):
            assert -widest <= at - (first + number * seconds) < widest + beat
            assert at / beat == pytest.approx(round(at / beat))
    # 300 in 50 beats of an interval, or in as many as a longer one has
    assert sum(together) / len(together) > 0.8 * 300 * beat / seconds


def test_a_job_that_blocks_runs_at_its_own_time() -> None:
    table = steady()
    table.add("gpus", 5.0, do_nothing, 1.003)
    assert names(table, 1.003) == ["gpus"]
    assert table.next_at() == pytest.approx(6.003)
