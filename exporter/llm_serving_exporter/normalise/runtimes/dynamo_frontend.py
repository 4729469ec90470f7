"""NVIDIA Dynamo's frontend: what clients see, over all workers behind it. It is no engine: batch, KV cache and GPUs are the workers'."""

from __future__ import annotations

from llm_serving_exporter.model.snapshot import Quality
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.normalise.mapping import Fingerprint, FirstToken, Mark, Reads, Row, Runtime
from llm_serving_exporter.normalise.runtimes.dynamo_endpoints import FRONTEND_ENDPOINTS

_CATALOG = "https://docs.nvidia.com/dynamo/v1.6.0/reference/observability/metrics-catalog"
_METRICS = "https://github.com/ai-dynamo/dynamo/blob/main/lib/llm/src/http/service/metrics.rs"
_NAMES = "https://github.com/ai-dynamo/dynamo/blob/main/lib/runtime/src/metrics/prometheus_names.rs"
_STATUS = "https://github.com/ai-dynamo/dynamo/blob/main/lib/llm/src/http/service/error.rs"

_WITH_THE_FIRST = "Booked with the first token."
_AT_FINISH = "Booked when a request finishes well; cancelled ones are missing."
_FROM_CLIENT = "As the client sees it: routing and network included, with split prefill and decode the KV transfer too."
_BUCKETS = "Bucket edges are set by DYN_METRICS_*."

# The client's own mistakes (400, 404, 501) are neither good nor bad; a rejection for overload has its own series.
_OUTCOMES = {
    "cancelled": "abort",
    "internal": "error", "unavailable": "error", "response_timeout": "error", "first_token_timeout": "error",
    "intra_token_timeout": "error",
    "validation": "", "not_found": "", "not_implemented": "", "overload": "",
    # up to 0.9 nothing says why
    "": "failed",
}  # fmt: skip
# which status the frontend answers for a class of failure (overload: by default); a cancelled request gets no answer
_STATUS_OF_CLASS = {
    "InvalidRequest": "4xx", "Unauthenticated": "4xx", "PermissionDenied": "4xx", "NotFound": "4xx", "Conflict": "4xx",
    "PayloadTooLarge": "4xx", "UnsupportedMedia": "4xx", "RateLimited": "4xx",
    "CapacityExhausted": "5xx", "Unavailable": "5xx", "BackendProtocol": "5xx", "DeadlineExceeded": "5xx", "NotImplemented": "5xx",
    "Internal": "5xx",
    "Cancelled": "",
}  # fmt: skip
_SUCCEEDED, _NOT_WELL = (f'dynamo_frontend_requests_total{{status="{status}"}}' for status in ("success", "error"))
_SAYS_WHY = ("dynamo_frontend_requests_total", "error_type", "")

_INPUT, _CACHED = "dynamo_frontend_input_sequence_tokens_sum", "dynamo_frontend_cached_tokens_sum"
_CACHED_BEFORE = "dynamo_frontend_cached_sequence_length_sum"


def _row(field: str, *samples: str, **more: object) -> Row:
    return Row(field, samples, **{"source": _CATALOG, **more})  # type: ignore[arg-type]  # keyword passthrough


def _histogram(field: str, sample: str, **more: object) -> Row:
    return _row(field, sample, reads=Reads.HISTOGRAM, **more)


def _prefill(cached: str) -> Row:
    return _row(
        "prefill_tokens_total",
        _INPUT,
        minus=(cached,),
        quality=Quality.APPROXIMATE,
        may_fall=True,
        caveat="Prompt tokens less cached ones. The prompt is booked with the first token, its cached part at the end and not for "
        "cancelled requests. Counted on by the exporter from 0, because the difference dips.",
    )


_TOKENS = (
    _row("prompt_tokens_total", _INPUT, caveat=f"Cached tokens included. {_WITH_THE_FIRST}"),
    _prefill(_CACHED),
    _prefill(_CACHED_BEFORE),
    _row("cached_prompt_tokens_total", _CACHED, quality=Quality.LAGGING, caveat=_AT_FINISH),
    _row("cached_prompt_tokens_total", _CACHED_BEFORE, quality=Quality.LAGGING, caveat=f"Its older name. {_AT_FINISH}"),
    _row(
        "decode_tokens_total",
        "dynamo_frontend_output_tokens_total",
        source=_METRICS,
        caveat="Counted while streaming, tokens of cancelled requests included. In 1.6.1 it ends some 0.2 % below the lengths booked at "
        "the end.",
    ),
    _row("prefix_cache_query_tokens_total", _INPUT, caveat=f"All prompt tokens. {_WITH_THE_FIRST}"),
    _row("prefix_cache_hit_tokens_total", _CACHED, quality=Quality.LAGGING, caveat=_AT_FINISH),
    _row("prefix_cache_hit_tokens_total", _CACHED_BEFORE, quality=Quality.LAGGING, caveat=_AT_FINISH),
    _row("prefix_cache_queries", _INPUT),
    _row("prefix_cache_hits", _CACHED, quality=Quality.LAGGING),
    _row("prefix_cache_hits", _CACHED_BEFORE, quality=Quality.LAGGING),
)

_REQUESTS = (
    _row(
        "requests_finished_total",
        _SUCCEEDED,
        _NOT_WELL,
        by="error_type",
        named={_SUCCEEDED: "success"},
        rename=_OUTCOMES,
        source=_NAMES,
        caveat="Client mistakes and rejections are left out; up to 0.9 they are in `failed` with errors and aborts. A request that found no worker is often not here: see http_responses_total.",
    ),
    _row(
        "requests_rejected_total",
        "dynamo_frontend_model_rejection_total",
        named={"dynamo_frontend_model_rejection_total": "overload"},
        caveat="All workers were busy (HTTP 529); appears with the first one.",
    ),
    _row(
        "http_responses_total",
        "dynamo_frontend_failures_total",
        _SUCCEEDED,
        by="class",
        rename=_STATUS_OF_CLASS,
        named={_SUCCEEDED: "2xx"},
        when=_SAYS_WHY,
        source=_STATUS,
        caveat="By the class of a failure, which fixes its status; overload is 5xx whatever DYN_HTTP_OVERLOAD_STATUS_CODE says. A stream cut after it began counts as 5xx. No model label. Releases "
        "without failures_total have 2xx only.",
    ),
    _row(
        "http_responses_total",
        "dynamo_frontend_failures_total",
        by="class",
        rename=_STATUS_OF_CLASS,
        source=_STATUS,
        caveat="Before the first request that went well.",
    ),
)

_LATENCIES = (
    _histogram(
        "time_to_first_token_seconds",
        "dynamo_frontend_time_to_first_token_seconds",
        caveat=f"{_FROM_CLIENT} {_BUCKETS}",
    ),
    _histogram(
        "inter_token_latency_seconds",
        "dynamo_frontend_inter_token_latency_seconds",
        caveat=f"One event per token after the first. {_BUCKETS}",
    ),
    _histogram(
        "e2e_request_latency_seconds",
        "dynamo_frontend_request_duration_seconds",
        quality=Quality.LAGGING,
        caveat=f"Failed and cancelled requests too. The first edge is 1 s by default. {_BUCKETS}",
    ),
    _histogram(
        "request_prompt_tokens", "dynamo_frontend_input_sequence_tokens", caveat=f"{_WITH_THE_FIRST} {_BUCKETS}"
    ),
    _histogram(
        "request_generation_tokens",
        "dynamo_frontend_output_sequence_tokens",
        quality=Quality.LAGGING,
        caveat=f"Booked when a request ends, cancelled ones too. {_BUCKETS}",
    ),
)

_GAUGES = (
    _row(
        "requests_waiting",
        "dynamo_frontend_router_queue_pending_requests",
        caveat="Held back by the frontend's router; requests that wait in a worker are on the worker's page.",
    ),
    _row(
        "requests_waiting",
        'dynamo_frontend_stage_requests{stage="preprocess|route"}',
        caveat="Without the KV router: requests for which no worker is chosen yet.",
    ),
    _row(
        "context_limit_tokens",
        "dynamo_frontend_model_context_length",
        zero_is_unset=True,
        caveat="The first worker's value.",
    ),
)

_WORKERS = "a worker's: on the worker's page"
_NOT_READ = (
    # over all workers, and no batch: queued_requests is everything without a first token, prefill included
    "dynamo_frontend_active_requests",
    "dynamo_frontend_inflight_requests",
    "dynamo_frontend_queued_requests",
    "dynamo_frontend_stage_*",
    "dynamo_frontend_router_*",
    "dynamo_frontend_requests_started_total",
    "dynamo_frontend_disconnected_clients",
    # of one worker, the first that came
    "dynamo_frontend_model_*",
    "dynamo_frontend_worker_*",
    "dynamo_frontend_*_per_request",
    "dynamo_frontend_detokenize_*",
    "dynamo_frontend_tokenize*",
    "dynamo_frontend_template_seconds",
    "dynamo_frontend_event_loop_*",
    "dynamo_frontend_embedding_latency_seconds",
    "dynamo_frontend_lora_*",
    "dynamo_frontend_cached_sequence_length",
)

RUNTIME = Runtime(
    name="dynamo-frontend",
    title="NVIDIA Dynamo frontend",
    born_at_first_event=True,
    prefixes=("dynamo_frontend_",),
    fingerprints=(Fingerprint((Mark("dynamo_frontend_*"),)),),
    rows=(*_TOKENS, *_REQUESTS, *_LATENCIES, *_GAUGES),
    model_labels=("model",),
    # names that nobody serves are collapsed into this one (PR 9836)
    never={"model": frozenset({"unknown_model"})},
    # before 1.2 request families had names in lower case, the others as they are (PR 9775)
    any_case=True,
    # DYN_METRICS_PREFIX renames the families; this is the spelling that NIM sets
    respelt=(("dynamo_frontend_", "nv_llm_http_service_"),),
    endpoints=FRONTEND_ENDPOINTS,
    ignored=_NOT_READ,
    role=Role.FRONTEND,
    first_token=FirstToken.CLIENT,
    missing={
        "requests_running": "active_requests spans all workers and is no batch",
        "batch_limit_requests": _WORKERS,
        "kv_cache_usage_ratio": _WORKERS,
        "kv_cache_capacity_tokens": _WORKERS,
        "model_gpu_memory_bytes": _WORKERS,
        "preemptions_total": f"{_WORKERS}; migrations are something else",
        "engine_steps_total": _WORKERS,
        "speculative_draft_tokens_total": _WORKERS,
        "speculative_accepted_tokens_total": _WORKERS,
        "time_per_output_token_seconds": "only between tokens, not per request",
        "request_queue_time_seconds": "only how many wait, not for how long",
        "request_prefill_time_seconds": _WORKERS,
        "request_decode_time_seconds": _WORKERS,
    },
    versions=">=0.8,<=1.6",
    covered="1.6.1",
)
