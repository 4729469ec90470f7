"""How near one engine is to what its GPUs could do, and what limits a target."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from llm_serving_exporter.model.record import Struct, field


class Source(StrEnum):
    """Where a figure of achieved bandwidth comes from. In this order they are believed, the runtime's never."""

    GPM = "gpm"  # NVML's counters, Hopper and newer
    DCGM = "dcgm"  # dcgm-exporter's
    MODEL = "model"  # our arithmetic over the engine's counters
    RUNTIME = "runtime"  # the engine's own arithmetic


class Cause(StrEnum):
    """The likely reason of a value that is wrong: of a ratio above 1, but for the last three."""

    GPU_COUNT = "gpu_count"  # how many GPUs work on a step was assumed, not said
    WEIGHT_FORMAT = "weight_format"  # the weights' or the KV cache's format was assumed, not read
    INPUTS = "inputs"  # the model, its formats, the GPU or the engine's counting
    SOURCES_DIFFER = "sources_differ"  # what was measured and what was worked out differ for minutes
    COUNTERS = "counters"  # a gauge says what the engine's own counters exclude
    SEVERAL_SERVERS = "several_servers"  # counters fall and return: servers or workers answer in turn


class Range(Struct, frozen=True):
    """A figure with what it may lie between."""

    lower: float  # in the figure's unit
    expected: float  # the figure itself
    upper: float  # in the figure's unit


class Steps(Struct, frozen=True):
    """Engine steps of a window."""

    count: float  # a lower bound where it is not counted
    counted: bool  # whether the engine counts them; else they are worked out from the mean inter-token latency


class Roofline(Struct, frozen=True):
    """One engine over the window. Bytes and FLOPs are of all its GPUs together. None or an absent key: an input is not known."""

    achieved: Mapping[str, float] = field(default_factory=dict)  # bytes/s that were moved, by source (Source)
    # `achieved` over `bandwidth_ceiling` by source, unclamped: above 1 an input is wrong
    ratio: Mapping[str, float] = field(default_factory=dict)
    bandwidth_ceiling: float | None = None  # peak bytes/s
    # what `ratio` of source "model" may lie between, as KV in use, activations and experts do
    model_ratio_range: Range | None = None
    # the part of `ratio` of source "model" that activations are; None where a measured one is believed
    activation_ratio: float | None = None
    # bytes of KV that attention looks at, a shared prefix for each sequence, over those that are read once; None where prompts share none
    attended_kv_ratio: float | None = None
    # tokens/s at one token per sequence and step, at the batch and context of the window
    decode_ceiling: float | None = None
    decode_ceiling_upper: float | None = None  # the same where what sequences share is read once and again in no time
    decode_ratio: float | None = None  # sequence-steps/s over `decode_ceiling`
    compute_ratio: float | None = None  # time that the window's FLOPs need at the dense peak, over elapsed time (MFU)
    flops_per_second: float | None = None  # mean over the window
    intensity_flops_per_byte: float | None = None  # FLOPs over bytes moved, both by our arithmetic
    ridge_flops_per_byte: float | None = None  # intensity from which decode's mix of precisions is bound by compute
    # batch from which decode is bound by compute at the context of the window; None also where it never is
    batch_ridge: float | None = None
    weights_ridge: float | None = None  # the same for the weights' matrices alone, without context
    steps_per_second: float | None = None  # engine steps, with or without prefill in them
    # whether the engine counts them; False: from the mean inter-token latency, a lower bound
    steps_counted: bool = True
    batch: float | None = None  # mean number of sequences that decode in a step
    context: Range | None = None  # tokens that a decode step reads per sequence
    context_source: str = ""  # where `context` comes from: a constant of derive.context; "": it is not known
    # bytes of a mean step by part: weights, kv_read, kv_written, activations
    step_bytes: Mapping[str, float] = field(default_factory=dict)
    # distinct routed experts that a mean step touches in a layer; None also for a dense model
    experts: Range | None = None
    tokens_per_sequence_step: float | None = None  # that decode yields; above 1 under speculation
    # shortest that a decode step of the window's batch and context can be, at `decode_ceiling`
    step_floor_seconds: float | None = None
    # tokens/s that the engine could do of each phase alone, decode at its largest batch
    phase_ceiling: Mapping[str, float] = field(default_factory=dict)
    # share of busy time by phase, by what the work of each needs at its ceiling
    phase_busy_ratio: Mapping[str, float] = field(default_factory=dict)
    causes: Mapping[str, Cause] = field(default_factory=dict)  # signal's name -> why it is wrong


class BusySeconds(Struct, frozen=True):
    """Busy time of one engine since the exporter first saw its life."""

    prefill: float = 0.0  # seconds
    decode: float = 0.0  # seconds
    unattributed: float = 0.0  # seconds in which no token was booked in time, so that no phase can have them
    # in which no token was booked yet: the next tick that books some has them, else they are `unattributed`
    pending_seconds: float = 0.0


class Limiter(StrEnum):
    """What bounds a target's throughput now."""

    BANDWIDTH = "bandwidth"
    COMPUTE = "compute"
    KV_CAPACITY = "kv_capacity"
    BATCH_LIMIT = "batch_limit"
    POWER = "power"  # a cap on power or heat holds the clock down
    PREFILL_INTERFERENCE = "prefill_interference"
    ATTENTION = "attention"  # on the chip: KV that sequences share is looked at for each of them
    OVERHEAD = "overhead"
    STARVED = "starved"
    STALLED = "stalled"  # LLMServingStalled's condition
    TRANSFER = "transfer"  # requests wait for KV that is on its way from another engine
    BLOCKED = "blocked"  # they wait for something that the page does not name: a LoRA budget, a grammar, KV
    UNKNOWN = "unknown"


class Cap(Struct, frozen=True):
    """What has held the clock of a target's GPUs down over the window; means over passes and GPUs."""

    reason: str  # power or thermal
    share: float  # of the window
    sm_hertz: float  # clock of the multiprocessors
    sm_max_hertz: float  # that the cards can run at
    power_watts: float | None = None  # drawn by a board
    power_limit_watts: float | None = None  # in force for a board


class Verdict(Struct, frozen=True):
    """The limiter in force. It changes only when the evidence has said otherwise for a while."""

    state: Limiter  # the limiter in force
    candidate: Limiter  # what the evidence of this tick says
    candidate_since_monotonic_seconds: float  # since when it has said so in every tick
    # name of a number that the decision rests on -> its value; docs/internals-limiter.md has them
    evidence: Mapping[str, float] = field(default_factory=dict)
    # since when the evidence has said anything but `state`; None: it agrees
    doubted_since_monotonic_seconds: float | None = None
    cap: Cap | None = None  # what held the clock when `state` was decided on; None: that is not known
