"""TLS: whom the client believes, what it presents, and that rotated files count."""

from __future__ import annotations

import os
import shutil
import ssl
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from llm_serving_exporter.model.sample import FailureReason, Refusal
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


def refused_for_tls(refused: Refusal, says: str = "") -> None:
    assert refused.reason is FailureReason.TLS
    assert says in refused.detail


@pytest.fixture
def client_files(authority, tmp_path):
    """Settings of a client's own certificate and key."""
    leaf = authority.issue_cert("exporter")
    leaf.cert_chain_pems[0].write_to_path(tmp_path / "client.pem")
    leaf.private_key_pem.write_to_path(tmp_path / "client.key")
    return {"cert_file": str(tmp_path / "client.pem"), "key_file": str(tmp_path / "client.key")}


def test_trusted_server_over_one_kept_connection(client_of, authority, ca_file):
    with client_of(page(BODY, compress=True), tls=serving(authority), ca_file=ca_file) as (server, client):
        for _ in range(3):
            assert client.page().body == BODY
        assert server.connections == 1


@pytest.mark.parametrize("then", [closes_idle(BODY), first_only(page(BODY), then=hang_up())], ids=["idle", "reused"])
def test_dead_kept_connection_is_opened_again(client_of, authority, ca_file, then):
    with client_of(then, tls=serving(authority), ca_file=ca_file) as (server, client):
        client.page()
        client.page()
        assert server.connections == 2


def test_a_certificate_is_believed_by_its_authority_its_name_and_its_days(once, authority, ca_file):
    refused_for_tls(once.refusal(page(BODY), tls=serving(authority)), "set ca_file")
    refused_for_tls(
        once.refusal(page(BODY), tls=serving(authority, expired=True), ca_file=ca_file), "renew the certificate"
    )
    named = serving(authority, "engine.internal")
    refused_for_tls(once.refusal(page(BODY), tls=named, ca_file=ca_file), "set server_name")
    seen: list[str | None] = []
    named.sni_callback = lambda sock, name, ctx: seen.append(name)
    once.page(page(BODY), tls=named, ca_file=ca_file, server_name="engine.internal")
    assert seen == ["engine.internal"]


def test_insecure_skip_verify_takes_any_certificate(once, authority):
    once.page(page(BODY), tls=serving(authority, "elsewhere.invalid"), insecure_skip_verify=True)


def test_client_certificate(once, authority, ca_file, client_files):
    context = serving(authority, client_ca=authority)
    once.page(page(BODY), tls=context, ca_file=ca_file, **client_files)
    refused_for_tls(once.refusal(page(BODY), tls=context, ca_file=ca_file))


def test_plain_request_to_a_tls_port_says_so(make_client, authority):
    with FaultServer(page(BODY), tls=serving(authority)) as server:
        got = make_client(f"http://{server.authority}").refusal()
    # whether OpenSSL's server answers with an alert or just closes, which depends on its version
    assert got.reason is FailureReason.SPEAKS_TLS
    assert "let the target's url begin with https://" in got.detail


def test_a_server_that_hangs_up_on_plain_http_is_asked_once_whether_it_speaks_tls(make_client, authority):
    """As uvicorn does behind vLLM's --ssl-certfile: not a byte. No certificate is asked for anything."""
    with TlsReplica({"/metrics": BODY}, authority) as server:
        client = make_client(f"http://127.0.0.1:{server.port}")
        for _ in range(3):
            got = client.refusal()
            assert (got.reason, got.status) == (FailureReason.SPEAKS_TLS, None)
            assert "speaks TLS, and is asked by plain HTTP" in got.detail
        assert (server.plain, server.hellos) == (3, 1)


@check_rows(
    "says",
    ["The plain HTTP request was sent to HTTPS port", "Client sent an HTTP request to an HTTPS server."],
    shared=["once"],
)
def test_a_server_that_says_so_to_plain_http_is_believed(once, says):
    refused = once.refusal(status(400, f"<html>\r\n<head><title>400 {says}</title></head>".encode()))
    assert refused.reason is FailureReason.SPEAKS_TLS


def test_a_server_that_crashes_at_each_request_does_not_speak_tls(client_of):
    with client_of(hang_up()) as (server, client):
        for _ in range(3):
            assert client.refusal().reason is FailureReason.CLOSED
        # it is asked again only after it has answered, or failed otherwise
        assert server.connections == 3 + 1
        server.behave("/metrics", page(BODY))
        client.page()
        server.behave("/metrics", hang_up())
        assert client.refusal().reason is FailureReason.CLOSED
        assert server.connections == 3 + 1 + 2 + 1


@check_rows("which", ["ca_file", "cert_file", "key_file"], shared=["make_client", "client_files", "ca_file"])
@check_rows("state", ["missing", "not-pem", "directory"])
def test_unusable_files(make_client, ca_file, client_files, tmp_path, which, state):
    bad = tmp_path / "bad"
    if state == "not-pem":
        bad.write_text("not a certificate\n")
    elif state == "directory":
        bad.mkdir()
    got = make_client("https://127.0.0.1:9", **{"ca_file": ca_file, **client_files, which: str(bad)}).refusal()
    assert got.reason is FailureReason.CREDENTIALS
    assert which in got.detail
    assert str(bad) in got.detail


def test_key_with_a_passphrase_is_refused_and_nobody_is_asked(make_client, ca_file, client_files):
    path = Path(client_files["key_file"])
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    locked = serialization.BestAvailableEncryption(b"hunter22")
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked))
    got = make_client("https://127.0.0.1:9", ca_file=ca_file, **client_files).refusal()
    assert got.reason is FailureReason.CREDENTIALS
    assert "passphrase" in got.detail


def test_a_certificate_that_python_checks_more_strictly_since_3_13(once, authority, ca_file, tmp_path):
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
    if sys.version_info < (3, 13):
        once.page(page(BODY), tls=context, ca_file=ca_file)
    else:
        missing = "(Missing Authority Key Identifier); issue it again with that"
        refused_for_tls(once.refusal(page(BODY), tls=context, ca_file=ca_file), missing)


def test_rotated_authority_is_picked_up_and_ends_the_old_connection(client_of, authority, ca_file, tmp_path):
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    shutil.copy(ca_file, tmp_path / "right.pem")
    with client_of(page(BODY), tls=serving(authority), ca_file=ca_file) as (server, client):
        client.page()
        os.replace(tmp_path / "other.pem", ca_file)
        refused_for_tls(client.refusal())
        os.replace(tmp_path / "right.pem", ca_file)
        client.page()
        assert server.connections == 3


def test_rotated_client_certificate_is_picked_up(client_of, authority, ca_file, tmp_path):
    stranger = trustme.CA()
    bundle = tmp_path / "client.pem"  # certificate and key in one file
    stranger.issue_cert("exporter").private_key_and_cert_chain_pem.write_to_path(bundle)
    with client_of(page(BODY), tls=serving(authority, client_ca=authority), ca_file=ca_file, cert_file=str(bundle)) as (
        _server,
        client,
    ):
        refused_for_tls(client.refusal())
        authority.issue_cert("exporter").private_key_and_cert_chain_pem.write_to_path(tmp_path / "new.pem")
        os.replace(tmp_path / "new.pem", bundle)
        client.page()
