"""One scenario over the whole stack: what is asserted of each."""

import warnings
from pathlib import Path

from llm_serving_exporter.model.record import replace
from llm_serving_simulator.fleet.history import recorded, usual
from llm_serving_simulator.fleet.scenario import History, Scenario, load
from llm_serving_simulator.fleet.workload import DAY_SECONDS
from tests.e2e.stack import EVALUATE_SECONDS, Stack, Watched, settings_of, stack

SPEED = 60.0
HOUR = 3600.0
# the fleet's own past: caches are warm and targets have settled when the scenario begins
WARM_SECONDS = HOUR
# hours of a long scenario that are run: from when, and for how long
SLICES = {"calm-day": (12 * HOUR, 3 * HOUR), "weekend-idle": (DAY_SECONDS + 8 * HOUR, 2.5 * HOUR)}
ALWAYS = "LLMServingWatchdog"
MADE_BY_THE_MACHINE = "LLMServingReplicaOutlier"
# where the machine, and with it everything but the simulated time, stood still for that long, nothing can be said of when an alert comes
STOOD_STILL_SECONDS = 2 * EVALUATE_SECONDS
# and where rules were not evaluated when they were due: records age, and what waits for one does not come
MOST_MISSED = 3
ATTEMPTS = 3


def play(name: str, folder: Path, *, servers: int = 1, runtime: str | None = None) -> tuple[Scenario, Watched, Stack]:
    """Runs a scenario to its end and returns what was seen; the stack is down by then, its inbox can still be read. Once more, and once
    again, where the machine stood still.

    `runtime`: whose pages its engines serve, if not those that the scenario says.
    """
    for attempt in range(ATTEMPTS):
        found = _played(name, folder / f"attempt-{attempt}", servers, runtime)
        gap, missed = found[1].longest_gap_seconds, found[1].missed_evaluations
        print(f"{name}: longest gap {gap / SPEED:.1f} s, {missed:g} evaluations missed")
        if gap <= STOOD_STILL_SECONDS and missed <= MOST_MISSED:
            break
        warnings.warn(
            f"{name}: the machine stood still for {gap / SPEED:.1f} s, {missed:g} evaluations were missed",
            MachineStoodStill,
            stacklevel=2,
        )
    return found


class MachineStoodStill(UserWarning):
    """A run that is done again."""


def _played(name: str, folder: Path, servers: int, runtime: str | None) -> tuple[Scenario, Watched, Stack]:
    scenario = load(name)
    if runtime is not None:
        served = tuple(replace(one, engine=replace(one.engine, runtime=runtime)) for one in scenario.replicas)
        scenario = replace(scenario, replicas=served)
    skipped, duration = SLICES.get(name, (0.0, scenario.duration_seconds))
    factor = scenario.history.factor if scenario.history else 1.0
    warmed = replace(scenario, history=History(WARM_SECONDS / DAY_SECONDS, factor))
    fleet = warmed.fleet(with_history=True)
    fleet.advance(WARM_SECONDS + skipped)
    past = recorded(scenario, usual(scenario), SPEED, skipped_seconds=skipped)
    settings = settings_of(scenario)
    with stack(warmed, fleet, settings, folder, speed=SPEED, servers=servers, history=past) as running:
        seen = running.watch(duration)
        unhealthy = [
            (rule["name"], rule.get("lastError"))
            for server in running.prometheus
            for rule in server.rules()
            if rule["health"] != "ok"
        ]
    assert unhealthy == [], unhealthy
    return scenario, seen, running


def assert_as_listed(scenario: Scenario, seen: Watched) -> None:
    """Exactly the alerts that the scenario lists, in time.

    But for an outlier: on a busy machine one simulated replica of an overloaded fleet gets less time than the others, and is one. Where
    time is simulated too (notifications.py), none may be told of.
    """
    wanted = {alert.name for alert in scenario.alerts}
    fired = set(seen.fired) - {ALWAYS, MADE_BY_THE_MACHINE}
    unexpected = {name: seen.labels.get(name) for name in fired - wanted}
    assert fired == wanted - {MADE_BY_THE_MACHINE}, f"fired: {seen.fired}; unexpected: {unexpected}"
    assert ALWAYS in seen.fired
    for alert in scenario.alerts:
        at = seen.fired[alert.name]
        assert at >= alert.after_seconds, f"{alert.name} fired at {at:.0f} s, before its cause"
        if alert.within_seconds is not None:
            late = at - alert.after_seconds - alert.within_seconds
            assert late <= 0, f"{alert.name} fired {late:.0f} s too late"


def assert_pages(seen: Watched, running: Stack) -> None:
    """A page a group of critical alerts, nothing else; what is over was resolved under its key."""
    groups = {
        tuple(labels.get(name, "") for name in ("check", "model_name", "role", "slo", "target"))
        for alert in seen.labels.values()
        for labels in alert
        if labels["severity"] == "critical"
    }
    triggers = [event for event in running.inbox.events if event["event_action"] == "trigger"]
    keys = {event["dedup_key"] for event in triggers}
    assert running.inbox.refused == []
    assert (len(keys) > 0) == (len(groups) > 0)
    assert len(keys) <= len(groups)
    assert all(event["payload"]["severity"] == "critical" for event in triggers)
    over = {event["dedup_key"] for event in running.inbox.events if event["event_action"] == "resolve"}
    assert over <= keys
    still = {
        name for name, found in seen.labels.items() if any(one["severity"] == "critical" for one in found)
    } & seen.last
    if not still:
        assert over == keys
