"""What GPUs could do: a device's identity or a catalogue row -> GpuPeaks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts.gpus import match
from llm_serving_exporter.model.device import GpuIdentity, MigInstance
from llm_serving_exporter.model.hardware import GpuPeaks, GpuSpec
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.weights import Precision

Key = TypeVar("Key")
Peak = TypeVar("Peak", float, int, tuple[int, int])

CATALOGUE, NVML = "catalogue", "nvml"

# lowest compute capability with a path of its own, and the first without one again (vLLM's kernels; AMD's are told by the rates alone).
# 16-bit float: Volta and Turing by FP16. INT8 W8A8: vLLM has no kernel from 10.0 on although B200 has the hardware. FP8: below 8.9 weights
# only (Marlin). FP4: below 10.0 weights only (Marlin); on 12.x the hardware has it, kernels fall back to weights only in part.
_NATIVE: Mapping[Precision, tuple[tuple[int, int], tuple[int, int] | None]] = {
    Precision.FP32: ((0, 0), None),
    Precision.BF16: ((7, 0), None),
    Precision.INT8: ((7, 5), (10, 0)),
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


def compute_precision(wanted: Precision, peaks: GpuPeaks) -> Precision:
    """The rate at which matrices kept for `wanted` are really multiplied on this GPU.

    A format without a native path, or without a rate, is dequantised: 16-bit float, called BF16. FP32 stays FP32, for nothing runs it at
    BF16's rate; where the GPU's rate for the answer is not known there is no compute ceiling.
    """
    if wanted in (Precision.FP32, Precision.BF16):
        return wanted
    runs = wanted in peaks.flops and native(wanted, peaks.compute_capability)
    return wanted if runs else Precision.BF16


def peaks_of_spec(spec: GpuSpec) -> GpuPeaks:
    """A GPU that is only named: the command line, remote targets. `flops`: the rates with a native path."""
    bandwidth = spec.bandwidth_bytes_per_second
    return GpuPeaks(
        name=spec.name,
        bandwidth_bytes_per_second=bandwidth,
        origin=CATALOGUE,
        by_origin={CATALOGUE: bandwidth},
        flops=_usable(spec, spec.compute_capability, 1.0),
        compute_capability=spec.compute_capability,
        memory_bytes=spec.memory_bytes,
    )


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
    does not know it    not told (GB10)                     None, ""
    ==================  ==================================  =================================================================

    `flops`: the row's rates that have a native path, so without INT8 on B200.

    A MIG instance gets its memory slices of the whole GPU's bandwidth and its compute slices of the FLOP/s (by the profile's name,
    "1g.10gb" = 1 of 7; else by memory slices). Where its slices are not known, neither is its share: None and empty.
    """
    spec = match(identity, catalogue)
    told = identity.memory_bandwidth_peak_bytes_per_second
    whole = {} if spec is None else {CATALOGUE: spec.bandwidth_bytes_per_second}
    if told is not None:
        whole[NVML] = told
    memory_share, compute_share = _shares(identity, spec)
    by_origin = {} if memory_share is None else {key: value * memory_share for key, value in whole.items()}
    origin = _believed(by_origin, None if spec is None else spec.bandwidth_tolerance_ratio)
    name = identity.name if spec is None else spec.name
    if identity.mig is not None and spec is not None:
        name = f"{name} MIG {identity.mig.profile}".rstrip()
    capability = identity.compute_capability or (None if spec is None else spec.compute_capability)
    memory = identity.memory_total_bytes
    if memory is None and spec is not None and memory_share is not None:
        memory = round(spec.memory_bytes * memory_share)
    return GpuPeaks(
        name=name,
        bandwidth_bytes_per_second=by_origin.get(origin),
        origin=origin,
        by_origin=by_origin,
        flops={} if spec is None or compute_share is None else _usable(spec, capability, compute_share),
        compute_capability=capability,
        memory_bytes=memory,
    )


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
    return GpuPeaks(
        name=names[0] if len(names) == 1 else f"{' + '.join(names)} (lowest of each)",
        bandwidth_bytes_per_second=bandwidth,
        origin="" if bandwidth is None else gpus[bandwidths.index(bandwidth)].origin,
        by_origin={key: min(each.by_origin[key] for each in gpus) for key in _shared(each.by_origin for each in gpus)},
        flops={key: min(each.flops[key] for each in gpus) for key in _shared(each.flops for each in gpus)},
        compute_capability=_lowest([each.compute_capability for each in gpus]),
        memory_bytes=_lowest([each.memory_bytes for each in gpus]),
    )


def _usable(spec: GpuSpec, capability: tuple[int, int] | None, share: float) -> Mapping[Precision, float]:
    return {key: rate * share for key, rate in spec.flops.items() if native(key, capability)}


def _believed(by_origin: Mapping[str, float], tolerance: float | None) -> str:
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
