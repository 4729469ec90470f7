"""The web config file, basic auth, and TLS: certificates, rotation, expiry, clients of their own."""

import base64
import http.client
import logging
import os
import re
import socket
import ssl
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import bcrypt
import pytest
import trustme

from llm_serving_exporter.errors import ConfigError
from llm_serving_exporter.settings.config import WebConfig
from llm_serving_exporter.web.crowd import Limits
from llm_serving_exporter.web.guard import MOST_RESULTS, Guard, PasswordCheck, credentials, read_expiry
from llm_serving_exporter.web.server import WebServer
from llm_serving_exporter.web.webconfig import TlsSettings, WebSettings, load_web_config
from tests.support.rows import check_rows
from tests.support.servers.webclient import HASH, OTHER_HASH, basic, get, issue, trusting, write
from tests.support.waiting import PATIENCE_SECONDS

# --- the file -----------------------------------------------------------------------------------------------------


def test_everything_that_is_honoured(tmp_path):
    path = write(
        tmp_path,
        f"""
tls_server_config:
  cert_file: server.crt
  key_file: /etc/ssl/server.key
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: ca.pem
  client_allowed_sans: [prometheus.example, 192.0.2.7]
  min_version: TLS13
http_server_config:
  http2: false
  headers:
    Strict-Transport-Security: max-age=31536000
    X-Frame-Options: sameorigin
basic_auth_users:
  alice: {HASH}
""",
    )
    assert load_web_config(path) == WebSettings(
        TlsSettings(
            str(tmp_path / "server.crt"),
            "/etc/ssl/server.key",
            "RequireAndVerifyClientCert",
            str(tmp_path / "ca.pem"),
            ("prometheus.example", "192.0.2.7"),
            "TLS13",
            "TLS13",
        ),
        {"alice": HASH},
        (("Strict-Transport-Security", "max-age=31536000"), ("X-Frame-Options", "sameorigin")),
    )


PAIR = "tls_server_config: {cert_file: a, key_file: b, "


@check_rows(
    ("text", "message"),
    [
        ("tls_config: {}", "tls_config: this key is not known. Did you mean tls_server_config?"),
        ("rate_limit: {burst: 20}", "rate_limit: this key is not allowed here. Remove it: this exporter limits connections, not requests"),
        ("tls_server_config: {}", "tls_server_config.cert_file: is missing. Write cert_file: and the path of a PEM file."),
        ("tls_server_config:", "tls_server_config.key_file: is missing."),
        ("tls_server_config: {cert: x, key_file: b}", "tls_server_config.cert: this key is not allowed here. Write the PEM text"),
        (PAIR + "cipher_suites: [A]}", "tls_server_config.cipher_suites: this key is not allowed here. Remove it: Go's names"),
        (PAIR + "prefer_server_cipher_suites: true}", "tls_server_config.prefer_server_cipher_suites: this key is not allowed here."),
        (PAIR + "curve_preferences: [X25519]}", "tls_server_config.curve_preferences: this key is not allowed here."),
        (PAIR + "min_version: TLS11}", "tls_server_config.min_version: TLS11 is not secure and not offered. Write TLS12 or TLS13."),
        (PAIR + "min_version: SSL3}", 'tls_server_config.min_version: "SSL3" is not a TLS version. Write TLS12 or TLS13.'),
        (PAIR + "min_version: TLS13, max_version: TLS12}", "tls_server_config.min_version: is above max_version."),
        (PAIR + "client_auth_type: RequireAnyClientCert}", "RequireAnyClientCert would take a certificate that nobody has verified"),
        (PAIR + "client_auth_type: Maybe}", '"Maybe" is not a client authentication.'),
        (PAIR + "client_auth_type: RequireAndVerifyClientCert}", "client_ca_file: is missing: RequireAndVerifyClientCert needs the CA"),
        (PAIR + "client_ca_file: ca.pem}", "tls_server_config.client_ca_file: has no effect with NoClientCert."),
        (PAIR + "client_allowed_sans: [a]}", "client_allowed_sans: needs clients with a certificate, and NoClientCert lets others in."),
        ("http_server_config: {http2: true}", "http_server_config.http2: this server speaks HTTP/1.1 only. Write false"),
        ("http_server_config: {headers: {Server: x}}", "http_server_config.headers.Server: this key is not known."),
        ("http_server_config: {headers: {X-Frame-Options: all}}", "X-Frame-Options: must be deny or sameorigin."),
        ('http_server_config: {headers: {X-XSS-Protection: "1\\r\\nSet-Cookie: a=b"}}', "may hold printable ASCII characters only"),
        ("basic_auth_users: [alice]", "basic_auth_users: must be a mapping (name: hash), not a list."),
        ("basic_auth_users: {alice: hunter2}", "basic_auth_users.alice: this is not a bcrypt hash. Make one with: htpasswd -nBC 10 NAME"),
        (f"basic_auth_users: {{'a:b': {HASH}}}", "basic_auth_users.a:b: this name cannot be sent: it is empty or has a colon."),
        (f"basic_auth_users: {{a: {HASH.replace('$04$', '$31$')}}}", "basic_auth_users.a: the hash's cost of 31 is outside 4 to 18."),
        ("", "the file"),
        ("# all commented out", "the file"),
        ("{}", "the file sets nothing. Write tls_server_config or basic_auth_users, or start without --web.config.file."),
        ("basic_auth_users:", "basic_auth_users: no user is listed, which would let everyone in."),
        ("basic_auth_users: {}", "basic_auth_users: no user is listed, which would let everyone in."),
        ("{", "this is not YAML at line 2"),
    ],
)  # fmt: skip
def test_each_fault_is_named_with_its_place_and_what_to_do(tmp_path, text, message):
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_web_config(path)
    assert message in str(caught.value)
    assert all(problem.file == path for problem in caught.value.problems)
    assert "hunter2" not in str(caught.value)
    assert HASH[10:] not in str(caught.value)


def test_every_fault_is_told_at_once(tmp_path):
    with pytest.raises(ConfigError) as caught:
        load_web_config(write(tmp_path, "tls_server_config: {}\nbasic_auth_users: {a: x}\nrate: 1"))
    assert len(caught.value.problems) == 4


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match="the file does not exist"):
        WebServer(WebConfig(listen_addresses=("127.0.0.1:0",), config_file=str(tmp_path / "none.yml")), {})


# --- basic auth ---------------------------------------------------------------------------------------------------


def test_every_page_needs_a_name_and_its_password(make_server, tmp_path):
    server = make_server(config_file=write(tmp_path, f"basic_auth_users:\n  alice: {HASH}\n  bob: {OTHER_HASH}\n"))
    assert server.url.startswith("http://")
    for path in ("/", "/-/reload", "/nowhere"):
        answer = get(server, path=path)
        assert answer.status == 401
        assert answer.getheader("WWW-Authenticate", "").startswith("Basic realm=")
    for name, password, status in (
        ("alice", "correct horse", 200),
        ("bob", "battery staple", 200),
        ("alice", "battery staple", 401),
        ("mallory", "correct horse", 401),
        ("", "", 401),
    ):
        for _ in range(2):  # the second answer comes from what is remembered
            assert get(server, Authorization=basic(name, password)).status == status, (name, password)


@check_rows(
    ("header", "found"),
    [
        (basic("alice", "a:b"), ("alice", b"a:b")),
        ("basic  " + base64.b64encode("zoë:ü".encode()).decode(), ("zoë", "ü".encode())),
        ("Basic", None),
        ("Basic !!!!", None),
        ("Basic " + base64.b64encode(b"nocolon").decode(), None),
        ("Basic " + base64.b64encode(b"\xff:x").decode(), None),
        ("Bearer abc", None),
        ("", None),
    ],
)
def test_what_an_authorization_header_says(header, found):
    assert credentials(header) == found


def test_odd_passwords_are_wrong_not_errors():
    check = PasswordCheck()
    for password in (b"", b"\x00", b"correct horse\x00", b"x" * 100, b"\xff\xfe"):
        assert not check.allows({"alice": HASH}, "alice", password)


def test_a_password_longer_than_bcrypt_reads_is_cut_as_htpasswd_cuts_it():
    long = b"p" * 100
    users = {"alice": bcrypt.hashpw(long[:72], bcrypt.gensalt(4)).decode()}
    assert PasswordCheck().allows(users, "alice", long)


def test_wrong_passwords_do_not_push_out_right_ones_and_do_not_pile_up():
    check = PasswordCheck()
    users = {"alice": HASH}
    assert check.allows(users, "alice", b"correct horse")
    for number in range(MOST_RESULTS + 10):
        assert not check.allows(users, "alice", str(number).encode())
    assert [len(digests) for digests in check._results.values()] == [1, MOST_RESULTS]
    assert check.allows(users, "alice", b"correct horse")


def test_an_unknown_name_costs_the_same_work_as_a_known_one():
    check = PasswordCheck()
    assert not check.allows({"alice": HASH}, "mallory", b"correct horse")  # a hash was worked out, and fits, and yet
    assert [len(digests) for digests in check._results.values()] == [0, 1]


def test_a_changed_hash_counts_at_once_although_the_result_is_remembered():
    check = PasswordCheck()
    assert check.allows({"alice": HASH}, "alice", b"correct horse")
    assert not check.allows({"alice": OTHER_HASH}, "alice", b"correct horse")


def test_changed_users_count_on_an_open_connection(make_server, tmp_path):
    path = write(tmp_path, f"basic_auth_users: {{alice: {HASH}}}")
    server = make_server(config_file=path)
    parts = urlsplit(server.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE_SECONDS)

    def status(name: str, password: str) -> int:
        connection.request("GET", "/", headers={"Authorization": basic(name, password)})
        answer = connection.getresponse()
        answer.read()
        return answer.status

    try:
        assert status("alice", "correct horse") == 200
        write(tmp_path, f"basic_auth_users: {{bob: {OTHER_HASH}}}")
        assert status("alice", "correct horse") == 401
        assert status("bob", "battery staple") == 200
    finally:
        connection.close()


def test_a_bad_file_changes_nothing_and_is_logged_once(make_server, tmp_path, caplog):
    server = make_server(config_file=write(tmp_path, f"basic_auth_users: {{alice: {HASH}}}"))
    write(tmp_path, "basic_auth_users: {alice: oops}")
    for _ in range(3):
        assert get(server).status == 401
        assert get(server, Authorization=basic("alice", "correct horse")).status == 200
    assert caplog.text.count("this is not a bcrypt hash") == 1
    os.remove(tmp_path / "web.yml")
    assert get(server).status == 401
    assert "the file does not exist" in caplog.text


def test_headers_of_the_file_replace_and_remove_ours(make_server, tmp_path):
    text = "http_server_config: {headers: {X-Frame-Options: sameorigin, X-Content-Type-Options: '', X-XSS-Protection: '0'}}"
    answer = get(make_server(config_file=write(tmp_path, text)))
    assert answer.getheader("X-Frame-Options") == "sameorigin"
    assert answer.getheader("X-Content-Type-Options") is None
    assert answer.getheader("X-XSS-Protection") == "0"


# --- The web server over TLS: certificates, rotation, clients of their own


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


# --- When certificates expire, and who is told


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2026, 11, 30, 12, 30, 1, tzinfo=UTC),
        datetime(1999, 1, 2, tzinfo=UTC),
        datetime(2080, 5, 6, 7, 8, 9, tzinfo=UTC),
    ],
)
def test_the_time_is_that_of_the_certificate(moment: datetime) -> None:
    made = trustme.CA().issue_cert("a.example", not_before=moment - timedelta(days=9), not_after=moment)
    pem = made.cert_chain_pems[0].bytes().decode()
    assert read_expiry(f"some words\n{pem}") == moment.timestamp()


@check_rows(
    "text",
    [
        "",
        "words",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----",
        "-----END CERTIFICATE----------BEGIN CERTIFICATE-----",
    ],
)
def test_what_is_no_certificate_has_none(text: str) -> None:
    assert read_expiry(text) is None


def test_somebody_is_told_two_weeks_before_and_after_once_a_day(tmp_path, caplog) -> None:
    end = datetime(2030, 1, 31, tzinfo=UTC)
    made = trustme.CA().issue_cert("127.0.0.1", not_before=end - timedelta(days=90), not_after=end)
    made.private_key_pem.write_to_path(tmp_path / "server.key")
    made.cert_chain_pems[0].write_to_path(tmp_path / "server.crt")
    now = [(end - timedelta(days=20)).timestamp()]
    caplog.set_level(logging.WARNING)
    guard = Guard(write(tmp_path, TLS), logging.getLogger("test"), lambda: now[0])
    assert guard.expiry == end.timestamp()
    guard.context()
    assert caplog.text == ""
    for days, said in ((-13, "expires in 13.0 days, at 2030-01-31 00:00 UTC"), (1, "expired at 2030-01-31 00:00 UTC")):
        caplog.clear()
        now[0] = (end + timedelta(days=days)).timestamp()
        for _ in range(3):
            guard.context()
        assert len(caplog.records) == 1
        assert said in caplog.text
