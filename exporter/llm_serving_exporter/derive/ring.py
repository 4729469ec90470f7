"""A target's window moves on by one snapshot; a restart of the engine is seen and starts it anew."""

from __future__ import annotations

from collections.abc import Sequence

from llm_serving_exporter.derive import devices
from llm_serving_exporter.model.devices import DeviceSample
from llm_serving_exporter.model.snapshot import (
    COUNTER_FIELDS,
    HISTOGRAM_FIELDS,
    LABELLED_COUNTER_FIELDS,
    EngineSnapshot,
    Snapshot,
)
from llm_serving_exporter.model.window import Window

# process_start_time_seconds is constant in a process; servers print it to 10 ms
START_TOLERANCE_SECONDS = 0.5
# a snapshot is some 20 KB: what a long window or a short interval may keep of one target
MOST_SNAPSHOTS = 64


def restarted(earlier: Snapshot, later: Snapshot, older: Sequence[Snapshot] = ()) -> bool:
    """Whether the engine restarted in between: another process start, or any counter fell.

    `older` snapshots are for an engine that `earlier` lacks: a restarted server may name nothing until its first request.
    """
    before, after = earlier.process_start_unix_seconds, later.process_start_unix_seconds
    if before is not None and after is not None and abs(after - before) > START_TOLERANCE_SECONDS:
        return True
    engines = {(engine.model_name, engine.engine): engine for engine in earlier.engines}
    for engine in later.engines:
        identity = engine.model_name, engine.engine
        previous = engines.get(identity) or _last_seen(identity, older)
        if previous is not None and _fell(previous, engine, later.may_fall):
            return True
    return False


def _last_seen(identity: tuple[str, str], snapshots: Sequence[Snapshot]) -> EngineSnapshot | None:
    for snapshot in reversed(snapshots):
        for engine in snapshot.engines:
            if (engine.model_name, engine.engine) == identity:
                return engine
    return None


def _fell(earlier: EngineSnapshot, later: EngineSnapshot, may_fall: frozenset[str]) -> bool:
    for name in COUNTER_FIELDS:
        before, after = getattr(earlier, name), getattr(later, name)
        if before is not None and after is not None and after < before and name not in may_fall:
            return True
    for name in LABELLED_COUNTER_FIELDS:
        before, after = getattr(earlier, name), getattr(later, name)
        if before and after and any(after.get(key, value) < value for key, value in before.items()):
            return True
    for name in HISTOGRAM_FIELDS:
        before, after = getattr(earlier, name), getattr(later, name)
        if before is not None and after is not None and after.count < before.count:
            return True
    return False


def advance(
    window: Window | None, snapshot: Snapshot, span_seconds: float, device: DeviceSample | None = None
) -> Window:
    """The window with one more snapshot of the same engine life; None = a new life. `device`: the newest pass over the target's GPUs.

    Keeps the newest snapshot that is at least `span_seconds` old as the window's start, so that rates cover the whole
    span; one older than twice that (after an outage) is dropped instead.
    """
    samples = devices.keep(window.devices if window else (), device, snapshot.monotonic_seconds, span_seconds)
    if window is None:
        return Window((snapshot,), samples)
    kept = _thinned((*window.snapshots, snapshot))
    now = snapshot.monotonic_seconds
    start = 0
    while start + 1 < len(kept) and now - kept[start + 1].monotonic_seconds >= span_seconds:
        start += 1
    while start + 1 < len(kept) and now - kept[start].monotonic_seconds > 2 * span_seconds:
        start += 1
    return Window(kept[start:], samples)


def _thinned(snapshots: tuple[Snapshot, ...]) -> tuple[Snapshot, ...]:
    """Every other one of the older snapshots left out, where there are many: rates need the ends, means a few dozen readings."""
    if len(snapshots) <= MOST_SNAPSHOTS:
        return snapshots
    return (*snapshots[:1], *snapshots[1:-3:2], *snapshots[-3:])
