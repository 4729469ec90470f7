"""What is remembered of an engine from page to page, and how one more page changes it.

`follow_page` says how a page goes on from those before; `advance` takes it in and makes it comparable with them; `add_to_window` lets it
be the newest. A life of an engine ends where the engine restarts: only how long its requests are is true of the next one too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set

from llm_serving_exporter.derive.born import find_born, leave_out_older, list_counters, mark_unborn
from llm_serving_exporter.derive.falls import (
    NO_FALLS,
    Counts,
    Key,
    find_falls,
    forget_fallen,
    forget_lengths,
    leave_out_fallen,
    read_counts,
)
from llm_serving_exporter.derive.held import Held, hold_counters
from llm_serving_exporter.derive.lengths import Histories, follow_lengths
from llm_serving_exporter.derive.plateau import Plateaus, add_observed_limits, follow_plateaus
from llm_serving_exporter.derive.ring import (
    advance_window,
    has_gap,
    has_restarted,
    keep_unborn,
    merge_counts,
    reads_otherwise,
    shows_nothing_any_more,
)
from llm_serving_exporter.derive.span import find_spans
from llm_serving_exporter.derive.stale import FROZEN_AFTER_SECONDS, drop_frozen, drop_undecoded, has_moved
from llm_serving_exporter.model.record import Struct, field, replace
from llm_serving_exporter.model.snapshot import CounterKey, Snapshot
from llm_serving_exporter.model.window import DeviceSample, Window

# so many pages in a row without any counter of work, of a server that has worked: it restarted. One may be a page with a gap
PAGES_OF_A_RESTART = 2


class Reading(Struct, frozen=True):
    """How a page was read. A counter that comes with another reading is not new."""

    # the reader and the page's layout, each the same object as long as it is the same
    reader: object = None
    layout: object = None
    # whether pages are several workers' in turn
    several_workers: bool = False


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
    lengths: Histories = field(default_factory=dict)
    reading: Reading = field(default_factory=Reading)  # of the last page


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
    reading: Reading,
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
    snapshot = keep_unborn(snapshot, history.fields)
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
    born = find_born(window.later, snapshot, shown, interval_seconds)
    born = leave_out_older(born, find_created({key[2] for key in born}), window.later, interval_seconds)
    return mark_unborn(window, born), frozenset(key[2] for key in list_counters(snapshot) - shown - born)


def _drop_counts(counts: Counts, fallen: frozenset[Key]) -> Counts:
    return {key: count for key, count in counts.items() if key not in fallen}
