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
    """What users are promised of one kind of event."""

    objective: float  # share of events that has to be good, below 1
    # of a latency: longer is bad; None: no threshold and so no alert, and for errors
    threshold_seconds: float | None = None

    @property
    def budget(self) -> float:
        """The share that may be bad."""
        return 1.0 - self.objective


@dataclass(frozen=True, slots=True)
class BurnWindow:
    """A pair of windows of a burn-rate alert, which fires where both spend the error budget too fast."""

    long_seconds: float  # shows that enough of the budget was spent
    short_seconds: float  # shows that it is still being spent, and ends the alert soon after
    factor: float  # how many times as fast as the budget lasts for its period


@dataclass(frozen=True, slots=True)
class Baseline:
    """From when on a baseline counts."""

    history_seconds: float  # how long a model must have been seen
    since_unix_seconds: float | None  # nothing older than this moment counts; None: no such moment
    settle_seconds: float  # age from which a target counts: before, its caches are cold


@dataclass(frozen=True, slots=True)
class Workload:
    """Where kube-state-metrics knows how many replicas of a model are wanted."""

    model_name: str  # as served
    role: str  # of the replicas
    namespace: str  # of Kubernetes
    kind: str  # deployment or statefulset
    name: str  # of that object
    pods_per_replica: int = 1  # above 1 for a replica that spans several pods


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
    """What a user may set of one alert."""

    enabled: bool  # False: no rule is rendered
    for_seconds: float  # how long its condition must hold before it fires
    severity: Severity | None  # None: its own, as the rule states it
    labels: Mapping[str, str]  # added to those of the rule
    values: Mapping[str, float]  # its thresholds, by their names in its line of settings.yml; durations in seconds

    def __getitem__(self, name: str) -> float:
        return self.values[name]


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that a user may set about the rules."""

    scrape_interval_seconds: float  # of the exporter by Prometheus: every range holds four
    identity_labels: tuple[str, ...]  # labels that the scrape adds and that tell fleets apart; (): none
    labels: Mapping[str, str]  # on every alert
    severity_cap: Severity  # the loudest that any alert may be
    runbook_url: str  # with {alert} for the alert's name; "": no link
    dashboard_url: str  # with {uid} for the dashboard's; "": no link
    runtimes: tuple[str, ...]  # that are served: thresholds are held against the edges of their buckets
    slo: Mapping[str, Objective]  # by name of the objective
    period_seconds: float  # that all error budgets are for
    burn: Mapping[str, tuple[BurnWindow, ...]]  # by speed, fast and slow
    baseline: Baseline  # for alerts that compare with what is usual
    node_loss: NodeLoss  # for the question whether the fleet survives without a node
    drill_max_age_seconds: float | None  # how old the last passed drill may be; None: nobody is reminded
    alerts: Mapping[str, AlertSettings]  # by name without prefix

    def capped(self, severity: Severity) -> Severity:
        """The severity, or the cap where that is quieter."""
        return min(severity, self.severity_cap, key=LOUDNESS.index)
