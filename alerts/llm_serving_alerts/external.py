"""Series of others that the rules may use, declared once. Where one is not scraped, what rests on it is silent, and nothing else."""

from __future__ import annotations

import re

from llm_serving_alerts.settings import Workload

# --- of kube-state-metrics

# how many replicas are wanted
DEPLOYMENT_REPLICAS, STATEFULSET_REPLICAS = "kube_deployment_spec_replicas", "kube_statefulset_replicas"
# kind of a workload, as Kubernetes writes it -> how many of its pods are wanted, and the label that names it; of what kube-state-metrics
# exports unless told otherwise
KUBE_REPLICAS = {
    "Deployment": (DEPLOYMENT_REPLICAS, "deployment"),
    "StatefulSet": (STATEFULSET_REPLICAS, "statefulset"),
    "ReplicaSet": ("kube_replicaset_spec_replicas", "replicaset"),
    "ReplicationController": ("kube_replicationcontroller_spec_replicas", "replicationcontroller"),
    "DaemonSet": ("kube_daemonset_status_desired_number_scheduled", "daemonset"),
}
# of them, how many exporters there should be
DAEMONSET_PODS = "kube_daemonset_status_desired_number_scheduled"
# whether a rollout makes progress; by kind of workload: what was asked for last, and what its controller has seen of it
GENERATIONS = {
    kind: (f"kube_{kind}_metadata_generation", f"kube_{kind}_status_observed_generation")
    for kind in ("deployment", "statefulset")
}
POD_CREATED, POD_OWNER, POD_READY = "kube_pod_created", "kube_pod_owner", "kube_pod_status_ready"
# whether a replica's node has gone, or was closed
NODE_CLOSED, NODE_CONDITION, NODE_INFO = "kube_node_spec_unschedulable", "kube_node_status_condition", "kube_node_info"
# how many replicas an autoscaler may add
AUTOSCALER_MOST = "kube_horizontalpodautoscaler_spec_max_replicas"
AUTOSCALER_INFO = "kube_horizontalpodautoscaler_info"

# --- of Alertmanager: whether pages can be delivered, and which share of them could not be

NOTIFICATIONS_FAILED, NOTIFICATIONS = "alertmanager_notifications_failed_total", "alertmanager_notifications_total"

# --- of Prometheus itself, by scrape: whether an exporter answers, and whether its host does; of the exporter's own process: its restarts

UP, SCRAPE_SECONDS, PROCESS_START = "up", "scrape_duration_seconds", "process_start_time_seconds"

# --- of whoever evaluates the rules: Prometheus or Thanos Ruler (prometheus_), Mimir (cortex_), vmalert

# what fires, for verdicts
FIRING = "ALERTS"
# counters that grow, and gauges that are 1, where rules are not evaluated as they should be; with a word of what it means. vmalert
# 1.79 has gauges of failed rules, newer ones count them.
RULE_COUNTERS = {
    "rules whose query failed": (
        "prometheus_rule_evaluation_failures_total",
        "cortex_prometheus_rule_evaluation_failures_total",
        "vmalert_alerting_rules_errors_total",
        "vmalert_recording_rules_errors_total",
    ),
    "groups that were still busy when their next turn came": (
        "prometheus_rule_group_iterations_missed_total",
        "cortex_prometheus_rule_group_iterations_missed_total",
        "vmalert_iteration_missed_total",
    ),
}
RULE_STATES = {"rules that fail now": ("vmalert_alerting_rules_error", "vmalert_recording_rules_error")}
# how long a group takes, and how long it may: for the runbook
RULE_TIMES = ("prometheus_rule_group_last_duration_seconds", "prometheus_rule_group_interval_seconds")

EXTERNALS = frozenset(
    (
        *(wanted for wanted, _ in KUBE_REPLICAS.values()),
        *(name for names in (GENERATIONS, RULE_COUNTERS, RULE_STATES) for series in names.values() for name in series),
        *(POD_CREATED, POD_OWNER, POD_READY, NODE_CLOSED, NODE_CONDITION, NODE_INFO, AUTOSCALER_MOST, AUTOSCALER_INFO),
        *(NOTIFICATIONS_FAILED, NOTIFICATIONS, UP, SCRAPE_SECONDS, PROCESS_START, FIRING, *RULE_TIMES),
    )
)


def find_group_label(series: str) -> str:
    """The label by which a series about rules names their group."""
    return "group" if series.startswith("vmalert_") else "rule_group"


def wanted_replicas(workload: Workload) -> str:
    """How many pods kube-state-metrics says are wanted."""
    name = DEPLOYMENT_REPLICAS if workload.kind == "deployment" else STATEFULSET_REPLICAS
    return " or ".join(about_workload(workload, name))


def about_workload(workload: Workload, series: str) -> tuple[str, str]:
    """Selectors of a series of kube-state-metrics about a workload, for either name of its namespace."""
    return in_namespace(workload, series, f'{workload.kind}="{quote(workload.name)}"')


def in_namespace(workload: Workload, series: str, matchers: str) -> tuple[str, str]:
    """Selectors of a series in a workload's namespace. Its `namespace` is the workload's, unless a scrape without `honor_labels` has put
    that of kube-state-metrics in its place."""
    namespace = f'"{quote(workload.namespace)}"'
    return (
        f'{series}{{namespace={namespace},exported_namespace="",{matchers}}}',
        f"{series}{{exported_namespace={namespace},{matchers}}}",
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
