"""Series of others that the rules may use, declared once. Where one is not scraped, what rests on it is silent, and nothing else."""

from __future__ import annotations

import re
from dataclasses import dataclass

from llm_serving_alerts.settings import Workload


@dataclass(frozen=True, slots=True)
class External:
    """A series of another exporter."""

    name: str  # of the series
    publisher: str  # that exports it
    used_for: str  # in the rules


@dataclass(frozen=True, slots=True)
class RuleSeries(External):
    """A series about groups of rules, by the one who evaluates them."""

    label: str = "rule_group"  # that names the group


def _about_rules(name: str, publisher: str, label: str = "rule_group") -> RuleSeries:
    return RuleSeries(name, publisher, "whether rules are evaluated", label)


def _wanted(name: str) -> External:
    return External(name, "kube-state-metrics", "how many replicas are wanted")


DEPLOYMENT_REPLICAS = _wanted("kube_deployment_spec_replicas")
STATEFULSET_REPLICAS = _wanted("kube_statefulset_replicas")
# kind of a workload, as Kubernetes writes it -> how many of its pods are wanted, and the label that names it; of what kube-state-metrics
# exports unless told otherwise
KUBE_REPLICAS = {
    "Deployment": (DEPLOYMENT_REPLICAS, "deployment"),
    "StatefulSet": (STATEFULSET_REPLICAS, "statefulset"),
    "ReplicaSet": (_wanted("kube_replicaset_spec_replicas"), "replicaset"),
    "ReplicationController": (_wanted("kube_replicationcontroller_spec_replicas"), "replicationcontroller"),
    "DaemonSet": (_wanted("kube_daemonset_status_desired_number_scheduled"), "daemonset"),
}
_KUBE, _ROLLOUTS = "kube-state-metrics", "whether a rollout makes progress"
# by kind of workload: what was asked for last, and what its controller has seen of it
GENERATIONS = {
    kind: (
        External(f"kube_{kind}_metadata_generation", _KUBE, _ROLLOUTS),
        External(f"kube_{kind}_status_observed_generation", _KUBE, _ROLLOUTS),
    )
    for kind in ("deployment", "statefulset")
}
POD_CREATED = External("kube_pod_created", _KUBE, _ROLLOUTS)
POD_OWNER = External("kube_pod_owner", _KUBE, _ROLLOUTS)
POD_READY = External("kube_pod_status_ready", _KUBE, _ROLLOUTS)
_NODES = "whether a replica's node has gone, or was closed"
NODE_CLOSED = External("kube_node_spec_unschedulable", _KUBE, _NODES)
NODE_CONDITION = External("kube_node_status_condition", _KUBE, _NODES)
NODE_INFO = External("kube_node_info", _KUBE, _NODES)
_AUTOSCALER = "how many replicas an autoscaler may add"
AUTOSCALER_MOST = External("kube_horizontalpodautoscaler_spec_max_replicas", _KUBE, _AUTOSCALER)
AUTOSCALER_INFO = External("kube_horizontalpodautoscaler_info", _KUBE, _AUTOSCALER)
NOTIFICATIONS_FAILED = External(
    "alertmanager_notifications_failed_total", "Alertmanager", "whether pages can be delivered"
)
NOTIFICATIONS = External(
    "alertmanager_notifications_total", "Alertmanager", "which share of them could not be delivered"
)
DAEMONSET_PODS = External(
    "kube_daemonset_status_desired_number_scheduled", "kube-state-metrics", "how many exporters there should be"
)
UP = External("up", "Prometheus itself, of each scrape", "whether an exporter answers")
SCRAPE_SECONDS = External(
    "scrape_duration_seconds", "Prometheus itself, of each scrape", "whether the host of an exporter answers"
)
PROCESS_START = External("process_start_time_seconds", "the exporter's own process", "its restarts")

_PROMETHEUS, _MIMIR, _VMALERT = "Prometheus or Thanos Ruler", "Mimir", "vmalert"
# counters that grow, and gauges that are 1, where rules are not evaluated as they should be; with a word of what it means. vmalert
# 1.79 has gauges of failed rules, newer ones count them.
RULE_COUNTERS = {
    "rules whose query failed": (
        _about_rules("prometheus_rule_evaluation_failures_total", _PROMETHEUS),
        _about_rules("cortex_prometheus_rule_evaluation_failures_total", _MIMIR),
        _about_rules("vmalert_alerting_rules_errors_total", _VMALERT, "group"),
        _about_rules("vmalert_recording_rules_errors_total", _VMALERT, "group"),
    ),
    "groups that were still busy when their next turn came": (
        _about_rules("prometheus_rule_group_iterations_missed_total", _PROMETHEUS),
        _about_rules("cortex_prometheus_rule_group_iterations_missed_total", _MIMIR),
        _about_rules("vmalert_iteration_missed_total", _VMALERT, "group"),
    ),
}
RULE_STATES = {
    "rules that fail now": (
        _about_rules("vmalert_alerting_rules_error", _VMALERT, "group"),
        _about_rules("vmalert_recording_rules_error", _VMALERT, "group"),
    )
}
# for the runbook
RULE_TIMES = (
    External("prometheus_rule_group_last_duration_seconds", _PROMETHEUS, "how long a group takes"),
    External("prometheus_rule_group_interval_seconds", _PROMETHEUS, "how long it may take"),
)

FIRING = External("ALERTS", "whoever evaluates the rules", "what fires, for verdicts")

EXTERNALS = (
    FIRING,
    *(wanted for wanted, _ in KUBE_REPLICAS.values()),
    *(one for pair in GENERATIONS.values() for one in pair),
    POD_CREATED,
    POD_OWNER,
    POD_READY,
    NODE_CLOSED,
    NODE_CONDITION,
    NODE_INFO,
    AUTOSCALER_MOST,
    AUTOSCALER_INFO,
    DAEMONSET_PODS,
    UP,
    SCRAPE_SECONDS,
    NOTIFICATIONS_FAILED,
    NOTIFICATIONS,
    PROCESS_START,
    *RULE_TIMES,
    *(one for known in (RULE_COUNTERS, RULE_STATES) for series in known.values() for one in series),
)


def wanted_replicas(workload: Workload) -> str:
    """How many pods kube-state-metrics says are wanted."""
    name = DEPLOYMENT_REPLICAS if workload.kind == "deployment" else STATEFULSET_REPLICAS
    return " or ".join(about_workload(workload, name))


def about_workload(workload: Workload, series: External) -> tuple[str, str]:
    """Selectors of a series of kube-state-metrics about a workload, for either name of its namespace."""
    return in_namespace(workload, series, f'{workload.kind}="{quote(workload.name)}"')


def in_namespace(workload: Workload, series: External, matchers: str) -> tuple[str, str]:
    """Selectors of a series in a workload's namespace. Its `namespace` is the workload's, unless a scrape without `honor_labels` has put
    that of kube-state-metrics in its place."""
    namespace = f'"{quote(workload.namespace)}"'
    return (
        f'{series.name}{{namespace={namespace},exported_namespace="",{matchers}}}',
        f"{series.name}{{exported_namespace={namespace},{matchers}}}",
    )


def pods_owned(workload: Workload) -> str:
    """A matcher for `kube_pod_owner`: of a Deployment's pods the owner is one of its replica sets, called after it."""
    name = quote(workload.name)
    if workload.kind == "deployment":
        return f'owner_kind="ReplicaSet",owner_name=~"{quote(re.escape(workload.name))}-[a-z0-9]+"'
    return f'owner_kind="StatefulSet",owner_name="{name}"'


def quote(text: str) -> str:
    """A text as it stands within quotation marks."""
    return text.replace("\\", r"\\").replace('"', r"\"")
