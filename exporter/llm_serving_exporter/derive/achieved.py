"""Achieved memory bandwidth of one engine, by source (design section 6)."""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.derive import devices
from llm_serving_exporter.derive.roof import Roof
from llm_serving_exporter.derive.traffic import Work
from llm_serving_exporter.model.derived import BandwidthSource, Cause
from llm_serving_exporter.model.hardware import GpuPeaks
from llm_serving_exporter.model.shape import ModelFacts, Precision, Span
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.window import DeviceSample, EngineWindow

# Releases from which vLLM's own estimate knows MLA and sliding windows (facts model-math E.5)
ESTIMATE_KNOWS_MLA, ESTIMATE_KNOWS_WINDOWS = (0, 24), (0, 30)
# what it knows of attention: nothing that is picked, compressed, shared or of an encoder
_ESTIMATED = (Span.FULL, Span.SLIDING)
MEASURED = (BandwidthSource.GPM, BandwidthSource.DCGM)
# measured and worked out differ so much, for so long: one of them is wrong; next to nothing is left out, of which noise is a quarter
DIFFERENCE_FROM, DIFFERENCE_SECONDS, _BOTH_IDLE_BELOW = 0.25, 300.0, 0.1
_RECORDED_GPU, _RECORDED_FORMATS = "H100 SXM 80GB", (Precision.BF16,)


def measure_bandwidth(
    source: BandwidthSource, samples: tuple[DeviceSample, ...], peaks: GpuPeaks | Absence, gpus: float | None
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


def explain_ratio(*, assumed_gpus: bool, assumed_formats: bool) -> Cause:
    """Why a ratio of the `model` source is wrong that is above 1 at its lower bound too."""
    if assumed_gpus:
        return Cause.GPU_COUNT
    return Cause.WEIGHT_FORMAT if assumed_formats else Cause.INPUTS


def is_recorded(roof: Roof, done: Work) -> bool:
    """Whether the arithmetic of bytes was held against the hardware's own counters for work like this (tests/truth/test_h100.py)."""
    geometry, parallel = roof.model.geometry, roof.parallel
    plain = not geometry.mla and not geometry.recurrent and all(group.span is Span.FULL for group in geometry.attention)
    stored = all(
        group.format.multiplied in _RECORDED_FORMATS and group.format.bits == 16 for group in roof.model.groups
    )
    alone = parallel.tensor == parallel.pipeline == parallel.data == 1
    return (
        plain
        and stored
        and alone
        and roof.peaks.name == _RECORDED_GPU
        and done.kv_token_steps is not None
        and not done.drafts
    )


def differ(measured: float, by_model: float) -> bool:
    """Whether two sources of the same ratio differ by more than a quarter, and one of them says that memory works."""
    return abs(measured - by_model) > DIFFERENCE_FROM * measured and max(measured, by_model) >= _BOTH_IDLE_BELOW


def choose_ratio(ratios: Mapping[str, float]) -> float | None:
    """The ratio to believe: measured before worked out, none above 1, never the engine's own estimate."""
    for source in (*MEASURED, BandwidthSource.MODEL):
        value = ratios.get(source.value)
        if value is not None and value <= 1:
            return value
    return None
