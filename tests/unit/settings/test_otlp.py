"""`otlp:`: where all series are sent, and how."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llm_serving_exporter.model.target import HttpSettings, Secret
from llm_serving_exporter.settings import endpoints as otlp
from llm_serving_exporter.settings.config import OtlpConfig, effective
from tests.support.builders.configuration import load_flags, load_text, problems_of, problems_of_flags

TARGET = ("--target", "a:1")
URL = ("--otlp.url", "http://collector:4318")


def test_nothing_is_sent_unless_a_receiver_is_named() -> None:
    assert load_flags(*TARGET).otlp is None


def test_a_flag_that_says_how_without_where_is_warned_of() -> None:
    said = load_flags(*TARGET, "--otlp.gen-ai.operation", "chat").warnings
    assert [one for one in said if "otlp" in one] == [
        "flag --otlp.gen-ai.operation: not used, because otlp.url is not set"
    ]
    assert not any("not used" in one for one in load_flags(*TARGET).warnings)


def test_a_url_is_enough() -> None:
    assert load_flags(*TARGET, *URL).otlp == OtlpConfig(
        "http://collector:4318", http=HttpSettings(timeout_seconds=10.0, max_body_bytes=65536)
    )


def test_everything_that_can_be_said(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hidden-value")
    text = """
targets: ['a:1']
otlp:
  url: https://prometheus:9090/api/v1/otlp/v1/metrics
  interval: 30s
  timeout: 5s
  auth: {bearer_token_file: token}
  headers: {X-Scope-OrgID: llm}
  resource: {service.name: llm, deployment.environment.name: prod}
"""
    config = load_text(tmp_path, text)
    assert config.otlp == OtlpConfig(
        "https://prometheus:9090",
        "/api/v1/otlp/v1/metrics",
        30.0,
        HttpSettings(
            timeout_seconds=5.0,
            max_body_bytes=65536,
            bearer_token=Secret(file=str(tmp_path / "token")),
            headers=(("X-Scope-OrgID", "llm"),),
        ),
        (("deployment.environment.name", "prod"), ("service.name", "llm")),
    )
    assert "hidden-value" not in json.dumps(effective(config))


def test_what_is_wrong_is_said_with_what_to_write(tmp_path: Path) -> None:
    assert problems_of_flags(*TARGET, *URL, "--otlp.timeout", "20s") == [
        "flag --otlp.timeout: the timeout of 20s is not below the interval of 15s. "
        "Write a shorter one; where none is written it is 80 % of the interval, at most 10s."
    ]
    text = "targets: ['a:1']\notlp: {url: 'http://b:1', resource: {'a b': x}}\n"
    assert problems_of(tmp_path, text) == [
        'otlp.resource.a b: "a b" is not the name of an attribute. Write one as in deployment.environment.name.'
    ]


def test_settings_without_a_receiver_are_warned_of(tmp_path: Path) -> None:
    config = load_text(tmp_path, "targets: ['a:1']\notlp: {interval: 30s}\n")
    assert next(one for one in config.warnings if "otlp" in one).endswith("otlp: not used, because otlp.url is not set")


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "_is_installed", lambda: False)
    assert problems_of_flags(*TARGET, *URL) == [
        "flag --otlp.url: the messages of OpenTelemetry are not installed. "
        "Run pip install 'llm-serving-exporter[otlp]'."
    ]
