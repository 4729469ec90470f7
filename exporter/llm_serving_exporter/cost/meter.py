"""Counts what a target costs at each tick, whether or not its page could be read.

The state between ticks is here, the arithmetic in derive.

Down and loading engines still cost. They keep the names that their last good page gave them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from functools import lru_cache, partial
from types import MappingProxyType

from llm_serving_exporter.cost.attribution import (
    add_energy,
    add_savings,
    advance_totals,
    settle_pending,
    split_busy_time,
)
from llm_serving_exporter.cost.attribution import describe_inputs as cost_describe_inputs
from llm_serving_exporter.cost.terms import (
    COST,
    ENERGY,
    PER_MILLION,
    PER_REQUEST,
    PER_TOKEN,
    SAVINGS,
    SECONDS,
    SIGNALS,
    Key,
    Terms,
    collect_work,
    explain_uncounted,
    find_price_of,
    judge_state,
    list_absences,
    select_engines,
)
from llm_serving_exporter.cost.window import CostWindow, WindowFigures
from llm_serving_exporter.model.cost import (
    EngineCost,
    EngineTotals,
    GpuState,
    KeptCost,
    Price,
    TargetCost,
    TickWork,
    WindowCost,
)
from llm_serving_exporter.model.gpu import BusyTime, GpuReadings
from llm_serving_exporter.model.hardware import BusySource, TargetGpus
from llm_serving_exporter.model.later import Later
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.record import Struct, field, replace
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.target import Identity, Target
from llm_serving_exporter.model.window import GAP_INTERVALS

# --- Energy of a target's GPUs between two ticks.


class Joules:
    """Counts from tick to tick. `last`: what the counter of each GPU stood at, by UUID."""

    def __init__(self) -> None:
        self.last: dict[str, float] = {}

    def count(self, reading: TargetReading, gpus: GpuReadings | None) -> float | None:
        """Joules of the target's GPUs since the last tick, of each its own share of it; None where one of them does not say.

        Only GPUs that the target has now are remembered. What others use a GPU for while it is theirs is not counted here, also where
        the target gets it back.
        """
        uuids = reading.gpus.uuids
        self.last = {uuid: counter for uuid, counter in self.last.items() if uuid in uuids}
        if gpus is None or not uuids:
            return None
        by_uuid = {gpu.identity.uuid: gpu.energy_joules_total for gpu in gpus.gpus}
        now = {uuid: joules for uuid in uuids if (joules := by_uuid.get(uuid)) is not None}
        if len(now) < len(uuids):
            return None
        before, self.last = self.last, now
        # one may be its own and another shared: a mean share of their sum would take too much of the one that draws less
        shares = {uuid: _find_share(reading, uuid) for uuid in uuids}
        # a driver that was reloaded counts from 0
        return add_up(shares[uuid] * max(0.0, joules - before.get(uuid, joules)) for uuid, joules in now.items())


def _find_share(reading: TargetReading, uuid: str) -> float:
    part = reading.gpus.parts.get(uuid)
    stated = reading.target.gpu_share or (1.0 if part is None else part.share)
    return stated or reading.gpu_share or 1.0


# --- How much of a tick a target's GPUs were busy by what watches them, tick by tick.


# passes over the GPUs may be rarer than ticks: what the last one told holds so long
LONGEST_PASS_SECONDS = 60.0


class Occupancy:
    """The GPUs' busy time since the tick before. `advance` is called once a tick."""

    def __init__(self) -> None:
        # by UUID, at the last tick at which it had moved
        self._before: dict[str, BusyTime] = {}
        # of the GPUs together, at that tick, and who watched it; passes may be rarer than ticks
        self._share: float | None = None
        self._source = BusySource.GPM
        # monotonic seconds: when the share was worked out, and when a page last showed work
        self._shared_at = self._worked_at = -math.inf
        # that the last share is of, and the last tick
        self._covered_seconds = self._tick_seconds = 0.0
        self._now = 0.0

    @property
    def _worked_lately(self) -> bool:
        """Whether a page showed work since shortly before the last pass began: it and a tick are not of the same moment."""
        return self._now - self._worked_at <= 2 * (self._covered_seconds + self._tick_seconds)

    def advance(
        self, reading: TargetReading, gpus: GpuReadings | None, *, worked: bool, now: float, elapsed: float
    ) -> None:
        """Takes the last pass. `worked`: whether the page shows work of this tick; `now`: monotonic seconds, `elapsed`: the tick's."""
        self._now, self._tick_seconds = now, elapsed
        if worked:
            self._worked_at = now
        times = _find_times(reading, gpus)
        if times is None:
            self._before, self._share = {}, None
            return
        busy = covered = 0.0
        moved = False
        for uuid, time in times.items():
            before = self._before.get(uuid)
            if before is None or time.source is not before.source or time.covered_seconds < before.covered_seconds:
                self._before[uuid] = time
            elif time.covered_seconds > before.covered_seconds:
                moved = True
                busy += time.busy_seconds - before.busy_seconds
                covered += time.covered_seconds - before.covered_seconds
                self._before[uuid] = time
                self._source = time.source
        self._before = {uuid: self._before[uuid] for uuid in times}
        if moved:
            self._share, self._shared_at = min(1.0, max(0.0, busy / covered)), now
            self._covered_seconds = covered / len(times)
        elif now - self._shared_at > LONGEST_PASS_SECONDS:
            self._share = None

    def choose(self, tick: TickWork) -> tuple[float, BusySource] | None:
        """The share of the tick that was busy, and who says so: the best source that speaks. None: nothing ran in it."""
        if tick.device_share is not None:
            return (tick.device_share, BusySource.PAGE) if tick.busy or tick.device_share > 0 else None
        if self._share is not None:
            return (self._share, self._source) if tick.busy or self._worked_lately else None
        if not tick.busy:
            return None
        if tick.estimated_share is not None:
            return tick.estimated_share, BusySource.ESTIMATE
        return 1.0, BusySource.REQUESTS


def _find_times(reading: TargetReading, gpus: GpuReadings | None) -> dict[str, BusyTime] | None:
    """Busy times of the target's GPUs by UUID; None where one of them is not watched, or others work on it too."""
    uuids = reading.gpus.uuids
    if gpus is None or not gpus.attempt.ok or not uuids or reading.target.gpu_share not in (None, 1.0):
        return None
    if reading.gpus.total is None or reading.gpus.total.count != len(uuids):
        return None
    if any(part.share != 1.0 for part in reading.gpus.parts.values()):
        return None
    by_uuid = {gpu.identity.uuid: gpu.busy_time for gpu in gpus.gpus if gpu.identity.uuid in uuids}
    times = {uuid: time for uuid, time in by_uuid.items() if time is not None}
    return times if len(times) == len(uuids) else None


# --- Whether a target's counting goes on from what an earlier process kept of it, and whether the time between is booked.


class Between(Enum):
    """What becomes of the time between the last tick that was kept and the first of this process."""

    BOOKED = "booked"  # it is the target's, though nobody saw what its GPUs did
    LEFT_OUT = "left out"  # it was too long, or the target is on other GPUs or at another address
    UNDECIDED = "undecided"  # the target's GPUs have not been seen yet


def describe_server(target: Target) -> tuple[str, str]:
    """Digests of a target's address, and of its address and the GPUs that are stated for it. They hold no secret."""
    sizes = (target.tensor_parallel_size, target.pipeline_parallel_size, target.data_parallel_size)
    address = (target.url, target.metrics_path)
    whole = (*address, target.gpus, target.gpu_count, target.gpu_model, *sizes)
    return _digest(address), _digest(whole)


def _digest(words: tuple[object, ...]) -> str:
    return hashlib.sha256(repr(words).encode(errors="backslashreplace")).hexdigest()[:32]


class Resume(Struct, frozen=True):
    """What a target was when an earlier process counted it last."""

    kept: KeptCost  # what that process left
    # when it counted the target last, by this process' monotonic clock; None: on another boot of the host
    counted_at: float | None
    limit_seconds: float  # the longest time between that is booked

    def decide(self, reading: TargetReading, now: float) -> Between:
        """What becomes of the time between, as of a tick at `now`."""
        kept = self.kept
        if self.counted_at is None or not 0 <= now - self.counted_at <= self.limit_seconds:
            return Between.LEFT_OUT
        if describe_server(reading.target) != kept.server:
            return Between.LEFT_OUT
        if set(reading.gpus.uuids) == set(kept.gpu_uuids):
            return Between.BOOKED
        # the first pass over the GPUs may come after the first tick
        return Between.LEFT_OUT if reading.gpus.uuids else Between.UNDECIDED


# --- The meter.


# names that an engine had within one exporter's life; a server that changes its model for each request is not followed further
MOST_NAMES = 32


# a setting's words stay as long as it
describe_inputs = lru_cache(maxsize=8)(cost_describe_inputs)
# of an engine without a page
_NOTHING = Later(WindowCost)


def _take_cost(figures: Later[WindowFigures]) -> Later[WindowCost]:
    return Later(lambda: figures.value.cost)


class _Engine(Struct):
    totals: EngineTotals = field(default_factory=EngineTotals)  # since the exporter's start
    window: CostWindow = field(default_factory=CostWindow)  # the last minute or so, for figures per token and request


class _Tick(Struct, frozen=True):
    seconds: float
    late: bool  # nobody saw what went on
    new_life: bool  # the engine's life ended in it
    gpus: float  # of each engine
    joules: float | None  # of each engine; None: not all of the target's GPUs say it
    price: Price | None  # in force; None: there is none


class CostMeter:
    """Counts the cost of one target. `advance` is called once a tick, by one thread at a time.

    `life`: a number of this counting, which no other one of the process has.
    """

    def __init__(self, life: int = 0) -> None:
        self._life = life
        self._engines: dict[Key, _Engine] = {}
        self._ticked_at: float | None = None
        self._restarts = 0
        self._joules = Joules()
        self._occupancy = Occupancy()
        self._busy_source: BusySource | None = None
        # of the last ticks that knew them: a target whose configuration changes while it is down has no page to read them from
        self._names: list[Key] = []
        self._gpus: TargetGpus | None = None
        self._server = ("", "")
        self._target: Target | None = None
        self._uuids: tuple[str, ...] = ()
        # what an earlier process kept, until it is known what becomes of the time between
        self._resume: Resume | None = None

    def advance(
        self, reading: TargetReading, gpus: GpuReadings | None, terms: Terms, *, monotonic: float, unix: float
    ) -> TargetCost:
        """Counts the tick that `reading` comes from; the target's cost after it. `gpus`: the last pass over this node's GPUs."""
        resumed = False
        if self._resume is not None:
            match self._resume.decide(reading, monotonic):
                case Between.UNDECIDED:
                    # from here on it is this process' own time, whatever becomes of that before it
                    self._ticked_at = monotonic if self._ticked_at is None else self._ticked_at
                    return self._make_cost(None, terms, lambda: dict.fromkeys(SIGNALS, Absence.WARMING_UP))
                case Between.BOOKED:
                    resumed, self._ticked_at = True, self._resume.counted_at
                    self._joules.last = dict(self._resume.kept.joules)
            self._resume = None
        elapsed = 0.0 if self._ticked_at is None else max(0.0, monotonic - self._ticked_at)
        self._ticked_at = monotonic if self._ticked_at is None else max(self._ticked_at, monotonic)
        new_life = reading.server.restarts_total != self._restarts
        self._restarts = reading.server.restarts_total
        # nobody saw what went on while no exporter ran
        late = resumed or elapsed > GAP_INTERVALS * reading.target.interval_seconds
        joules = self._joules.count(reading, gpus)
        total = self._keep_known_gpus(reading)
        if total is not reading.gpus.total:
            reading = replace(reading, gpus=replace(reading.gpus, total=total))
        lack = explain_uncounted(reading, terms)
        price = lack or find_price_of(reading, terms, unix)
        signals: dict[str, Absence] = {SECONDS: lack or Absence.AVAILABLE}
        signals[COST] = price if isinstance(price, Absence) else Absence.AVAILABLE
        if lack is not None or reading.gpus.total is None:
            signals.update(dict.fromkeys((PER_MILLION, PER_REQUEST, SAVINGS, ENERGY, PER_TOKEN), signals[SECONDS]))
            for engine in self._engines.values():
                engine.window.clear()
            self._settle_departed((), terms)
            return self._make_cost(None, terms, lambda: signals)
        in_force = None if isinstance(price, Absence) else price
        engines = self._find_engines(reading)
        self._settle_departed(engines, terms)
        if in_force is None:
            for engine in self._engines.values():
                engine.window.note_unpriced_tick(monotonic)
        works = collect_work(reading)
        worked = any(work.busy for work in works.values())
        self._occupancy.advance(reading, gpus, worked=worked, now=monotonic, elapsed=elapsed)
        whole = len(reading.gpus.uuids) == reading.gpus.total.count
        tick = _Tick(
            elapsed,
            late,
            new_life,
            reading.gpus.total.count * (reading.gpu_share or 1.0) / len(engines),
            joules / len(engines) if joules is not None and whole else None,
            in_force,
        )
        for key in engines:
            self._book(self._engines[key], works.get(key[:2]), tick, reading, terms)
        windows = self._measure_windows(reading, engines, terms, monotonic, new_life=new_life)
        explain = partial(
            list_absences,
            signals,
            tuple(windows.values()),
            [self._engines[key].totals for key in engines],
            counts_cached=any(work.cached_seconds is not None for work in works.values()),
            whole=whole,
        )
        return self._make_cost(in_force, terms, explain, windows)

    def _book(self, engine: _Engine, work: TickWork | None, tick: _Tick, reading: TargetReading, terms: Terms) -> None:
        """Adds a tick to an engine's totals. `work`: what its page says that it did; None: it says nothing."""
        busy = self._occupancy.choose(work) if work is not None else None
        state = GpuState.UNKNOWN if tick.late else judge_state(reading, work, busy=busy is not None)
        if work is None or tick.late:
            work = TickWork(busy=False)
        busy_share = 1.0
        if busy is not None and state is GpuState.BUSY:
            busy_share, self._busy_source = busy
        totals = advance_totals(
            engine.totals,
            seconds=tick.seconds,
            gpus=tick.gpus,
            state=state,
            price=tick.price,
            method=terms.how.method,
            shares=split_busy_time(terms.how, work, reading.role),
            busy_share=busy_share,
            foreign=reading.gpus.foreign_share,
            new_life=tick.new_life,
        )
        totals = add_savings(totals, cached_seconds=work.cached_seconds, gpus=tick.gpus, price=tick.price)
        power = terms.book.power if terms.book is not None else None
        engine.totals = add_energy(totals, joules=tick.joules, price=tick.price, power=power)

    def keep(self, name: str, identity: Identity, to_boot: Callable[[float], float]) -> KeptCost:
        """What outlives the process. `to_boot`: a moment of the meter's clock by the clock of the host's boot."""
        if self._resume is not None:  # nothing was added to it
            return replace(self._resume.kept, life=self._life)
        engines = tuple(EngineCost(*key, engine.totals) for key, engine in self._engines.items())
        at = None if self._ticked_at is None else to_boot(self._ticked_at)
        current, joules = len(self._names), dict(self._joules.last)
        return KeptCost(name, identity, self._server, self._uuids, self._gpus, at, joules, engines, current, self._life)

    def restore(self, resume: Resume) -> None:
        """Goes on from what an earlier process kept. To be called before the first tick."""
        kept = resume.kept
        self._engines = {
            (engine.model_name, engine.engine, engine.role): _Engine(engine.totals) for engine in kept.engines
        }
        self._resume, self._server = resume, kept.server
        if resume.counted_at is not None:
            self._gpus, self._names = kept.gpus, list(self._engines)[-kept.current :] if kept.current else []

    def _make_cost(
        self,
        price: Price | None,
        terms: Terms,
        signals: Callable[[], Mapping[str, Absence]],
        windows: Mapping[Key, Later[WindowFigures]] = MappingProxyType({}),
    ) -> TargetCost:
        engines = tuple(
            [
                EngineCost(*key, engine.totals, _take_cost(windows[key]) if key in windows else _NOTHING)
                for key, engine in self._engines.items()
            ]
        )
        inputs = describe_inputs(terms.how)
        return TargetCost(engines, price, terms.how.method, inputs, Later(signals), self._life, self._busy_source)

    def _keep_known_gpus(self, reading: TargetReading) -> TargetGpus | None:
        """The target's GPUs by the reading. Where it does not say them: the last known, for the same server on the same GPUs."""
        target = reading.target
        if target is not self._target:
            of = describe_server(target)
            if of != self._server:
                self._gpus = None
                if of[0] != self._server[0]:
                    self._names = []
            self._target, self._server = target, of
        self._uuids = reading.gpus.uuids
        total, last = reading.gpus.total, self._gpus
        if total is None:
            return None if target.gpus == () else last
        if not total.name and last is not None:
            total = replace(total, name=last.name)
        # the other targets of these GPUs have what is not this one's only as long as all are looked at together
        self._gpus = None if reading.gpus.shares_by_memory else total
        return total

    def _find_engines(self, reading: TargetReading) -> list[Key]:
        """The engines that the target's GPUs belong to now; while the target does not answer, those of its last good page."""
        role = reading.role.value
        shown = select_engines(reading) if reading.page.snapshot is not None else []
        names = [(snapshot.model_name, snapshot.engine) for snapshot in shown]
        keys = [
            (*name, role) for name in names or [(reading.server.model_name or reading.target.model_name or "", "0")]
        ]
        if names:
            self._names = keys
        elif self._names and reading.page.snapshot is None:
            stated = reading.target.role
            keys = [(model, engine, stated or last_role) for model, engine, last_role in self._names]
        for key in keys:
            engine = self._engines.pop(key, None) or _Engine()
            self._engines[key] = engine  # last: the oldest names are forgotten first
        while len(self._engines) > max(MOST_NAMES, len(keys)):
            oldest = next(iter(self._engines))
            if self._engines[oldest].totals.pending_usd:
                break  # it goes a tick later: its pending cost has to be published under some phase first
            del self._engines[oldest]
        return keys

    def _settle_departed(self, engines: Collection[Key], terms: Terms) -> None:
        """Books the pending cost of engines other than `engines`: they are gone, and no token of theirs will come."""
        for key, engine in self._engines.items():
            if key not in engines:
                engine.totals = settle_pending(engine.totals, terms.how.method)

    def _measure_windows(
        self, reading: TargetReading, engines: Collection[Key], terms: Terms, now: float, *, new_life: bool
    ) -> dict[Key, Later[WindowFigures]]:
        """Figures over the window, for the engines that are on this tick's page."""
        if not reading.page.up or reading.page.snapshot is None or reading.page.derivation is None:
            return {}
        span = max(terms.window_seconds, reading.page.derivation.window_seconds)
        figures = {}
        shown = {(one.model_name, one.engine): one for one in select_engines(reading)}
        # a gap: tokens of it may have no cost of theirs, or be without a phase
        again = reading.page.derivation.window_seconds == 0
        fallen = {(model, engine) for model, engine, _ in reading.page.snapshot.fallen}
        for key in engines:
            one, snapshot = self._engines[key], shown.get(key[:2])
            if new_life or again or key[:2] in fallen:
                one.window.clear()
            if snapshot is not None:
                figures[key] = one.window.add_tick(now, one.totals, snapshot, reading.page.derivation.why_absent, span)
        return figures
