"""vLLM 0.6 to 0.33: the table, whose rows are in `vllm_tokens` and `vllm_rows`. What its page cannot tell: docs/vllm.md."""

from __future__ import annotations

from llm_serving_exporter.normalise.mapping import Fingerprint, Flags, Mark, Runtime
from llm_serving_exporter.normalise.runtimes.vllm_endpoints import ENDPOINTS, SHOWS
from llm_serving_exporter.normalise.runtimes.vllm_rows import ESTIMATES, GAUGES, LATENCIES, REQUESTS
from llm_serving_exporter.normalise.runtimes.vllm_tokens import PREFIX_CACHE, TOKENS

_NOT_READ = (
    "vllm:num_requests_kv_fetch_by_stage",
    "vllm:engine_sleep_state",
    "vllm:lora_requests_info",
    "vllm:external_prefix_cache_queries*",
    "vllm:mm_cache_*",
    "vllm:prompt_tokens_*",
    "vllm:corrupted_requests*",
    "vllm:watermark_requests*",
    "vllm:estimated_write_bytes_per_gpu*",
    "vllm:spec_decode_*",
    "vllm:diffusion_*",
    "vllm:tool_call_parser_invocations*",
    "vllm:request_inference_time_seconds",
    "vllm:request_max_num_generation_tokens",
    "vllm:request_params_*",
    "vllm:request_prefill_kv_computed_tokens",
    "vllm:request_num_preemptions",
    "vllm:kv_block_*",
    "vllm:kv_offload_*",
    "vllm:simple_kv_offload_*",
    "vllm:nixl_*",
    "vllm:mooncake_*",
    "vllm:hf3fs_*",
    "vllm:hisparse_*",
    "vllm:umbp_*",
    "vllm:websocket_*",
    "vllm:sleep_mode_*",
    "vllm:rl_weight_update_*",
    "vllm:gpu_cache_usage_perc",
    "vllm:gpu_prefix_cache_*",
    "vllm:time_per_output_token_seconds",
    # V0 engine only
    "vllm:num_requests_swapped",
    "vllm:cpu_cache_usage_perc",
    "vllm:cpu_prefix_cache_hit_rate",
    "vllm:gpu_prefix_cache_hit_rate",
    "vllm:time_in_queue_requests",
    "vllm:model_forward_time_milliseconds",
    "vllm:model_execute_time_milliseconds",
    "vllm:tokens_total",
    "vllm:avg_*_throughput_toks_per_s",
    "vllm:request_params_best_of",
    # llm-d's simulator
    "vllm:max_num_generation_tokens",
)

# processes that pass vLLM's names on beside their own: each has a table of its own
_OTHERS_WITH_ITS_NAMES = (
    Mark("nv_inference_*"), Mark("dynamo_component_*"), Mark("dynamo_frontend_*"), Mark("ray_*"),
    # the production-stack's router
    Mark("vllm:healthy_pods_total"), Mark("vllm:*", "server"),
)  # fmt: skip

# the last is what the Rust front end has before its first request
_ITS_OWN = (
    "vllm:generation_tokens",
    "vllm:cache_config_info",
    "vllm:iteration_tokens_total",
    "vllm:num_requests_running",
)

# bucket edges of an unconfigured 0.33.0 (vllm/v1/metrics/buckets.py); only for warnings about thresholds
_TTFT_EDGES = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560,
)  # fmt: skip
_ITL_EDGES = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
_REQUEST_EDGES = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)

RUNTIME = Runtime(
    name="vllm",
    title="vLLM",
    prefixes=("vllm:",),
    fingerprints=tuple(Fingerprint((Mark(name),), _OTHERS_WITH_ITS_NAMES) for name in _ITS_OWN),
    rows=(*TOKENS, *PREFIX_CACHE, *REQUESTS, *ESTIMATES, *LATENCIES, *GAUGES),
    model_labels=("model_name",),
    engine_labels=("engine",),
    # with several API servers 0.9.2 to 0.11.0 give gauges a series a process, of which the newest cannot be told: the largest counts
    rank_labels=("pid",),
    # its instrumentation counts what this exporter asks, refusals too where the server wants a key
    never={"handler": frozenset({"/v1/models", "/server_info"})},
    start_sample="process_start_time_seconds",
    # NVIDIA NIM 2.x passes the page on under the second
    paths=("/metrics", "/v1/metrics"),
    endpoints=ENDPOINTS,
    flags=Flags(("--max-num-seqs",), source="https://docs.vllm.ai/en/latest/cli/serve.html"),
    shows=SHOWS,
    ignored=_NOT_READ,
    # each attention layer does it for itself, in a worker (model_executor/layers/attention, from PR 30141 on; models/deepseek_v4/attention.py)
    kv_as_calibrated={"compressed-tensors": ">=0.15", "deepseek_v4": ""},
    default_edges={"ttft": _TTFT_EDGES, "itl": _ITL_EDGES, "e2e": _REQUEST_EDGES},
    missing={
        "context_limit_tokens": "not on the page; from /v1/models, or the setting",
        "model_gpu_memory_bytes": "not on the page",
    },
    versions=">=0.6,<=0.33",
    covered="0.32.0; 0.8.5, 0.10.2, 0.17.1 (simulated)",
)
