"""Jobs by the real clock, in a few threads: one that fails goes on, one that hangs is left out and holds up no other."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from selectors import EVENT_READ

import pytest

from llm_serving_exporter.clock import elapsed_seconds
from llm_serving_exporter.daemon.schedule import BLOCKING_THREADS, MAX_THREADS, STEP_THREADS, ThreadSchedule
from llm_serving_exporter.fetch.waits import SocketWait
from tests.support.waiting import wait_until


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
