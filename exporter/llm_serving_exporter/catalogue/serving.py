"""Series that engines know themselves, passed through under neutral names."""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.catalogue.spec import MOST_EVENTS, SERVING_LABELS, Bounds, Group, Kind, Metric, Unit

# of one request: eleven days, and a thousand times the longest context that is served
LONGEST_SECONDS, LONGEST_TOKENS = 1e6, 1e9
# requests that one engine can hold
_MOST_REQUESTS = 1e9
_NOT_THERE = "the engine does not report it; signal_available has the reason"


def _counter(name: str, unit: Unit, help: str, *labels: str) -> Metric:
    return Metric(name, Kind.COUNTER, unit, Group.COUNTERS, help, (*SERVING_LABELS, *labels), _NOT_THERE)


def _histogram(name: str, unit: Unit, help: str, *, finite_buckets: bool = True) -> Metric:
    most = LONGEST_SECONDS if unit is Unit.SECONDS else LONGEST_TOKENS
    group, labels = Group.HISTOGRAMS, SERVING_LABELS
    return Metric(name, Kind.HISTOGRAM, unit, group, help, labels, _NOT_THERE, most=most, finite_buckets=finite_buckets)


def _gauge(
    name: str,
    unit: Unit,
    help: str,
    absent: str = _NOT_THERE,
    *,
    most: float | None = None,
    suspect_above: float | None = None,
    labels: tuple[str, ...] = (),
) -> Metric:
    own = (*SERVING_LABELS, *labels)
    return Metric(name, Kind.GAUGE, unit, Group.GAUGES, help, own, absent, most=most, suspect_above=suspect_above)


COUNTERS = (
    _counter("prompt_tokens_total", Unit.TOKENS, "Prompt tokens as sent, cached and transferred ones included."),
    _counter("prefill_tokens_total", Unit.TOKENS, "Prompt tokens that were computed, without prefix-cache hits and transferred KV."),
    _counter("cached_prompt_tokens_total", Unit.TOKENS, "Prompt tokens that were not computed because their KV was already there."),
    _counter("decode_tokens_total", Unit.TOKENS, "Generated tokens, the first of each answer included."),
    _counter("prefix_cache_query_tokens_total", Unit.TOKENS, "Tokens looked up in the prefix cache."),
    _counter("prefix_cache_hit_tokens_total", Unit.TOKENS, "Looked-up tokens that were found in the prefix cache."),
    _counter(
        "requests_finished_total", Unit.COUNT,
        "Finished requests by reason: stop, length, success (stop or length, if the engine does not distinguish them), error, abort, failed (if the engine gives no reason), or the engine's own word.",
        "reason",
    ),
    _counter("requests_rejected_total", Unit.COUNT, "Requests refused at admission, by reason.", "reason"),
    _counter("http_responses_total", Unit.COUNT, "HTTP responses of the server, by class of status code.", "code_class"),
    _counter("preemptions_total", Unit.COUNT, "Times that a running request lost its KV cache to other requests."),
    _counter("engine_steps_total", Unit.COUNT, "Engine steps (forward passes) that the engine counts."),
    _counter("speculative_draft_tokens_total", Unit.TOKENS, "Tokens proposed by speculative decoding."),
    _counter("speculative_accepted_tokens_total", Unit.TOKENS, "Proposed tokens that were accepted."),
)  # fmt: skip

HISTOGRAMS = (
    _histogram("time_to_first_token_seconds", Unit.SECONDS, "Time to first token, with the engine's own buckets."),
    _histogram("inter_token_latency_seconds", Unit.SECONDS, "Time between outputs of one request, with the engine's own buckets."),
    _histogram(
        "time_per_output_token_seconds", Unit.SECONDS, "Mean time per output token after the first, one event per request.",
        finite_buckets=False,
    ),
    _histogram("e2e_request_latency_seconds", Unit.SECONDS, "Time from arrival to the last token of finished requests."),
    _histogram("request_queue_time_seconds", Unit.SECONDS, "Time that finished requests waited in the queue before they first ran."),
    _histogram(
        "request_prefill_time_seconds", Unit.SECONDS, "Time from the first run to the first token of finished requests.",
        finite_buckets=False,
    ),
    _histogram(
        "request_decode_time_seconds", Unit.SECONDS, "Time from the first to the last token of finished requests.", finite_buckets=False,
    ),
    _histogram("request_prompt_tokens", Unit.TOKENS, "Prompt length of finished requests in tokens."),
    _histogram("request_generation_tokens", Unit.TOKENS, "Output length of finished requests in tokens."),
)  # fmt: skip

BATCH_LIMIT = _gauge(
    "batch_limit_requests", Unit.COUNT,
    "Maximum number of requests that the engine runs at once. source: the first of config, page, server_info (a side endpoint), pod (arguments of its container), command_line (of its process on this host) and observed (a lower bound) that says it.",
    "nothing of what `source` names says it, and no level was observed at which requests wait", most=_MOST_REQUESTS, labels=("source",),
)  # fmt: skip
GAUGES = (
    _gauge("requests_running", Unit.COUNT, "Requests in the running batch now.", most=_MOST_REQUESTS),
    _gauge("requests_waiting", Unit.COUNT, "Requests that are waiting to run now.", most=_MOST_REQUESTS),
    BATCH_LIMIT,
    _gauge("kv_cache_usage_ratio", Unit.RATIO, "Share of the KV cache that running requests hold, 0 to 1.", suspect_above=1.0),
    _gauge("kv_cache_capacity_tokens", Unit.TOKENS, "Tokens that the KV cache of the engine can hold."),
    _gauge(
        "context_limit_tokens", Unit.TOKENS, "Longest context in tokens that the server accepts.",
        "neither configured (context_limit_tokens) nor reported by the server", most=LONGEST_TOKENS,
    ),
    _gauge("model_gpu_memory_bytes", Unit.BYTES, "GPU memory that the runtime reports for the model.", "the runtime does not report it"),
)  # fmt: skip

SERVING = (*COUNTERS, *HISTOGRAMS, *GAUGES)

# what is read and not published under a name of its own
_NOT_PUBLISHED = {
    **dict.fromkeys(
        (
            "prefix_cache_queries", "prefix_cache_hits", "decode_tokens_live", "decode_pass_tokens", "decode_steps_total",
            "requests_deferred", "kv_connector",
        ),
        Bounds(0.0, MOST_EVENTS),
    ),
    "device_busy_seconds": Bounds(0.0, 1e9),  # thirty years
    **dict.fromkeys(("decode_context_tokens", "kv_used_tokens"), Bounds(0.0, 1e12)),
    **dict.fromkeys(("state_cache_usage_ratio", "awake"), Bounds(0.0, 1.0)),
    "accepted_tokens_per_step": Bounds(0.0, 1e6),
    "kv_block_tokens": Bounds(0.0, LONGEST_TOKENS),
    # 1e15 bytes and 1e18 FLOPs a second, for thirty years
    "estimated_read_bytes_per_gpu": Bounds(0.0, 1e24),
    "estimated_flops_per_gpu": Bounds(0.0, 1e27),
}  # fmt: skip
# the range of every number of a page, by its field of the snapshot
FIELD_BOUNDS: Mapping[str, Bounds] = {**{metric.name: metric.bounds for metric in SERVING}, **_NOT_PUBLISHED}
