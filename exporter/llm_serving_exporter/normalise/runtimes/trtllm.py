"""TensorRT-LLM's trtllm-serve, its Prometheus page. Facts: `tensorrt_llm/metrics/collector.py` at 050f80de; traps: docs/tensorrt-llm.md."""

from __future__ import annotations

from llm_serving_exporter.model.snapshot import Quality
from llm_serving_exporter.normalise.mapping import Aggregate, Fingerprint, Mark, Reads, Row, Runtime
from llm_serving_exporter.normalise.runtimes.trtllm_endpoints import ENDPOINTS, FLAGS, SHOWS

_COLLECTOR = (
    "https://github.com/NVIDIA/TensorRT-LLM/blob/050f80def8df236e326949c8bd9dee10fd896a83/"
    "tensorrt_llm/metrics/collector.py"
)
_FIRST_FIVE = "https://github.com/NVIDIA/TensorRT-LLM/pull/5785"

# 1.1 and 1.2 have these names without prefix
_BARE = (
    "request_success_total",
    "e2e_request_latency_seconds",
    "time_to_first_token_seconds",
    "time_per_output_token_seconds",
    "request_queue_time_seconds",
)

_AT_FINISH = "Booked when a request finishes; aborted requests are missing."
_N = "Of a request with n > 1 one sequence only."
_NO_ZERO = "A time of exactly 0 is not observed."
_ITERATIONS = "Only with enable_iter_perf_stats."
_FROZEN = f"{_ITERATIONS} Updated when a request finishes, and keeps its last value otherwise."
_ONE_RANK = "With attention data parallelism the rank that reported last."
_CLIENT_ERRORS = {str(code): "4xx" for code in range(400, 500)}
_FAILED = 'trtllm_request_error_total{http_code="500|501|502|503|504"}'
_SERVER_ERRORS = {str(code): "5xx" for code in range(500, 600)}


def _row(field: str, *samples: str, **more: object) -> Row:
    return Row(field, samples, **{"source": _COLLECTOR, **more})  # type: ignore[arg-type]  # keyword passthrough


def _booked(field: str, *samples: str, caveat: str = _AT_FINISH, **more: object) -> Row:
    return _row(field, *samples, quality=Quality.LAGGING, caveat=caveat, **more)


def _gauge(field: str, sample: str, caveat: str, **more: object) -> Row:
    return _row(
        field,
        sample,
        aggregate=Aggregate.MAX,
        quality=Quality.SLOW,
        freezes=True,
        born_at_first_event=True,
        caveat=f"{caveat} {_FROZEN} {_ONE_RANK}".strip(),
        **more,
    )


def _histogram(field: str, sample: str, caveat: str) -> tuple[Row, ...]:
    """The prefixed name, and the bare one of 1.1 and 1.2 where it had it."""
    now = _booked(field, f"trtllm_{sample}", reads=Reads.HISTOGRAM, versions=">=1.3", caveat=f"{caveat} {_AT_FINISH}")
    if sample not in _BARE:
        return (now,)
    then = _booked(
        field,
        sample,
        reads=Reads.HISTOGRAM,
        versions=">=1.1,<1.3",
        source=_FIRST_FIVE,
        caveat=f"{caveat} {_AT_FINISH}",
    )
    return now, then


_TOKENS = (
    _booked(
        "prompt_tokens_total",
        "trtllm_prompt_tokens_total",
        versions=">=1.3",
        caveat=f"As sent, cached tokens included. {_AT_FINISH}",
    ),
    _booked(
        "prefill_tokens_total",
        "trtllm_prefill_batch_tokens_sum",
        versions=">=1.3",
        caveat=f"Context tokens of every iteration, recomputed ones included, updated when a request finishes. {_ITERATIONS}",
    ),
    _booked(
        "prefill_tokens_total",
        "trtllm_prompt_tokens_total",
        minus=("trtllm_prompt_cached_tokens_total",),
        may_fall=True,
        versions=">=1.3",
        caveat=f"Prompts less cached tokens, counted on by the exporter from 0. {_AT_FINISH}",
    ),
    _booked("cached_prompt_tokens_total", "trtllm_prompt_cached_tokens_total", versions=">=1.3"),
    _booked("decode_tokens_total", "trtllm_generation_tokens_total", versions=">=1.3", caveat=f"{_AT_FINISH} {_N}"),
    _booked("prefix_cache_query_tokens_total", "trtllm_prompt_tokens_total", versions=">=1.3"),
    _booked("prefix_cache_hit_tokens_total", "trtllm_prompt_cached_tokens_total", versions=">=1.3"),
    _booked("prefix_cache_queries", "trtllm_prompt_tokens_total", versions=">=1.3"),
    _booked("prefix_cache_hits", "trtllm_prompt_cached_tokens_total", versions=">=1.3"),
    _booked(
        "speculative_draft_tokens_total",
        "trtllm_spec_decode_num_draft_tokens_total",
        versions=">=1.3",
        caveat=f"Of every iteration, updated when a request finishes. {_ITERATIONS}",
    ),
    _booked(
        "speculative_accepted_tokens_total",
        "trtllm_spec_decode_num_accepted_tokens_total",
        versions=">=1.3",
        caveat=f"Of every iteration, updated when a request finishes. {_ITERATIONS}",
    ),
)

_REQUESTS = (
    _row(
        "requests_finished_total",
        "trtllm_request_success_total",
        _FAILED,
        named={_FAILED: "error"},
        by="finished_reason",
        rename={"cancelled": "abort"},
        versions=">=1.3",
        caveat="Errors are the requests answered with HTTP 5xx. Requests of /v1/responses may be missing.",
    ),
    # the label's name changed between the first version and the next: the page shows which it is
    _row(
        "requests_finished_total",
        'request_success_total{finish_reason=""}',
        by="finished_reason",
        rename={"cancelled": "abort"},
        versions=">=1.1,<1.3",
        source=_FIRST_FIVE,
        caveat="Errors are not counted.",
    ),
    _row(
        "requests_finished_total",
        "request_success_total",
        by="finish_reason",
        rename={"cancelled": "abort"},
        versions="<1.2",
        source=_FIRST_FIVE,
        caveat="Errors are not counted.",
    ),
    _row(
        "http_responses_total",
        "trtllm_request_error_total",
        by="http_code",
        rename={**_CLIENT_ERRORS, **_SERVER_ERRORS},
        versions=">=1.3",
        caveat="Answers with an error only: there is no 2xx.",
    ),
)

_LATENCIES = (
    *_histogram("time_to_first_token_seconds", "time_to_first_token_seconds", _NO_ZERO),
    *_histogram(
        "time_per_output_token_seconds",
        "time_per_output_token_seconds",
        f"Mean per request, from the first token to the last. {_NO_ZERO} {_N}",
    ),
    *_histogram("e2e_request_latency_seconds", "e2e_request_latency_seconds", _NO_ZERO),
    *_histogram(
        "request_queue_time_seconds",
        "request_queue_time_seconds",
        "Nothing below 0.3 s is resolved. Some versions leave a time of 0 out.",
    ),
    *_histogram("request_prefill_time_seconds", "request_prefill_time_seconds", _NO_ZERO),
    *_histogram(
        "request_decode_time_seconds", "request_decode_time_seconds", f"Nothing below 0.3 s is resolved. {_NO_ZERO}"
    ),
)

_GAUGES = (
    _gauge(
        "requests_running",
        "trtllm_num_requests_running",
        "Requests admitted, in the last iteration's batch or not.",
        versions=">=1.3",
    ),
    _gauge("requests_waiting", "trtllm_num_requests_waiting", "", versions=">=1.3"),
    # max_batch_size_static is one micro-batch's, and 0 with the PyTorch back end
    _row(
        "batch_limit_requests",
        "trtllm_max_num_active_requests",
        aggregate=Aggregate.MAX,
        born_at_first_event=True,
        versions=">=1.3",
        caveat=f"The limit of admitted requests: max_batch_size times the pipeline's micro-batches. {_ITERATIONS}",
    ),
    _gauge(
        "kv_cache_usage_ratio",
        "trtllm_kv_cache_utilization",
        "Blocks in use.",
        versions=">=1.3",
    ),
    _row(
        "kv_cache_capacity_tokens",
        "trtllm_kv_cache_max_blocks",
        times=("trtllm_kv_cache_tokens_per_block",),
        born_at_first_event=True,
        versions=">=1.3",
        caveat=f"Blocks times their size; with attention data parallelism one rank's. {_ITERATIONS}",
    ),
    Row(
        "context_limit_tokens",
        ("trtllm_model_config_info",),
        reads=Reads.LABELS,
        labels=("max_model_len",),
        versions=">=1.3",
        source=_COLLECTOR,
        caveat="Only where the server was started with a limit.",
    ),
    Row(
        "kv_cache_dtype",
        ("trtllm_kv_cache_config_info",),
        reads=Reads.TEXT,
        labels=("cache_dtype",),
        versions=">=1.3",
        source=_COLLECTOR,
    ),
    Row(
        "kv_block_tokens",
        ("trtllm_kv_cache_config_info",),
        reads=Reads.LABELS,
        labels=("page_size",),
        versions=">=1.3",
        source=_COLLECTOR,
    ),
)

_NOT_READ = (
    "trtllm_prompt_cache_hit_tokens*",
    "trtllm_prompt_cached_tokens_per_request",
    "trtllm_num_requests_completed*",
    "trtllm_num_scheduled_requests",
    "trtllm_num_context_requests",
    "trtllm_num_generation_requests",
    "trtllm_num_paused_requests",
    "trtllm_total_context_tokens",
    "trtllm_max_batch_size_*",
    "trtllm_max_num_tokens_runtime",
    "trtllm_iteration_latency_seconds",
    "trtllm_avg_decoded_tokens_per_iter",
    "trtllm_prefill_batch_occupancy",
    "trtllm_prefill_perplexity",
    "trtllm_generation_perplexity",
    "trtllm_request_inference_time_seconds",
    "trtllm_scheduled_batch_size",
    "trtllm_spec_decode_*",
    "trtllm_speculative_config_info",
    "trtllm_parallel_config_info",
    "trtllm_gpu_memory_usage_bytes",
    "trtllm_cpu_memory_usage_bytes",
    "trtllm_pinned_memory_usage_bytes",
    "trtllm_kv_cache_hit_rate",
    "trtllm_kv_cache_host_utilization",
    "trtllm_kv_cache_free_blocks",
    "trtllm_kv_cache_used_blocks",
    "trtllm_kv_cache_reused_blocks*",
    "trtllm_kv_cache_missed_blocks*",
    "trtllm_kv_cache_iter_*",
    "trtllm_kv_cache_gen_alloc_blocks*",
    "trtllm_kv_cache_onboard_bytes*",
    "trtllm_kv_cache_offload_bytes*",
    "trtllm_kv_cache_disk_prefetch_blocks*",
    "trtllm_kv_cache_intra_device_copy_bytes*",
)

RUNTIME = Runtime(
    name="trtllm",
    title="TensorRT-LLM",
    born_at_first_event=True,
    # /metrics is another thing there: JSON that is emptied by reading it, so it is never asked
    paths=("/prometheus/metrics",),
    prefixes=("trtllm_", *_BARE),
    fingerprints=(
        # a Dynamo worker passes these names on, and has a table of its own
        Fingerprint((Mark("trtllm_*", "engine_type"),), (Mark("dynamo_component_*"),)),
        Fingerprint((Mark("time_to_first_token_seconds", "engine_type"),), (Mark("dynamo_component_*"),)),
        Fingerprint((Mark("request_success_total", "engine_type"),), (Mark("dynamo_component_*"),)),
    ),
    rows=(*_TOKENS, *_REQUESTS, *_LATENCIES, *_GAUGES),
    model_labels=("model_name",),
    unnamed=frozenset({"undefined"}),
    rank_labels=("pid",),
    endpoints=ENDPOINTS,
    flags=FLAGS,
    shows=SHOWS,
    ignored=_NOT_READ,
    missing={
        "preemptions_total": "paused requests are a gauge of one iteration; nothing counts them",
        "engine_steps_total": "iterations are not counted; prefill_batch_tokens observes only those with context tokens",
        "requests_rejected_total": "not counted apart from other errors",
        "inter_token_latency_seconds": "only the mean per request is observed",
        "request_prompt_tokens": "prompt lengths are not observed",
        "request_generation_tokens": "answer lengths are not observed",
        "model_gpu_memory_bytes": "gpu_memory_usage_bytes is all that is in use on the device",
    },
    # _torch/pyexecutor/model_loader.py, validate_and_set_kv_cache_quant
    kv_as_calibrated={"modelopt": ""},
    default_edges={
        "ttft": (
            0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560,
        ),
        "e2e": (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680),
    },
    versions=">=1.1,<=1.4",
    covered="1.3, collector at 050f80de (simulated)",
)  # fmt: skip
