"""What a GPU could do: peaks with their origin, how many GPUs a target has, and how those of one engine share its work."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.model.shape import Precision
from llm_serving_exporter.model.snapshot import Absence

if TYPE_CHECKING:
    pass


class Efficiency(Struct, frozen=True):
    """Shares of the peaks that work is assumed to reach, above 0, up to 1."""

    compute: float = 1.0  # of the dense tensor peak
    bandwidth: float = 1.0  # of the peak memory bandwidth


class GpuSpec(Struct, frozen=True):
    """A catalogue row: one GPU product."""

    # the catalogue's spelling
    name: str
    # as NVML returns them, without "NVIDIA ", the canonical one first
    names: tuple[str, ...]
    # as NVML reports it where known, else the data sheet's
    memory_bytes: int
    # peak of the memory
    bandwidth_bytes_per_second: float
    # dense tensor rates in FLOP/s (INT8: operations), never the sparse ones of data sheets; a precision that is missing has no native path
    flops: Mapping[Precision, float]
    # major and minor; None where not known, and where there is none
    compute_capability: tuple[int, int] | None
    # of the figures
    source: str
    # of the source
    date: str
    # in NVML's form, device id << 16 | vendor id
    pci_device_ids: tuple[int, ...] = ()
    # how far a figure from NVML's clocks may lie off before it is not believed
    bandwidth_tolerance_ratio: float = 0.02
    # thermal design power
    tdp_watts: float | None = None
    # of all links together
    nvlink_bytes_per_second: float | None = None
    # "read" (in tables that cite the data sheet), "secondary" or "memory"
    confidence: str = "secondary"
    # sources of the figures that come from elsewhere, by figure
    figure_sources: Mapping[str, str] = field(default_factory=dict)
    # other spellings, for `facts.gpus.find`
    aliases: tuple[str, ...] = ()
    # words that must all stand in a name that somebody writes
    key_words: frozenset[str] = frozenset()
    # words that may stand there
    words: frozenset[str] = frozenset()
    # the lowest and the highest that are published, of the rates whose documents differ
    flops_lowest: Mapping[Precision, float] = field(default_factory=dict)
    flops_highest: Mapping[Precision, float] = field(default_factory=dict)  # likewise
    # None: not less than `bandwidth_bytes_per_second`
    bandwidth_lowest_bytes_per_second: float | None = None
    # None: not more
    bandwidth_highest_bytes_per_second: float | None = None
    # whether a user described it: then its figures are believed before all others
    own: bool = False


class GpuPeaks(Struct, frozen=True):
    """Peaks of one GPU (or MIG instance: its memory slices' share of bandwidth, its compute slices' share of FLOP/s)."""

    # the GPU's kind, "" where not known
    name: str
    # the figure that is believed; None where nothing says it
    bandwidth_bytes_per_second: float | None
    # where that figure comes from: "catalogue", "nvml" or "config"; "" without one
    origin: str
    # all figures, for comparison
    by_origin: Mapping[str, float] = field(default_factory=dict)
    # dense tensor rates in FLOP/s by precision; {} where the catalogue knows none
    flops: Mapping[Precision, float] = field(default_factory=dict)
    # the highest that the vendor has published, where its documents differ; {}: as `flops`
    flops_upper: Mapping[Precision, float] = field(default_factory=dict)
    # likewise; None: as `bandwidth_bytes_per_second`
    bandwidth_upper_bytes_per_second: float | None = None
    # the lowest that is published of those rates; {}: as `flops`
    flops_lower: Mapping[Precision, float] = field(default_factory=dict)
    # likewise; None: as `bandwidth_bytes_per_second`
    bandwidth_lower_bytes_per_second: float | None = None
    # major and minor; None where not known
    compute_capability: tuple[int, int] | None = None
    # None where not known
    memory_bytes: int | None = None


class ShareSource(StrEnum):
    """What says how much of a GPU is a target's: the values of the label `source` of gpu_target_share_ratio."""

    WHOLE = "whole"  # all of the GPU or instance: no other target is known to have it
    CONFIGURED = "configured"  # targets[].gpu_share
    KUBELET = "kubelet"  # the parts that it gave out of those that there are
    MEMORY = "process_memory"  # GPU memory of the engine's processes over that of all targets', by the driver's list


class GpuPart(Struct, frozen=True):
    """How much of a GPU or instance is a target's."""

    # above 0, up to 1; None: not known
    share: float | None
    # what says so
    source: ShareSource
    # which part of `share` processes take that are no target's, 0 to 1: by their memory
    foreign: float = 0.0
    # GPU memory of the target's own processes; None: the driver does not list it
    memory_bytes: int | None = None


class TargetGpus(Struct, frozen=True):
    """GPUs (or MIG instances) that all engines of a target use together."""

    count: int
    # their kind, several joined by " + "; "" where not known
    name: str = ""
    # mean part of a card that each of them is: 1 for whole cards, less for MIG instances and for parts by time; None where not known
    share: float | None = 1.0


class Parallel(Struct, frozen=True):
    """How one replica's work is spread over GPUs (docs/internals-ceiling.md). What engines call these: derive/parallel.py."""

    # GPUs that share each layer within one attention data-parallel rank
    tensor: int = 1
    # stages, each with that many GPUs
    pipeline: int = 1
    # attention data-parallel ranks, each with sequences of its own and all weights but the routed experts
    data: int = 1
    # GPUs over which one set of routed experts is spread, of tensor x data; up to `tensor` of them are within a rank
    expert: int = 1
    # decode context parallelism: parts that a sequence's KV is cut into among the tensor-parallel GPUs, which otherwise keep copies
    context: int = 1
    # tokens of all ranks that share the experts over those of this one; None: as many as there are, all taken for equally busy
    busy_ranks: float | None = None

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

    # peaks of one of them, or why they are not known
    peaks: GpuPeaks | Absence = Absence.GPUS_UNKNOWN
    # how the work of the replica that the engine is a rank of is spread; None where nothing says it
    parallel: Parallel | None = None
    # how many are allotted to the engine, idle ones included; None: those of `parallel`, where that is known
    gpus: float | None = None
    # whether `parallel` is None because the server spreads its work in a way that is not read
    layout_unread: bool = False
    # whether `parallel` was inferred, because nothing said how the engine uses its GPUs
    assumed_gpus: bool = False
    # major and minor release of the engine; None where it is not known
    version: tuple[int, int] | None = None
    # shares of the peaks that work is taken to reach, for the split of busy time by phase
    efficiency: Efficiency = field(default_factory=Efficiency)

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
