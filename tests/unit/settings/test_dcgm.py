"""`dcgm:`: where dcgm-exporter is, and how it is asked."""

from __future__ import annotations

import json
from pathlib import Path

from llm_serving_exporter.model.target import HttpSettings, Secret
from llm_serving_exporter.settings.config import DcgmConfig, effective
from tests.support.builders.configuration import load_flags, load_text, problems_of, problems_of_flags

TARGET = ("--target", "http://localhost:8000")
URL = ("--dcgm.url", "http://gpu-1:9400")


def test_without_a_url_none_is_read() -> None:
    assert load_flags(*TARGET).dcgm is None
    assert load_flags(*TARGET, environ={"LLM_SERVING_EXPORTER_DCGM_URL": ""}).dcgm is None


def test_a_url_alone_gives_the_defaults_of_the_type() -> None:
    config = load_flags(*TARGET, *URL)
    assert config.dcgm == DcgmConfig("http://gpu-1:9400")
    assert config.warnings == ()


def test_every_setting(tmp_path: Path) -> None:
    text = """
targets: ['a:1']
scrape: {max_series: 2000, max_body_bytes: 4MiB}
dcgm:
  url: https://gpu-1:9443/dcgm/metrics
  interval: 15s
  timeout: 3s
  auth: {basic: {username: reader, password_file: secrets/password}}
  headers: {X-Scope: blue, X-Token: {env: TOKEN}}
  tls: {server_name: dcgm.internal}
"""
    config = load_text(tmp_path, text, environ={"TOKEN": "hunter2"})
    assert config.dcgm == DcgmConfig(
        url="https://gpu-1:9443",
        metrics_path="/dcgm/metrics",
        interval_seconds=15.0,
        max_series=2000,
        http=HttpSettings(
            timeout_seconds=3.0,
            max_body_bytes=4 * 2**20,
            basic_username="reader",
            basic_password=Secret(file=str(tmp_path / "secrets/password")),
            headers=(("X-Scope", "blue"), ("X-Token", Secret(env="TOKEN"))),
            server_name="dcgm.internal",
        ),
    )
    shown = json.dumps(effective(config))
    assert "hunter2" not in shown
    assert json.loads(shown)["dcgm"]["http"]["basic_password"] == {"file": str(tmp_path / "secrets/password")}


def test_the_default_timeout_follows_the_interval() -> None:
    config = load_flags(*TARGET, *URL, "--dcgm.interval", "5s")
    assert config.dcgm.http.timeout_seconds == 4.0


def test_a_flag_for_the_url_keeps_what_the_file_says_beside_it(tmp_path: Path) -> None:
    text = "targets: ['a:1']\ndcgm: {url: 'http://b:1', auth: {bearer_token_env: TOKEN}}\n"
    config = load_text(tmp_path, text, "--dcgm.url", "https://c:9400", environ={"TOKEN": "x"})
    assert (config.dcgm.url, config.dcgm.http.bearer_token) == ("https://c:9400", Secret(env="TOKEN"))


def test_settings_change_the_hash() -> None:
    hashes = [load_flags(*TARGET, *flags).config_hash for flags in ((), URL, (*URL, "--dcgm.interval", "10s"))]
    assert len(set(hashes)) == 3


def test_problems_name_the_place() -> None:
    assert problems_of_flags(*TARGET, "--dcgm.url", "gpu-1") == [
        'flag --dcgm.url: "gpu-1" names no port. Write one such as http://localhost:8000.'
    ]
    assert problems_of_flags(*TARGET, *URL, "--dcgm.timeout", "40s") == [
        "flag --dcgm.timeout: the timeout of 40s is not below the interval of 30s. "
        "Write a shorter one; where none is written it is 80 % of the interval, at most 10s."
    ]


def test_a_header_beside_auth_is_refused(tmp_path: Path) -> None:
    text = """
targets: ['a:1']
dcgm: {url: 'https://b:1', auth: {bearer_token_env: T}, headers: {Authorization: {env: T}}}
"""
    expected = ["dcgm: both auth and a header Authorization are given. Keep one of them."]
    assert problems_of(tmp_path, text, environ={"T": "x"}) == expected


def test_warnings(tmp_path: Path) -> None:
    def warnings(text: str, *flags: str) -> list[str]:
        found = load_text(tmp_path, f"targets: ['a:1']\n{text}\n", *flags, environ={"T": "x"}).warnings
        return [warning.removeprefix(f"{tmp_path}/config.yml: ") for warning in found]

    assert warnings("dcgm: {interval: 10s}") == ["dcgm: not used, because dcgm.url is not set"]
    assert warnings("dcgm: {interval: 10s}", *URL) == []
    assert warnings("gpu: {enabled: false}\ndcgm: {url: 'http://b:1'}") == [
        "dcgm.url: not used, because gpu.enabled is false: which GPUs there are is known from NVML only"
    ]
    assert warnings("dcgm: {url: 'http://b:1', auth: {bearer_token_env: T}}") == [
        "dcgm.url: a secret is sent over http to another host; use https"
    ]
    assert warnings("dcgm: {url: 'https://b:1', tls: {insecure_skip_verify: true}}") == [
        "dcgm.url: insecure_skip_verify is on: anyone on the way to the server can forge its metrics"
    ]
