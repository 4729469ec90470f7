"""Good answers and the connection between them: addresses, heads, names."""

from __future__ import annotations

import http.client
import socket
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.errors import ConfigError
from llm_serving_exporter.fetch import connect as lookup
from llm_serving_exporter.fetch.address import encode_request_target, parse_base_url
from llm_serving_exporter.fetch.answer import Head, IncompleteHeadError, _read_any_head, read_head, read_usual_head
from llm_serving_exporter.fetch.connect import KEPT_SECONDS, MOST_THREADS, SLOW_SECONDS, Found, Resolver
from llm_serving_exporter.fetch.http import JsonAnswer
from llm_serving_exporter.fetch.waits import drive
from llm_serving_exporter.model.sample import FailureReason, Refusal
from tests.support.rows import check_rows
from tests.support.servers import faultbehaviours as fault
from tests.support.servers.faultserver import FaultServer
from tests.support.waiting import PATIENCE_SECONDS, wait_until

BODY = b'vllm:num_requests_running{model_name="m"} 3.0\n' * 1200


@check_rows("framing", ["length", "chunked", "close"], shared=["once"])
@check_rows("compress", [False, True])
def test_page_arrives_whole_in_every_framing(once, framing, compress):
    got = once.page(fault.page(BODY, framing=framing, compress=compress))
    assert (got.body, got.content_type, got.status) == (BODY, fault.TEXT, 200)


def test_request_asks_for_the_text_format_only(make_client):
    with FaultServer(fault.page(BODY)) as server:
        make_client(server.url).page("/metrics?name[]=up")
        (request,) = server.requests
    assert (request.method, request.target) == ("GET", "/metrics?name[]=up")
    headers = dict(request.headers)
    assert headers.pop("user-agent").startswith("llm-serving-exporter/")
    assert headers == {"host": server.authority, "accept": "text/plain;version=0.0.4", "accept-encoding": "gzip"}


def test_times_come_from_the_injected_clocks(once):
    ticks = iter([100.0, *[101.0] * 50])
    got = once.page(fault.page(BODY), clocks={"monotonic": lambda: next(ticks), "wall": lambda: 1.7e9})
    assert (got.received_unix_seconds, got.received_monotonic_seconds) == (1.7e9, 101.0)


def test_connection_is_kept_alive(client_of):
    with client_of(fault.page(BODY)) as (server, client):
        for _ in range(5):
            client.page()
        assert len(server.requests) == 5
        assert server.connections == 1


@pytest.mark.parametrize(
    "behaviour", [fault.page(BODY, keep=False), fault.page(BODY, framing="close")], ids=["close", "http-1.0"]
)
def test_announced_close_is_honoured(client_of, behaviour):
    with client_of(behaviour) as (server, client):
        client.page()
        server.wait_until_idle()
        client.page()
        assert server.connections == 2


def test_announced_close_is_honoured_before_the_server_gets_to_it(client_of):
    lingering = fault.raw(fault.head(200, fault.TEXT, "Content-Length: 5", "Connection: close") + b"up 1\n", keep=True)
    with client_of(lingering) as (server, client):
        client.page()
        client.page()
        assert server.connections == 2


def test_connection_closed_while_idle_is_opened_again(client_of):
    with client_of(fault.closes_idle(BODY)) as (server, client):
        for expected in (1, 2, 3):
            client.page()
            server.wait_until_idle()  # the close has reached the client
            assert server.connections == expected


@pytest.mark.parametrize("reset", [False, True])
def test_kept_connection_that_dies_before_the_first_byte_is_opened_again_once(client_of, reset):
    with client_of({"/metrics": fault.first_only(fault.page(BODY), then=fault.hang_up(reset=reset))}) as (
        server,
        client,
    ):
        client.page()
        client.page()
        assert server.connections == 2
        assert len(server.requests) == 3
        server.behave("/metrics", fault.hang_up(reset=reset))
        assert client.refusal().reason is FailureReason.CLOSED
        # the last one is of a hello: does it speak TLS?
        assert server.connections == 4
        assert len(server.requests) == 5


@pytest.mark.parametrize(
    "then", [fault.truncated(BODY, 10), fault.raw(fault.head(200, fault.TEXT)[:-4])], ids=["body", "headers"]
)
def test_kept_connection_that_dies_after_the_first_byte_is_not_asked_again(client_of, then):
    with client_of(fault.first_only(fault.page(BODY), then=then)) as (server, client):
        client.page()
        assert client.refusal().reason is FailureReason.CLOSED
        assert len(server.requests) == 2


def test_kept_connection_that_stays_silent_is_not_opened_again(client_of):
    with client_of({"/metrics": fault.page(BODY)}, timeout_seconds=0.3) as (server, client):
        client.page()
        server.behave("/metrics", fault.silent())
        refused = client.refusal()
        assert refused.reason is FailureReason.TIMEOUT
        assert "sent no answer within 0.3 s" in refused.detail
        assert server.connections == 1


def test_fresh_connection_that_dies_is_not_opened_again(once):
    assert once.refusal(fault.hang_up()).reason is FailureReason.CLOSED
    # one more for the question whether it speaks TLS
    assert once.connections == 2


def test_second_attempt_shares_the_deadline(client_of):
    late = [0.0]

    def hang_up_late(exchange):
        late[0] = 1000.0  # the client's clock, when it sees the connection end
        return False

    with client_of(
        fault.first_only(fault.page(BODY), then=hang_up_late), clocks={"monotonic": lambda: time.monotonic() + late[0]}
    ) as (server, client):
        client.page()
        assert client.refusal().reason is FailureReason.TIMEOUT
        assert server.connections == 1


def test_answer_nobody_asked_for_is_not_taken_for_the_next_one(client_of):
    one = fault.head(200, fault.TEXT, "Content-Length: 6") + b"old 1\n"
    # Beyond the client's read buffer, so that the second answer is still in the socket.
    two = fault.head(200, fault.TEXT, f"Content-Length: {200_000}") + b"x" * 200_000
    with client_of({"/metrics": fault.raw(one + two, keep=True)}) as (server, client):
        assert client.page().body == b"old 1\n"
        server.behave("/metrics", fault.page(b"new 1\n"))
        assert client.page().body == b"new 1\n"


def test_any_failure_closes_the_connection(client_of):
    with client_of({"/metrics": fault.page(BODY), "/gone": fault.status(500, b"oops")}) as (server, client):
        client.page()
        client.refusal("/gone")
        server.wait_until_idle()
        client.page()
        assert server.connections == 2


def test_close_may_be_called_twice_and_the_client_used_again(client_of):
    with client_of(fault.page(BODY)) as (_server, client):
        client.close()
        client.page()
        client.close()
        client.close()
        client.page()


@check_rows("code", [301, 302, 303, 307, 308], shared=["client_of"])
def test_redirect_within_the_server_is_followed_on_the_same_connection(client_of, code):
    routes = {"/metrics": fault.redirect("/metrics/?a=1", code, b"moved"), "/metrics/": fault.page(BODY)}
    with client_of(routes, headers=(("X-Key", "secret"),)) as (server, client):
        client.page()
        assert [request.target for request in server.requests] == ["/metrics", "/metrics/?a=1"]
        assert all(request.headers["x-key"] == "secret" for request in server.requests)
        assert server.connections == 1


@pytest.mark.parametrize(("framing", "connections"), [("Content-Length: 5", 1), ("Transfer-Encoding: chunked", 2)])
def test_late_body_of_a_redirect_is_not_taken_for_the_next_answer(make_client, framing, connections):
    def late(exchange):
        exchange.send(fault.head(307, fault.TEXT, "Location: /there", framing))
        exchange.wait(0.1)
        exchange.send(b"moved")
        return True

    with FaultServer({"/here": late, "/there": fault.page(BODY)}) as server:
        make_client(server.url).page("/here")
        assert server.connections == connections


@check_rows("location", ["{url}/there", "//{authority}/there", "there", "./there"], shared=["make_client"])
def test_redirect_may_be_absolute_or_relative(make_client, location):
    with FaultServer({"/there": fault.page(BODY)}) as server:
        server.behave("/here", fault.redirect(location.format(url=server.url, authority=server.authority)))
        make_client(server.url).page("/here")


def test_three_redirects_are_followed_and_no_more(client_of):
    hops = {f"/{n}": fault.redirect(f"/{n + 1}") for n in range(4)}
    with client_of({**hops, "/4": fault.page(BODY)}) as (_server, client):
        client.page("/1")
        refused = client.refusal("/0")
        assert (refused.reason, refused.status) == (FailureReason.REDIRECT, 302)
        assert "redirects more than 3 times" in refused.detail


@check_rows(
    "location",
    [
        "http://example.invalid/metrics", "http://localhost:{port}/metrics", "https://127.0.0.1:{port}/metrics",
        "http://127.0.0.1/metrics", "//example.invalid/", "ftp://127.0.0.1:{port}/", "http://127.0.0.1:99999/",
        "http://[", "file:///etc/passwd", None, "",
    ],
    shared=["make_client"],
)  # fmt: skip
def test_redirect_elsewhere_is_refused(make_client, location):
    with FaultServer(fault.status(200)) as server:
        server.behave("/metrics", fault.redirect(None if location is None else location.format(port=server.port)))
        refused = make_client(server.url).refusal()
        assert (refused.reason, refused.status) == (FailureReason.REDIRECT, 302)
        assert len(server.requests) == 1


def test_ipv6_host_header_has_brackets(make_client):
    try:
        server = FaultServer(fault.page(BODY), address_family=socket.AF_INET6)
        server.__enter__()
    except OSError as error:
        pytest.skip(f"this machine has no IPv6 loopback: {error}")
    try:
        make_client(server.url).page()
        assert server.requests[0].headers["host"] == f"[::1]:{server.port}"
    finally:
        server.__exit__()


def test_second_address_is_tried_when_the_first_refuses(make_client, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as unused:
        closed_port = unused.getsockname()[1]
    with FaultServer(fault.page(BODY)) as server:
        # The resolver's answer is the outside here: a name with a dead address and a live one.
        addresses = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in (closed_port, server.port)
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: addresses)
        make_client("http://engine:8000").page()
        assert server.requests[0].headers["host"] == "engine:8000"


def test_proxy_variables_are_ignored(once, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    once.page(fault.page(BODY))


def test_json_answer(client_of):
    with client_of({"/version": fault.page(b'{"version": "0.32.0"}', "application/json")}) as (server, client):
        assert client.get_json("/version") == JsonAnswer({"version": "0.32.0"}, 200)
        assert server.requests[0].headers["accept"] == "application/json"


@pytest.mark.parametrize("content_type", [None, "application/json; charset=utf-8", "application/problem+json"])
def test_json_under_its_other_content_types(make_client, content_type):
    with FaultServer(fault.page(b"[1]", content_type)) as server:
        assert make_client(server.url).get_json("/version") == JsonAnswer([1], 200)


@check_rows(
    ("behaviour", "reason"),
    [
        (fault.page(b'{"version": ', "application/json"), FailureReason.MALFORMED),
        (fault.page(b"\xff\xfe\xff", "application/json"), FailureReason.MALFORMED),
        (fault.page(b"[" * 200_000, "application/json"), FailureReason.MALFORMED),
        (fault.page(b"9" * 100_000, "application/json"), FailureReason.MALFORMED),
        (fault.page(b"<html>", "text/html"), FailureReason.CONTENT_TYPE),
        (fault.page(b" \n", "application/json"), FailureReason.EMPTY),
        (fault.page(b'"' + b"x" * (1 << 20) + b'"', "application/json"), FailureReason.TOO_LARGE),
        (fault.status(404), FailureReason.STATUS),
        (fault.status(401), FailureReason.UNAUTHORIZED),
        (fault.hang_up(), FailureReason.CLOSED),
    ],
    shared=["make_client"],
)
def test_json_refusals(make_client, behaviour, reason):
    with FaultServer(behaviour) as server:
        refused = make_client(server.url).get_json("/version")
    assert isinstance(refused, Refusal)
    assert refused.reason is reason


# --- base URLs: what is taken, what is refused, what is sent as Host ---


@check_rows(
    ("url", "host", "port", "header", "authority"),
    [
        ("http://engine:8000", "engine", 8000, "engine:8000", "engine:8000"),
        ("http://engine", "engine", 80, "engine", "engine:80"),
        ("https://Engine/", "engine", 443, "engine", "engine:443"),
        ("https://engine:80", "engine", 80, "engine:80", "engine:80"),
        ("http://[::1]:8000", "::1", 8000, "[::1]:8000", "[::1]:8000"),
        ("http://[::1]", "::1", 80, "[::1]", "[::1]:80"),
        ("http://[fe80::1%25eth0]:8000", "fe80::1%eth0", 8000, "[fe80::1]:8000", "[fe80::1%eth0]:8000"),
        ("http://bücher.example:8000", "bücher.example", 8000, "xn--bcher-kva.example:8000", "bücher.example:8000"),
    ],
)
def test_base_url_is_taken_apart(url, host, port, header, authority):
    address = parse_base_url(url)
    assert (address.host, address.port, address.host_header, address.authority) == (host, port, header, authority)


@check_rows(
    "url",
    [
        "", "engine:8000", "ftp://engine", "unix:///run/engine.sock", "http://", "http://:8000", "http://engine:port",
        "http://engine:99999", "http://[::1", "http://en gine:8000", "http://engine\x00:8000",
        "http://engine:8000/metrics", "http://engine:8000?x=1", "http://" + "ü" * 64 + ".example",
    ],
)  # fmt: skip
def test_other_urls_are_a_config_error(url):
    with pytest.raises(ConfigError):
        parse_base_url(url)


def test_a_name_that_cannot_be_asked_for_is_refused_in_words_of_ours():
    """The library's differ from Python to Python."""
    for host in ("ü" * 64 + ".example", "xn--é", "\u0627a"):
        with pytest.raises(ConfigError, match="its host is no name that can be asked for"):
            parse_base_url(f"http://{host}")


def test_password_in_the_url_is_refused_and_not_repeated():
    with pytest.raises(ConfigError) as caught:
        parse_base_url("http://sre:hunter22@engine:8000")
    assert "hunter22" not in str(caught.value)
    assert "basic_username" in str(caught.value)


@check_rows(
    ("path", "target"),
    [
        ("/metrics", "/metrics"),
        ("metrics", "/metrics"),
        ("/a%20b?name[]=x&y=%C3%BC", "/a%20b?name[]=x&y=%C3%BC"),
        ("/a b\r\n", "/a%20b%0D%0A"),
    ],
)
def test_request_targets_are_printable_ascii(path, target):
    assert encode_request_target(path) == target


# --- the usual head by one pattern, against http.client ---


UVICORN = (
    b"HTTP/1.1 200 OK\r\ndate: Mon, 23 Nov 2026 10:00:00 GMT\r\nserver: uvicorn\r\ncontent-length: 3\r\n"
    b"content-type: text/plain; version=0.0.4; charset=utf-8\r\n\r\nabc"
)
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: Chunked\r\nConnection: Keep-Alive, close\r\n\r\n3\r\nabc"


@pytest.mark.parametrize("answer", [UVICORN, CHUNKED])
def test_a_usual_head_is_read_without_http_client(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = _read_any_head(answer, at_end=False)
    monkeypatch.setattr(http.client, "HTTPResponse", None)
    assert read_head(answer, at_end=False) == theirs


@check_rows(
    "answer",
    [
        UVICORN.replace(b"200", b"503"),
        UVICORN.replace(b"HTTP/1.1", b"HTTP/1.0"),
        UVICORN.replace(b"content-length: 3\r\n", b""),  # until the connection ends
        UVICORN.replace(b"content-length: 3", b"content-length: 3\r\ncontent-length: 4"),
        UVICORN.replace(b"content-length: 3", b"content-length: -3"),
        UVICORN.replace(b"content-length: 3", b"content-length: " + "\N{ARABIC-INDIC DIGIT THREE}".encode()),
        UVICORN.replace(b"content-length: 3", b"content-length: 3\r\ntransfer-encoding: chunked"),
        UVICORN.replace(b"content-length: 3", b"transfer-encoding: gzip, chunked"),
        UVICORN.replace(b"server: uvicorn", b"server: a\r\n b"),  # folded
        UVICORN.replace(b"\r\n", b"\n"),
    ],
)
def test_an_unusual_one_is_left_to_http_client(answer: bytes) -> None:
    assert read_usual_head(answer) is None


@check_rows("end", range(1, len(UVICORN) - 3))
def test_one_that_is_cut_waits_for_the_rest(end: int) -> None:
    with pytest.raises(IncompleteHeadError):
        read_head(UVICORN[:end], at_end=False)


NAMES = st.sampled_from(
    [
        "Content-Length", "content-length", "Transfer-Encoding", "Connection", "Content-Type", "X-a", "x y", "", "é",
        "Content-Length ",
    ]
)  # fmt: skip
VALUES = st.one_of(
    st.sampled_from(
        [
            "3", "03", "+3", "3 ", "\t3", "1e3", "9" * 20, "chunked", "CHUNKED", "chunked, chunked", "close",
            "keep-alive", "text/plain",
        ]
    ),
    st.text(st.characters(max_codepoint=255), max_size=6),
)  # fmt: skip
ENDS = st.sampled_from([b"\r\n"] * 8 + [b"\n", b"\r", b"\r\r\n"])


@given(
    st.sampled_from(
        [
            b"HTTP/1.1 200 OK", b"HTTP/1.1 200", b"HTTP/1.1 200 ", b"HTTP/1.1  200 OK", b"http/1.1 200 OK",
            b"HTTP/1.1 2000 OK",
        ]
    ),
    st.lists(st.tuples(NAMES, VALUES, ENDS), max_size=5),
    st.sampled_from([b"", b"abc", b"\r\n"]),
)  # fmt: skip
def test_where_both_read_a_head_they_say_the_same(
    status: bytes, lines: list[tuple[str, str, bytes]], body: bytes
) -> None:
    block = b"".join(f"{name}: {value}".encode("latin-1") + end for name, value, end in lines)
    answer = status + b"\r\n" + block + b"\r\n" + body
    ours = read_usual_head(answer)
    if ours is None:
        return
    theirs = _read_any_head(answer, at_end=False)
    assert isinstance(ours[0], Head)
    assert ours == theirs


# --- names: one question at a time for each, threads that are bounded ---


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
