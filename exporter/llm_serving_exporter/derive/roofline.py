"""One engine's window, facts and GPUs -> Roofline, with the reason of every figure that is not there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from llm_serving_exporter.derive import achieved, busy, capacity
from llm_serving_exporter.derive import roof as roofs
from llm_serving_exporter.derive.context import context
from llm_serving_exporter.derive.roof import Ceiling, Roof
from llm_serving_exporter.derive.steps import speculates, tokens_per_sequence_step
from llm_serving_exporter.derive.traffic import Work, added, decode_flops, per_step, prefill_flops, traffic, work
from llm_serving_exporter.model.cost import Efficiency
from llm_serving_exporter.model.devices import DeviceSample
from llm_serving_exporter.model.hardware import GpuPeaks, Parallel
from llm_serving_exporter.model.roofline import Cause, Range, Roofline, Source
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.weights import ModelFacts, Precision
from llm_serving_exporter.model.window import EngineWindow


@dataclass(frozen=True, slots=True)
class Hardware:
    """What the roofline needs beside the window. `gpus`: allotted to one engine; None: those of `parallel`, where that is known.

    `assumed_gpus`: nothing said how the engine uses its GPUs, it was inferred. `efficiency`: for the split of busy time by phase.
    """

    peaks: GpuPeaks | Absence = Absence.GPUS_UNKNOWN
    parallel: Parallel | None = None
    gpus: float | None = None
    assumed_gpus: bool = False
    version: tuple[int, int] | None = None
    efficiency: Efficiency = field(default_factory=Efficiency)

    @property
    def working_gpus(self) -> float | None:
        """GPUs that share one engine's steps; None where not known."""
        return float(self.parallel.gpus) if self.parallel is not None else self.gpus

    @property
    def engine_gpus(self) -> float | None:
        """GPUs of one engine, those that stand idle included; None where not known."""
        return self.gpus if self.gpus is not None else self.working_gpus


@dataclass(frozen=True, slots=True)
class Outcome:
    """A roofline and why its parts are absent, by signal name ("" = there)."""

    roofline: Roofline
    signals: Mapping[str, Absence]


def roof_of(model: ModelFacts | Absence, hardware: Hardware) -> Roof | Absence:
    """The roof of one engine, or what it lacks."""
    if isinstance(model, Absence):
        return model
    if isinstance(hardware.peaks, Absence):
        return hardware.peaks
    if hardware.parallel is None:
        return Absence.GPUS_UNKNOWN
    if not hardware.peaks.bandwidth_bytes_per_second:
        return Absence.PEAK_UNKNOWN
    return Roof(model, hardware.peaks, hardware.parallel)


def roofline(
    window: EngineWindow, devices: tuple[DeviceSample, ...], model: ModelFacts | Absence, hardware: Hardware
) -> Outcome:
    """Everything that the window, the facts and the GPUs allow."""
    roof = roof_of(model, hardware)
    parts = _Parts(window, hardware)
    encoder = isinstance(model, ModelFacts) and model.geometry.encoder
    done = work(window, encoder=encoder)
    parts.ceilings()
    for source in achieved.MEASURED:
        parts.achieved(source, achieved.measured(source, devices, hardware.peaks, hardware.engine_gpus))
    parts.achieved(Source.RUNTIME, achieved.runtime(window, model, hardware.version, hardware.working_gpus))
    parts.values["tokens_per_sequence_step"] = tokens_per_sequence_step(window)
    if isinstance(done, Work):
        parts.steps(done)
    if isinstance(roof, Roof) and isinstance(done, Work):
        parts.worked(roof, done, context(window, roof.model.geometry))
    else:
        parts.missing(roof if isinstance(roof, Absence) else done)
    if encoder:
        parts.signals.update(dict.fromkeys(DECODE, Absence.NO_DECODE))
    return Outcome(Roofline(**parts.values), parts.signals)


PREFILL_CEILING, DECODE_CEILING = "phase_ceiling_tokens_per_second_prefill", "phase_ceiling_tokens_per_second_decode"
DECODE = ("decode_ceiling_tokens_per_second", "decode_ceiling_ratio", "batch_ridge_size", DECODE_CEILING)
_NEEDS_CONTEXT = ("bandwidth_ceiling_ratio_model", "compute_ceiling_ratio", "phase_busy_ratio", *DECODE)
NEEDS_WORK = (*_NEEDS_CONTEXT, PREFILL_CEILING)
_NO_EXPERTS = Range(0.0, 0.0, 0.0)
# readings that a signal is worked out from: what is wrong with them is wrong with it
INPUTS = dict.fromkeys(NEEDS_WORK, ("inter_token_latency_seconds", "prefill_tokens_total"))


def _finite(ridge: float | None) -> float | None:
    return ridge if ridge is not None and math.isfinite(ridge) else None


class _Parts:
    """Gathers a Roofline's fields and the reasons of those that are not there."""

    def __init__(self, window: EngineWindow, hardware: Hardware) -> None:
        self._window, self._hardware = window, hardware
        self.values: dict[str, Any] = {}
        self.signals: dict[str, Absence] = {}
        self.causes: dict[str, Cause] = {}
        self._achieved: dict[str, float] = {}
        self._ratio: dict[str, float] = {}
        self.values["achieved"], self.values["ratio"], self.values["causes"] = self._achieved, self._ratio, self.causes
        self._ceiling: float | None = None
        self._phases: dict[str, float] = {}
        self.values["phase_ceiling"] = self._phases

    def ceilings(self) -> None:
        """Peak of all the engine's GPUs; whatever model they serve."""
        signal, peaks, gpus = "bandwidth_ceiling_bytes_per_second", self._hardware.peaks, self._hardware.working_gpus
        if isinstance(peaks, Absence):
            self.signals[signal] = peaks
        elif not peaks.bandwidth_bytes_per_second:
            self.signals[signal] = Absence.PEAK_UNKNOWN
        elif not gpus:
            self.signals[signal] = Absence.GPUS_UNKNOWN
        else:
            self.values["bandwidth_ceiling"] = self._ceiling = peaks.bandwidth_bytes_per_second * gpus
            self.signals[signal] = Absence.AVAILABLE

    def achieved(self, source: Source, value: float | Absence) -> None:
        """Bytes/s of one source, and its ratio where the ceiling is known."""
        signal = f"bandwidth_ceiling_ratio_{source.value}"
        if isinstance(value, Absence):
            self.signals[signal] = value
            return
        self._achieved[source.value] = value
        self.signals[signal] = Absence.AVAILABLE
        if self._ceiling is None:
            self.signals[signal] = self.signals["bandwidth_ceiling_bytes_per_second"]
            return
        self._ratio[source.value] = value / self._ceiling
        if value > self._ceiling and source is not Source.MODEL:
            self.causes[signal] = Cause.INPUTS

    def steps(self, done: Work) -> None:
        """What needs no facts."""
        self.values["steps_per_second"] = done.steps.count / done.elapsed_seconds
        self.values["steps_counted"] = done.steps.counted
        parallel = self._hardware.parallel
        self.values["batch"] = done.decoding(parallel.pipeline if parallel else 1)

    def missing(self, why: Work | Absence, signals: tuple[str, ...] = NEEDS_WORK) -> None:
        """Nothing can be worked out: every figure that needs facts and work has the same reason."""
        assert isinstance(why, Absence)
        for signal in signals:
            self.signals[signal] = why

    def worked(self, roof: Roof, done: Work, length: tuple[Range, str] | Absence) -> None:
        """What the facts make of the window's work."""
        tokens = Range(0.0, 0.0, 0.0)  # prefill alone needs no context length
        prefill = prefill_flops(roof, done)
        prefill_seconds = roofs.compute_seconds(roof, prefill)
        self._alone("prefill", capacity.prefill_tokens_per_second(roof, done, prefill_seconds))
        if done.sequence_steps:
            if isinstance(length, Absence):
                self.missing(length, _NEEDS_CONTEXT)
                return
            self.values["context"], self.values["context_source"] = tokens, _ = length
        self._bytes_and_flops(roof, done, tokens, prefill)
        ceiling = self._decode(roof, done, tokens)
        shares = busy.phase_ratio(busy.weighed(done, prefill_seconds, ceiling, self._hardware.efficiency))
        self.values["phase_busy_ratio"] = shares
        self._note("phase_busy_ratio", shares or None, Absence.PEAK_UNKNOWN)

    def _note(self, signal: str, value: object, why: Absence) -> None:
        self.signals[signal] = why if value is None else Absence.AVAILABLE

    def _alone(self, phase: str, found: float | Absence) -> None:
        signal = f"phase_ceiling_tokens_per_second_{phase}"
        self.signals[signal] = found if isinstance(found, Absence) else Absence.AVAILABLE
        if not isinstance(found, Absence):
            self._phases[phase] = found

    def _bytes_and_flops(self, roof: Roof, done: Work, tokens: Range, prefill: dict[Precision, float]) -> None:
        moved = traffic(roof, done, tokens)
        total, count = moved.total, done.steps.count
        self.achieved(Source.MODEL, total.expected / done.elapsed_seconds)
        assert self._ceiling is not None
        per_second = done.elapsed_seconds * self._ceiling
        ratio = Range(total.lower / per_second, total.expected / per_second, total.upper / per_second)
        self.values["model_ratio_range"] = ratio
        if ratio.expected > 1:
            self.causes["bandwidth_ceiling_ratio_model"] = achieved.cause(
                ratio, roof, assumed_gpus=self._hardware.assumed_gpus, assumed_formats=roof.model.formats_assumed
            )
        self.values["step_bytes"] = {
            "weights": moved.weights.expected / count,
            "kv_read": moved.kv_read.expected / count,
            "kv_written": moved.kv_written / count,
        }
        if roof.model.geometry.experts:
            self.values["experts"] = per_step(done, lambda passed: roofs.experts_touched(roof, passed) or _NO_EXPERTS)
        flops = added(prefill, decode_flops(roof, done, tokens))
        seconds = roofs.compute_seconds(roof, flops)
        self._note("compute_ceiling_ratio", seconds, Absence.PEAK_UNKNOWN)
        self.values["flops_per_second"] = sum(flops.values()) / done.elapsed_seconds
        self.values["intensity_flops_per_byte"] = sum(flops.values()) / total.expected if total.expected else None
        if seconds is not None:
            self.values["compute_ratio"] = seconds / done.elapsed_seconds
            if seconds > done.elapsed_seconds:
                self.causes["compute_ceiling_ratio"] = Cause.GPU_COUNT if self._hardware.assumed_gpus else Cause.INPUTS

    def _decode(self, roof: Roof, done: Work, tokens: Range) -> Ceiling | None:
        signals = DECODE
        if roof.model.geometry.encoder or not done.sequence_steps:
            self.signals.update(dict.fromkeys(signals, Absence.IDLE))
            return None
        ceiling = capacity.decode_ceiling(roof, done, tokens.expected)
        ridge = roofs.ridge_batch(roof, tokens.expected, tokens_per_step=1 + done.drafts)
        self._note(signals[0], ceiling, Absence.PEAK_UNKNOWN)
        self._note(signals[1], ceiling, Absence.PEAK_UNKNOWN)
        found = _finite(ridge)
        self._note(signals[2], found, Absence.PEAK_UNKNOWN if ridge is None else Absence.NO_RIDGE)
        self.values["batch_ridge"] = found
        # recurrent state is read at any context: it too may take longer than computing with it
        self.values["weights_ridge"] = _finite(roofs.ridge_batch(roof, 0.0, tokens_per_step=1 + done.drafts))
        each = self.values["tokens_per_sequence_step"] or 1.0 if speculates(self._window) else 1.0
        steps = capacity.decode_steps_per_second(roof, self._window, done, tokens.expected)
        self._alone("decode", steps if isinstance(steps, Absence) else steps * each)
        if ceiling is None:
            return None
        self.values["decode_ceiling"] = ceiling.tokens_per_second
        self.values["step_floor_seconds"] = ceiling.step_seconds
        self.values["ridge_flops_per_byte"] = ceiling.ridge_flops_per_byte
        ratio = done.sequence_steps / done.elapsed_seconds / ceiling.tokens_per_second
        self.values["decode_ratio"] = ratio
        if ratio > 1:
            self.causes["decode_ceiling_ratio"] = self.causes.get("bandwidth_ceiling_ratio_model", Cause.INPUTS)
        return ceiling
