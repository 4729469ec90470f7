"""Gauges that an engine brings up to date only while requests end: between two such ends their value is not known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

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
    nothing: dict[str, Any] = dict.fromkeys(snapshot.freezes)
    engines = tuple(replace(engine, **nothing) for engine in snapshot.engines)
    absent = {**snapshot.absent, **dict.fromkeys(snapshot.freezes, Absence.STALE)}
    return replace(snapshot, engines=engines, absent=absent)
