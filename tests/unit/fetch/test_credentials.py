"""Secrets: read from where they are at each use, sent to the configured host only, shown nowhere."""

from __future__ import annotations

import base64
import os

import pytest

from llm_serving_exporter.errors import ConfigError
from llm_serving_exporter.fetch.http import HttpClient
from llm_serving_exporter.model.sample import FailureReason, Refusal
from llm_serving_exporter.model.target import HttpSettings, Secret
from tests.support.rows import check_rows
from tests.support.servers.faultbehaviours import head, page, redirect
from tests.support.servers.faultserver import Exchange, FaultServer

BODY = b"up 1\n"
TOKEN = "tok-8c1f6d2e9b"  # an invented one
GOOD = page(BODY)


@pytest.fixture
def secret(tmp_path):
    """The token in a file."""
    (tmp_path / "secret").write_text(TOKEN)
    return Secret(file=str(tmp_path / "secret"))


def refused_for(refused: Refusal, *says: object) -> None:
    """It is for credentials that cannot be used, says this, and does not show them."""
    assert refused.reason is FailureReason.CREDENTIALS
    for text in says:
        assert str(text) in refused.detail
    assert TOKEN not in refused.detail


def test_bearer_token_from_a_file_without_its_newline(client_of, tmp_path):
    (tmp_path / "token").write_text(f"{TOKEN}\r\n")
    with client_of(GOOD, bearer_token=Secret(file=str(tmp_path / "token"))) as (server, client):
        client.page()
        assert isinstance(client.get_json("/version"), Refusal)  # not JSON, but asked with the token too
        assert [request.headers["authorization"] for request in server.requests] == [f"Bearer {TOKEN}"] * 2


def test_secrets_from_the_environment_are_read_at_each_use(client_of, monkeypatch):
    settings = {"bearer_token": Secret(env="ENGINE_TOKEN"), "headers": (("X-Api-Key", Secret(env="ENGINE_KEY")),)}
    with client_of(GOOD, **settings) as (server, client):
        for round_ in ("one", "two"):
            monkeypatch.setenv("ENGINE_TOKEN", f"token-{round_}")
            monkeypatch.setenv("ENGINE_KEY", f"key-{round_}")
            client.page()
        sent = [(request.headers["authorization"], request.headers["x-api-key"]) for request in server.requests]
        assert sent == [("Bearer token-one", "key-one"), ("Bearer token-two", "key-two")]


def test_basic_auth_is_utf8(once, tmp_path):
    (tmp_path / "password").write_text("pä:ss wörd\n")
    once.page(GOOD, basic_username="sre", basic_password=Secret(file=str(tmp_path / "password")))
    scheme, _, encoded = once.requests[0].headers["authorization"].partition(" ")
    assert (scheme, base64.b64decode(encoded).decode()) == ("Basic", "sre:pä:ss wörd")


def test_users_host_and_user_agent_replace_ours(once):
    once.page(GOOD, headers=(("Host", "engine.internal"), ("user-agent", "probe")))
    (request,) = once.requests
    assert request.raw.lower().count(b"host:") == 1
    assert (request.headers["host"], request.headers["user-agent"]) == ("engine.internal", "probe")


@pytest.mark.parametrize("how", ["replaced", "rewritten", "relinked"])
def test_rotated_file_is_picked_up(client_of, tmp_path, how):
    token = tmp_path / "token"
    (tmp_path / "first").write_text("token-one")
    (tmp_path / "second").write_text("token-two")
    if how == "relinked":  # as the kubelet swaps a secret volume
        token.symlink_to("first")
    else:
        token.write_text("token-one")
    with client_of(GOOD, bearer_token=Secret(file=str(token))) as (server, client):
        client.page()
        if how == "replaced":
            os.replace(tmp_path / "second", token)
        elif how == "relinked":
            (tmp_path / "link").symlink_to("second")
            os.replace(tmp_path / "link", token)
        else:
            token.write_text("token-two")
            os.utime(token, ns=(1, 1))
        client.page()
        sent = [request.headers["authorization"] for request in server.requests]
    assert sent == ["Bearer token-one", "Bearer token-two"]


def test_a_file_is_read_again_when_it_changed_and_only_then(client_of, tmp_path, monkeypatch):
    token = tmp_path / "token"
    token.write_text("token-one")
    reads = []

    def counted(*arguments: str) -> object:
        reads.append(arguments[0])
        return open(*arguments)

    monkeypatch.setattr("llm_serving_exporter.fetch.credentials.open", counted, raising=False)
    before = os.stat(token)
    with client_of(GOOD, bearer_token=Secret(file=str(token))) as (server, client):
        for _ in range(3):
            client.page()
        assert reads == [str(token)]
        # same size, same inode, and the old time put back
        token.write_text("token-two")
        os.utime(token, ns=(before.st_atime_ns, before.st_mtime_ns))
        client.page()
        assert server.requests[-1].headers["authorization"] == "Bearer token-two"
        assert len(reads) == 2


def test_missing_file_is_a_refusal_until_it_comes(client_of, tmp_path):
    token = tmp_path / "token"
    with client_of(GOOD, bearer_token=Secret(file=str(token))) as (_server, client):
        refused_for(client.refusal(), token, "No such file")
        token.write_text(TOKEN)
        client.page()


@check_rows(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"tok-8c1f6d2e9b\r\nX-Injected: 1\n", "control characters"),
        (b"tok-8c1f6d2e9b\x00", "control characters"),
        (b"tok-8c1f6d2e9b\t", "control characters"),
        ("tok-8c1f6d2e9b-ü".encode(), "no HTTP header may carry"),
        (b"tok-8c1f6d2e9b\xff", "not UTF-8"),
        (b"tok-8c1f6d2e9b" * 2000, "16 KiB"),
    ],
    shared=["once"],
)
def test_unusable_secret_files(once, tmp_path, content, says):
    token = tmp_path / "token"
    token.write_bytes(content)
    refused_for(once.refusal(GOOD, bearer_token=Secret(file=str(token))), says, token)
    assert once.connections == 0


NOWHERE = "http://127.0.0.1:9"


def test_fifo_and_directory_are_refused_without_blocking(make_client, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path):
        refused_for(make_client(NOWHERE, bearer_token=Secret(file=str(path))).refusal(), "not a regular file")


@pytest.mark.parametrize(
    ("value", "says"), [(None, "is not set"), ("", "is empty"), (f"{TOKEN}\nX: 1", "control characters")]
)
def test_unusable_variables(make_client, monkeypatch, value, says):
    monkeypatch.setenv("ENGINE_TOKEN", value or "")
    if value is None:
        monkeypatch.delenv("ENGINE_TOKEN")
    refused_for(make_client(NOWHERE, bearer_token=Secret(env="ENGINE_TOKEN")).refusal(), "ENGINE_TOKEN", says)


def test_literal_header_cannot_inject(make_client):
    refused_for(make_client(NOWHERE, headers=(("X-Tenant", "a\r\nX-Injected: 1"),)).refusal(), "headers.X-Tenant")


def test_path_cannot_inject(once):
    once.page(GOOD, "/metrics HTTP/1.1\r\nX-Injected: 1\r\n\r\nGET /ü#x")
    (request,) = once.requests
    assert "x-injected" not in request.headers
    assert request.target == "/metrics%20HTTP/1.1%0D%0AX-Injected:%201%0D%0A%0D%0AGET%20/%C3%BC%23x"


def test_refused_credentials_name_the_setting(once, secret):
    refused = once.refusal(page(TOKEN.encode(), code=401), bearer_token=secret)
    assert refused.reason is FailureReason.UNAUTHORIZED
    assert "check bearer_token" in refused.detail
    assert TOKEN not in refused.detail


def _echo(part: str, cut: int | None = None):
    """A debugging proxy's error page: it repeats the request's credentials, in `part` of its answer."""

    def answer(exchange: Exchange) -> bool:
        sent = exchange.request.headers["authorization"][:cut]
        if part == "body":
            exchange.send(head(500, "text/plain", f"Content-Length: {len(sent) + 4}") + b"got " + sent.encode())
        elif part == "type":
            exchange.send(head(200, f"text/{sent}", "Content-Length: 0"))
        elif part == "location":
            exchange.send(head(302, None, f"Location: http://{sent.rpartition(' ')[2]}.invalid/", "Content-Length: 0"))
        else:
            exchange.send(f"{sent}\r\n\r\n".encode())
        return False

    return answer


@check_rows("part", ["body", "type", "location", "status"], shared=["make_client", "secret"])
def test_credentials_that_the_server_repeats_are_masked(make_client, secret, part):
    basic = base64.b64encode(f"sre:{TOKEN}".encode()).decode()
    for settings in ({"bearer_token": secret}, {"basic_username": "sre", "basic_password": secret}):
        with FaultServer(_echo(part)) as server:
            client = make_client(server.url, **settings)
            refused = client.refusal()
        shown = f"{refused!r} {client!r} {client.__dict__['_settings']!r}".lower()
        assert TOKEN not in shown
        assert basic.lower() not in shown


def test_cut_off_credentials_are_masked_too(once, secret):
    refused = once.refusal(_echo("body", cut=-3), bearer_token=secret)
    assert TOKEN[:4] not in refused.detail
    assert "got" in refused.detail


def test_credentials_never_follow_a_redirect_elsewhere(once, secret):
    with FaultServer(GOOD) as other:
        refused = once.refusal(redirect(f"{other.url}/metrics"), bearer_token=secret)
        assert refused.reason is FailureReason.REDIRECT
        assert other.connections == 0


@check_rows(
    "settings",
    [
        HttpSettings(bearer_token=Secret()),
        HttpSettings(bearer_token=Secret(file="/a", env="B")),
        HttpSettings(bearer_token=Secret(env="A"), basic_username="sre"),
        HttpSettings(bearer_token=Secret(env="A"), headers=(("authorization", "x"),)),
        HttpSettings(basic_password=Secret(env="A")),
        HttpSettings(basic_username="a:b"),
        HttpSettings(headers=(("X Y", "1"),)),
        HttpSettings(headers=(("X-Y:", "1"),)),
        HttpSettings(headers=(("Accept-Encoding", "br"),)),
        HttpSettings(headers=(("content-length", "5"),)),
        HttpSettings(headers=(("X-Y", "1"), ("x-y", "2"))),
    ],
)
def test_contradictory_settings_are_a_config_error(settings):
    with pytest.raises(ConfigError):
        HttpClient("http://127.0.0.1:9", settings)
