"""Crowds of strangers: whoever asks for a page and takes it is answered beside them; whose place, whose thread."""

import contextlib
import logging
import socket
import threading
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pytest

from llm_serving_exporter.model.record import replace
from llm_serving_exporter.web.connections import Client, Connections, Doing
from llm_serving_exporter.web.crowd import TOLD_EVERY_SECONDS, Limits, Reason, Refusals, choose_leaving, name_peer
from llm_serving_exporter.web.exchange import Answer, Incoming, Response
from llm_serving_exporter.web.server import WebServer
from llm_serving_exporter.web.workers import PasswordLane, Waiting, Workers
from tests.support.rows import check_rows
from tests.support.servers.webclient import HASH, ask, client, connect, write
from tests.support.waiting import PATIENCE_SECONDS, wait_until

# --- Crowds of strangers: whoever asks for a page and takes it is answered beside them


CROWD = 40
PASSWORD = "correct horse"
LIMITS = Limits(
    connections=16,
    refusals=2,
    idle_seconds=PATIENCE_SECONDS,
    head_seconds=PATIENCE_SECONDS,
    write_seconds=PATIENCE_SECONDS,
)


@contextmanager
def crowd(server: WebServer, data: bytes, *, own_address: bool) -> Iterator[list[socket.socket]]:
    """Connections that send this and no more."""
    parts = urlsplit(server.url)
    made = []
    try:
        for number in range(CROWD):
            source = socket.socket()
            source.settimeout(PATIENCE_SECONDS)
            made.append(source)
            source.bind(("127.0.0.1" if own_address else f"127.0.0.{2 + number % 20}", 0))
            with contextlib.suppress(ConnectionError):
                source.connect((parts.hostname, parts.port))
                source.sendall(data)
        yield made
    finally:
        for source in made:
            source.close()


@pytest.mark.parametrize("own_address", [False, True], ids=["others", "own address"])
@pytest.mark.parametrize(
    "data", [b"", b"GET / HT", b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n"], ids=["mute", "slow", "do not read"]
)
def test_a_scrape_is_answered_beside_a_crowd(make_server, data: bytes, own_address: bool) -> None:
    big = Response(200, "text/plain", b"x" * 8_000_000)
    routes = {"/big": {"GET": lambda _request: big}, "/": {"GET": lambda _request: Response(200, "text/plain", b"ok")}}
    server = make_server(routes=routes, limits=LIMITS)
    kept = client(server)
    try:
        with crowd(server, data, own_address=own_address):
            for _ in range(3):
                assert ask(server, "/")[1] == b"ok"
                kept.request("GET", "/")
                assert kept.getresponse().read() == b"ok"
    finally:
        kept.close()


def test_a_page_larger_than_all_that_may_be_unread_is_read_whole(make_server) -> None:
    big = Response(200, "text/plain", b"x" * 8_000_000)
    routes = {"/big": {"GET": lambda _request: big}}
    server = make_server(routes=routes, limits=replace(LIMITS, unread_bytes=1_000_000))
    for _ in range(2):
        assert ask(server, "/big")[1] == big.body
    with crowd(server, b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n", own_address=False):
        wait_until(lambda: sum(server.refusals.counts().values()) == CROWD - 1, "all but the last to be cut")
        assert ask(server, "/big")[1] == big.body
    assert server.refusals.counts()["unread"] > 0


def test_a_kept_connection_that_was_answered_stays_while_strangers_make_room(make_server) -> None:
    server = make_server(limits=LIMITS)
    kept = client(server)
    try:
        kept.request("GET", "/")
        kept.getresponse().read()
        port = kept.sock.getsockname()[1]
        with crowd(server, b"GET", own_address=False):
            time.sleep(1.1)  # those who have just come are given a moment
            with crowd(server, b"GET", own_address=False):
                kept.request("GET", "/")
                assert kept.getresponse().status == 200
                assert kept.sock.getsockname()[1] == port
        assert server.refusals.counts()["made_room"] > 0
    finally:
        kept.close()


@pytest.mark.parametrize("own_address", [False, True], ids=["others", "own address"])
def test_who_knows_the_password_does_not_wait_for_those_who_guess(
    make_server, tmp_path, monkeypatch, own_address
) -> None:
    checked, release = threading.Semaphore(0), threading.Event()

    def slow(password: bytes, expected: str) -> bool:
        checked.release()
        if password != PASSWORD.encode():
            release.wait(PATIENCE_SECONDS)
        return password == PASSWORD.encode()

    monkeypatch.setattr("llm_serving_exporter.web.guard._matches", slow)
    server = make_server(config_file=write(tmp_path, f"basic_auth_users: {{alice: {HASH}}}"), limits=LIMITS)

    def basic(word: str) -> str:
        return f"Basic {b64encode(f'alice:{word}'.encode()).decode()}"

    assert ask(server, "/", Authorization=basic(PASSWORD))[0].status == 200
    with crowd(server, b"", own_address=own_address) as guessers:
        for number, source in enumerate(guessers):
            with contextlib.suppress(OSError):
                source.sendall(
                    f"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: {basic(f'guess {number}')}\r\n\r\n".encode()
                )
        assert checked.acquire(timeout=PATIENCE_SECONDS)
        for _ in range(3):
            assert ask(server, "/", Authorization=basic(PASSWORD))[0].status == 200
        release.set()
    assert ask(server, "/", Authorization=basic("guess 0"))[0].status == 401
    assert server.refusals.counts()["denied"] > 0


def test_of_too_many_who_wait_for_a_check_one_of_the_crowd_is_refused() -> None:
    log = logging.getLogger("test")
    workers, blocked, begun = Workers(1, 100, "web-test", log), threading.Event(), threading.Event()
    lane, done, lock = PasswordLane(workers, 4), [], threading.Lock()

    def note(what: str) -> None:
        with lock:
            done.append(what)

    def hold() -> None:
        begun.set()
        blocked.wait(PATIENCE_SECONDS)

    lane.submit("first", Waiting(hold, lambda: note("never")))
    assert begun.wait(PATIENCE_SECONDS)
    for number in range(8):
        lane.submit("crowd", Waiting(lambda number=number: note(f"crowd {number}"), lambda: note("refused")))
    lane.submit("alone", Waiting(lambda: note("alone"), lambda: note("alone refused")))
    assert done == ["refused"] * 5
    blocked.set()
    wait_until(lambda: len(done) == 9, "all of them")
    # after one of the crowd at most
    assert "alone" in done[5:7]
    for thread in workers.stop():
        thread.join(PATIENCE_SECONDS)


def test_refusals_are_counted_and_told_once_a_minute(caplog) -> None:
    now = [0.0]
    caplog.set_level(logging.WARNING)
    refusals = Refusals(logging.getLogger("test"), lambda: now[0])
    for number in range(1000):
        refusals.add(Reason.SLOW, f"192.0.2.{number % 3}")
    assert len(caplog.records) == 1
    now[0] += TOLD_EVERY_SECONDS
    refusals.add(Reason.CROWDED, "192.0.2.0")
    assert len(caplog.records) == 2
    assert "999 slow, 1 crowded" in caplog.text
    assert refusals.counts() == {**dict.fromkeys((reason.value for reason in Reason), 0), "slow": 1000, "crowded": 1}


@check_rows(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/", {}, 200),
        ("POST", "/-/reload", {}, 200),
        # somebody opens the page
        ("GET", "/", {"Sec_Fetch_Site": "none", "Sec_Fetch_Dest": "document"}, 200),
        ("GET", "/", {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Dest": "document", "Sec_Fetch_Mode": "navigate"}, 200),
        # a form of another site, a script of one, and a script of a site whose name points here
        ("POST", "/-/reload", {"Origin": "https://elsewhere.example", "Sec_Fetch_Site": "cross-site"}, 403),
        ("POST", "/-/reload", {"Origin": "null"}, 403),
        ("PUT", "/-/reload", {"Sec_Fetch_Site": "same-origin", "Sec_Fetch_Dest": "empty"}, 403),
        ("GET", "/", {"Sec_Fetch_Site": "same-origin", "Sec_Fetch_Dest": "empty"}, 403),
        ("GET", "/", {"Origin": "https://elsewhere.example"}, 403),
    ],
    shared=["make_server"],
)
def test_scripts_and_forms_of_other_sites_get_nothing(make_server, method, path, headers, status) -> None:
    server = make_server()
    assert ask(server, path, method, **headers)[0].status == status
    assert server.refusals.counts()["browser"] == (status == 403)


def test_threads_that_answer_are_gone_a_moment_after(make_server) -> None:
    server = make_server()
    with connect(server):
        ask(server, "/")
        wait_until(lambda: not [one for one in threading.enumerate() if one.name == "web-connection"], "no thread left")


# --- Whose connection it is, and who makes room


NOW = 100.0


@dataclass(eq=False)
class Guest:
    name: str
    peer: str
    since: float = 0.0
    has_earned: bool = False


def leaving(*guests: Guest, wanted: int = 1, reserve: int = 100) -> list[str]:
    counts = Counter(guest.peer for guest in guests)
    return [guest.name for guest in choose_leaving(guests, counts, wanted, reserve)]


@check_rows(
    ("address", "peer"),
    [
        (("192.0.2.7", 5), "192.0.2.7"),
        (("::ffff:192.0.2.7", 5, 0, 0), "192.0.2.7"),
        (("2001:db8:1:2:3:4:5:6", 5, 0, 0), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 5, 0, 2), "fe80::/64"),
        ("", ""),
        (("/run/x",), ""),
    ],
)
def test_a_peer_is_an_address_or_the_network_of_one_host(address: object, peer: str) -> None:
    assert name_peer(address) == peer


def test_of_the_peer_with_the_most_the_slowest_goes_first() -> None:
    crowd = [Guest(f"c{number}", "crowd", since=float(number)) for number in range(5)]
    alone = Guest("alone", "scraper", since=-50.0)
    assert leaving(alone, *crowd) == ["c0"]
    assert leaving(alone, *crowd, wanted=4) == ["c0", "c1", "c2", "c3"]
    # one of each is left: the slower one goes
    assert set(leaving(alone, *crowd, wanted=5)[:4]) == {"c0", "c1", "c2", "c3"}


def test_the_oldest_goes_first_and_who_was_answered_last() -> None:
    guests = (
        Guest("earned", "p", since=1.0, has_earned=True),
        Guest("newer", "p", since=NOW - 0.4),
        Guest("slow", "p", since=50.0),
        Guest("new", "p", since=NOW - 0.5),
    )
    assert leaving(*guests, wanted=4) == ["slow", "new", "newer", "earned"]


def test_who_was_answered_stays_whoever_has_the_most_and_only_so_many_of_them() -> None:
    asked_once = [Guest(f"a{number}", "crowd", since=float(number), has_earned=True) for number in range(4)]
    alone = Guest("alone", "scraper", since=NOW - 0.1)
    # two are kept; the others leave like anybody else, and a newcomer after them
    assert leaving(*asked_once, alone, wanted=4, reserve=2) == ["a0", "a1", "alone", "a2"]


def test_nobody_leaves_where_nobody_can() -> None:
    assert leaving() == []
    assert leaving(Guest("a", "p"), wanted=9) == ["a"]


# --- What earns a place and a thread of one's own: an answer that was asked for, and taken


USUAL_LIMITS = Limits()
REQUEST = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
SMALL = Answer(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, closes=False)


@dataclass
class Talk:
    """The server's side of connections, whose answers are made by hand."""

    limits: Limits = USUAL_LIMITS
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
    talk = Talk(replace(USUAL_LIMITS, connections=len(names), refusals=1))
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


# --- Threads that make answers: who waits for whom


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
