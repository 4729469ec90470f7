"""One selector for everything that waits: who is woken, when the time is over, and sockets that are closed by others meanwhile."""

import errno
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from selectors import EVENT_READ, EVENT_WRITE

import pytest

from llm_serving_exporter.clock import elapsed_seconds
from llm_serving_exporter.daemon.waiting import Waiting
from llm_serving_exporter.fetch.waits import FutureWait, SocketWait
from tests.support.waiting import PATIENCE_SECONDS

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
