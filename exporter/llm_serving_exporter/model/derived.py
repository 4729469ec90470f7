"""What is worked out from a window: every field optional, None with its reason in `signals`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Protocol

from llm_serving_exporter.model.cost import TickWork
from llm_serving_exporter.model.numbers import Quantile
from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.model.snapshot import Absence, LeftOut, Quality


class BandwidthSource(StrEnum):
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

    lower: float
    expected: float
    upper: float


class Roofline(Struct, frozen=True):
    """One engine over the window. Bytes and FLOPs are of all its GPUs together. None or an absent key: an input is not known."""

    achieved: Mapping[str, float] = field(default_factory=dict)  # bytes/s that were moved, by BandwidthSource
    # `achieved` over `bandwidth_ceiling`, unclamped: above 1 an input is wrong
    ratio: Mapping[str, float] = field(default_factory=dict)
    bandwidth_ceiling: float | None = None  # peak bytes/s
    model_ratio_range: Range | None = None  # of `ratio` of source "model", as KV in use, activations and experts do
    activation_ratio: float | None = None  # of `ratio` of source "model"; None where a measured one is believed
    # KV looked at, a shared prefix for each sequence, over KV read once; None: none shared
    attended_kv_ratio: float | None = None
    # tokens/s at one token per sequence and step, at the window's batch and context
    decode_ceiling: float | None = None
    decode_ceiling_upper: float | None = None  # the same where what sequences share is read once, and again in no time
    decode_ratio: float | None = None  # sequence-steps/s over `decode_ceiling`
    compute_ratio: float | None = None  # time that the window's FLOPs need at the dense peak, over elapsed time (MFU)
    flops_per_second: float | None = None
    intensity_flops_per_byte: float | None = None  # both by our arithmetic
    ridge_flops_per_byte: float | None = None  # from which decode's mix of precisions is bound by compute
    batch_ridge: float | None = None  # from which decode is bound by compute at the window's context; None also: never
    weights_ridge: float | None = None  # the same for the weights' matrices alone, without context
    steps_per_second: float | None = None  # with or without prefill in them
    steps_counted: bool = True  # False: from the mean inter-token latency, a lower bound
    batch: float | None = None  # mean number of sequences that decode in a step
    context: Range | None = None  # tokens that a decode step reads per sequence
    context_source: str = ""  # a constant of derive.steps; "": not known
    # of a mean step, by part: weights, kv_read, kv_written, activations
    step_bytes: Mapping[str, float] = field(default_factory=dict)
    experts: Range | None = None  # distinct routed ones that a mean step touches in a layer; None also: a dense model
    tokens_per_sequence_step: float | None = None  # of decode; above 1 under speculation
    step_floor_seconds: float | None = None  # of a decode step, at `decode_ceiling`
    # tokens/s of each phase alone, decode at its largest batch
    phase_ceiling: Mapping[str, float] = field(default_factory=dict)
    # share of busy time by phase, by what its work needs at its ceiling
    phase_busy_ratio: Mapping[str, float] = field(default_factory=dict)
    causes: Mapping[str, Cause] = field(default_factory=dict)  # by signal that is wrong


class BusySeconds(Struct, frozen=True):
    """Busy time of one engine since the exporter first saw its life."""

    prefill: float = 0.0
    decode: float = 0.0
    unattributed: float = 0.0  # no token was booked in time, so that no phase can have them
    pending_seconds: float = 0.0  # the next tick that books tokens has them, else `unattributed`


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
    sm_hertz: float  # of the multiprocessors
    sm_max_hertz: float  # that the cards can run at
    power_watts: float | None = None  # drawn by a board
    power_limit_watts: float | None = None  # in force for a board


class Verdict(Struct, frozen=True):
    """The limiter in force. It changes only when the evidence has said otherwise for a while."""

    state: Limiter  # in force
    candidate: Limiter  # what the evidence of this tick says
    candidate_since_monotonic_seconds: float
    # numbers that the decision rests on, by name: docs/internals-limiter.md
    evidence: Mapping[str, float] = field(default_factory=dict)
    # since the evidence says anything but `state`; None: it agrees
    doubted_since_monotonic_seconds: float | None = None
    cap: Cap | None = None  # on the clock when `state` was decided on; None: not known


class Latency(Struct, frozen=True):
    """Events of one latency inside the window."""

    events: float
    mean_seconds: float | None  # None where the engine's sum is no use
    quantiles: Mapping[float, Quantile]  # by rank, 0 to 1
    # the one in which all quantiles lie that so many events have; None: several, or one without two edges
    bucket: tuple[float, float] | None = None


class SloCount(Struct, frozen=True):
    """Good and bad events of one objective since the engine started."""

    good: float
    bad: float
    configured_seconds: float | None = None  # None for errors
    # the largest bucket edge not above it, which divides good from bad; None for errors
    counted_seconds: float | None = None


class ServerErrors(Struct, frozen=True):
    """HTTP 5xx answers that nothing else accounts for, counted by the exporter from 0 since it first saw the engine's life."""

    uncovered_total: float  # answers that neither a rejection nor a finish by error covers
    spare: float  # covered before its answer was booked
    answered: float  # the engine's count of 5xx answers at this reading
    covered: float  # its count of rejections and of finishes by error


class Tail(Struct, frozen=True):
    """The long-context tail of the last finished requests, from the histograms of their lengths. None, or {}: not known."""

    observed: float  # requests
    beyond_top_bucket_ratio: float | None = None  # whose prompt is longer than the top finite bucket edge
    amplification_ratio: float | None = None  # p99 prompt over mean prompt
    # of all tokens of context, those of the requests with the longest 1 % of prompts
    kv_share_ratio: Range | None = None
    # of p99 prompt and mean output in the KV cache, by bound
    requests_fit: Mapping[str, float] = field(default_factory=dict)
    prompt_p99: Quantile | None = None  # tokens
    prompt_mean: float | None = None  # tokens
    capacity_tokens: float | None = None  # of the KV cache, as it was used here
    context_limit_tokens: float | None = None  # as it was used here


class EngineDerived(Struct, frozen=True):
    """Derived figures of one engine over the window. None, or {}: absent, for the reason in `Derived.signals`.

    The fields are what pages, the limiter and the cost meter read by name; `figures` has all of it. Phases are "prefill" and "decode".
    """

    model_name: str
    engine: str  # the label: its data-parallel rank
    phase_tokens_per_second: Mapping[str, float] = field(default_factory=dict)  # by phase
    phase_tokens_per_second_per_gpu: Mapping[str, float] = field(default_factory=dict)  # by phase, of the engine's GPUs
    batch_size_mean: float | None = None  # decoding sequences in a step
    batch_utilization_ratio: float | None = None  # running requests over the engine's limit
    kv_cache_used_tokens: float | None = None  # by live requests now
    kv_cache_free_tokens: float | None = None
    prefix_cache_hit_ratio: float | None = None  # of tokens looked up
    context_tokens_mean: float | None = None  # that attention looks at for each running request
    kv_cache_tokens_per_request: float | None = None  # held for each, a shared prefix once
    preemptions_per_second: float | None = None
    latency: Mapping[str, Latency] = field(default_factory=dict)  # by name, as in derive/slo.py
    slo: Mapping[str, SloCount] = field(default_factory=dict)  # since the engine's start, by name, as in derive/slo.py
    server_errors: ServerErrors | None = None  # for the next tick and the errors SLO
    roofline: Roofline = field(default_factory=Roofline)
    busy: BusySeconds | None = None
    tick: TickWork | None = None  # since the page before the last; None: there is no engine to do anything
    # at the ceilings, at a fixed batch and context
    phase_reference_seconds_per_token: Mapping[str, float] = field(default_factory=dict)
    gpu_memory_bytes: Mapping[str, float] = field(default_factory=dict)  # by part: weights, kv, other
    tail: Tail | None = None
    figures: Mapping[Any, Any] = field(default_factory=dict)  # all that the role has, by row of the signal table

    @property
    def series(self) -> dict[str, dict[tuple[str, ...], float]]:
        """What is published: by metric's name without prefix, then by the values of its labels beyond those of every serving series.

        Put together when somebody asks, at a scrape: most ticks are never scraped.
        """
        series: dict[str, dict[tuple[str, ...], float]] = {}
        for row, value in self.figures.items():
            for metric, samples in row.publish(value):
                if metric in series:
                    series[metric].update(samples)
                else:
                    series[metric] = samples
        return series


class Derived(Struct, frozen=True):
    """Everything derived for one target at one instant."""

    engines: tuple[EngineDerived, ...]  # in the order of the snapshot
    window_seconds: float  # the longest span that a signal really covers
    signals: Mapping[str, Absence]  # of the page or derived; AVAILABLE: it is there
    quality: Mapping[str, Quality]  # of the signals that are less than live
    verdict: Verdict | None = None  # None for a front end
    causes: Mapping[str, Cause] = field(default_factory=dict)  # of suspect signals
    live_window_seconds: float | None = None  # the span that live signals really cover; None: the longest
    left_out: tuple[LeftOut, ...] = ()  # their signals are absent

    @property
    def tick_engines(self) -> tuple[EngineDerived, ...]:
        """As of `Derivation`."""
        return self.engines

    @property
    def tick_left_out(self) -> tuple[LeftOut, ...]:
        """As of `Derivation`."""
        return self.left_out

    @property
    def asked_left_out(self) -> tuple[LeftOut, ...]:
        """As of `Derivation`."""
        return self.left_out

    def why_absent(self, field_name: str) -> Absence:
        """As of `Derivation`."""
        return self.signals.get(field_name, Absence.AVAILABLE)

    def whole(self) -> Derived:
        """As of `Derivation`."""
        return self


class Derivation(Protocol):
    """What is derived at a tick: what is needed of every tick, and all of it for whoever asks. `Derived` is one that knows all."""

    @property
    def tick_engines(self) -> tuple[EngineDerived, ...]:
        """The engines, as far as the next tick and the cost meter read them: without figures that only pages have."""

    @property
    def verdict(self) -> Verdict | None:
        """As of `Derived`."""

    @property
    def window_seconds(self) -> float:
        """As of `Derived`."""

    @property
    def tick_left_out(self) -> tuple[LeftOut, ...]:
        """As `Derived.left_out`, of `tick_engines` alone: the same whether anybody asks for the whole or not."""

    @property
    def asked_left_out(self) -> tuple[LeftOut, ...]:
        """As `Derived.left_out`, as far as anybody has asked for the whole."""

    def why_absent(self, field_name: str) -> Absence:
        """Why a field of the page is absent, as `Derived.signals` has it; AVAILABLE where it is there."""

    def whole(self) -> Derived:
        """Everything. Worked out at the first call; threads may share it."""
