"""What a recording rule and an alert are, and the groups that they stand in. Frozen; nothing here knows YAML or a file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

ALERT_PREFIX = "LLMServing"
# level:metric:operations (prometheus.io/docs/practices/rules)
_RECORD = re.compile(r"(gpu|engine|target|model|model_gpu|model_node|fleet):llm_serving_[a-z0-9_]+:[a-z0-9_]+\Z")


class Severity(StrEnum):
    """Who is told: critical pages, warning is a ticket, info is context and notifies nobody, none is for the watchdog."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"
    NONE = "none"


# from the quietest on
LOUDNESS = (Severity.NONE, Severity.INFO, Severity.WARNING, Severity.CRITICAL)


class Check(StrEnum):
    """What an alert belongs to: the five operational checks, the other objectives, and what all of them rest on."""

    PHASES = "phases"
    TTFT = "ttft"
    KV = "kv"
    TAIL = "tail"
    NODE_LOSS = "node_loss"
    SLO = "slo"
    COST = "cost"
    GPU = "gpu"
    EXPORTER = "exporter"

    @property
    def dashboard(self) -> str:
        """The uid of the dashboard that shows it."""
        shown_with = {Check.TTFT: "latency", Check.SLO: "latency", Check.TAIL: "kv"}
        return f"llm-serving-{shown_with.get(self, self.value).replace('_', '-')}"


@dataclass(frozen=True, slots=True)
class Record:
    """A recording rule. `record`: level:metric:operations; `labels` are set on what it yields; `about`: what it is, for the reference."""

    record: str
    expr: str
    about: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not _RECORD.match(self.record):
            raise ValueError(f"{self.record!r} is not level:llm_serving_metric:operations")


@dataclass(frozen=True, slots=True)
class AlertRule:
    """An alert as it is rendered. `alert` has the prefix; times in seconds."""

    alert: str
    expr: str
    for_seconds: float
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


# Mimir's default limit of a group (ruler_max_rules_per_rule_group)
MOST_RULES = 20


@dataclass(frozen=True, slots=True)
class Group:
    """Rules that are evaluated together and in order. `interval_seconds`: None for the server's own. Raises ValueError for more rules
    than every ruler takes."""

    name: str
    rules: tuple[Record | AlertRule, ...]
    interval_seconds: float | None = None

    def __post_init__(self) -> None:
        if len(self.rules) > MOST_RULES:
            raise ValueError(f"group {self.name} has {len(self.rules)} rules, more than {MOST_RULES}")
