"""Series and firing alerts for cases, in few words. A sample a minute unless a case says otherwise."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from urllib.parse import quote_plus

from llm_serving_alerts.render import ALERTS, rule_groups
from llm_serving_alerts.rules import AlertRule
from tests.pack.judging import write_labels
from tests.pack.promtool import Firing
from tests.pack.rulesets import RULESETS, read_settings_text

STATES = ("ready", "loading", "sleeping", "down", "unknown")
EDGES = ("0.5", "1.0", "2.5", "5.0", "+Inf")
NOTHING = "_"
# the set whose settings have every alert
EVERY_ALERT = "drill"
_IN_LINK = re.compile(r"\{\{ \$labels\.(\w+) \| urlquery \}\}")


@dataclass(frozen=True)
class Grows:
    """A counter that grows by so much per sample for so many samples. `reborn`: it starts from 0 again."""

    samples: int
    by: float
    reborn: bool = False


def counter(*spans: Grows, start: float = 0.0) -> str:
    """A counter with its first sample at the beginning: spans of n samples end n intervals later."""
    parts, value = [f"{start:g}"], start
    for span in spans:
        # a reborn counter starts at 0 within the span's first interval
        first = 0.0 if span.reborn else value + span.by
        parts.append(f"{first:g}+{span.by:g}x{span.samples - 1}" if span.samples > 1 else f"{first:g}")
        value = first + span.by * (span.samples - 1)
    return " ".join(parts)


def held(*spans: tuple[int, float | str]) -> str:
    """A gauge by (samples, value); `NOTHING` for no sample, "stale" for a series that has ended."""
    parts = []
    for samples, value in spans:
        if isinstance(value, str):
            parts.append(value if samples == 1 or value == "stale" else f"{value}x{samples}")
        else:
            parts.append(f"{value:g}+0x{samples - 1}")
    return " ".join(parts)


def engine(model: str, target: str = "", number: str = "0", role: str = "unified") -> str:
    """The labels of an engine's series; the target is named after the model unless it has a name."""
    return f'target="{target or f"{model}-0"}",model_name="{model}",engine="{number}",role="{role}"'


def of_model(model: str, role: str = "unified") -> str:
    """The labels of a model's recorded series."""
    return f'model_name="{model}",role="{role}"'


def as_model(model: str, role: str = "unified", **more: str) -> str:
    """The labels of a model's series as an answer has them."""
    return write_labels({"model_name": model, "role": role, **more})


def as_target(target: str, model: str = "chat", role: str = "unified", **more: str) -> str:
    """The labels of a target's series as an answer has them."""
    return write_labels({"target": target, "model_name": model, "role": role, **more})


def rounded(expression: str) -> str:
    """As far as figures are compared."""
    return f"round({expression}, 0.0001)"


def buckets(
    name: str, identity: str, *spans: tuple[int, Mapping[str, float]], reborn: int = -1, edges: tuple[str, ...] = EDGES
) -> dict[str, str]:
    """A histogram by (samples, events a sample in each bucket): given apart, made cumulative. `reborn`: the span that it restarts at."""
    series = {}
    for last, edge in enumerate(edges):
        grows = [
            Grows(samples, sum(events.get(below, 0.0) for below in edges[: last + 1]), number == reborn)
            for number, (samples, events) in enumerate(spans)
        ]
        series[f'llm_serving_{name}_bucket{{{identity},le="{edge}"}}'] = counter(*grows)
    return series


def target(
    model: str, name: str = "", *states: tuple[int, str], role: str = "unified", runtime: str = "vllm"
) -> dict[str, str]:
    """What is always said of a target, by (samples, state), with its start long ago; target_up is 1 while it is ready or asleep."""
    name = name or f"{model}-0"
    spans = states or ((121, "ready"),)
    total = sum(samples for samples, _ in spans)
    info = f'target="{name}",runtime="{runtime}",version="0.32.0",model_name="{model}",role="{role}",group=""'
    found = {f"llm_serving_target_info{{{info}}}": held((total, 1))}
    for state in STATES:
        found[f'llm_serving_target_state{{target="{name}",state="{state}"}}'] = held(
            *((samples, float(now == state)) for samples, now in spans)
        )
    found[f'llm_serving_target_up{{target="{name}"}}'] = held(
        *((samples, float(now in ("ready", "sleeping"))) for samples, now in spans)
    )
    return found


@cache
def read_rules(rules: str) -> dict[str, dict[str, AlertRule]]:
    """The alerts of a set's settings as they are rendered, by name and severity."""
    found: dict[str, dict[str, AlertRule]] = {}
    for group in rule_groups(read_settings_text(RULESETS[rules].settings))[ALERTS]:
        for rule in group.rules:
            if isinstance(rule, AlertRule):
                found.setdefault(rule.alert, {})[rule.labels["severity"]] = rule
    return found


def firing(
    alert: str,
    labels: Mapping[str, str],
    summary: str,
    description: str,
    *,
    severity: str = "",
    action: str = "",
    rules: str = EVERY_ALERT,
) -> Firing:
    """An alert as it is delivered. What its rule says to the letter is taken from there: alerts/rendered holds it.

    `severity`: of an alert that has several. `action`: where it has a value in it. `rules`: the set whose settings say which labels tell
    targets apart. A label of its link that it has not is empty there.
    """
    tiers = read_rules(rules)[f"LLMServing{alert}"]
    rule = tiers[severity] if severity else next(iter(tiers.values()))
    if not severity and len(tiers) > 1:
        raise ValueError(f"{alert} has several severities: say which")
    if ("{{" in rule.annotations["action"]) != bool(action):
        raise ValueError(f"{alert}: its action has {'a' if not action else 'no'} value in it")

    return Firing(
        {**rule.labels, **labels},
        {
            "summary": summary,
            "description": description,
            "action": action or rule.annotations["action"],
            "runbook": rule.annotations["runbook"],
            "dashboard": _IN_LINK.sub(
                lambda found: quote_plus(labels.get(found[1], "")), rule.annotations["dashboard"]
            ),
        },
    )


def told(series: Mapping[str, str]) -> dict[str, str]:
    """The series, and that each exporter tells of a target as long as it counts for it."""
    found = dict(series)
    for name, values in series.items():
        who = ",".join(re.findall(r'\b(?:instance|cluster|target)="[^"]*"', name))
        if "_total{" in name:
            found.setdefault(f"llm_serving_target_up{{{who}}}", values)
    return found
