"""`http_sd:` in the configuration file."""

from __future__ import annotations

from pathlib import Path

from llm_serving_exporter.discovery.sections import MAKERS
from llm_serving_exporter.model.target import HttpSettings, Secret
from llm_serving_exporter.settings.discovery import (
    DISCOVERY_KEYS,
    READERS,
    DiscoverySection,
    FileDiscovery,
    HttpDiscovery,
)
from llm_serving_exporter.settings.http import drop_credentials, has_credentials, sends_secret
from tests.support.builders.configuration import load_text, problems_of
from tests.support.rows import check_rows

LEAST = "http_sd: [{url: 'https://inventory.example.com/targets', hosts: [10.0.0.0/8]}]\n"


def section(folder: Path, text: str, **settings: object) -> HttpDiscovery:
    (found,) = load_text(folder, text, **settings).discovery
    assert isinstance(found, HttpDiscovery)
    return found


def test_every_kind_of_section_is_read_and_run() -> None:
    assert tuple(READERS) == DISCOVERY_KEYS
    assert set(MAKERS) == set(DiscoverySection.__args__)
    assert [section.kind for section in MAKERS] == list(DISCOVERY_KEYS)


def test_the_least_section(tmp_path: Path) -> None:
    found = section(tmp_path, LEAST)
    assert (found.url, found.path, found.hosts) == ("https://inventory.example.com:443", "/targets", ("10.0.0.0/8",))
    assert found.name == "https://inventory.example.com:443/targets"
    assert (found.refresh_seconds, found.http.timeout_seconds, found.http.max_body_bytes) == (60.0, 10.0, 4 * 2**20)
    assert not has_credentials(found.http)
    assert found.defaults.interval_seconds == 5.0


def test_every_key(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.pem").write_text("")
    text = """
http_sd:
  - url: http://inventory:8080/targets?fleet=chat&x=1
    hosts: [gpu-1, "*.gpu.example.com", fd00::/8, "*", gpu-1]
    refresh_interval: 30s
    timeout: 5s
    max_body_bytes: 1MiB
    auth: {bearer_token_file: token}
    headers: {X-Scope: chat}
    tls: {ca_file: ca.pem}
    defaults: {interval: 10s, group: found}
"""
    found = section(tmp_path, text)
    assert (found.url, found.path) == ("http://inventory:8080", "/targets?fleet=chat&x=1")
    assert found.name == "http://inventory:8080/targets"
    assert found.hosts == ("gpu-1", "*.gpu.example.com", "fd00::/8", "*")
    assert (found.refresh_seconds, found.http.timeout_seconds, found.http.max_body_bytes) == (30.0, 5.0, 2**20)
    assert found.http.bearer_token == Secret(file=str(tmp_path / "token"))
    assert found.http.headers == (("X-Scope", "chat"),)
    assert found.http.ca_file == str(tmp_path / "ca.pem")
    assert (found.defaults.interval_seconds, found.defaults.group) == (10.0, "found")
    # what asks for the list is not sent to those that it names
    assert not has_credentials(found.defaults.http)
    assert found.defaults.http.ca_file is None


EXAMPLE = "Write {url: https://inventory.example.com/targets, hosts: [10.0.0.0/8]}."


@check_rows(
    ("entry", "expected"),
    [
        ("{url: 'http://a:1/'}", f"http_sd[0]: hosts is missing. {EXAMPLE}"),
        ("{hosts: ['*']}", f"http_sd[0]: url is missing. {EXAMPLE}"),
        ("{url: 'http://a:1/', hosts: []}", f"http_sd[0].hosts: no host is allowed. {EXAMPLE}"),
        ("{url: 'http://a:1/', hosts: '*'}", "http_sd[0].hosts: must be a list of hosts and networks, not text. Start"),
        ("{url: 'http://a:1/', hosts: [10.1.0.0/8]}", "http_sd[0].hosts[0]: \"10.1.0.0/8\" is neither"),
        ("{url: 'ftp://a:1/', hosts: ['*']}", "http_sd[0].url: \"ftp://a:1/\" has the scheme \"ftp\""),
        ("{url: 'http://u:p@a:1/', hosts: ['*']}", "http_sd[0].url: the URL holds a user name or password"),
        ("{url: 'http://a:1/#x', hosts: ['*']}", "http_sd[0].url: the URL holds a query (?) or a fragment (#)"),
        ("{url: 'http://a:1/?a b', hosts: ['*']}", "http_sd[0].url: the URL has no usable query"),
        ("{url: 'http://a:1/', hosts: ['*'], refresh_interval: 1ms}", "http_sd[0].refresh_interval: \"1ms\" is shorter"),
        ("{url: 'http://a:1/', hosts: ['*'], refresh_interval: 5s, timeout: 5s}", "http_sd[0].timeout: the timeout of 5s is not"),
        ("{url: 'http://a:1/', hosts: ['*'], max_body_bytes: 2GiB}", "http_sd[0].max_body_bytes: the size \"2GiB\" is out of range"),
        ("{url: 'http://a:1/', hosts: ['*'], basic_auth: {}}", "http_sd[0].basic_auth: this key is not allowed here. Write auth:"),
        ("{url: 'http://a:1/', hosts: ['*'], defaults: {url: x}}", "http_sd[0].defaults.url: this key is not allowed here"),
        ("{url: 'http://a:1/', hosts: ['*'], defaults: {timeout: 1m}}", "http_sd[0].defaults.timeout: the timeout of 1m is not"),
        ("http://a:1/", "http_sd[0]: must be a mapping (key: value), not text."),
    ],
)  # fmt: skip
def test_mistakes_say_where_and_what_to_do(tmp_path: Path, entry: str, expected: str) -> None:
    problem = problems_of(tmp_path, f"http_sd: [{entry}]\n")[0]
    assert problem.startswith(expected), problem


def test_the_word_of_prometheus_is_explained(tmp_path: Path) -> None:
    (problem, *_) = problems_of(tmp_path, "http_sd_configs: [{url: 'http://a:1'}]\ntargets: [a:1]\n")
    assert problem == (
        "http_sd_configs: this key is not allowed here. Write http_sd:, with hosts: for the servers that it may name."
    )


CREDENTIALS = """
target_defaults:
  interval: 10s
  auth: {bearer_token_env: TOKEN}
  headers: {X-Scope: chat, X-Key: {env: TOKEN}}
"""


def test_credentials_of_all_targets_do_not_go_to_those_that_a_server_names(tmp_path: Path) -> None:
    config = load_text(tmp_path, CREDENTIALS + LEAST + "file_sd: [{files: [a.yml]}]\n", environ={"TOKEN": "x"})
    files, named = config.discovery
    assert isinstance(files, FileDiscovery)
    assert has_credentials(files.defaults.http)
    assert named.defaults.interval_seconds == 10.0
    assert named.defaults.http.headers == (("X-Scope", "chat"),)
    assert not has_credentials(named.defaults.http)
    place = f"{tmp_path}/config.yml: http_sd[0]: credentials in target_defaults"
    assert list(config.warnings) == [
        f"{place}.{key} do not go to the targets of this section; write them in its own defaults"
        for key in ("auth", "headers")
    ]


def test_a_section_sends_the_credentials_of_its_own_defaults(tmp_path: Path) -> None:
    own = CREDENTIALS + LEAST.replace("}]", ", defaults: {auth: {bearer_token_env: OWN}, headers: {X-A: b}}}]")
    config = load_text(tmp_path, own, environ={"TOKEN": "x", "OWN": "y"})
    assert config.discovery[0].defaults.http.bearer_token == Secret(env="OWN")
    assert config.warnings == ()


def test_a_secret_for_the_list_over_http_is_warned_about(tmp_path: Path) -> None:
    text = "http_sd: [{url: 'http://inventory:80/', hosts: ['*'], auth: {bearer_token_env: T}}]\n"
    config = load_text(tmp_path, text, environ={"T": "x"})
    assert config.warnings == (
        f"{tmp_path}/config.yml: http_sd[0]: a secret is sent over http to another host; use https",
    )


@check_rows(
    ("http", "any_credentials", "in_clear"),
    [
        (HttpSettings(), False, False),
        (HttpSettings(headers=(("X-A", "b"),), ca_file="ca", server_name="x"), False, False),
        (HttpSettings(bearer_token=Secret(env="T")), True, True),
        (HttpSettings(basic_username="u", basic_password=Secret(env="T")), True, True),
        (HttpSettings(headers=(("X-A", Secret(env="T")),)), True, True),
        (HttpSettings(cert_file="c", key_file="k"), True, False),
    ],
)
def test_what_counts_as_a_credential(http: HttpSettings, any_credentials: bool, in_clear: bool) -> None:
    assert (has_credentials(http), sends_secret(http)) == (any_credentials, in_clear)
    bare = drop_credentials(http)
    assert not has_credentials(bare)
    assert (bare.ca_file, bare.server_name) == (http.ca_file, http.server_name)
