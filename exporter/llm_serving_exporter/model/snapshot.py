"""What one page says, engine-neutral: every field optional, base units, counters as the engine counted them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from llm_serving_exporter.model.histogram import Histogram


class Absence(StrEnum):
    """Why a signal is not there: the closed set of values of the label `reason` of signal_available."""

    AVAILABLE = ""
    IDLE = "idle"
    WARMING_UP = "warming_up"
    NOT_EXPORTED = "not_exported"
    NOT_CONFIGURED = "not_configured"
    VERSION_UNKNOWN = "version_unknown"
    INVALID = "invalid_value"
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
    NO_PRICE = "no_price"
    PRICE_AMBIGUOUS = "price_ambiguous"
    GPU_CLAIMED_TWICE = "gpu_claimed_twice"


class Quality(StrEnum):
    """How far a signal can be trusted at an instant."""

    LIVE = "live"
    LAGGING = "lagging"  # booked when a request ends
    SLOW = "slow"  # refreshed every N seconds
    CLIPPED = "clipped"  # the quantile lies beyond the top or below the first bucket edge
    SUSPECT = "suspect"  # contradicts another reading
    APPROXIMATE = "approximate"  # derived from counters that are booked at different moments


# what an engine has, and a front end of several under the label of one has not; the first also without that label
SHOWS_AN_ENGINE = ("requests_running", "decode_tokens_total", "prefill_tokens_total", "requests_waiting")


@dataclass(frozen=True, slots=True)
class EngineSnapshot:
    """Readings of one engine (data-parallel rank) of one model.

    Names equal the exported series without prefix; METRICS.md says what each means. Counters never reset here: they are
    the engine's. `prefix_cache_queries` and `prefix_cache_hits` are the same two counters in the engine's own unit,
    for the ratio where that unit is not known to be tokens. `awake` is 1, or 0 for an engine put to sleep.
    `kv_cache_dtype` and `kv_block_tokens`: the KV cache's dtype as the engine names it ("auto": the model's) and its block size.
    `estimated_read_bytes_per_gpu`, `estimated_flops_per_gpu`: the engine's own arithmetic since its start, of one GPU.
    `decode_tokens_live`: `decode_tokens_total` and what requests under way have generated, where the counter is booked at their end;
    for rates only. `decode_pass_tokens`: tokens that decode passes made, without the first of each answer, where those are counted apart
    and inter-token events are not observed for every answer. `decode_context_tokens`: context of all sequences that decode now.
    `accepted_tokens_per_step`: tokens that one sequence's step yields now, of an engine whose inter-token events are one a token.
    `role`: as the page has it (`Role`).
    """

    model_name: str
    engine: str
    prompt_tokens_total: float | None = None
    prefill_tokens_total: float | None = None
    cached_prompt_tokens_total: float | None = None
    decode_tokens_total: float | None = None
    prefix_cache_query_tokens_total: float | None = None
    prefix_cache_hit_tokens_total: float | None = None
    prefix_cache_queries: float | None = None
    prefix_cache_hits: float | None = None
    preemptions_total: float | None = None
    engine_steps_total: float | None = None
    speculative_draft_tokens_total: float | None = None
    speculative_accepted_tokens_total: float | None = None
    requests_finished_total: Mapping[str, float] | None = None
    requests_rejected_total: Mapping[str, float] | None = None
    http_responses_total: Mapping[str, float] | None = None
    time_to_first_token_seconds: Histogram | None = None
    inter_token_latency_seconds: Histogram | None = None
    time_per_output_token_seconds: Histogram | None = None
    e2e_request_latency_seconds: Histogram | None = None
    request_queue_time_seconds: Histogram | None = None
    request_prefill_time_seconds: Histogram | None = None
    request_decode_time_seconds: Histogram | None = None
    request_prompt_tokens: Histogram | None = None
    request_generation_tokens: Histogram | None = None
    requests_running: float | None = None
    requests_waiting: float | None = None
    batch_limit_requests: float | None = None
    kv_cache_usage_ratio: float | None = None
    kv_cache_capacity_tokens: float | None = None
    context_limit_tokens: float | None = None
    awake: float | None = None
    kv_cache_dtype: str | None = None
    kv_block_tokens: float | None = None
    estimated_read_bytes_per_gpu: float | None = None
    estimated_flops_per_gpu: float | None = None
    decode_tokens_live: float | None = None
    decode_pass_tokens: float | None = None
    decode_context_tokens: float | None = None
    accepted_tokens_per_step: float | None = None
    model_gpu_memory_bytes: float | None = None
    role: str | None = None

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
LABELLED_COUNTER_FIELDS = {
    "requests_finished_total": "reason",
    "requests_rejected_total": "reason",
    "http_responses_total": "code_class",
}
HISTOGRAM_FIELDS = (
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "time_per_output_token_seconds",
    "e2e_request_latency_seconds",
    "request_queue_time_seconds",
    "request_prefill_time_seconds",
    "request_decode_time_seconds",
    "request_prompt_tokens",
    "request_generation_tokens",
)
GAUGE_FIELDS = (
    "requests_running",
    "requests_waiting",
    "batch_limit_requests",
    "kv_cache_usage_ratio",
    "kv_cache_capacity_tokens",
    "context_limit_tokens",
    "model_gpu_memory_bytes",
)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One page, normalised.

    `engines` is ordered by (model_name, engine). `absent` says for each field that no engine has why; `quality` holds
    what is not live. `process_start_unix_seconds` is the page's own, None where it has none. `monotonic_seconds` is for
    elapsed time, `unix_seconds` for people. `unmapped_families` are this runtime's families that no row reads and no list knows.
    `may_fall` names counters that are a difference of two and may dip without a restart. `freezes`: fields that the engine brings up to
    date only while requests end; `refresh_seconds`: how often it does so with the slowest of its slow ones, 0 = at once.
    `significant_digits`: that the page's numbers are printed with, None = all of them. `sources`: field -> the row of the runtime's
    table that it was read by. `errors_counted`: whether the page tells requests that ended in an error from others, or may once there
    are some. `unborn`: fields that the page lacks because nothing of theirs has happened yet: 0 until then. `awaited`: those of them, and
    of families without a sample, that this version of the engine certainly has.
    """

    engines: tuple[EngineSnapshot, ...]
    runtime: str
    unix_seconds: float
    monotonic_seconds: float
    process_start_unix_seconds: float | None = None
    absent: Mapping[str, Absence] = field(default_factory=dict)
    quality: Mapping[str, Quality] = field(default_factory=dict)
    unmapped_families: tuple[str, ...] = ()
    may_fall: frozenset[str] = frozenset()
    freezes: frozenset[str] = frozenset()
    refresh_seconds: float = 0.0
    significant_digits: int | None = None
    sources: Mapping[str, int] = field(default_factory=dict)
    errors_counted: bool = True
    unborn: frozenset[str] = frozenset()
    awaited: frozenset[str] = frozenset()

    @property
    def rests(self) -> bool:
        """Whether a page of one engine has yet to show it: what would comes with the first request."""
        return len(self.engines) == 1 and any(self.absent.get(name) is Absence.IDLE for name in SHOWS_AN_ENGINE)

    @property
    def sleeping(self) -> bool:
        """Whether every engine that says so has been put to sleep."""
        states = [engine.awake for engine in self.engines if engine.awake is not None]
        return bool(states) and not any(states)
