"""What rollouts, drains and autoscalers open and what they do not."""

from llm_serving_alerts.records.rollouts import HEADROOM
from llm_serving_exporter.model.record import replace
from tests.pack.builders import firing
from tests.pack.builders_kv import flat, selector
from tests.pack.cases_redundancy import lost
from tests.pack.fleets_node_loss import LARGEST, READY
from tests.pack.histories import (
    DESIRED,
    MODEL,
    Pods,
    Series,
    exported,
    known_to_kubernetes,
    minutes,
    nodes,
    recorded,
    stateful,
    workload,
)
from tests.pack.promtool import Case, Firing, cases, row
from tests.pack.samples import Fleet, document, is_

# one of four after the other: gone for a minute, then it loads for five
_ROLL = [
    Pods(
        f"chat-{number}",
        "chat",
        minutes(("ready", 40 + 6 * number), ("", 1), ("loading", 5), ("ready", 74 - 6 * number)),
        "abcd"[number],
    )
    for number in range(4)
]
# its node is closed at 40 and opened again at 90; until then no other has room
_DRAINED = [
    Pods("chat-0", "chat", minutes(("ready", 40), ("", 50), ("loading", 5), ("ready", 25)), "a"),
    *(Pods(f"chat-{number}", "chat", minutes(("ready", 120)), "abcd"[number]) for number in (1, 2, 3)),
]
_STUCK = [
    Pods("chat-0", "chat", minutes(("ready", 40), ("", 1), ("loading", 79)), "a"),
    *(Pods(f"chat-{number}", "chat", minutes(("ready", 120)), "abcd"[number]) for number in (1, 2, 3)),
]
_EVERY = tuple((f"{minute}m", ()) for minute in range(43, 80, 3))
_CLOSED = nodes({"a": flat((0, 40), (1, 50), (0, 30))}, "b", "c", "d")


def _dev(*, changed: tuple[int, ...]) -> Series:
    """A Deployment of one pod without surge: the next one pulls its image for seven minutes and loads for six."""
    pods = [
        Pods("dev-old", "dev", minutes(("ready", 40), ("", 80))),
        Pods("dev-new", "dev", minutes(("", 40), ("pulls", 7), ("loading", 6), ("ready", 67))),
    ]
    found = workload("deployment", "dev", flat((1, 120)), changed)
    for number, one in enumerate(pods):
        found |= exported(one) | known_to_kubernetes(one, f"dev-{number}5f", "ReplicaSet")
    return found


_ROLLOUTS = (
    *(
        Case(
            alert,
            "a StatefulSet rolls, one pod after the other",
            stateful(_ROLL, (40,)),
            {"41m": (), **dict(_EVERY)},
            rules="rollouts",
        )
        for alert in ("ReplicaLost", "TargetDown", "TargetsDown")
    ),
    *cases(
        "ReplicaLost",
        row("the same without a rollout: pods crash, one after the other", stateful(_ROLL), {"55m": lost(1, 4)}),
        row(
            "the first pod of a rollout never loads",
            stateful(_STUCK, (40,)),
            # it is young for ten minutes, progress is remembered for five, and the alert takes its ten
            {"60m": (), "69m": lost(1, 4), "110m": lost(1, 4)},
        ),
        row(
            "a rollout that is begun again and again ends no later",
            stateful(_STUCK, (40, 55, 70, 85)),
            {"75m": lost(1, 4)},
        ),
        row(
            "a node is drained",
            stateful(_DRAINED) | _CLOSED,
            {"52m": lost(1, 4), "48m": (), "80m": lost(1, 4), "116m": ()},
        ),
        row(
            "a node is drained while a rollout makes progress: its pod is not excused",
            stateful([_DRAINED[0], *_ROLL[1:]], (40,)) | _CLOSED,
            {"52m": lost(1, 4)},
        ),
        rules="rollouts",
    ),
    *cases(
        "TargetsDown",
        row("a development model of one pod is replaced", _dev(changed=(40,)), {"44m": (), **dict(_EVERY)}),
        row(
            "the same pod goes without a rollout",
            _dev(changed=()),
            {
                "46m": firing(
                    "TargetsDown",
                    {"model_name": "dev", "role": "unified"},
                    "dev (unified): 100% of its replicas are down",
                    "Replicas wanted: 1, known: unknown. 100% of them do not answer, neither loading nor asleep.",
                )
            },
        ),
        rules="rollouts",
    ),
)


# --- N1Insufficient and autoscalers -----------------------------------------------------------------------------------


def _short(headroom: str = "") -> Series:
    """Two replicas, one of which would need twice what it can for the demand of an hour ago."""
    found = recorded(ready=flat((2, 70)), nodes=flat((2, 70)), n1_load=flat((2, 70)))
    return found | ({selector(HEADROOM, **MODEL): headroom} if headroom else {})


def _insufficient(needed: str) -> Firing:
    return firing(
        "N1Insufficient",
        MODEL,
        f"chat (unified): cannot lose its largest node, {needed} of what would be left is needed",
        f"Without its largest node () the remaining replicas would need {needed} of their  for the demand of the last hour. 2 replicas are ready "
        "on 2 nodes.",
    )


_AUTOSCALED = cases(
    "N1Insufficient",
    row("an autoscaler has just gone from eight to two", _short(flat((7, 70))), "40m"),
    row("it may add too few", _short(flat((1.6, 70))), {"40m": _insufficient("125%")}),
    row("nobody scales", _short(), {"40m": _insufficient("200%")}),
    row(
        "what an autoscaler had an hour ago counts no more",
        _short(f"{flat((7, 30))} stale"),
        {"50m": _insufficient("200%"), "40m": ()},
    ),
)

CASES = (*_ROLLOUTS, *_AUTOSCALED)


def _scaled(name: str, expected: float | None, ready: str, desired: str, largest: float = 1) -> Fleet:
    of_model = {"model_name": name, "role": "unified"}
    series = {
        selector(READY, **of_model): ready,
        selector(DESIRED, **of_model): desired,
        selector(LARGEST, **of_model): flat((largest, 120)),
    }
    return Fleet(name, series, (is_(HEADROOM, expected),))


def _autoscaler(fleet: Fleet, most: float, target: str = "") -> Fleet:
    who = {"namespace": "llm", "horizontalpodautoscaler": f"keda-{fleet.model_name}"}
    of_target = {"scaletargetref_kind": "Deployment", "scaletargetref_name": target or fleet.model_name}
    series = {
        selector("kube_horizontalpodautoscaler_spec_max_replicas", **who): flat((most, 120)),
        selector("kube_horizontalpodautoscaler_info", **who, **of_target): flat((1, 120)),
    }
    return replace(fleet, series={**fleet.series, **series})


_TWO, _FELL, _FELL_LONG_AGO = flat((2, 120)), flat((8, 60), (2, 60)), flat((8, 20), (2, 100))
_FLEETS = (
    # (6 - 1) survivors instead of (2 - 1)
    _autoscaler(_scaled("limited", 5, _TWO, _TWO), 6),
    _autoscaler(_scaled("full", None, _TWO, _TWO), 2),
    # somebody else's autoscaler
    _autoscaler(_scaled("fixed", None, _TWO, _TWO), 6, "fixed-b"),
    _scaled("fell", 7, _FELL, _FELL),
    _scaled("fell-long-ago", None, _FELL_LONG_AGO, _FELL_LONG_AGO),
    # it has not got what it asked for: more is no comfort
    _autoscaler(_scaled("waits", None, _TWO, flat((4, 120))), 8),
    # one node is all: nothing would be left
    _scaled("alone", None, flat((4, 60), (1, 60)), flat((4, 60), (1, 60))),
)
SAMPLES = {"node_loss.autoscaling.samples.yml": document(_FLEETS, "autoscaled", "90m")}
