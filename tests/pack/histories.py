"""Histories of a model's replicas, minute by minute: of losses, and of rollouts, drains and autoscalers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from llm_serving_exporter.model.record import replace
from tests.pack.builders import NOTHING, STATES
from tests.pack.builders_kv import (
    Replica,
    flat,
    fleet,
    growing,
    health_series,
    replica_series,
    selector,
    serving_series,
)
from tests.pack.fleets_node_loss import LARGEST, N1_MOST, PRESENT, READY

MODEL = {"model_name": "chat", "role": "unified"}
DESIRED = "model:llm_serving_desired_replicas:max"

Series = dict[str, str]

PLENTY = tuple(Replica(nodes=(node,), prefill=20.0, decode=5.0) for node in ("a", "b", "c"))


def recorded(**values: str) -> Series:
    """Recorded series of the model, by short names."""
    names = {
        "ready": READY,
        "present": PRESENT,
        "unreadable": "model:llm_serving_unreadable_replicas:sum",
        "desired": DESIRED,
        "waiting": "model:llm_serving_requests_waiting:sum",
        "load": "model:llm_serving_load:max",
        "n1_load": N1_MOST,
        "largest": LARGEST,
        "nodes": "model:llm_serving_nodes:count",
        "targets": "model:llm_serving_targets:count",
    }
    return {selector(names[name], **MODEL): found for name, found in values.items()}


def expected_replicas(replicas: int, minutes: int) -> Series:
    """What the exporter's configuration says should run."""
    return {selector("llm_serving_expected_replicas", **MODEL): flat((replicas, minutes))}


_BUSY = Replica(prefill=450.0, decode=110.0, used=20_000.0, seconds=(0.001, 0.004))
# minutes; only what was wanted for an hour can be lost
_GOES, _END = 70, 92
_UPDATES, _UPDATED = 8, 30


def _survivor(number: int, waiting: float) -> Series:
    """It takes over what it can: 600 and 150 tokens/s, and requests wait from then on."""
    name, replica = f"chat-{number}", replace(_BUSY, nodes=("abc"[number],), waiting=waiting, waits=_GOES + 1)
    series = replica_series(name, "chat", "unified", replica, _END)
    labels = {"target": name, "model_name": "chat", "engine": "0", "role": "unified"}
    for phase, before, after in (("prefill", 450, 600), ("decode", 110, 150)):
        counter = growing((60 * before, _GOES), (60 * after, _END - _GOES))
        series[selector(f"llm_serving_{phase}_tokens_total", **labels)] = counter
    return series


def _gone(*, with_its_exporter: bool) -> Series:
    """The third replica: all of its series end, or a central exporter finds it down and its page's series end."""
    replica = replace(_BUSY, nodes=("c",))
    series = serving_series("chat-2", "chat", "unified", replica, _GOES, "stale")
    if with_its_exporter:
        return series | health_series("chat-2", "chat", "unified", replica, f"{flat((1, _GOES))} stale")
    series |= health_series("chat-2", "chat", "unified", replica, flat((1, _END)))
    series[selector("llm_serving_target_state", target="chat-2", state="ready")] = flat((1, _GOES), (0, _END - _GOES))
    series[selector("llm_serving_target_state", target="chat-2", state="down")] = flat((0, _GOES), (1, _END - _GOES))
    return series


def node_lost(*, with_its_exporter: bool, waiting: float = 8.0, expected: int | None = 3) -> Series:
    """One of three replicas goes after seventy minutes, alone or with the exporter beside it; the others take over what they can, and
    so many requests wait at each. `expected`: None where nobody said how many there should be."""
    series = _survivor(0, waiting) | _survivor(1, waiting) | _gone(with_its_exporter=with_its_exporter)
    return series if expected is None else series | expected_replicas(expected, _END)


def rolling_update() -> Series:
    """Four replicas, one of which loads its weights for eight minutes while nothing waits."""
    replicas = [Replica(nodes=(node,), prefill=100.0, decode=30.0) for node in "abcd"]
    series = fleet("chat", replicas[:3], _UPDATED) | serving_series(
        "chat-3", "chat", "unified", replicas[3], _UPDATES, "stale"
    )
    series |= health_series("chat-3", "chat", "unified", replicas[3], flat((1, _UPDATED)))
    ready = flat((1, _UPDATES), (0, 8), (1, _UPDATED - _UPDATES - 8))
    loading = flat((0, _UPDATES), (1, 8), (0, _UPDATED - _UPDATES - 8))
    series[selector("llm_serving_target_state", target="chat-3", state="ready")] = ready
    series[selector("llm_serving_target_state", target="chat-3", state="loading")] = loading
    return series | expected_replicas(4, _UPDATED)


# --- histories of rollouts, drains and autoscalers: what the exporter and kube-state-metrics say of them, minute by minute ---


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
