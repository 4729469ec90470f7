"""What a GPU could do: peaks with their origin, how many GPUs a target has, and how those of one engine share its work."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.model.shape import Precision
from llm_serving_exporter.model.snapshot import Absence


class Efficiency(Struct, frozen=True):
    """Shares of the peaks that work is assumed to reach, above 0, up to 1."""

    compute: float = 1.0  # of the dense tensor peak
    bandwidth: float = 1.0  # of the peak memory bandwidth


class GpuSpec(Struct, frozen=True):
    """A catalogue row: one GPU product."""

    name: str  # the catalogue's spelling
    names: tuple[str, ...]  # NVML's, without "NVIDIA ", the canonical one first
    memory_bytes: int  # as NVML reports it where known, else the data sheet's
    bandwidth_bytes_per_second: float
    # dense FLOP/s (INT8: operations), never a data sheet's sparse ones; a missing precision has no native path
    flops: Mapping[Precision, float]
    compute_capability: tuple[int, int] | None  # major and minor; None: not known, or there is none
    source: str  # of the figures
    date: str  # of the source
    pci_device_ids: tuple[int, ...] = ()  # in NVML's form, device id << 16 | vendor id
    bandwidth_tolerance_ratio: float = 0.02  # how far a figure from NVML's clocks may lie off before it is not believed
    tdp_watts: float | None = None
    nvlink_bytes_per_second: float | None = None  # of all links together
    confidence: str = "secondary"  # "read" (in tables that cite the data sheet), "secondary" or "memory"
    figure_sources: Mapping[str, str] = field(default_factory=dict)  # of figures that come from elsewhere
    aliases: tuple[str, ...] = ()  # other spellings, for `facts.gpus.find`
    key_words: frozenset[str] = frozenset()  # that must all stand in a name that somebody writes
    words: frozenset[str] = frozenset()  # that may stand there
    # published, of the rates whose documents differ
    flops_lowest: Mapping[Precision, float] = field(default_factory=dict)
    flops_highest: Mapping[Precision, float] = field(default_factory=dict)  # likewise
    bandwidth_lowest_bytes_per_second: float | None = None  # None: `bandwidth_bytes_per_second`
    bandwidth_highest_bytes_per_second: float | None = None  # None: likewise
    own: bool = False  # whether a user described it: its figures are believed before all others


class GpuPeaks(Struct, frozen=True):
    """Peaks of one GPU (or MIG instance: its memory slices' share of bandwidth, its compute slices' share of FLOP/s)."""

    name: str  # "": not known
    bandwidth_bytes_per_second: float | None  # the figure that is believed; None: nothing says it
    origin: str  # of that figure: "catalogue", "nvml" or "config"; "" without one
    by_origin: Mapping[str, float] = field(default_factory=dict)  # all figures, for comparison
    flops: Mapping[Precision, float] = field(default_factory=dict)  # dense FLOP/s; {}: the catalogue knows none
    # published, where documents differ; {}: `flops`
    flops_upper: Mapping[Precision, float] = field(default_factory=dict)
    bandwidth_upper_bytes_per_second: float | None = None  # likewise; None: the one above
    flops_lower: Mapping[Precision, float] = field(default_factory=dict)  # {}: `flops`
    bandwidth_lower_bytes_per_second: float | None = None
    compute_capability: tuple[int, int] | None = None
    memory_bytes: int | None = None


class ShareSource(StrEnum):
    """What says how much of a GPU is a target's: the values of the label `source` of gpu_target_share_ratio."""

    WHOLE = "whole"  # all of the GPU or instance: no other target is known to have it
    CONFIGURED = "configured"  # targets[].gpu_share
    KUBELET = "kubelet"  # the parts that it gave out of those that there are
    MEMORY = "process_memory"  # GPU memory of the engine's processes over that of all targets', by the driver's list


class GpuPart(Struct, frozen=True):
    """How much of a GPU or instance is a target's."""

    share: float | None  # above 0, up to 1; None: not known
    source: ShareSource
    foreign: float = 0.0  # part of `share` that processes of no target take, by their memory
    memory_bytes: int | None = None  # of the target's own processes; None: the driver does not list it


class TargetGpus(Struct, frozen=True):
    """GPUs (or MIG instances) that all engines of a target use together."""

    count: int
    name: str = ""  # several kinds joined by " + "; "": not known
    share: float | None = 1.0  # mean part of a card, below 1 for MIG instances and parts by time; None: not known


class Parallel(Struct, frozen=True):
    """How one replica's work is spread over GPUs (docs/internals-ceiling.md). What engines call these: gpus/attribution.py."""

    tensor: int = 1  # GPUs that share each layer within one attention data-parallel rank
    pipeline: int = 1  # stages, each with that many GPUs
    data: int = 1  # attention data-parallel ranks, each with its own sequences and all weights but the routed experts
    expert: int = 1  # GPUs of tensor x data that one set of routed experts is spread over, up to `tensor` within a rank
    context: int = 1  # parts that a sequence's KV is cut into among the tensor-parallel GPUs, which else keep copies
    busy_ranks: float | None = None  # tokens of all ranks that share the experts over this one's; None: all are as busy

    @property
    def gpus(self) -> int:
        """GPUs of the replica."""
        return self.tensor * self.pipeline * self.data

    @property
    def rank_gpus(self) -> int:
        """GPUs of one data-parallel rank, which is what an engine's page calls an engine."""
        return self.tensor * self.pipeline

    @property
    def sharing_ranks(self) -> float:
        """Ranks that share one set of routed experts, each with its part; 1: each rank has all of them. Not whole where `expert` is no
        multiple of `tensor`."""
        return min(float(self.data), max(1.0, self.expert / self.tensor))

    @property
    def token_ranks(self) -> float:
        """How many times a rank's own tokens meet the experts of which it has a part."""
        return self.sharing_ranks if self.busy_ranks is None else self.busy_ranks

    def count_kv_copies(self, kv_heads: int) -> float:
        """How often a rank keeps a token's KV: tensor-parallel GPUs beyond the KV heads keep copies, unless the context is cut among them
        (facts model-math B.9). MLA has one latent for all heads: `kv_heads` 1."""
        return max(1.0, self.tensor / (max(1, kv_heads) * self.context))


class Hardware(Struct, frozen=True):
    """The GPUs of one engine, as far as they are known."""

    peaks: GpuPeaks | Absence = Absence.GPUS_UNKNOWN  # of one GPU
    parallel: Parallel | None = None  # of the replica that the engine is a rank of; None: nothing says it
    gpus: float | None = None  # allotted to the engine, idle ones included; None: those of `parallel`
    layout_unread: bool = False  # `parallel` is None because the server spreads its work in a way that is not read
    assumed_gpus: bool = False  # `parallel` was inferred: nothing said how the engine uses its GPUs
    version: tuple[int, int] | None = None  # of the engine, major and minor; None: not known
    efficiency: Efficiency = field(default_factory=Efficiency)  # for the split of busy time by phase

    @property
    def working_gpus(self) -> float | None:
        """GPUs that share one engine's steps; None where not known."""
        return float(self.parallel.rank_gpus) if self.parallel is not None else self.gpus

    @property
    def engine_gpus(self) -> float | None:
        """GPUs of one engine, those that stand idle included; None where not known."""
        return self.gpus if self.gpus is not None else self.working_gpus


class BusySource(StrEnum):
    """What says how long a target's GPUs were busy, the best first: the values of the label `source` of gpu_busy_source."""

    PAGE = "engine_time"  # the engine's page counts the time that its device works
    GPM = "gpm"  # the card's share of time with work, between two passes
    NVML = "nvml_samples"  # the driver's buffer of utilization samples
    ESTIMATE = "estimate"  # latencies over the batch, or the weights of the work, on the engine's page
    REQUESTS = "requests"  # a tick in which a request ran is busy as a whole
