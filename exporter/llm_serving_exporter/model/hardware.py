"""What a GPU could do: peaks with their origin, how many GPUs a target has, and how those of one engine share its work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from llm_serving_exporter.model.cost import Efficiency
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.weights import Precision


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """A catalogue row: one GPU product, dense tensor rates (never the sparse ones of data sheets).

    `names` as NVML returns them, without "NVIDIA ", the canonical one first. `flops` in FLOP/s (INT8: operations) by precision; one that
    is not there has no native path. `bandwidth_tolerance_ratio`: how far a figure from NVML's clocks may lie off before it is not
    believed. `memory_bytes` as NVML reports it where known, else the data sheet's. `source` and `date` of the figures, `figure_sources`
    of those that come from elsewhere; `confidence`: "read" (in tables that cite the data sheet), "secondary", "memory".
    `pci_device_ids` in NVML's form, device id << 16 | vendor id. `aliases`, `key_words` (all must stand in a name that somebody writes)
    and `words` (may stand there) serve `facts.gpus.find`.
    """

    name: str
    names: tuple[str, ...]
    memory_bytes: int
    bandwidth_bytes_per_second: float
    flops: Mapping[Precision, float]
    compute_capability: tuple[int, int] | None
    source: str
    date: str
    pci_device_ids: tuple[int, ...] = ()
    bandwidth_tolerance_ratio: float = 0.02
    tdp_watts: float | None = None
    nvlink_bytes_per_second: float | None = None
    confidence: str = "secondary"
    figure_sources: Mapping[str, str] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    key_words: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class GpuPeaks:
    """Peaks of one GPU (or MIG instance: its memory slices' share of bandwidth, its compute slices' share of FLOP/s).

    `bandwidth_bytes_per_second` is the one believed, by `origin`: "catalogue", "nvml" or "config"; None, and "", where nothing says
    it. `by_origin` has all of them, for comparison. `flops` is empty for a GPU of which the catalogue knows no rates.
    """

    name: str
    bandwidth_bytes_per_second: float | None
    origin: str
    by_origin: Mapping[str, float] = field(default_factory=dict)
    flops: Mapping[Precision, float] = field(default_factory=dict)
    compute_capability: tuple[int, int] | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class TargetGpus:
    """GPUs (or MIG instances) that all engines of a target use together. `name`: their kind, several joined by " + ", "" if not known."""

    count: int
    name: str = ""


@dataclass(frozen=True, slots=True)
class Parallel:
    """How one engine's work is spread. `tensor` x `pipeline` GPUs serve one engine.

    `expert_engines`: engines (data-parallel ranks) over which routed experts are spread, so that each holds that part of their bytes
    and sees the tokens of all of them; 1 = each engine has all its experts.
    """

    tensor: int = 1
    pipeline: int = 1
    expert_engines: int = 1

    @property
    def gpus(self) -> int:
        """GPUs of one engine."""
        return self.tensor * self.pipeline


@dataclass(frozen=True, slots=True)
class Hardware:
    """The GPUs of one engine, as far as they are known."""

    # peaks of one of them, or why they are not known
    peaks: GpuPeaks | Absence = Absence.GPUS_UNKNOWN
    # how the engine's work is spread over them; None where nothing says it
    parallel: Parallel | None = None
    # how many are allotted to the engine, idle ones included; None: those of `parallel`, where that is known
    gpus: float | None = None
    # whether `parallel` was inferred, because nothing said how the engine uses its GPUs
    assumed_gpus: bool = False
    # major and minor release of the engine; None where it is not known
    version: tuple[int, int] | None = None
    # shares of the peaks that work is taken to reach, for the split of busy time by phase
    efficiency: Efficiency = field(default_factory=Efficiency)

    @property
    def working_gpus(self) -> float | None:
        """GPUs that share one engine's steps; None where not known."""
        return float(self.parallel.gpus) if self.parallel is not None else self.gpus

    @property
    def engine_gpus(self) -> float | None:
        """GPUs of one engine, those that stand idle included; None where not known."""
        return self.gpus if self.gpus is not None else self.working_gpus
