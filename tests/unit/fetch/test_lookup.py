"""Names: one question at a time for each, threads that are bounded, and names that hang behind those that do not."""

from __future__ import annotations

import socket
import threading

import pytest

from llm_serving_exporter.fetch import connect as lookup
from llm_serving_exporter.fetch.connect import KEPT_SECONDS, MOST_THREADS, SLOW_SECONDS, Found, Resolver
from llm_serving_exporter.fetch.waits import drive
from tests.support.waiting import PATIENCE_SECONDS, wait_until

ANSWER: Found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 80))]


class Names:
    """A system's resolver: names that begin with "hangs" are answered when the test says so."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answering = threading.Event()
        self._now, self._lock = 0.0, threading.Lock()
        self.resolver = Resolver(self._ask, self.monotonic)

    def monotonic(self) -> float:
        return self._now

    def move(self, seconds: float) -> None:
        self._now += seconds

    def look_up(self, host: str, seconds: float = PATIENCE_SECONDS) -> Found | None:
        return drive(self.resolver.look_up(host, 80, seconds))

    def _ask(self, host: str, port: int) -> Found:
        with self._lock:
            self.asked.append(host)
        if host.startswith("hangs"):
            assert self.answering.wait(PATIENCE_SECONDS)
        if host == "unknown":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return ANSWER


def test_a_name_is_asked_for_and_kept_for_a_moment() -> None:
    names = Names()
    assert names.look_up("engine") == ANSWER
    assert names.look_up("engine") == ANSWER
    assert names.asked == ["engine"]
    names.move(KEPT_SECONDS)
    assert names.look_up("engine") == ANSWER
    assert names.asked == ["engine"] * 2


def test_an_address_needs_nobody_to_ask() -> None:
    names = Names()
    for host in ("127.0.0.1", "::1"):
        found = names.look_up(host)
        assert found[0][4][0] == host
    assert names.asked == []


def test_a_name_that_nobody_knows_is_an_error_and_not_kept() -> None:
    names = Names()
    for _ in range(2):
        with pytest.raises(socket.gaierror, match="not known"):
            names.look_up("unknown")
    assert names.asked == ["unknown"] * 2


def test_a_name_that_hangs_is_given_up_in_time_and_asked_for_once() -> None:
    names = Names()
    for _ in range(5):
        assert names.look_up("hangs", 0.01) is None
    assert names.asked == ["hangs"]
    names.answering.set()
    assert names.look_up("hangs") == ANSWER
    assert names.asked == ["hangs"]


def test_names_that_hung_before_leave_threads_to_the_others() -> None:
    names = Names()
    # what hangs together takes every thread the first time: nobody knows yet
    many = [f"hangs-{number}" for number in range(MOST_THREADS)]
    for host in many:
        assert names.look_up(host, 0.0) is None
    wait_until(lambda: len(names.asked) == MOST_THREADS, "a thread for each")
    names.move(SLOW_SECONDS + 1)
    names.answering.set()
    for host in many:
        assert names.look_up(host) == ANSWER
    # from then on half of them at most
    names.answering.clear()
    names.move(KEPT_SECONDS)
    for host in many:
        assert names.look_up(host, 0.0) is None
    assert names.look_up("engine") == ANSWER
    wait_until(lambda: len(names.asked) == MOST_THREADS + MOST_THREADS // 2 + 1, "half of those that hang")
    names.answering.set()
    for host in many:
        assert names.look_up(host) == ANSWER


def test_a_machine_without_threads_to_spare_says_nothing_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names()

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        assert names.look_up("engine", 0.01) is None
    assert names.look_up("other") == ANSWER
    assert names.look_up("engine") == ANSWER


def test_threads_that_have_nothing_to_do_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "_IDLE_SECONDS", 0.01)
    names = Names()
    assert names.look_up("engine") == ANSWER
    wait_until(lambda: names.resolver._threads == 0, "its thread's end")
    names.move(KEPT_SECONDS)
    assert names.look_up("engine") == ANSWER
