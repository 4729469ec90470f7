"""Good answers, and the connection between them."""

from __future__ import annotations

import socket
import time

import pytest

from llm_serving_exporter.fetch.http import JsonAnswer
from llm_serving_exporter.model.sample import FailureReason, Page, Refusal
from tests.support.rows import check_rows
from tests.support.servers.faultbehaviours import (
    TEXT,
    closes_idle,
    first_only,
    hang_up,
    head,
    page,
    raw,
    redirect,
    silent,
    status,
    truncated,
)
from tests.support.servers.faultserver import FaultServer

BODY = b'vllm:num_requests_running{model_name="m"} 3.0\n' * 1200


@check_rows("framing", ["length", "chunked", "close"], shared=["make_client"])
@check_rows("compress", [False, True])
def test_page_arrives_whole_in_every_framing(make_client, framing, compress):
    with FaultServer({"/metrics": page(BODY, framing=framing, compress=compress)}) as server:
        got = make_client(server.url).get_metrics("/metrics")
    assert isinstance(got, Page)
    assert got.body == BODY
    assert got.content_type == TEXT
    assert got.status == 200


def test_request_asks_for_the_text_format_only(make_client):
    with FaultServer(page(BODY)) as server:
        make_client(server.url).get_metrics("/metrics?name[]=up")
        (request,) = server.requests
    assert request.method == "GET"
    assert request.target == "/metrics?name[]=up"
    headers = dict(request.headers)
    assert headers.pop("user-agent").startswith("llm-serving-exporter/")
    assert headers == {"host": server.authority, "accept": "text/plain;version=0.0.4", "accept-encoding": "gzip"}


def test_times_come_from_the_injected_clocks(make_client):
    ticks = iter([100.0, *[101.0] * 50])
    last = [100.0]

    def monotonic() -> float:
        last[0] = next(ticks)
        return last[0]

    with FaultServer(page(BODY)) as server:
        got = make_client(server.url, {"monotonic": monotonic, "wall": lambda: 1.7e9}).get_metrics("/metrics")
    assert isinstance(got, Page)
    assert (got.received_unix_seconds, got.received_monotonic_seconds) == (1.7e9, 101.0)


def test_connection_is_kept_alive(make_client):
    with FaultServer(page(BODY)) as server:
        client = make_client(server.url)
        for _ in range(5):
            assert isinstance(client.get_metrics("/metrics"), Page)
        assert len(server.requests) == 5
        assert server.connections == 1


@pytest.mark.parametrize("behaviour", [page(BODY, keep=False), page(BODY, framing="close")], ids=["close", "http-1.0"])
def test_announced_close_is_honoured(make_client, behaviour):
    with FaultServer(behaviour) as server:
        client = make_client(server.url)
        assert isinstance(client.get_metrics("/metrics"), Page)
        server.wait_until_idle()
        assert isinstance(client.get_metrics("/metrics"), Page)
        assert server.connections == 2


def test_announced_close_is_honoured_before_the_server_gets_to_it(make_client):
    lingering = raw(head(200, TEXT, "Content-Length: 5", "Connection: close") + b"up 1\n", keep=True)
    with FaultServer(lingering) as server:
        client = make_client(server.url)
        assert isinstance(client.get_metrics("/metrics"), Page)
        assert isinstance(client.get_metrics("/metrics"), Page)
        assert server.connections == 2


def test_connection_closed_while_idle_is_opened_again(make_client):
    with FaultServer(closes_idle(BODY)) as server:
        client = make_client(server.url)
        for expected in (1, 2, 3):
            assert isinstance(client.get_metrics("/metrics"), Page)
            server.wait_until_idle()  # the close has reached the client
            assert server.connections == expected


@pytest.mark.parametrize("reset", [False, True])
def test_kept_connection_that_dies_before_the_first_byte_is_opened_again_once(make_client, reset):
    with FaultServer({"/metrics": first_only(page(BODY), then=hang_up(reset=reset))}) as server:
        client = make_client(server.url)
        assert isinstance(client.get_metrics("/metrics"), Page)
        assert isinstance(client.get_metrics("/metrics"), Page)
        assert server.connections == 2
        assert len(server.requests) == 3
        server.behave("/metrics", hang_up(reset=reset))
        refused = client.get_metrics("/metrics")
        assert isinstance(refused, Refusal)
        assert refused.reason is FailureReason.CLOSED
        # the last one is of a hello: does it speak TLS?
        assert server.connections == 4
        assert len(server.requests) == 5


@pytest.mark.parametrize("then", [truncated(BODY, 10), raw(head(200, TEXT)[:-4])], ids=["body", "headers"])
def test_kept_connection_that_dies_after_the_first_byte_is_not_asked_again(make_client, then):
    with FaultServer(first_only(page(BODY), then=then)) as server:
        client = make_client(server.url)
        assert isinstance(client.get_metrics("/metrics"), Page)
        refused = client.get_metrics("/metrics")
        assert isinstance(refused, Refusal)
        assert refused.reason is FailureReason.CLOSED
        assert len(server.requests) == 2


def test_kept_connection_that_stays_silent_is_not_opened_again(make_client):
    with FaultServer({"/metrics": page(BODY)}) as server:
        client = make_client(server.url, timeout_seconds=0.3)
        assert isinstance(client.get_metrics("/metrics"), Page)
        server.behave("/metrics", silent())
        refused = client.get_metrics("/metrics")
        assert isinstance(refused, Refusal)
        assert refused.reason is FailureReason.TIMEOUT
        assert "sent no answer within 0.3 s" in refused.detail
        assert server.connections == 1


def test_fresh_connection_that_dies_is_not_opened_again(make_client):
    with FaultServer(hang_up()) as server:
        refused = make_client(server.url).get_metrics("/metrics")
        assert isinstance(refused, Refusal)
        assert refused.reason is FailureReason.CLOSED
        # one more for the question whether it speaks TLS
        assert server.connections == 2


def test_second_attempt_shares_the_deadline(make_client):
    late = [0.0]

    def hang_up_late(exchange):
        late[0] = 1000.0  # the client's clock, when it sees the connection end
        return False

    with FaultServer(first_only(page(BODY), then=hang_up_late)) as server:
        client = make_client(server.url, {"monotonic": lambda: time.monotonic() + late[0]})
        assert isinstance(client.get_metrics("/metrics"), Page)
        refused = client.get_metrics("/metrics")
        assert isinstance(refused, Refusal)
        assert refused.reason is FailureReason.TIMEOUT
        assert server.connections == 1


def test_answer_nobody_asked_for_is_not_taken_for_the_next_one(make_client):
    one = head(200, TEXT, "Content-Length: 6") + b"old 1\n"
    # Beyond the client's read buffer, so that the second answer is still in the socket.
    two = head(200, TEXT, f"Content-Length: {200_000}") + b"x" * 200_000
    with FaultServer({"/metrics": raw(one + two, keep=True)}) as server:
        client = make_client(server.url)
        first = client.get_metrics("/metrics")
        server.behave("/metrics", page(b"new 1\n"))
        second = client.get_metrics("/metrics")
    assert isinstance(first, Page)
    assert first.body == b"old 1\n"
    assert isinstance(second, Page)
    assert second.body == b"new 1\n"


def test_any_failure_closes_the_connection(make_client):
    with FaultServer({"/metrics": page(BODY), "/gone": status(500, b"oops")}) as server:
        client = make_client(server.url)
        assert isinstance(client.get_metrics("/metrics"), Page)
        assert isinstance(client.get_metrics("/gone"), Refusal)
        server.wait_until_idle()
        assert isinstance(client.get_metrics("/metrics"), Page)
        assert server.connections == 2


def test_close_may_be_called_twice_and_the_client_used_again(make_client):
    with FaultServer(page(BODY)) as server:
        client = make_client(server.url)
        client.close()
        assert isinstance(client.get_metrics("/metrics"), Page)
        client.close()
        client.close()
        assert isinstance(client.get_metrics("/metrics"), Page)


@check_rows("code", [301, 302, 303, 307, 308], shared=["make_client"])
def test_redirect_within_the_server_is_followed_on_the_same_connection(make_client, code):
    routes = {"/metrics": redirect("/metrics/?a=1", code, b"moved"), "/metrics/": page(BODY)}
    with FaultServer(routes) as server:
        client = make_client(server.url, headers=(("X-Key", "secret"),))
        assert isinstance(client.get_metrics("/metrics"), Page)
        assert [request.target for request in server.requests] == ["/metrics", "/metrics/?a=1"]
        assert all(request.headers["x-key"] == "secret" for request in server.requests)
        assert server.connections == 1


@pytest.mark.parametrize(("framing", "connections"), [("Content-Length: 5", 1), ("Transfer-Encoding: chunked", 2)])
def test_late_body_of_a_redirect_is_not_taken_for_the_next_answer(make_client, framing, connections):
    def late(exchange):
        exchange.send(head(307, TEXT, "Location: /there", framing))
        exchange.wait(0.1)
        exchange.send(b"moved")
        return True

    with FaultServer({"/here": late, "/there": page(BODY)}) as server:
        assert isinstance(make_client(server.url).get_metrics("/here"), Page)
        assert server.connections == connections


@check_rows("location", ["{url}/there", "//{authority}/there", "there", "./there"], shared=["make_client"])
def test_redirect_may_be_absolute_or_relative(make_client, location):
    with FaultServer({"/there": page(BODY)}) as server:
        server.behave("/here", redirect(location.format(url=server.url, authority=server.authority)))
        assert isinstance(make_client(server.url).get_metrics("/here"), Page)


def test_three_redirects_are_followed_and_no_more(make_client):
    hops = {f"/{n}": redirect(f"/{n + 1}") for n in range(4)}
    with FaultServer({**hops, "/4": page(BODY)}) as server:
        client = make_client(server.url)
        assert isinstance(client.get_metrics("/1"), Page)
        refused = client.get_metrics("/0")
        assert isinstance(refused, Refusal)
        assert (refused.reason, refused.status) == (FailureReason.REDIRECT, 302)
        assert "redirects more than 3 times" in refused.detail


@check_rows(
    "location",
    [
        "http://example.invalid/metrics",
        "http://localhost:{port}/metrics",
        "https://127.0.0.1:{port}/metrics",
        "http://127.0.0.1/metrics",
        "//example.invalid/",
        "ftp://127.0.0.1:{port}/",
        "http://127.0.0.1:99999/",
        "http://[",
        "file:///etc/passwd",
        None,
        "",
    ],
    shared=["make_client"],
)
def test_redirect_elsewhere_is_refused(make_client, location):
    with FaultServer(status(200)) as server:
        server.behave("/metrics", redirect(None if location is None else location.format(port=server.port)))
        refused = make_client(server.url).get_metrics("/metrics")
        assert isinstance(refused, Refusal)
        assert (refused.reason, refused.status) == (FailureReason.REDIRECT, 302)
        assert len(server.requests) == 1


def test_ipv6_host_header_has_brackets(make_client):
    try:
        server = FaultServer(page(BODY), address_family=socket.AF_INET6).__enter__()
    except OSError as error:
        pytest.skip(f"this machine has no IPv6 loopback: {error}")
    try:
        assert isinstance(make_client(server.url).get_metrics("/metrics"), Page)
        assert server.requests[0].headers["host"] == f"[::1]:{server.port}"
    finally:
        server.__exit__()


def test_second_address_is_tried_when_the_first_refuses(make_client, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as unused:
        closed_port = unused.getsockname()[1]
    with FaultServer(page(BODY)) as server:
        # The resolver's answer is the outside here: a name with a dead address and a live one.
        addresses = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in (closed_port, server.port)
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: addresses)
        assert isinstance(make_client("http://engine:8000").get_metrics("/metrics"), Page)
        assert server.requests[0].headers["host"] == "engine:8000"


def test_proxy_variables_are_ignored(make_client, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with FaultServer(page(BODY)) as server:
        assert isinstance(make_client(server.url).get_metrics("/metrics"), Page)


def test_json_answer(make_client):
    with FaultServer({"/version": page(b'{"version": "0.32.0"}', "application/json")}) as server:
        client = make_client(server.url)
        assert client.get_json("/version") == JsonAnswer({"version": "0.32.0"}, 200)
        assert server.requests[0].headers["accept"] == "application/json"


@pytest.mark.parametrize("content_type", [None, "application/json; charset=utf-8", "application/problem+json"])
def test_json_under_its_other_content_types(make_client, content_type):
    with FaultServer(page(b"[1]", content_type)) as server:
        assert make_client(server.url).get_json("/version") == JsonAnswer([1], 200)


@check_rows(
    ("behaviour", "reason"),
    [
        (page(b'{"version": ', "application/json"), FailureReason.MALFORMED),
        (page(b"\xff\xfe\xff", "application/json"), FailureReason.MALFORMED),
        (page(b"[" * 200_000, "application/json"), FailureReason.MALFORMED),
        (page(b"9" * 100_000, "application/json"), FailureReason.MALFORMED),
        (page(b"<html>", "text/html"), FailureReason.CONTENT_TYPE),
        (page(b" \n", "application/json"), FailureReason.EMPTY),
        (page(b'"' + b"x" * (1 << 20) + b'"', "application/json"), FailureReason.TOO_LARGE),
        (status(404), FailureReason.STATUS),
        (status(401), FailureReason.UNAUTHORIZED),
        (hang_up(), FailureReason.CLOSED),
    ],
    shared=["make_client"],
)
def test_json_refusals(make_client, behaviour, reason):
    with FaultServer(behaviour) as server:
        refused = make_client(server.url).get_json("/version")
    assert isinstance(refused, Refusal)
    assert refused.reason is reason
