"""What needs the model's and the GPUs' facts, for one engine: its roofline, busy time by phase, memory."""

from __future__ import annotations

from dataclasses import replace

from llm_serving_exporter.derive import busy, devices, memory
from llm_serving_exporter.derive.notes import Notes
from llm_serving_exporter.derive.roof import Roof, compute_seconds, matrix_flops
from llm_serving_exporter.derive.roofline import INPUTS, Hardware, roof_of, roofline
from llm_serving_exporter.derive.traffic import work
from llm_serving_exporter.model.cost import TickWork
from llm_serving_exporter.model.derived import EngineDerived
from llm_serving_exporter.model.roofline import BusySeconds, Roofline, Source
from llm_serving_exporter.model.snapshot import Absence, Quality
from llm_serving_exporter.model.weights import ModelFacts
from llm_serving_exporter.model.window import EngineWindow, Window


def live(
    one: EngineWindow,
    window: Window,
    facts: tuple[ModelFacts | Absence, Hardware],
    figures: EngineDerived,
    earlier: EngineDerived | None,
    notes: Notes,
) -> EngineDerived:
    """`figures` with all of it. `earlier`: the same engine's at the last tick of this life, None without one."""
    model, hardware = facts
    outcome = roofline(one, window.devices, model, hardware)
    for signal, why in outcome.signals.items():
        notes.take(signal, why or outcome, *INPUTS.get(signal, ()))
    if Source.DCGM.value in outcome.roofline.ratio:
        # dcgm-exporter collects every 30 s unless told otherwise, and repeats its values in between
        notes.quality["bandwidth_ceiling_ratio_dcgm"] = Quality.SLOW
    for signal in outcome.roofline.causes:
        if notes.silent(signal):
            continue
        notes.quality[signal] = Quality.SUSPECT
    roof = roof_of(model, hardware)
    reference = roof if isinstance(roof, Absence) else busy.reference_seconds_per_token(roof) or Absence.PEAK_UNKNOWN
    notes.take("phase_reference_seconds_per_token", reference)
    tick = _tick_of(one, window)
    shares = _weights(roof, tick, outcome.roofline, hardware) if tick is not None else None
    counted = earlier.busy if earlier else None
    if counted is not None and tick is not None:  # goes on without a roof, so that a gap in the facts is no reset
        counted = busy.advance(counted, tick, shares)
    elif counted is None and not isinstance(
        reference, Absence
    ):  # born at 0 once time can be split, which takes both peaks
        counted = BusySeconds()
    notes.take("phase_busy_seconds_total", counted or reference)
    parts = memory.split(one, model, hardware.parallel, _used(window, hardware))
    notes.take("gpu_memory_bytes_estimate", parts)
    return replace(
        figures,
        roofline=outcome.roofline,
        busy=counted,
        tick=_worked(one, tick, roof, shares, hardware),
        phase_reference_seconds_per_token={} if isinstance(reference, Absence) else reference,
        gpu_memory_bytes={} if isinstance(parts, Absence) else parts,
    )


def _tick_of(one: EngineWindow, window: Window) -> EngineWindow | None:
    """The engine between the last two pages; None where it was not on both."""
    if len(one.readings) < 2:
        return None
    span = window.snapshots[-1].monotonic_seconds - window.snapshots[-2].monotonic_seconds
    return EngineWindow(one.readings[-2:], span)


def _weights(roof: Roof | Absence, tick: EngineWindow, found: Roofline, hardware: Hardware) -> busy.Weights | None:
    if isinstance(roof, Absence):
        return None
    done = work(tick, encoder=roof.model.geometry.encoder)
    if isinstance(done, Absence) or (done.sequence_steps and found.context is None):
        return None
    context = found.context.expected if found.context else 0.0
    return busy.weights(roof, done, context, hardware.efficiency)


def _worked(
    one: EngineWindow, tick: EngineWindow | None, roof: Roof | Absence, shares: busy.Weights | None, hardware: Hardware
) -> TickWork:
    """For the cost of the tick. The first page of a life tells only whether something runs or has been done in it."""
    if tick is None:
        last = one.last
        moved = any((getattr(last, name) or 0.0) > 0 for name in busy.COUNTERS)
        return TickWork((last.requests_running or 0.0) > 0 or moved, seconds=None if isinstance(roof, Absence) else {})
    seconds: dict[str, float] | None = None if isinstance(roof, Absence) else {}
    if shares is not None:
        seconds = {"prefill": shares.prefill, "decode": shares.decode}
    cached = tick.increase("cached_prompt_tokens_total")
    saved = None
    if cached is not None and not isinstance(roof, Absence):
        at_peak = compute_seconds(roof, matrix_flops(roof, cached))
        saved = None if at_peak is None else at_peak / hardware.efficiency.compute
    return TickWork(
        busy.was_busy(tick), seconds, tick.increase("prefill_tokens_total"), tick.increase("decode_tokens_total"), saved
    )


def _used(window: Window, hardware: Hardware) -> float | Absence:
    """Bytes in use on the engine's GPUs: its share of the newest sample's."""
    if hardware.engine_gpus is None:
        return Absence.GPUS_UNKNOWN
    used = devices.mean(window.devices[-1:], "memory_used_bytes")
    return used if isinstance(used, Absence) else used * hardware.engine_gpus / window.devices[-1].gpus
