"""TLS: whom the client believes, what it presents, and that rotated files count."""

from __future__ import annotations

import os
import shutil
import ssl
import sys
from datetime import UTC, datetime, timedelta

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from llm_serving_exporter.model.sample import FailureReason, Page, Refusal
from tests.support.rows import check_rows
from tests.support.servers.faultbehaviours import closes_idle, first_only, hang_up, page, status
from tests.support.servers.faultserver import FaultServer
from tests.support.servers.tls_replica import TlsReplica

BODY = b"up 1\n" * 20_000


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def serving(authority: trustme.CA, *names: str, expired: bool = False, client_ca: trustme.CA | None = None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    not_after = datetime.now(UTC) - timedelta(days=1) if expired else None
    kwargs = {"not_before": datetime.now(UTC) - timedelta(days=9), "not_after": not_after} if expired else {}
    authority.issue_cert(*(names or ("127.0.0.1",)), **kwargs).configure_cert(context)
    if client_ca is not None:
        # In TLS 1.3 the client learns of a refused certificate only with the answer, racing the server's close.
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED
        client_ca.configure_trust(context)
    return context


@pytest.fixture
def ca_file(authority, tmp_path):
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(path)
    return str(path)


def refusal(got: Page | Refusal) -> Refusal:
    assert isinstance(got, Refusal)
    return got


def test_trusted_server_over_one_kept_connection(make_client, authority, ca_file):
    with FaultServer(page(BODY, compress=True), tls=serving(authority)) as server:
        client = make_client(server.url, ca_file=ca_file)
        for _ in range(3):
            got = client.get_metrics("/metrics")
            assert isinstance(got, Page)
            assert got.body == BODY
        assert server.connections == 1


@pytest.mark.parametrize("then", [closes_idle(BODY), first_only(page(BODY), then=hang_up())], ids=["idle", "reused"])
def test_dead_kept_connection_is_opened_again(make_client, authority, ca_file, then):
    with FaultServer(then, tls=serving(authority)) as server:
        client = make_client(server.url, ca_file=ca_file)
        assert isinstance(client.get_metrics("/metrics"), Page)
        assert isinstance(client.get_metrics("/metrics"), Page)
        assert server.connections == 2


def test_unknown_authority(make_client, authority):
    with FaultServer(page(BODY), tls=serving(authority)) as server:
        got = refusal(make_client(server.url).get_metrics("/metrics"))
    assert got.reason is FailureReason.TLS
    assert "set ca_file" in got.detail


def test_wrong_name_and_server_name(make_client, authority, ca_file):
    with FaultServer(page(BODY), tls=serving(authority, "engine.internal")) as server:
        got = refusal(make_client(server.url, ca_file=ca_file).get_metrics("/metrics"))
        assert got.reason is FailureReason.TLS
        assert "set server_name" in got.detail
        named = make_client(server.url, ca_file=ca_file, server_name="engine.internal")
        assert isinstance(named.get_metrics("/metrics"), Page)


def test_server_name_is_sent(make_client, authority, ca_file):
    seen: list[str | None] = []
    context = serving(authority, "engine.internal")
    context.sni_callback = lambda sock, name, ctx: seen.append(name)
    with FaultServer(page(BODY), tls=context) as server:
        client = make_client(server.url, ca_file=ca_file, server_name="engine.internal")
        assert isinstance(client.get_metrics("/metrics"), Page)
    assert seen == ["engine.internal"]


def test_expired_certificate(make_client, authority, ca_file):
    with FaultServer(page(BODY), tls=serving(authority, expired=True)) as server:
        got = refusal(make_client(server.url, ca_file=ca_file).get_metrics("/metrics"))
    assert got.reason is FailureReason.TLS
    assert "renew the certificate" in got.detail


def test_insecure_skip_verify_takes_any_certificate(make_client, authority):
    with FaultServer(page(BODY), tls=serving(authority, "elsewhere.invalid")) as server:
        assert isinstance(make_client(server.url, insecure_skip_verify=True).get_metrics("/metrics"), Page)


def test_client_certificate(make_client, authority, ca_file, tmp_path):
    leaf = authority.issue_cert("exporter")
    leaf.cert_chain_pems[0].write_to_path(tmp_path / "client.pem")
    leaf.private_key_pem.write_to_path(tmp_path / "client.key")
    with FaultServer(page(BODY), tls=serving(authority, client_ca=authority)) as server:
        files = {"cert_file": str(tmp_path / "client.pem"), "key_file": str(tmp_path / "client.key")}
        assert isinstance(make_client(server.url, ca_file=ca_file, **files).get_metrics("/metrics"), Page)
        got = refusal(make_client(server.url, ca_file=ca_file).get_metrics("/metrics"))
    assert got.reason is FailureReason.TLS


def test_plain_request_to_a_tls_port_says_so(make_client, authority):
    with FaultServer(page(BODY), tls=serving(authority)) as server:
        got = refusal(make_client(f"http://{server.authority}").get_metrics("/metrics"))
    # whether OpenSSL's server answers with an alert or just closes, which depends on its version
    assert got.reason is FailureReason.SPEAKS_TLS
    assert "let the target's url begin with https://" in got.detail


def test_a_server_that_hangs_up_on_plain_http_is_asked_once_whether_it_speaks_tls(make_client, authority):
    """As uvicorn does behind vLLM's --ssl-certfile: not a byte. No certificate is asked for anything."""
    with TlsReplica({"/metrics": BODY}, authority) as server:
        client = make_client(f"http://127.0.0.1:{server.port}")
        for _ in range(3):
            got = refusal(client.get_metrics("/metrics"))
            assert (got.reason, got.status) == (FailureReason.SPEAKS_TLS, None)
            assert "speaks TLS, and is asked by plain HTTP" in got.detail
        assert (server.plain, server.hellos) == (3, 1)


@check_rows(
    "says",
    ["The plain HTTP request was sent to HTTPS port", "Client sent an HTTP request to an HTTPS server."],
    shared=["make_client"],
)
def test_a_server_that_says_so_to_plain_http_is_believed(make_client, says):
    with FaultServer(status(400, f"<html>\r\n<head><title>400 {says}</title></head>".encode())) as server:
        got = refusal(make_client(server.url).get_metrics("/metrics"))
    assert got.reason is FailureReason.SPEAKS_TLS


def test_a_server_that_crashes_at_each_request_does_not_speak_tls(make_client):
    with FaultServer(hang_up()) as server:
        client = make_client(server.url)
        for _ in range(3):
            assert refusal(client.get_metrics("/metrics")).reason is FailureReason.CLOSED
        # it is asked again only after it has answered, or failed otherwise
        assert server.connections == 3 + 1
        server.behave("/metrics", page(BODY))
        assert isinstance(client.get_metrics("/metrics"), Page)
        server.behave("/metrics", hang_up())
        assert refusal(client.get_metrics("/metrics")).reason is FailureReason.CLOSED
        assert server.connections == 3 + 1 + 2 + 1


@check_rows("which", ["ca_file", "cert_file", "key_file"], shared=["make_client", "authority", "ca_file"])
@check_rows("state", ["missing", "not-pem", "directory"])
def test_unusable_files(make_client, authority, ca_file, tmp_path, which, state):
    leaf = authority.issue_cert("exporter")
    leaf.cert_chain_pems[0].write_to_path(tmp_path / "client.pem")
    leaf.private_key_pem.write_to_path(tmp_path / "client.key")
    files = {"ca_file": ca_file, "cert_file": str(tmp_path / "client.pem"), "key_file": str(tmp_path / "client.key")}
    bad = tmp_path / "bad"
    files[which] = str(bad)
    if state == "not-pem":
        bad.write_text("not a certificate\n")
    elif state == "directory":
        bad.mkdir()
    got = refusal(make_client("https://127.0.0.1:9", **files).get_metrics("/metrics"))
    assert got.reason is FailureReason.CREDENTIALS
    assert which in got.detail
    assert str(bad) in got.detail


def test_key_with_a_passphrase_is_refused_and_nobody_is_asked(make_client, authority, ca_file, tmp_path):
    from cryptography.hazmat.primitives import serialization

    leaf = authority.issue_cert("exporter")
    key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
    leaf.cert_chain_pems[0].write_to_path(tmp_path / "client.pem")
    (tmp_path / "client.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"hunter22"),
        )
    )
    files = {"cert_file": str(tmp_path / "client.pem"), "key_file": str(tmp_path / "client.key")}
    got = refusal(make_client("https://127.0.0.1:9", ca_file=ca_file, **files).get_metrics("/metrics"))
    assert got.reason is FailureReason.CREDENTIALS
    assert "passphrase" in got.detail


def test_a_certificate_that_python_checks_more_strictly_since_3_13(make_client, authority, ca_file, tmp_path):
    """Without the identifier of its authority's key, as many a private authority issues them."""
    named = authority.issue_cert("127.0.0.1")
    issuer = serialization.load_pem_private_key(authority.private_key_pem.bytes(), None)
    old = x509.load_pem_x509_certificate(named.cert_chain_pems[0].bytes())
    made = x509.CertificateBuilder(
        old.issuer, old.subject, old.public_key(), 1, old.not_valid_before_utc, old.not_valid_after_utc
    ).add_extension(old.extensions.get_extension_for_class(x509.SubjectAlternativeName).value, critical=True)
    bundle = tmp_path / "bundle.pem"
    named.private_key_pem.write_to_path(bundle)
    with bundle.open("ab") as file:
        file.write(made.sign(issuer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(bundle)
    with FaultServer(page(BODY), tls=context) as server:
        got = make_client(server.url, ca_file=ca_file).get_metrics("/metrics")
        if sys.version_info < (3, 13):
            assert isinstance(got, Page)
        else:
            assert "(Missing Authority Key Identifier); issue it again with that" in refusal(got).detail


def test_rotated_authority_is_picked_up_and_ends_the_old_connection(make_client, authority, ca_file, tmp_path):
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    shutil.copy(ca_file, tmp_path / "right.pem")
    with FaultServer(page(BODY), tls=serving(authority)) as server:
        client = make_client(server.url, ca_file=ca_file)
        assert isinstance(client.get_metrics("/metrics"), Page)
        os.replace(tmp_path / "other.pem", ca_file)
        assert refusal(client.get_metrics("/metrics")).reason is FailureReason.TLS
        os.replace(tmp_path / "right.pem", ca_file)
        assert isinstance(client.get_metrics("/metrics"), Page)
        assert server.connections == 3


def test_rotated_client_certificate_is_picked_up(make_client, authority, ca_file, tmp_path):
    stranger = trustme.CA()
    bundle = tmp_path / "client.pem"  # certificate and key in one file
    stranger.issue_cert("exporter").private_key_and_cert_chain_pem.write_to_path(bundle)
    with FaultServer(page(BODY), tls=serving(authority, client_ca=authority)) as server:
        client = make_client(server.url, ca_file=ca_file, cert_file=str(bundle))
        assert refusal(client.get_metrics("/metrics")).reason is FailureReason.TLS
        authority.issue_cert("exporter").private_key_and_cert_chain_pem.write_to_path(tmp_path / "new.pem")
        os.replace(tmp_path / "new.pem", bundle)
        assert isinstance(client.get_metrics("/metrics"), Page)
