"""Series that the exporter works out over its window, for a glance; longer ranges are recording rules over counters."""

from __future__ import annotations

from llm_serving_exporter.catalogue.spec import SERVING_LABELS, Group, Kind, Metric, Unit

_WHY = "signal_available has the reason"
_OURS = "derived"


def _derived(name: str, unit: Unit, help: str, formula: str, *labels: str) -> Metric:
    return Metric(name, Kind.GAUGE, unit, Group.DERIVED, help, (*SERVING_LABELS, *labels), _WHY, formula, _OURS)


PHASE_TOKENS_PER_SECOND = _derived(
    "phase_tokens_per_second",
    Unit.TOKENS_PER_SECOND,
    "Tokens per second by phase over the window.",
    "increase of prefill_tokens_total, decode_tokens_total (with the tokens of requests under way where the engine tells them) / seconds covered",
    "phase",
)
PHASE_TOKENS_PER_SECOND_PER_GPU = _derived(
    "phase_tokens_per_second_per_gpu",
    Unit.TOKENS_PER_SECOND,
    "Tokens per second by phase over the window, per GPU of the engine.",
    "phase_tokens_per_second / (GPUs of the target / engines)",
    "phase",
)
BATCH_SIZE_MEAN = _derived(
    "batch_size_mean",
    Unit.COUNT,
    "Mean number of decoding sequences in an engine step over the window.",
    "inter-token events / engine steps; events are divided by the accepted length where the engine counts one a token under speculation, and are "
    "decode tokens less first and accepted ones where it counts none",
)
BATCH_UTILIZATION_RATIO = _derived(
    "batch_utilization_ratio",
    Unit.RATIO,
    "Mean share of the engine's limit of running requests in use over the window, 0 to 1.",
    "mean of requests_running / batch_limit_requests",
)
KV_CACHE_USED_TOKENS = _derived(
    "kv_cache_used_tokens",
    Unit.TOKENS,
    "Tokens of KV held by live requests now, in whole blocks.",
    "kv_cache_usage_ratio x kv_cache_capacity_tokens",
)
KV_CACHE_FREE_TOKENS = _derived(
    "kv_cache_free_tokens",
    Unit.TOKENS,
    "Tokens of KV that live requests leave free now, evictable cached prefixes included.",
    "(1 - kv_cache_usage_ratio) x kv_cache_capacity_tokens",
)
PREFIX_CACHE_HIT_RATIO = _derived(
    "prefix_cache_hit_ratio",
    Unit.RATIO,
    "Share of looked-up tokens that the prefix cache had over the window, 0 to 1.",
    "increase of hits / increase of queries, in the engine's unit",
)
CONTEXT_TOKENS_MEAN = _derived(
    "context_tokens_mean",
    Unit.TOKENS,
    "Mean KV tokens per running request over the window; a shared prefix counts once.",
    "sum of kv_cache_used_tokens / sum of requests_running, over the readings with running requests",
)
PREEMPTIONS_PER_SECOND = _derived(
    "preemptions_per_second",
    Unit.PER_SECOND,
    "Preemptions per second over the window.",
    "increase of preemptions_total / seconds covered",
)
WINDOW_LATENCY_SECONDS = _derived(
    "window_latency_seconds",
    Unit.SECONDS,
    "Quantile of a latency over the window by rank (p50, p90, p95, p99); where signal_quality says clipped it means at least (top) or at most (bottom).",
    "linear interpolation in the engine's buckets, as histogram_quantile does; below the first edge that edge",
    "latency",
    "rank",
)
WINDOW_LATENCY_MEAN_SECONDS = _derived(
    "window_latency_mean_seconds",
    Unit.SECONDS,
    "Mean of a latency over the window.",
    "increase of sum / increase of count",
    "latency",
)
WINDOW_LATENCY_EVENTS = _derived(
    "window_latency_events",
    Unit.COUNT,
    "Events behind the quantiles and the mean of a latency over the window.",
    "increase of count",
    "latency",
)

SLO_EVENTS = Metric(
    "slo_events_total",
    Kind.COUNTER,
    Unit.COUNT,
    Group.SLO,
    "Good and bad events of a service level objective since the engine started.",
    (*SERVING_LABELS, "slo", "outcome", "source", "threshold"),
    "no threshold is configured for the objective, or the engine lacks the histogram; signal_available has the reason",
    "latency: events at or below slo_threshold_seconds{kind=counted} are good, the others bad; errors: good = finished by stop, length or success, "
    "bad = finished by error (source=finished) plus HTTP 5xx that no rejection and no finish covers (source=http, from 0 when the exporter "
    "first sees the engine's life); threshold is the edge counted, so that another threshold is another series",
    _OURS,
)
SLO_THRESHOLD = Metric(
    "slo_threshold_seconds",
    Kind.GAUGE,
    Unit.SECONDS,
    Group.SLO,
    "Threshold of an objective: as configured, and the bucket edge at or below it that is counted.",
    (*SERVING_LABELS, "slo", "kind"),
    "as slo_events_total",
    "kind=counted is the largest bucket edge not above kind=configured",
    _OURS,
)

DERIVED = (
    PHASE_TOKENS_PER_SECOND,
    PHASE_TOKENS_PER_SECOND_PER_GPU,
    BATCH_SIZE_MEAN,
    BATCH_UTILIZATION_RATIO,
    KV_CACHE_USED_TOKENS,
    KV_CACHE_FREE_TOKENS,
    PREFIX_CACHE_HIT_RATIO,
    CONTEXT_TOKENS_MEAN,
    PREEMPTIONS_PER_SECOND,
    WINDOW_LATENCY_SECONDS,
    WINDOW_LATENCY_MEAN_SECONDS,
    WINDOW_LATENCY_EVENTS,
    SLO_EVENTS,
    SLO_THRESHOLD,
)
