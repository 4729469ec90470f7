"""Histories of rollouts, drains and autoscalers: what the exporter and kube-state-metrics say of them, minute by minute."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.pack.builders import NOTHING, STATES
from tests.pack.builders_kv import flat, selector

Series = dict[str, str]

# what a pod is in a minute: as the exporter says, "pulls" (there is a pod, and no server yet), or "" (there is no pod)
Minutes = Sequence[str]


def minutes(*spans: tuple[str, int]) -> list[str]:
    """`minutes(("ready", 10), ("loading", 5))`."""
    return [state for state, count in spans for _ in range(count)]


def _values(each: Iterable[float | None]) -> str:
    """Samples; a series ends where there is none after one."""
    found: list[str] = []
    before = False
    for value in each:
        found.append(f"{value:g}" if value is not None else "stale" if before else NOTHING)
        before = value is not None
    return " ".join(found)


@dataclass(frozen=True)
class Pods:
    """Pods of one name one after the other: a new one after each minute of "". `node`: where they stand."""

    name: str
    model: str
    states: Minutes
    node: str = "a"


def exported(pods: Pods) -> Series:
    """What the exporter says of the server in them."""
    served = [state if state in STATES else None for state in pods.states]
    there = _values(None if state is None else 1.0 for state in served)
    who = {"target": pods.name, "model_name": pods.model, "role": "unified"}
    found = {
        selector("llm_serving_target_info", **who, runtime="vllm", version="0.32.0", group=""): there,
        selector("llm_serving_target_node_info", **who, node=pods.node): there,
        selector("llm_serving_target_up", target=pods.name): _values(
            None if state is None else float(state == "ready") for state in served
        ),
    }
    for one in STATES:
        found[selector("llm_serving_target_state", target=pods.name, state=one)] = _values(
            None if state is None else float(state == one) for state in served
        )
    return found


def known_to_kubernetes(pods: Pods, owner: str, kind: str) -> Series:
    """What kube-state-metrics says of the pods: one uid each."""
    lives: list[tuple[int, int]] = []
    begin: int | None = None
    for minute, state in enumerate((*pods.states, "")):
        if state and begin is None:
            begin = minute
        elif not state and begin is not None:
            lives.append((begin, minute))
            begin = None
    found: Series = {}
    for number, (first, last) in enumerate(lives):
        pod = {"namespace": "llm", "pod": pods.name, "uid": f"{pods.name}/{number}"}
        span = range(len(pods.states))
        # the first began long ago
        created = 60.0 * first if first else -86_400.0
        there = _values(created if first <= minute < last else None for minute in span)
        found[selector("kube_pod_created", **pod)] = there
        owned = selector("kube_pod_owner", **pod, owner_kind=kind, owner_name=owner)
        found[owned] = _values(1.0 if first <= minute < last else None for minute in span)
        for condition in ("true", "false"):
            found[selector("kube_pod_status_ready", **pod, condition=condition)] = _values(
                float((pods.states[minute] == "ready") == (condition == "true")) if first <= minute < last else None
                for minute in span
            )
    return found


def workload(kind: str, name: str, wanted: str, changed: Sequence[int] = (), length: int = 120) -> Series:
    """What is wanted, and how often that was changed: the controller sees it within the minute."""
    owner = {"namespace": "llm", kind: name}
    spec = "kube_statefulset_replicas" if kind == "statefulset" else "kube_deployment_spec_replicas"
    generation = _values(1.0 + sum(at <= minute for at in changed) for minute in range(length))
    return {
        selector(spec, **owner): wanted,
        selector(f"kube_{kind}_metadata_generation", **owner): generation,
        selector(f"kube_{kind}_status_observed_generation", **owner): generation,
    }


def stateful(
    pods: Iterable[Pods], changed: Sequence[int] = (), length: int = 120, *, kubernetes: bool = True
) -> Series:
    """The StatefulSet `chat` of these pods; `kubernetes`: whether kube-state-metrics is scraped."""
    found: Series = {}
    replicas = list(pods)
    for one in replicas:
        found |= exported(one)
        if kubernetes:
            found |= known_to_kubernetes(one, "chat", "StatefulSet")
    wanted = flat((len(replicas), length))
    if not kubernetes:
        return found | {selector("llm_serving_expected_replicas", model_name="chat", role="unified"): wanted}
    return found | workload("statefulset", "chat", wanted, changed, length)


def nodes(closed: dict[str, str], *others: str, length: int = 120) -> Series:
    """Nodes with whether they are closed."""
    found: Series = {}
    for node, values in {**closed, **{name: flat((0, length)) for name in others}}.items():
        found[selector("kube_node_spec_unschedulable", node=node)] = values
        found[selector("kube_node_info", node=node)] = flat((1, length))
        found[selector("kube_node_status_condition", node=node, condition="Ready", status="true")] = flat((1, length))
    return found
