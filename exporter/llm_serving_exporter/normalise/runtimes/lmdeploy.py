"""LMDeploy 0.9.2 to 0.18: the table. Facts: `lmdeploy/metrics/loggers.py`, `stats.py` and `metrics_processor.py` at each release."""

from __future__ import annotations

from llm_serving_exporter.model.snapshot import Quality
from llm_serving_exporter.normalise.mapping import ERRORS, Fingerprint, Flags, Mark, Reads, Row, Runtime
from llm_serving_exporter.normalise.runtimes.lmdeploy_endpoints import ENDPOINTS

_LOGGERS = "https://github.com/InternLM/lmdeploy/blob/v0.16.0/lmdeploy/metrics/loggers.py"
_STATS = "https://github.com/InternLM/lmdeploy/blob/v0.16.0/lmdeploy/metrics/stats.py"
_PROCESSOR = "https://github.com/InternLM/lmdeploy/blob/v0.16.0/lmdeploy/metrics/metrics_processor.py"
_SERVER = "https://github.com/InternLM/lmdeploy/blob/v0.16.0/lmdeploy/serve/openai/api_server.py"

# the server copies its scheduler's figures to the page this often (api_server.py, log_interval)
REFRESH_SECONDS = 10.0

_AT_THE_FIRST = "Booked in one lump with the first token."
_AT_FINISH = "Booked when a request finishes well; cancelled, aborted and failed ones are missing."
_EVERY_10_SECONDS = "Updated every 10 s."


def _counter(field: str, *samples: str, **more: object) -> Row:
    return Row(field, samples, **{"source": _LOGGERS, **more})  # type: ignore[arg-type]  # keyword passthrough


def _histogram(field: str, sample: str, **more: object) -> Row:
    return Row(field, (sample,), reads=Reads.HISTOGRAM, **{"source": _STATS, **more})  # type: ignore[arg-type]  # keyword passthrough


def _at_finish(field: str, sample: str, caveat: str = "") -> Row:
    return _histogram(field, sample, quality=Quality.LAGGING, caveat=f"{caveat} {_AT_FINISH}".strip())


def _gauge(field: str, *samples: str, caveat: str, **more: object) -> Row:
    return Row(
        field,
        samples,
        **{  # type: ignore[arg-type]  # keyword passthrough
            "quality": Quality.SLOW,
            "refresh_seconds": REFRESH_SECONDS,
            "source": _SERVER,
            "caveat": f"{caveat} {_EVERY_10_SECONDS}",
            **more,
        },
    )


# only FINISH is ever counted (metrics_processor.py); the others stand at 0 for good, which would read as "no errors"
_REASONS = {
    "ResponseType.FINISH": "success",
    "ResponseType.SUCCESS": "",  # not an end: more tokens come
    "ResponseType.CANCEL": "",
    **{
        f"ResponseType.{name}": ""
        for name in (
            "ENGINE_STOP_ERROR", "SESSION_REPEAT", "SESSION_NOT_EXIST", "HANDLER_NOT_EXIST", "INPUT_LENGTH_ERROR",
            "INTERNAL_ENGINE_ERROR", "PREFIX_CACHE_CONFLICT", "NO_QUEUE", "NOT_SUPPORTED", "OUT_OF_MEMORY",
        )
    },
}  # fmt: skip

_TOKENS = (
    _counter("prompt_tokens_total", "lmdeploy:prompt_tokens_total", caveat=f"Includes cached tokens. {_AT_THE_FIRST}"),
    _counter(
        "prefill_tokens_total",
        "lmdeploy:prompt_tokens_total",
        minus=("lmdeploy:cached_tokens_total",),
        versions=">=0.14",
        quality=Quality.APPROXIMATE,
        may_fall=True,
        source=_PROCESSOR,
        caveat="Prompt tokens less cached ones. Prompts are booked at the first token, cached tokens when the request finishes well, so that requests "
        "under way, and those that never finish, count in full. Counted on by the exporter from 0, because the difference dips.",
    ),
    _counter(
        "prefill_tokens_total",
        "lmdeploy:prompt_tokens_total",
        versions="<0.14",
        quality=Quality.APPROXIMATE,
        caveat=f"Cached tokens are not told: an upper bound with --enable-prefix-caching, right without (default). {_AT_THE_FIRST}",
    ),
    _counter(
        "cached_prompt_tokens_total",
        "lmdeploy:cached_tokens_total",
        versions=">=0.14",
        quality=Quality.LAGGING,
        source=_PROCESSOR,
        caveat=_AT_FINISH,
    ),
    _counter(
        "decode_tokens_total",
        "lmdeploy:generation_tokens_total",
        caveat="Includes each answer's first token and tokens of requests that do not finish.",
    ),
    # looked up and found are taken from the finished requests both: booked at one moment, they make a ratio
    _counter(
        "prefix_cache_query_tokens_total",
        "lmdeploy:request_prompt_tokens_sum",
        quality=Quality.LAGGING,
        source=_PROCESSOR,
        caveat=f"Prompts of finished requests, whether prefix caching is on or not. {_AT_FINISH}",
    ),
    _counter(
        "prefix_cache_hit_tokens_total",
        "lmdeploy:cached_tokens_total",
        versions=">=0.14",
        quality=Quality.LAGGING,
        source=_PROCESSOR,
        caveat=f"0 with prefix caching off, which the page does not tell. {_AT_FINISH}",
    ),
    _counter("prefix_cache_queries", "lmdeploy:request_prompt_tokens_sum", quality=Quality.LAGGING),
    _counter("prefix_cache_hits", "lmdeploy:cached_tokens_total", versions=">=0.14", quality=Quality.LAGGING),
)

_REQUESTS = (
    _counter(
        "requests_finished_total",
        "lmdeploy:request_success_total",
        "lmdeploy:num_requests_failed",
        by="finished_reason",
        rename=_REASONS,
        named={"lmdeploy:num_requests_failed": "failed"},
        quality=Quality.SLOW,
        refresh_seconds=REFRESH_SECONDS,
        source=_PROCESSOR,
        caveat="LMDeploy counts only success by reason. `failed`: cancelled, aborted or ended with an error, which it does not tell apart, "
        "from 0.12.3 on and updated every 10 s.",
    ),
    _counter("speculative_draft_tokens_total", "lmdeploy:spec_decode_num_draft_tokens_total", versions=">=0.14"),
    _counter("speculative_accepted_tokens_total", "lmdeploy:spec_decode_num_accepted_tokens_total", versions=">=0.14"),
)

_LATENCIES = (
    _histogram(
        "time_to_first_token_seconds",
        "lmdeploy:time_to_first_token_seconds",
        caveat="From the start of generation in the API server; queueing included.",
    ),
    _histogram(
        "inter_token_latency_seconds",
        "lmdeploy:iter_token_latency",
        versions=">=0.10",
        caveat="In seconds in spite of its name. One event per output after the first; an output may carry several tokens. Each includes the way "
        "from the engine to the API server.",
    ),
    _histogram(
        "inter_token_latency_seconds",
        "lmdeploy:time_per_output_token_seconds",
        versions="<0.10",
        caveat="The same quantity under its older name.",
        source="https://github.com/InternLM/lmdeploy/blob/v0.9.2/lmdeploy/metrics/stats.py",
    ),
    _at_finish(
        "e2e_request_latency_seconds", "lmdeploy:e2e_request_latency_seconds", "Nothing below 0.3 s is resolved."
    ),
    _at_finish(
        "request_queue_time_seconds",
        "lmdeploy:request_queue_time_seconds",
        "Engine only, first queued to first scheduled; nothing below 0.3 s is resolved.",
    ),
    _at_finish(
        "request_prefill_time_seconds", "lmdeploy:request_prefill_time_seconds", "First scheduled to first token."
    ),
    _at_finish("request_decode_time_seconds", "lmdeploy:request_decode_time_seconds", "First token to the end."),
    _at_finish("request_prompt_tokens", "lmdeploy:request_prompt_tokens", "Buckets depend on session_len."),
    _at_finish("request_generation_tokens", "lmdeploy:request_generation_tokens", "Buckets depend on session_len."),
)

_GAUGES = (
    _gauge("requests_running", "lmdeploy:num_requests_running", caveat="In the engine's batch."),
    _gauge(
        "requests_waiting",
        "lmdeploy:num_requests_waiting",
        "lmdeploy:num_api_requests_waiting",
        caveat="In the engine's queue, from 0.12.1 on with those that wait for a free handle of the API server.",
    ),
    _gauge(
        "kv_cache_usage_ratio",
        "lmdeploy:gpu_cache_usage_perc",
        caveat="A fraction in spite of its name. TurboMind: bytes in use of the cache region.",
    ),
)

_NOT_READ = (
    "lmdeploy:backend_config_info",  # never filled
    "lmdeploy:num_requests_succeeded",  # request_success_total, ten seconds later
    # up to 0.12.0; clients that went away stay in `unfinished` for good, so that it is no queue
    "lmdeploy:num_requests_finished",
    "lmdeploy:num_requests_unfinished",
    "lmdeploy:num_requests_completed",
    "lmdeploy:num_api_requests_routed",
    "lmdeploy:prefix_cache_hit_rate",  # of all time
    "lmdeploy:time_per_output_token_seconds",
    "lmdeploy:iteration_tokens_total",
    "lmdeploy:request_cached_tokens",
    "lmdeploy:request_cache_hit_ratio",
    "lmdeploy:request_inference_time_seconds",
    "lmdeploy:spec_decode_*",
)

_MISSING = {
    ERRORS: "errors, aborts and clients that went away are one number",
    "time_per_output_token_seconds": "its series of that name has one event per output, not per request",
    "engine_steps_total": "iteration_tokens_total is observed per output, not per engine step",
    "preemptions_total": "not counted",
    "requests_rejected_total": "not counted",
    "http_responses_total": "not counted",
    "batch_limit_requests": "not told",
    "kv_cache_capacity_tokens": "not told",
    "context_limit_tokens": "not told",
    "model_gpu_memory_bytes": "not told",
}

# bucket edges of an unconfigured 0.18.0; only for warnings about thresholds
_TTFT_EDGES = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560,
)  # fmt: skip
_ITL_EDGES = (
    0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
)  # fmt: skip
_REQUEST_EDGES = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)

RUNTIME = Runtime(
    name="lmdeploy",
    title="LMDeploy",
    prefixes=("lmdeploy:",),
    fingerprints=(Fingerprint((Mark("lmdeploy:*"),)),),
    rows=(*_TOKENS, *_REQUESTS, *_LATENCIES, *_GAUGES),
    model_labels=("model_name",),
    engine_labels=("engine",),
    start_sample="process_start_time_seconds",
    endpoints=ENDPOINTS,
    flags=Flags(("--max-batch-size",), source="https://lmdeploy.readthedocs.io/en/latest/llm/api_server.html"),
    ignored=_NOT_READ,
    default_edges={"ttft": _TTFT_EDGES, "itl": _ITL_EDGES, "e2e": _REQUEST_EDGES},
    missing=_MISSING,
    versions=">=0.9.2,<=0.18",
    covered="0.18.0 (simulated)",
)
