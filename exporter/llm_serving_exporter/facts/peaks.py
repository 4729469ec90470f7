"""What GPUs could do: a device's identity or a catalogue row -> GpuPeaks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts.gpus import match
from llm_serving_exporter.model.gpu import GpuIdentity, MigInstance
from llm_serving_exporter.model.hardware import GpuPeaks, GpuSpec
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.shape import Precision
from llm_serving_exporter.model.snapshot import Absence

Key = TypeVar("Key")
Peak = TypeVar("Peak", float, int, tuple[int, int])

CATALOGUE, NVML, CONFIG = "catalogue", "nvml", "config"

# lowest compute capability with a path of its own, and the first without one again (vLLM's kernels; AMD's are told by the rates alone).
# 16-bit float: P100, Volta and Turing by FP16. INT8 W8A8: vLLM has no kernel from 10.0 on although B200 has the hardware; Pascal's dot
# products of four bytes are llama.cpp's. FP8: below 8.9 weights only (Marlin). FP4: below 10.0 weights only (Marlin); on 12.x the
# hardware has it, kernels fall back to weights only in part.
_NATIVE: Mapping[Precision, tuple[tuple[int, int], tuple[int, int] | None]] = {
    Precision.FP32: ((0, 0), None),
    Precision.BF16: ((6, 0), None),
    Precision.INT8: ((6, 1), (10, 0)),
    Precision.FP8: ((8, 9), None),
    Precision.FP4: ((10, 0), None),
}


def native(precision: Precision, compute_capability: tuple[int, int] | None) -> bool:
    """Whether matrices in this precision are multiplied as such, not dequantised first.

    Without a compute capability (AMD, or not told) True: then the rates alone decide.
    """
    lowest, beyond = _NATIVE[precision]
    if compute_capability is None:
        return True
    return lowest <= compute_capability and (beyond is None or compute_capability < beyond)


def peaks_of_spec(spec: GpuSpec) -> GpuPeaks:
    """A GPU that is only named: the command line, remote targets. `flops`: the rates with a native path."""
    return _describe(spec, spec.compute_capability)


def peaks_of_identity(identity: GpuIdentity, catalogue: Sequence[GpuSpec]) -> GpuPeaks:
    """A GPU or MIG instance that NVML sees. `by_origin` has both bandwidths where there are two; which is believed:

    ==================  ==================================  =================================================================
    catalogue           2 x max memory clock x bus / 8      `bandwidth_bytes_per_second`, `origin`
    ==================  ==================================  =================================================================
    knows the GPU       within the row's tolerance          NVML's, "nvml": this very board's clock (H100 3352, GH200 4023)
    knows the GPU       further off                         the catalogue's, "catalogue": some drivers count bus width that
                                                            is not there (H200 4917 for 4800, B200 8184 or 7672 for 8000)
    knows the GPU       not told (driver too old)           the catalogue's, "catalogue"
    does not know it    told                                NVML's, "nvml"; `flops` empty
    does not know it    not told (Jetson)                   None, ""
    ==================  ==================================  =================================================================

    A card that a user described has the user's figure, "config", whatever NVML says.

    `flops`: the row's rates that have a native path, so without INT8 on B200; of a card that a user described all of them.

    A MIG instance gets its memory slices of the whole GPU's bandwidth and its compute slices of the FLOP/s (by the profile's name,
    "1g.10gb" = 1 of 7; else by memory slices). Where its slices are not known, neither is its share: None and empty.
    """
    if identity.partitions > 1:
        return _find_part(identity, catalogue)
    spec = match(identity, catalogue)
    told = identity.memory_bandwidth_peak_bytes_per_second
    capability = identity.compute_capability or (None if spec is None else spec.compute_capability)
    whole = GpuPeaks(identity.name, None, "", compute_capability=capability)
    if spec is not None:
        whole = _describe(spec, capability)
        if identity.mig is not None:
            whole = replace(whole, name=f"{spec.name} MIG {identity.mig.profile}".rstrip())
    if told is not None:
        whole = replace(whole, by_origin={**whole.by_origin, NVML: told})
    memory_share, compute_share = _shares(identity, spec)
    found = _share(
        whole,
        None if memory_share is None else lambda value: value * memory_share,
        None if compute_share is None else lambda value: value * compute_share,
    )
    origin = _believed(found.by_origin, None if spec is None else spec.bandwidth_tolerance_ratio)
    memory = identity.memory_total_bytes if identity.memory_total_bytes is not None else found.memory_bytes
    return replace(found, bandwidth_bytes_per_second=found.by_origin.get(origin), origin=origin, memory_bytes=memory)


def _find_part(identity: GpuIdentity, catalogue: Sequence[GpuSpec]) -> GpuPeaks:
    """Of one of the even parts of a card; its memory is its own where that is told."""
    own, parts = identity.memory_total_bytes, identity.partitions
    whole = replace(identity, partitions=1, memory_total_bytes=None if own is None else own * parts)
    found = share_of_peaks(peaks_of_identity(whole, catalogue), parts)
    return found if own is None else replace(found, memory_bytes=own)


def share_of_peaks(peaks: GpuPeaks, parts: int) -> GpuPeaks:
    """One of `parts` equal parts that a GPU is partitioned into (AMD's DPX, QPX, CPX): its share of memory, bandwidth and rates."""
    if parts <= 1:
        return peaks

    def part(whole: float) -> float:
        return whole / parts

    return replace(_share(peaks, part, part, int), name=f"{peaks.name} part 1/{parts}")


def peaks_of_many(gpus: Sequence[GpuPeaks]) -> GpuPeaks:
    """One GPU that stands for each of a target's: itself where they are alike, else the lowest of every peak.

    Engines split their work evenly and wait for the slowest, so that n times the lowest is what the group can do. A peak that is not
    known of every one is not known of the group. Kinds that differ stand in the name: "A100 SXM 40GB + A100 SXM 80GB (lowest of each)".

    Raises FactsError (gpus_unknown) where there is none.
    """
    if not gpus:
        raise FactsError(
            Absence.GPUS_UNKNOWN.value, "no GPU is known to belong to the target; list its GPUs in the configuration"
        )
    first = gpus[0]
    if all(each == first for each in gpus):
        return first
    bandwidths = [each.bandwidth_bytes_per_second for each in gpus]
    bandwidth = _lowest(bandwidths)
    names = sorted({each.name for each in gpus})

    def find_lowest(field: str) -> float | None:
        lowest = _lowest(getattr(each, field) or each.bandwidth_bytes_per_second for each in gpus)
        return None if lowest == bandwidth else lowest

    return GpuPeaks(
        name=names[0] if len(names) == 1 else f"{' + '.join(names)} (lowest of each)",
        bandwidth_bytes_per_second=bandwidth,
        origin="" if bandwidth is None else gpus[bandwidths.index(bandwidth)].origin,
        by_origin={key: min(each.by_origin[key] for each in gpus) for key in _shared(each.by_origin for each in gpus)},
        flops={key: min(each.flops[key] for each in gpus) for key in _shared(each.flops for each in gpus)},
        flops_upper=_lowest_rates(gpus, lambda one: one.flops_upper),
        flops_lower=_lowest_rates(gpus, lambda one: one.flops_lower),
        bandwidth_upper_bytes_per_second=find_lowest("bandwidth_upper_bytes_per_second"),
        bandwidth_lower_bytes_per_second=find_lowest("bandwidth_lower_bytes_per_second"),
        compute_capability=_lowest([each.compute_capability for each in gpus]),
        memory_bytes=_lowest([each.memory_bytes for each in gpus]),
    )


def _describe(spec: GpuSpec, capability: tuple[int, int] | None) -> GpuPeaks:
    """Peaks of a row, with the rates that have a native path; of a card that a user described all of them."""

    def usable(rates: Mapping[Precision, float]) -> Mapping[Precision, float]:
        return {key: rate for key, rate in rates.items() if spec.own or native(key, capability)}

    origin = CONFIG if spec.own else CATALOGUE
    return GpuPeaks(
        name=spec.name,
        bandwidth_bytes_per_second=spec.bandwidth_bytes_per_second,
        origin=origin,
        by_origin={origin: spec.bandwidth_bytes_per_second},
        flops=usable(spec.flops),
        flops_upper=usable(spec.flops_highest),
        bandwidth_upper_bytes_per_second=spec.bandwidth_highest_bytes_per_second,
        flops_lower=usable(spec.flops_lowest),
        bandwidth_lower_bytes_per_second=spec.bandwidth_lowest_bytes_per_second,
        compute_capability=capability,
        memory_bytes=spec.memory_bytes,
    )


Share = Callable[[float], float]


def _share(
    peaks: GpuPeaks, memory: Share | None, compute: Share | None, rounded: Callable[[float], int] = round
) -> GpuPeaks:
    """The same GPU with a share of its memory and bandwidth, and of its rates; None: it is not known which, so neither is the peak."""

    def some(whole: float | None) -> float | None:
        return None if whole is None or memory is None else memory(whole)

    def rates(whole: Mapping[Precision, float]) -> Mapping[Precision, float]:
        return {} if compute is None else {key: compute(rate) for key, rate in whole.items()}

    size = some(peaks.memory_bytes)
    return replace(
        peaks,
        bandwidth_bytes_per_second=some(peaks.bandwidth_bytes_per_second),
        bandwidth_upper_bytes_per_second=some(peaks.bandwidth_upper_bytes_per_second),
        bandwidth_lower_bytes_per_second=some(peaks.bandwidth_lower_bytes_per_second),
        memory_bytes=None if size is None else rounded(size),
        by_origin={} if memory is None else {key: memory(whole) for key, whole in peaks.by_origin.items()},
        flops=rates(peaks.flops),
        flops_upper=rates(peaks.flops_upper),
        flops_lower=rates(peaks.flops_lower),
    )


def _lowest_rates(
    gpus: Sequence[GpuPeaks], which: Callable[[GpuPeaks], Mapping[Precision, float]]
) -> Mapping[Precision, float]:
    """Of the rates that all have: the lowest of what `which` says, or `flops` where it says nothing. {} where that is `flops`."""
    found: dict[Precision, float] = {}
    for key in _shared(each.flops for each in gpus):
        rate = min(which(each).get(key, each.flops[key]) for each in gpus)
        if rate != min(each.flops[key] for each in gpus):
            found[key] = rate
    return found


def _believed(by_origin: Mapping[str, float], tolerance: float | None) -> str:
    if CONFIG in by_origin:
        return CONFIG
    known, told = by_origin.get(CATALOGUE), by_origin.get(NVML)
    if known is None:
        return "" if told is None else NVML
    if told is None or tolerance is None or abs(told - known) > tolerance * known:
        return CATALOGUE
    return NVML


def _shares(identity: GpuIdentity, spec: GpuSpec | None) -> tuple[float | None, float | None]:
    """Parts of the whole GPU's bandwidth and FLOP/s; None where not known."""
    if identity.mig is None:
        return 1.0, 1.0
    memory = _memory_share(identity.mig, identity.memory_total_bytes, spec)
    compute = identity.mig.compute_share
    return memory, memory if compute is None else compute


def _memory_share(mig: MigInstance, memory_bytes: int | None, spec: GpuSpec | None) -> float | None:
    total = mig.memory_slices_total
    if not total:
        return None
    if mig.memory_slices is not None:
        return mig.memory_slices / total
    if memory_bytes is None or spec is None:
        return None
    # in a container the whole GPU's memory is refused; the catalogue knows it. An instance shows a little less than its slices
    return min(max(round(memory_bytes * total / spec.memory_bytes), 1), total) / total


def _lowest(values: Iterable[Peak | None]) -> Peak | None:
    found = list(values)
    known = [value for value in found if value is not None]
    return min(known) if known and len(known) == len(found) else None


def _shared(maps: Iterable[Mapping[Key, float]]) -> list[Key]:
    first, *others = maps
    return [key for key in first if all(key in other for other in others)]
