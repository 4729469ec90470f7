"""A target's window moves on by one snapshot; a restart of the engine is detected and starts a new one."""

from __future__ import annotations

from llm_serving_exporter.derive import devices
from llm_serving_exporter.derive.falls import (
    Counts,
    Key,
    are_of_a_restart,
    find_falls,
    is_positive,
    read_counts,
    reads_field_otherwise,
)
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import (
    COUNTER_FIELDS,
    HISTOGRAM_FIELDS,
    LABELLED_COUNTER_FIELDS,
    WORK_FIELDS,
    Snapshot,
)
from llm_serving_exporter.model.window import GAP_INTERVALS, DeviceSample, Spans, Window, find_start

# process_start_time_seconds is constant in a process; servers print it to 10 ms
START_TOLERANCE_SECONDS = 0.5
# a snapshot is some 20 KB: what a long window or a short interval may keep of one target
MOST_SNAPSHOTS = 64
# of these, so many at most are older than live signals need: some are to come before the next ones are left out
MOST_OLDER = MOST_SNAPSHOTS // 2 - 4
# counters of engines that come and go, as replicas on a Ray node
MOST_COUNTS = 8192


def merge_counts(known: Counts, now: Counts) -> Counts:
    """What is known with one more snapshot of the same life. Engines that are gone are kept until there are too many of them.

    A restarted server may show its counters, or name its model, only from the first event on: its pages until then say nothing of them.
    """
    return now if known.keys() <= now.keys() or len(known) >= MOST_COUNTS else {**known, **now}


def has_restarted(
    earlier: Snapshot,
    later: Snapshot,
    known: Counts | None = None,
    now: Counts | None = None,
    *,
    fallen: frozenset[Key] | None = None,
    answered_before: bool = True,
) -> bool:
    """Whether the engine restarted in between: another process start, or its counters fell together.

    `known`: what `merge_counts` keeps, `earlier` included; `now`: the counts of `later`; `fallen`: what `find_falls` says of them; each is
    worked out where it is not given. `answered_before`: no attempt in between failed; over an outage one counter that fell is enough.
    """
    before, after = earlier.process_start_unix_seconds, later.process_start_unix_seconds
    if before is not None and after is not None and abs(after - before) > START_TOLERANCE_SECONDS:
        return True
    last = read_counts(earlier) if known is None else known
    now = read_counts(later) if now is None else now
    fallen = find_falls(earlier, later, last, now) if fallen is None else fallen
    return bool(fallen) and (not answered_before or are_of_a_restart(fallen, last, now))


def shows_nothing_any_more(snapshot: Snapshot, known: Counts) -> bool:
    """Whether a page has none of the counters of work, and pages of this engine life had: a restart, or a page with a gap."""
    return snapshot.at_rest and any(
        is_positive(count) for (_, _, field), count in known.items() if field in WORK_FIELDS
    )


def keep_unborn(snapshot: Snapshot, born: frozenset[str]) -> Snapshot:
    """The snapshot without what it says is yet to be born, and was there earlier in this engine life: that does not count from 0.

    `born`: the fields that pages of this life had.
    """
    found = snapshot.unborn & born
    if not found:
        return snapshot
    at_rest = snapshot.at_rest and not found & WORK_FIELDS
    return replace(snapshot, unborn=snapshot.unborn - found, awaited=snapshot.awaited - found, at_rest=at_rest)


def reads_otherwise(earlier: Snapshot, later: Snapshot) -> bool:
    """Whether a counter comes from other samples than before: its values cannot be subtracted."""
    if earlier.sources is later.sources:  # one plan made both
        return False
    counted = (*COUNTER_FIELDS, *LABELLED_COUNTER_FIELDS, *HISTOGRAM_FIELDS)
    return any(reads_field_otherwise(field, earlier, later) for field in counted)


def has_gap(earlier: Snapshot, later: Snapshot, interval_seconds: float) -> bool:
    """Whether so many pages are missing between the two that no rate is to be worked out over it: an outage, or the machine slept."""
    return later.monotonic_seconds - earlier.monotonic_seconds > GAP_INTERVALS * interval_seconds


def advance_window(
    window: Window | None, snapshot: Snapshot, spans: Spans, device: DeviceSample | None = None
) -> Window:
    """The window with one more snapshot of the same engine life; None: it starts here. `device`: the newest pass over the target's GPUs.

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
