"""A target's window moves on by one snapshot; a restart of the engine is detected and starts a new one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from llm_serving_exporter.derive import devices
from llm_serving_exporter.model.devices import DeviceSample
from llm_serving_exporter.model.snapshot import (
    COUNTER_FIELDS,
    HISTOGRAM_FIELDS,
    LABELLED_COUNTER_FIELDS,
    WORK_FIELDS,
    Snapshot,
)
from llm_serving_exporter.model.window import Spans, Window, find_start

# process_start_time_seconds is constant in a process; servers print it to 10 ms
START_TOLERANCE_SECONDS = 0.5
# a snapshot is some 20 KB: what a long window or a short interval may keep of one target
MOST_SNAPSHOTS = 64
# of these, so many at most are older than live signals need: some are to come before the next ones are left out
MOST_OLDER = MOST_SNAPSHOTS // 2 - 4
# counters of engines that come and go, as replicas on a Ray node
MOST_COUNTS = 8192


# (model_name, engine, field) -> the last value that a counter had, by key where it has several; of a histogram its count
Counts = Mapping[tuple[str, str, str], float | Mapping[str, float]]


def read_counts(snapshot: Snapshot) -> Counts:
    """Every counter of the snapshot that only grows in one engine life."""
    found: dict[tuple[str, str, str], float | Mapping[str, float]] = {}
    for engine in snapshot.engines:
        model, rank = engine.model_name, engine.engine
        for name in COUNTER_FIELDS:
            value = getattr(engine, name)
            if value is not None and name not in snapshot.may_fall:
                found[model, rank, name] = value
        for name in LABELLED_COUNTER_FIELDS:
            values = getattr(engine, name)
            if values:
                found[model, rank, name] = values
        for name in HISTOGRAM_FIELDS:
            histogram = getattr(engine, name)
            if histogram is not None:
                found[model, rank, name] = histogram.count
    return found


def merge_counts(known: Counts, now: Counts) -> Counts:
    """What is known with one more snapshot of the same life. Engines that are gone are kept until there are too many of them.

    A restarted server may show its counters, or name its model, only from the first event on: its pages until then say nothing of them.
    """
    return now if known.keys() <= now.keys() or len(known) >= MOST_COUNTS else {**known, **now}


def has_restarted(earlier: Snapshot, later: Snapshot, known: Counts | None = None, now: Counts | None = None) -> bool:
    """Whether the engine restarted in between: another process start, or any counter fell.

    `known`: what `remember` keeps, `earlier` included; `now`: the counts of `later`; both are worked out where they are not given.
    """
    before, after = earlier.process_start_unix_seconds, later.process_start_unix_seconds
    if before is not None and after is not None and abs(after - before) > START_TOLERANCE_SECONDS:
        return True
    last = read_counts(earlier) if known is None else known
    now = read_counts(later) if now is None else now
    fell = [key for key, value in now.items() if key in last and last[key] is not value and _fell(last[key], value)]
    return any(key[2] not in earlier.may_fall and not _reads_otherwise(key[2], earlier, later) for key in fell)


def shows_nothing_any_more(snapshot: Snapshot, known: Counts) -> bool:
    """Whether a page has none of the counters of work, and pages of this engine life had: a restart, or a page with a gap."""
    return snapshot.at_rest and any(
        _is_positive(count) for (_, _, field), count in known.items() if field in WORK_FIELDS
    )


def _is_positive(count: float | Mapping[str, float]) -> bool:
    return any(value > 0 for value in count.values()) if isinstance(count, Mapping) else count > 0


def keep_unborn(snapshot: Snapshot, born: frozenset[str]) -> Snapshot:
    """The snapshot without what it says is yet to be born, and was there earlier in this engine life: that does not count from 0.

    `born`: the fields that pages of this life had.
    """
    found = snapshot.unborn & born
    if not found:
        return snapshot
    at_rest = snapshot.at_rest and not found & WORK_FIELDS
    return replace(snapshot, unborn=snapshot.unborn - found, awaited=snapshot.awaited - found, at_rest=at_rest)


def _fell(before: float | Mapping[str, float], after: float | Mapping[str, float]) -> bool:
    if isinstance(before, int | float) and isinstance(after, int | float):
        return after < before
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return any(after.get(key, value) < value for key, value in before.items())
    return False


def _reads_otherwise(field: str, earlier: Snapshot, later: Snapshot) -> bool:
    before, after = earlier.sources, later.sources
    return field in before and field in after and before[field] != after[field]


def reads_otherwise(earlier: Snapshot, later: Snapshot) -> bool:
    """Whether a counter comes from other samples than before: its values cannot be subtracted."""
    if earlier.sources is later.sources:  # one plan made both
        return False
    counted = (*COUNTER_FIELDS, *LABELLED_COUNTER_FIELDS, *HISTOGRAM_FIELDS)
    return any(_reads_otherwise(field, earlier, later) for field in counted)


def advance_window(
    window: Window | None, snapshot: Snapshot, spans: Spans, device: DeviceSample | None = None
) -> Window:
    """The window with one more snapshot of the same engine life; None = a new life. `device`: the newest pass over the target's GPUs.

    Keeps the newest snapshot that is at least as old as the longest of `spans` as the window's start, so that rates cover the whole
    span; one older than twice that (after an outage) is dropped instead.
    """
    seconds = spans.longest_seconds
    samples = devices.keep_samples(window.devices if window else (), device, snapshot.monotonic_seconds, seconds)
    if window is None:
        return Window((snapshot,), samples, spans)
    kept = _thin_snapshots((*window.snapshots, snapshot), spans.configured_seconds)
    return Window(kept[find_start(kept, seconds) :], samples, spans)


def _thin_snapshots(snapshots: tuple[Snapshot, ...], recent_seconds: float) -> tuple[Snapshot, ...]:
    """Some of the older snapshots left out, where there are many: rates need the ends, means a few dozen readings.

    Those that stay are spread evenly, so that a window in between finds its start. Those of the last `recent_seconds` stay, as far as they
    are not too many by themselves: live signals have no other.
    """
    if len(snapshots) <= MOST_SNAPSHOTS:
        return snapshots
    now = snapshots[-1].monotonic_seconds
    recent = sum(now - one.monotonic_seconds <= recent_seconds for one in snapshots[-MOST_SNAPSHOTS // 2 :])
    older = len(snapshots) - max(3, recent)
    apart = (snapshots[older].monotonic_seconds - snapshots[0].monotonic_seconds) / MOST_OLDER
    kept = [snapshots[0]]
    for one in snapshots[1:older]:
        if one.monotonic_seconds - kept[-1].monotonic_seconds >= apart:
            kept.append(one)
    return (*kept, *snapshots[older:])
