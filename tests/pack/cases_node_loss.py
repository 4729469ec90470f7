"""When the alerts of check node_loss fire and when they do not. What N-1 comes to is worked out in fleets_node_loss.py."""

from __future__ import annotations

from dataclasses import replace

from tests.pack.builders_kv import (
    Replica,
    firing,
    flat,
    fleet,
    growing,
    health_series,
    labelled,
    replica_series,
    selector,
    serving_series,
)
from tests.pack.fleets_node_loss import LARGEST, LOAD, N1_LOAD, N1_MOST, PRESENT, READY
from tests.pack.promtool import Case, Firing

_MODEL = {"model_name": "chat", "role": "unified"}
_DESIRED, _MOST = "model:llm_serving_desired_replicas:max", "model:llm_serving_load:max"
_WAITING = "model:llm_serving_requests_waiting:sum"
_VARIABLES = "var-model_name=chat&var-role=unified"

Series = dict[str, str]


def _recorded(**values: str) -> Series:
    names = {
        "ready": READY,
        "present": PRESENT,
        "desired": _DESIRED,
        "waiting": _WAITING,
        "load": _MOST,
        "n1_load": N1_MOST,
        "largest": LARGEST,
        "nodes": "model:llm_serving_nodes:count",
        "targets": "model:llm_serving_targets:count",
    }
    return {selector(names[name], **_MODEL): found for name, found in values.items()}


def _expected(replicas: int, minutes: int) -> Series:
    return {selector("llm_serving_expected_replicas", **_MODEL): flat((replicas, minutes))}


# --- N1Insufficient ---------------------------------------------------------------------------------------------------


def _n1(needed: str, *, nodes: str, of: str, ready: int, on: int, which: str = "largest node") -> Firing:
    return firing(
        "N1Insufficient",
        "warning",
        "node_loss",
        _MODEL,
        summary=f"chat (unified): cannot lose its {which}, {needed} of what would be left is needed",
        description=f"Without its {which} ({nodes}) the remaining replicas would need {needed} of their {of} for the demand of the last hour. "
        f"{ready} replicas are ready on {on} nodes.",
        action="add a replica on another node, or shed load in time",
        variables=_VARIABLES,
    )


_TWO_ON_A = tuple(Replica(nodes=(node,), prefill=150.0, decode=30.0, used=20_000.0) for node in ("a", "a", "b"))
_PLENTY = tuple(Replica(nodes=(node,), prefill=20.0, decode=5.0) for node in ("a", "b", "c"))


def _of_nodes(**capacity: float) -> Series:
    """KV capacity by node and in all, for the words of an annotation."""
    lost = {
        selector("model_node:llm_serving_capacity:sum", **_MODEL, node=node, resource="kv"): flat((tokens, 70))
        for node, tokens in capacity.items()
    }
    return lost | {
        selector("model:llm_serving_capacity:sum", **_MODEL, resource="kv"): flat((sum(capacity.values()), 70))
    }


def _short_of_kv(**more: str) -> Series:
    return (
        _recorded(ready=flat((4, 70)), nodes=flat((4, 70)), **more)
        | _of_nodes(a=100, b=300, c=200, d=100)
        | {selector(N1_LOAD, **_MODEL, resource="kv"): flat((1.25, 70))}
        | {selector(N1_LOAD, **_MODEL, resource="phases"): flat((0.7, 70))}
        # how both phases are added up is no resource of its own
        | {selector(N1_LOAD, **_MODEL, resource="work"): flat((9, 70))}
    )


_N1_INSUFFICIENT = (
    Case(
        "N1Insufficient",
        "two of three replicas on one node; another model has plenty",
        # without a: 450/600 + 90/300 = 105 %
        fleet("chat", _TWO_ON_A, 36) | fleet("embed", _PLENTY, 36),
        "32m",
        (_n1("105%", nodes="a", of="token rate", ready=3, on=2),),
        more=(("14m", ()),),
    ),
    Case(
        "N1Insufficient",
        "short of KV for long enough, then no more",
        _short_of_kv(n1_load=flat((0.9, 10), (1.25, 30), (0.9, 30))),
        "35m",
        (_n1("125%", nodes="b", of="KV cache", ready=4, on=4),),
        more=(("22m", ()), ("50m", ())),
    ),
    Case(
        "N1Insufficient",
        "two nodes may go",
        _short_of_kv(n1_load=flat((1.25, 70))),
        "35m",
        (_n1("125%", nodes="b and c", of="KV cache", ready=4, on=4, which="two largest nodes"),),
        rules="two_nodes",
    ),
    Case(
        "N1Insufficient",
        "the same model in two clusters, short in one",
        labelled(fleet("chat", _TWO_ON_A, 36), cluster="eu") | labelled(fleet("chat", _PLENTY, 36), cluster="us"),
        "32m",
        (
            firing(
                "N1Insufficient",
                "warning",
                "node_loss",
                {"cluster": "eu", **_MODEL},
                summary="eu chat (unified): cannot lose its largest node, 105% of what would be left is needed",
                description="Without its largest node (a) the remaining replicas would need 105% of their token rate for the demand of the last hour. 3 replicas "
                "are ready on 2 nodes.",
                action="add a replica on another node, or shed load in time",
                variables=f"var-cluster=eu&{_VARIABLES}",
            ),
        ),
        rules="clusters",
    ),
    Case("N1Insufficient", "it would just do", _recorded(n1_load=flat((1, 60))), "50m"),
    Case("N1Insufficient", "no load at all", _recorded(n1_load=flat((0, 60))), "50m"),
    Case("N1Insufficient", "unknown, or one node", _recorded(ready=flat((3, 60)), load=flat((3, 60))), "50m"),
)

# --- N1Critical -------------------------------------------------------------------------------------------------------

_BUSY = Replica(prefill=450.0, decode=110.0, used=20_000.0, seconds=(0.001, 0.004))
_GOES, _END = 8, 30  # minutes


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


def _node_lost(*, with_its_exporter: bool, waiting: float = 8.0, expected: int | None = 3) -> Series:
    series = _survivor(0, waiting) | _survivor(1, waiting) | _gone(with_its_exporter=with_its_exporter)
    return series if expected is None else series | _expected(expected, _END)


def _critical(ready: int, wanted: int, needed: str, of: str) -> Firing:
    return firing(
        "N1Critical",
        "critical",
        "node_loss",
        _MODEL,
        summary=f"chat (unified): replicas lost, {ready} left, and they queue",
        description=f"{ready} of {wanted} wanted replicas are ready. Requests wait, and demand is {needed} of what the ready ones can carry ({of} first).",
        action="bring the lost replicas back or add others; shed load meanwhile",
        variables=_VARIABLES,
    )


# the two were seen at their limit by then, 600 of prefill, 150 of decode, 0.6 + 0.6 s of work a second. Before: 1,350 of prefill (of
# 1,200: 112.5 %), 330 of decode (of 300: 110 %), 3 x (0.45 + 0.44) s of work (of 2.4: 111 %)
_TWO_LEFT = _critical(2, 3, "112.5%", "prefill rate")


def _rolling() -> Series:
    """Four replicas, one of which loads its weights for eight minutes while nothing waits."""
    replicas = [Replica(nodes=(node,), prefill=100.0, decode=30.0) for node in "abcd"]
    series = fleet("chat", replicas[:3], _END) | serving_series(
        "chat-3", "chat", "unified", replicas[3], _GOES, "stale"
    )
    series |= health_series("chat-3", "chat", "unified", replicas[3], flat((1, _END)))
    ready = flat((1, _GOES), (0, 8), (1, _END - _GOES - 8))
    loading = flat((0, _GOES), (1, 8), (0, _END - _GOES - 8))
    series[selector("llm_serving_target_state", target="chat-3", state="ready")] = ready
    series[selector("llm_serving_target_state", target="chat-3", state="loading")] = loading
    return series | _expected(4, _END)


def _queue(**more: str) -> Series:
    """Four wanted, three there, a queue, too little without another node."""
    series = {"ready": flat((3, 120)), "present": flat((3, 120)), "desired": flat((4, 120))}
    series |= {"waiting": flat((6, 120)), "load": flat((0.9, 120)), "n1_load": flat((1.1, 120))}
    return _recorded(**{**series, **more}) | {selector(LOAD, **_MODEL, resource="concurrency"): flat((0.9, 120))}


_THREE_LEFT = _critical(3, 4, "90%", "running requests")

_N1_CRITICAL = (
    Case(
        "N1Critical",
        "a node goes with the exporter on it, the others queue",
        _node_lost(with_its_exporter=True),
        "26m",
        (_TWO_LEFT,),
        more=(("7m", ()), ("12m", ())),
    ),
    Case(
        "N1Critical",
        "a node goes, a central exporter finds its replica down, the others queue",
        _node_lost(with_its_exporter=False),
        "26m",
        (_TWO_LEFT,),
        more=(("12m", ()),),
    ),
    Case("N1Critical", "a node goes and nothing waits", _node_lost(with_its_exporter=True, waiting=0.0), "26m"),
    Case(
        "N1Critical",
        "a replica less and a queue, but nobody said how many there should be",
        _node_lost(with_its_exporter=True, expected=None),
        "26m",
    ),
    Case("N1Critical", "a rolling update while nothing waits", _rolling(), "15m"),
    Case(
        "N1Critical",
        "it is over when the queue is",
        _queue(waiting=flat((6, 30), (0, 90))),
        "20m",
        (_THREE_LEFT,),
        more=(("3m", ()), ("40m", ())),
    ),
    Case("N1Critical", "all wanted are there", _queue(ready=flat((4, 120)), present=flat((4, 120))), "60m"),
    Case("N1Critical", "a replica sleeps, none is lost", _queue(present=flat((4, 120))), "60m"),
    Case(
        "N1Critical",
        "one is lost, another one sleeps",
        _queue(ready=flat((2, 120))),
        "20m",
        (_critical(2, 4, "90%", "running requests"),),
    ),
    Case(
        "N1Critical",
        "one node is left, which is too little",
        _recorded(
            ready=flat((1, 60)),
            present=flat((1, 60)),
            desired=flat((2, 60)),
            waiting=flat((6, 60)),
            load=flat((1.1, 60)),
        )
        | {selector(LOAD, **_MODEL, resource="kv"): flat((1.1, 60))},
        "20m",
        (_critical(1, 2, "110%", "KV cache"),),
    ),
    Case("N1Critical", "it would just do", _queue(n1_load=flat((1, 120)), load=flat((1, 120))), "60m"),
    Case("N1Critical", "what is left would do", _queue(n1_load=flat((0.99, 120))), "60m"),
    Case(
        "N1Critical",
        "an autoscaler asks for more: nothing is lost, until they have not come for an hour",
        _queue(desired=flat((3, 20), (4, 100))),
        "100m",
        (_THREE_LEFT,),
        more=(("75m", ()),),
    ),
    Case(
        "N1Critical",
        "what is left is unknown",
        _recorded(ready=flat((3, 60)), present=flat((3, 60)), desired=flat((4, 60)), waiting=flat((6, 60))),
        "50m",
    ),
)

# --- NoRedundancy -----------------------------------------------------------------------------------------------------


def _alone(ready: int, which: str = "largest node") -> Firing:
    return firing(
        "NoRedundancy",
        "info",
        "node_loss",
        _MODEL,
        summary=f"chat (unified): no replica is left without its {which}",
        description=f"Ready replicas: {ready}, and the {which} would take all of them away. Where that is meant, set node_loss.redundancy to none.",
        action="context for other alerts; nobody is notified",
        variables=_VARIABLES,
    )


_QUIET = Replica(prefill=20.0, decode=5.0)

_NO_REDUNDANCY = (
    Case(
        "NoRedundancy",
        "both replicas on one node; another model on two",
        fleet("chat", (_QUIET, _QUIET), 12) | fleet("embed", (_QUIET, replace(_QUIET, nodes=("b",))), 12),
        "10m",
        (_alone(2),),
    ),
    Case(
        "NoRedundancy",
        "one replica over two nodes",
        fleet("chat", (replace(_QUIET, nodes=("a", "b")),), 12),
        "10m",
        (_alone(1),),
    ),
    Case(
        "NoRedundancy",
        "one is on a node, where the other is nobody knows",
        fleet("chat", (_QUIET, replace(_QUIET, nodes=())), 12),
        "10m",
    ),
    Case("NoRedundancy", "scaled to zero", _expected(0, 12), "10m"),
    Case(
        "NoRedundancy",
        "two nodes where two may go",
        fleet("chat", (_QUIET, replace(_QUIET, nodes=("b",))), 12),
        "10m",
        (_alone(2, "two largest nodes"),),
        rules="two_nodes",
    ),
)

# --- ReplicaLost ------------------------------------------------------------------------------------------------------


def _lost(missing: int, wanted: int) -> Firing:
    return firing(
        "ReplicaLost",
        "warning",
        "node_loss",
        _MODEL,
        summary=f"chat (unified): {missing} of {wanted} replicas missing",
        description=f"Wanted: {wanted}. Neither ready nor asleep: {missing}.",
        action="find the pod or host that does not come up",
        variables=_VARIABLES,
    )


_AN_EXPORTER = {'llm_serving_exporter_build_info{version="1.0.0"}': flat((1, 60))}


def _pods(count: int, minutes: int) -> Series:
    name = selector("kube_statefulset_replicas", namespace="llm", statefulset="chat")
    return {name: flat((count, minutes))}


_REPLICA_LOST = (
    Case(
        "ReplicaLost",
        "one of four for ten minutes, then it is back; another model is whole",
        _recorded(desired=flat((4, 60)), present=flat((4, 10), (3, 25), (4, 25)))
        | {selector(name, model_name="embed", role="unified"): flat((2, 60)) for name in (_DESIRED, PRESENT)},
        "30m",
        (_lost(1, 4),),
        more=(("17m", ()), ("45m", ())),
    ),
    Case(
        "ReplicaLost",
        "a node goes with the exporter on it",
        _node_lost(with_its_exporter=True, waiting=0.0),
        "26m",
        (_lost(1, 3),),
        more=(("15m", ()),),
    ),
    Case("ReplicaLost", "a rolling update", _rolling(), "15m", more=(("24m", ()),)),
    Case("ReplicaLost", "nobody said how many there should be", _recorded(present=flat((1, 60))), "40m"),
    Case(
        "ReplicaLost",
        "all of them went with their exporters, those of other models are there",
        _recorded(desired=flat((4, 60))) | _AN_EXPORTER,
        "40m",
        (_lost(4, 4),),
    ),
    Case("ReplicaLost", "no exporter is scraped: nobody knows", _recorded(desired=flat((4, 60))), "40m"),
    Case("ReplicaLost", "scaled to zero", _recorded(desired=flat((0, 60))) | _AN_EXPORTER, "40m"),
    Case(
        "ReplicaLost",
        "more than wanted, as during an update",
        _recorded(desired=flat((4, 60)), present=flat((5, 60))),
        "40m",
    ),
    Case(
        "ReplicaLost",
        "the exporters of one of two clusters are gone",
        labelled(_recorded(desired=flat((4, 60))), cluster="eu")
        | labelled(_recorded(desired=flat((2, 60)), present=flat((2, 60))) | _AN_EXPORTER, cluster="us"),
        "40m",
        rules="clusters",
    ),
    Case(
        "ReplicaLost",
        "eight pods of two each make four, whatever the exporter expects",
        fleet("chat", _PLENTY, 30) | _pods(8, 30) | _expected(3, 30),
        "25m",
        (_lost(1, 4),),
        rules="workloads",
    ),
    Case(
        "ReplicaLost",
        "scaled down by way of Kubernetes",
        fleet("chat", _PLENTY, 30) | _pods(6, 30) | _expected(5, 30),
        "25m",
        rules="workloads",
    ),
    Case(
        "ReplicaLost",
        "scaled to zero by way of Kubernetes: the pods went with their exporters",
        _pods(0, 30) | _expected(3, 30) | {'llm_serving_exporter_build_info{version="1.0.0"}': flat((1, 30))},
        "25m",
        rules="workloads",
    ),
)

# --- drills -----------------------------------------------------------------------------------------------------------

_DAY = 86_400


def _drill(name: str, value: float, minutes: int = 120, **labels: str) -> Series:
    return {
        selector(f"llm_serving_drill_{name}", instance="exporter-a:10077", **_MODEL, **labels): flat((value, minutes))
    }


def _overdue(age: str) -> Firing:
    return firing(
        "DrillOverdue",
        "info",
        "node_loss",
        _MODEL,
        summary=f"chat (unified): no node-loss drill passed for {age}",
        description="A drill is due every 90d. What has not been tried does not work.",
        action="plan a drill: llm-serving-exporter drill --help",
        variables=_VARIABLES,
    )


def _installed(value: float, instance: str) -> Series:
    return {selector("llm_serving_installed_timestamp_seconds", instance=instance): flat((value, 120))}


_SERVED = _recorded(targets=flat((2, 120)))
_LAST = "last_success_timestamp_seconds"

# a test's history begins at 0, so that what was before is below it
_DRILLS = (
    Case(
        "DrillOverdue",
        "91 days since the last one passed, one of another model yesterday",
        _SERVED
        | _drill(_LAST, -91 * _DAY)
        | {selector("model:llm_serving_targets:count", model_name="embed", role="unified"): flat((1, 120))}
        | {
            selector("llm_serving_drill_last_success_timestamp_seconds", model_name="embed", role="unified"): flat(
                (-_DAY, 120)
            )
        },
        "90m",
        (_overdue("91d 1h 30m 0s"),),
        more=(("55m", ()),),
        rules="drill",
    ),
    Case("DrillOverdue", "89 days", _SERVED | _drill(_LAST, -89 * _DAY), "90m", rules="drill"),
    Case(
        "DrillOverdue",
        "none ever passed: since the first exporter was installed, however new the others are",
        _SERVED | _installed(-100 * _DAY, "node-a:10077") | _installed(0, "node-b:10077"),
        "90m",
        (_overdue("100d 1h 30m 0s"),),
        doubled=False,  # the pair of exporters is in it
        rules="drill",
    ),
    Case("DrillOverdue", "none ever passed, and nobody knows since when", _SERVED, "90m", rules="drill"),
    Case(
        "DrillOverdue",
        "passed after a long installation",
        _SERVED | _installed(-400 * _DAY, "node-a:10077") | _drill(_LAST, -_DAY),
        "90m",
        rules="drill",
    ),
    Case(
        "DrillOverdue",
        "a model that is served no more",
        _drill(_LAST, -200 * _DAY)
        | {selector("model:llm_serving_targets:count", model_name="embed", role="unified"): flat((1, 120))},
        "90m",
        rules="drill",
    ),
    Case("DrillOverdue", "nobody asked to be reminded", _SERVED | _drill(_LAST, -200 * _DAY), "90m"),
    Case(
        "DrillFailed",
        "the last one failed",
        _drill("last_verdict", 1, verdict="failed") | _drill("last_verdict", 0, verdict="passed"),
        "5m",
        (
            firing(
                "DrillFailed",
                "warning",
                "node_loss",
                _MODEL,
                summary="chat (unified): the last node-loss drill failed",
                description="The last drill of chat did not keep the objective, or no page arrived. Its report says what happened.",
                action="read the report and repeat the drill once it is mended",
                variables=_VARIABLES,
            ),
        ),
    ),
    Case(
        "DrillFailed",
        "the last one passed",
        _drill("last_verdict", 0, verdict="failed") | _drill("last_verdict", 1, verdict="passed"),
        "5m",
    ),
    Case(
        "DrillFailed",
        "the last one was given up",
        _drill("last_verdict", 0, verdict="failed") | _drill("last_verdict", 1, verdict="aborted"),
        "5m",
    ),
)

CASES = (*_N1_INSUFFICIENT, *_N1_CRITICAL, *_NO_REDUNDANCY, *_REPLICA_LOST, *_DRILLS)
