"""N1Insufficient, N1Critical and the other alerts of check node_loss: lost replicas, drills. What N-1 comes to is worked out in fleets_node_loss.py."""

from tests.pack.builders import firing
from tests.pack.builders_kv import Replica, flat, fleet, labelled, selector
from tests.pack.fleets_node_loss import LOAD, N1_LOAD, PRESENT
from tests.pack.histories import DESIRED, MODEL, PLENTY, Series, expected_replicas, node_lost, recorded, rolling_update
from tests.pack.promtool import Firing, cases, row

# --- N1Insufficient ---------------------------------------------------------------------------------------------------


def _n1(needed: str, *, nodes: str, of: str, ready: int, on: int, which: str = "largest node") -> Firing:
    return firing(
        "N1Insufficient",
        MODEL,
        f"chat (unified): cannot lose its {which}, {needed} of what would be left is needed",
        f"Without its {which} ({nodes}) the remaining replicas would need {needed} of their {of} for the demand of the last hour. "
        f"{ready} replicas are ready on {on} nodes.",
    )


_TWO_ON_A = tuple(Replica(nodes=(node,), prefill=150.0, decode=30.0, used=20_000.0) for node in ("a", "a", "b"))


def _of_nodes(**capacity: float) -> Series:
    """KV capacity by node and in all, for the words of an annotation."""
    lost = {
        selector("model_node:llm_serving_capacity:sum", **MODEL, node=node, resource="kv"): flat((tokens, 70))
        for node, tokens in capacity.items()
    }
    return lost | {
        selector("model:llm_serving_capacity:sum", **MODEL, resource="kv"): flat((sum(capacity.values()), 70))
    }


def _short_of_kv(**more: str) -> Series:
    return (
        recorded(ready=flat((4, 70)), nodes=flat((4, 70)), **more)
        | _of_nodes(a=100, b=300, c=200, d=100)
        | {selector(N1_LOAD, **MODEL, resource="kv"): flat((1.25, 70))}
        | {selector(N1_LOAD, **MODEL, resource="phases"): flat((0.7, 70))}
        # how both phases are added up is no resource of its own
        | {selector(N1_LOAD, **MODEL, resource="work"): flat((9, 70))}
    )


_N1_INSUFFICIENT = cases(
    "N1Insufficient",
    row(
        "two of three replicas on one node; another model has plenty",
        # without a: 450/600 + 90/300 = 105 %
        fleet("chat", _TWO_ON_A, 36) | fleet("embed", PLENTY, 36),
        {"32m": _n1("105%", nodes="a", of="token rate", ready=3, on=2), "14m": ()},
    ),
    row(
        "short of KV for long enough, then no more",
        _short_of_kv(n1_load=flat((0.9, 10), (1.25, 30), (0.9, 30))),
        {"35m": _n1("125%", nodes="b", of="KV cache", ready=4, on=4), "22m": (), "50m": ()},
    ),
    row(
        "two nodes may go",
        _short_of_kv(n1_load=flat((1.25, 70))),
        {"35m": _n1("125%", nodes="b and c", of="KV cache", ready=4, on=4, which="two largest nodes")},
        rules="two_nodes",
    ),
    row(
        "the same model in two clusters, short in one",
        labelled(fleet("chat", _TWO_ON_A, 36), cluster="eu") | labelled(fleet("chat", PLENTY, 36), cluster="us"),
        {
            "32m": firing(
                "N1Insufficient",
                {"cluster": "eu", **MODEL},
                "eu chat (unified): cannot lose its largest node, 105% of what would be left is needed",
                "Without its largest node (a) the remaining replicas would need 105% of their token rate for the demand of the last hour. 3 replicas "
                "are ready on 2 nodes.",
                rules="clusters",
            )
        },
        rules="clusters",
    ),
    row("it would just do", recorded(n1_load=flat((1, 60))), "50m"),
    row("no load at all", recorded(n1_load=flat((0, 60))), "50m"),
    row("unknown, or one node", recorded(ready=flat((3, 60)), load=flat((3, 60))), "50m"),
)

# --- N1Critical -------------------------------------------------------------------------------------------------------


def _critical(ready: int, wanted: int, needed: str, of: str) -> Firing:
    return firing(
        "N1Critical",
        MODEL,
        f"chat (unified): replicas lost, {ready} left, and they queue",
        f"{ready} of {wanted} wanted replicas are ready. Requests wait, and demand is {needed} of what the ready ones can carry ({of} first).",
    )


# the two were seen at their limit by then, 600 of prefill, 150 of decode, 0.6 + 0.6 s of work a second. Before: 1,350 of prefill (of
# 1,200: 112.5 %), 330 of decode (of 300: 110 %), 3 x (0.45 + 0.44) s of work (of 2.4: 111 %)
_TWO_LEFT = _critical(2, 3, "112.5%", "prefill rate")


def _queue(**more: str) -> Series:
    """Four wanted from the beginning, three there, a queue, too little without another node."""
    series = {
        "ready": flat((3, 120)),
        "present": flat((3, 120)),
        "unreadable": flat((0, 120)),
        "desired": flat((4, 120)),
    }
    series |= {"waiting": flat((6, 120)), "load": flat((0.9, 120)), "n1_load": flat((1.1, 120))}
    return recorded(**{**series, **more}) | {selector(LOAD, **MODEL, resource="concurrency"): flat((0.9, 120))}


_THREE_LEFT = _critical(3, 4, "90%", "running requests")

_N1_CRITICAL = cases(
    "N1Critical",
    row(
        "a node goes with the exporter on it, the others queue",
        node_lost(with_its_exporter=True),
        {"88m": _TWO_LEFT, "69m": (), "74m": ()},
    ),
    row(
        "a node goes, a central exporter finds its replica down, the others queue",
        node_lost(with_its_exporter=False),
        {"88m": _TWO_LEFT, "74m": ()},
    ),
    row("a node goes and nothing waits", node_lost(with_its_exporter=True, waiting=0.0), "88m"),
    row(
        "a replica less and a queue, but nobody said how many there should be",
        node_lost(with_its_exporter=True, expected=None),
        "88m",
    ),
    row("a rolling update while nothing waits", rolling_update(), "15m"),
    row(
        "it is over when the queue is",
        _queue(waiting=flat((6, 90), (0, 30))),
        {"80m": _THREE_LEFT, "50m": (), "63m": (), "100m": ()},
        # what was wanted for less than an hour is deployed for the first time
    ),
    row("the page of one cannot be read, none is known to be lost", _queue(unreadable=flat((1, 120))), "80m"),
    row("all wanted are there", _queue(ready=flat((4, 120)), present=flat((4, 120))), "80m"),
    row("a replica sleeps, none is lost", _queue(present=flat((4, 120))), "80m"),
    row(
        "one is lost, another one sleeps",
        _queue(ready=flat((2, 120))),
        {"80m": _critical(2, 4, "90%", "running requests")},
    ),
    row(
        "one node is left, which is too little",
        recorded(
            ready=flat((1, 120)),
            present=flat((1, 120)),
            unreadable=flat((0, 120)),
            desired=flat((2, 120)),
            waiting=flat((6, 120)),
            load=flat((1.1, 120)),
        )
        | {selector(LOAD, **MODEL, resource="kv"): flat((1.1, 120))},
        {"80m": _critical(1, 2, "110%", "KV cache")},
    ),
    row("it would just do", _queue(n1_load=flat((1, 120)), load=flat((1, 120))), "80m"),
    row("what is left would do", _queue(n1_load=flat((0.99, 120))), "80m"),
    row(
        "an autoscaler asks for more: nothing is lost, until they have not come for an hour",
        _queue(desired=flat((3, 20), (4, 100))),
        {"100m": _THREE_LEFT, "75m": ()},
    ),
    row(
        "what is left is unknown",
        recorded(
            ready=flat((3, 120)),
            present=flat((3, 120)),
            unreadable=flat((0, 120)),
            desired=flat((4, 120)),
            waiting=flat((6, 120)),
        ),
        "80m",
    ),
)

_N1_CASES = (*_N1_INSUFFICIENT, *_N1_CRITICAL)


# --- when the other alerts of check node_loss fire and when they do not: lost replicas, drills ---


# --- ReplicaLost ------------------------------------------------------------------------------------------------------


def lost(missing: int, wanted: int) -> Firing:
    return firing(
        "ReplicaLost",
        MODEL,
        f"chat (unified): {missing} of {wanted} replicas missing",
        f"Wanted: {wanted}. Neither ready nor asleep: {missing}.",
    )


_AN_EXPORTER = {'exporter:llm_serving_exporter:info{instance="a:10077",job="llm"}': flat((1, 60))}


def _pods(count: int, minutes: int) -> Series:
    name = selector("kube_statefulset_replicas", namespace="llm", statefulset="chat")
    return {name: flat((count, minutes))}


_REPLICA_LOST = cases(
    "ReplicaLost",
    row(
        "one of four for ten minutes, then it is back; another model is whole",
        recorded(desired=flat((4, 60)), present=flat((4, 10), (3, 25), (4, 25)))
        | {selector(name, model_name="embed", role="unified"): flat((2, 60)) for name in (DESIRED, PRESENT)},
        {"30m": lost(1, 4), "17m": (), "45m": ()},
    ),
    row(
        "a node goes with the exporter on it",
        node_lost(with_its_exporter=True, waiting=0.0),
        {"88m": lost(1, 3), "77m": ()},
    ),
    row(
        "an autoscaler asks for one more every five minutes, and each takes six to come",
        recorded(
            desired=" ".join(flat((2 + number, 5)) for number in range(12)),
            present=" ".join([flat((2, 6)), *(flat((2 + number, 5)) for number in range(1, 12))]),
        ),
        {"40m": (), "20m": (), "59m": ()},
    ),
    row("a rolling update", rolling_update(), {"15m": (), "24m": ()}),
    row("nobody said how many there should be", recorded(present=flat((1, 60))), "40m"),
    row(
        "all of them went with their exporters, those of other models are there",
        recorded(desired=flat((4, 60))) | _AN_EXPORTER,
        {"40m": lost(4, 4)},
    ),
    row("no exporter is scraped: nobody knows", recorded(desired=flat((4, 60))), "40m"),
    row("scaled to zero", recorded(desired=flat((0, 60))) | _AN_EXPORTER, "40m"),
    row("more than wanted, as during an update", recorded(desired=flat((4, 60)), present=flat((5, 60))), "40m"),
    row(
        "the exporters of one of two clusters are gone",
        labelled(recorded(desired=flat((4, 60))), cluster="eu")
        | labelled(recorded(desired=flat((2, 60)), present=flat((2, 60))) | _AN_EXPORTER, cluster="us"),
        "40m",
        rules="clusters",
    ),
    row(
        "eight pods of two each make four, whatever the exporter expects",
        fleet("chat", PLENTY, 30) | _pods(8, 30) | expected_replicas(3, 30),
        {"25m": lost(1, 4)},
        rules="workloads",
    ),
    row(
        "scaled down by way of Kubernetes",
        fleet("chat", PLENTY, 30) | _pods(6, 30) | expected_replicas(5, 30),
        "25m",
        rules="workloads",
    ),
    row(
        "scaled to zero by way of Kubernetes: the pods went with their exporters",
        _pods(0, 30) | expected_replicas(3, 30) | {'llm_serving_exporter_build_info{version="1.0.0"}': flat((1, 30))},
        "25m",
        rules="workloads",
    ),
)

# --- drills -----------------------------------------------------------------------------------------------------------

_DAY = 86_400


def _drill(name: str, value: float, minutes: int = 120, **labels: str) -> Series:
    return {
        selector(f"llm_serving_drill_{name}", instance="exporter-a:10077", **MODEL, **labels): flat((value, minutes))
    }


def _overdue(age: str) -> Firing:
    return firing(
        "DrillOverdue",
        MODEL,
        f"chat (unified): no node-loss drill passed for {age}",
        "A drill is due every 90d. What has not been tried does not work.",
    )


def _installed(value: float, instance: str) -> Series:
    return {selector("llm_serving_installed_timestamp_seconds", instance=instance): flat((value, 120))}


_SERVED = recorded(targets=flat((2, 120)))


def _result(verdict: str, at: float = 0.0, exporter: str = "exporter-a") -> Series:
    """A file of results as its exporter shows it."""
    found = {"last_run_timestamp_seconds": ({}, at)} | {
        f"last_verdict {one}": ({"verdict": one}, float(one == verdict)) for one in ("passed", "failed", "aborted")
    }
    return {
        selector(f"llm_serving_drill_{name.split()[0]}", instance=f"{exporter}:10077", **MODEL, **labels): flat(
            (value, 120)
        )
        for name, (labels, value) in found.items()
    }


_LAST = "last_success_timestamp_seconds"

_FAILED = firing(
    "DrillFailed",
    MODEL,
    "chat (unified): the last node-loss drill failed",
    "The last drill of chat did not keep the objective, or no page arrived. Its report says what happened.",
)

# a test's history begins at 0, so that what was before is below it
_DRILLS = (
    *cases(
        "DrillOverdue",
        row(
            "91 days since the last one passed, one of another model yesterday",
            _SERVED
            | _drill(_LAST, -91 * _DAY)
            | {selector("model:llm_serving_targets:count", model_name="embed", role="unified"): flat((1, 120))}
            | {
                selector("llm_serving_drill_last_success_timestamp_seconds", model_name="embed", role="unified"): flat(
                    (-_DAY, 120)
                )
            },
            {"90m": _overdue("91d 1h 30m 0s"), "55m": ()},
            rules="drill",
        ),
        row("89 days", _SERVED | _drill(_LAST, -89 * _DAY), "90m", rules="drill"),
        row(
            "none ever passed: since the first exporter was installed, however new the others are",
            _SERVED | _installed(-100 * _DAY, "node-a:10077") | _installed(0, "node-b:10077"),
            {"90m": _overdue("100d 1h 30m 0s")},
            doubled=False,  # the pair of exporters is in it
            rules="drill",
        ),
        row("none ever passed, and nobody knows since when", _SERVED, "90m", rules="drill"),
        row(
            "passed after a long installation",
            _SERVED | _installed(-400 * _DAY, "node-a:10077") | _drill(_LAST, -_DAY),
            "90m",
            rules="drill",
        ),
        row(
            "a model that is no longer served",
            _drill(_LAST, -200 * _DAY)
            | {selector("model:llm_serving_targets:count", model_name="embed", role="unified"): flat((1, 120))},
            "90m",
            rules="drill",
        ),
        row("nobody asked to be reminded", _SERVED | _drill(_LAST, -200 * _DAY), "90m"),
    ),
    *cases(
        "DrillFailed",
        row("the last one failed", _SERVED | _result("failed"), {"5m": _FAILED}),
        row("the last one passed", _SERVED | _result("passed"), "5m"),
        row("the last one was given up", _SERVED | _result("aborted"), "5m"),
        row("a model that is no longer served", _result("failed"), "5m"),
        row(
            "another exporter knows of a later one, which passed",
            _SERVED | _result("failed", -2 * _DAY) | _result("passed", -_DAY, "exporter-b"),
            "5m",
        ),
        row(
            "another exporter knows of a later one, which failed",
            _SERVED | _result("passed", -2 * _DAY) | _result("failed", -_DAY, "exporter-b"),
            {"5m": _FAILED},
            doubled=False,  # the pair of exporters is in it
        ),
    ),
)

CASES = (*_N1_CASES, *_REPLICA_LOST, *_DRILLS)
