"""Counters that fell since the page before: with the engine, which restarted, or by themselves, which no counter does.

One that falls by itself is left out for that page. What comes after begins a new life of that counter alone: nothing from before is
subtracted from it, so that its figures warm up again while those of the others go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import lt
from typing import Any

from llm_serving_exporter.derive.lengths import Histories
from llm_serving_exporter.model.numbers import Histogram, add_up
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import (
    COUNTER_FIELDS,
    HIDDEN_COUNTER_FIELDS,
    HISTOGRAM_FIELDS,
    LABELLED_COUNTER_FIELDS,
    Absence,
    LeftOut,
    Snapshot,
)
from llm_serving_exporter.model.window import Window

# a counter of a page: model_name, engine, field
Key = tuple[str, str, str]
NO_FALLS: frozenset[Key] = frozenset()
# what a counter had counted, by key where it has several
Count = float | Mapping[str, float] | Histogram
# the last value that each counter had
Counts = Mapping[Key, Count]
_NUMBERS, _PARTS = (*COUNTER_FIELDS, *HIDDEN_COUNTER_FIELDS), (*LABELLED_COUNTER_FIELDS, *HISTOGRAM_FIELDS)
# a restart takes every counter with it, but for those that have already passed what they were
SHARE_OF_A_RESTART = 0.5


def read_counts(snapshot: Snapshot) -> Counts:
    """Every counter of the snapshot that only grows in one engine life."""
    found: dict[Key, Count] = {}
    for engine in snapshot.engines:
        model, rank = engine.model_name, engine.engine
        for name in _NUMBERS:
            value = getattr(engine, name)
            if value is not None and name not in snapshot.may_fall:
                found[model, rank, name] = value
        for name in _PARTS:
            values = getattr(engine, name)
            if values:
                found[model, rank, name] = values
    return found


def find_falls(earlier: Snapshot, later: Snapshot, known: Counts, now: Counts) -> frozenset[Key]:
    """The counters that fell. `known`: what they were last, `earlier` included; `now`: what `later` has."""
    last = known.get
    fell = [
        key
        for key, value in now.items()
        if (before := last(key)) is not None
        and before is not value
        # numbers are the most of them
        and (value < before if type(value) is float and type(before) is float else _fell(before, value))
    ]
    if not fell:
        return NO_FALLS
    return frozenset(
        key for key in fell if key[2] not in earlier.may_fall and not reads_field_otherwise(key[2], earlier, later)
    )


def are_of_a_restart(fallen: frozenset[Key], known: Counts, now: Counts) -> bool:
    """Whether so many of an engine's counters fell that it must have restarted. Those that stood at 0 cannot fall, and say nothing."""
    for engine in {key[:2] for key in fallen}:
        could = [
            key
            for key in now
            if key[:2] == engine and key[2] not in HIDDEN_COUNTER_FIELDS and key in known and is_positive(known[key])
        ]
        if sum(key in fallen for key in could) >= max(1.0, SHARE_OF_A_RESTART * len(could)):
            return True
    return False


def _fell(before: Count, after: Count) -> bool:
    if isinstance(before, float) and isinstance(after, float):
        return after < before
    if isinstance(before, Histogram) and isinstance(after, Histogram):
        if after.count < before.count:
            return True
        if before.sum is not None and after.sum is not None and after.sum < before.sum:
            return True
        # most pages were read by one plan, which has the edges once
        same = before.edges is after.edges or before.edges == after.edges
        return same and any(map(lt, after.cumulative, before.cumulative))
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return any(after.get(key, value) < value for key, value in before.items())
    return isinstance(before, int | float) and isinstance(after, int | float) and after < before


def is_positive(count: Count) -> bool:
    """Whether anything has been counted."""
    if isinstance(count, Histogram):
        return count.count > 0
    return any(value > 0 for value in count.values()) if isinstance(count, Mapping) else count > 0


def reads_field_otherwise(field: str, earlier: Snapshot, later: Snapshot) -> bool:
    """Whether a field comes from other samples than before."""
    before, after = earlier.sources, later.sources
    return field in before and field in after and before[field] != after[field]


def leave_out_fallen(snapshot: Snapshot, fallen: frozenset[Key], known: Counts) -> Snapshot:
    """The snapshot without what fell; its fields are absent as implausible."""
    left_out = tuple(
        LeftOut(*key, f"it fell, from {_describe(known[key])}, and the engine did not restart")
        for key in sorted(fallen)
    )
    absent = {**snapshot.absent, **dict.fromkeys((key[2] for key in fallen), Absence.IMPLAUSIBLE)}
    snapshot = _drop_fallen(snapshot, fallen)
    return replace(snapshot, absent=absent, left_out=(*snapshot.left_out, *left_out), fallen=fallen)


def _describe(count: Count) -> str:
    if isinstance(count, Histogram):
        return f"{count.count:g} events" + ("" if count.sum is None else f" with a sum of {count.sum:g}")
    return f"{add_up(count.values()) if isinstance(count, Mapping) else count:g}"


def forget_fallen(window: Window, fallen: frozenset[Key]) -> Window:
    """The window without what its snapshots know of the counters that fell, so that nothing is subtracted across the fall."""
    fields = {key[2] for key in fallen}
    snapshots = (
        # what was yet to be born then counted from 0 in the life that has ended
        replace(_drop_fallen(one, fallen), unborn=one.unborn - fields, awaited=one.awaited - fields)
        for one in window.snapshots
    )
    return replace(window, snapshots=tuple(snapshots))


def forget_lengths(lengths: Histories, fallen: frozenset[Key]) -> Histories:
    """The histories of request lengths without those of engines whose lengths fell."""
    gone = {key[:2] for key in fallen if key[2] in ("request_prompt_tokens", "request_generation_tokens")}
    return {key: history for key, history in lengths.items() if key not in gone} if gone else lengths


def _drop_fallen(snapshot: Snapshot, fallen: frozenset[Key]) -> Snapshot:
    engines = []
    for engine in snapshot.engines:
        nothing: dict[str, Any] = {
            field: None for model, rank, field in fallen if (model, rank) == (engine.model_name, engine.engine)
        }
        engines.append(replace(engine, **nothing) if nothing else engine)
    return replace(snapshot, engines=tuple(engines))
