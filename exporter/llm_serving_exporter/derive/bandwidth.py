"""The rows of memory bandwidth: its ceiling, what was achieved by source, and what our arithmetic says of a step's bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from llm_serving_exporter.catalogue import roofline as names
from llm_serving_exporter.derive import achieved
from llm_serving_exporter.derive import roof as roofs
from llm_serving_exporter.derive.figures import Figure, figure
from llm_serving_exporter.derive.inputs import DEVICES, EARLIER, HARDWARE, MODEL, TARGET_WINDOW, window_over
from llm_serving_exporter.derive.load import LOAD, WORK_FIELDS, Load
from llm_serving_exporter.derive.signals import NO_SENTENCES, NOT_ON_A_FRONT_END, Row, Series
from llm_serving_exporter.derive.traffic import Traffic, average_per_step, estimate_traffic, held_tokens_per_sequence
from llm_serving_exporter.model.derived import BandwidthSource, Cause, EngineDerived, Range
from llm_serving_exporter.model.hardware import Hardware
from llm_serving_exporter.model.shape import ModelFacts
from llm_serving_exporter.model.snapshot import Absence, Quality
from llm_serving_exporter.model.window import DeviceSample, EngineWindow, Window

_NO_EXPERTS = Range(0.0, 0.0, 0.0)
_GPUS_ELSEWHERE = "run an exporter on their node, and set targets[].gpus there if they are not found."
_SENTENCES: Mapping[BandwidthSource, Mapping[Absence, str]] = {
    BandwidthSource.GPM: {
        Absence.NOT_EXPORTED: "NVML's GPM needs Hopper or newer; for older datacenter cards set dcgm.url to a dcgm-exporter.",
        Absence.GPUS_UNKNOWN: f"It is read from the GPUs themselves: {_GPUS_ELSEWHERE}",
        Absence.NOT_CONFIGURED: "GPM is switched off: set gpu.gpm: true.",
    },
    BandwidthSource.DCGM: {
        Absence.GPUS_UNKNOWN: f"It belongs to GPUs that NVML shows too: {_GPUS_ELSEWHERE}",
        Absence.INPUT_MISSING: "dcgm-exporter could not be read, or not lately: see dcgm_up and the log.",
        Absence.NOT_CONFIGURED: "Set dcgm.url to a dcgm-exporter that has DCGM_FI_PROF_DRAM_ACTIVE.",
        Absence.NOT_EXPORTED: (
            "The dcgm-exporter does not show DCGM_FI_PROF_DRAM_ACTIVE for every GPU of this target: profiling fields need a "
            "datacenter GPU, CAP_SYS_ADMIN and their line in its counters file."
        ),
    },
    BandwidthSource.RUNTIME: {
        Absence.NOT_EXPORTED: "vLLM 0.17 and newer have the estimate; others do not, or not a sound one.",
        Absence.NOT_CONFIGURED: "Start vLLM with --enable-mfu-metrics; it costs the engine a little time.",
    },
}


def _ceiling(hardware: Hardware) -> float | Absence:
    """Peak of all the engine's GPUs. It does not depend on the model."""
    peaks, gpus = hardware.peaks, hardware.working_gpus
    if isinstance(peaks, Absence):
        return peaks
    if not peaks.bandwidth_bytes_per_second:
        return Absence.PEAK_UNKNOWN
    return peaks.bandwidth_bytes_per_second * gpus if gpus else Absence.GPUS_UNKNOWN


def _measured_by(source: BandwidthSource) -> Callable[[tuple[DeviceSample, ...], Hardware], float | Absence]:
    return lambda samples, hardware: achieved.measure_bandwidth(source, samples, hardware.peaks, hardware.engine_gpus)


def _estimated(window: EngineWindow, model: ModelFacts | Absence, hardware: Hardware) -> float | Absence:
    return achieved.read_runtime_estimate(window, model, hardware.version, hardware.working_gpus)


def _traffic(load: Load | Absence) -> Traffic | Absence:
    return load if isinstance(load, Absence) else estimate_traffic(load.roof, load.done, load.context)


def _moved(load: Load | Absence, moved: Traffic | Absence) -> float | Absence:
    if isinstance(load, Absence):
        return load
    return moved if isinstance(moved, Absence) else moved.total.expected / load.done.elapsed_seconds


def _ratio(bytes_per_second: float | Absence, ceiling: float | Absence) -> float | Absence:
    if isinstance(bytes_per_second, Absence):
        return bytes_per_second
    return ceiling if isinstance(ceiling, Absence) else bytes_per_second / ceiling


def _ratio_range(load: Load | Absence, moved: Traffic | Absence, ceiling: float | Absence) -> Range | None:
    if isinstance(load, Absence) or isinstance(moved, Absence) or isinstance(ceiling, Absence):
        return None
    total, most = moved.total, load.done.elapsed_seconds * ceiling
    expected = total.expected / most
    # nothing moves more than the peak: what sequences share is not read for each of them where that would be more
    return Range(total.lower / most, expected, max(expected, min(total.upper / most, 1.0)))


def _believe(gpm: float | Absence, dcgm: float | Absence) -> float | Absence:
    """The best measured ratio."""
    return dcgm if isinstance(gpm, Absence) else gpm


def _differing_since(
    measured: float | Absence, by_model: float | Absence, target: Window, earlier: EngineDerived | None
) -> float | None:
    """Monotonic seconds from which on, at every tick, the measured ratio and the worked-out one have differed; None: they do not."""
    if isinstance(measured, Absence) or isinstance(by_model, Absence) or not achieved.differ(measured, by_model):
        return None
    before: float | None = earlier.figures.get(DIFFERING) if earlier is not None else None
    return target.later.monotonic_seconds if before is None else before


def _differs(since: float | None, target: Window) -> bool:
    return since is not None and target.later.monotonic_seconds - since >= achieved.DIFFERENCE_SECONDS


def _cause(ratio: float | Absence) -> Cause | None:
    return Cause.INPUTS if not isinstance(ratio, Absence) and names.BANDWIDTH_RATIO.bounds.suspects(ratio) else None


def _or_differs(cause: Cause | None, differs: bool) -> Cause | None:  # a figure's inputs go by place
    return cause or (Cause.SOURCES_DIFFER if differs else None)


def _impossible(load: Load | Absence, ratio: Range | None, hardware: Hardware) -> Cause | None:
    """Nothing known explains a ratio above 1 whose lower bound is above it too."""
    if isinstance(load, Absence) or ratio is None or not names.BANDWIDTH_RATIO.bounds.suspects(ratio.lower):
        return None
    return achieved.explain_ratio(assumed_gpus=hardware.assumed_gpus, assumed_formats=load.roof.model.formats_assumed)


def _model_quality(load: Load | Absence) -> Quality | None:
    known = not isinstance(load, Absence) and achieved.is_recorded(load.roof, load.done)
    return None if known else Quality.APPROXIMATE


def _activations(
    measured: float | Absence, load: Load | Absence, moved: Traffic | Absence, ceiling: float | Absence
) -> float | None:
    """The part of the `model` ratio that activations are; None where a measured one is believed."""
    if not isinstance(measured, Absence):
        return None
    if isinstance(load, Absence) or isinstance(moved, Absence) or isinstance(ceiling, Absence):
        return None
    return moved.activations.expected / load.done.elapsed_seconds / ceiling


def _attended(load: Load | Absence) -> float | None:
    """Only where prompts of the window hit the prefix cache: else there is nothing to share, whatever the estimate of contexts says."""
    if isinstance(load, Absence) or not load.done.sequence_steps:
        return None
    held = held_tokens_per_sequence(load.roof, load.done)
    return None if held is None else load.context.expected / max(1.0, held)


def _dcgm_quality(ratio: float | Absence) -> Quality | None:
    # dcgm-exporter collects every 30 s by default, and repeats its values in between
    return None if isinstance(ratio, Absence) else Quality.SLOW


def _step_bytes(load: Load | Absence, moved: Traffic | Absence) -> dict[str, float]:
    if isinstance(load, Absence) or isinstance(moved, Absence):
        return {}
    count = load.done.steps.count
    return {
        "weights": moved.weights.expected / count,
        "kv_read": moved.kv_read.expected / count,
        "kv_written": moved.kv_written / count,
        "activations": moved.activations.expected / count,
    }


def _experts(load: Load | Absence) -> Range | None:
    if isinstance(load, Absence) or not load.roof.model.geometry.experts:
        return None
    roof = load.roof
    return average_per_step(load.done, lambda passed: roofs.experts_touched(roof, passed) or _NO_EXPERTS)


def _ends(ratio: Range) -> dict[str, float]:
    return {"lower": ratio.lower, "upper": ratio.upper}


def _expected(ratio: Range) -> float:
    return ratio.expected


_CEILING = figure(_ceiling, HARDWARE)
TRAFFIC = figure(_traffic, LOAD)
_BYTES_PER_SECOND: dict[BandwidthSource, Figure[float | Absence]] = {
    **{source: figure(_measured_by(source), DEVICES, HARDWARE) for source in achieved.MEASURED},
    BandwidthSource.RUNTIME: figure(_estimated, window_over("estimated_read_bytes_per_gpu"), MODEL, HARDWARE),
    BandwidthSource.MODEL: figure(_moved, LOAD, TRAFFIC),
}
_RATIOS = {source: figure(_ratio, moved, _CEILING) for source, moved in _BYTES_PER_SECOND.items()}
_MODEL_RANGE = figure(_ratio_range, LOAD, TRAFFIC, _CEILING)
_MEASURED = figure(_believe, _RATIOS[BandwidthSource.GPM], _RATIOS[BandwidthSource.DCGM])
_DIFFERING_SINCE = figure(_differing_since, _MEASURED, _RATIOS[BandwidthSource.MODEL], TARGET_WINDOW, EARLIER)
_DIFFERS = figure(_differs, _DIFFERING_SINCE, TARGET_WINDOW)
IMPOSSIBLE = figure(_impossible, LOAD, _MODEL_RANGE, HARDWARE)


def _cause_of(source: BandwidthSource) -> Figure[Cause | None]:
    alone = IMPOSSIBLE if source is BandwidthSource.MODEL else figure(_cause, _RATIOS[source])
    return alone if source is BandwidthSource.RUNTIME else figure(_or_differs, alone, _DIFFERS)


def _quality_of(source: BandwidthSource) -> Figure[Quality | None] | None:
    if source is BandwidthSource.MODEL:
        return figure(_model_quality, LOAD)
    return figure(_dcgm_quality, _RATIOS[source]) if source is BandwidthSource.DCGM else None


def _ratio_row(source: BandwidthSource) -> Row[float]:
    return Row(
        _RATIOS[source],
        f"{names.BANDWIDTH_RATIO.name}_{source.value}",
        fields=WORK_FIELDS if source is BandwidthSource.MODEL else (),
        silent=NOT_ON_A_FRONT_END,
        sentences=_SENTENCES.get(source, NO_SENTENCES),
        quality=_quality_of(source),
        cause=_cause_of(source),
        of_an_engine=True,
        of_gpus=source in achieved.MEASURED,
        series=(Series(names.BANDWIDTH_RATIO, (source.value,)),),
        kept=source is not BandwidthSource.RUNTIME,  # the limiter does not believe it
    )


CEILING: Row[float] = Row(
    _CEILING,
    names.BANDWIDTH_CEILING.name,
    silent=NOT_ON_A_FRONT_END,
    of_an_engine=True,
    of_gpus=True,
    series=(Series(names.BANDWIDTH_CEILING),),
)
RATIOS = {source: _ratio_row(source) for source in _BYTES_PER_SECOND}
ACHIEVED: dict[BandwidthSource, Row[float]] = {
    source: Row(
        _BYTES_PER_SECOND[source],
        silent=NOT_ON_A_FRONT_END,
        of_an_engine=True,
        series=(Series(names.ACHIEVED_BANDWIDTH, (source.value,)),),
    )
    for source in _BYTES_PER_SECOND
}
MODEL_RANGE: Row[Range] = Row(
    _MODEL_RANGE,
    silent=NOT_ON_A_FRONT_END,
    of_an_engine=True,
    series=(Series(names.BANDWIDTH_RATIO_RANGE, part=_ends),),
)
STEP_BYTES: Row[dict[str, float]] = Row(
    figure(_step_bytes, LOAD, TRAFFIC),
    silent=NOT_ON_A_FRONT_END,
    of_an_engine=True,
    series=(Series(names.STEP_BYTES),),
)
EXPERTS: Row[Range] = Row(
    figure(_experts, LOAD), silent=NOT_ON_A_FRONT_END, of_an_engine=True, series=(Series(names.EXPERTS),)
)
# for the next tick; not published
DIFFERING: Row[float] = Row(_DIFFERING_SINCE, silent=NOT_ON_A_FRONT_END, of_an_engine=True, kept=True)
ATTENDED: Row[float] = Row(figure(_attended, LOAD), silent=NOT_ON_A_FRONT_END, of_an_engine=True, kept=True)
# for the limiter; not published
ACTIVATIONS: Row[float] = Row(
    figure(_activations, _MEASURED, LOAD, TRAFFIC, _CEILING),
    silent=NOT_ON_A_FRONT_END,
    of_an_engine=True,
)
ROWS = (
    CEILING,
    *RATIOS.values(),
    *ACHIEVED.values(),
    MODEL_RANGE,
    STEP_BYTES,
    EXPERTS,
    DIFFERING,
    ATTENDED,
    ACTIVATIONS,
)
