"""What a user may set, as the rules get it: frozen, checked, times in seconds. `settings_file` reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from llm_serving_alerts.rules import LOUDNESS, Severity

# an objective's name in slo_events_total{slo}; errors has no threshold
LATENCY_SLOS = ("ttft", "itl", "e2e")
SLOS = (*LATENCY_SLOS, "errors")


@dataclass(frozen=True, slots=True)
class Objective:
    """The share of events that has to be good, and for a latency from how many seconds on one is bad (None: no threshold, no alert)."""

    objective: float
    threshold_seconds: float | None = None

    @property
    def budget(self) -> float:
        """The share that may be bad."""
        return 1.0 - self.objective


@dataclass(frozen=True, slots=True)
class BurnWindow:
    """Fires where the budget is spent `factor` times too fast over both windows."""

    long_seconds: float
    short_seconds: float
    factor: float


@dataclass(frozen=True, slots=True)
class Baseline:
    """From when on a baseline counts: after so much history, or since a moment (Unix seconds); and the age of a target that counts."""

    history_seconds: float
    since_unix_seconds: float | None
    settle_seconds: float


@dataclass(frozen=True, slots=True)
class Workload:
    """Where kube-state-metrics knows how many replicas of a model are wanted. `kind`: deployment or statefulset."""

    model_name: str
    role: str
    namespace: str
    kind: str
    name: str
    pods_per_replica: int = 1


@dataclass(frozen=True, slots=True)
class NodeLoss:
    """How N-1 is calculated."""

    efficiency: float  # share of its ceilings that a replica is expected to reach where nothing was measured
    tolerate_nodes: int  # nodes that may be lost at a time
    scale_lag_seconds: float  # from the order of a replica to its first request
    redundancy: bool  # whether a model on a single node is reported
    workloads: tuple[Workload, ...]  # whose desired replicas kube-state-metrics knows


@dataclass(frozen=True, slots=True)
class AlertSettings:
    """One alert: `severity` None for its own; `values` by the names of its line in settings.yml, durations in seconds."""

    enabled: bool
    for_seconds: float
    severity: Severity | None
    labels: Mapping[str, str]
    values: Mapping[str, float]

    def __getitem__(self, name: str) -> float:
        return self.values[name]


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything. `alerts` by name without prefix; `burn` by fast and slow; `slo` by name, `period_seconds` that of all objectives."""

    scrape_interval_seconds: float
    identity_labels: tuple[str, ...]
    labels: Mapping[str, str]
    severity_cap: Severity
    runbook_url: str
    dashboard_url: str
    runtimes: tuple[str, ...]
    slo: Mapping[str, Objective]
    period_seconds: float
    burn: Mapping[str, tuple[BurnWindow, ...]]
    baseline: Baseline
    node_loss: NodeLoss
    drill_max_age_seconds: float | None
    alerts: Mapping[str, AlertSettings]

    def capped(self, severity: Severity) -> Severity:
        """The severity, or the cap where that is quieter."""
        return min(severity, self.severity_cap, key=LOUDNESS.index)
