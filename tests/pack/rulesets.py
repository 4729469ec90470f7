"""Other rules than the committed ones for cases to be judged by: a part of them, or other settings.

A set says what may be evaluated: over series that stand for what other groups recorded, these must be silent. Of the set a test file gets
what its questions rest on (narrowing.py).
"""

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePath
from typing import Any

import yaml

from llm_serving_alerts.render import ALERTS, RECORDS, rule_files, rule_groups
from llm_serving_alerts.settings import Settings
from llm_serving_alerts.settings_file import read_settings
from tests.support.yaml_text import load_yaml

BESIDE = "beside"
# libyaml's, where PyYAML was built with it: ten times as fast
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


@dataclass(frozen=True)
class RuleSet:
    """`groups`: those that are kept, without the prefix; `settings`: YAML, the defaults where "" is given. `evaluated`: how often."""

    groups: tuple[str, ...]
    settings: str = ""
    evaluated: str = "1m"
    beside: tuple[str, ...] = ()  # groups that are evaluated over recorded series too, beside the alerts


# what there was, and what of it is lost
_BESIDE = ("missing",)
PRESENCE = ("exporters", "seen", "said", "history", "memory", "presence", *_BESIDE)
_NODE_LOSS = (
    "identity", "targets", *PRESENCE, "traffic", "kv", "work", "rates", "capacity", "node-loss", "rollouts", "autoscaling",
    "node-loss.alerts",
)  # fmt: skip
_SIGNALS = ("identity", "workloads", "signals", "exporter.alerts")

RULESETS = {
    "phases": RuleSet(
        (
            "targets",
            "traffic",
            "latency.inter-token-latency",
            "kv",
            "work",
            "bandwidth",
            "tokens",
            "baselines",
            "phases.alerts",
        )
    ),
    "outliers": RuleSet(("targets", "traffic", "stalled", "kv", "work", "outliers", "phases.alerts")),
    "ttft": RuleSet(("slo", "latency.time-to-first-token", "ttft.alerts")),
    # an hour is the longest window of a page: a front door is gone by after it
    "ttft_front_doors": RuleSet(
        ("slo", "traffic.requests", "latency.time-to-first-token", "ttft.alerts"),
        "burn: {fast: [{long: 1h, short: 5m, factor: 14.4}], slow: [{long: 2h, short: 30m, factor: 3}]}",
    ),
    "slo": RuleSet(("slo", "traffic", "stalled", "slo.alerts")),
    "kv": RuleSet(("targets", "traffic", "kv", "baselines", "kv.alerts")),
    "tail": RuleSet(("traffic", "kv", "tail", "tail.alerts")),
    "gpu": RuleSet(("identity", "gpu", "gpu.alerts")),
    "exporter": RuleSet(("identity", "claims", "targets", "exporter.alerts", "watchdog", "traffic", *PRESENCE)),
    "signals": RuleSet(_SIGNALS),
    # the clock of these tests starts in 1970
    "signals_retired": RuleSet(
        _SIGNALS,
        "retired: [{model_name: gone, until: 1970-01-01T00:58:00Z}, {model_name: kept, role: decode, until: 2036-01-01T00:00:00Z},"
        " {model_name: past, until: 1970-01-01T00:01:00Z}]",
    ),
    "signals_long": RuleSet(_SIGNALS, "memory: 28h", "2m"),
    "burns": RuleSet(("identity", "targets", *PRESENCE, "slo", "traffic", "kv", "work", "node-loss", "ttft.alerts")),
    # the histories begin at 1970
    "retired": RuleSet(
        ("identity", "targets", "traffic", *PRESENCE, "exporter.alerts"),
        "retired: [{model_name: busy, until: 1970-01-01T01:30:00Z}]",
    ),
    "exporter_clusters": RuleSet(("exporters", "seen", "exporter.alerts"), "identity_labels: [cluster]"),
    "known_scrape": RuleSet(
        ("identity", "claims", "exporter.alerts"), "renamed_labels: [namespace, pod, container, node]"
    ),
    "identity_namespaces": RuleSet(
        ("identity", "targets", *PRESENCE, "exporter.alerts"), "identity_labels: [namespace]"
    ),
    "identity_clusters": RuleSet(("identity", "claims", "exporter.alerts"), "identity_labels: [cluster]"),
    "node_loss": RuleSet(_NODE_LOSS, beside=_BESIDE),
    # N-1 alone, over what the other groups would have recorded
    "n1": RuleSet(("identity", "node-loss")),
    "two_nodes": RuleSet(_NODE_LOSS, "node_loss: {tolerate_nodes: 2}", beside=_BESIDE),
    "workloads": RuleSet(
        _NODE_LOSS,
        "node_loss: {workloads: [{model_name: chat, namespace: llm, kind: statefulset, name: chat, pods_per_replica: 2}]}",
        beside=_BESIDE,
    ),
    "clusters": RuleSet(_NODE_LOSS, "identity_labels: [cluster]", beside=_BESIDE),
    # over what the other groups would have recorded
    "autoscaled": RuleSet(
        ("autoscaling",),
        "node_loss: {workloads: ["
        + ", ".join(
            f"{{model_name: {name}, namespace: llm, kind: deployment, name: {name}}}"
            for name in ("limited", "full", "fixed", "waits")
        )
        + "]}",
    ),
    "rollouts": RuleSet(
        (*_NODE_LOSS, "exporter.alerts"),
        "node_loss: {workloads: [{model_name: chat, namespace: llm, kind: statefulset, name: chat},"
        " {model_name: dev, namespace: llm, kind: deployment, name: dev}]}",
    ),
    # over what the other groups would have recorded
    "cost": RuleSet(("cost", "cost.alerts"), evaluated="2m"),
    # a day of counters takes promtool twenty seconds
    "cost_hours": RuleSet(
        ("cost.hours", "cost.shares", "cost.alerts"), "alerts: {BudgetExceeded: {hours: 6, for: 2h}}", "2m"
    ),
    # clusters stand beside one another in one history, where there is no model to tell stories apart by
    "cost_clusters": RuleSet(("cost.alerts",), "identity_labels: [cluster]", "2m"),
    "gpu_clusters": RuleSet(("identity", "gpu", "gpu.alerts"), "identity_labels: [cluster]"),
    "drill": RuleSet(_NODE_LOSS, "drill: {max_age: 90d}", beside=_BESIDE),
}


def committed_records() -> dict[str, list[dict[str, Any]]]:
    """The groups of all recording rules with the default settings, by the name of their file."""
    return {"records.yml": _all_groups("")[RECORDS]}


@cache
def read_groups(rule_file: str) -> list[dict[str, Any]]:
    """The groups of a rule file that a test file names: `rules/SET.KIND.yml` with records, alerts or beside as KIND, or a path."""
    path = PurePath(rule_file)
    if path.is_absolute():
        return list(load_yaml(Path(path).read_text(encoding="utf-8"))["groups"])
    name, _, kind = path.stem.rpartition(".")
    rules = RULESETS[name]
    if kind == BESIDE:
        return keep_groups(_all_groups(rules.settings)[RECORDS], rules.beside)
    return keep_groups(_all_groups(rules.settings)[kind], rules.groups)


def alerts_left_out(rule_file: str) -> set[str]:
    """Alerts that the settings of a set have and that its file of alerts has not."""
    rules = RULESETS[PurePath(rule_file).stem.rpartition(".")[0]]
    every, kept = _all_groups(rules.settings)[ALERTS], read_groups(rule_file)
    return _alert_names(every) - _alert_names(kept)


def _alert_names(groups: Iterable[dict[str, Any]]) -> set[str]:
    return {rule["alert"] for group in groups for rule in group["rules"]}


def group_order(rules: str) -> list[str]:
    """Every group of a set, or of all rules for "", as the files have them: promtool takes them in any order where none is given, so that
    what rests on four of them is up to four minutes late, or is not."""
    return list(_group_names(RULESETS[rules].settings if rules else ""))


@cache
def _group_names(settings: str) -> tuple[str, ...]:
    # every case asks while it is collected: without the text of the files, which takes ten times as long
    groups = rule_groups(read_settings_text(settings))
    return tuple(group.name for kind in (RECORDS, ALERTS) for group in groups[kind])


@cache
def _all_groups(settings: str) -> dict[str, list[dict[str, Any]]]:
    files = rule_files(read_settings_text(settings))
    return {kind: load_yaml(files[f"{kind}.yml"])["groups"] for kind in (RECORDS, ALERTS)}


def read_settings_text(settings: str) -> Settings:
    """Settings out of YAML, the defaults for ""."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "settings.yml")
        path.write_text(settings, encoding="utf-8")
        return read_settings(str(path) if settings else None)[0]


def belongs(group: str, wanted: Iterable[str]) -> bool:
    """Whether a group is one of these or a part of one; the alerts of a check are asked for by their own name."""
    return group in wanted or any(
        group.startswith(f"{name}.") and (".alerts" in name) == (".alerts" in group) for name in wanted
    )


def keep_groups(groups: Iterable[dict[str, Any]], names: Iterable[str]) -> list[dict[str, Any]]:
    """Those of a rule file's groups that have one of these names, which come without their prefix."""
    wanted = [f"llm-serving.{name}" for name in names]
    return [group for group in groups if belongs(group["name"], wanted)]


def as_yaml(document: Any) -> str:
    """A document as promtool reads it."""
    return str(yaml.dump(document, Dumper=_DUMPER, sort_keys=False, allow_unicode=True, width=1_000_000))
