"""vLLM 0.8 to 0.33: the table. Facts: vLLM's `vllm/v1/metrics/loggers.py` and `stats.py` at each release; limits: docs/vllm.md."""

from __future__ import annotations

from llm_serving_exporter.model.snapshot import Quality
from llm_serving_exporter.normalise.mapping import Aggregate, Reads, Row, Runtime
from llm_serving_exporter.normalise.vllm_endpoints import ENDPOINTS

_LOGGERS = "https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/v1/metrics/loggers.py"
_STATS = "https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/v1/metrics/stats.py"
_BLOCKS_TO_TOKENS = "https://github.com/vllm-project/vllm/pull/15755"
_INSTRUMENTATOR = "https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/entrypoints/serve/instrumentator/metrics.py"

_CACHE_INFO = "vllm:cache_config_info"
_BLOCK_SIZE = (_CACHE_INFO, "block_size")
# V1 wrote "None" into num_gpu_blocks until 0.9.0, the release that also moved the prefix counters from blocks to tokens
_BEFORE_0_9 = (_CACHE_INFO, "num_gpu_blocks", "None")
_CACHING_OFF = (_CACHE_INFO, "enable_prefix_caching", "False")

_AT_FIRST_OUTPUT = (
    "Booked in one lump with the request's first output token; a request aborted before that is never booked: "
    "use windows longer than the longest prefill."
)
_AT_ADMISSION = "Hits are booked at admission, prompts at the first token; requests aborted before it stay in the hits."
_COUNTED_ON = "Counted on by the exporter from 0, because the difference dips."
_AT_FINISH = "Booked when a request finishes; aborted requests are missing."


def _counter(field: str, *samples: str, **more: object) -> Row:
    return Row(field, samples, **{"source": _LOGGERS, **more})  # type: ignore[arg-type]  # keyword passthrough


def _prefix(field: str, *samples: str, **more: object) -> Row:
    return _counter(field, *samples, unless=_CACHING_OFF, **more)


def _histogram(field: str, sample: str, **more: object) -> Row:
    return Row(field, (sample,), reads=Reads.HISTOGRAM, **{"source": _LOGGERS, **more})  # type: ignore[arg-type]  # keyword passthrough


_TOKENS = (
    _counter(
        "prompt_tokens_total",
        "vllm:prompt_tokens_total",
        caveat=f"Includes cached and transferred tokens, and each choice of an n>1 request. {_AT_FIRST_OUTPUT}",
    ),
    _counter(
        "prefill_tokens_total",
        "vllm:prompt_tokens_by_source_total",
        where={"source": frozenset({"local_compute"})},
        versions=">=0.16",
        source=_STATS,
        caveat=f"Tokens recomputed after a preemption are not counted. {_AT_FIRST_OUTPUT}",
    ),
    _counter(
        "prefill_tokens_total",
        "vllm:prompt_tokens_total",
        when=_CACHING_OFF,
        versions="<0.16",
        caveat=f"With prefix caching off every prompt token is computed. {_AT_FIRST_OUTPUT}",
    ),
    _counter(
        "prefill_tokens_total",
        "vllm:request_prefill_kv_computed_tokens_sum",
        versions=">=0.13,<0.16",
        quality=Quality.LAGGING,
        caveat=_AT_FINISH,
    ),
    _counter(
        "prefill_tokens_total",
        "vllm:prompt_tokens_total",
        minus=("vllm:prefix_cache_hits_total", "vllm:external_prefix_cache_hits_total"),
        versions=">=0.9.2,<0.13",
        quality=Quality.APPROXIMATE,
        may_fall=True,
        caveat=f"Prompt tokens less prefix-cache hits. {_AT_ADMISSION} {_COUNTED_ON}",
    ),
    _counter(
        "prefill_tokens_total",
        "vllm:prompt_tokens_total",
        minus=("vllm:gpu_prefix_cache_hits_total",),
        versions=">=0.9,<0.9.2",
        guarded=True,
        quality=Quality.APPROXIMATE,
        may_fall=True,
        caveat=f"Prompt tokens less prefix-cache hits. {_AT_ADMISSION} {_COUNTED_ON}",
    ),
    _counter(
        "prefill_tokens_total",
        "vllm:prompt_tokens_total",
        minus=("vllm:gpu_prefix_cache_hits_total",),
        times_label=_BLOCK_SIZE,
        versions=">=0.8,<0.9",
        guarded=True,
        proof=_BEFORE_0_9,
        quality=Quality.APPROXIMATE,
        may_fall=True,
        source=_BLOCKS_TO_TOKENS,
        caveat=f"Prompt tokens less hit blocks x block size. {_AT_ADMISSION} {_COUNTED_ON}",
    ),
    _counter(
        "cached_prompt_tokens_total",
        "vllm:prompt_tokens_cached_total",
        versions=">=0.16",
        caveat=f"Local hits and tokens fetched by a KV connector. {_AT_FIRST_OUTPUT}",
    ),
    _counter(
        "cached_prompt_tokens_total",
        "vllm:prefix_cache_hits_total",
        "vllm:external_prefix_cache_hits_total",
        versions=">=0.9.2,<0.16",
        caveat=_AT_ADMISSION,
    ),
    _counter(
        "cached_prompt_tokens_total",
        "vllm:gpu_prefix_cache_hits_total",
        versions=">=0.9,<0.9.2",
        guarded=True,
        caveat=_AT_ADMISSION,
    ),
    _counter(
        "cached_prompt_tokens_total",
        "vllm:gpu_prefix_cache_hits_total",
        times_label=_BLOCK_SIZE,
        versions=">=0.8,<0.9",
        guarded=True,
        proof=_BEFORE_0_9,
        source=_BLOCKS_TO_TOKENS,
        caveat=f"Counted in blocks there; blocks x block size. {_AT_ADMISSION}",
    ),
    _counter(
        "decode_tokens_total",
        "vllm:generation_tokens_total",
        caveat="Includes each answer's first token (made by prefill), tokens of aborted requests, and every accepted speculative token.",
    ),
)

_PREFIX_CACHE = (
    _prefix(
        "prefix_cache_query_tokens_total",
        "vllm:prefix_cache_queries_total",
        versions=">=0.9.2",
        caveat="Booked at first admission; includes requests aborted while prefilling, and before 0.11.1 preempted ones again.",
    ),
    _prefix(
        "prefix_cache_query_tokens_total", "vllm:gpu_prefix_cache_queries_total", versions=">=0.9,<0.9.2", guarded=True
    ),
    _prefix(
        "prefix_cache_query_tokens_total",
        "vllm:gpu_prefix_cache_queries_total",
        times_label=_BLOCK_SIZE,
        versions=">=0.8,<0.9",
        guarded=True,
        proof=_BEFORE_0_9,
        source=_BLOCKS_TO_TOKENS,
        caveat="Counted in blocks there; blocks x block size.",
    ),
    _prefix(
        "prefix_cache_hit_tokens_total",
        "vllm:prefix_cache_hits_total",
        "vllm:external_prefix_cache_hits_total",
        versions=">=0.9.2",
        caveat="Local hits plus the KV connector's: the connector is asked only for what the local cache lacks.",
    ),
    _prefix("prefix_cache_hit_tokens_total", "vllm:gpu_prefix_cache_hits_total", versions=">=0.9,<0.9.2", guarded=True),
    _prefix(
        "prefix_cache_hit_tokens_total",
        "vllm:gpu_prefix_cache_hits_total",
        times_label=_BLOCK_SIZE,
        versions=">=0.8,<0.9",
        guarded=True,
        proof=_BEFORE_0_9,
        source=_BLOCKS_TO_TOKENS,
        caveat="Counted in blocks there; blocks x block size.",
    ),
    # 0.9.2 to 0.10.2 have both names at once: the first row that matches is read, they are never added
    _prefix("prefix_cache_queries", "vllm:prefix_cache_queries_total", versions=">=0.9.2"),
    _prefix("prefix_cache_queries", "vllm:gpu_prefix_cache_queries_total", versions=">=0.7.3,<0.9.2"),
    _prefix(
        "prefix_cache_hits", "vllm:prefix_cache_hits_total", "vllm:external_prefix_cache_hits_total", versions=">=0.9.2"
    ),
    _prefix("prefix_cache_hits", "vllm:gpu_prefix_cache_hits_total", versions=">=0.7.3,<0.9.2"),
)

_REQUESTS = (
    _counter(
        "requests_finished_total",
        "vllm:request_success_total",
        by="finished_reason",
        caveat="A client that disconnects is never counted, not even as abort; each choice of an n>1 request counts.",
    ),
    _counter(
        "requests_rejected_total",
        "vllm:admission_rejections_total",
        by="reason",
        versions=">=0.32",
        caveat='Moves only with --max-num-queued-reqs or --max-num-queued-tokens; has no engine label, so engine is "" under data parallelism.',
    ),
    _counter(
        "http_responses_total",
        "http_requests_total",
        by="status",
        source=_INSTRUMENTATOR,
        caveat="A rejection inside a stream counts as 2xx; /metrics, /health, /load, /ping and /version are not counted.",
    ),
    _counter("preemptions_total", "vllm:num_preemptions_total"),
    _counter(
        "engine_steps_total",
        "vllm:iteration_tokens_total_count",
        multiprocess_quality=Quality.APPROXIMATE,
        caveat="A lower bound: steps without output (prefill chunks but the last) are not observed. With several API servers each observes its share of a step, and the sum is above the steps made.",
    ),
    _counter(
        "speculative_draft_tokens_total",
        "vllm:spec_decode_num_draft_tokens_total",
        caveat="Only with a speculative config.",
    ),
    _counter(
        "speculative_accepted_tokens_total",
        "vllm:spec_decode_num_accepted_tokens_total",
        caveat="Only with a speculative config.",
    ),
)

_ESTIMATES = (  # the engine's own arithmetic; there without --enable-mfu-metrics too, and then 0
    _counter("estimated_read_bytes_per_gpu", "vllm:estimated_read_bytes_per_gpu_total", versions=">=0.17"),
    _counter("estimated_flops_per_gpu", "vllm:estimated_flops_per_gpu_total", versions=">=0.17"),
)

_LATENCIES = (
    _histogram(
        "time_to_first_token_seconds",
        "vllm:time_to_first_token_seconds",
        caveat="From arrival at the front end (before tokenisation) to its handling of the first output; queueing included.",
    ),
    _histogram(
        "inter_token_latency_seconds",
        "vllm:inter_token_latency_seconds",
        versions=">=0.10.2",
        caveat="One event per output step, not per token: under speculation a step has several tokens. Nothing below 10 ms is resolved.",
    ),
    _histogram(
        "inter_token_latency_seconds",
        "vllm:time_per_output_token_seconds",
        versions="<0.10.2",
        caveat="The same quantity's older name.",
    ),
    _histogram(
        "time_per_output_token_seconds",
        "vllm:request_time_per_output_token_seconds",
        versions=">=0.11",
        quality=Quality.LAGGING,
        caveat=f"Mean per request; a request with at most one output token is booked as 0 and drags low quantiles. {_AT_FINISH}",
    ),
    _histogram(
        "e2e_request_latency_seconds", "vllm:e2e_request_latency_seconds", quality=Quality.LAGGING, caveat=_AT_FINISH
    ),
    _histogram(
        "request_queue_time_seconds",
        "vllm:request_queue_time_seconds",
        quality=Quality.LAGGING,
        caveat=f"Engine core only, first queued to first scheduled; nothing below 0.3 s is resolved. {_AT_FINISH}",
    ),
    _histogram(
        "request_prefill_time_seconds",
        "vllm:request_prefill_time_seconds",
        quality=Quality.LAGGING,
        caveat=f"First scheduled to first token, preemptions included. {_AT_FINISH}",
    ),
    _histogram(
        "request_decode_time_seconds",
        "vllm:request_decode_time_seconds",
        quality=Quality.LAGGING,
        caveat=f"First to last token, preemptions included. {_AT_FINISH}",
    ),
    _histogram(
        "request_prompt_tokens",
        "vllm:request_prompt_tokens",
        quality=Quality.LAGGING,
        caveat=f"The top edge is below max_model_len (8192: 5000). {_AT_FINISH}",
    ),
    _histogram(
        "request_generation_tokens", "vllm:request_generation_tokens", quality=Quality.LAGGING, caveat=_AT_FINISH
    ),
)

# With several API servers up to 0.11.0 gauges carry a pid label, a series a process, of which the newest cannot be told:
# the largest is taken.
_GAUGES = (
    _counter(
        "requests_running",
        "vllm:num_requests_running",
        aggregate=Aggregate.MAX,
        caveat="What the last processed step left; counts prefilling requests too. A starved front end can read 0 while tokens flow.",
    ),
    _counter("requests_waiting", "vllm:num_requests_waiting", aggregate=Aggregate.MAX),
    _counter(
        "kv_cache_usage_ratio",
        "vllm:kv_cache_usage_perc",
        aggregate=Aggregate.MAX,
        versions=">=0.9.2",
        caveat="Blocks held by live requests; evictable prefix-cached blocks count as free. One number over all groups of a hybrid model.",
    ),
    _counter(
        "kv_cache_usage_ratio",
        "vllm:gpu_cache_usage_perc",
        aggregate=Aggregate.MAX,
        versions="<0.9.2",
        caveat="The same quantity's older name.",
    ),
    Row(
        "kv_cache_capacity_tokens",
        (_CACHE_INFO,),
        reads=Reads.LABELS,
        labels=("kv_cache_size_tokens",),
        versions=">=0.24",
        source="https://github.com/vllm-project/vllm/pull/42206",
    ),
    Row(
        "kv_cache_capacity_tokens",
        (_CACHE_INFO,),
        reads=Reads.LABELS,
        labels=("num_gpu_blocks", "block_size"),
        shared_by_engines=True,
        versions="<0.24",
        source="https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/v1/engine/core_client.py",
        caveat="num_gpu_blocks x block_size, the label being the sum over the engines of the page; wrong for hybrid models, absent in 0.8.",
    ),
    Row("kv_cache_dtype", (_CACHE_INFO,), reads=Reads.TEXT, labels=("cache_dtype",), versions=">=0.8", source=_LOGGERS),
    Row("kv_block_tokens", (_CACHE_INFO,), reads=Reads.LABELS, labels=("block_size",), source=_LOGGERS),
    _counter("awake", "vllm:engine_sleep_state", where={"sleep_state": frozenset({"awake"})}, versions=">=0.11.1"),
)

_NOT_READ = (
    "vllm:num_requests_waiting_by_reason",
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
)

# bucket edges of an unconfigured 0.33.0 (vllm/v1/metrics/buckets.py); only for warnings about thresholds
_TTFT_EDGES = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560,
)  # fmt: skip
_ITL_EDGES = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
_REQUEST_EDGES = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)

VLLM = Runtime(
    name="vllm",
    title="vLLM",
    prefixes=("vllm:",),
    fingerprint=("vllm:generation_tokens", "vllm:cache_config_info", "vllm:iteration_tokens_total"),
    rows=(*_TOKENS, *_PREFIX_CACHE, *_REQUESTS, *_ESTIMATES, *_LATENCIES, *_GAUGES),
    model_label="model_name",
    engine_label="engine",
    start_sample="process_start_time_seconds",
    paths=("/metrics",),
    endpoints=ENDPOINTS,
    ignored=_NOT_READ,
    default_edges={"ttft": _TTFT_EDGES, "itl": _ITL_EDGES, "e2e": _REQUEST_EDGES},
    versions=">=0.8,<=0.33",
)
