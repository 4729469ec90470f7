"""Counters that an engine shows for the first time, above 0: what they count began at 0, where the page before proves it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import (
    COUNTER_FIELDS,
    LABELLED_COUNTER_FIELDS,
    CounterKey,
    EngineSnapshot,
    Snapshot,
)
from llm_serving_exporter.model.window import Window

# a page before that is older proves nothing of what went on since
MOST_INTERVALS = 2.1


def list_counters(snapshot: Snapshot) -> frozenset[CounterKey]:
    """Every counter that stands on a page."""
    return frozenset(key for engine in snapshot.engines for key in _list_of_engine(engine))


def _list_of_engine(engine: EngineSnapshot) -> Iterator[CounterKey]:
    for field in COUNTER_FIELDS:
        if getattr(engine, field) is not None:
            yield engine.model_name, engine.engine, field, ""
    for field in LABELLED_COUNTER_FIELDS:
        for key in getattr(engine, field) or ():
            yield engine.model_name, engine.engine, field, key


def find_born(
    earlier: Snapshot, later: Snapshot, shown: frozenset[CounterKey], interval_seconds: float
) -> frozenset[CounterKey]:
    """Counters of the later page that began at 0 since the earlier one, of the same engine life and read the same way.

    Only where the earlier page is at most two intervals old and had the engine, and no page of this life showed the counter (`shown`). What
    appears otherwise is a baseline: nothing says how much of it is new.
    """
    if later.monotonic_seconds - earlier.monotonic_seconds > MOST_INTERVALS * interval_seconds:
        return frozenset()
    known = {(engine.model_name, engine.engine) for engine in earlier.engines}
    return frozenset(key for key in list_counters(later) - shown if key[:2] in known or earlier.at_rest)


def leave_out_older(
    born: frozenset[CounterKey], created: Mapping[str, float], earlier: Snapshot, interval_seconds: float
) -> frozenset[CounterKey]:
    """Those without what the server says is older than the earlier page: that page was cut, or another worker's, and proves nothing.

    `created`: field -> when its youngest series was made, in Unix seconds by the server's clock, which may differ from ours by an
    interval; a field without one stays.
    """
    cut = earlier.unix_seconds - interval_seconds
    return frozenset(key for key in born if created.get(key[2], cut) >= cut)


def mark_unborn(window: Window, born: frozenset[CounterKey]) -> Window:
    """The window whose pages say of these counters that they stood at 0, so that increases count from there."""
    fields = {field for _, _, field, label in born if not label}
    if not fields:
        return window
    return replace(window, snapshots=tuple(replace(one, unborn=one.unborn | fields) for one in window.snapshots))
