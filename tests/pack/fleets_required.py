"""Required replicas of fleets whose capacity and demand have been recorded, worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

from tests.pack.builders_kv import flat, growing, selector
from tests.pack.fleets_node_loss import BEST, DEMAND, N1_LOAD, READY, SUFFICIENT
from tests.pack.samples import Expected, Fleet, document, is_

_H100 = "H100 SXM"
_REQUIRED, _NEEDS = "model:llm_serving_required_replicas:ceil", "model:llm_serving_required:ratio"

_HISTORY = 95


def _recorded(
    model: str,
    *expected: Expected,
    prefill: str = flat((600, _HISTORY)),
    waiting: str = flat((0, _HISTORY)),
    nodes: Sequence[str | None] = ("a", "b", "c"),
    used: float | None = 40_000,
) -> Fleet:
    """Three replicas of 600 and 300 tokens/s, 180 tokens/s of decode in all."""
    of_model = {"model_name": model, "role": "unified"}
    levels = {"prefill": prefill, "decode": flat((180, _HISTORY))}
    best = {"prefill": flat((600, _HISTORY)), "decode": flat((300, _HISTORY))}
    series = {
        selector(READY, **of_model): flat((3, _HISTORY)),
        selector("model:llm_serving_requests_running:sum", **of_model): flat((60, _HISTORY)),
        selector("model:llm_serving_requests_waiting:sum", **of_model): waiting,
    }
    if used is not None:
        series[selector("model:llm_serving_kv_cache_used_tokens:sum", **of_model)] = flat((3 * used, _HISTORY))
    for phase, values in levels.items():
        series[selector("model:llm_serving_phase_tokens:rate5m", **of_model, phase=phase)] = values
        series[selector(BEST, **of_model, gpu_name=_H100, phase=phase)] = best[phase]
    for number, node in enumerate(nodes):
        of_target = {"target": f"{model}-{number}", **of_model}
        series[selector("target:llm_serving_kind:max", **of_target, gpu_name=_H100)] = flat((1, _HISTORY))
        levels_of_target = {
            "ready:max": 1.0,
            "kv_cache_capacity_tokens:sum": 100_000.0,
            "kv_cache_used_tokens:sum": used,
            "batch_limit_requests:sum": 100.0,
            "requests_running:sum": 20.0,
            "requests_waiting:sum": 0.0,
        }
        for name, value in levels_of_target.items():
            if value is not None:
                series[selector(f"target:llm_serving_{name}", **of_target)] = flat((value, _HISTORY))
        # promised: what lets the fractions of both phases add up
        series[selector("target:llm_serving_phase_ceiling_tokens_per_second:sum", **of_target, phase="decode")] = flat(
            (500, _HISTORY)
        )
        series[selector("llm_serving_target_info", **of_target)] = flat((1, _HISTORY))
        itself = {**of_model, "replica_name": of_target["target"]}
        series[
            selector("target:llm_serving_replica:info", target=of_target["target"], replica_name=of_target["target"])
        ] = flat((1, _HISTORY))
        series[selector("replica:llm_serving_ready:min", **itself)] = flat((1, _HISTORY))
        if node is not None:
            series[selector("llm_serving_target_node_info", **of_target, node=node)] = flat((1, _HISTORY))
            series[selector("replica:llm_serving_node:info", **itself, node=node)] = flat((1, _HISTORY))
    return Fleet(model, series, expected)


_REPLICAS = (
    # 600/600 + 180/300 replicas for tokens, 120,000/100,000 for KV, 60/100 for the batch: 1.6 at most
    _recorded(
        "steady",
        is_(_NEEDS, 1.6, resource="phases"),
        is_(_NEEDS, 1.2, resource="kv"),
        is_(_NEEDS, 0.6, resource="concurrency"),
        is_(_REQUIRED, 2, reserve="none"),
        is_(_REQUIRED, 3, reserve="nodes"),
    ),
    # the same load behind a queue that grows by ten a minute: the same number
    _recorded(
        "queue",
        is_(_NEEDS, 0.6, resource="concurrency"),
        is_(_REQUIRED, 2, reserve="none"),
        is_(_REQUIRED, 3, reserve="nodes"),
        waiting=growing((10, _HISTORY)),
    ),
    # 370 and 5 more each minute are 820 after 90; help comes in 5m, when it is 845: 845/600 + 0.6 = 2.008. 820 would need 1.967
    _recorded(
        "growth",
        is_(_NEEDS, 2.008, resource="phases"),
        is_(_REQUIRED, 3, reserve="none"),
        is_(_REQUIRED, 4, reserve="nodes"),
        prefill=growing((5, _HISTORY), start=370),
    ),
    # half an hour ago it was 900: 900/600 + 0.6 = 2.1 replicas; without a node 900/1200 + 180/600. A falling load adds nothing
    _recorded(
        "peak",
        is_(DEMAND, 900, resource="prefill"),
        is_(_NEEDS, 2.1, resource="phases"),
        is_(_REQUIRED, 3, reserve="none"),
        is_(N1_LOAD, 1.05, resource="phases"),
        is_(SUFFICIENT, 0),
        prefill=flat((900, 61), (300, _HISTORY - 61)),
    ),
    # more than an hour ago it was: 300/1200 + 180/600
    _recorded(
        "past",
        is_(DEMAND, 300, resource="prefill"),
        is_(N1_LOAD, 0.55, resource="phases"),
        is_(SUFFICIENT, 1),
        prefill=flat((900, 21), (300, _HISTORY - 21)),
    ),
    # the largest node has two
    _recorded(
        "two-on-one", is_(_REQUIRED, 2, reserve="none"), is_(_REQUIRED, 4, reserve="nodes"), nodes=("a", "a", "b")
    ),
    # where one stands is not known: neither is the reserve
    _recorded(
        "lost-map", is_(_REQUIRED, 2, reserve="none"), is_(_REQUIRED, None, reserve="nodes"), nodes=("a", "b", None)
    ),
    _recorded("no-kv", is_(_NEEDS, 1.6, resource="phases"), is_(_REQUIRED, None, reserve="none"), used=None),
)

# groups of one moment have no order: what one recorded at the moment before must still be seen by another, for less than five minutes
SAMPLES = {"node_loss.required.samples.yml": document(_REPLICAS, "n1", "90m", every="3m")}
