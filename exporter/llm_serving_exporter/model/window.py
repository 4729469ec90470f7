"""Readings of one engine life with everything between them, and its GPUs' over the same span."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from operator import attrgetter

from llm_serving_exporter.model.numbers import Grown, Histogram, add_up
from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot, Snapshot


class Clocks(Struct, frozen=True):
    """How fast the multiprocessors of one target's GPUs run, and what holds them down: means over the GPUs."""

    sm_hertz: float  # now
    sm_max_hertz: float  # that the cards can run at
    power_watts: float | None = None  # drawn by a board; None: at least one does not say
    power_limit_watts: float | None = None  # in force for a board
    held_now: Mapping[str, float] = field(default_factory=dict)  # cause (power, thermal) -> share of the GPUs
    # as of GpuReading, where every GPU's driver counts them
    held_seconds_total: Mapping[str, float] = field(default_factory=dict)


class DeviceSample(Struct, frozen=True):
    """Means over the GPUs of one target. None: at least one of them lacks the reading, with the reason in `absent`."""

    monotonic_seconds: float  # the end of the pass
    gpus: int  # of the target, here
    gpm_ratio: float | None = None  # memory bandwidth used over the peak, 0-1, by NVML's GPM
    dcgm_ratio: float | None = None  # the same by dcgm-exporter
    memory_used_bytes: float | None = None  # of all of them together, not a mean
    absent: Mapping[str, Absence] = field(default_factory=dict)  # field that is None -> why
    # None: a GPU does not show its clock or what holds it, or they are not the target's alone
    clocks: Clocks | None = None


# two readings that are further apart have a gap between them, over which nobody knows what went on: three intervals, and what the jitter of
# their ticks adds to them
GAP_INTERVALS = 3.1


class EngineWindow(Struct, frozen=True, dict=True):
    """One engine's readings with no gap and no counter falling inside."""

    readings: tuple[EngineSnapshot, ...]  # oldest first, at least one
    elapsed_seconds: float  # from the first to the last; 0 with only one reading
    still_zero: frozenset[str] = frozenset()  # fields that the first reading lacks because they stood at 0

    @cached_property  # asked for a hundred times a tick, as `last` is
    def first(self) -> EngineSnapshot:
        """The oldest reading."""
        return self.readings[0]

    @cached_property
    def last(self) -> EngineSnapshot:
        """The newest reading."""
        return self.readings[-1]

    @cached_property
    def _grown(self) -> dict[str, Grown | None]:
        # what was asked for, by field, as in the three below; no part of what is compared. From Python 3.12 on two threads that ask at once
        # may get one each, so that a question holds on to what it got
        return {}

    @cached_property
    def _gained(self) -> dict[str, Histogram | None]:
        return {}

    @cached_property
    def _values(self) -> dict[str, list[float]]:
        return {}

    @cached_property
    def _means(self) -> dict[str, float | None]:
        return {}

    def increase(self, name: str) -> float | None:
        """How much a counter grew. None with one reading, where an end lacks it, or where it fell, which no engine life has."""
        if self.elapsed_seconds <= 0:
            return None
        before, after = getattr(self.first, name), getattr(self.last, name)
        if before is None and name in self.still_zero:
            before = 0.0
        return after - before if before is not None and after is not None and after >= before else None

    def events(self, name: str) -> float | None:
        """How many events a histogram gained. None with one reading, or where an end lacks it."""
        grown = self.grown(name)
        return grown.events if grown is not None else None

    def grown(self, name: str) -> Grown | None:
        """How many events a histogram gained, and their total. None as for `events`."""
        if self.elapsed_seconds <= 0:
            return None
        by_field = self._grown
        if name not in by_field:
            before, after = getattr(self.first, name), getattr(self.last, name)
            if after is None:
                grown = None
            elif before is None:
                grown = Grown(after.count, after.sum) if name in self.still_zero else None
            else:
                grown = after.grown_since(before)
            by_field[name] = grown
        return by_field[name]

    def gained(self, name: str) -> Histogram | None:
        """The events that a histogram gained; one that has just been born counts from 0. None as for `events`."""
        if self.elapsed_seconds <= 0:
            return None
        by_field = self._gained
        if name not in by_field:
            before, after = getattr(self.first, name), getattr(self.last, name)
            if before is None and name in self.still_zero:
                by_field[name] = after
            else:
                by_field[name] = None if after is None or before is None else after.since(before)
        return by_field[name]

    def values(self, name: str) -> list[float]:
        """A field's values at the readings that have it, oldest first. Not to be changed."""
        by_field = self._values
        if name not in by_field:
            read = attrgetter(name)
            by_field[name] = [value for value in map(read, self.readings) if value is not None]
        return by_field[name]

    def mean(self, name: str) -> float | None:
        """Mean of a gauge over the readings that have it; None where none has."""
        by_field = self._means
        if name not in by_field:
            values = self.values(name)
            by_field[name] = add_up(values) / len(values) if values else None
        return by_field[name]


class Spans(Struct, frozen=True):
    """How long the windows of one target have to be."""

    configured_seconds: float  # of all signals but those below
    longer: Mapping[str, float] = field(default_factory=dict)  # field -> what its increase needs, where that is longer

    @property
    def longest_seconds(self) -> float:
        """The longest that any signal needs."""
        return max(self.configured_seconds, *self.longer.values()) if self.longer else self.configured_seconds

    def cover(self, fields: Iterable[str]) -> float:
        """What a figure of these fields needs: as much as the one of them that needs most."""
        longer = self.longer
        if not longer:
            return self.configured_seconds
        return max(self.configured_seconds, *(longer.get(name, 0.0) for name in fields))


class EngineWindows(Struct, frozen=True):
    """One engine's windows that end at the same reading: each figure takes the one that its own fields need."""

    spans: Spans
    by_span: Mapping[float, EngineWindow]  # seconds -> the window of that length; the configured one is always there

    @property
    def configured(self) -> EngineWindow:
        """The window of everything that is live."""
        return self.by_span[self.spans.configured_seconds]

    def cover(self, fields: Iterable[str]) -> EngineWindow:
        """The window of a figure of these fields."""
        if not self.spans.longer:
            return self.by_span[self.spans.configured_seconds]
        return self.by_span[self.spans.cover(fields)]


class Window(Struct, frozen=True):
    """Snapshots of one engine life; no counter falls inside."""

    snapshots: tuple[Snapshot, ...]  # oldest first, at least one
    devices: tuple[DeviceSample, ...] = ()  # within the same span, oldest first; (): not known

    spans: Spans | None = None  # what the signals of the newest snapshot need; None: all need all of the window

    @property
    def later(self) -> Snapshot:
        """The newest snapshot."""
        return self.snapshots[-1]

    def cut(self, seconds: float) -> Window:
        """The newest part of it that covers so many seconds; all of it where it covers no more."""
        start = find_start(self.snapshots, seconds)
        now = self.later.monotonic_seconds
        devices = tuple(sample for sample in self.devices if now - sample.monotonic_seconds <= seconds)
        return self if start == 0 and len(devices) == len(self.devices) else Window(self.snapshots[start:], devices)

    def engine_windows(self) -> tuple[EngineWindows, ...]:
        """The windows of each engine of the newest snapshot, one for each length that its fields need."""
        if self.spans is None or not self.spans.longer:
            spans = self.spans or Spans(0.0)
            return tuple(EngineWindows(spans, {spans.configured_seconds: window}) for window in self.engines())
        spans = self.spans
        lengths = (spans.configured_seconds, *dict.fromkeys(spans.longer.values()))
        cuts = [self.cut(seconds).engines() for seconds in lengths]
        return tuple(EngineWindows(spans, dict(zip(lengths, same, strict=True))) for same in zip(*cuts, strict=True))

    def engines(self) -> tuple[EngineWindow, ...]:
        """A window for each engine of the newest snapshot, as far back as that engine was there without a gap.

        A server at rest may not have shown, or named, an engine that works now: that engine had done nothing then.
        """
        newest = self.snapshots[-1]
        windows = []
        for place, engine in enumerate(newest.engines):
            readings = [engine]
            start = newest
            for snapshot in reversed(self.snapshots[:-1]):
                reading = _same_engine(snapshot, engine, place)
                if reading is None and snapshot.never_worked:
                    reading = EngineSnapshot(engine.model_name, engine.engine)
                if reading is None:
                    break
                readings.append(reading)
                start = snapshot
            readings.reverse()
            elapsed = newest.monotonic_seconds - start.monotonic_seconds
            windows.append(EngineWindow(tuple(readings), elapsed, start.still_zero))
        return tuple(windows)


def find_start(snapshots: tuple[Snapshot, ...], seconds: float) -> int:
    """Where a window of so many seconds starts: at the newest snapshot that is as old, unless that is twice as old, as after an outage."""
    now = snapshots[-1].monotonic_seconds
    start, last = 0, len(snapshots) - 1
    while start < last and now - snapshots[start + 1].monotonic_seconds >= seconds:
        start += 1
    while start < last and now - snapshots[start].monotonic_seconds > 2 * seconds:
        start += 1
    return start


def _same_engine(snapshot: Snapshot, engine: EngineSnapshot, place: int) -> EngineSnapshot | None:
    """The engine's reading in another snapshot; `place` is where it most likely stands."""
    engines = snapshot.engines
    if (
        place < len(engines)
        and engines[place].engine == engine.engine
        and engines[place].model_name == engine.model_name
    ):
        return engines[place]
    for other in engines:
        if other.engine == engine.engine and other.model_name == engine.model_name:
            return other
    return None
