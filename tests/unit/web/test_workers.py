"""Threads that make answers: who waits for whom."""

import logging
import threading
from collections.abc import Iterator

import pytest

from llm_serving_exporter.web.workers import Workers
from tests.support.waiting import PATIENCE_SECONDS, wait_until

MOST = 4


class Tasks:
    """Tasks that say that they have begun, and wait until they may end."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.may_end = threading.Event()

    def hold(self, name: str) -> None:
        self.begun.append(name)
        self.may_end.wait(PATIENCE_SECONDS)


@pytest.fixture
def tasks() -> Iterator[Tasks]:
    made = Tasks()
    yield made
    made.may_end.set()


@pytest.fixture
def workers(tasks: Tasks) -> Iterator[Workers]:
    made = Workers(MOST, 100, "web-test", logging.getLogger("test"))
    yield made
    tasks.may_end.set()
    for thread in made.stop():
        thread.join(PATIENCE_SECONDS)


def test_tasks_that_come_first_have_threads_that_the_rest_is_not_given(workers: Workers, tasks: Tasks) -> None:
    for number in range(MOST):
        assert workers.submit(lambda number=number: tasks.hold(f"rest {number}"))
    wait_until(lambda: len(tasks.begun) == 2, "two threads at the rest")
    for number in range(2):
        assert workers.submit(lambda number=number: tasks.hold(f"first {number}"), first=True)
    wait_until(lambda: len(tasks.begun) == MOST, "two more at those that come first")
    assert tasks.begun[:2] == ["rest 0", "rest 1"]
    assert set(tasks.begun[2:]) == {"first 0", "first 1"}
    tasks.may_end.set()
    wait_until(lambda: tasks.begun[MOST:] == ["rest 2", "rest 3"], "the others of the rest")


def test_no_task_waits_for_another_while_a_thread_may_be_had(workers: Workers, tasks: Tasks) -> None:
    workers.submit(lambda: tasks.hold("long"), first=True)
    wait_until(lambda: tasks.begun == ["long"], "the first")
    for number in range(2):
        workers.submit(lambda number=number: tasks.hold(f"rest {number}"))
    wait_until(lambda: tasks.begun[1:] == ["rest 0", "rest 1"], "the rest beside it")


def test_where_no_thread_can_be_had_it_is_said_and_the_task_is_not_kept(
    workers: Workers, tasks: Tasks, monkeypatch
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as context:
        context.setattr(threading.Thread, "start", refuse)
        assert not workers.submit(lambda: tasks.hold("refused"))
    assert workers.submit(lambda: tasks.hold("taken"))
    wait_until(lambda: tasks.begun == ["taken"], "the other one")


def test_one_thread_does_what_more_cannot_be_had_for(tasks: Tasks, monkeypatch) -> None:
    workers = Workers(MOST, 100, "web-test", logging.getLogger("test"))
    start, began = threading.Thread.start, []

    def once(thread: threading.Thread) -> None:
        if began:
            raise RuntimeError("can't start new thread")
        began.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", once)
    tasks.may_end.set()
    for number in range(3):
        assert workers.submit(lambda number=number: tasks.hold(f"{number}"))
    wait_until(lambda: tasks.begun == ["0", "1", "2"], "all of them, in their order")
    monkeypatch.undo()
    for thread in workers.stop():
        thread.join(PATIENCE_SECONDS)
