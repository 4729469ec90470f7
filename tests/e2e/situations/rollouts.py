"""Upgrades, rollouts, drains, scaling: what is meant to happen, and what goes wrong with it."""

from functools import partial

from llm_serving_exporter.model.record import replace
from llm_serving_simulator.fleet.fleet import Fleet
from llm_serving_simulator.fleet.scenario import Event
from llm_serving_simulator.fleet.workload import Step
from tests.e2e.situations.fleets import ENGINE, LONG_ANSWERS, SMALL, fleet
from tests.e2e.situations.kube import Drain, Uncordon
from tests.e2e.situations.situation import MINUTE, Expected, Notice, Situation

# what vLLM's page loses where a later version renames families that the exporter does not know yet
LACKS = ("vllm:time_to_first_token_seconds", "vllm:kv_cache_usage_perc")
NEWER = replace(ENGINE, version="0.33.0", lacks=LACKS)
SLOW_TO_LOAD = replace(ENGINE, loading_seconds=5 * MINUTE)
LOST_REPLICAS = frozenset({"ReplicaLost", "N1Critical", "TargetsDown", "TargetDown", "NodeLost"})
NOTHING = Expected(most_pages=0, most_tickets=0)
CAUSE = 30 * MINUTE


def _restart(name: str, loading_minutes: float, fleet: Fleet) -> None:
    fleet.restart(name, loading_seconds=loading_minutes * MINUTE)


def _stop(name: str, fleet: Fleet) -> None:
    fleet.stop(name)


def _reload(minutes: float) -> tuple[tuple[float, partial[None]], ...]:
    """Pod and process end, the next one has pulled its image after seven minutes, and loads for six."""
    at, name = minutes * MINUTE, "dev-model-reloads-0"
    return (at, partial(_stop, name)), (at + 7 * MINUTE, partial(_restart, name, 6.0))


_RELOADS = (30.0, 75.0, 120.0)

SITUATIONS = (
    Situation(
        fleet("calm", 4, 150, requests_per_second=1.0), "nothing happens", NOTHING, None, kube="deployment", gpus=True
    ),
    Situation(
        fleet(
            "upgrade-new-names",
            3,
            120,
            Event(CAUSE, "upgrade"),
            requests_per_second=1.0,
            next_replicas=3,
            next_engine=NEWER,
        ),
        "all pods are replaced by pods of a version without TTFT and KV usage",
        Expected(
            ticket=Notice(("SignalLost",), 40 * MINUTE),
            silent=LOST_REPLICAS,
            most_pages=0,
            most_tickets=1,
            lasts=frozenset({"SignalLost"}),
        ),
        CAUSE,
        kube="deployment",
    ),
    Situation(
        fleet(
            "upgrade-half",
            4,
            120,
            Event(CAUSE, "upgrade", replicas=("upgrade-half-0", "upgrade-half-1")),
            requests_per_second=1.0,
            next_replicas=2,
            next_engine=NEWER,
        ),
        "two of four pods are replaced by pods of a version without TTFT and KV usage, and there it stays",
        Expected(
            ticket=Notice(("SignalLost",), 40 * MINUTE),
            silent=LOST_REPLICAS,
            most_pages=0,
            most_tickets=1,
            lasts=frozenset({"SignalLost"}),
        ),
        CAUSE,
        kube="deployment",
        slow=True,
    ),
    Situation(
        fleet(
            "roll-without-surge", 4, 120, Event(CAUSE, "rolling-update"), requests_per_second=1.0, engine=SLOW_TO_LOAD
        ),
        "a StatefulSet replaces its four pods one after the other, each gone for six minutes",
        replace(NOTHING, silent=LOST_REPLICAS),
        CAUSE,
        kube="statefulset",
        slow=True,
    ),
    Situation(
        fleet("stuck-rollout", 4, 150, requests_per_second=1.0),
        "the first pod of a StatefulSet's new revision never loads",
        Expected(
            ticket=Notice(("ReplicaLost",), 45 * MINUTE), most_pages=0, most_tickets=1, ends_within_seconds=20 * MINUTE
        ),
        CAUSE,
        110 * MINUTE,
        kube="statefulset",
        rollouts=(CAUSE,),
        acts=(
            (CAUSE, partial(_restart, "stuck-rollout-3", 1e5)),
            (110 * MINUTE, partial(_restart, "stuck-rollout-3", 1.5)),
        ),
    ),
    Situation(
        fleet("drain", 3, 120, requests_per_second=1.0),
        "a node is cordoned and drained for forty minutes; no other has room",
        Expected(
            ticket=Notice(("ReplicaLost",), 20 * MINUTE), most_pages=0, most_tickets=2, ends_within_seconds=20 * MINUTE
        ),
        CAUSE,
        70 * MINUTE,
        kube="statefulset",
        acts=((CAUSE, Drain("drain-n1", 70 * MINUTE)), (70 * MINUTE, Uncordon("drain-n1"))),
    ),
    Situation(
        fleet(
            "autoscaler",
            8,
            150,
            Event(CAUSE, "scale", value=8),
            Event(90 * MINUTE, "scale", value=2),
            requests_per_second=0.35,
            engine=SMALL,
            mix=LONG_ANSWERS,
            ready=2,
            # pods are ready a minute and a half after they were asked for
            steps=(Step(CAUSE + 120, 6.5), Step(88 * MINUTE, 1.0)),
        ),
        "an autoscaler goes from two replicas to eight and back as the load does",
        replace(NOTHING, silent=frozenset({"N1Insufficient", *LOST_REPLICAS})),
        CAUSE,
        kube="deployment",
        autoscaled=(2, 8),
    ),
    Situation(
        fleet("dev-model-reloads", 1, 170, requests_per_second=0.2, expected=1),
        "a development model of one replica is replaced three times, thirteen minutes without it each time",
        Expected(most_pages=0, most_tickets=1, ends_within_seconds=20 * MINUTE),
        CAUSE,
        133 * MINUTE,
        kube="deployment",
        rollouts=tuple(minutes * MINUTE for minutes in _RELOADS),
        acts=tuple(act for minutes in _RELOADS for act in _reload(minutes)),
    ),
)
