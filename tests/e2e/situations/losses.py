"""What vanishes: exporters, models, nodes, the network."""

from llm_serving_exporter.model.record import replace
from llm_serving_simulator.fleet.fleet import ReplicaSpec
from llm_serving_simulator.fleet.scenario import Event, Scenario
from llm_serving_simulator.fleet.workload import Step
from tests.e2e.situations.fleets import LONG_ANSWERS, SMALL, WIDE, fleet
from tests.e2e.situations.situation import HOUR, MINUTE, Expected, Exporter, Notice, Outage, Situation

CAUSE, REPAIRED = 30 * MINUTE, 80 * MINUTE
HALF_AN_HOUR = 30 * MINUTE


def _two_models(name: str, minutes: float, *events: Event) -> Scenario:
    """Two replicas of the model `name`, and two of another one beside it."""
    scenario = fleet(name, 4, minutes, *events, requests_per_second=1.0)
    return replace(scenario, replicas=tuple(map(_other_from_2, scenario.replicas)))


def _other_from_2(spec: ReplicaSpec) -> ReplicaSpec:
    if int(spec.name.rpartition("-")[2]) < 2:
        return spec
    return replace(spec, engine=replace(spec.engine, alias=f"{spec.engine.alias}-other"))


def _renamed(name: str) -> Scenario:
    """Three replicas that are replaced by three that serve another model."""
    scenario = fleet(name, 3, 100, Event(CAUSE, "upgrade"), requests_per_second=1.0, next_replicas=3)
    later = tuple(replace(one, engine=replace(one.engine, alias=f"{name}-2")) for one in scenario.replicas[3:])
    return replace(scenario, replicas=(*scenario.replicas[:3], *later))


def _exporters(name: str, *outages: Outage, first: tuple[Outage, ...] = ()) -> tuple[Exporter, ...]:
    """One a model; the second has the outages."""
    return (
        Exporter("exporter-a", (f"{name}-0", f"{name}-1"), first),
        Exporter("exporter-b", (f"{name}-2", f"{name}-3"), outages),
    )


def _lost_node(name: str) -> tuple[Event, ...]:
    return Event(CAUSE, "lose-node", node=f"{name}-n2"), Event(REPAIRED, "return-node", node=f"{name}-n2")


# half of what they can do; from the loss on clients try again, and the three that are left have a queue
_UNDER_LOAD = {"requests_per_second": 1.2, "engine": SMALL, "mix": LONG_ANSWERS}
_STEPS = (Step(CAUSE, 1.6), Step(REPAIRED, 0.6))
_OUTAGE = Outage(CAUSE, REPAIRED)
_ONE_EXPORTER = Expected(
    ticket=Notice(("ExporterAbsent",), 20 * MINUTE), most_pages=1, most_tickets=1, ends_within_seconds=HALF_AN_HOUR
)
_ONE_NODE = Expected(
    page=Notice(("NodeLost",), 10 * MINUTE), most_pages=1, most_tickets=2, ends_within_seconds=75 * MINUTE
)
_VANISHED = Expected(page=Notice(("TargetsDown",), 20 * MINUTE), ends_within_seconds=HALF_AN_HOUR)

SITUATIONS = (
    Situation(
        _two_models("exporter-down", 120),
        "one of two exporters, each with a model of its own, does not answer Prometheus",
        _ONE_EXPORTER,
        CAUSE,
        REPAIRED,
        exporters=_exporters("exporter-down", _OUTAGE),
        kube="deployment",
    ),
    Situation(
        _two_models("exporter-vanishes", 120),
        "one of two exporters, each with a model of its own, is gone from Prometheus' targets too",
        _ONE_EXPORTER,
        CAUSE,
        REPAIRED,
        exporters=_exporters("exporter-vanishes", replace(_OUTAGE, scraped=False)),
        slow=True,
    ),
    Situation(
        _two_models("cluster-exporters-vanish", 120),
        "all exporters of one of several clusters are gone",
        Expected(
            ticket=Notice(("ExporterAbsent",), 20 * MINUTE, {"cluster": "cluster-exporters-vanish"}),
            most_pages=1,
            most_tickets=1,
            ends_within_seconds=HALF_AN_HOUR,
        ),
        CAUSE,
        REPAIRED,
        exporters=_exporters(
            "cluster-exporters-vanish", replace(_OUTAGE, scraped=False), first=(replace(_OUTAGE, scraped=False),)
        ),
        slow=True,
    ),
    Situation(
        fleet(
            "model-vanishes", 3, 130, Event(CAUSE, "scale", value=0), Event(REPAIRED, "scale", value=3),
            requests_per_second=1.0,
        ),
        "all pods of a model are gone and nobody says that this is wanted",
        replace(_VANISHED, most_tickets=0),
        CAUSE,
        REPAIRED,
    ),
    Situation(
        fleet(
            "model-scaled-to-zero", 3, 130, Event(CAUSE, "scale", value=0), Event(REPAIRED, "scale", value=3),
            requests_per_second=1.0, steps=(Step(CAUSE - 60, 0.0), Step(REPAIRED + 150, 1.0)),
        ),
        "a Deployment is scaled to zero and back: kube-state-metrics says that none is wanted",
        Expected(
            most_pages=0, most_tickets=0, silent=frozenset({"TargetsDown", "TargetDown", "ReplicaLost"}),
            ends_within_seconds=HALF_AN_HOUR,
        ),
        CAUSE,
        REPAIRED,
        kube="deployment",
        slow=True,
    ),
    Situation(
        fleet("retired-model", 3, 130, Event(CAUSE, "scale", value=0), requests_per_second=1.0),
        "a model is removed for good, and the settings say that it is retired",
        Expected(most_pages=0, most_tickets=0),
        CAUSE,
        retired_until="2024-01-10T00:00:00Z",
    ),
    Situation(
        fleet("model-removed", 3, 100, Event(CAUSE, "scale", value=0), requests_per_second=1.0),
        "a Deployment is removed; kube-state-metrics, which told of it, is still there",
        Expected(most_pages=0, most_tickets=0, silent=frozenset({"TargetsDown", "TargetDown", "ReplicaLost"})),
        CAUSE,
        kube="deployment",
        removed_seconds=CAUSE,
    ),
    Situation(
        _renamed("model-renamed"),
        "all pods of a model are replaced by pods that serve it under another name; nobody says that the old one is retired",
        replace(_VANISHED, most_tickets=0),
        # the first of three is replaced by then, the last one three minutes later
        CAUSE + 3 * MINUTE,
        slow=True,
    ),
    Situation(
        _renamed("model-renamed-managed"),
        "a Deployment is replaced by another one that serves under another name, and removed; kube-state-metrics is there",
        Expected(most_pages=0, most_tickets=0),
        CAUSE + 3 * MINUTE,
        kube="deployment",
        removed_seconds=CAUSE + 3 * MINUTE,
    ),
    Situation(
        fleet("model-gone-for-a-day", 2, 28 * 60, Event(2 * HOUR, "scale", value=0), requests_per_second=0.05),
        "all pods of a model are gone for 26 hours, and nobody repairs it",
        replace(_VANISHED, most_tickets=1, lasts=frozenset({"TargetsDown"})),
        2 * HOUR,
        slow=True,
    ),
    Situation(
        fleet("lost-node", 4, 160, *_lost_node("lost-node"), steps=_STEPS, expected=4, **_UNDER_LOAD),
        "one of four nodes under load is lost for fifty minutes",
        replace(_ONE_NODE, page=Notice(("NodeLost",), 10 * MINUTE, {"node": "lost-node-n2"})),
        CAUSE,
        REPAIRED,
        kube="deployment",
        gpus=True,
    ),
    Situation(
        fleet("lost-node-unmanaged", 4, 160, *_lost_node("lost-node-unmanaged"), steps=_STEPS, expected=4, **_UNDER_LOAD),
        "the same where no Kubernetes is, and the exporter has a fixed list of targets",
        replace(_ONE_NODE, page=Notice(("NodeLost",), 10 * MINUTE, {"node": "lost-node-unmanaged-n2"})),
        CAUSE,
        REPAIRED,
        discovers=False,
        slow=True,
    ),
    Situation(
        fleet(
            "lost-node-of-two", 3, 160, *_lost_node("lost-node-of-two"), nodes_each=2, expected=3,
            requests_per_second=1.4, engine=WIDE, mix=LONG_ANSWERS,
        ),
        "a replica that spans two nodes loses one of them",
        replace(_ONE_NODE, page=Notice(("NodeLost",), 10 * MINUTE, {"node": "lost-node-of-two-n2"})),
        CAUSE,
        REPAIRED,
        discovers=False,
        slow=True,
    ),
    Situation(
        _two_models("lost-network", 130, Event(CAUSE, "cut-off"), Event(REPAIRED, "reconnect")),
        "an exporter cannot reach any of its targets, of two models, for fifty minutes",
        Expected(
            page=Notice(("FleetUnreachable",), 10 * MINUTE, {"cluster": "lost-network"}),
            most_pages=1,
            most_tickets=1,
            ends_within_seconds=HALF_AN_HOUR,
        ),
        CAUSE,
        REPAIRED,
        kube="deployment",
        discovers=False,
    ),
)  # fmt: skip
