"""How near one engine is to what its GPUs could do, and what limits a target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Source(StrEnum):
    """Where a figure of achieved bandwidth comes from. In this order they are believed, the runtime's never."""

    GPM = "gpm"  # NVML's counters, Hopper and newer
    DCGM = "dcgm"  # dcgm-exporter's
    MODEL = "model"  # our arithmetic over the engine's counters
    RUNTIME = "runtime"  # the engine's own arithmetic


class Cause(StrEnum):
    """The likely reason of a ratio above 1."""

    SHARED_PREFIX = "shared_prefix"  # a prefix that many sequences share was counted for each of them
    EXPERT_ROUTING = "expert_routing"  # tokens agree on experts more than independent ones would
    GPU_COUNT = "gpu_count"  # how many GPUs work on a step was assumed, not said
    WEIGHT_FORMAT = "weight_format"  # the weights' or the KV cache's format was assumed, not read
    INPUTS = "inputs"  # the model, its formats, the GPU or the engine's counting


@dataclass(frozen=True, slots=True)
class Range:
    """A figure with what it may lie between."""

    lower: float
    expected: float
    upper: float


@dataclass(frozen=True, slots=True)
class Steps:
    """Engine steps of a window. `counted`: by the engine; else worked out from the mean inter-token latency (a lower bound)."""

    count: float
    counted: bool


@dataclass(frozen=True, slots=True)
class Roofline:
    """One engine over the window. Bytes and FLOPs are of all its GPUs together; None where an input is not known.

    `achieved` (bytes/s) and `ratio` (over `bandwidth_ceiling`, unclamped) by source. `decode_ceiling` in tokens/s at one token per sequence
    and step, at the batch and context of the window; `decode_ratio` = sequence-steps/s over it. `compute_ratio`: time that
    the window's FLOPs need at the dense peak over elapsed time. `batch`: sequences that decode at a time. `batch_ridge`: batch at
    which decode stops being bandwidth-bound, None also where it never does; `weights_ridge`: the same for the weights alone, with no
    context. `step_bytes` of a mean step by part: weights, kv_read, kv_written. `experts` touched by a step and layer.
    `tokens_per_sequence_step` above 1 is speculation. `phase_ceiling`: tokens/s that the engine could do of each phase alone, at its
    largest batch. `causes` by signal name: why a ratio above 1 is.
    """

    achieved: Mapping[str, float] = field(default_factory=dict)
    ratio: Mapping[str, float] = field(default_factory=dict)
    bandwidth_ceiling: float | None = None
    model_ratio_range: Range | None = None
    decode_ceiling: float | None = None
    decode_ratio: float | None = None
    compute_ratio: float | None = None
    flops_per_second: float | None = None
    intensity_flops_per_byte: float | None = None
    ridge_flops_per_byte: float | None = None
    batch_ridge: float | None = None
    weights_ridge: float | None = None
    steps_per_second: float | None = None
    steps_counted: bool = True
    batch: float | None = None
    context: Range | None = None
    context_source: str = ""
    step_bytes: Mapping[str, float] = field(default_factory=dict)
    experts: Range | None = None
    tokens_per_sequence_step: float | None = None
    step_floor_seconds: float | None = None
    phase_ceiling: Mapping[str, float] = field(default_factory=dict)
    phase_busy_ratio: Mapping[str, float] = field(default_factory=dict)
    causes: Mapping[str, Cause] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BusySeconds:
    """Busy time of one engine by phase since the exporter first saw its life.

    `pending_seconds` is busy time in which no token was booked yet: it goes to the next tick that books some, or to `unattributed`.
    """

    prefill: float = 0.0
    decode: float = 0.0
    unattributed: float = 0.0
    pending_seconds: float = 0.0


class Limiter(StrEnum):
    """What bounds a target's throughput now."""

    BANDWIDTH = "bandwidth"
    COMPUTE = "compute"
    KV_CAPACITY = "kv_capacity"
    BATCH_LIMIT = "batch_limit"
    PREFILL_INTERFERENCE = "prefill_interference"
    OVERHEAD = "overhead"
    STARVED = "starved"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The limiter in force with its evidence; `candidate` is what the evidence says now, held against since `candidate_since`.

    `doubted_since`: since when the evidence has said anything but the state in force; None while it agrees.
    """

    state: Limiter
    candidate: Limiter
    candidate_since_monotonic_seconds: float
    evidence: Mapping[str, float] = field(default_factory=dict)
    doubted_since_monotonic_seconds: float | None = None
