"""The rows of memory bandwidth: what a window's work is held against, what was achieved by source, and the ceiling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import truediv

from llm_serving_exporter.catalogue import roofline as names
from llm_serving_exporter.derive.devices import average_samples
from llm_serving_exporter.derive.figures import (
    DEVICES,
    EARLIER,
    HARDWARE,
    MODEL,
    RANKS,
    TARGET_WINDOW,
    WINDOW,
    DeriveSettings,
    Figure,
    figure,
    needs_all,
    window_over,
)
from llm_serving_exporter.derive.signals import NO_SENTENCES, OF_AN_ENGINE, Row, Series
from llm_serving_exporter.derive.steps import estimate_context, window_over_steps
from llm_serving_exporter.derive.traffic import (
    Traffic,
    Work,
    average_per_step,
    estimate_traffic,
    held_tokens_per_sequence,
    measure_work,
)
from llm_serving_exporter.derive.work import Roof, experts_touched
from llm_serving_exporter.model.derived import BandwidthSource, Cause, EngineDerived, Range
from llm_serving_exporter.model.hardware import GpuPeaks, Hardware
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct, replace
from llm_serving_exporter.model.shape import ModelFacts, Precision, Span
from llm_serving_exporter.model.snapshot import Absence, Quality
from llm_serving_exporter.model.target import Siblings
from llm_serving_exporter.model.window import DeviceSample, EngineWindow, EngineWindows, Window

# --- Achieved memory bandwidth of one engine, by source (design section 6).


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
    ratio = average_samples(samples, f"{source.value}_ratio")
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


# --- What a window's work is held against: the engine's roof, the work, and the context that its decode read.


# what work is counted from: what is wrong with these fields is wrong with every figure of it
WORK_FIELDS = ("inter_token_latency_seconds", "prefill_tokens_total")
# so much more or less of the other ranks' work changes no roof: what follows from it would be worked out again at each tick
_SAME_RANKS = 0.05
_NO_CONTEXT = Range(0.0, 0.0, 0.0)  # prefill alone needs no context length


class Task(Struct, frozen=True):
    """Work with the roof that it was done under."""

    roof: Roof  # the ceilings of the engine's GPUs for its model
    done: Work  # what the engine did in the window


class Load(Struct, frozen=True):
    """A task with the context that its decode read."""

    roof: Roof  # the ceilings of the engine's GPUs for its model
    done: Work  # what the engine did in the window
    context: Range  # tokens of context a decoding sequence; zeros where nothing was decoded
    context_source: str  # where the context comes from, "" where nothing was decoded


def make_roof(model: ModelFacts | Absence, hardware: Hardware) -> Roof | Absence:
    """The roof of one engine, or what it lacks."""
    if isinstance(model, Absence):
        return model
    if model.geometry.reads_unknown:
        return Absence.ARCHITECTURE_UNKNOWN
    if isinstance(hardware.peaks, Absence):
        return hardware.peaks
    if hardware.parallel is None:
        return Absence.LAYOUT_UNREAD if hardware.layout_unread else Absence.GPUS_UNKNOWN
    if not hardware.peaks.bandwidth_bytes_per_second:
        return Absence.PEAK_UNKNOWN
    return Roof(model, hardware.peaks, hardware.parallel)


def _roof(
    model: ModelFacts | Absence, hardware: Hardware, earlier: EngineDerived | None, busy_ranks: float | None
) -> Roof | Absence:
    """That of the tick before where nothing has changed: it has worked out what follows from it alone."""
    earlier_roof: Roof | None = earlier.figures.get(ROOF_ROW) if earlier is not None else None
    if busy_ranks is not None and hardware.parallel is not None:
        hardware = replace(
            hardware, parallel=replace(hardware.parallel, busy_ranks=_keep_ranks(busy_ranks, earlier_roof))
        )
    if earlier_roof is not None and earlier_roof.model is model and earlier_roof.parallel == hardware.parallel:
        peaks = hardware.peaks
        if earlier_roof.peaks is peaks or earlier_roof.peaks == peaks:
            return earlier_roof
    return make_roof(model, hardware)


def average_ranks(windows: Sequence[EngineWindows], settings: DeriveSettings) -> Siblings | None:
    """All ranks that share the engines' experts, as far as they are read: how many, and the mean of the requests that run on them.

    None where they share none, and where a page does not say what runs. To be asked once for all engines of a page.
    """
    parallel = settings.hardware.parallel
    # with fewer, nothing says which of the ranks they are
    if parallel is None or parallel.data == 1 or parallel.sharing_ranks != parallel.data:
        return None
    page = [window.configured for window in windows if window.configured.last.is_engine]
    running = [mean for window in page if (mean := window.mean("requests_running")) is not None]
    # engines of several models are no ranks of one replica
    if not page or len(running) < len(page) or len({window.last.model_name for window in page}) > 1:
        return None
    others = settings.siblings or Siblings()
    return Siblings(len(page) + others.ranks, add_up(running) + others.requests)


def _busy_ranks(
    model: ModelFacts | Absence, hardware: Hardware, window: EngineWindow, ranks: Siblings | None
) -> float | None:
    """Requests of all ranks over those of this one; None where it shares no experts, or nothing runs on it.

    Those that nobody reads are taken for as busy as those that are read: of one rank alone, that is as many times its own as there are.
    """
    if ranks is None or hardware.parallel is None or isinstance(model, Absence) or not model.geometry.experts:
        return None
    running = window.mean("requests_running")
    if not running:
        return None
    data = hardware.parallel.data
    busy = max(1.0, ranks.requests / running * max(1.0, data / ranks.ranks))
    return None if abs(busy / data - 1) <= _SAME_RANKS else busy


def _keep_ranks(busy_ranks: float, known: Roof | None) -> float:
    """What was taken before, where that is as good as the same: a roof is not worked out again for every request more or less."""
    before = known.parallel.busy_ranks if known is not None else None
    return before if before is not None and abs(busy_ranks / before - 1) <= _SAME_RANKS else busy_ranks


def _load(window: EngineWindow, task: Task) -> Load | Absence:
    if not task.done.sequence_steps:
        return Load(task.roof, task.done, _NO_CONTEXT, "")
    length = estimate_context(window, task.roof.model.geometry)
    return length if isinstance(length, Absence) else Load(task.roof, task.done, *length)


_BUSY_RANKS = figure(_busy_ranks, MODEL, HARDWARE, WINDOW, RANKS)
ROOF = figure(_roof, MODEL, HARDWARE, EARLIER, _BUSY_RANKS)
# for the next tick; not published
ROOF_ROW: Row[Roof] = Row(ROOF, **OF_AN_ENGINE, every_tick=True)
# whether the roof is that of the tick before: what depends on the roof alone is taken from there
SAME_ROOF = figure(lambda roof, earlier: earlier is not None and earlier.figures.get(ROOF_ROW) is roof, ROOF, EARLIER)
ENCODER = figure(lambda model: isinstance(model, ModelFacts) and model.geometry.encoder, MODEL)
# what the whole of the work is counted over
WORK_WINDOW = window_over_steps("prefill_tokens_total", "cached_prompt_tokens_total")
WORK = figure(lambda window, encoder: measure_work(window, encoder=encoder), WORK_WINDOW, ENCODER)
TASK = needs_all(Task, ROOF, WORK)
LOAD = needs_all(_load, WORK_WINDOW, TASK)


# --- The rows of memory bandwidth: its ceiling, what was achieved by source, and what our arithmetic says of a step's bytes.


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


def _measured_by(source: BandwidthSource) -> Figure[float | Absence]:
    return figure(
        lambda samples, gpus: measure_bandwidth(source, samples, gpus.peaks, gpus.engine_gpus), DEVICES, HARDWARE
    )


def _ratio_range(load: Load, moved: Traffic, ceiling: float) -> Range:
    total, most = moved.total, load.done.elapsed_seconds * ceiling
    expected = total.expected / most
    # nothing moves more than the peak: what sequences share is not read for each of them where that would be more
    return Range(total.lower / most, expected, max(expected, min(total.upper / most, 1.0)))


def _differing_since(
    measured: float | Absence, by_model: float | Absence, target: Window, earlier: EngineDerived | None
) -> float | None:
    """Monotonic seconds from which on, at every tick, the measured ratio and the worked-out one have differed; None: they do not."""
    if isinstance(measured, Absence) or isinstance(by_model, Absence) or not differ(measured, by_model):
        return None
    before: float | None = earlier.figures.get(DIFFERING) if earlier is not None else None
    return target.later.monotonic_seconds if before is None else before


def _cause(ratio: float | Absence) -> Cause | None:
    return Cause.INPUTS if not isinstance(ratio, Absence) and names.BANDWIDTH_RATIO.bounds.suspects(ratio) else None


def _impossible(load: Load | Absence, ratio: Range | Absence, hardware: Hardware) -> Cause | None:
    """Nothing known explains a ratio above 1 whose lower bound is above it too."""
    if (
        isinstance(load, Absence)
        or isinstance(ratio, Absence)
        or not names.BANDWIDTH_RATIO.bounds.suspects(ratio.lower)
    ):
        return None
    return explain_ratio(assumed_gpus=hardware.assumed_gpus, assumed_formats=load.roof.model.formats_assumed)


def _model_quality(load: Load | Absence) -> Quality | None:
    recorded = not isinstance(load, Absence) and is_recorded(load.roof, load.done)
    return None if recorded else Quality.APPROXIMATE


def _activations(
    measured: float | Absence, load: Load | Absence, moved: Traffic | Absence, ceiling: float | Absence
) -> float | None:
    """The part of the `model` ratio that activations are; None where a measured one is believed."""
    if not isinstance(measured, Absence):
        return None
    if isinstance(load, Absence) or isinstance(moved, Absence) or isinstance(ceiling, Absence):
        return None
    return moved.activations.expected / load.done.elapsed_seconds / ceiling


def _attended(load: Load) -> float | None:
    """Only where prompts of the window hit the prefix cache: else there is nothing to share, whatever the estimate of contexts says."""
    if not load.done.sequence_steps:
        return None
    held = held_tokens_per_sequence(load.roof, load.done)
    return None if held is None else load.context.expected / max(1.0, held)


def _step_bytes(load: Load, moved: Traffic) -> dict[str, float]:
    count = load.done.steps.count
    return {
        "weights": moved.weights.expected / count,
        "kv_read": moved.kv_read.expected / count,
        "kv_written": moved.kv_written / count,
        "activations": moved.activations.expected / count,
    }


def _experts(load: Load) -> Range | None:
    roof = load.roof
    if not roof.model.geometry.experts:
        return None
    return average_per_step(load.done, lambda passed: experts_touched(roof, passed) or _NO_EXPERTS)


_CEILING = figure(_ceiling, HARDWARE)
TRAFFIC = needs_all(lambda load: estimate_traffic(load.roof, load.done, load.context), LOAD)
_BYTES_PER_SECOND: dict[BandwidthSource, Figure[float | Absence]] = {
    **{source: _measured_by(source) for source in MEASURED},
    BandwidthSource.RUNTIME: figure(
        lambda window, model, gpus: read_runtime_estimate(window, model, gpus.version, gpus.working_gpus),
        window_over("estimated_read_bytes_per_gpu"),
        MODEL,
        HARDWARE,
    ),
    BandwidthSource.MODEL: needs_all(
        lambda load, moved: moved.total.expected / load.done.elapsed_seconds, LOAD, TRAFFIC
    ),
}
_RATIOS = {source: needs_all(truediv, moved, _CEILING) for source, moved in _BYTES_PER_SECOND.items()}
_MODEL_RANGE = needs_all(_ratio_range, LOAD, TRAFFIC, _CEILING)
# the best that there is
_MEASURED = figure(
    lambda gpm, dcgm: dcgm if isinstance(gpm, Absence) else gpm,
    _RATIOS[BandwidthSource.GPM],
    _RATIOS[BandwidthSource.DCGM],
)
_DIFFERING_SINCE = figure(_differing_since, _MEASURED, _RATIOS[BandwidthSource.MODEL], TARGET_WINDOW, EARLIER)
_DIFFERS = figure(
    lambda since, target: since is not None and target.later.monotonic_seconds - since >= DIFFERENCE_SECONDS,
    _DIFFERING_SINCE,
    TARGET_WINDOW,
)
IMPOSSIBLE = figure(_impossible, LOAD, _MODEL_RANGE, HARDWARE)


def _cause_of(source: BandwidthSource) -> Figure[Cause | None]:
    alone = IMPOSSIBLE if source is BandwidthSource.MODEL else figure(_cause, _RATIOS[source])
    if source is BandwidthSource.RUNTIME:
        return alone
    return figure(lambda cause, differs: cause or (Cause.SOURCES_DIFFER if differs else None), alone, _DIFFERS)


def _quality_of(source: BandwidthSource) -> Figure[Quality | None] | None:
    if source is BandwidthSource.MODEL:
        return figure(_model_quality, LOAD)
    if source is not BandwidthSource.DCGM:
        return None
    # dcgm-exporter collects every 30 s by default, and repeats its values in between
    return figure(lambda ratio: None if isinstance(ratio, Absence) else Quality.SLOW, _RATIOS[source])


def _ratio_row(source: BandwidthSource) -> Row[float]:
    return Row(
        _RATIOS[source],
        f"{names.BANDWIDTH_RATIO.name}_{source.value}",
        fields=WORK_FIELDS if source is BandwidthSource.MODEL else (),
        **OF_AN_ENGINE,
        sentences=_SENTENCES.get(source, NO_SENTENCES),
        quality=_quality_of(source),
        cause=_cause_of(source),
        of_gpus=source in MEASURED,
        series=(Series(names.BANDWIDTH_RATIO, (source.value,)),),
        every_tick=source is not BandwidthSource.RUNTIME,  # the limiter does not believe it
    )


CEILING: Row[float] = Row(
    _CEILING, names.BANDWIDTH_CEILING.name, **OF_AN_ENGINE, of_gpus=True, series=(Series(names.BANDWIDTH_CEILING),)
)
RATIOS = {source: _ratio_row(source) for source in _BYTES_PER_SECOND}
ACHIEVED: dict[BandwidthSource, Row[float]] = {
    source: Row(_BYTES_PER_SECOND[source], **OF_AN_ENGINE, series=(Series(names.ACHIEVED_BANDWIDTH, (source.value,)),))
    for source in _BYTES_PER_SECOND
}
MODEL_RANGE: Row[Range] = Row(
    _MODEL_RANGE,
    **OF_AN_ENGINE,
    series=(Series(names.BANDWIDTH_RATIO_RANGE, part=lambda ratio: {"lower": ratio.lower, "upper": ratio.upper}),),
)
STEP_BYTES: Row[dict[str, float]] = Row(
    needs_all(_step_bytes, LOAD, TRAFFIC), **OF_AN_ENGINE, series=(Series(names.STEP_BYTES),)
)
EXPERTS: Row[Range] = Row(needs_all(_experts, LOAD), **OF_AN_ENGINE, series=(Series(names.EXPERTS),))
# for the next tick; not published
DIFFERING: Row[float] = Row(_DIFFERING_SINCE, **OF_AN_ENGINE, every_tick=True)
ATTENDED: Row[float] = Row(needs_all(_attended, LOAD), **OF_AN_ENGINE, every_tick=True)
# for the limiter; not published
ACTIVATIONS: Row[float] = Row(figure(_activations, _MEASURED, LOAD, TRAFFIC, _CEILING), **OF_AN_ENGINE)
ROWS = (
    CEILING, *RATIOS.values(), *ACHIEVED.values(), MODEL_RANGE, STEP_BYTES, EXPERTS, DIFFERING, ATTENDED, ACTIVATIONS,
)  # fmt: skip
