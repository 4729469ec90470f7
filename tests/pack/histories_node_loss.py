"""Histories of a model's replicas that several alerts of check node_loss are asked about."""

from __future__ import annotations

from llm_serving_exporter.model.record import replace
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
VARIABLES = "var-model_name=chat&var-role=unified"

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
