"""Series that the exporter works out over its window, for a glance; longer ranges are recording rules over counters."""

from __future__ import annotations

from functools import partial

from llm_serving_exporter.catalogue.serving import LONGEST_SECONDS, LONGEST_TOKENS
from llm_serving_exporter.catalogue.spec import (
    MOST_RATIO,
    SERVING_LABELS,
    WORKED_OUT,
    Group,
    Kind,
    Metric,
    Unit,
    declare_figure,
    list_declared,
)

_derived = partial(declare_figure, Group.DERIVED)
PHASE_TOKENS_PER_SECOND = _derived(
    "phase_tokens_per_second", Unit.TOKENS_PER_SECOND, "Tokens per second by phase over the window.",
    "increase of prefill_tokens_total, decode_tokens_total (including the tokens of running requests where the engine reports them) / seconds covered",
    "phase",
)  # fmt: skip
PHASE_TOKENS_PER_SECOND_PER_GPU = _derived(
    "phase_tokens_per_second_per_gpu", Unit.TOKENS_PER_SECOND, "Tokens per second by phase over the window, per GPU of the engine.",
    "phase_tokens_per_second / (GPUs of the target / engines)", "phase",
)  # fmt: skip
BATCH_SIZE_MEAN = _derived(
    "batch_size_mean", Unit.COUNT, "Mean number of decoding sequences in an engine step over the window.",
    "inter-token events / engine steps; events are divided by the accepted length where the engine counts one a token under speculation, and are "
    "decode tokens less first and accepted ones where it counts none",
)  # fmt: skip
BATCH_UTILIZATION_RATIO = _derived(
    "batch_utilization_ratio",
    Unit.RATIO,
    "Mean share of the engine's limit of running requests in use over the window, 0 to 1.",
    "mean of requests_running / batch_limit_requests",
    most=MOST_RATIO,  # more than all where the limit is configured too low
)
KV_CACHE_USED_TOKENS = _derived(
    "kv_cache_used_tokens", Unit.TOKENS, "KV cache tokens that running requests hold now, in whole blocks.",
    "as the engine counts them; else kv_cache_usage_ratio x kv_cache_capacity_tokens",
)  # fmt: skip
KV_CACHE_FREE_TOKENS = _derived(
    "kv_cache_free_tokens", Unit.TOKENS, "KV cache tokens that running requests leave free now, including evictable cached prefixes.",
    "kv_cache_capacity_tokens - kv_cache_used_tokens",
)  # fmt: skip
PREFIX_CACHE_HIT_RATIO = _derived(
    "prefix_cache_hit_ratio", Unit.RATIO, "Share of looked-up tokens that were found in the prefix cache over the window, 0 to 1.",
    "increase of hits / increase of queries, in the engine's unit", most=MOST_RATIO, suspect_above=1.0,
)  # fmt: skip
CONTEXT_TOKENS_MEAN = _derived(
    "context_tokens_mean", Unit.TOKENS,
    "Mean number of tokens that attention looks at per running request over the window; a shared prefix counts for each of them.",
    "as the engine reports it for the sequences that decode; else kv_cache_tokens_per_request, or where prompts hit the prefix cache the lengths of the requests that finished, or the prompts that were begun, if these are more",
)  # fmt: skip
KV_CACHE_TOKENS_PER_REQUEST = _derived(
    "kv_cache_tokens_per_request", Unit.TOKENS,
    "Mean KV cache tokens held per running request over the window; a shared prefix counts once.",
    "sum of kv_cache_used_tokens / sum of requests_running, over the readings with running requests",
)  # fmt: skip
STATE_CACHE_USAGE_RATIO = _derived(
    "state_cache_usage_ratio", Unit.RATIO,
    "Share of the pool for recurrent state that running requests hold, 0 to 1, where the engine keeps one beside the KV cache.",
    "as the engine reports it", most=1.0,
)  # fmt: skip
PREEMPTIONS_PER_SECOND = _derived(
    "preemptions_per_second", Unit.PER_SECOND, "Preemptions per second over the window.", "increase of preemptions_total / seconds covered",
)  # fmt: skip
WINDOW_LATENCY_SECONDS = _derived(
    "window_latency_seconds", Unit.SECONDS,
    "Quantile of a latency over the window by rank (p50, p90, p95, p99). If signal_quality is clipped, the true value is at least the top bucket edge or at most the bottom one.",
    "linear interpolation in the engine's buckets, as histogram_quantile does; in the first bucket, its edge", "latency", "rank",
    most=LONGEST_SECONDS,
)  # fmt: skip

_LAST_REQUESTS = "over the last hour of finished requests, or the last 1,000 where that is longer"
LONG_CONTEXT_REQUESTS_OBSERVED = _derived(
    "long_context_requests_observed", Unit.COUNT, "Number of requests that the other long_context series are computed from.",
    f"increase of the count of request_prompt_tokens {_LAST_REQUESTS}, computed once a minute; across restarts of the engine; from the "
    "exporter's start if the engine had already counted more than 1,000 and had been running for more than an hour",
)  # fmt: skip
LONG_CONTEXT_KV_SHARE = _derived(
    "long_context_kv_share_ratio", Unit.RATIO,
    "Estimated share of all context tokens (prompt and output, as held in the KV cache at the end of a request) that belongs to the requests with the longest 1 % of "
    "prompts, 0 to 1. How long a request holds its KV cache is not taken into account.",
    "lower and upper bound: those prompts at the edges of their buckets as far as the exact sum allows, with the shortest and the longest outputs that "
    "there are; expected: lengths spread evenly in a bucket, outputs of mean length", "bound",
)  # fmt: skip
LONG_CONTEXT_AMPLIFICATION = _derived(
    "long_context_amplification_ratio", Unit.RATIO,
    "Estimated p99 prompt length over mean prompt length. It is a lower bound if signal_quality is clipped and "
    "long_context_beyond_top_bucket_ratio is above 0.01.", "p99 of request_prompt_tokens, interpolated in its bucket / exact mean",
    most=LONGEST_TOKENS,
)  # fmt: skip
LONG_CONTEXT_REQUESTS_FIT = _derived(
    "long_context_requests_fit", Unit.COUNT,
    "Estimated number of requests with a p99 prompt and a mean output that fit the KV cache at once.",
    "kv_cache_capacity_tokens / (p99 prompt + mean output), with p99 at the upper (bound=lower) and the lower edge (bound=upper) of its bucket, and "
    "interpolated (expected); above the top finite edge p99 is at most context_limit_tokens, and without it bound=lower is absent", "bound",
)  # fmt: skip
LONG_CONTEXT_BEYOND_TOP_BUCKET = _derived(
    "long_context_beyond_top_bucket_ratio", Unit.RATIO,
    "Share of requests whose prompt is longer than the top finite bucket edge, 0 to 1. Above 0.01 the p99 prompt is one of them.",
    "1 - count at or below the top finite edge / count",
)  # fmt: skip

SLO_EVENTS = Metric(
    "slo_events_total", Kind.COUNTER, Unit.COUNT, Group.SLO, "Good and bad events of a service level objective since the engine started.",
    (*SERVING_LABELS, "slo", "outcome", "source", "threshold"),
    "no threshold is configured for the objective, or the engine lacks the histogram; signal_available has the reason",
    "latency: events at or below slo_threshold_seconds{kind=counted} are good, the others bad; errors: good = finished by stop, length or success, "
    "bad = finished by error (source=finished) plus HTTP 5xx that no rejection and no finish covers (source=http, from 0 when the exporter "
    "first sees the engine's life); threshold is the edge counted, so that another threshold is another series", WORKED_OUT,
)  # fmt: skip
SLO_THRESHOLD = Metric(
    "slo_threshold_seconds", Kind.GAUGE, Unit.SECONDS, Group.SLO,
    "Threshold of an objective: as configured, and the bucket edge at or below it that is used for counting.",
    (*SERVING_LABELS, "slo", "kind"), "as slo_events_total", "kind=counted is the largest bucket edge not above kind=configured", WORKED_OUT,
)  # fmt: skip

DERIVED = list_declared(globals())
