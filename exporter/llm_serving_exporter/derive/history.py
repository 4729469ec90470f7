"""What is remembered of an engine from page to page, and how one more page changes it.

`follow_page` says how a page goes on from those before; `advance` takes it in and makes it comparable with them; `add_to_window` lets it
be the newest. A life of an engine ends where the engine restarts: only how long its requests are is true of the next one too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any

from llm_serving_exporter.derive.batch import Plateaus, add_observed_limits, follow_plateaus
from llm_serving_exporter.derive.lengths import LengthHistories, follow_lengths
from llm_serving_exporter.derive.window import (
    NO_FALLS,
    Counts,
    Key,
    advance_window,
    find_falls,
    find_spans,
    forget_fallen,
    forget_lengths,
    forget_zeros_of,
    has_gap,
    has_restarted,
    leave_out_fallen,
    merge_counts,
    read_counts,
    reads_otherwise,
    shows_nothing_any_more,
)
from llm_serving_exporter.model.record import Struct, field, replace
from llm_serving_exporter.model.snapshot import (
    COUNTER_FIELDS,
    HISTOGRAM_FIELDS,
    LABELLED_COUNTER_FIELDS,
    Absence,
    CounterKey,
    EngineSnapshot,
    Snapshot,
)
from llm_serving_exporter.model.window import DeviceSample, Window

# --- Counters that an engine shows for the first time, above 0: what they count began at 0, where the page before proves it.


# a page before that is older proves nothing of what went on since
MOST_INTERVALS = 2.1


def list_counters(snapshot: Snapshot) -> frozenset[CounterKey]:
    """Every counter that stands on a page."""
    return frozenset(key for engine in snapshot.engines for key in _list_of_engine(engine))


def _list_of_engine(engine: EngineSnapshot) -> Iterator[CounterKey]:
    for name in COUNTER_FIELDS:
        if getattr(engine, name) is not None:
            yield engine.model_name, engine.engine, name, ""
    for name in LABELLED_COUNTER_FIELDS:
        for key in getattr(engine, name) or ():
            yield engine.model_name, engine.engine, name, key


def find_new_counters(
    earlier: Snapshot, later: Snapshot, shown: frozenset[CounterKey], interval_seconds: float
) -> frozenset[CounterKey]:
    """Counters of the later page that began at 0 since the earlier one, of the same engine life and read the same way.

    Only where the earlier page is at most two intervals old and had the engine, and no page of this life showed the counter (`shown`). What
    appears otherwise is a baseline: nothing says how much of it is new.
    """
    if later.monotonic_seconds - earlier.monotonic_seconds > MOST_INTERVALS * interval_seconds:
        return frozenset()
    engines = {(engine.model_name, engine.engine) for engine in earlier.engines}
    return frozenset(key for key in list_counters(later) - shown if key[:2] in engines or earlier.never_worked)


def leave_out_older(
    new: frozenset[CounterKey], created: Mapping[str, float], earlier: Snapshot, interval_seconds: float
) -> frozenset[CounterKey]:
    """Those without what the server says is older than the earlier page: that page was cut, or another worker's, and proves nothing.

    `created`: name -> when its youngest series was made, in Unix seconds by the server's clock, which may differ from ours by an
    interval; a name without one stays.
    """
    cut = earlier.unix_seconds - interval_seconds
    return frozenset(key for key in new if created.get(key[2], cut) >= cut)


def count_new_from_zero(window: Window, new: frozenset[CounterKey]) -> Window:
    """The window whose pages say of these counters that they stood at 0, so that increases count from there."""
    fields = {name for _, _, name, label in new if not label}
    if not fields:
        return window
    return replace(
        window,
        snapshots=tuple(replace(snapshot, still_zero=snapshot.still_zero | fields) for snapshot in window.snapshots),
    )


# --- Counters that are a difference of two, made fit to be exported: they never fall, and an exporter's restart starts them at 0.
#
# Such a difference dips when one of its two counters is booked before the other. Exported as it is, a dip, or a restart of the exporter
# during one, would read as a counter reset and add the whole lifetime to every increase().


# (model_name, engine, name) -> the value when it was first seen, the highest since
Held = Mapping[tuple[str, str, str], tuple[float, float]]


def hold_counters(held: Held, snapshot: Snapshot, earlier: Snapshot | None = None) -> tuple[Snapshot, Held]:
    """The snapshot with such counters as highest so far less first seen, and what to remember. `held` is {} for a new engine life.

    A counter that is missing for a moment goes on from where it was. `earlier`: the snapshot before in the same life; what is
    still_zero there has counted from 0.
    """
    there = {(engine.model_name, engine.engine) for engine in snapshot.engines}
    after = {key: pair for key, pair in held.items() if key[:2] in there}
    if not snapshot.may_fall:
        return snapshot, after
    still_zero = earlier.still_zero if earlier is not None else frozenset()
    engines = []
    for engine in snapshot.engines:
        values = {}
        for name in snapshot.may_fall:
            value = getattr(engine, name)
            key = (engine.model_name, engine.engine, name)
            first, highest = held.get(key, (0.0 if name in still_zero else value, value))
            if value is not None and first is not None and highest is not None:
                after[key] = first, max(highest, value)
                values[name] = after[key][1] - first
        engines.append(replace(engine, **values) if values else engine)
    return replace(snapshot, engines=tuple(engines)), after


# --- Gauges that an engine brings up to date only while requests end, or only as it decodes: otherwise their value is not known.


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
    absent = {name: Absence.STALE for name in fields if all(getattr(engine, name) is None for engine in engines)}
    return replace(snapshot, engines=engines, absent={**snapshot.absent, **absent})


# --- What is remembered, and how a page changes it.


# so many pages in a row without any counter of work, of a server that has worked: it restarted. One may be a page with a gap
PAGES_OF_A_RESTART = 2


class PageOrigin(Struct, frozen=True):
    """How a page was read. A counter that comes with another reading is not new."""

    reader: object = None  # the reader and the page's layout, each the same object as long as it is the same
    layout: object = None
    several_workers: bool = False  # whether pages are several workers' in turn


class History(Struct, frozen=True):
    """What is remembered of an engine. Of its life, but for `lengths` and `reading`."""

    window: Window | None = None  # None: there is no page yet that the next one is compared with
    counts: Counts = field(default_factory=dict)  # the last value of each counter
    fields: frozenset[str] = frozenset()  # that pages had
    counters: frozenset[CounterKey] = frozenset()  # that pages had
    bare_pages: int = 0  # in a row that lack every counter of work that there was
    held: Held = field(default_factory=dict)
    plateaus: Plateaus = field(default_factory=dict)
    moved_monotonic_seconds: float | None = None  # of the last page that showed the engine at work; None: none did
    lengths: LengthHistories = field(default_factory=dict)
    reading: PageOrigin = field(default_factory=PageOrigin)  # of the last page


class Restarted(Struct, frozen=True):
    """The engine began again since the page before."""


class Reset(Struct, frozen=True):
    """Counters come from other samples than before: there is nothing to subtract."""

    counts: Counts


class Continued(Struct, frozen=True):
    """The same life, or its first page. `fallen`: counters that fell by themselves."""

    counts: Counts
    fallen: frozenset[Key] = NO_FALLS


class Advanced(Struct, frozen=True):
    """After one more page. `late`: counters above 0 of which nothing proves that they began at 0 since the page before."""

    history: History
    snapshot: Snapshot
    late: frozenset[str] = frozenset()


def begin_life(history: History) -> History:
    """What is true of a restarted engine too."""
    return History(lengths=history.lengths, reading=history.reading)


def follow_page(
    history: History, snapshot: Snapshot, *, answered_before: bool
) -> tuple[History, Restarted | Reset | Continued]:
    """How a page goes on from those before. `answered_before`: no attempt since the page before failed."""
    counts = read_counts(snapshot)
    bare_pages = history.bare_pages + 1 if shows_nothing_any_more(snapshot, history.counts) else 0
    if bare_pages != history.bare_pages:
        history = replace(history, bare_pages=bare_pages)
    if history.window is None:
        return history, Continued(counts)
    earlier = history.window.later
    fallen = find_falls(earlier, snapshot, history.counts, counts)
    if bare_pages >= PAGES_OF_A_RESTART or has_restarted(
        earlier, snapshot, history.counts, counts, fallen=fallen, answered_before=answered_before
    ):
        return history, Restarted()
    return history, Reset(counts) if reads_otherwise(earlier, snapshot) else Continued(counts, fallen)


def advance(
    history: History,
    how: Reset | Continued,
    snapshot: Snapshot,
    reading: PageOrigin,
    interval_seconds: float,
    *,
    restarted: bool = False,
    find_created: Callable[[Set[str]], Mapping[str, float]] = lambda fields: {},
) -> Advanced:
    """Takes a page in. `how`: as `follow_page` says of it; `restarted`: whether it is the first of a life after another.

    `find_created`: fields -> when their youngest series were made, by the server's clock. The snapshot that comes out lacks what fell and
    what has not been brought up to date for too long, its differences never fall, and it has the batch limits that were observed.
    """
    counts = how.counts
    if isinstance(how, Reset):
        history = replace(history, window=None, held={}, counts={}, lengths={}, plateaus={})
    elif how.fallen and history.window is not None:
        snapshot = leave_out_fallen(snapshot, how.fallen, history.counts)
        history = replace(
            history,
            window=forget_fallen(history.window, how.fallen),
            lengths=forget_lengths(history.lengths, how.fallen),
            counts=_drop_counts(history.counts, how.fallen),
        )
        counts = _drop_counts(counts, how.fallen)
    snapshot = forget_zeros_of(snapshot, history.fields)
    window, fields, counters, late = history.window, history.fields, history.counters, frozenset[str]()
    if snapshot.sources is not (window.later.sources if window else None):
        fields = fields | snapshot.sources.keys()
        read_alike = reading.reader is history.reading.reader and reading.layout is not history.reading.layout
        if window is not None and read_alike and not reading.several_workers:
            window, late = _count_from_zero(window, snapshot, counters, interval_seconds, find_created)
        counters = counters | list_counters(snapshot)
    earlier = window.later if window is not None else None
    snapshot = drop_undecoded(earlier, snapshot)
    moved = history.moved_monotonic_seconds
    if snapshot.freezes:
        moved = snapshot.monotonic_seconds if has_moved(earlier, snapshot) else moved
        if moved is None or snapshot.monotonic_seconds - moved > FROZEN_AFTER_SECONDS:
            snapshot = drop_frozen(snapshot)
    snapshot, held = hold_counters(history.held, snapshot, earlier)
    plateaus = follow_plateaus(history.plateaus, snapshot, interval_seconds)
    snapshot = add_observed_limits(snapshot, plateaus)
    after = History(
        window=window,
        counts=merge_counts(history.counts, counts),
        fields=fields,
        counters=counters,
        bare_pages=history.bare_pages,
        held=held,
        plateaus=plateaus,
        moved_monotonic_seconds=moved,
        lengths=follow_lengths(history.lengths, snapshot, new_life=restarted),
        reading=reading,
    )
    return Advanced(after, snapshot, late)


def add_to_window(
    history: History, snapshot: Snapshot, window_seconds: float, device: DeviceSample | None, interval_seconds: float
) -> tuple[History, Window]:
    """Lets a page that was taken in be the newest of its window. After a gap the window begins with it, for no rate goes over that."""
    before = history.window
    goes_on = before is not None and not has_gap(before.later, snapshot, interval_seconds)
    window = advance_window(before if goes_on else None, snapshot, find_spans(window_seconds, snapshot), device)
    return replace(history, window=window), window


def _count_from_zero(
    window: Window,
    snapshot: Snapshot,
    shown: frozenset[CounterKey],
    interval_seconds: float,
    find_created: Callable[[Set[str]], Mapping[str, float]],
) -> tuple[Window, frozenset[str]]:
    """Has increases count from 0 for counters that this page is the first to show, where the page before proves that they stood there; and
    the fields of which it does not."""
    new = find_new_counters(window.later, snapshot, shown, interval_seconds)
    new = leave_out_older(new, find_created({key[2] for key in new}), window.later, interval_seconds)
    return count_new_from_zero(window, new), frozenset(key[2] for key in list_counters(snapshot) - shown - new)


def _drop_counts(counts: Counts, fallen: frozenset[Key]) -> Counts:
    return {key: count for key, count in counts.items() if key not in fallen}
