"""Counters that are a difference of two, made fit to be exported: they never fall, and an exporter's restart starts them at 0.

Such a difference dips when one of its two counters is booked before the other. Exported as it is, a dip, or a restart of the
exporter during one, would read as a counter reset and add the whole lifetime to every increase().
"""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import Snapshot

# (model_name, engine, field) -> the value when it was first seen, the highest since
Held = Mapping[tuple[str, str, str], tuple[float, float]]


def hold_counters(held: Held, snapshot: Snapshot, earlier: Snapshot | None = None) -> tuple[Snapshot, Held]:
    """The snapshot with such counters as highest so far less first seen, and what to remember. `held` is {} for a new engine life.

    A counter that is missing for a moment goes on from where it was. `earlier`: the snapshot before in the same life; what is
    unborn there has counted from 0.
    """
    there = {(engine.model_name, engine.engine) for engine in snapshot.engines}
    kept = {key: found for key, found in held.items() if key[:2] in there}
    if not snapshot.may_fall:
        return snapshot, kept
    unborn = earlier.unborn if earlier is not None else frozenset()
    engines = []
    for engine in snapshot.engines:
        values = {}
        for field in snapshot.may_fall:
            value = getattr(engine, field)
            key = (engine.model_name, engine.engine, field)
            first, highest = held.get(key, (0.0 if field in unborn else value, value))
            if value is not None and first is not None and highest is not None:
                kept[key] = first, max(highest, value)
                values[field] = kept[key][1] - first
        engines.append(replace(engine, **values) if values else engine)
    return replace(snapshot, engines=tuple(engines)), kept
