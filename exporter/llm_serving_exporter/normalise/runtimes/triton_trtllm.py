"""Triton's TensorRT-LLM back end, the C++ in-flight batcher: `nv_trt_llm_*` beside Triton's own `nv_inference_*`."""

from __future__ import annotations

from llm_serving_exporter.model.snapshot import Quality
from llm_serving_exporter.normalise.mapping import Fingerprint, Mark, Reads, Row, Runtime
from llm_serving_exporter.normalise.runtimes.triton_core import (
    E2E,
    FIRST_RESPONSE,
    NO_HTTP,
    NO_LIMIT,
    NOT_OBSERVED,
    PENDING,
    QUEUE,
    REQUESTS,
    UPPER_BOUND,
    VERSION,
)

_REPORTER = (
    "https://github.com/NVIDIA/TensorRT-LLM/blob/0d5352f5/triton_backend/inflight_batcher_llm/src/"
    "custom_metrics_reporter/custom_metrics_reporter.cc"
)

_REQUESTS, _BLOCKS = "nv_trt_llm_request_metrics", "nv_trt_llm_kv_cache_block_metrics"

_AT_FINISH = "Booked when a request finishes."
_ITERATION = "Of the last iteration, copied every stats_check_period_ms; keeps its value while nothing runs."
_BY_POSITION = (
    "Values are matched to labels by position: with a back end of another version they may stand under the wrong one."
)


def _requests(kind: str) -> str:
    return f'{_REQUESTS}{{request_type="{kind}"}}'


def _blocks(kind: str) -> str:
    return f'{_BLOCKS}{{kv_cache_block_type="{kind}"}}'


def _gauge(field: str, *samples: str, caveat: str, **more: object) -> Row:
    return Row(
        field,
        samples,
        **{"source": _REPORTER, "quality": Quality.SLOW, "freezes": True, "caveat": f"{caveat} {_ITERATION}", **more},  # type: ignore[arg-type]
    )


def _length(field: str, name: str) -> Row:
    return Row(
        field,
        (name,),
        reads=Reads.HISTOGRAM,
        quality=Quality.LAGGING,
        source=_REPORTER,
        caveat=f"Nothing above 1000 tokens is resolved. {_AT_FINISH}",
    )


def _tokens(field: str, sample: str, caveat: str = "") -> Row:
    return Row(field, (sample,), quality=Quality.LAGGING, source=_REPORTER, caveat=f"{caveat} {_AT_FINISH}".strip())


_ROWS = (
    _tokens("prompt_tokens_total", "nv_llm_input_token_len_sum", "As sent, reused blocks included."),
    Row(
        "prefill_tokens_total",
        ("nv_llm_input_token_len_sum",),
        quality=Quality.APPROXIMATE,
        source=_REPORTER,
        caveat=f"{UPPER_BOUND} {_AT_FINISH}",
    ),
    _tokens("decode_tokens_total", "nv_llm_output_token_len_sum"),
    Row(
        "engine_steps_total",
        ('nv_trt_llm_general_metrics{general_type="iteration_counter"}',),
        source=_REPORTER,
        caveat=f"A gauge that counts up. {_BY_POSITION}",
    ),
    *REQUESTS,
    FIRST_RESPONSE,
    E2E,
    QUEUE,
    _length("request_prompt_tokens", "nv_llm_input_token_len"),
    _length("request_generation_tokens", "nv_llm_output_token_len"),
    _gauge("requests_running", _requests("scheduled"), caveat=_BY_POSITION),
    _gauge("requests_waiting", _requests("waiting"), PENDING, caveat="The engine's queue and Triton's before it."),
    Row(
        "requests_waiting",
        (PENDING,),
        versions=">=23.11",
        source=_REPORTER,
        caveat="Triton's queue only: this back end does not tell the engine's.",
    ),
    Row(
        "batch_limit_requests",
        (_requests("max"),),
        source=_REPORTER,
        caveat=f"The limit of admitted requests. {_BY_POSITION}",
    ),
    # refused where the back end's own share says otherwise: then the labels have shifted
    _gauge(
        "kv_cache_usage_ratio",
        _blocks("used"),
        over=(_blocks("max"),),
        agrees=_blocks("fraction"),
        caveat="Used blocks over all; refused where the reported fraction differs, for then the labels have shifted.",
    ),
    Row(
        "kv_cache_capacity_tokens",
        (_blocks("max"),),
        times=(_blocks("tokens_per"),),
        source=_REPORTER,
        caveat=f"Blocks times their size. {_BY_POSITION}",
    ),
)

RUNTIME = Runtime(
    name="triton-trtllm",
    title="Triton with TensorRT-LLM",
    health="/v2/health/ready",
    prefixes=("nv_trt_llm_", "nv_llm_"),
    fingerprints=(Fingerprint((Mark("nv_inference_*"), Mark("nv_trt_llm_*"))),),
    rows=_ROWS,
    model_labels=("model",),
    engine_labels=(VERSION,),
    # models without are an ensemble's pre- and post-processing, or the ensemble itself
    living=_REQUESTS,
    ignored=(
        "nv_trt_llm_runtime_memory_metrics", "nv_trt_llm_inflight_batcher_metrics", "nv_trt_llm_v1_metrics",
        "nv_trt_llm_disaggregated_serving_metrics",
    ),
    missing={
        "cached_prompt_tokens_total": "reused blocks are a gauge",
        "prefix_cache_query_tokens_total": "reused blocks are a gauge",
        "prefix_cache_hit_tokens_total": "reused blocks are a gauge",
        "preemptions_total": "paused requests are a gauge of one iteration; nothing counts them",
        "speculative_draft_tokens_total": "not reported",
        "speculative_accepted_tokens_total": "not reported",
        "http_responses_total": NO_HTTP,
        "inter_token_latency_seconds": NOT_OBSERVED,
        "time_per_output_token_seconds": NOT_OBSERVED,
        "request_prefill_time_seconds": "compute times are the whole generation's",
        "request_decode_time_seconds": "compute times are the whole generation's",
        "context_limit_tokens": NO_LIMIT,
        "model_gpu_memory_bytes": "runtime_memory_metrics is the runtime's own, without weights",
    },
    versions=">=23.11,<=26.9",
)  # fmt: skip
