"""Every alert of the rules with example labels, as it would reach Alertmanager."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from llm_serving_alerts.alerting import ALERTS
from llm_serving_alerts.render import every_rule, rule_groups
from llm_serving_alerts.rules import ALERT_PREFIX, AlertRule
from llm_serving_alerts.settings import Settings
from llm_serving_alerts.settings_file import read_settings

EXAMPLES = {
    "model_name": "model-a",
    "role": "unified",
    "target": "replica-1",
    "engine": "0",
    "slo": "ttft",
    "node": "node-1",
    "gpu": "GPU-1",
    "gpu_name": "NVIDIA H100 80GB HBM3",
    "instance": "10.0.0.1:10077",
}
Labels = Mapping[str, str]
Frozen = frozenset[tuple[str, str]]
# all that are off by default are on, and every threshold is set
EVERYTHING = """
slo: {itl: {threshold: 0.2s}, e2e: {threshold: 30s}}
drill: {max_age: 90d}
"""
IDENTITY = "identity_labels: [cluster, namespace]\n"


def settings_of(text: str, folder: Path) -> Settings:
    """Settings from the text of a settings file."""
    path = folder / "my-rules.yml"
    path.write_text(text)
    return read_settings(str(path))[0]


def example_alerts(settings: Settings, others: Mapping[str, str] | None = None) -> Iterator[dict[str, str]]:
    """The labels of each alert that the settings render, one a rule; `others`: examples that go before EXAMPLES."""
    identity = {f"{ALERT_PREFIX}{alert.name}": alert.identity for alert in ALERTS}
    examples = {**EXAMPLES, **(others or {})}
    for rule in every_rule(rule_groups(settings)):
        if isinstance(rule, AlertRule):
            names = (*settings.identity_labels, *identity[rule.alert])
            own = {name: examples.get(name, f"some-{name}") for name in names}
            yield {"alertname": rule.alert, **own, **rule.labels}


def frozen(labels: Labels) -> Frozen:
    """Labels as a key."""
    return frozenset(labels.items())


def named(name: str, severity: str, check: str, **labels: str) -> dict[str, str]:
    """The labels of an alert of ours."""
    return {"alertname": f"LLMServing{name}", "severity": severity, "check": check, **labels}


def of_model(name: str, severity: str, check: str, model: str = "model-a", **labels: str) -> dict[str, str]:
    """The labels of one that is about a model."""
    return named(name, severity, check, model_name=model, role="unified", **labels)
