"""The rows of busy time: its split by phase over the window, and its counters, which advance by what was done since the page before."""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.catalogue import roofline as names
from llm_serving_exporter.derive import busy, busy_share
from llm_serving_exporter.derive.bookings import Bookings, advance_bookings
from llm_serving_exporter.derive.compute import PREFILL_SECONDS
from llm_serving_exporter.derive.decode import DECODE_CEILING, KNOWN_CONTEXT
from llm_serving_exporter.derive.figures import figure
from llm_serving_exporter.derive.inputs import EARLIER, HARDWARE, TARGET_WINDOW, TICK, WINDOW
from llm_serving_exporter.derive.load import LOAD, ROOF, ROOF_ROW, SAME_ROOF, WORK_FIELDS, Load
from llm_serving_exporter.derive.roof import Ceiling, Roof, compute_seconds, matrix_flops
from llm_serving_exporter.derive.signals import NOT_ON_A_FRONT_END, Row, Series, gauge
from llm_serving_exporter.derive.traffic import measure_work
from llm_serving_exporter.model.cost import TickWork
from llm_serving_exporter.model.derived import BusySeconds, EngineDerived, Range
from llm_serving_exporter.model.hardware import Hardware
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.window import EngineWindow, Window


def _busy_ratio(
    load: Load | Absence, prefill_seconds: float | None, ceiling: Ceiling | Absence, hardware: Hardware
) -> dict[str, float] | Absence:
    if isinstance(load, Absence):
        return load
    known = None if isinstance(ceiling, Absence) else ceiling
    shares = busy.split_busy_time(busy.weigh_phases(load.done, prefill_seconds, known, hardware.efficiency))
    return shares or Absence.PEAK_UNKNOWN


def _reference(roof: Roof | Absence, same: bool, earlier: EngineDerived | None) -> Mapping[str, float] | Absence:
    """A constant of the roof."""
    if isinstance(roof, Absence):
        return roof
    if same and earlier is not None and earlier.phase_reference_seconds_per_token:
        return earlier.phase_reference_seconds_per_token
    return busy.compute_reference_seconds(roof) or Absence.PEAK_UNKNOWN


def _bookings(
    tick: EngineWindow | None, window: EngineWindow, target: Window, earlier: EngineDerived | None
) -> Bookings | None:
    before = earlier.figures.get(BOOKINGS_ROW) if earlier is not None else None
    if any(key[:2] == (window.last.model_name, window.last.engine) for key in target.later.fallen):
        before = None  # it may hold a reading of before the fall
    return None if tick is None else advance_bookings(tick, window, target, before)


def _weights(
    roof: Roof | Absence, bookings: Bookings | None, context: tuple[Range, str] | None, hardware: Hardware
) -> busy.Weights | None:
    """What the work that the tick's time is split by needs at the ceilings, with the context of the window."""
    if bookings is None or bookings.window is None or isinstance(roof, Absence):
        return None
    done = measure_work(bookings.window, encoder=roof.model.geometry.encoder)
    if isinstance(done, Absence) or (done.sequence_steps and context is None):
        return None
    found = busy.weigh_work(roof, done, context[0].expected if context else 0.0, hardware.efficiency)
    # they split what the tick costs, and are not published: no later gate sees them
    possible = found is None or all(map(names.PHASE_BUSY_SECONDS.bounds.admits, (found.prefill, found.decode)))
    return found if possible else None


def _busy_seconds(
    tick: EngineWindow | None,
    weights: busy.Weights | None,
    reference: Mapping[str, float] | Absence,
    earlier: EngineDerived | None,
) -> BusySeconds | Absence:
    counted = earlier.busy if earlier else None
    if counted is not None:  # goes on without a roof, so that a gap in the facts is no reset
        return counted if tick is None else busy.advance_busy_seconds(counted, tick, weights)
    # born at 0 once time can be split, which takes both peaks
    return reference if isinstance(reference, Absence) else BusySeconds()


def _was_busy(window: EngineWindow, tick: EngineWindow | None, earlier: EngineDerived | None) -> bool:
    """The first page of a life tells only whether something runs or has been done in it, one after a gap only whether something runs."""
    if tick is not None:
        return busy.was_busy(tick)
    last = window.last
    moved = earlier is None and any((getattr(last, name) or 0.0) > 0 for name in busy.COUNTERS)
    return (last.requests_running or 0.0) > 0 or moved


def _tick_work(
    was_busy: bool,
    tick: EngineWindow | None,
    roof: Roof | Absence,
    weights: busy.Weights | None,
    hardware: Hardware,
) -> TickWork:
    """For the cost of the tick."""
    if tick is None:
        return TickWork(was_busy, seconds=None if isinstance(roof, Absence) else {})
    seconds: dict[str, float] | None = None if isinstance(roof, Absence) else {}
    if weights is not None:
        seconds = {"prefill": weights.prefill, "decode": weights.decode}
    cached = tick.increase("cached_prompt_tokens_total")
    saved = None
    if cached is not None and not isinstance(roof, Absence):
        at_peak = compute_seconds(roof, matrix_flops(roof, cached))
        saved = None if at_peak is None else at_peak / hardware.efficiency.compute
        if saved is not None and not names.PHASE_BUSY_SECONDS.bounds.admits(saved):
            saved = None
    return TickWork(
        was_busy, seconds, tick.increase("prefill_tokens_total"), tick.increase("decode_tokens_total"), saved
    )


def _add_shares(
    work: TickWork,
    tick: EngineWindow | None,
    window: EngineWindow,
    weights: busy.Weights | None,
    bookings: Bookings | None,
) -> TickWork:
    """With how much of the tick was busy."""
    if tick is None:
        return work
    # weights of what was booked for several ticks say nothing of this one
    own = weights if bookings is not None and bookings.window is tick else None
    device, estimated = busy_share.measure_device_share(tick), busy_share.estimate_busy_share(tick, window, own)
    return replace(work, device_share=device, estimated_share=estimated)


def _by_phase(seconds: BusySeconds) -> dict[str, float]:
    return {"prefill": seconds.prefill, "decode": seconds.decode, "unattributed": seconds.unattributed}


_REFERENCE = figure(_reference, ROOF, SAME_ROOF, EARLIER)
_BOOKINGS = figure(_bookings, TICK, WINDOW, TARGET_WINDOW, EARLIER)
# for the next tick; not published
BOOKINGS_ROW: Row[Bookings] = Row(_BOOKINGS, silent=NOT_ON_A_FRONT_END, of_an_engine=True, kept=True)
_WAS_BUSY = figure(_was_busy, WINDOW, TICK, EARLIER)
_WEIGHTS = figure(_weights, ROOF, _BOOKINGS, KNOWN_CONTEXT, HARDWARE)

BUSY_RATIO = gauge(
    names.PHASE_BUSY_RATIO,
    figure(_busy_ratio, LOAD, PREFILL_SECONDS, DECODE_CEILING, HARDWARE),
    fields=WORK_FIELDS,
    silent=NOT_ON_A_FRONT_END,
    of_an_engine=True,
)
BUSY_SECONDS: Row[BusySeconds] = Row(
    figure(_busy_seconds, TICK, _WEIGHTS, _REFERENCE, EARLIER),
    names.PHASE_BUSY_SECONDS.name,
    silent=NOT_ON_A_FRONT_END,
    of_an_engine=True,
    series=(Series(names.PHASE_BUSY_SECONDS, part=_by_phase),),
    kept=True,
)
REFERENCE = gauge(names.PHASE_REFERENCE, _REFERENCE, silent=NOT_ON_A_FRONT_END, of_an_engine=True, kept=True)
_WORK = figure(_tick_work, _WAS_BUSY, TICK, ROOF, _WEIGHTS, HARDWARE)
# for the cost meter; not published
TICK_WORK: Row[TickWork] = Row(
    figure(_add_shares, _WORK, TICK, WINDOW, _WEIGHTS, _BOOKINGS),
    silent=NOT_ON_A_FRONT_END,
    of_an_engine=True,
    kept=True,
)
ROWS = (BUSY_RATIO, BUSY_SECONDS, ROOF_ROW, BOOKINGS_ROW, REFERENCE, TICK_WORK)
