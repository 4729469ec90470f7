"""Where the web server listens, and how it says that it cannot."""

import http.client
import re
import socket
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from llm_serving_exporter.errors import ListenError
from llm_serving_exporter.settings.config import WebConfig
from llm_serving_exporter.web.server import WebServer
from tests.support.rows import check_rows
from tests.support.servers.webclient import ask, client


def test_a_port_without_host_listens_on_both_families(make_server):
    server = make_server(":0")
    assert urlsplit(server.url).hostname == "127.0.0.1"
    hosts = ["127.0.0.1", "::1"] if socket.has_dualstack_ipv6() else ["127.0.0.1"]
    for host in hosts:
        connection = client(server, host)
        connection.request("GET", "/")
        assert connection.getresponse().status == 200
        connection.close()


def test_the_log_says_where_it_listens_in_truth(make_server):
    everywhere, v4, one = make_server(":0"), make_server("0.0.0.0:0"), make_server("127.0.0.1:0")
    of = "" if socket.has_dualstack_ipv6() else " of IPv4"
    port = urlsplit(everywhere.url).port
    assert everywhere.places == (f"every address{of}, port {port}: http://127.0.0.1:{port} on this machine",)
    assert v4.places[0].startswith("every address of IPv4, port ")
    assert one.places == (one.url,)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_an_ipv6_address(make_server):
    server = make_server("[::1]:0")
    assert server.url.startswith("http://[::1]:")
    assert ask(server, "/")[0].status == 200


def test_several_addresses_are_all_served(make_server):
    server = make_server("127.0.0.1:0", "127.0.0.2:0", "localhost:0")
    assert server.url == server.urls[0]
    assert len(set(server.urls)) == 3
    for url in server.urls:
        where = urlsplit(url)
        with closing(http.client.HTTPConnection(where.hostname, where.port, timeout=5)) as connection:
            connection.request("GET", "/")
            assert connection.getresponse().status == 200


def test_where_one_of_several_cannot_be_had_none_is_taken(make_server):
    taken = make_server().url.removeprefix("http://")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = f"127.0.0.1:{probe.getsockname()[1]}"
    with pytest.raises(ListenError, match=re.escape(taken)):
        WebServer(WebConfig(listen_addresses=(free, taken)), {})
    assert make_server(free).url.endswith(free)


def test_a_host_name(make_server):
    assert ask(make_server("localhost:0"), "/")[0].status == 200


def test_a_taken_port(make_server):
    address = make_server().url.removeprefix("http://")
    with pytest.raises(ListenError) as caught:
        WebServer(WebConfig(listen_addresses=(address,)), {})
    assert str(caught.value) == (
        f"cannot listen on {address}: the port is already in use by another process; "
        "choose another address with --web.listen-address"
    )


@check_rows(
    ("address", "cause"),
    [
        ("192.0.2.1:0", "not an address of this machine"),
        ("no-such-host.invalid:0", "the host name does not resolve"),
        ("a..b:0", "this is not a host name"),
        ("10077", "this is not host:port"),
        ("::1:10077", "this is not host:port"),
        ("127.0.0.1:99999", "this is not host:port"),
    ],
)
def test_an_address_that_cannot_be_had(address, cause):
    with pytest.raises(ListenError, match=re.escape(f"cannot listen on {address}: {cause}")) as caught:
        WebServer(WebConfig(listen_addresses=(address,)), {})
    assert "--web.listen-address" in str(caught.value)
