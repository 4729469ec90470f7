"""Series of others that the rules may use, declared once. Where one is not scraped, what rests on it is silent, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from llm_serving_alerts.settings import Workload


@dataclass(frozen=True, slots=True)
class External:
    """A series of another exporter."""

    name: str  # of the series
    publisher: str  # that exports it
    used_for: str  # in the rules


DEPLOYMENT_REPLICAS = External("kube_deployment_spec_replicas", "kube-state-metrics", "how many replicas are wanted")
STATEFULSET_REPLICAS = External("kube_statefulset_replicas", "kube-state-metrics", "how many replicas are wanted")
NOTIFICATIONS_FAILED = External(
    "alertmanager_notifications_failed_total", "Alertmanager", "whether pages can be delivered"
)
NOTIFICATIONS = External(
    "alertmanager_notifications_total", "Alertmanager", "which share of them could not be delivered"
)
PROCESS_START = External("process_start_time_seconds", "the exporter's own process", "its restarts")

EXTERNALS = (DEPLOYMENT_REPLICAS, STATEFULSET_REPLICAS, NOTIFICATIONS_FAILED, NOTIFICATIONS, PROCESS_START)


def wanted_replicas(workload: Workload) -> str:
    """How many pods kube-state-metrics says are wanted. Its `namespace` is the workload's, unless a scrape without `honor_labels` has put
    that of kube-state-metrics in its place."""
    name = DEPLOYMENT_REPLICAS.name if workload.kind == "deployment" else STATEFULSET_REPLICAS.name
    namespace, which = f'"{_quoted(workload.namespace)}"', f'{workload.kind}="{_quoted(workload.name)}"'
    return f'{name}{{namespace={namespace},exported_namespace="",{which}}} or {name}{{exported_namespace={namespace},{which}}}'


def _quoted(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"")
