"""Busy time by phase (design section 8): each tick's busy seconds are split by what each phase's work needs at least."""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.catalogue import roofline as names
from llm_serving_exporter.derive.bandwidth import LOAD, ROOF, ROOF_ROW, SAME_ROOF, WORK_FIELDS, Load
from llm_serving_exporter.derive.compute import DECODE_CEILING, KNOWN_CONTEXT, PREFILL_SECONDS
from llm_serving_exporter.derive.figures import EARLIER, HARDWARE, TARGET_WINDOW, TICK, WINDOW, figure
from llm_serving_exporter.derive.roof import Ceiling, balance_ranks
from llm_serving_exporter.derive.roof import decode_ceiling as roof_decode_ceiling
from llm_serving_exporter.derive.signals import OF_AN_ENGINE, Row, Series, gauge
from llm_serving_exporter.derive.steps import ITL, average_running, find_decode_field
from llm_serving_exporter.derive.traffic import Work, decode_ceiling, measure_work, prefill_flops
from llm_serving_exporter.derive.work import Roof, compute_seconds, matrix_flops
from llm_serving_exporter.derive.work import prefill_flops as roof_prefill_flops
from llm_serving_exporter.model.cost import TickWork
from llm_serving_exporter.model.derived import BusySeconds, EngineDerived, Range
from llm_serving_exporter.model.hardware import Efficiency, Hardware
from llm_serving_exporter.model.record import Struct, field, replace
from llm_serving_exporter.model.snapshot import HISTOGRAM_FIELDS, Absence, EngineSnapshot, Quality
from llm_serving_exporter.model.window import EngineWindow, Window

# engines book a prompt when its first token comes out: busy time waits this long for the tokens that it was spent on
LONGEST_PENDING_SECONDS = 300.0
FULL = Efficiency()
# the batch and context at which phase_reference_seconds_per_token is taken, so that it is a constant of model and GPU
REFERENCE_BATCH, REFERENCE_CONTEXT_TOKENS, REFERENCE_PROMPT_TOKENS = 32, 1024, 1024
# what moves while an engine works
COUNTERS = ("prefill_tokens_total", "decode_tokens_total", "engine_steps_total")


class Weights(Struct, frozen=True):
    """Seconds that the prefill and the decode of some work need at the ceilings."""

    prefill: float  # of its prompts
    decode: float  # of its sequence-steps


def weigh_work(roof: Roof, done: Work, context_tokens: float, efficiency: Efficiency = FULL) -> Weights | None:
    """Prefill: its FLOPs at the dense peak. Decode: its sequence-steps at the ceiling of the work's own batch. Both at `efficiency`, the
    shares of the peaks that are taken to be reached. None without a peak."""
    prefill = compute_seconds(roof, prefill_flops(roof, done))
    ceiling = decode_ceiling(roof, done, context_tokens) if done.sequence_steps else None
    return weigh_phases(done, prefill, ceiling, efficiency)


def weigh_phases(
    done: Work, prefill_seconds: float | None, ceiling: Ceiling | None, efficiency: Efficiency = FULL
) -> Weights | None:
    """The same from the time that the prefill needs at the peak and the decode ceiling, where these are known already."""
    if prefill_seconds is None:
        return None
    prefill = prefill_seconds / efficiency.compute
    if not done.sequence_steps:
        return Weights(prefill, 0.0)
    if ceiling is None or ceiling.compute_tokens_per_second is None:
        return None
    reached = min(
        ceiling.bandwidth_tokens_per_second * efficiency.bandwidth,
        ceiling.compute_tokens_per_second * efficiency.compute,
    )
    return Weights(prefill, done.sequence_steps / reached)


def split_busy_time(shares: Weights | None) -> dict[str, float]:
    """Share of busy time by phase; empty where it is not known or nothing was done."""
    total = 0.0 if shares is None else shares.prefill + shares.decode
    if shares is None or total <= 0:
        return {}
    return {"prefill": shares.prefill / total, "decode": shares.decode / total}


def was_busy(tick: EngineWindow) -> bool:
    """Whether a request ran or a token counter moved between the two readings."""
    running = (tick.first.requests_running or 0.0) > 0 or (tick.last.requests_running or 0.0) > 0
    return running or any((tick.increase(name) or 0.0) > 0 for name in COUNTERS)


def advance_busy_seconds(before: BusySeconds | None, tick: EngineWindow, shares: Weights | None) -> BusySeconds:
    """The counters after one more tick. `shares` are of the tick's own work: None or nothing booked keeps its busy time pending."""
    totals = before or BusySeconds()
    if tick.elapsed_seconds <= 0 or not was_busy(tick):
        return totals
    pending = totals.pending_seconds + tick.elapsed_seconds
    ratio = split_busy_time(shares)
    if ratio:
        return replace(
            totals,
            prefill=totals.prefill + pending * ratio["prefill"],
            decode=totals.decode + pending * ratio["decode"],
            pending_seconds=0.0,
        )
    if pending > LONGEST_PENDING_SECONDS:
        return replace(totals, unattributed=totals.unattributed + pending, pending_seconds=0.0)
    return replace(totals, pending_seconds=pending)


def compute_reference_seconds(roof: Roof) -> dict[str, float]:
    """Seconds of one engine that a token of each phase needs at the reference batch and context; an encoder has no decode.

    Empty where a peak is not known.
    """
    prompt = compute_seconds(roof, roof_prefill_flops(roof, REFERENCE_PROMPT_TOKENS, 0.0, 1.0))
    if prompt is None:
        return {}
    seconds = {"prefill": prompt / REFERENCE_PROMPT_TOKENS}
    ceiling = roof_decode_ceiling(balance_ranks(roof), REFERENCE_BATCH, REFERENCE_CONTEXT_TOKENS)
    return seconds if ceiling is None else {**seconds, "decode": 1 / ceiling.tokens_per_second}


# --- Share of a tick in which an engine worked, by its page alone, whatever the tick's length (design section 8).
#
# Requests overlap, so that their times cannot be added up. Divided by the batch in which they ran they can: the sum of all inter-token
# latencies / the requests that ran at a time is the time in which steps were made. A page without latencies has the weights of its work,
# which are the least that it can have taken, beside the readings at which requests ran.


PREFILL_TIME = "request_prefill_time_seconds"
# work that takes so much of the time at the ceilings, with requests at every reading, is work without a pause: engines reach a third of
# them and more, and requests that come with the readings' own rhythm seldom take so long
SATURATED_SHARE, FEWEST_READINGS = 0.3, 4


def measure_device_share(tick: EngineWindow) -> float | None:
    """By the engine's count of the time that its device works; None where it has none."""
    seconds = tick.increase("device_busy_seconds")
    if seconds is None or tick.elapsed_seconds <= 0:
        return None
    return min(1.0, max(0.0, seconds / tick.elapsed_seconds))


def estimate_busy_share(tick: EngineWindow, window: EngineWindow, weights: Weights | None) -> float | None:
    """By latencies over the batch, else by the weights of the tick's own work. None where the page has neither.

    `window`: the readings of the window, `weights`: of the tick's work, None where they are not known.
    """
    if tick.elapsed_seconds <= 0:
        return None
    if tick.events(ITL) == 0 and all(reading.requests_running for reading in tick.readings):
        return 1.0  # within one long prefill or one long step, which are booked at their end, if at all
    batch = _find_batch(tick, window)
    decode, prefill = _divide_sum(tick, ITL, batch), _divide_sum(tick, PREFILL_TIME, batch)
    measured = decode is not None and prefill is not None
    if weights is not None:
        decode = weights.decode if decode is None else decode
        prefill = weights.prefill if prefill is None else max(prefill, weights.prefill)
    if decode is None:
        return None
    share = min(1.0, (decode + (prefill or 0.0)) / tick.elapsed_seconds)
    if not measured and share >= SATURATED_SHARE and _is_never_at_rest(window):
        return 1.0
    return share


def _find_batch(tick: EngineWindow, window: EngineWindow) -> float:
    """Requests that run at a time while some do, 1 or more: by the readings that have some, else by the tick's steps."""
    running = average_running(window)
    steps, events = tick.increase("engine_steps_total"), tick.events(ITL)
    if running is None and steps and events:
        running = events / steps
    return max(1.0, running or 1.0)


def _divide_sum(tick: EngineWindow, name: str, batch: float) -> float | None:
    """Seconds in which the histogram's events took place, `batch` of them at a time; None where it is not on the page."""
    gained = tick.grown(name)
    return None if gained is None or gained.total is None else gained.total / batch


def _is_never_at_rest(window: EngineWindow) -> bool:
    running = [reading.requests_running for reading in window.readings]
    return len(running) >= FEWEST_READINGS and all(number is not None and number > 0 for number in running)


# --- What a tick's busy time is split by: what was booked in it, or since what the engine books late was booked last.
#
# An engine that books one phase live and the other at a request's end would else give each tick's time to the live phase, and the late one
# would have its tokens with the time of the last tick only.


PREFILL = "prefill_tokens_total"


class Bookings(Struct, frozen=True):
    """What has been booked at a tick, and what the next one counts from."""

    # the readings whose work the busy time is split by; None while what is booked late is still to come
    window: EngineWindow | None
    start: EngineSnapshot | None = None  # the reading that the next tick counts from; None: the one before it
    started_seconds: float = 0.0  # when that was, monotonic seconds
    still_zero: frozenset[str] = field(default_factory=frozenset)  # fields that it lacks because they stood at 0


def advance_bookings(tick: EngineWindow, readings: EngineWindow, target: Window, before: Bookings | None) -> Bookings:
    """The bookings after one more tick. `readings`: the engine's within the window, for means.

    An engine that has never booked a phase is not waited for: it may have none, as one that only embeds. Where prompts are what is late,
    they are waited for as long as busy time is: they are short against that, so that decode may have it then. Where it is decode, what
    nobody knows the length of stays pending.
    """
    last, quality = tick.last, target.later.quality
    decode = find_decode_field(last)
    late = next(
        (name for name in (decode, PREFILL) if quality.get(name) is Quality.LAGGING and _count(last, name) > 0), None
    )
    if late is None or not was_busy(tick):  # after a pause nothing of before it is awaited
        return Bookings(tick)
    now = target.later.monotonic_seconds
    waited = before is not None and before.start is not None
    if before is not None and before.start is not None:
        start, since, still_zero = before.start, before.started_seconds, before.still_zero
    else:
        start, since, still_zero = tick.first, target.snapshots[-2].monotonic_seconds, tick.still_zero
    overdue = late == PREFILL and now - since + tick.elapsed_seconds > LONGEST_PENDING_SECONDS
    if not overdue and _grew(tick, late) <= 0:
        return Bookings(None, start, since, still_zero)
    if not waited:
        return Bookings(tick)
    newer = sum(snapshot.monotonic_seconds > since for snapshot in target.snapshots)
    return Bookings(EngineWindow((start, *readings.readings[-newer:]), now - since, still_zero))


def _count(reading: EngineSnapshot, name: str) -> float:
    value = getattr(reading, name)
    return (value.count if name in HISTOGRAM_FIELDS else value) if value is not None else 0.0


def _grew(tick: EngineWindow, name: str) -> float:
    return (tick.events(name) if name in HISTOGRAM_FIELDS else tick.increase(name)) or 0.0


# --- The rows of busy time: its split by phase over the window, and its counters, which advance by what was done since the page before.


def _busy_ratio(
    load: Load | Absence, prefill_seconds: float | None, ceiling: Ceiling | Absence, hardware: Hardware
) -> dict[str, float] | Absence:
    if isinstance(load, Absence):
        return load
    ceiling_or_none = None if isinstance(ceiling, Absence) else ceiling
    shares = split_busy_time(weigh_phases(load.done, prefill_seconds, ceiling_or_none, hardware.efficiency))
    return shares or Absence.PEAK_UNKNOWN


def _reference(roof: Roof | Absence, same: bool, earlier: EngineDerived | None) -> Mapping[str, float] | Absence:
    """A constant of the roof."""
    if isinstance(roof, Absence):
        return roof
    if same and earlier is not None and earlier.phase_reference_seconds_per_token:
        return earlier.phase_reference_seconds_per_token
    return compute_reference_seconds(roof) or Absence.PEAK_UNKNOWN


def _bookings(
    tick: EngineWindow | None, window: EngineWindow, target: Window, earlier: EngineDerived | None
) -> Bookings | None:
    before = earlier.figures.get(BOOKINGS_ROW) if earlier is not None else None
    if any(key[:2] == (window.last.model_name, window.last.engine) for key in target.later.fallen):
        before = None  # it may hold a reading of before the fall
    return None if tick is None else advance_bookings(tick, window, target, before)


def _weights(
    roof: Roof | Absence, bookings: Bookings | None, context: tuple[Range, str] | None, hardware: Hardware
) -> Weights | None:
    """What the work that the tick's time is split by needs at the ceilings, with the context of the window."""
    if bookings is None or bookings.window is None or isinstance(roof, Absence):
        return None
    done = measure_work(bookings.window, encoder=roof.model.geometry.encoder)
    if isinstance(done, Absence) or (done.sequence_steps and context is None):
        return None
    weights = weigh_work(roof, done, context[0].expected if context else 0.0, hardware.efficiency)
    # they split what the tick costs, and are not published: no later gate sees them
    possible = weights is None or all(map(names.PHASE_BUSY_SECONDS.bounds.admits, (weights.prefill, weights.decode)))
    return weights if possible else None


def _busy_seconds(
    tick: EngineWindow | None,
    weights: Weights | None,
    reference: Mapping[str, float] | Absence,
    earlier: EngineDerived | None,
) -> BusySeconds | Absence:
    counted = earlier.busy if earlier else None
    if counted is not None:  # goes on without a roof, so that a gap in the facts is no reset
        return counted if tick is None else advance_busy_seconds(counted, tick, weights)
    # born at 0 once time can be split, which takes both peaks
    return reference if isinstance(reference, Absence) else BusySeconds()


def _was_busy(window: EngineWindow, tick: EngineWindow | None, earlier: EngineDerived | None) -> bool:
    """The first page of a life tells only whether something runs or has been done in it, one after a gap only whether something runs."""
    if tick is not None:
        return was_busy(tick)
    last = window.last
    moved = earlier is None and any((getattr(last, name) or 0.0) > 0 for name in COUNTERS)
    return (last.requests_running or 0.0) > 0 or moved


def _tick_work(
    was_busy: bool, tick: EngineWindow | None, roof: Roof | Absence, weights: Weights | None, hardware: Hardware
) -> TickWork:
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
    work: TickWork, tick: EngineWindow | None, window: EngineWindow, weights: Weights | None, bookings: Bookings | None
) -> TickWork:
    if tick is None:
        return work
    # weights of what was booked for several ticks say nothing of this one
    tick_weights = weights if bookings is not None and bookings.window is tick else None
    device, estimated = measure_device_share(tick), estimate_busy_share(tick, window, tick_weights)
    return replace(work, device_share=device, estimated_share=estimated)


_REFERENCE = figure(_reference, ROOF, SAME_ROOF, EARLIER)
_BOOKINGS = figure(_bookings, TICK, WINDOW, TARGET_WINDOW, EARLIER)
# for the next tick; not published
BOOKINGS_ROW: Row[Bookings] = Row(_BOOKINGS, **OF_AN_ENGINE, every_tick=True)
_WAS_BUSY = figure(_was_busy, WINDOW, TICK, EARLIER)
_WEIGHTS = figure(_weights, ROOF, _BOOKINGS, KNOWN_CONTEXT, HARDWARE)

BUSY_RATIO = gauge(
    names.PHASE_BUSY_RATIO,
    figure(_busy_ratio, LOAD, PREFILL_SECONDS, DECODE_CEILING, HARDWARE),
    fields=WORK_FIELDS,
    **OF_AN_ENGINE,
)
BUSY_SECONDS: Row[BusySeconds] = Row(
    figure(_busy_seconds, TICK, _WEIGHTS, _REFERENCE, EARLIER),
    names.PHASE_BUSY_SECONDS.name,
    **OF_AN_ENGINE,
    series=(
        Series(
            names.PHASE_BUSY_SECONDS,
            part=lambda busy: {"prefill": busy.prefill, "decode": busy.decode, "unattributed": busy.unattributed},
        ),
    ),
    every_tick=True,
)
REFERENCE = gauge(names.PHASE_REFERENCE, _REFERENCE, **OF_AN_ENGINE, every_tick=True)
_WORK = figure(_tick_work, _WAS_BUSY, TICK, ROOF, _WEIGHTS, HARDWARE)
# for the cost meter; not published
TICK_WORK: Row[TickWork] = Row(
    figure(_add_shares, _WORK, TICK, WINDOW, _WEIGHTS, _BOOKINGS), **OF_AN_ENGINE, every_tick=True
)
ROWS = (BUSY_RATIO, BUSY_SECONDS, ROOF_ROW, BOOKINGS_ROW, REFERENCE, TICK_WORK)
