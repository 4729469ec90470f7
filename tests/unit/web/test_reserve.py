"""What earns a place and a thread of one's own: an answer that was asked for, and taken."""

from __future__ import annotations

import logging
import selectors
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from llm_serving_exporter.web.clients import Client, Doing
from llm_serving_exporter.web.connection import Answer
from llm_serving_exporter.web.conversations import Conversations
from llm_serving_exporter.web.framing import Raw
from llm_serving_exporter.web.guests import Guests
from llm_serving_exporter.web.limits import Limits
from llm_serving_exporter.web.refusals import Refusals
from tests.support.waiting import PATIENCE_SECONDS

LIMITS = Limits()
REQUEST = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
SMALL = Answer(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, closes=False)


@dataclass
class Talk:
    """A connection, by hand: what the loop does with it, and its other end."""

    conversations: Conversations
    client: Client
    other: socket.socket
    asked: list[Raw] = field(default_factory=list)

    def send(self, data: bytes) -> None:
        self.other.sendall(data)
        self.conversations.go_on(self.client)

    def answer(self, answer: Answer = SMALL, *, earns: bool = True) -> None:
        self.conversations.begin_answer(self.client, answer, earns=earns)


@pytest.fixture
def talk() -> Iterator[Talk]:
    ours, other = socket.socketpair()
    ours.setblocking(False)
    other.settimeout(PATIENCE_SECONDS)
    asked: list[Raw] = []

    def submit(_client: Client, raw: Raw) -> bool:
        asked.append(raw)
        return True

    with selectors.DefaultSelector() as selector:
        guests = Guests(LIMITS, selector, time.monotonic)
        refusals = Refusals(logging.getLogger("test"))
        client = Client(ours, "192.0.2.1", Doing.WAITING, 0.0, LIMITS)
        guests.add(client, serves=True)
        guests.put_to(client, Doing.WAITING, LIMITS.idle_seconds)
        yield Talk(Conversations(guests, LIMITS, None, submit, refusals, lambda: False), client, other, asked)
        guests.close(client)
        other.close()


def test_an_answer_that_was_asked_for_and_taken_earns(talk: Talk) -> None:
    talk.send(REQUEST)
    assert not talk.client.has_earned
    talk.answer()
    assert talk.client.has_earned
    talk.send(REQUEST)
    talk.answer(earns=False)  # a page that is not there, say: what was earned stays
    assert talk.client.has_earned


def test_a_refusal_earns_nothing(talk: Talk) -> None:
    talk.send(REQUEST)
    talk.answer(earns=False)
    assert not talk.client.has_earned


def test_an_answer_earns_when_the_last_of_it_is_taken(talk: Talk) -> None:
    body = b"x" * 8_000_000
    talk.send(REQUEST)
    talk.answer(Answer(SMALL.data + body, 200, closes=False))
    assert talk.client.doing is Doing.WRITING
    assert not talk.client.has_earned
    taken = 0
    while taken < len(SMALL.data) + len(body):
        taken += len(talk.other.recv(1_000_000))
        if talk.client.doing is Doing.WRITING:
            talk.conversations.go_on(talk.client)
    assert talk.client.has_earned


def test_who_asks_again_before_the_answer_earns_nothing_and_loses_what_was_earned(talk: Talk) -> None:
    talk.send(REQUEST)
    talk.answer()
    assert talk.client.has_earned
    talk.send(REQUEST * 2)
    talk.answer()
    assert len(talk.asked) == 3
    assert (talk.client.has_earned, talk.client.hurries) == (False, True)
    talk.answer()
    talk.send(REQUEST)
    talk.answer()
    assert not talk.client.has_earned


def test_only_where_nobody_else_can_somebody_whose_request_waits_for_a_thread_makes_room() -> None:
    now, ends, clients = [0.0], [], {}
    with selectors.DefaultSelector() as selector:
        guests = Guests(LIMITS, selector, lambda: now[0])
        for name in ("at work", "waits longest", "waits", "mute", "refused"):
            ours, other = socket.socketpair()
            ends += [ours, other]
            now[0] += 1.0
            clients[name] = Client(ours, "192.0.2.1", Doing.WAITING, now[0], LIMITS)
            guests.add(clients[name], serves=name != "refused")
            guests.put_to(clients[name], Doing.WAITING if name in ("mute", "refused") else Doing.WORKING, 9.0)
            clients[name].waits_for_thread = name.startswith("waits")
        assert guests.choose_leaving() == [clients["mute"]]
        guests.close(clients["mute"])
        assert guests.choose_leaving() == [clients["waits longest"]]
        guests.close(clients["waits longest"])
        guests.close(clients["waits"])
        # to end who is only told that there is no room makes none
        assert guests.choose_leaving() == []
        for client in guests:
            guests.close(client)
    for end in ends:
        end.close()
