"""Jobs by the real clock, when they are due, what they wait for, and the collector of cycles beside them."""

import errno
import gc
import random
import socket
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from functools import partial
from selectors import EVENT_READ, EVENT_WRITE

import pytest

from llm_serving_exporter.clock import elapsed_seconds
from llm_serving_exporter.daemon.garbage import YOUNG, fit_collector
from llm_serving_exporter.daemon.schedule import BLOCKING_THREADS, MAX_THREADS, STEP_THREADS, ThreadSchedule
from llm_serving_exporter.daemon.service import Service
from llm_serving_exporter.daemon.timetable import (
    BEAT_SHARE,
    JITTER_SHARE,
    LONGEST_BEAT_SECONDS,
    LONGEST_JITTER_SECONDS,
    Timetable,
)
from llm_serving_exporter.daemon.waiting import Waiting
from llm_serving_exporter.fetch.waits import FutureWait, SocketWait
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.settings.config import Config, GpuConfig, WebConfig
from llm_serving_exporter.web.server import WebServer
from tests.support.waiting import PATIENCE_SECONDS, wait_until

# --- Jobs by the real clock, in a few threads: one that fails goes on, one that hangs is left out and holds up no other


@contextmanager
def running(monotonic: Callable[[], float] = elapsed_seconds) -> Iterator[ThreadSchedule]:
    schedule = ThreadSchedule(monotonic)
    schedule.start()
    try:
        yield schedule
    finally:
        schedule.stop()


def test_jobs_run_again_and_again_until_they_are_ended() -> None:
    counts = {"a": 0, "b": 0}

    def count(name: str) -> None:
        counts[name] += 1

    with running() as schedule:
        schedule.every("a", 0.01, lambda: count("a"))
        schedule.every("b", 0.01, lambda: count("b"))
        wait_until(lambda: min(counts.values()) >= 3, "three runs of both")
        schedule.cancel("a")
        schedule.cancel("never there")
        # the run that was under way when it was ended
        most = counts["a"] + 1
        seen = counts["b"]
        wait_until(lambda: counts["b"] >= seen + 10, "ten more of the other")
        assert counts["a"] <= most


def test_a_job_that_fails_is_logged_and_runs_again(caplog: pytest.LogCaptureFixture) -> None:
    runs: list[int] = []

    def fail() -> None:
        runs.append(1)
        raise ValueError("for the test")

    with running() as schedule:
        schedule.every("broken", 0.01, fail)
        wait_until(lambda: len(runs) >= 3, "three runs")
    assert "job broken failed" in caplog.text


def test_a_job_that_hangs_never_runs_twice_and_holds_up_no_other() -> None:
    released, started, others = threading.Event(), [], []

    def hang() -> None:
        started.append(1)
        released.wait()

    with running() as schedule:
        schedule.every("hangs", 0.01, hang)
        wait_until(lambda: started, "its start")
        # a reload that plans it again is no second run beside the first either
        schedule.every("hangs", 0.01, hang)
        schedule.every("other", 0.01, lambda: others.append(1))
        wait_until(lambda: len(others) >= 10, "ten runs of the other")
        assert len(started) == 1
        released.set()
        wait_until(lambda: len(started) >= 2, "its next run")


def test_a_machine_that_slept_runs_what_was_missed_once_it_wakes() -> None:
    # elapsed time goes on in a suspend, the wait of a condition does not
    slept, runs = [0.0], []
    with running(lambda: elapsed_seconds() + slept[0]) as schedule:
        schedule.every("hourly", 3600.0, lambda: runs.append(1))
        wait_until(lambda: runs, "its first run")
        slept[0] = 8 * 3600.0
        wait_until(lambda: len(runs) == 2, "its run after the sleep")


def test_intervals_go_by_the_jobs_own_seconds() -> None:
    runs: list[int] = []
    schedule = ThreadSchedule(speed=3600.0)
    schedule.every("hourly", 36.0, lambda: runs.append(1), delay_seconds=36.0)
    schedule.start()
    wait_until(lambda: len(runs) >= 3, "three runs")
    schedule.stop()


def test_jobs_that_wait_for_servers_hold_no_thread_and_hold_up_no_other() -> None:
    began, over, others = [], [], []
    one, other = socket.socketpair()

    async def hang(sock: socket.socket) -> None:
        began.append(threading.current_thread())
        over.append(await SocketWait(sock, EVENT_READ, 3600.0))

    async def tick() -> None:
        others.append(1)

    with ExitStack() as sockets, one, other, running() as schedule:
        for number in range(10 * MAX_THREADS):
            schedule.every(f"hangs {number}", 0.01, partial(hang, sockets.enter_context(one.dup())))
        wait_until(lambda: len(began) == 10 * MAX_THREADS, "their start")
        assert len(set(began)) <= STEP_THREADS
        schedule.every("other", 0.01, tick)
        schedule.every("blocks", 0.01, lambda: others.append(1))
        wait_until(lambda: len(others) >= 10, "ten runs of the others")
        # none ran twice at a time
        assert len(began) == 10 * MAX_THREADS
        other.send(b"x")
        wait_until(lambda: len(over) >= 10 * MAX_THREADS, "their end")
        assert all(over)


def test_the_end_gives_up_jobs_that_wait_and_those_in_a_step_that_hangs() -> None:
    """Each closes what it holds: one that is left to the collector of cycles may lose its sockets before it can."""
    released, begun, given_up = threading.Event(), [], []

    async def wait(hangs: bool) -> None:
        try:
            begun.append(hangs)
            if hangs:
                released.wait()
            await SocketWait(one, EVENT_READ, 3600.0)
        finally:
            given_up.append(hangs)

    one, other = socket.socketpair()
    with one, other:
        with running() as schedule:
            schedule.every("waits", 3600.0, partial(wait, False))
            wait_until(lambda: begun == [False], "its wait")
            schedule.every("hangs", 3600.0, partial(wait, True))
            wait_until(lambda: begun == [False, True], "the step that hangs")
            wait_until(lambda: schedule._relieved, "the thread in its place")
        wait_until(lambda: given_up == [False], "the end of the one that waits")
        released.set()
        wait_until(lambda: given_up == [False, True], "the end of the other")


def test_jobs_that_block_hold_up_no_job_that_waits() -> None:
    released, stuck, others = threading.Event(), [], []

    def block() -> None:
        stuck.append(1)
        released.wait()

    async def tick() -> None:
        others.append(1)

    with running() as schedule:
        for number in range(BLOCKING_THREADS):
            schedule.every(f"blocks {number}", 0.01, block)
        wait_until(lambda: len(stuck) == BLOCKING_THREADS, "their start")
        schedule.every("other", 0.01, tick)
        wait_until(lambda: len(others) >= 10, "ten runs of the other")
        released.set()


def test_a_step_that_hangs_holds_up_no_other_for_long() -> None:
    """As one that reads a token from a file system that hangs. As many of them as threads are there for leave one to the others."""
    released, stuck, others, over = threading.Event(), [], [], []
    hanging = STEP_THREADS - 1

    async def hang() -> None:
        stuck.append(1)
        released.wait()
        over.append(await SocketWait(one, EVENT_READ, 0.01))

    async def tick() -> None:
        others.append(1)

    one, other = socket.socketpair()
    with one, other, running() as schedule:
        first = schedule._thread
        for number in range(hanging):
            schedule.every(f"hangs {number}", 3600.0, hang)
        schedule.every("other", 0.01, tick)
        wait_until(lambda: len(stuck) == hanging, "their start")
        seen = len(others)
        wait_until(lambda: len(others) >= seen + 10, "ten more runs of the other")
        released.set()
        # their steps go on in whichever thread runs them then
        wait_until(lambda: len(over) == hanging, "their end")
        wait_until(lambda: not schedule._relieved, "the end of the threads that were relieved")
        first.join(30.0)
        assert not first.is_alive()
        assert schedule._thread.is_alive()


def test_a_machine_without_a_thread_to_take_over_goes_on_once_the_step_is_over(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    released, others = threading.Event(), []

    async def hang() -> None:
        released.wait()

    async def tick() -> None:
        others.append(1)

    with running() as schedule:

        def refuse(_thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(threading.Thread, "start", refuse)
        schedule.every("hangs", 3600.0, hang)
        wait_until(lambda: "a step hangs" in caplog.text, "the refusal")
        schedule.every("other", 0.01, tick)
        released.set()
        wait_until(lambda: len(others) >= 3, "runs of the other in the thread that there is")


def test_a_coroutine_that_fails_is_logged_and_runs_again(caplog: pytest.LogCaptureFixture) -> None:
    runs: list[int] = []

    async def fail() -> None:
        runs.append(1)
        await SocketWait(one, EVENT_READ, 0.01)
        raise ValueError("for the test")

    one, other = socket.socketpair()
    with one, other, running() as schedule:
        schedule.every("broken", 0.01, fail)
        wait_until(lambda: len(runs) >= 3, "three runs")
    assert "job broken failed" in caplog.text


def test_a_schedule_that_was_stopped_runs_nothing_more() -> None:
    runs: list[int] = []
    with running() as schedule:
        schedule.every("a", 0.01, lambda: runs.append(1))
        wait_until(lambda: runs, "its run")
    schedule.every("b", 0.01, lambda: runs.append(2))
    schedule._thread.join(30.0)
    assert not schedule._thread.is_alive()
    assert 2 not in runs


def test_a_machine_without_threads_to_spare_ends_no_schedule(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, busy, released = [], [], threading.Event(), threading.Event()
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if busy.is_set() and thread.name.startswith("job"):
            raise RuntimeError("can't start new thread")
        start(thread)

    def occupy() -> None:
        busy.set()
        first.append(1)
        released.wait()

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with running() as schedule:
        schedule.every("first", 3600.0, occupy)
        wait_until(lambda: first, "the only thread that there is")
        schedule.every("second", 0.01, lambda: second.append(1))
        wait_until(lambda: "job second waits for a thread" in caplog.text, "the refusal")
        released.set()
        wait_until(lambda: len(second) >= 3, "runs of the other in the thread that there is")


# --- Which jobs are due when: intervals are kept, what is missed is made up for once, a job that was replaced runs no more


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
    ("late", "following"), [(0.1, 15.0), (2.4, 15.0), (2.6, 20.0), (5.0, 20.0), (32.4, 45.0), (32.6, 50.0)]
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


# --- One selector for everything that waits: who is woken, when the time is over, and sockets that are closed by others meanwhile


LONG = 3600.0


class Woken:
    """What a wait came to; [] while it has not."""

    def __init__(self) -> None:
        self.said: list[bool] = []

    def __call__(self, came_about: bool) -> None:
        self.said.append(came_about)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


@pytest.fixture
def waiting() -> Iterator[Waiting]:
    found = Waiting(elapsed_seconds)
    yield found
    found.close()


def look_until(waiting: Waiting, woken: Woken) -> bool:
    end = elapsed_seconds() + PATIENCE_SECONDS
    while not woken.said:
        assert elapsed_seconds() < end, "nobody was woken"
        waiting.wait_and_wake(0.05)
    [said] = woken.said
    return said


def test_a_socket_that_can_be_used_wakes_who_waits_for_it_once(
    waiting: Waiting, pair: tuple[socket.socket, socket.socket]
) -> None:
    woken = Woken()
    waiting.begin(SocketWait(pair[0], EVENT_READ, LONG), woken)
    waiting.wait_and_wake(0.0)
    assert woken.said == []
    pair[1].send(b"x")
    assert look_until(waiting, woken) is True
    waiting.wait_and_wake(0.0)
    assert woken.said == [True]
    # and again, for another wait
    again = Woken()
    waiting.begin(SocketWait(pair[0], EVENT_WRITE, LONG), again)
    assert look_until(waiting, again) is True


def test_a_socket_that_says_something_while_nobody_waits_is_let_go(
    waiting: Waiting, pair: tuple[socket.socket, socket.socket]
) -> None:
    """A server that closes a kept connection must not have the wait come back again and again."""
    woken, again = Woken(), Woken()
    waiting.begin(SocketWait(pair[0], EVENT_READ, LONG), woken)
    pair[1].send(b"x")
    assert look_until(waiting, woken) is True
    waiting.wait_and_wake(0.0)
    assert list(waiting._registered) == []
    assert waiting._selector.select(0.0) == []
    waiting.begin(SocketWait(pair[0], EVENT_READ, LONG), again)
    assert look_until(waiting, again) is True


def test_a_wait_ends_when_its_time_is_over(waiting: Waiting, pair: tuple[socket.socket, socket.socket]) -> None:
    woken, future = Woken(), Woken()
    waiting.begin(SocketWait(pair[0], EVENT_READ, 0.01), woken)
    waiting.begin(FutureWait(Future(), 0.01), future)
    assert look_until(waiting, woken) is False
    assert look_until(waiting, future) is False
    # what comes then wakes nobody
    pair[1].send(b"x")
    waiting.wait_and_wake(0.0)
    assert woken.said == [False]


def test_a_machine_that_slept_ends_waits_whose_time_is_over(pair: tuple[socket.socket, socket.socket]) -> None:
    now, woken = [0.0], Woken()
    waiting = Waiting(lambda: now[0])
    waiting.begin(SocketWait(pair[0], EVENT_READ, 100.0), woken)
    now[0] = 3600.0
    waiting.wait_and_wake(1.0)
    assert woken.said == [False]
    waiting.close()


def test_another_threads_work_wakes_who_waits_for_it(waiting: Waiting) -> None:
    woken, done = Woken(), Woken()
    future: Future[int] = Future()
    waiting.begin(FutureWait(future, LONG), woken)
    future.set_result(1)
    assert woken.said == [True]
    waiting.begin(FutureWait(future, LONG), done)
    assert done.said == [True]


def test_a_wait_that_begins_while_one_looks_is_seen(
    waiting: Waiting, pair: tuple[socket.socket, socket.socket]
) -> None:
    woken = Woken()
    looking = threading.Thread(target=waiting.wait_and_wake, args=(PATIENCE_SECONDS,))
    looking.start()
    waiting.begin(SocketWait(pair[0], EVENT_READ, 0.05), woken)
    looking.join(PATIENCE_SECONDS)
    assert not looking.is_alive()
    assert look_until(waiting, woken) is False


def test_a_ring_has_a_look_come_back(waiting: Waiting) -> None:
    looking = threading.Thread(target=waiting.wait_and_wake, args=(LONG,))
    looking.start()
    waiting.ring()
    looking.join(PATIENCE_SECONDS)
    assert not looking.is_alive()


def test_a_socket_that_is_closed_already_is_not_waited_for(waiting: Waiting) -> None:
    one, other = socket.socketpair()
    one.close()
    woken = Woken()
    waiting.begin(SocketWait(one, EVENT_READ, LONG), woken)
    assert woken.said == [False]
    other.close()


def test_a_socket_that_the_kernel_has_no_room_for_is_not_asked_for_again_and_again(
    waiting: Waiting, pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(waiting._selector, "register", refuse)
    woken = Woken()
    waiting.begin(SocketWait(pair[0], EVENT_READ, LONG), woken)
    assert woken.said == [False]


def test_a_socket_that_somebody_closes_takes_nothing_from_the_next_with_its_number(waiting: Waiting) -> None:
    one, other = socket.socketpair()
    lost, number = Woken(), one.fileno()
    waiting.begin(SocketWait(one, EVENT_READ, 0.3), lost)
    one.close()
    other.close()
    next_one, next_other = socket.socketpair()
    with next_one, next_other:
        assert number in (next_one.fileno(), next_other.fileno())
        same, partner = (next_one, next_other) if next_one.fileno() == number else (next_other, next_one)
        woken = Woken()
        waiting.begin(SocketWait(same, EVENT_READ, LONG), woken)
        assert look_until(waiting, lost) is False
        assert woken.said == []
        partner.send(b"x")
        assert look_until(waiting, woken) is True


def test_one_that_is_closed_wakes_nobody(pair: tuple[socket.socket, socket.socket]) -> None:
    waiting, woken = Waiting(elapsed_seconds), Woken()
    waiting.begin(SocketWait(pair[0], EVENT_WRITE, 0.0), woken)
    waiting.close()
    waiting.begin(SocketWait(pair[0], EVENT_WRITE, 0.0), woken)
    waiting.ring()
    assert woken.said == []


# --- The collector of cycles: the usual one for a few targets, seldom for many, and still there


@pytest.fixture(autouse=True)
def usual_thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


class Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.mark.parametrize(("targets", "most"), [(1, 2 * YOUNG), (2000, 60_000)])
def test_cycles_are_collected_after_a_while(targets: int, most: int) -> None:
    fit_collector(targets)
    gone = weakref.ref(Cycle())
    made = 0
    while gone() is not None and made < most:
        Cycle()
        made += 1
    assert 20 * (targets - 1) < made < most


# --- The web server and the jobs together


def test_whoever_asks_first_finds_every_target(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(
        targets=(Target("a", "http://127.0.0.1:9"), Target("b", "http://127.0.0.1:9")),
        gpu=GpuConfig(enabled=False),
        web=WebConfig(listen_addresses=("127.0.0.1:0",)),
    )
    service = Service(config, lambda: config, lambda _config: None)
    known: list[str] = []
    monkeypatch.setattr(
        WebServer, "start", lambda _self: known.extend(one.target.name for one in service.daemon.store.view().targets)
    )
    try:
        service.start()
    finally:
        service.close()
    assert known == ["a", "b"]
