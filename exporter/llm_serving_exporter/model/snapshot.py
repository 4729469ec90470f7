"""What a server's page and side endpoints say, engine-neutral: every field optional, base units, counters as the engine counted them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from llm_serving_exporter.model.numbers import Histogram
from llm_serving_exporter.model.record import Struct, field


class Absence(StrEnum):
    """Why a signal is not there: the closed set of values of the label `reason` of signal_available."""

    AVAILABLE = ""
    IDLE = "idle"
    WARMING_UP = "warming_up"
    NOT_EXPORTED = "not_exported"
    NOT_CONFIGURED = "not_configured"
    VERSION_UNKNOWN = "version_unknown"
    INVALID = "invalid_value"
    IMPLAUSIBLE = "implausible"
    DUPLICATE = "duplicate_series"
    INCONSISTENT = "inconsistent_page"
    STALE = "stale"
    NO_METRICS = "runtime_without_metrics"
    OTHER_ROLE = "other_role"
    INPUT_MISSING = "input_missing"
    BELOW_BUCKETS = "threshold_below_buckets"
    GPUS_UNKNOWN = "gpus_unknown"
    MODEL_UNKNOWN = "model_unknown"
    ARCHITECTURE_UNKNOWN = "architecture_unknown"
    PEAK_UNKNOWN = "peak_unknown"
    NOT_SOUND = "not_sound"
    NO_DECODE = "no_decode"
    NO_RIDGE = "no_ridge"
    NO_PERMISSION = "no_permission"
    TARGET_DOWN = "target_down"
    PRICES_UNUSABLE = "prices_unusable"
    NO_PRICE = "no_price"
    PRICE_AMBIGUOUS = "price_ambiguous"
    GPU_CLAIMED_TWICE = "gpu_claimed_twice"
    GPU_SHARED = "gpu_shared"
    LAYOUT_UNREAD = "layout_unread"


class Quality(StrEnum):
    """How far a signal can be trusted at an instant."""

    LIVE = "live"
    LAGGING = "lagging"  # booked when a request ends
    SLOW = "slow"  # refreshed every N seconds
    CLIPPED = "clipped"  # the quantile lies beyond the top or below the first bucket edge
    SUSPECT = "suspect"  # contradicts another reading
    APPROXIMATE = "approximate"  # derived from counters that are booked at different moments


class LimitSource(StrEnum):
    """How the limit of a batch is known, the surest first: the values of the label `source` of batch_limit_requests."""

    CONFIG = "config"
    PAGE = "page"
    SERVER_INFO = "server_info"  # a side endpoint: /server_info, /v1/loads, /props, /info
    POD = "pod"  # the arguments of its container, as Kubernetes has them
    COMMAND_LINE = "command_line"  # those of its process on this host
    OBSERVED = "observed"  # a level at which requests wait: at least so many


# what an engine has, and a front end of several under the label of one has not; the first also without that label
SHOWS_AN_ENGINE = ("requests_running", "decode_tokens_total", "prefill_tokens_total", "requests_waiting")


class EngineSnapshot(Struct, frozen=True):
    """Readings of one engine (data-parallel rank) of one model. None: not on the page, `Snapshot.absent` has the reason.

    Names equal the exported series without prefix; METRICS.md says what each means. Counters never reset here: they are
    the engine's, since its start.
    """

    model_name: str  # as served
    engine: str  # rank within the server; "": the page does not name it
    prompt_tokens_total: float | None = None  # as sent, those from the prefix cache or another engine included
    prefill_tokens_total: float | None = None  # prompt tokens really computed
    cached_prompt_tokens_total: float | None = None  # prompt tokens not computed, because their KV was there
    decode_tokens_total: float | None = None  # generated tokens, the first of each answer included
    prefix_cache_query_tokens_total: float | None = None  # tokens looked up in the prefix cache
    prefix_cache_hit_tokens_total: float | None = None  # tokens found there
    prefix_cache_queries: float | None = None  # in the engine's own unit, where that is not known to be tokens
    prefix_cache_hits: float | None = None  # in the same unit
    preemptions_total: float | None = None  # times that a running request lost its KV to others
    engine_steps_total: float | None = None  # forward passes, as far as the engine counts them
    decode_steps_total: float | None = None  # of an engine that decodes in passes of its own; None: any pass may decode
    speculative_draft_tokens_total: float | None = None  # proposed by the draft
    speculative_accepted_tokens_total: float | None = None  # of these, those that the model accepted
    requests_finished_total: Mapping[str, float] | None = None  # by reason
    requests_rejected_total: Mapping[str, float] | None = None  # refused at admission, by reason
    http_responses_total: Mapping[str, float] | None = None  # by class of status code, such as 5xx
    time_to_first_token_seconds: Histogram | None = None  # from a request's arrival
    # between two outputs of a request, of several tokens under speculation
    inter_token_latency_seconds: Histogram | None = None
    # mean of a request after its first token, one event a request
    time_per_output_token_seconds: Histogram | None = None
    e2e_request_latency_seconds: Histogram | None = None  # from arrival to the last token
    request_queue_time_seconds: Histogram | None = None  # from arrival until the request first ran
    request_prefill_time_seconds: Histogram | None = None  # from then to the first token
    request_decode_time_seconds: Histogram | None = None  # from the first to the last token
    request_prompt_tokens: Histogram | None = None  # prompt length of finished requests
    request_generation_tokens: Histogram | None = None  # output length of finished requests
    requests_running: float | None = None  # in the running batch now
    requests_waiting: float | None = None  # that have arrived and do not run yet
    requests_deferred: float | None = None  # of these, not because batch or KV cache are full
    kv_connector: float | None = None  # above 0: KV comes from another engine or another memory
    batch_limit_requests: float | None = None  # most that run at once; a lower bound where it was observed
    batch_limit_source: LimitSource | None = None  # how that is known; None: it is not, or its page says it
    kv_cache_usage_ratio: float | None = None  # share of the KV cache that live requests hold, 0-1
    state_cache_usage_ratio: float | None = None  # the same of the pool for recurrent state, where it is one of its own
    kv_cache_capacity_tokens: float | None = None  # that the whole KV cache can hold
    kv_used_tokens: float | None = None  # as the page counts them; None: no more than usage and capacity say
    context_limit_tokens: float | None = None  # longest context that the server accepts
    awake: float | None = None  # 1; 0: the engine was put to sleep
    kv_cache_dtype: str | None = None  # as the engine names it ("auto": the model's)
    state_dtype: str | None = None  # of recurrent state, likewise
    kv_block_tokens: float | None = None  # tokens of one block of the KV cache
    estimated_read_bytes_per_gpu: float | None = None  # from HBM since the engine's start, by its own arithmetic
    device_busy_seconds: float | None = None  # since the engine's start; on several GPUs the busiest one's
    estimated_flops_per_gpu: float | None = None  # since the engine's start, by its own arithmetic
    # with those of requests under way, where the counter is booked at their end; for rates only
    decode_tokens_live: float | None = None
    # without first tokens, where counted apart and not every answer has inter-token events
    decode_pass_tokens: float | None = None
    decode_context_tokens: float | None = None  # context of all sequences that decode now, together
    accepted_tokens_per_step: float | None = None  # of one sequence now, where inter-token events are one a token
    model_gpu_memory_bytes: float | None = None  # GPU memory that the runtime says it holds for the model
    role: str | None = None  # as the page has it, a value of Role

    @property
    def is_engine(self) -> bool:
        """Whether this is an engine, and not only what families without the engine's label are kept under.

        An embedding server need not say what runs, and does not decode: then its prefill or its queue shows it.
        """
        if self.requests_running is not None:
            return True
        return self.engine != "" and any(getattr(self, name) is not None for name in SHOWS_AN_ENGINE)


COUNTER_FIELDS = (
    "prompt_tokens_total",
    "prefill_tokens_total",
    "cached_prompt_tokens_total",
    "decode_tokens_total",
    "prefix_cache_query_tokens_total",
    "prefix_cache_hit_tokens_total",
    "preemptions_total",
    "engine_steps_total",
    "speculative_draft_tokens_total",
    "speculative_accepted_tokens_total",
)
# counters that figures are worked out from and that are not published under a name of their own
HIDDEN_COUNTER_FIELDS = (
    "prefix_cache_queries",
    "prefix_cache_hits",
    "decode_pass_tokens",
    "decode_steps_total",
    "device_busy_seconds",
    "estimated_read_bytes_per_gpu",
    "estimated_flops_per_gpu",
)
LABELLED_COUNTER_FIELDS = {
    "requests_finished_total": "reason",
    "requests_rejected_total": "reason",
    "http_responses_total": "code_class",
}
HISTOGRAM_FIELDS = tuple(name for name, kind in EngineSnapshot.__annotations__.items() if kind == "Histogram | None")
# counters that come with any request that is served. The others do not tell: an engine may have its prefix cache's counters from the start,
# and refusals and HTTP answers are counted of requests that came to nothing
WORK_FIELDS = frozenset(
    {
        "prompt_tokens_total", "prefill_tokens_total", "decode_tokens_total", "decode_pass_tokens", "engine_steps_total",
        "requests_finished_total", *HISTOGRAM_FIELDS,
    }
)  # fmt: skip
GAUGE_FIELDS = (
    "requests_running",
    "requests_waiting",
    "batch_limit_requests",
    "kv_cache_usage_ratio",
    "kv_cache_capacity_tokens",
    "context_limit_tokens",
    "model_gpu_memory_bytes",
)
# all that has a series of its own
EXPORTED_FIELDS = (*COUNTER_FIELDS, *LABELLED_COUNTER_FIELDS, *HISTOGRAM_FIELDS, *GAUGE_FIELDS)


# of one counter: model_name, engine, field, and the key of a labelled field, else ""
CounterKey = tuple[str, str, str, str]


class LeftOut(NamedTuple):
    """A value that cannot be true, so that it is nowhere else."""

    model_name: str
    engine: str
    name: str  # the field of the page, or the derived series without prefix
    what: str  # is wrong with it, for a person


class Snapshot(Struct, frozen=True):
    """One page, normalised."""

    engines: tuple[EngineSnapshot, ...]  # ordered by (model_name, engine)
    runtime: str  # name of the runtime's table
    unix_seconds: float  # when the page came, for people
    monotonic_seconds: float  # the same instant for elapsed time, on a clock that never steps
    process_start_unix_seconds: float | None = None  # of the server, as the page says it
    absent: Mapping[str, Absence] = field(default_factory=dict)  # field that no engine has -> why
    quality: Mapping[str, Quality] = field(default_factory=dict)  # field that is not live -> how far it can be trusted
    # absent field -> the label in which its series differ, unknown to the runtime's table
    foreign_labels: Mapping[str, str] = field(default_factory=dict)
    unmapped_families: tuple[str, ...] = ()  # families of this runtime that no row of its table reads and no list knows
    may_fall: frozenset[str] = frozenset()  # counters that are a difference of two, and may dip without a restart
    freezes: frozenset[str] = frozenset()  # fields that the engine updates only while requests end
    decode_only: frozenset[str] = frozenset()  # fields that the engine updates only as it decodes
    # field -> seconds between the engine's updates, where it is not at once
    refreshed_every: Mapping[str, float] = field(default_factory=dict)
    significant_digits: int | None = None  # that the page's numbers are printed with; None: all of them
    # field -> index of the row of the runtime's table that read it
    sources: Mapping[str, int] = field(default_factory=dict)
    errors_counted: bool = True  # the page tells requests that ended in an error from others, or will
    # fields that the page lacks because nothing of theirs has happened yet: 0 until then
    still_zero: frozenset[str] = frozenset()
    # of these and of families without a sample, those that this version certainly has
    awaited: frozenset[str] = frozenset()
    never_worked: bool = False  # the server has worked on nothing since its start: no counter of its work is there
    left_out: tuple[LeftOut, ...] = ()  # their fields are absent
    # (model_name, engine, field) of counters that fell without a restart; absent here
    fallen: frozenset[tuple[str, str, str]] = frozenset()

    @property
    def shows_no_engine_yet(self) -> bool:
        """Whether a page of one engine has yet to show it: what would comes with the first request."""
        return len(self.engines) == 1 and any(self.absent.get(name) is Absence.IDLE for name in SHOWS_AN_ENGINE)

    @property
    def sleeping(self) -> bool:
        """Whether every engine that says so has been put to sleep."""
        states = [engine.awake for engine in self.engines if engine.awake is not None]
        return bool(states) and not any(states)


class ServerFacts(Struct, frozen=True):
    """What a server's side endpoints said when it started. None or empty: no endpoint says it."""

    version: str | None = None  # as the engine writes it
    context_limit_tokens: Mapping[str, int] = field(default_factory=dict)  # by model name
    batch_limit_requests: int | None = None  # most requests that the engine runs at once
    tensor_parallel_size: int | None = None  # GPUs that share each layer
    pipeline_parallel_size: int | None = None  # stages that the layers are split into
    data_parallel_size: int | None = None  # engines (ranks) of the server
    decode_context_parallel_size: int | None = None  # parts that a sequence's KV is cut into among those GPUs
    # parts that prompts, and with them their KV, are cut into beside those
    prefill_context_parallel_size: int | None = None
    # above one, of ways to spread work that nothing here reads: then the layout is not known
    unread_parallel_sizes: tuple[str, ...] = ()
    all_ranks_shown: bool = False  # its one page has all ranks, also those that have not worked yet
    experts_spread: bool | None = None  # the data-parallel ranks share one set of routed experts
    model_roots: Mapping[str, str] = field(default_factory=dict)  # by model name: what was loaded, a path or a hub id
    dtype: str | None = None  # of what is not quantised, as the engine writes it ("auto": the checkpoint's)
    quantization: str | None = None  # the engine's own word for the weights' format; "": it says that there is none
    kv_cache_dtype: str | None = None  # as the engine writes it ("auto": the model's)
    state_dtype: str | None = None  # of recurrent state (Mamba, gated DeltaNet), as the engine writes it
    batched_tokens_limit: int | None = None  # most tokens of a step, of all its sequences together
    speculation: bool | None = None
    model_names: tuple[str, ...] = ()  # that are served, for a page that names none
    weight_bytes: int | None = None  # as stored
    gpu_name: str | None = None  # of the accelerators of one engine
    gpu_count: int | None = None  # how many accelerators one engine has
