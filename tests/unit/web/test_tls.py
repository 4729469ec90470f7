"""The web server over TLS: certificates, rotation, clients of their own."""

import http.client
import re
import socket
import ssl
from contextlib import suppress
from urllib.parse import urlsplit

import pytest
import trustme

from llm_serving_exporter.errors import ConfigError
from llm_serving_exporter.settings.config import WebConfig
from llm_serving_exporter.web.server import Limits, WebServer

# the lowest cost that bcrypt has: these are tests
from tests.support.servers.webaccess import HASH, get, issue, trusting, write
from tests.support.waiting import PATIENCE_SECONDS

TLS = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n"


def test_pages_over_tls(make_server, tmp_path, authority):
    issue(authority, tmp_path)
    server = make_server(config_file=write(tmp_path, TLS))
    assert server.url.startswith("https://")
    assert get(server, trusting(authority)).status == 200
    with pytest.raises(ssl.SSLCertVerificationError):
        get(server, ssl.create_default_context())


def test_plain_http_on_a_tls_port_is_told_so(make_server, tmp_path, authority):
    issue(authority, tmp_path)
    server = make_server(config_file=write(tmp_path, TLS))
    parts = urlsplit(server.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE_SECONDS) as source:
        source.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = source.recv(4096)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"write https:// in place of http://" in answer


def test_stop_ends_an_idle_tls_connection(make_server, tmp_path, authority):
    issue(authority, tmp_path)
    server = make_server(config_file=write(tmp_path, TLS))
    parts = urlsplit(server.url)
    connection = http.client.HTTPSConnection(
        parts.hostname or "", parts.port, timeout=PATIENCE_SECONDS, context=trusting(authority)
    )
    try:
        connection.request("GET", "/")
        assert connection.getresponse().read() == b"GET / "
        server.stop()
        with suppress(ssl.SSLEOFError, ConnectionError):  # an end without TLS's own goodbye is one too
            assert connection.sock.recv(1) == b""
    finally:
        connection.close()


def test_only_the_versions_asked_for(make_server, tmp_path, authority):
    issue(authority, tmp_path)
    server = make_server(config_file=write(tmp_path, TLS + "  min_version: TLS13\n"))
    old = trusting(authority)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        get(server, old)
    assert get(server, trusting(authority)).status == 200


def test_a_handshake_that_never_comes_holds_nobody_up_and_ends(make_server, tmp_path, authority):
    issue(authority, tmp_path)
    server = make_server(config_file=write(tmp_path, TLS), limits=Limits(idle_seconds=2.0, head_seconds=2.0))
    parts = urlsplit(server.url)
    for start in (b"", b"\x16\x03\x01"):
        with socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE_SECONDS) as mute:
            mute.sendall(start)
            assert get(server, trusting(authority)).status == 200
            if start:
                assert mute.recv(1) == b""


def test_a_rotated_certificate_counts_for_the_next_connection(make_server, tmp_path, authority):
    issue(authority, tmp_path)
    server = make_server(config_file=write(tmp_path, TLS))
    before = get_certificate(server)
    assert before == get_certificate(server)
    issue(authority, tmp_path)
    assert get_certificate(server) != before


def get_certificate(server: WebServer) -> str:
    parts = urlsplit(server.url)
    return ssl.get_server_certificate((parts.hostname or "", parts.port or 0), timeout=PATIENCE_SECONDS)


def test_a_half_rotated_certificate_leaves_the_old_one(make_server, tmp_path, authority, caplog):
    issue(authority, tmp_path)
    server = make_server(config_file=write(tmp_path, TLS))
    before = get_certificate(server)
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    issue(authority, fresh)
    write(tmp_path, (fresh / "server.crt").read_text(), "server.crt")
    assert get_certificate(server) == before
    assert "the key must fit its certificate" in caplog.text
    write(tmp_path, (fresh / "server.key").read_text(), "server.key")
    assert get_certificate(server) != before


def test_tls_is_not_switched_off_while_running(make_server, tmp_path, authority, caplog):
    issue(authority, tmp_path)
    server = make_server(config_file=write(tmp_path, TLS))
    write(tmp_path, f"basic_auth_users: {{alice: {HASH}}}")
    assert get(server, trusting(authority)).status == 200
    assert "TLS cannot be switched on or off while the exporter runs. Restart the exporter." in caplog.text


def client_context(authority: trustme.CA, own: trustme.CA | None, *names: str) -> ssl.SSLContext:
    context = trusting(authority)
    # in TLS 1.3 a client learns of a refused certificate only with its first read
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    if own is not None:
        own.issue_cert(*names).configure_cert(context)
    return context


def test_clients_need_a_certificate_of_the_ca_and_a_name_of_the_list(make_server, tmp_path, authority):
    issue(authority, tmp_path)
    clients, strangers = trustme.CA(), trustme.CA()
    clients.cert_pem.write_to_path(tmp_path / "ca.pem")
    text = TLS + (
        "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.pem\n"
        "  client_allowed_sans: [prometheus.example, '2001:db8::7']\n"
    )
    server = make_server(config_file=write(tmp_path, text))
    for name in ("prometheus.example", "2001:db8::7"):
        assert get(server, client_context(authority, clients, name)).status == 200
    for context in (
        client_context(authority, None),
        client_context(authority, strangers, "prometheus.example"),
        client_context(authority, clients, "other.example"),
    ):
        with pytest.raises((OSError, http.client.HTTPException)):
            get(server, context)


def test_a_certificate_may_be_optional(make_server, tmp_path, authority):
    issue(authority, tmp_path)
    clients = trustme.CA()
    clients.cert_pem.write_to_path(tmp_path / "ca.pem")
    text = TLS + "  client_auth_type: VerifyClientCertIfGiven\n  client_ca_file: ca.pem\n"
    server = make_server(config_file=write(tmp_path, text))
    assert get(server, client_context(authority, None)).status == 200
    assert get(server, client_context(authority, clients, "any.example")).status == 200
    with pytest.raises((OSError, http.client.HTTPException)):
        get(server, client_context(authority, trustme.CA(), "any.example"))


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("server.crt", "tls_server_config.cert_file: {folder}/server.crt with {folder}/server.key cannot be used"),
        ("server.key", "tls_server_config.cert_file: {folder}/server.crt with {folder}/server.key cannot be used"),
    ],
)
def test_files_that_are_not_pem(tmp_path, authority, broken, message):
    issue(authority, tmp_path)
    write(tmp_path, "junk", broken)
    with pytest.raises(ConfigError, match=re.escape(message.format(folder=tmp_path))):
        WebServer(WebConfig(listen_addresses=("127.0.0.1:0",), config_file=write(tmp_path, TLS)), {})


def test_files_that_are_not_there(tmp_path, authority):
    with pytest.raises(ConfigError, match="cannot be read: No such file or directory"):
        WebServer(WebConfig(listen_addresses=("127.0.0.1:0",), config_file=write(tmp_path, TLS)), {})
    issue(authority, tmp_path)
    text = TLS + "  client_auth_type: VerifyClientCertIfGiven\n  client_ca_file: none.pem\n"
    with pytest.raises(ConfigError, match=r"client_ca_file: .*none\.pem cannot be read"):
        WebServer(WebConfig(listen_addresses=("127.0.0.1:0",), config_file=write(tmp_path, text)), {})
