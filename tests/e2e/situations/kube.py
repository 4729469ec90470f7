"""What kube-state-metrics says of a simulated fleet whose replicas are pods of one workload.

Names and labels as kube-state-metrics 2.10 documents them (docs/metrics/workload and cluster). What it shows by default; `kube_pod_labels`
needs an allow-list and is left out.
"""

import uuid
from collections.abc import Iterator

from llm_serving_exporter.model.target import Identity
from llm_serving_simulator.fleet.fleet import Fleet, Replica, ReplicaState
from llm_serving_simulator.fleet.history import Sample
from tests.e2e.situations.situation import Situation

NAMESPACE = "llm"
DAEMONSET = "llm-serving-exporter"
# until a pod of a lost node is evicted: the node is found not ready after 40 s, its pods tolerate that for 300 s (Kubernetes' defaults)
EVICTED_SECONDS = 340.0
ROLLOUTS = ("upgrade", "rolling-update")
_KINDS = {"deployment": "Deployment", "statefulset": "StatefulSet"}


def identities(situation: Situation) -> dict[str, Identity]:
    """Who the replicas are, as discovery in Kubernetes says it."""
    kind = _KINDS.get(situation.kube or "deployment", "")
    return {
        spec.name: Identity(
            namespace=NAMESPACE, pod=spec.name, container="engine", workload=spec.engine.served_name, workload_kind=kind
        )
        for spec in situation.scenario.replicas
    }


class Pods:
    """Which replicas have a pod, minute by minute."""

    def __init__(self, situation: Situation, fleet: Fleet) -> None:
        self._fleet = fleet
        self._replaces = bool(situation.rollouts)
        self._down_since: dict[str, float] = {}
        # when the next pod of a replica was made, which pulls its image before a process starts in it
        self._pulls_since: dict[str, float] = {}
        self._created: dict[tuple[str, int], float] = {}

    def exist(self, replica: Replica) -> bool:
        """Whether Kubernetes still has the pod: it goes with its node, some minutes later."""
        if replica.state is not ReplicaState.DOWN:
            self._down_since.pop(replica.name, None)
            return replica.state is not ReplicaState.STOPPED or self._pulls(replica)
        since = self._down_since.setdefault(replica.name, self._fleet.now_seconds)
        return self._fleet.now_seconds - since < EVICTED_SECONDS

    def created_seconds(self, replica: Replica) -> float:
        """When the pod of a replica was made, in the fleet's seconds."""
        if self._pulls(replica):
            return self._pulls_since.setdefault(replica.name, self._fleet.now_seconds)
        key = replica.name, replica.starts
        if replica.name in self._pulls_since:
            self._created[key] = self._pulls_since.pop(replica.name)
        return self._created.get(key, replica.started_seconds)

    def _pulls(self, replica: Replica) -> bool:
        return self._replaces and replica.wanted and replica.state is ReplicaState.STOPPED


def samples(situation: Situation, fleet: Fleet, pods: Pods, seconds: float) -> Iterator[Sample]:
    """All that it says now; `seconds` of the scenario."""
    if seconds < situation.removed_seconds:
        yield from _of_workload(situation, fleet, pods, seconds)
    yield from _of_nodes(situation, fleet, seconds)


def _of_workload(situation: Situation, fleet: Fleet, pods: Pods, seconds: float) -> Iterator[Sample]:
    kind, name = situation.kube, situation.name
    owner = {"namespace": NAMESPACE, kind: name}
    of_events = [event.at_seconds for event in situation.scenario.events if event.what in ROLLOUTS]
    rollouts = sorted((*of_events, *situation.rollouts))
    begun = sum(at <= seconds for at in rollouts)
    scaled = [event.at_seconds for event in situation.scenario.events if event.what == "scale"]
    generation = 1 + sum(at <= seconds for at in (*rollouts, *scaled))
    there = [replica for replica in _own(situation, fleet) if pods.exist(replica)]
    ready = [replica for replica in there if replica.ready]
    # of the newest revision: started since the rollout began
    began = fleet.now_seconds - seconds + max((at for at in rollouts if at <= seconds), default=-1e9)
    created = {replica.name: pods.created_seconds(replica) for replica in there}
    new = [replica for replica in there if created[replica.name] >= began]
    desired = wanted(situation, fleet)
    spec = "kube_statefulset_replicas" if kind == "statefulset" else "kube_deployment_spec_replicas"
    yield spec, owner, desired
    yield f"kube_{kind}_metadata_generation", owner, generation
    yield f"kube_{kind}_status_observed_generation", owner, generation
    yield f"kube_{kind}_status_replicas", owner, len(there)
    yield f"kube_{kind}_status_replicas_ready", owner, len(ready)
    yield f"kube_{kind}_status_replicas_available", owner, len(ready)
    yield f"kube_{kind}_status_replicas_updated", owner, len(new)
    if kind == "statefulset":
        yield "kube_statefulset_status_replicas_current", owner, len(there) - len(new)
        yield "kube_statefulset_status_update_revision", {**owner, "revision": f"{name}-{begun}"}, 1
    else:
        for number in range(begun + 1):
            revision = {"namespace": NAMESPACE, "replicaset": f"{name}-{number}"}
            at = situation_start(fleet, seconds) + ([0.0, *rollouts][number] if number else -86_400.0)
            yield "kube_replicaset_created", revision, at
            yield "kube_replicaset_owner", {**revision, "owner_kind": "Deployment", "owner_name": name}, 1
            own = len(new) if number == begun else len(there) - len(new)
            yield "kube_replicaset_spec_replicas", revision, own
    for replica in there:
        number = begun if replica in new or not begun else begun - 1
        controller = (
            {"owner_kind": "StatefulSet", "owner_name": name}
            if kind == "statefulset"
            else {"owner_kind": "ReplicaSet", "owner_name": f"{name}-{number}"}
        )
        pod = {
            "namespace": NAMESPACE,
            "pod": replica.name,
            "uid": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{replica.name}/{created[replica.name]}")),
        }
        yield "kube_pod_info", {**pod, "node": replica.spec.nodes[0], "created_by_kind": controller["owner_kind"],
                                "created_by_name": controller["owner_name"]}, 1  # fmt: skip
        yield "kube_pod_owner", {**pod, **controller, "owner_is_controller": "true"}, 1
        yield "kube_pod_created", pod, fleet.unix_seconds(created[replica.name])
        yield "kube_pod_start_time", pod, fleet.unix_seconds(created[replica.name])
        for condition in ("true", "false", "unknown"):
            state = "unknown" if replica.state is ReplicaState.DOWN else "true" if replica.ready else "false"
            yield "kube_pod_status_ready", {**pod, "condition": condition}, float(condition == state)
    if situation.autoscaled is not None:
        least, most = situation.autoscaled
        scaler = {"namespace": NAMESPACE, "horizontalpodautoscaler": name}
        target = {**scaler, "scaletargetref_kind": _KINDS[kind], "scaletargetref_name": name}
        yield "kube_horizontalpodautoscaler_info", target, 1
        yield "kube_horizontalpodautoscaler_spec_min_replicas", scaler, least
        yield "kube_horizontalpodautoscaler_spec_max_replicas", scaler, most
        yield "kube_horizontalpodautoscaler_status_current_replicas", scaler, len(there)
        yield "kube_horizontalpodautoscaler_status_desired_replicas", scaler, desired


def _of_nodes(situation: Situation, fleet: Fleet, seconds: float) -> Iterator[Sample]:
    for node in fleet.nodes:
        lost = node in fleet.lost_nodes
        yield "kube_node_info", {"node": node}, 1
        yield "kube_node_spec_unschedulable", {"node": node}, float(node in cordoned(situation, seconds))
        for status in ("true", "false", "unknown"):
            of_node = {"node": node, "condition": "Ready", "status": status}
            yield "kube_node_status_condition", of_node, float(status == ("unknown" if lost else "true"))
    if len(situation.exporters) > 1:
        daemonset = {"namespace": "monitoring", "daemonset": DAEMONSET}
        yield "kube_daemonset_status_desired_number_scheduled", daemonset, len(situation.exporters)


def wanted(situation: Situation, fleet: Fleet) -> int:
    """Replicas that the workload's specification asks for: an upgrade changes which, not how many."""
    if any(event.what == "upgrade" for event in situation.scenario.events):
        ready = situation.scenario.ready
        return len(situation.scenario.replicas) if ready is None else ready
    return sum(replica.wanted for replica in _own(situation, fleet))


def _own(situation: Situation, fleet: Fleet) -> list[Replica]:
    """Replicas of the workload: those that serve the situation's own model."""
    return [replica for replica in fleet.replicas.values() if replica.spec.engine.served_name == situation.name]


def situation_start(fleet: Fleet, seconds: float) -> float:
    """Unix seconds of the scenario's second 0."""
    return fleet.unix_seconds(fleet.now_seconds - seconds)


def cordoned(situation: Situation, seconds: float) -> set[str]:
    """Nodes that a drain has closed: those that a situation's acts name with `cordon`."""
    return {act.node for at, act in situation.acts if isinstance(act, Drain) and at <= seconds < act.until_seconds}


class Drain:
    """`kubectl drain`: the node is closed, its replicas end; at `until_seconds` (of the scenario) it is opened again and they start."""

    def __init__(self, node: str, until_seconds: float) -> None:
        self.node, self.until_seconds = node, until_seconds

    def __call__(self, fleet: Fleet) -> None:
        for replica in fleet.replicas.values():
            if self.node in replica.spec.nodes and replica.ready:
                fleet.stop(replica.name)


class Uncordon:
    """The end of a drain."""

    def __init__(self, node: str) -> None:
        self.node = node

    def __call__(self, fleet: Fleet) -> None:
        for replica in fleet.replicas.values():
            if self.node in replica.spec.nodes and replica.state is ReplicaState.STOPPED:
                fleet.restart(replica.name)
