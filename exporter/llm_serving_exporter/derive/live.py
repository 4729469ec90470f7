"""What needs the model's and the GPUs' facts, for one engine: its roofline, busy time by phase, memory."""

from __future__ import annotations

from dataclasses import replace

from llm_serving_exporter.derive import busy, devices, memory
from llm_serving_exporter.derive.notes import Notes
from llm_serving_exporter.derive.roof import Roof
from llm_serving_exporter.derive.roofline import INPUTS, Hardware, roof_of, roofline
from llm_serving_exporter.derive.traffic import work
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
    counted = earlier.busy if earlier else None
    if counted is not None:
        counted = _busy(one, window, roof, counted, outcome.roofline)
    elif not isinstance(reference, Absence):  # born at 0 once time can be split, which takes both peaks
        counted = BusySeconds()
    notes.take("phase_busy_seconds_total", counted or reference)
    parts = memory.split(one, model, hardware.parallel, _used(window, hardware))
    notes.take("gpu_memory_bytes_estimate", parts)
    return replace(
        figures,
        roofline=outcome.roofline,
        busy=counted,
        phase_reference_seconds_per_token={} if isinstance(reference, Absence) else reference,
        gpu_memory_bytes={} if isinstance(parts, Absence) else parts,
    )


def _busy(one: EngineWindow, window: Window, roof: Roof | Absence, before: BusySeconds, found: Roofline) -> BusySeconds:
    """After one more tick; goes on without a roof, so that a gap in the facts is no reset."""
    if len(one.readings) < 2:
        return before
    span = window.snapshots[-1].monotonic_seconds - window.snapshots[-2].monotonic_seconds
    tick = EngineWindow(one.readings[-2:], span)
    return busy.advance(before, tick, _weights(roof, tick, found))


def _weights(roof: Roof | Absence, tick: EngineWindow, found: Roofline) -> busy.Weights | None:
    if isinstance(roof, Absence):
        return None
    done = work(tick, encoder=roof.model.geometry.encoder)
    if isinstance(done, Absence) or (done.sequence_steps and found.context is None):
        return None
    return busy.weights(roof, done, found.context.expected if found.context else 0.0)


def _used(window: Window, hardware: Hardware) -> float | Absence:
    """Bytes in use on the engine's GPUs: its share of the newest sample's."""
    if hardware.engine_gpus is None:
        return Absence.GPUS_UNKNOWN
    used = devices.mean(window.devices[-1:], "memory_used_bytes")
    return used if isinstance(used, Absence) else used * hardware.engine_gpus / window.devices[-1].gpus
