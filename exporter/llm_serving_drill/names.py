"""What a drill asks Prometheus for, by name: recorded series, alerts, and the exporter's own series where an exact count is wanted.

The rules are a package of their own that the exporter does not import; a test checks each name against what they render.
"""

from __future__ import annotations

from collections.abc import Sequence

from llm_serving_drill.course import Scope
from llm_serving_exporter.clients.stored_labels import loose_matchers, targets_only

READY = "model:llm_serving_ready_replicas:sum"
PRESENT = "model:llm_serving_present_replicas:sum"
DESIRED = "model:llm_serving_desired_replicas:max"
NODES = "model:llm_serving_nodes:count"
SUFFICIENT = "model:llm_serving_n1_sufficient:bool"
N1_LOAD = "model:llm_serving_n1_load:ratio"
N1_LOAD_MAX = "model:llm_serving_n1_load:max"
N1_CAPACITY = "model:llm_serving_n1_capacity:sum"
LOAD = "model:llm_serving_load:ratio"
LOAD_MAX = "model:llm_serving_load:max"
DEMAND = "model:llm_serving_demand:max1h"
WAITING = "model:llm_serving_requests_waiting:sum"
KV_USAGE = "model:llm_serving_kv_cache_usage_ratio:max"
TOKENS = "model:llm_serving_phase_tokens:rate5m"
WORK = "model:llm_serving_reference_work:rate5m"
KV_TOKENS = "model:llm_serving_kv_cache_used_tokens:avg5m"
IN_SYSTEM = "model:llm_serving_requests_in_system:avg5m"
TTFT = "model:llm_serving_time_to_first_token_seconds:quantile_rate5m"
ABOVE_TOP = "model:llm_serving_time_to_first_token_seconds:above_top_edge_ratio_rate5m"
SLO_BAD = "model:llm_serving_slo_bad:ratio_increase5m"
NODE_CAPACITY = "model_node:llm_serving_capacity:sum"
TARGET_READY = "target:llm_serving_ready:max"
TARGET_NODE = "target:llm_serving_node:info"
TARGET_DOWN = "target:llm_serving_down:min"

# the label beside model and role that tells a record's series apart
LABELS = {
    N1_LOAD: "resource", N1_CAPACITY: "resource", LOAD: "resource", DEMAND: "resource", TOKENS: "phase", TTFT: "rank", SLO_BAD: "slo",
}  # fmt: skip
# what a reading takes, by its fields: a record, and which value of that label ("" without one)
VALUES = {
    "ready": (READY, ""), "present": (PRESENT, ""), "desired": (DESIRED, ""), "nodes": (NODES, ""), "waiting": (WAITING, ""),
    "p99_ttft_seconds": (TTFT, "p99"), "above_top_edge_ratio": (ABOVE_TOP, ""), "kv_usage_ratio": (KV_USAGE, ""),
    "errors_ratio": (SLO_BAD, "errors"), "n1_load_max": (N1_LOAD_MAX, ""), "load_max": (LOAD_MAX, ""),
}  # fmt: skip
# or each value of it
EACH = {"tokens_per_second": TOKENS, "n1_load": N1_LOAD, "load": LOAD, "demand": DEMAND, "n1_capacity": N1_CAPACITY}
# what is used of a resource at the moment, beside the tokens of both phases
USED = {"work": WORK, "kv": KV_TOKENS, "concurrency": IN_SYSTEM}
# by model and role: one instant query reads them all at the same moment
BY_MODEL = (SUFFICIENT, *(record for record, _ in VALUES.values()), *EACH.values(), *USED.values())
# of the time before the loss
BEFORE = (READY, WAITING, KV_USAGE, TOKENS, TTFT, ABOVE_TOP, SLO_BAD)
RECORDS = (*BY_MODEL, NODE_CAPACITY, TARGET_READY, TARGET_NODE, TARGET_DOWN)

PREFIX = "LLMServing"
REPLICA_LOST = f"{PREFIX}ReplicaLost"
TARGETS_DOWN = f"{PREFIX}TargetsDown"
N1_CRITICAL = f"{PREFIX}N1Critical"
ALERTS = (REPLICA_LOST, TARGETS_DOWN, N1_CRITICAL)
# TargetsDown's default threshold: more than this share of a model's replicas
TARGETS_DOWN_ABOVE = 0.5

# the exporter's own, without prefix, as its catalogue has them
SLO_EVENTS = "slo_events_total"
REJECTED = "requests_rejected_total"
EXPORTED = (SLO_EVENTS, REJECTED)


def at_once(names: Sequence[str], matchers: str) -> str:
    """One selector for several recorded series. `matchers`: of one model and role, as `Scope.matchers`."""
    return f'{{__name__=~"{"|".join(names)}",{matchers}}}'


def capacity_by_node(matchers: str) -> str:
    """KV capacity of each node: the nodes that there are, and which one is the largest."""
    return f'{NODE_CAPACITY}{{{matchers},resource="kv"}}'


def replicas_by_node(matchers: str) -> str:
    """Ready replicas that touch a node."""
    return f"count by (node) ({TARGET_NODE}{{{matchers}}} and on (target, model_name, role) {TARGET_READY}{{{matchers}}} == 1)"


def models_and_roles() -> str:
    """A series for each model and role that has ready replicas recorded."""
    return f"group by (model_name, role) ({READY})"


def replicas_alive(matchers: str) -> str:
    """Known replicas that are not down, as TargetsDown counts them."""
    return f"sum(1 - {TARGET_DOWN}{{{matchers}}})"


def ttft_events(scope: Scope, seconds: float) -> str:
    """Events of the TTFT objective in the last `seconds`, by outcome, from the engines' own counters."""
    counted = _grown(scope, SLO_EVENTS, seconds, 'slo="ttft"')
    return f"sum by (outcome) (max by (target, model_name, engine, role, outcome, source, threshold) ({counted}))"


def rejected(scope: Scope, seconds: float) -> str:
    """Requests that were refused in the last `seconds`."""
    return f"sum(max by (target, model_name, engine, role, reason) ({_grown(scope, REJECTED, seconds)}))"


def _grown(scope: Scope, counter: str, seconds: float, *matchers: str) -> str:
    labels, duration = dict(scope.labels), f"{max(1, round(seconds * 1000))}ms"
    every = ",".join(filter(None, (scope.of_model, loose_matchers(labels), *matchers)))
    return f"increase(llm_serving_{counter}{{{every}}}[{duration}]){targets_only(labels, duration)}"
