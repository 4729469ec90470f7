"""Courses of drills as their readings would have made them, for tests of what is concluded: a minute is a minute here."""

from typing import Any

from llm_serving_drill import names
from llm_serving_drill.course import (
    AlertRule,
    Baseline,
    Bounds,
    Counts,
    Course,
    Forecast,
    Phase,
    Plan,
    Reading,
    Scope,
    Settings,
    Sighting,
)
from llm_serving_exporter.model.record import replace

START = 1_795_000_000.0
MINUTE = 60.0
BOUNDS = Bounds(errors_ratio=0.05, ttft_seconds=None, duration_seconds=30 * MINUTE)
SETTINGS = Settings(BOUNDS)
# as the rules' defaults have them
RULES = {
    names.REPLICA_LOST: AlertRule(names.REPLICA_LOST, 10 * MINUTE),
    names.TARGETS_DOWN: AlertRule(names.TARGETS_DOWN, 5 * MINUTE),
    names.N1_CRITICAL: AlertRule(names.N1_CRITICAL, 5 * MINUTE),
}


def reading(minute: float, ready: float | None = 4.0, waiting: float | None = 0.0, **more: Any) -> Reading:
    """Four replicas are wanted; `minute` counts from the start."""
    made = {"present": ready, "desired": 4.0, "alive": ready, "nodes": 2.0, "n1_sufficient": True, **more}
    return Reading(START + minute * MINUTE, ready=ready, waiting=waiting, **made)


def seen(name: str, fired: float | None, received: float | None = None, **more: Any) -> Sighting:
    """An alert that fired, and came to Alertmanager, so many minutes after the start."""

    def at(minute: float | None) -> float | None:
        return None if minute is None else START + minute * MINUTE

    return Sighting(name, "warning", at(0), at(fired), at(received), **more)


def course(*readings: Reading, **more: Any) -> Course:
    """A drill of 20 minutes that went well but for what is said: one replica of four lost, seen at the first reading of fewer."""
    lost = next((one.unix_seconds for one in readings if one.ready is not None and one.ready < 4), None)
    made = Course(
        Scope("m"),
        SETTINGS,
        Phase.DONE,
        plan=Plan("a", 2, (), names.ALERTS, (), ()),
        forecast=Forecast(reading(-1), {"a": 2, "b": 2}, "a", RULES),
        baseline=Baseline(600.0, waiting_max=5.0, rejected=0.0, ready_min=4.0),
        before=reading(-0.1),
        readings=readings,
        counts=Counts(ttft_good=9950.0, ttft_bad=50.0, rejected=0.0),
        start_unix_seconds=START,
        lost_unix_seconds=lost,
        end_unix_seconds=START + 20 * MINUTE,
    )
    return replace(made, **more)
