"""What a tick's busy time is split by: what was booked in it, or since what the engine books late was booked last.

An engine that books one phase live and the other at a request's end would else give each tick's time to the live phase, and the late one
would have its tokens with the time of the last tick only.
"""

from __future__ import annotations

from llm_serving_exporter.derive.busy import LONGEST_PENDING_SECONDS, was_busy
from llm_serving_exporter.derive.steps import find_decode_field
from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.model.snapshot import HISTOGRAM_FIELDS, EngineSnapshot, Quality
from llm_serving_exporter.model.window import EngineWindow, Window

PREFILL = "prefill_tokens_total"


class Bookings(Struct, frozen=True):
    """What has been booked at a tick, and what the next one counts from."""

    # the readings whose work the busy time is split by; None while what is booked late is still to come
    window: EngineWindow | None
    # the reading that the next tick counts from; None: the one before it
    start: EngineSnapshot | None = None
    # when that was, monotonic seconds
    started_seconds: float = 0.0
    # fields that it lacks because they stood at 0
    unborn: frozenset[str] = field(default_factory=frozenset)


def advance_bookings(tick: EngineWindow, readings: EngineWindow, target: Window, before: Bookings | None) -> Bookings:
    """The bookings after one more tick. `readings`: the engine's within the window, for means.

    An engine that has never booked a phase is not waited for: it may have none, as one that only embeds. Where prompts are what is late,
    they are waited for as long as busy time is: they are short against that, so that decode may have it then. Where it is decode, what
    nobody knows the length of stays pending.
    """
    last, quality = tick.last, target.later.quality
    decode = find_decode_field(last)
    late = next(
        (one for one in (decode, PREFILL) if quality.get(one) is Quality.LAGGING and _count(last, one) > 0), None
    )
    if late is None or not was_busy(tick):  # after a pause nothing of before it is awaited
        return Bookings(tick)
    now = target.later.monotonic_seconds
    waited = before is not None and before.start is not None
    if before is not None and before.start is not None:
        start, since, unborn = before.start, before.started_seconds, before.unborn
    else:
        start, since, unborn = tick.first, target.snapshots[-2].monotonic_seconds, tick.unborn
    overdue = late == PREFILL and now - since + tick.elapsed_seconds > LONGEST_PENDING_SECONDS
    if not overdue and _grew(tick, late) <= 0:
        return Bookings(None, start, since, unborn)
    if not waited:
        return Bookings(tick)
    newer = sum(snapshot.monotonic_seconds > since for snapshot in target.snapshots)
    return Bookings(EngineWindow((start, *readings.readings[-newer:]), now - since, unborn))


def _count(reading: EngineSnapshot, name: str) -> float:
    value = getattr(reading, name)
    return (value.count if name in HISTOGRAM_FIELDS else value) if value is not None else 0.0


def _grew(tick: EngineWindow, name: str) -> float:
    return (tick.events(name) if name in HISTOGRAM_FIELDS else tick.increase(name)) or 0.0
