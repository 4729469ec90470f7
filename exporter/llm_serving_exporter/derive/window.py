"""A target's window moves on by one snapshot; a restart of the engine, or a counter that fell by itself, is seen."""

from __future__ import annotations

from collections.abc import Mapping
from operator import lt
from typing import Any

from llm_serving_exporter.derive.devices import keep_samples
from llm_serving_exporter.derive.lengths import LengthHistories
from llm_serving_exporter.model.numbers import Histogram, add_up
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import (
    COUNTER_FIELDS,
    HIDDEN_COUNTER_FIELDS,
    HISTOGRAM_FIELDS,
    LABELLED_COUNTER_FIELDS,
    WORK_FIELDS,
    Absence,
    EngineSnapshot,
    LeftOut,
    Quality,
    Snapshot,
)
from llm_serving_exporter.model.window import GAP_INTERVALS, DeviceSample, Spans, Window, find_start

# --- Counters that fell since the page before: with the engine, which restarted, or by themselves, which no counter does.
#
# One that falls by itself is left out for that page. What comes after begins a new life of that counter alone: nothing from before is
# subtracted from it, so that its figures warm up again while those of the others go on.


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
    counts: dict[Key, Count] = {}
    for engine in snapshot.engines:
        model, rank = engine.model_name, engine.engine
        for name in _NUMBERS:
            value = getattr(engine, name)
            if value is not None and name not in snapshot.may_fall:
                counts[model, rank, name] = value
        for name in _PARTS:
            values = getattr(engine, name)
            if values:
                counts[model, rank, name] = values
    return counts


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
        # what was still 0 then counted from 0 in the life that has ended
        replace(
            _drop_fallen(snapshot, fallen), still_zero=snapshot.still_zero - fields, awaited=snapshot.awaited - fields
        )
        for snapshot in window.snapshots
    )
    return replace(window, snapshots=tuple(snapshots))


def forget_lengths(lengths: LengthHistories, fallen: frozenset[Key]) -> LengthHistories:
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


# --- How long the windows of a target's signals have to be: longer than configured where the engine books late or refreshes slowly.


# tokens booked at a request's end: over a window of so many of the longest requests the lumps are a small share
REQUESTS_IN_A_WINDOW = 4
# for an engine that books so and does not say how long its requests take; and the longest that any window gets
LAGGING_SECONDS, LONGEST_SECONDS = 300.0, 600.0
# two readings of a counter that is refreshed every N seconds are each up to N old: over twelve of them the error is at most a twelfth
REFRESHES_IN_A_WINDOW = 12
# rates of these are what a window is for; with the live count of tokens under way the booked one is not needed
_BOOKED = {"decode_tokens_total": "decode_tokens_live", "prefill_tokens_total": ""}


def find_spans(configured_seconds: float, snapshot: Snapshot) -> Spans:
    """How long the windows of this snapshot's signals have to be: as configured, and longer for counters that are booked late or refreshed
    slowly, at most LONGEST_SECONDS. One that is does not lengthen the windows of others."""
    needed = {
        field: seconds * REFRESHES_IN_A_WINDOW
        for field, seconds in snapshot.refreshed_every.items()
        if seconds * REFRESHES_IN_A_WINDOW > configured_seconds
    }
    late = [field for field, live in _BOOKED.items() if _books_late(snapshot, field, live)]
    if _finds_late(snapshot):
        late.append("prefix_cache_hits")
    if late:
        longest = [
            longest_request for engine in snapshot.engines if (longest_request := _longest_request(engine)) is not None
        ]
        seconds = REQUESTS_IN_A_WINDOW * max(longest) if longest else LAGGING_SECONDS
        needed.update((field, max(seconds, needed.get(field, 0.0))) for field in late)
    if not needed:
        return Spans(configured_seconds)
    bounded = {field: min(seconds, LONGEST_SECONDS) for field, seconds in needed.items()}
    return Spans(configured_seconds, {field: span for field, span in bounded.items() if span > configured_seconds})


def _books_late(snapshot: Snapshot, field: str, live: str) -> bool:
    if snapshot.quality.get(field) is not Quality.LAGGING:
        return False
    return not live or all(getattr(engine, live) is None for engine in snapshot.engines)


def _finds_late(snapshot: Snapshot) -> bool:
    """Whether cache hits are booked at a request's end, and what was looked up is not: their ratio needs both of most requests."""
    quality = snapshot.quality.get
    return quality("prefix_cache_hits") is Quality.LAGGING and quality("prefix_cache_queries") is not Quality.LAGGING


def _longest_request(engine: EngineSnapshot) -> float | None:
    """p99 of all requests since the engine started; None where it does not say."""
    finished = engine.e2e_request_latency_seconds
    p99 = finished.quantile(0.99) if finished is not None else None
    return p99.value if p99 is not None else None


# --- A target's window moves on by one snapshot; a restart of the engine is detected and starts a new one.


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
    return snapshot.never_worked and any(
        is_positive(count) for (_, _, field), count in known.items() if field in WORK_FIELDS
    )


def forget_zeros_of(snapshot: Snapshot, shown: frozenset[str]) -> Snapshot:
    """The snapshot without what it says is still 0, and was there earlier in this engine life: that does not count from 0.

    `shown`: the fields that pages of this life had.
    """
    seen = snapshot.still_zero & shown
    if not seen:
        return snapshot
    never_worked = snapshot.never_worked and not seen & WORK_FIELDS
    return replace(
        snapshot, still_zero=snapshot.still_zero - seen, awaited=snapshot.awaited - seen, never_worked=never_worked
    )


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
    samples = keep_samples(window.devices if window else (), device, snapshot.monotonic_seconds, seconds)
    if window is None:
        return Window((snapshot,), samples, spans)
    snapshots = _thin_snapshots((*window.snapshots, snapshot), spans.configured_seconds)
    return Window(snapshots[find_start(snapshots, seconds) :], samples, spans)


def _thin_snapshots(snapshots: tuple[Snapshot, ...], recent_seconds: float) -> tuple[Snapshot, ...]:
    """Some of the older snapshots left out, where there are many: rates need the ends, means a few dozen readings.

    Those that stay are spread evenly, so that a window in between finds its start. Those of the last `recent_seconds` stay, as far as they
    are not too many by themselves: live signals have no other.
    """
    if len(snapshots) <= MOST_SNAPSHOTS:
        return snapshots
    now = snapshots[-1].monotonic_seconds
    recent = sum(now - snapshot.monotonic_seconds <= recent_seconds for snapshot in snapshots[-MOST_SNAPSHOTS // 2 :])
    older = len(snapshots) - max(3, recent)
    apart = (snapshots[older].monotonic_seconds - snapshots[0].monotonic_seconds) / MOST_OLDER
    thinned = [snapshots[0]]
    for snapshot in snapshots[1:older]:
        if snapshot.monotonic_seconds - thinned[-1].monotonic_seconds >= apart:
            thinned.append(snapshot)
    return (*thinned, *snapshots[older:])
