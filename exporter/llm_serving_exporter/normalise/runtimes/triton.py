"""Triton Inference Server whose back end reports nothing of its own (TensorRT-LLM's LLM API, Python): requests and mean latencies only."""

from __future__ import annotations

from llm_serving_exporter.normalise.mapping import Fingerprint, Mark, Row, Runtime
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
    VERSION,
)

_NO_TOKENS = "Triton counts requests, not tokens, and the back end reports none"

RUNTIME = Runtime(
    name="triton",
    title="Triton",
    health="/v2/health/ready",
    prefixes=("nv_inference_",),
    fingerprints=(
        Fingerprint((Mark("nv_inference_*"),), (Mark("nv_trt_llm_*"), Mark("nv_llm_*"), Mark("vllm:*"))),
    ),
    rows=(
        *REQUESTS,
        FIRST_RESPONSE,
        E2E,
        QUEUE,
        Row(
            "requests_waiting",
            (PENDING,),
            versions=">=23.09",
            source=CORE,
            caveat="Triton's queue; what waits in the engine is not in it. Parts of an ensemble are models of their own.",
        ),
    ),
    model_labels=("model",),
    engine_labels=(VERSION,),
    ignored=(
        "nv_inference_count", "nv_inference_exec_count", "nv_inference_compute_*", "nv_inference_*_summary_us",
    ),
    missing={
        **dict.fromkeys(
            (
                "prompt_tokens_total", "prefill_tokens_total", "cached_prompt_tokens_total", "decode_tokens_total",
                "prefix_cache_query_tokens_total", "prefix_cache_hit_tokens_total", "speculative_draft_tokens_total",
                "speculative_accepted_tokens_total", "request_prompt_tokens", "request_generation_tokens",
            ),
            _NO_TOKENS,
        ),
        "preemptions_total": "the back end does not report them",
        "engine_steps_total": "exec_count counts Triton's batches, not the engine's steps",
        "requests_running": "the back end does not report its batch",
        "http_responses_total": NO_HTTP,
        "inter_token_latency_seconds": NOT_OBSERVED,
        "time_per_output_token_seconds": NOT_OBSERVED,
        "request_prefill_time_seconds": "compute times are the whole generation's",
        "request_decode_time_seconds": "compute times are the whole generation's",
        "batch_limit_requests": NO_LIMIT,
        "kv_cache_usage_ratio": NO_KV,
        "kv_cache_capacity_tokens": NO_KV,
        "context_limit_tokens": NO_LIMIT,
        "model_gpu_memory_bytes": "of whole GPUs only",
    },
    versions=">=23.04,<=26.9",
)  # fmt: skip
