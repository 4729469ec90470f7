"""What a user may set, as the rules get it: frozen, checked, times in seconds.

A field with `key(…)` declares a key of the settings file. Its default and its explanation are in settings.yml, which users copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from llm_serving_alerts.identity_labels import RENAMED, read_label_values
from llm_serving_alerts.retired import Retired, read_retired
from llm_serving_alerts.rules import LOUDNESS, Severity
from llm_serving_alerts.setting_kinds import (
    EVALUATION_DELAY,
    LABEL_NAME,
    MEMORY,
    MOMENT,
    NUMBER,
    QUERIES_URL,
    RATIO,
    RECEIVER,
    RUNTIME,
    SEVERITY,
    URL_TEMPLATE,
)
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.settings import kinds
from llm_serving_exporter.settings.keys import key, list_reader

# an objective's name in slo_events_total{slo}; errors has no threshold
LATENCY_SLOS = ("ttft", "itl", "e2e")
SLOS = (*LATENCY_SLOS, "errors")


@dataclass(frozen=True, slots=True)
class Objective:
    """A service level objective."""

    # the share of events that has to be good
    objective: float
    # from how many seconds on an event is bad; None: no threshold, no alert
    threshold_seconds: float | None = None

    @property
    def budget(self) -> float:
        """The share that may be bad."""
        return 1.0 - self.objective


@dataclass(frozen=True, slots=True)
class BurnWindow:
    """A pair of windows of a burn-rate alert, which fires where both spend the error budget too fast."""

    long_seconds: float = key(kinds.DURATION, name="long", required=True)  # shows that enough of the budget was spent
    # shows that it is still being spent, and ends the alert soon after
    short_seconds: float = key(kinds.DURATION, name="short", required=True)
    factor: float = key(NUMBER, required=True)  # how many times as fast as the budget lasts for its period


@dataclass(frozen=True, slots=True)
class Baseline:
    """`baseline:`: from when on a baseline counts, and whose."""

    # for how long a model must have been seen
    history_seconds: float = key(kinds.DURATION, name="history", unset=0.0)
    # or from which moment on (Unix seconds); None = by history alone
    since_unix_seconds: float | None = key(MOMENT, name="since")
    # how old a target must be
    settle_seconds: float = key(kinds.DURATION, name="settle", unset=0.0)


@dataclass(frozen=True, slots=True)
class Panels:
    """`panels:`: where the lines of panels are drawn that no alert watches."""

    # of a day's spend that was idle
    idle_above: float = key(RATIO, unset=1.0)
    # of all context tokens, of the longest hundredth of the requests
    long_context_share_above: float = key(RATIO, unset=1.0)
    # of the median of 7 days of the memory bandwidth in use
    bandwidth_below: float = key(RATIO, unset=0.0)
    # of an engine's KV cache: with less in use, requests do not wait for memory
    free_kv_below: float = key(RATIO, unset=0.0)


@dataclass(frozen=True, slots=True)
class Receivers:
    """`receivers:`: what the routes of Alertmanager call those who are told."""

    # of pages
    critical: str = key(RECEIVER, unset="pagerduty")
    # of tickets
    warning: str = key(RECEIVER, unset="tickets")


@dataclass(frozen=True, slots=True)
class Workload:
    """Where kube-state-metrics knows how many replicas of a model are wanted."""

    model_name: str = key(kinds.text("model name"), required=True)  # as served
    namespace: str = key(kinds.text("namespace"), required=True)  # of Kubernetes
    kind: str = key(kinds.choice("kind", ("deployment", "statefulset")), required=True)  # deployment or statefulset
    name: str = key(kinds.text("workload's name"), required=True)  # of that object
    role: str = key(kinds.choice("role", [role.value for role in Role]), default=Role.UNIFIED.value)  # of the replicas
    pods_per_replica: int = key(kinds.integer(1, 1000), default="1")  # above 1 for a replica that spans several pods
    # its targets' identity labels, but for those that namespace and name are
    labels: Mapping[str, str] = key(read_label_values, unset={})


@dataclass(frozen=True, slots=True)
class NodeLoss:
    """`node_loss:`: how N-1 is calculated."""

    # share of its ceilings that a replica is expected to reach where nothing was measured
    efficiency: float = key(RATIO, unset=1.0)
    # nodes that may be lost at a time
    tolerate_nodes: int = key(kinds.integer(1, 2), unset=1)
    # from the order of a replica to its first request
    scale_lag_seconds: float = key(kinds.DURATION, name="scale_lag", unset=0.0)
    # how long replicas that a rollout replaces are excused
    rollout_limit_seconds: float = key(kinds.DURATION, name="rollout_limit", unset=0.0)
    # whose desired replicas kube-state-metrics knows
    workloads: tuple[Workload, ...] = ()


@dataclass(frozen=True, slots=True)
class AlertSettings:
    """One alert."""

    enabled: bool  # False: no rule is rendered
    for_seconds: float  # how long its condition must hold before it fires
    # None = its own
    severity: Severity | None
    labels: Mapping[str, str]  # added to those of the rule
    # by the names of its line in settings.yml, durations in seconds
    values: Mapping[str, float]

    def __getitem__(self, name: str) -> float:
        return self.values[name]

    def for_seconds_of(self, severity: Severity) -> float:
        """How long the condition of one severity must hold, where it has a time of its own (`warning_for`)."""
        return self.values.get(f"{severity}_for", self.for_seconds)


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be set for the rules."""

    # of the exporter by Prometheus: every range holds four
    scrape_interval_seconds: float = key(kinds.INTERVAL, name="scrape_interval", unset=0.0)
    # how long after its time a moment is looked at
    evaluation_delay_seconds: float = key(EVALUATION_DELAY, name="evaluation_delay", unset=0.0)
    # labels that tell fleets apart, by what all replicas of a workload share; (): none
    identity_labels: tuple[str, ...] = key(list_reader(LABEL_NAME, "label names"), unset=())
    # those of them that every series of a scrape or a Prometheus has
    external_labels: tuple[str, ...] = key(list_reader(LABEL_NAME, "label names"), unset=())
    # labels that the scrape renames and that shall not be spoken of
    renamed_labels: tuple[str, ...] = key(RENAMED, unset=())
    severity_cap: Severity = key(SEVERITY, unset=Severity.CRITICAL)  # the loudest that any alert may be
    # with {alert} for the alert's name; "": the command that prints the runbook
    runbook_url: str = key(URL_TEMPLATE, unset="")
    # with {queries} for those of the runbook; "": no link
    queries_url: str = key(QUERIES_URL, unset="")
    # with {uid} for the dashboard's; "": its path in a Grafana
    dashboard_url: str = key(URL_TEMPLATE, unset="")
    # that are served: thresholds are held against the edges of their buckets
    runtimes: tuple[str, ...] = key(list_reader(RUNTIME, "runtimes"), unset=())
    # on every alert
    labels: Mapping[str, str] = field(default_factory=dict)
    # by name
    slo: Mapping[str, Objective] = field(default_factory=dict)
    # of all objectives
    period_seconds: float = 1.0
    # by speed: fast and slow
    burn: Mapping[str, tuple[BurnWindow, ...]] = field(default_factory=dict)
    baseline: Baseline = field(default_factory=Baseline)  # for alerts that compare with what is usual
    node_loss: NodeLoss = field(default_factory=NodeLoss)  # for the question whether the fleet survives without a node
    # how long it is remembered what was there
    memory_seconds: float = key(MEMORY, name="memory", unset=0.0)
    # what was taken away on purpose
    retired: tuple[Retired, ...] = key(read_retired, unset=())
    # None = nobody is reminded of drills
    drill_max_age_seconds: float | None = None
    receivers: Receivers = field(default_factory=Receivers)  # who is told, by severity
    panels: Panels = field(default_factory=Panels)  # lines that no alert watches
    # by name, without the prefix
    alerts: Mapping[str, AlertSettings] = field(default_factory=dict)

    @property
    def own_labels(self) -> tuple[str, ...]:
        """The identity labels that targets have of their own."""
        return tuple(name for name in self.identity_labels if name not in self.external_labels)

    def capped(self, severity: Severity) -> Severity:
        """The severity, or the cap where that is quieter."""
        return min(severity, self.severity_cap, key=LOUDNESS.index)
