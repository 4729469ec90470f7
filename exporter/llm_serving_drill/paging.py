"""Which alerts were due, by what was seen of their conditions, and whether they came."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from llm_serving_drill import names
from llm_serving_drill.course import Course, Reading, Sighting
from llm_serving_drill.measures import find_longest_span, readings_since_loss
from llm_serving_exporter.model.record import Struct


class Arrival(StrEnum):
    """`not due`: its condition did not hold for as long as the rule wants, or nobody asked for it and it did not come."""

    IN_TIME = "in time"
    LATE = "late"
    MISSING = "missing"
    SILENCED = "silenced"
    NOT_DUE = "not due"


class Paged(Struct, frozen=True):
    """An alert after the drill."""

    # the label alertname
    name: str
    # whether it came
    arrival: Arrival
    # when it had to be there; None where it was not due, and for one that was asked for by name, which may come at any time of the drill
    due_unix_seconds: float | None
    # what was seen of it
    sighting: Sighting

    @property
    def good(self) -> bool:
        """It came in time, or it was not due."""
        return self.arrival in (Arrival.IN_TIME, Arrival.NOT_DUE)


def judge_alerts(course: Course) -> tuple[Paged, ...]:
    """Every alert of the plan. Without a loss nothing is due."""
    if course.plan is None or course.lost_unix_seconds is None:
        return ()
    seen = {sighting.name: sighting for sighting in course.sightings}
    found = []
    for name in course.plan.alerts:
        sighting = seen.get(name, Sighting(name))
        required = name in course.plan.required
        due, was_due = (None, True) if required else _find_due(course, name)
        arrival = _judge_arrival(course, sighting, due, was_due)
        found.append(Paged(name, arrival, None if arrival is Arrival.NOT_DUE else due, sighting))
    return tuple(found)


def _judge_arrival(course: Course, sighting: Sighting, due: float | None, was_due: bool) -> Arrival:
    came = sighting.firing_unix_seconds
    if course.alertmanager and came is not None:
        if sighting.silenced:
            return Arrival.SILENCED
        came = sighting.received_unix_seconds
    if came is None:
        return Arrival.MISSING if was_due else Arrival.NOT_DUE
    return Arrival.LATE if due is not None and came > due else Arrival.IN_TIME


def have_all_arrived(course: Course) -> bool:
    """Every alert that is due or was asked for is there (in time or not), and at least one is."""
    found = judge_alerts(course)
    came = [one for one in found if one.arrival in (Arrival.IN_TIME, Arrival.LATE, Arrival.SILENCED)]
    return bool(came) and not any(one.arrival is Arrival.MISSING for one in found)


def _find_due(course: Course, name: str) -> tuple[float | None, bool]:
    """When it had to have come, and whether its condition held until then without a break.

    That is the condition's begin + the rule's `for` + slack; None where it never held or no such rule is loaded.
    """
    rule = course.forecast.rules.get(name) if course.forecast else None
    if rule is None:
        return None, False
    longest = find_longest_span(readings_since_loss(course), _condition_of(name))
    if longest is None:
        return None, False
    begun, ended = longest
    due = begun + rule.for_seconds + course.settings.page_slack_seconds
    return due, due <= ended


def _condition_of(name: str) -> Callable[[Reading], bool]:
    """The alert's condition on a reading, as its rule has it. That N1Critical asks what was wanted for an hour is left out: nobody scales a
    model while it is drilled."""

    def replica_lost(one: Reading) -> bool:
        return one.desired is not None and (one.present or 0.0) < one.desired

    def targets_down(one: Reading) -> bool:
        # without an exporter that knows them, none is alive
        return bool(one.desired) and 1 - (one.alive or 0.0) / (one.desired or 1.0) > names.TARGETS_DOWN_ABOVE

    def critical(one: Reading) -> bool:
        short = one.present is not None and one.desired is not None and one.present < one.desired
        full = max(one.n1_load_max or 0.0, one.load_max or 0.0) > 1
        return short and full and (one.waiting or 0.0) > 0

    conditions = {names.REPLICA_LOST: replica_lost, names.TARGETS_DOWN: targets_down, names.N1_CRITICAL: critical}
    return conditions.get(name, replica_lost)


def hold_is_over(course: Course, now_unix_seconds: float) -> bool:
    """Whether the loss has lasted as long as it was to last before it is restored; never where nobody said how long."""
    settings, lost = course.settings, course.lost_unix_seconds
    if lost is None:
        return False
    if settings.hold_seconds is not None:
        return now_unix_seconds - lost >= settings.hold_seconds
    if not settings.hold_for_page or course.plan is None or course.forecast is None:
        return False
    sightings = {sighting.name: sighting for sighting in course.sightings}
    waited_for = [one for one in sightings.values() if one.pending_unix_seconds and not one.firing_unix_seconds]
    if have_all_arrived(course) and not waited_for:
        return True
    rules = [rule for name, rule in course.forecast.rules.items() if name in course.plan.alerts]
    # a load that is too high is seen once the recorded rates hold nothing of the lost ones any more
    longest = max((rule.for_seconds for rule in rules), default=0.0)
    return now_unix_seconds - lost >= longest + settings.rate_window_seconds + settings.page_slack_seconds
