"""Triton's vLLM back end: a few of vLLM's families under Triton's labels, beside Triton's own `nv_inference_*`."""

from __future__ import annotations

from llm_serving_exporter.model.snapshot import Quality
from llm_serving_exporter.normalise.mapping import Fingerprint, Mark, Reads, Row, Runtime
from llm_serving_exporter.normalise.runtimes.triton_core import (
    CORE,
    E2E,
    FIRST_RESPONSE,
    NO_HTTP,
    NO_KV,
    NO_LIMIT,
    NOT_OBSERVED,
    PENDING,
    QUEUE,
    REQUESTS,
    UPPER_BOUND,
    VERSION,
)

_METRICS = "https://github.com/triton-inference-server/vllm_backend/blob/8de0c14/src/utils/metrics.py"
_AT_FINISH = "Booked when a request finishes."


def _histogram(field: str, sample: str, caveat: str, quality: Quality = Quality.LIVE) -> Row:
    return Row(
        field, (sample,), reads=Reads.HISTOGRAM, quality=quality, versions=">=24.8", source=_METRICS, caveat=caveat
    )


_ROWS = (
    Row(
        "prompt_tokens_total",
        ("vllm:prompt_tokens_total",),
        versions=">=24.8",
        source=_METRICS,
        caveat="As sent, cached tokens included.",
    ),
    Row(
        "prefill_tokens_total",
        ("vllm:prompt_tokens_total",),
        versions=">=24.8",
        quality=Quality.APPROXIMATE,
        source=_METRICS,
        caveat=UPPER_BOUND,
    ),
    Row(
        "decode_tokens_total",
        ("vllm:generation_tokens_total",),
        versions=">=24.8",
        source=_METRICS,
    ),
    *REQUESTS,
    _histogram("time_to_first_token_seconds", "vllm:time_to_first_token_seconds", "Nothing above 10 s is resolved."),
    FIRST_RESPONSE,
    _histogram(
        "inter_token_latency_seconds",
        "vllm:time_per_output_token_seconds",
        "Fed with the gaps between tokens, whatever its name says. Nothing below 10 ms and above 2.5 s is resolved.",
    ),
    _histogram(
        "e2e_request_latency_seconds",
        "vllm:e2e_request_latency_seconds",
        f"Nothing below 1 s and above 60 s is resolved. {_AT_FINISH}",
        Quality.LAGGING,
    ),
    E2E,
    QUEUE,
    _histogram("request_prompt_tokens", "vllm:request_prompt_tokens", _AT_FINISH, Quality.LAGGING),
    _histogram("request_generation_tokens", "vllm:request_generation_tokens", _AT_FINISH, Quality.LAGGING),
    Row("requests_waiting", (PENDING,), source=CORE, caveat="Triton's queue; vLLM's own is not shown."),
)

_NO_PREFIX = "the back end does not report prefix caching"

RUNTIME = Runtime(
    name="triton-vllm",
    title="Triton with vLLM",
    health="/v2/health/ready",
    prefixes=("vllm:",),
    fingerprints=(Fingerprint((Mark("nv_inference_*"), Mark("vllm:*"))),),
    rows=_ROWS,
    model_labels=("model",),
    engine_labels=(VERSION,),
    # models without belong to other back ends
    living="vllm:generation_tokens_total",
    ignored=("vllm:request_params_*",),
    missing={
        "cached_prompt_tokens_total": _NO_PREFIX,
        "prefix_cache_query_tokens_total": _NO_PREFIX,
        "prefix_cache_hit_tokens_total": _NO_PREFIX,
        "preemptions_total": "the back end does not report them",
        "engine_steps_total": "exec_count counts Triton's batches, not the engine's steps",
        "speculative_draft_tokens_total": "not reported",
        "speculative_accepted_tokens_total": "not reported",
        "http_responses_total": NO_HTTP,
        "time_per_output_token_seconds": "the family of that name is fed with the gaps between tokens",
        "request_prefill_time_seconds": NOT_OBSERVED,
        "request_decode_time_seconds": NOT_OBSERVED,
        "requests_running": "the back end does not report its batch",
        "batch_limit_requests": NO_LIMIT,
        "kv_cache_usage_ratio": NO_KV,
        "kv_cache_capacity_tokens": NO_KV,
        "context_limit_tokens": NO_LIMIT,
        "model_gpu_memory_bytes": "of whole GPUs only",
    },
    versions=">=24.8,<=26.9",
)
