"""What earns a place and a thread of one's own: an answer that was asked for, and taken."""

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from llm_serving_exporter.model.record import replace
from llm_serving_exporter.web.connections import Client, Connections, Doing
from llm_serving_exporter.web.crowd import Limits, Refusals
from llm_serving_exporter.web.exchange import Answer, Incoming
from tests.support.waiting import PATIENCE_SECONDS, wait_until

LIMITS = Limits()
REQUEST = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
SMALL = Answer(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, closes=False)


@dataclass
class Talk:
    """The server's side of connections, whose answers are made by hand."""

    limits: Limits = LIMITS
    clients: list[Client] = field(default_factory=list)
    others: list[socket.socket] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        log = logging.getLogger("test")
        self.connections = Connections([self.listener], self.limits, None, self.submit, Refusals(log), log)

    def submit(self, client: Client, _asked: Incoming) -> bool:
        self.clients.append(client)
        return True

    def connect(self) -> socket.socket:
        self.others.append(socket.create_connection(self.listener.getsockname(), PATIENCE_SECONDS))
        return self.others[-1]

    def send(self, data: bytes, *, asked: int) -> Client:
        """Whose request it is, once so many were asked in all."""
        self.others[-1].sendall(data)
        wait_until(lambda: len(self.clients) == asked, "the request")
        return self.clients[-1]

    def answer(self, answer: Answer = SMALL, *, earns: bool = True) -> None:
        self.connections.complete(self.clients[-1], answer, earned=earns)
        assert self.others[-1].recv(len(SMALL.data), socket.MSG_WAITALL) == SMALL.data


@pytest.fixture
def talk() -> Iterator[Talk]:
    made = Talk()
    thread = threading.Thread(target=made.connections.run)
    thread.start()
    made.connect()
    yield made
    made.connections.cut()
    thread.join(PATIENCE_SECONDS)
    for end in (made.listener, *made.others):
        end.close()


def waits(client: Client) -> bool:
    """Whether its answer is out, and it is where the next request begins."""
    return client.doing is Doing.WAITING


def test_an_answer_that_was_asked_for_and_taken_earns(talk: Talk) -> None:
    client = talk.send(REQUEST, asked=1)
    assert not client.has_earned
    talk.answer()
    wait_until(lambda: waits(client), "the next request")
    assert client.has_earned
    talk.send(REQUEST, asked=2)
    talk.answer(earns=False)  # a page that is not there, say: what was earned stays
    wait_until(lambda: waits(client), "the next request")
    assert client.has_earned


def test_a_refusal_earns_nothing(talk: Talk) -> None:
    client = talk.send(REQUEST, asked=1)
    talk.answer(earns=False)
    wait_until(lambda: waits(client), "the next request")
    assert not client.has_earned


def test_an_answer_earns_when_the_last_of_it_is_taken(talk: Talk) -> None:
    body = b"x" * 8_000_000
    client = talk.send(REQUEST, asked=1)
    talk.answer(Answer(SMALL.data + body, 200, closes=False))
    assert client.doing is Doing.WRITING
    assert not client.has_earned
    taken = 0
    while taken < len(body):
        taken += len(talk.others[-1].recv(1_000_000))
    wait_until(lambda: waits(client), "the last of it to be counted as taken")
    assert client.has_earned


def test_who_asks_again_before_the_answer_earns_nothing_and_loses_what_was_earned(talk: Talk) -> None:
    client = talk.send(REQUEST, asked=1)
    talk.answer()
    wait_until(lambda: waits(client), "the next request")
    assert client.has_earned
    talk.send(REQUEST * 2, asked=2)
    talk.answer()
    wait_until(lambda: len(talk.clients) == 3, "the request that was there already")
    assert (client.has_earned, client.hurries) == (False, True)
    talk.answer()
    talk.send(REQUEST, asked=4)
    talk.answer()
    wait_until(lambda: waits(client), "the next request")
    assert not client.has_earned


def test_only_where_nobody_else_can_somebody_whose_request_waits_for_a_thread_makes_room() -> None:
    names = ("at work", "waits longest", "waits", "mute")
    talk = Talk(replace(LIMITS, connections=len(names), refusals=1))
    talk.listener.setblocking(True)
    with ExitStack() as ends:
        for end in (talk.listener, talk.connections):
            ends.callback(end.close)
        for _ in (*names, "refused"):
            ends.enter_context(talk.connect()).sendall(REQUEST)
            source, _address = talk.listener.accept()
            talk.connections.admit(ends.enter_context(source), "192.0.2.1")
        clients = dict(zip(names, talk.clients, strict=True))
        clients["mute"].put_to(Doing.WAITING, 9.0)
        for name, client in clients.items():
            client.waits_for_thread = name.startswith("waits")
        assert talk.connections.choose_leaving() == [clients["mute"]]
        clients["mute"].close()
        assert talk.connections.choose_leaving() == [clients["waits longest"]]
        clients["waits longest"].close()
        clients["waits"].close()
        # to end who is only told that there is no room makes none
        assert talk.connections.choose_leaving() == []
        assert b" 503 " in talk.others[-1].recv(100)
