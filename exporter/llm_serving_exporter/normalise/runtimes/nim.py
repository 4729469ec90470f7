"""NVIDIA NIM for LLMs 1.x: names without prefix under /v1/metrics. From 2.0 on its page is the back end's own (vLLM, SGLang)."""

from __future__ import annotations

from llm_serving_exporter.model.snapshot import Quality
from llm_serving_exporter.normalise.mapping import ERRORS, Fingerprint, Mark, Reads, Row, Runtime

_DOCS = "https://docs.nvidia.com/nim/large-language-models/latest/observability.html"
# which back end runs is not on the page, and TensorRT-LLM's books at the end
_MAY_LAG = "May be booked only when a request finishes, as its back end does."
_AT_FINISH = "Booked when a request finishes."


def _row(field: str, *samples: str, **more: object) -> Row:
    return Row(field, samples, **{"source": _DOCS, **more})  # type: ignore[arg-type]  # keyword passthrough


def _histogram(field: str, sample: str, caveat: str) -> Row:
    return _row(field, sample, reads=Reads.HISTOGRAM, quality=Quality.LAGGING, caveat=caveat)


_ROWS = (
    _row(
        "prompt_tokens_total",
        "prompt_tokens_total",
        quality=Quality.LAGGING,
        caveat=f"As sent, cached tokens included. {_MAY_LAG}",
    ),
    _row(
        "prefill_tokens_total",
        "prompt_tokens_total",
        quality=Quality.APPROXIMATE,
        caveat=f"Upper bound: prompts as sent; tokens found in a cache are in it. {_MAY_LAG}",
    ),
    _row("decode_tokens_total", "generation_tokens_total", quality=Quality.LAGGING, caveat=_MAY_LAG),
    _row("requests_finished_total", "request_finish_total", by="finished_reason"),
    # failures are every other reason than stop and length, a client's abort included, so they are no errors
    _row(
        "requests_finished_total",
        "request_success_total",
        named={"request_success_total": "success"},
        caveat="Failures and aborts by clients are one number, which is left out.",
    ),
    _histogram(
        "time_to_first_token_seconds", "time_to_first_token_seconds", f"Nothing above 10 s may be resolved. {_MAY_LAG}"
    ),
    _histogram(
        "time_per_output_token_seconds",
        "time_per_output_token_seconds",
        f"Whether a gap or a request's mean is not documented. {_MAY_LAG}",
    ),
    _histogram(
        "e2e_request_latency_seconds",
        "e2e_request_latency_seconds",
        f"Nothing above 60 s may be resolved. {_AT_FINISH}",
    ),
    _histogram("request_prompt_tokens", "request_prompt_tokens", _AT_FINISH),
    _histogram("request_generation_tokens", "request_generation_tokens", _AT_FINISH),
    _row("requests_running", "num_requests_running"),
    _row("requests_waiting", "num_requests_waiting"),
    _row("batch_limit_requests", "num_request_max"),
    _row("kv_cache_usage_ratio", "gpu_cache_usage_perc", caveat="A share from 0 to 1, whatever its name says."),
)

_NO_PREFIX = "prefix caching is not reported"

RUNTIME = Runtime(
    name="nim",
    title="NVIDIA NIM 1.x",
    # names without prefix: only two that stand together nowhere else, and none of a back end's own, tell its page
    fingerprints=(
        Fingerprint(
            (Mark("num_request_max"), Mark("gpu_cache_usage_perc")),
            (Mark("vllm:*"), Mark("sglang:*"), Mark("trtllm_*")),
        ),
    ),
    rows=_ROWS,
    model_labels=("model_name",),
    paths=("/v1/metrics", "/metrics"),
    health="/v1/health/ready",
    missing={
        ERRORS: "failures and clients that left are one number",
        "cached_prompt_tokens_total": _NO_PREFIX,
        "prefix_cache_query_tokens_total": _NO_PREFIX,
        "prefix_cache_hit_tokens_total": _NO_PREFIX,
        "preemptions_total": "not reported",
        "engine_steps_total": "not reported",
        "speculative_draft_tokens_total": "not reported",
        "speculative_accepted_tokens_total": "not reported",
        "requests_rejected_total": "not counted apart from other failures",
        "http_responses_total": "HTTP answers are not counted",
        "inter_token_latency_seconds": "time_per_output_token_seconds is not documented to be one",
        "request_queue_time_seconds": "not observed",
        "request_prefill_time_seconds": "not observed",
        "request_decode_time_seconds": "not observed",
        "kv_cache_capacity_tokens": "not reported",
        "context_limit_tokens": "not on the page",
        "model_gpu_memory_bytes": "gpu_memory_used_bytes is of whole GPUs",
    },
    versions=">=1.0,<2",
)
