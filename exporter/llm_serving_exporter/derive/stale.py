"""Gauges that an engine brings up to date only while requests end, or only as it decodes: otherwise their value is not known."""

from __future__ import annotations

from typing import Any

from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import (
    COUNTER_FIELDS,
    HISTOGRAM_FIELDS,
    LABELLED_COUNTER_FIELDS,
    Absence,
    EngineSnapshot,
    Snapshot,
)

# how long after the last sign of life such a gauge is still shown
FROZEN_AFTER_SECONDS = 30.0


def has_moved(earlier: Snapshot | None, later: Snapshot) -> bool:
    """Whether any counter differs between two snapshots; a first one has not moved."""
    if earlier is None:
        return False
    return [_counts(engine) for engine in earlier.engines] != [_counts(engine) for engine in later.engines]


def _counts(engine: EngineSnapshot) -> tuple[object, ...]:
    return tuple(getattr(engine, name) for name in (*COUNTER_FIELDS, *LABELLED_COUNTER_FIELDS, *HISTOGRAM_FIELDS))


def drop_frozen(snapshot: Snapshot) -> Snapshot:
    """The snapshot without its frozen gauges; they are absent as stale."""
    return _drop(snapshot, snapshot.freezes, snapshot.engines)


def drop_undecoded(earlier: Snapshot | None, later: Snapshot) -> Snapshot:
    """The later snapshot without the gauges that only decoding brings up to date, of engines most of whose passes since the earlier one
    computed prompts; they are absent as stale. An engine that did nothing keeps them."""
    if earlier is None or not later.decode_only:
        return later
    before = {(engine.model_name, engine.engine): engine for engine in earlier.engines}
    prefilled = tuple(
        engine for engine in later.engines if _mostly_prefilled(before.get((engine.model_name, engine.engine)), engine)
    )
    return _drop(later, later.decode_only, prefilled) if prefilled else later


def _mostly_prefilled(earlier: EngineSnapshot | None, later: EngineSnapshot) -> bool:
    if earlier is None or earlier.engine_steps_total is None or later.engine_steps_total is None:
        return False
    passes = later.engine_steps_total - earlier.engine_steps_total
    decoding = (later.decode_steps_total or 0.0) - (earlier.decode_steps_total or 0.0)
    return passes > 0 and decoding < passes / 2


def _drop(snapshot: Snapshot, fields: frozenset[str], dropped: tuple[EngineSnapshot, ...]) -> Snapshot:
    nothing: dict[str, Any] = dict.fromkeys(fields)
    engines = tuple(replace(engine, **nothing) if engine in dropped else engine for engine in snapshot.engines)
    absent = {field: Absence.STALE for field in fields if all(getattr(engine, field) is None for engine in engines)}
    return replace(snapshot, engines=engines, absent={**snapshot.absent, **absent})
