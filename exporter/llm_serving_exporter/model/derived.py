"""What is worked out from a window: every field optional, None with its reason in `signals`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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


class Latency(Struct, frozen=True):
    """Events of one latency inside the window."""

    events: float
    # None where the engine's sum is no use
    mean_seconds: float | None
    # by rank, 0 to 1
    quantiles: Mapping[float, Quantile]
    # edges of the bucket in which all quantiles lie that so many events have; None: of several, or of one without two edges
    bucket: tuple[float, float] | None = None


class SloCount(Struct, frozen=True):
    """Good and bad events of one objective since the engine started."""

    # events that kept it
    good: float
    # events that did not
    bad: float
    # the threshold as configured; None for errors
    configured_seconds: float | None = None
    # the bucket edge that divides good from bad, the largest not above the configured threshold; None for errors
    counted_seconds: float | None = None


class ServerErrors(Struct, frozen=True):
    """HTTP 5xx answers that nothing else accounts for, counted by the exporter from 0 since it first saw the engine's life."""

    # answers that neither a rejection nor a finish by error covers
    uncovered_total: float
    # what was covered before its answer was booked
    spare: float
    # the engine's count of 5xx answers at this reading
    answered: float
    # the engine's count of rejections and of finishes by error at this reading
    covered: float


class Tail(Struct, frozen=True):
    """The long-context tail of the last finished requests, from the histograms of their lengths. None, or {}: not known."""

    # how many requests
    observed: float
    # share of them whose prompt is longer than the top finite bucket edge
    beyond_top_bucket_ratio: float | None = None
    # p99 prompt over mean prompt
    amplification_ratio: float | None = None
    # share of all tokens of context that the requests with the longest 1 % of prompts have
    kv_share_ratio: Range | None = None
    # requests of p99 prompt and mean output that the KV cache holds, by bound
    requests_fit: Mapping[str, float] = field(default_factory=dict)
    # the p99 prompt in tokens
    prompt_p99: Quantile | None = None
    # the mean prompt in tokens
    prompt_mean: float | None = None
    # what the KV cache holds, as it was used here
    capacity_tokens: float | None = None
    # the longest context, as it was used here
    context_limit_tokens: float | None = None


class PublishedSeries(Protocol):
    """How a row's value becomes the series of one metric, as far as the page needs it."""

    @property
    def metric(self) -> Any:
        """The catalogue's declaration."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Values of its own labels that are the same for the whole row."""

    @property
    def part(self) -> Callable[[Any], Any] | None:
        """The part of the row's value that is published; None: the value itself."""

    def samples(self, value: Any) -> dict[tuple[str, ...], float]:
        """Values by those of the metric's labels beyond every serving series'."""


class Publishes(Protocol):
    """A row of the signal table, as far as the page needs it."""

    @property
    def series(self) -> tuple[PublishedSeries, ...]:
        """The series that its value becomes."""

    def publish(self, value: Any) -> Iterable[tuple[str, dict[tuple[str, ...], float]]]:
        """The row's series: a metric's name without prefix, and values by those of its labels beyond every serving series'."""


class EngineDerived(Struct, frozen=True):
    """Derived figures of one engine over the window. None, or {}: absent, for the reason in `Derived.signals`.

    The fields are what pages, the limiter and the cost meter read by name; `figures` has all of it. Phases are "prefill" and "decode".
    """

    model_name: str
    # the engine's label, its data-parallel rank
    engine: str
    # tokens/s by phase
    phase_tokens_per_second: Mapping[str, float] = field(default_factory=dict)
    # the same for each GPU of the engine
    phase_tokens_per_second_per_gpu: Mapping[str, float] = field(default_factory=dict)
    # decoding sequences in a step
    batch_size_mean: float | None = None
    # running requests over the engine's limit, 0 to 1
    batch_utilization_ratio: float | None = None
    # tokens that live requests hold now
    kv_cache_used_tokens: float | None = None
    # tokens that they leave free now
    kv_cache_free_tokens: float | None = None
    # tokens found over tokens looked up
    prefix_cache_hit_ratio: float | None = None
    # tokens that attention looks at for each running request
    context_tokens_mean: float | None = None
    # tokens of the KV cache held for each of them, a shared prefix once
    kv_cache_tokens_per_request: float | None = None
    preemptions_per_second: float | None = None
    # by name, as in derive/latency.py
    latency: Mapping[str, Latency] = field(default_factory=dict)
    # since the engine's start, by name, as in derive/slo.py
    slo: Mapping[str, SloCount] = field(default_factory=dict)
    # for the next tick and the errors SLO
    server_errors: ServerErrors | None = None
    # how near the engine is to what its GPUs could do
    roofline: Roofline = field(default_factory=Roofline)
    # busy time by phase
    busy: BusySeconds | None = None
    # what it did since the page before the last; None where there is no engine to do anything
    tick: TickWork | None = None
    # seconds that a token of each phase needs at the ceilings, at a fixed batch and context
    phase_reference_seconds_per_token: Mapping[str, float] = field(default_factory=dict)
    # bytes by part: weights, kv, other
    gpu_memory_bytes: Mapping[str, float] = field(default_factory=dict)
    tail: Tail | None = None
    # every figure that the role has, by its row of the signal table
    figures: Mapping[Any, Any] = field(default_factory=dict)

    @property
    def series(self) -> dict[str, dict[tuple[str, ...], float]]:
        """What is published: by metric's name without prefix, then by the values of its labels beyond those of every serving series.

        Put together when somebody asks, at a scrape: most ticks are never scraped.
        """
        found: dict[str, dict[tuple[str, ...], float]] = {}
        for row, value in self.figures.items():
            for metric, samples in row.publish(value):
                if metric in found:
                    found[metric].update(samples)
                else:
                    found[metric] = samples
        return found


class Derived(Struct, frozen=True):
    """Everything derived for one target at one instant."""

    # in the order of the snapshot
    engines: tuple[EngineDerived, ...]
    # the longest span that a signal really covers
    window_seconds: float
    # why each signal, passed through or derived, is absent; AVAILABLE where it is there
    signals: Mapping[str, Absence]
    # of the signals that are less than live
    quality: Mapping[str, Quality]
    # what limits the target; None for a front end
    verdict: Verdict | None = None
    # the likely cause of each suspect signal
    causes: Mapping[str, Cause] = field(default_factory=dict)
    # the span that live signals really cover; None: the longest
    live_window_seconds: float | None = None
    # figures that cannot be true; their signals are absent
    left_out: tuple[LeftOut, ...] = ()

    @property
    def kept(self) -> tuple[EngineDerived, ...]:
        """As of `Derivation`."""
        return self.engines

    @property
    def kept_left_out(self) -> tuple[LeftOut, ...]:
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
    def kept(self) -> tuple[EngineDerived, ...]:
        """The engines, as far as the next tick and the cost meter read them: without figures that only pages have."""
        ...

    @property
    def verdict(self) -> Verdict | None:
        """As of `Derived`."""
        ...

    @property
    def window_seconds(self) -> float:
        """As of `Derived`."""
        ...

    @property
    def kept_left_out(self) -> tuple[LeftOut, ...]:
        """As `Derived.left_out`, of `kept` alone: the same whether anybody asks for the whole or not."""
        ...

    @property
    def asked_left_out(self) -> tuple[LeftOut, ...]:
        """As `Derived.left_out`, as far as anybody has asked for the whole."""
        ...

    def why_absent(self, field_name: str) -> Absence:
        """Why a field of the page is absent, as `Derived.signals` has it; AVAILABLE where it is there."""
        ...

    def whole(self) -> Derived:
        """Everything. Worked out at the first call; threads may share it."""
        ...
