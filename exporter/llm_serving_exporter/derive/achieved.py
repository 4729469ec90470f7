"""Achieved memory bandwidth of one engine, by source (design section 6)."""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.derive import devices
from llm_serving_exporter.derive.roof import Roof
from llm_serving_exporter.model.devices import DeviceSample
from llm_serving_exporter.model.geometry import Span
from llm_serving_exporter.model.hardware import GpuPeaks
from llm_serving_exporter.model.roofline import Cause, Range, Source
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.weights import ModelFacts
from llm_serving_exporter.model.window import EngineWindow

# Releases from which vLLM's own estimate knows MLA and sliding windows (facts model-math E.5)
ESTIMATE_KNOWS_MLA, ESTIMATE_KNOWS_WINDOWS = (0, 24), (0, 30)
# what it knows of attention: nothing that is picked, compressed, shared or of an encoder
_ESTIMATED = (Span.FULL, Span.SLIDING)
MEASURED = (Source.GPM, Source.DCGM)


def measure_bandwidth(
    source: Source, samples: tuple[DeviceSample, ...], peaks: GpuPeaks | Absence, gpus: float | None
) -> float | Absence:
    """Bytes/s of an engine's GPUs: the mean ratio over the target's GPUs x peak x the engine's number of them, idle ones included.

    With several engines on one target each gets its share: which GPU serves which rank is not known.
    """
    ratio = devices.average_samples(samples, f"{source.value}_ratio")
    if isinstance(ratio, Absence):
        return ratio
    if isinstance(peaks, Absence):
        return peaks
    if peaks.bandwidth_bytes_per_second is None:
        return Absence.PEAK_UNKNOWN
    if gpus is None:
        return Absence.GPUS_UNKNOWN
    return ratio * peaks.bandwidth_bytes_per_second * gpus


def read_runtime_estimate(
    window: EngineWindow, model: ModelFacts | Absence, version: tuple[int, int] | None, gpus: float | None
) -> float | Absence:
    """The engine's own estimate of bytes read per second, of all its GPUs, only where its arithmetic is sound (facts E.5).

    Not with speculation, with formats that it miscounts, or with layers that its release does not know. Bytes written are not in it.
    """
    if window.last.estimated_read_bytes_per_gpu is None:
        return Absence.NOT_EXPORTED
    grown = window.increase("estimated_read_bytes_per_gpu")
    if grown is None:
        return Absence.WARMING_UP
    if window.last.estimated_read_bytes_per_gpu == 0:
        return Absence.NOT_CONFIGURED  # the family is there without --enable-mfu-metrics, and stays 0
    if isinstance(model, Absence):
        return model
    if not _sound(model, version) or window.last.speculative_draft_tokens_total:
        return Absence.NOT_SOUND
    if gpus is None:
        return Absence.GPUS_UNKNOWN
    return grown * gpus / window.elapsed_seconds


def _sound(model: ModelFacts, version: tuple[int, int] | None) -> bool:
    geometry = model.geometry
    if not model.estimate_sound or geometry.recurrent:
        return False
    if any(group.span not in _ESTIMATED or not group.kept or group.compress_ratio > 1 for group in geometry.attention):
        return False
    since = (0, 0)
    if geometry.mla:
        since = max(since, ESTIMATE_KNOWS_MLA)
    if any(group.span is Span.SLIDING for group in geometry.attention):
        since = max(since, ESTIMATE_KNOWS_WINDOWS)
    return since == (0, 0) or (version is not None and version >= since)


def explain_ratio(ratio: Range, roof: Roof, *, assumed_gpus: bool, assumed_formats: bool) -> Cause:
    """Why a ratio of the `model` source above 1 is: the first explanation that brings it to 1 or that rests on an assumption."""
    if ratio.lower <= 1:
        return Cause.EXPERT_ROUTING if roof.model.geometry.experts else Cause.SHARED_PREFIX
    if assumed_gpus:
        return Cause.GPU_COUNT
    if assumed_formats:
        return Cause.WEIGHT_FORMAT
    return Cause.INPUTS


def choose_ratio(ratios: Mapping[str, float]) -> float | None:
    """The ratio to believe: measured before worked out, none above 1, never the engine's own estimate."""
    for source in (*MEASURED, Source.MODEL):
        value = ratios.get(source.value)
        if value is not None and value <= 1:
            return value
    return None
