"""What an exporter showed of a simulated fleet, as promtool takes it."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from llm_serving_alerts.promql import Dialect
from llm_serving_alerts.records import record_groups
from llm_serving_alerts.render import groups_text
from llm_serving_alerts.rules import Group, Record
from llm_serving_alerts.settings_file import default_settings
from llm_serving_simulator.fleet.fleet import ReplicaSpec
from llm_serving_simulator.fleet.history import Sample
from tests.pack.judging import ask
from tests.pack.rulesets import belongs
from tests.support.yaml_text import load_yaml

Shown = dict[tuple[str, tuple[tuple[str, str], ...]], list[float | None]]


def groups(*names: str) -> tuple[Group, ...]:
    """Some groups of the recording rules: a promtool that evaluates all of them takes many times as long."""
    wanted = {f"llm-serving.{name}" for name in names}
    return tuple(group for group in record_groups(Dialect(), default_settings()) if belongs(group.name, wanted))


def read_by(found: Iterable[Group]) -> frozenset[str]:
    """The exporter's series that rules read."""
    expressions = " ".join(rule.expr for group in found for rule in group.rules if isinstance(rule, Record))
    return frozenset(re.findall(r"\bllm_serving_\w+", expressions))


def keep(shown: Shown, number: int, samples: Iterable[Sample]) -> None:
    """Adds the reading `number` (from 0) to what was shown."""
    for name, labels, value in samples:
        values = shown.setdefault((name, tuple(labels.items())), [])
        values += [None] * (number - len(values)) + [value]


def keep_start(shown: Shown, number: int, replicas: Iterable[ReplicaSpec], unix_seconds: float) -> None:
    """Adds to the reading when the replicas started, before promtool's first second. No server did so before 1970, the gate of values says,
    and a watch leaves it out."""
    started = "llm_serving_target_start_time_seconds"
    keep(shown, number, ((started, {"target": replica.name}, unix_seconds) for replica in replicas))


def input_series(shown: Shown, renamed: Mapping[str, Mapping[str, str]] | None = None) -> Iterable[dict[str, str]]:
    """For promtool. `renamed`: by label, old value -> new, so that fleets of one model can stand beside one another."""
    for (name, labels), values in shown.items():
        own = {label: (renamed or {}).get(label, {}).get(value, value) for label, value in labels}
        matchers = ",".join(f'{label}="{value}"' for label, value in own.items())
        text = " ".join("_" if value is None else f"{value:.12g}" for value in values)
        yield {"series": f"{name}{{{matchers}}}", "values": text}


def judge(
    folder: Path, rules: Iterable[Group], series: list[dict[str, str]], expected: list[dict[str, Any]], *, every: str
) -> str:
    """promtool's verdict on `promql_expr_test`s; "" where all hold. `every`: seconds between readings, as text."""
    made = load_yaml(groups_text(tuple(rules)))["groups"]
    history = {one["series"]: one["values"] for one in series}
    return ask(folder, history, expected, {"rules.yml": made}, interval=every)
