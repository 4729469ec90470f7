"""When the other alerts of check node_loss fire and when they do not: lost replicas, drills."""

from __future__ import annotations

from tests.pack.builders_kv import firing, flat, fleet, labelled, selector
from tests.pack.fleets_node_loss import PRESENT
from tests.pack.histories_node_loss import (
    DESIRED,
    MODEL,
    PLENTY,
    VARIABLES,
    Series,
    expected_replicas,
    node_lost,
    recorded,
    rolling_update,
)
from tests.pack.promtool import Case, Firing

# --- ReplicaLost ------------------------------------------------------------------------------------------------------


def lost(missing: int, wanted: int) -> Firing:
    return firing(
        "ReplicaLost",
        "warning",
        "node_loss",
        MODEL,
        summary=f"chat (unified): {missing} of {wanted} replicas missing",
        description=f"Wanted: {wanted}. Neither ready nor asleep: {missing}.",
        action="find the pod or host that does not come up",
        variables=VARIABLES,
    )


_AN_EXPORTER = {'exporter:llm_serving_exporter:info{instance="a:10077",job="llm"}': flat((1, 60))}


def _pods(count: int, minutes: int) -> Series:
    name = selector("kube_statefulset_replicas", namespace="llm", statefulset="chat")
    return {name: flat((count, minutes))}


_REPLICA_LOST = (
    Case(
        "ReplicaLost",
        "one of four for ten minutes, then it is back; another model is whole",
        recorded(desired=flat((4, 60)), present=flat((4, 10), (3, 25), (4, 25)))
        | {selector(name, model_name="embed", role="unified"): flat((2, 60)) for name in (DESIRED, PRESENT)},
        "30m",
        (lost(1, 4),),
        more=(("17m", ()), ("45m", ())),
    ),
    Case(
        "ReplicaLost",
        "a node goes with the exporter on it",
        node_lost(with_its_exporter=True, waiting=0.0),
        "88m",
        (lost(1, 3),),
        more=(("77m", ()),),
    ),
    Case(
        "ReplicaLost",
        "an autoscaler asks for one more every five minutes, and each takes six to come",
        recorded(
            desired=" ".join(flat((2 + number, 5)) for number in range(12)),
            present=" ".join([flat((2, 6)), *(flat((2 + number, 5)) for number in range(1, 12))]),
        ),
        "40m",
        more=(("20m", ()), ("59m", ())),
    ),
    Case("ReplicaLost", "a rolling update", rolling_update(), "15m", more=(("24m", ()),)),
    Case("ReplicaLost", "nobody said how many there should be", recorded(present=flat((1, 60))), "40m"),
    Case(
        "ReplicaLost",
        "all of them went with their exporters, those of other models are there",
        recorded(desired=flat((4, 60))) | _AN_EXPORTER,
        "40m",
        (lost(4, 4),),
    ),
    Case("ReplicaLost", "no exporter is scraped: nobody knows", recorded(desired=flat((4, 60))), "40m"),
    Case("ReplicaLost", "scaled to zero", recorded(desired=flat((0, 60))) | _AN_EXPORTER, "40m"),
    Case(
        "ReplicaLost",
        "more than wanted, as during an update",
        recorded(desired=flat((4, 60)), present=flat((5, 60))),
        "40m",
    ),
    Case(
        "ReplicaLost",
        "the exporters of one of two clusters are gone",
        labelled(recorded(desired=flat((4, 60))), cluster="eu")
        | labelled(recorded(desired=flat((2, 60)), present=flat((2, 60))) | _AN_EXPORTER, cluster="us"),
        "40m",
        rules="clusters",
    ),
    Case(
        "ReplicaLost",
        "eight pods of two each make four, whatever the exporter expects",
        fleet("chat", PLENTY, 30) | _pods(8, 30) | expected_replicas(3, 30),
        "25m",
        (lost(1, 4),),
        rules="workloads",
    ),
    Case(
        "ReplicaLost",
        "scaled down by way of Kubernetes",
        fleet("chat", PLENTY, 30) | _pods(6, 30) | expected_replicas(5, 30),
        "25m",
        rules="workloads",
    ),
    Case(
        "ReplicaLost",
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
        "info",
        "node_loss",
        MODEL,
        summary=f"chat (unified): no node-loss drill passed for {age}",
        description="A drill is due every 90d. What has not been tried does not work.",
        action="plan a drill: llm-serving-exporter drill --help",
        variables=VARIABLES,
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
    "warning",
    "node_loss",
    MODEL,
    summary="chat (unified): the last node-loss drill failed",
    description="The last drill of chat did not keep the objective, or no page arrived. Its report says what happened.",
    action="read the report and repeat the drill once the cause is fixed",
    variables=VARIABLES,
)

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
        "a model that is no longer served",
        _drill(_LAST, -200 * _DAY)
        | {selector("model:llm_serving_targets:count", model_name="embed", role="unified"): flat((1, 120))},
        "90m",
        rules="drill",
    ),
    Case("DrillOverdue", "nobody asked to be reminded", _SERVED | _drill(_LAST, -200 * _DAY), "90m"),
    Case("DrillFailed", "the last one failed", _SERVED | _result("failed"), "5m", (_FAILED,)),
    Case("DrillFailed", "the last one passed", _SERVED | _result("passed"), "5m"),
    Case("DrillFailed", "the last one was given up", _SERVED | _result("aborted"), "5m"),
    Case("DrillFailed", "a model that is no longer served", _result("failed"), "5m"),
    Case(
        "DrillFailed",
        "another exporter knows of a later one, which passed",
        _SERVED | _result("failed", -2 * _DAY) | _result("passed", -_DAY, "exporter-b"),
        "5m",
    ),
    Case(
        "DrillFailed",
        "another exporter knows of a later one, which failed",
        _SERVED | _result("passed", -2 * _DAY) | _result("failed", -_DAY, "exporter-b"),
        "5m",
        (_FAILED,),
        doubled=False,  # the pair of exporters is in it
    ),
)

CASES = (*_REPLICA_LOST, *_DRILLS)
