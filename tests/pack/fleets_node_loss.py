"""N-1 and required replicas of fleets that were worked out by hand.

A replica of the builders' kind could do 1,000 tokens/s of prefill or 500 of decode at its ceilings; 0.6 of that is its estimated capacity:
600 and 300. It holds 100,000 KV tokens and 100 requests, and uses 40,000 and 20 of them.
"""

from collections.abc import Sequence

from llm_serving_exporter.model.record import replace
from tests.pack.builders_kv import Replica, flat, fleet, growing, selector
from tests.pack.samples import Expected, Fleet, are, by_reserve, by_resource, document, is_

_MINUTES = 20
SUFFICIENT = "model:llm_serving_n1_sufficient:bool"
N1_MOST, N1_LOAD, LOAD = (
    "model:llm_serving_n1_load:max",
    "model:llm_serving_n1_load:ratio",
    "model:llm_serving_load:ratio",
)
LEFT, DEMAND = "model:llm_serving_n1_capacity:sum", "model:llm_serving_demand:max1h"
LARGEST = "model:llm_serving_largest_node_replicas:max"
READY, PRESENT = "model:llm_serving_ready_replicas:sum", "model:llm_serving_present_replicas:sum"
BEST = "model_gpu:llm_serving_replica_tokens_per_second:best"
BASIS = "model_gpu:llm_serving_replica_capacity:basis"

_A, _B, _C, _D = (Replica(nodes=(node,)) for node in "abcd")
_THREE = (_A, _B, _C)
_BASES = ("measured", "estimated")
_H100, _A100 = "H100 SXM", "A100 SXM"


def _each(replicas: Sequence[Replica], **changes: object) -> tuple[Replica, ...]:
    return tuple(replace(one, **changes) for one in replicas)


def _fleet(model: str, replicas: Sequence[Replica], *expected: Expected, role: str = "unified") -> Fleet:
    return Fleet(model, fleet(model, replicas, _MINUTES, role=role), expected, role)


def _best(value: float | None, phase: str, basis: str = "", gpu_name: str = _H100) -> tuple[Expected, ...]:
    """Capacity of one replica, known in one way and not in the other, or in none."""
    bases = (is_(BASIS, 1 if one == basis else None, gpu_name=gpu_name, phase=phase, basis=one) for one in _BASES)
    return (is_(BEST, value, gpu_name=gpu_name, phase=phase), *bases)


_BUSY = _each(_THREE, prefill=400.0, decode=100.0)

_NODES = (
    # what a token costs alone says nothing of a limit that nobody has seen
    _fleet(
        "three",
        _each(_THREE, seconds=(0.001, 0.005)),
        *_best(600, "prefill", "estimated"),
        is_(DEMAND, 600, resource="prefill"),
        is_(LEFT, 1200, resource="prefill"),
        # two of three left: 600/1200 + 180/600; 120,000 of 200,000; 60 of 200
        *by_resource(N1_LOAD, phases=0.8, work=None, kv=0.6, concurrency=0.3),
        *are({N1_MOST: 0.8, SUFFICIENT: 1}),
        is_(LOAD, 0.533, resource="phases"),  # 600/1800 + 180/900
        is_(LARGEST, 1),
    ),
    # each phase alone would just fit, 1200/1200 and 300/600, both do not
    _fleet("busy", _BUSY, *by_resource(N1_LOAD, prefill=1, phases=1.5), is_(SUFFICIENT, 0)),
    # node a has two: one replica is left for 450/600 + 90/300. Without b it would be half of that
    _fleet(
        "unequal",
        _each((_A, _A, _B), prefill=150.0, decode=30.0, used=20_000.0),
        is_(LARGEST, 2),
        is_(LEFT, 600, resource="prefill"),
        *by_resource(N1_LOAD, phases=1.05, kv=0.6),
        is_(SUFFICIENT, 0),
    ),
    # the first stands on a and b, the second on b: b takes both. The ceilings of the third, whose contexts are longer now, are lower:
    # the best of the kind counts
    _fleet(
        "spanning",
        _each(
            (Replica(nodes=("a", "b")), _B, replace(_C, ceilings=(500.0, 250.0))),
            prefill=150.0,
            decode=30.0,
            used=20_000.0,
        ),
        is_("model_node:llm_serving_capacity:sum", 600, node="a", resource="prefill"),
        is_("model_node:llm_serving_capacity:sum", 1200, node="b", resource="prefill"),
        is_(LARGEST, 2),
        is_(LEFT, 600, resource="prefill"),
        is_(N1_LOAD, 1.05, resource="phases"),
    ),
    # either node takes the only replica: nothing to divide by
    _fleet(
        "alone",
        (Replica(nodes=("a", "b")),),
        is_(LARGEST, 1),
        is_(LEFT, None, resource="prefill"),
        *are({N1_MOST: None, SUFFICIENT: None}),
        is_(LOAD, 0.533, resource="phases"),  # 200/600 + 60/300
    ),
    _fleet("one-node", (_A, _A), *are({LARGEST: 2, READY: 2, N1_MOST: None, SUFFICIENT: None})),
    _fleet(
        "nowhere",
        (_A, _B, Replica(nodes=())),
        *are({LARGEST: None, N1_MOST: None, SUFFICIENT: None}),
        is_(LOAD, 0.533, resource="phases"),
    ),
    # two engines to a server share what it has
    _fleet(
        "data-parallel",
        _each((_A, _B), engines=2),
        *_best(600, "prefill", "estimated"),
        *by_resource(LEFT, prefill=600, kv=100_000, concurrency=100),
        is_(N1_LOAD, 1.067, resource="phases"),  # 400/600 + 120/300
        is_(SUFFICIENT, 0),
    ),
)

_SLOW = {"gpu_name": _A100, "ceilings": (500.0, 250.0), "prefill": 150.0, "decode": 30.0, "used": 20_000.0}
_KINDS = (replace(_A, prefill=300.0, decode=60.0, used=20_000.0), *_each((_B, _C), **_SLOW))

_CAPACITY = (
    # 600 + 300 + 300 without the fast one: 600/600 + 120/300
    _fleet(
        "kinds",
        _KINDS,
        *_best(600, "prefill", "estimated"),
        *_best(300, "prefill", "estimated", _A100),
        is_(LEFT, 600, resource="prefill"),
        is_(N1_LOAD, 1.4, resource="phases"),
        is_(SUFFICIENT, 0),
    ),
    # the same under a queue: a second of work on one kind is not one on the other, so that what is promised of each phase counts
    _fleet(
        "kinds-measured",
        _each(_KINDS, waiting=4.0, seconds=(0.001, 0.005)),
        *_best(600, "prefill", "measured"),
        *_best(150, "decode", "measured", _A100),
        *by_resource(N1_LOAD, work=None, phases=1.4),
    ),
    # one of three under a queue at less than what its roofline promises of either phase: a mixture says nothing of one phase alone
    _fleet(
        "mixed-limit",
        (replace(_A, prefill=500.0, decode=100.0, waiting=5.0), *_each((_B, _C), prefill=300.0)),
        *_best(600, "prefill", "estimated"),
        *_best(300, "decode", "estimated"),
        is_(LEFT, 1200, resource="prefill"),
        is_(N1_LOAD, 1.283, resource="phases"),  # 1100/1200 + 220/600
        is_(SUFFICIENT, 0),
    ),
    # nothing is promised, and one was under a queue: what it did is all that is known
    _fleet(
        "measured",
        _each((replace(_A, prefill=500.0, decode=100.0, waiting=5.0), *_each((_B, _C), prefill=300.0)), ceilings=None),
        *_best(500, "prefill", "measured"),
        *_best(100, "decode", "measured"),
        is_(LEFT, 1000, resource="prefill"),
        is_(N1_LOAD, 1.1, resource="phases"),  # the larger of 1100/1000 and 220/200: the same mixture
        is_(SUFFICIENT, 0),
    ),
    # the same with a price of each token: 0.5 + 0.5 s of work a second at the limit, 0.3 + 0.3 elsewhere; 2.2/2.0
    _fleet(
        "work",
        _each(
            (replace(_A, prefill=500.0, decode=100.0, waiting=5.0), *_each((_B, _C), prefill=300.0)),
            seconds=(0.001, 0.005),
        ),
        is_(LEFT, 2, resource="work"),
        *by_resource(N1_LOAD, work=1.1, phases=1.1),
        is_(SUFFICIENT, 0),
    ),
    # more than was promised, without a queue: it can be done
    _fleet(
        "best-seen",
        _each(_THREE, prefill=700.0),
        *_best(700, "prefill", "estimated"),
        *_best(300, "decode", "estimated"),
        is_(N1_LOAD, 1.5, resource="prefill"),  # 2100/1400
    ),
    # neither a queue nor facts
    _fleet(
        "unknown",
        _each(_THREE, ceilings=None),
        *_best(None, "prefill"),
        *by_resource(N1_LOAD, phases=None, kv=0.6),
        is_(SUFFICIENT, None),
    ),
    # what is known is enough to say no: 270,000 of 200,000
    _fleet(
        "unknown-short",
        _each(_THREE, ceilings=None, used=90_000.0),
        is_(N1_LOAD, 1.35, resource="kv"),
        is_(SUFFICIENT, 0),
    ),
    _fleet(
        "no-limit",
        (_A, replace(_B, limit=None), _C),
        is_(LEFT, None, resource="concurrency"),
        is_(N1_LOAD, 0.8, resource="phases"),
        is_(SUFFICIENT, None),
    ),
    _fleet("no-limit-short", (_BUSY[0], replace(_BUSY[1], limit=None), _BUSY[2]), is_(SUFFICIENT, 0)),
    # a cache whose use nobody sees is not an empty one
    _fleet("blind", (_A, replace(_B, used=None), _C), is_(LEFT, None, resource="kv"), is_(SUFFICIENT, None)),
    # requests wait and nothing moves: no limit was seen, and there is no division by it
    _fleet(
        "stands-still",
        _each(_THREE, prefill=0.0, decode=0.0, waiting=9.0, ceilings=None),
        *_best(None, "prefill"),
        is_(N1_LOAD, None, resource="phases"),
    ),
    # one with cold caches has shown no limit, however long its queue
    _fleet(
        "young", (replace(_A, prefill=300.0, waiting=5.0, started=5.0), _B, _C), *_best(600, "prefill", "estimated")
    ),
    # three minutes under a queue right after the start are no five
    Fleet(
        "just-come",
        {name: f"_x15 {values}" for name, values in fleet("just-come", _each(_THREE, waiting=9.0), 5).items()},
        _best(600, "prefill", "estimated"),
    ),
    _fleet("idle", _each(_THREE, prefill=0.0, decode=0.0, running=0.0, used=0.0), *are({N1_MOST: 0, SUFFICIENT: 1})),
)

_PREFILL = _each((_A, _B), prefill=250.0, decode=5.0, ceilings=(1000.0, 10.0), used=20_000.0)
_ROLES = (
    # 500/600; the first tokens, 10 of 6, are not what a prefill replica is there for
    _fleet(
        "split",
        _PREFILL,
        *by_resource(N1_LOAD, phases=0.833, decode=None),
        *are({N1_MOST: 0.833, SUFFICIENT: 1}),
        role="prefill",
    ),
    # 500/300
    _fleet(
        "split-decode",
        _each((_A, _B), prefill=0.0, decode=250.0, used=20_000.0),
        *by_resource(N1_LOAD, phases=1.667, prefill=None),
        is_(SUFFICIENT, 0),
        role="decode",
    ),
    # what waits there may be KV on its way: 60 of 300 is not the limit
    _fleet(
        "transfers",
        _each((_A, _B), prefill=0.0, waiting=2.0),
        *_best(300, "decode", "estimated"),
        is_(N1_LOAD, 0.4, resource="phases"),
        is_(SUFFICIENT, 1),
        role="decode",
    ),
    # a full batch is one, whatever the roofline promises: 120/60
    _fleet(
        "full",
        _each((_A, _B), prefill=0.0, waiting=2.0, running=95.0),
        *_best(60, "decode", "measured"),
        is_(N1_LOAD, 2, resource="phases"),
        is_(SUFFICIENT, 0),
        role="decode",
    ),
)


def _with_a_fourth(state: str) -> tuple[Replica, ...]:
    """Its page is there, or was a moment ago: what it could hold does not count."""
    return (*_THREE, replace(_D, state=state, prefill=0.0, decode=0.0, running=0.0, used=0.0))


_STATES = tuple(
    _fleet(
        state,
        _with_a_fourth(state),
        *are({READY: 3, PRESENT: present, LARGEST: 1}),
        *by_resource(LEFT, prefill=1200, kv=200_000, concurrency=200),
        is_(SUFFICIENT, 1),
    )
    for state, present in (("loading", 3), ("sleeping", 4), ("down", 3))
)

# --- two nodes may go -----------------------------------------------------------------------------------------------

_TWO_NODES = (
    # 800/1200 + 240/600
    _fleet("four", (_A, _B, _C, _D), is_(LARGEST, 2), is_(N1_LOAD, 1.067, resource="phases"), is_(SUFFICIENT, 0)),
    # 400/600 + 120/300 is what one node's loss would leave
    _fleet("pair", (_A, _B), *are({LARGEST: 2, N1_MOST: None, SUFFICIENT: None})),
    # a and one of the others take three of four: 800/600 + 240/300
    _fleet("uneven", (_A, _A, _B, _C), is_(LARGEST, 3), is_(N1_LOAD, 2.133, resource="phases")),
)

# --- kube-state-metrics knows better --------------------------------------------------------------------------------

_DESIRED = "model:llm_serving_desired_replicas:max"
_WANTED = (
    # 8 pods of two each, from two kube-state-metrics; the exporter's own 3 does not count
    Fleet(
        "chat",
        {
            selector("kube_statefulset_replicas", namespace="llm", statefulset="chat", instance="ksm-a"): flat(
                (8, _MINUTES)
            ),
            selector("kube_statefulset_replicas", namespace="llm", statefulset="chat", instance="ksm-b"): flat(
                (8, _MINUTES)
            ),
            selector("kube_statefulset_replicas", namespace="other", statefulset="chat"): flat((20, _MINUTES)),
            selector("llm_serving_expected_replicas", model_name="chat", role="unified"): flat((3, _MINUTES)),
        },
        (is_(_DESIRED, 4),),
    ),
    Fleet(
        "embed",
        {selector("llm_serving_expected_replicas", model_name="embed", role="unified"): flat((5, _MINUTES))},
        (is_(_DESIRED, 5),),
    ),
)


SAMPLES = {
    "node_loss.samples.yml": document((*_NODES, *_CAPACITY, *_ROLES, *_STATES), "node_loss", "18m"),
    "node_loss.two_nodes.samples.yml": document(_TWO_NODES, "two_nodes", "18m"),
    "node_loss.workloads.samples.yml": document(_WANTED, "workloads", "18m"),
}


# --- required replicas of fleets whose capacity and demand have been recorded, worked out by hand ---


_H100_OF_REQUIRED = "H100 SXM"
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
        series[selector(BEST, **of_model, gpu_name=_H100_OF_REQUIRED, phase=phase)] = best[phase]
    for number, node in enumerate(nodes):
        of_target = {"target": f"{model}-{number}", **of_model}
        series[selector("target:llm_serving_kind:max", **of_target, gpu_name=_H100_OF_REQUIRED)] = flat((1, _HISTORY))
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
        "steady", *by_resource(_NEEDS, phases=1.6, kv=1.2, concurrency=0.6), *by_reserve(_REQUIRED, none=2, nodes=3)
    ),
    # the same load behind a queue that grows by ten a minute: the same number
    _recorded(
        "queue",
        is_(_NEEDS, 0.6, resource="concurrency"),
        *by_reserve(_REQUIRED, none=2, nodes=3),
        waiting=growing((10, _HISTORY)),
    ),
    # 370 and 5 more each minute are 820 after 90; help comes in 5m, when it is 845: 845/600 + 0.6 = 2.008. 820 would need 1.967
    _recorded(
        "growth",
        is_(_NEEDS, 2.008, resource="phases"),
        *by_reserve(_REQUIRED, none=3, nodes=4),
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
    _recorded("two-on-one", *by_reserve(_REQUIRED, none=2, nodes=4), nodes=("a", "a", "b")),
    # where one stands is not known: neither is the reserve
    _recorded("lost-map", *by_reserve(_REQUIRED, none=2, nodes=None), nodes=("a", "b", None)),
    _recorded("no-kv", is_(_NEEDS, 1.6, resource="phases"), is_(_REQUIRED, None, reserve="none"), used=None),
)

# groups of one moment have no order: what one recorded at the moment before must still be seen by another, for less than five minutes
REQUIRED_SAMPLES = {"node_loss.required.samples.yml": document(_REPLICAS, "n1", "90m", every="3m")}
