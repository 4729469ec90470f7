"""Replicas that are sick and serve: slow, in a livelock, flapping, failing."""

from collections.abc import Callable
from functools import partial

from llm_serving_exporter.model.record import replace
from llm_serving_simulator.fleet.fleet import Fleet
from llm_serving_simulator.fleet.scenario import Event
from llm_serving_simulator.fleet.workload import Lengths, Mix
from tests.e2e.situations.fleets import LONG_ANSWERS, SHORT, SMALL, fleet
from tests.e2e.situations.situation import HOUR, MINUTE, Expected, Notice, Situation
from tests.support.builders.pinned import pin_long_prompts, pin_share

CAUSE = 30 * MINUTE
# a sick replica is named, and it is one cause
_NAMED = Expected(silent=frozenset({"N1Insufficient", "N1Critical"}), most_pages=1, most_tickets=2)


def _outlier(name: str, within_minutes: float, replica: int) -> Expected:
    notice = Notice(("ReplicaOutlier",), within_minutes * MINUTE, {"target": f"{name}-{replica}"})
    return replace(_NAMED, ticket=notice, ends_within_seconds=30 * MINUTE)


def _slow_one_of(replicas: int, minutes: float, requests_per_second: float) -> Situation:
    name = f"slow-one-of-{replicas}"
    late = (f"{name}-1",)
    repaired = CAUSE + 20 * MINUTE
    return Situation(
        fleet(
            name, replicas, minutes,
            Event(CAUSE, "delay-first-tokens", replicas=late, value=4.0),
            Event(repaired, "delay-first-tokens", replicas=late, value=0.0),
            requests_per_second=requests_per_second * replicas, mix=SHORT,
        ),
        f"one of {replicas} replicas gives every first token four seconds late",
        _outlier(name, 15.0, 1),
        CAUSE,
        repaired,
        slow=True,
    )  # fmt: skip


def _flaps(
    every: float, bad: float, until: float, begin: Callable[[float], Event], end: Callable[[float], Event]
) -> list[Event]:
    """Bad for some minutes of every so many, for two hours; all in minutes."""
    events, at = [], CAUSE
    while at < until:
        events += [begin(at), end(at + bad * MINUTE)]
        at += every * MINUTE
    return events


def _throttle(value: float, at: float) -> Event:
    return Event(at, "throttle", replicas=("flapping-throttle-1",), value=value)


def _reach(what: str, at: float) -> Event:
    return Event(at, what, replicas=("flapping-unreachable-1",))


def _pin_canary(fleet: Fleet) -> None:
    pin_share(fleet, 0.01, "canary-5")


def _pin_sick(fleet: Fleet) -> None:
    pin_share(fleet, 0.25, "livelock-1")


def _pin_long_prompts(fleet: Fleet) -> None:
    pin_long_prompts(fleet, 4000, "long-prompts-on-one-1")


FLAPS_END = CAUSE + 2 * HOUR

SITUATIONS = (
    _slow_one_of(10, 90, 1.0),
    _slow_one_of(20, 90, 1.0),
    _slow_one_of(100, 90, 0.5),
    Situation(
        fleet(
            "livelock", 4, 140,
            Event(CAUSE, "slow", replicas=("livelock-1",), value=180.0),
            Event(90 * MINUTE, "restart", replicas=("livelock-1",)),
            requests_per_second=0.12, engine=SMALL, mix=LONG_ANSWERS,
        ),
        "a replica makes five tokens a second, and what it is given waits; the others have nothing to do",
        replace(
            _NAMED,
            ticket=Notice(("ReplicaOutlier", "Stalled"), HOUR, {"target": "livelock-1"}),
            ends_within_seconds=40 * MINUTE,
        ),
        CAUSE,
        90 * MINUTE,
        acts=((0.0, _pin_sick),),
    ),
    Situation(
        fleet(
            "flapping-throttle", 3, 220,
            *_flaps(6, 4, FLAPS_END, partial(_throttle, 1.5), partial(_throttle, 1.0)),
            requests_per_second=1.0,
        ),
        "a GPU is throttled for four of every six minutes, for two hours",
        Expected(ticket=Notice(("GPUSlowdown",), 45 * MINUTE, {"gpu": "GPU-.+"}), most_pages=0, most_tickets=1,
                 ends_within_seconds=40 * MINUTE),
        CAUSE,
        FLAPS_END,
        gpus=True,
        slow=True,
    ),
    Situation(
        fleet(
            "flapping-unreachable", 3, 220,
            *_flaps(7, 4, FLAPS_END, partial(_reach, "cut-off"), partial(_reach, "reconnect")),
            requests_per_second=1.0,
        ),
        "a replica does not answer the exporter for four of every seven minutes, for two hours",
        Expected(ticket=Notice(("TargetDown", "RestartLoop"), HOUR, {"target": "flapping-unreachable-1"}), most_pages=0,
                 most_tickets=1, ends_within_seconds=40 * MINUTE),
        CAUSE,
        FLAPS_END,
        discovers=False,
    ),
    Situation(
        fleet(
            "canary", 6, 110, Event(CAUSE, "delay-first-tokens", replicas=("canary-5",), value=6.0),
            requests_per_second=6.0, mix=SHORT,
        ),
        "a canary that gets one request in a hundred gives every first token six seconds late",
        # it has had fifty after 14 minutes
        _outlier("canary", 30.0, 5),
        CAUSE,
        acts=((0.0, _pin_canary),),
    ),
    Situation(
        fleet(
            "long-prompts-on-one", 5, 90, requests_per_second=3.0,
            mix=Mix(Lengths(500, 0.5, most=3000, tail_share=0.1, tail_from=6000, tail_alpha=3.0), SHORT.output),
        ),
        "one of five replicas gets all long prompts, and takes its time with them",
        Expected(silent=frozenset({"ReplicaOutlier"}), most_pages=0, most_tickets=0),
        None,
        acts=((0.0, _pin_long_prompts),),
    ),
    Situation(
        fleet(
            "few-requests-all-fail", 2, 240, Event(CAUSE, "errors", value=1.0), Event(150 * MINUTE, "errors", value=0.0),
            requests_per_second=10 / HOUR,
        ),
        "ten requests an hour come, and all of them fail for two hours",
        Expected(page=Notice(("SLOBurn",), 100 * MINUTE), most_pages=1, most_tickets=1, ends_within_seconds=80 * MINUTE),
        CAUSE,
        150 * MINUTE,
    ),
)  # fmt: skip
