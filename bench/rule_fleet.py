"""What the rules read of a large fleet: a simulated one with everything that is recorded of it, laid side by side.

Labels and counts of series come from the exporter's own collector beside simulated replicas, and from the rules themselves. A model of four
simulated replicas, each with a node and its GPUs, becomes one of twenty; every other two models are the pools of one, prefill and decode.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.blocks import Series
from bench.chunks import Shape
from llm_serving_alerts.rules import Group, Record
from tests.simweek.build import Plan, simulated

SCENARIOS = ("calm-day", "kv-pressure")
# of the simulation: what is kept of it, and repeated, is the end
_SECONDS, _KEPT_MINUTES = 4500.0, 60
_COPIES_A_MODEL = 5
_SINGLE = ("target", "node", "gpu", "instance")
_MINUTE_MS = 60_000
# of a query
_LOOK_BACK_MS = 5 * _MINUTE_MS
_NAME = re.compile(
    r"(?<![:\w])(?:(?:\w+:)?llm_serving_\w+(?::\w+)?|process_\w+|alertmanager_\w+|prometheus_\w+|kube_\w+)"
)


@dataclass(frozen=True)
class Template:
    """One series of the simulated fleet, with its name among its labels."""

    labels: dict[str, str]
    shape: Shape


@dataclass(frozen=True)
class Fleet:
    """What is laid side by side."""

    templates: tuple[Template, ...]
    targets: int  # of one copy

    def copies(self, targets: int) -> int:
        """How many models each simulated one has to become for so many targets, or a few more."""
        return math.ceil(targets / (self.targets * _COPIES_A_MODEL))

    def targets_of(self, models: int) -> int:
        """How many targets so many copies have."""
        return self.targets * models * _COPIES_A_MODEL

    def series(self, models: int) -> list[Series]:
        """All of them, each once."""
        found: dict[tuple[tuple[str, str], ...], Series] = {}
        for template in self.templates:
            for labels in _copied(template.labels, models):
                own = tuple(sorted(labels.items()))
                found.setdefault(own, Series(own, template.shape))
        return list(found.values())


def simulate(groups: Iterable[Group], interval_ms: int, folder: Path, say: Callable[[str], None]) -> Fleet:
    """Simulates the fleet for an hour and keeps what these rules read, at the interval of a scrape and of those who record."""
    known = tuple(groups)
    wanted = read_by(known)
    recorded = {
        rule.record: round(1000 * group.interval_seconds) if group.interval_seconds else interval_ms
        for group in known
        for rule in group.rules
        if isinstance(rule, Record)
    }
    plan = Plan(time.time() // 3600 * 3600, scenarios=SCENARIOS, seconds=_SECONDS, calm_seconds=0.0)
    templates, shapes = [], dict[tuple[int, tuple[float, ...]], Shape]()
    with simulated(plan, folder, say) as database:
        for row in database.rows('{__name__!=""}'):
            made = json.loads(row)
            name = made["metric"]["__name__"]
            if name not in wanted:
                continue
            values = _minutes(made["timestamps"], made["values"], round(plan.end_unix_seconds * 1000))
            if values is None:
                continue
            own_ms = recorded.get(name, interval_ms)
            key = own_ms, tuple(values)
            shape = shapes.get(key) or shapes.setdefault(key, Shape(list(_between(values, own_ms)), own_ms))
            templates.append(Template(made["metric"], shape))
    targets = {one.labels["target"] for one in templates if one.labels["__name__"] == "llm_serving_target_info"}
    return Fleet(tuple(templates), len(targets))


def read_by(groups: Iterable[Group]) -> frozenset[str]:
    """The series that rules read, scraped and recorded."""
    return frozenset(name for group in groups for rule in group.rules for name in _NAME.findall(rule.expr))


def _minutes(stamps: list[int], values: list[float | None], end_ms: int) -> list[float] | None:
    """Its values minute by minute, the next one where there is none; None for what a query at the end does not find."""
    kept = {stamp: float(value) for stamp, value in zip(stamps, values, strict=True) if value is not None}
    last = max(kept, default=0)
    if last <= end_ms - _LOOK_BACK_MS:
        return None
    before = kept[last]
    found = []
    for ago in range(_KEPT_MINUTES):
        before = kept.get(end_ms - ago * _MINUTE_MS, before)
        found.append(before)
    return found[::-1]


def _between(values: list[float], interval_ms: int) -> Iterator[float]:
    """The same at another interval over two hours: the hour twice, what lies between two minutes on a line; counts stay whole."""
    for at_ms in range(0, 2 * _KEPT_MINUTES * _MINUTE_MS, interval_ms):
        minute, rest = divmod(at_ms, _MINUTE_MS)
        first, second = values[minute % len(values)], values[(minute + 1) % len(values)]
        if not rest or minute % len(values) == len(values) - 1:
            yield first
            continue
        between = first + (second - first) * rest / _MINUTE_MS
        yield float(math.floor(between)) if first.is_integer() and second.is_integer() else between


def _copied(labels: dict[str, str], models: int) -> Iterator[dict[str, str]]:
    """A model's series once a model, a replica's, a node's, a GPU's or an exporter's once a copy of it; all others once."""
    single = [name for name in _SINGLE if name in labels]
    for model in range(models if "model_name" in labels or single else 1):
        for copy in range(_COPIES_A_MODEL if single else 1):
            found = {**labels, **{name: f"{labels[name]}-{model}-{copy}" for name in single}}
            pool = model % 4 - 2
            if "model_name" in labels:
                # a pair of pools has one name
                found["model_name"] = f"{labels['model_name']}-{model - max(pool, 0)}"
            if labels.get("role") == "unified" and pool >= 0:
                found["role"] = ("prefill", "decode")[pool]
            yield found
