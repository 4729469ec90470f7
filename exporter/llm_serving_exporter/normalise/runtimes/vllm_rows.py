"""vLLM's rows of requests, latencies and gauges. Facts: as for its tokens."""

from __future__ import annotations

from llm_serving_exporter.model.snapshot import Quality
from llm_serving_exporter.normalise.mapping import Reads, Row
from llm_serving_exporter.normalise.runtimes.vllm_tokens import AT_FINISH, CACHE_INFO, LOGGERS, V0, counter, histogram

_INSTRUMENTATOR = "https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/entrypoints/serve/instrumentator/metrics.py"
_SIMULATOR = "https://github.com/llm-d/llm-d-inference-sim/blob/v0.10.2/pkg/llm-d-inference-sim/metrics.go"
_NIM = "https://docs.nvidia.com/nim/large-language-models/latest/observability.html"
_SPECULATION = "https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/v1/spec_decode/metrics.py"

_CONNECTORS = "https://github.com/vllm-project/vllm/tree/v0.32.0/vllm/distributed/kv_transfer/kv_connector/v1"
# one of each connector that there is; each is on the page only with its connector
_CONNECTOR_SAMPLES = (
    "vllm:num_requests_kv_fetch_by_stage", "vllm:nixl_xfer_time_seconds", "vllm:mooncake_xfer_time_seconds",
    "vllm:mooncake_store_operation_time_seconds", "vllm:kv_offload_load_bytes_total", "vllm:kv_offload_total_bytes",
    "vllm:simple_kv_offload_info", "vllm:hf3fs_load_duration_seconds", "vllm:hisparse_host_cache_usage_perc",
    "vllm:umbp_transfer_submitted_total",
)  # fmt: skip

# only the V1 engine has it, and only it has the label
_V1_SPECULATES = ("vllm:spec_decode_num_drafts_total", "engine", "0")
_V1_SPECULATION = "Only with a speculative config. Of the V1 engine: V0 added its running totals up again and again under the same names."

_NO_DISCONNECTS = "A client that disconnects is never counted, not even as abort; each choice of an n>1 request counts."

REQUESTS = (
    # llm-d's simulator of a vLLM server spells the label otherwise
    counter(
        "requests_finished_total",
        'vllm:request_success_total{finished_reason=""}',
        by="finish_reason",
        source=_SIMULATOR,
        caveat="The words are the simulator's. Errors are not counted.",
    ),
    counter(
        "requests_finished_total",
        "vllm:request_success_total",
        by="finished_reason",
        rename={"error": "error"},
        versions=">=0.13",
        guarded=True,
        proof=("vllm:request_success_total", "finished_reason", "error"),
        caveat=f"{_NO_DISCONNECTS} Errors since 0.13; where neither the page nor the version shows that they are counted, the errors SLO does not use them.",
    ),
    counter(
        "requests_finished_total",
        "vllm:request_success_total",
        by="finished_reason",
        versions="<0.13",
        caveat=f"{_NO_DISCONNECTS} Errors are not counted.",
    ),
    counter(
        "requests_rejected_total",
        "vllm:admission_rejections_total",
        by="reason",
        versions=">=0.32",
        caveat='Moves only with --max-num-queued-reqs or --max-num-queued-tokens; has no engine label, so engine is "" under data parallelism.',
    ),
    counter(
        "http_responses_total",
        "http_requests_total",
        by="status",
        source=_INSTRUMENTATOR,
        caveat="A rejection inside a stream counts as 2xx; /metrics, /health, /load, /ping, /version, /v1/models and /server_info are not counted.",
    ),
    counter("preemptions_total", "vllm:num_preemptions_total"),
    counter(
        "engine_steps_total",
        "vllm:iteration_tokens_total_count",
        multiprocess_quality=Quality.APPROXIMATE,
        caveat="A lower bound: steps without output (prefill chunks but the last) are not observed. With several API servers each observes its share of a step, and the sum is above the steps made.",
    ),
    counter(
        "speculative_draft_tokens_total",
        "vllm:spec_decode_num_draft_tokens_total",
        versions=">=0.10",
        guarded=True,
        proof=_V1_SPECULATES,
        source=_SPECULATION,
        caveat=_V1_SPECULATION,
    ),
    counter(
        "speculative_accepted_tokens_total",
        "vllm:spec_decode_num_accepted_tokens_total",
        versions=">=0.10",
        guarded=True,
        proof=_V1_SPECULATES,
        source=_SPECULATION,
        caveat=_V1_SPECULATION,
    ),
)

ESTIMATES = (  # the engine's own arithmetic; there without --enable-mfu-metrics too, and then 0
    counter("estimated_read_bytes_per_gpu", "vllm:estimated_read_bytes_per_gpu_total", versions=">=0.17"),
    counter("estimated_flops_per_gpu", "vllm:estimated_flops_per_gpu_total", versions=">=0.17"),
)

LATENCIES = (
    histogram(
        "time_to_first_token_seconds",
        "vllm:time_to_first_token_seconds",
        caveat="From arrival at the front end (before tokenisation) to its handling of the first output; queueing included.",
    ),
    histogram(
        "inter_token_latency_seconds",
        "vllm:inter_token_latency_seconds",
        versions=">=0.10.2",
        caveat="One event per output step, not per token: under speculation a step has several tokens. Nothing below 10 ms is resolved.",
    ),
    histogram(
        "inter_token_latency_seconds",
        "vllm:time_per_output_token_seconds",
        versions="<0.10.2",
        caveat="The same quantity's older name.",
    ),
    histogram(
        "time_per_output_token_seconds",
        "vllm:request_time_per_output_token_seconds",
        versions=">=0.11",
        quality=Quality.LAGGING,
        caveat=f"Mean per request; a request with at most one output token is booked as 0 and drags low quantiles. {AT_FINISH}",
    ),
    histogram(
        "e2e_request_latency_seconds", "vllm:e2e_request_latency_seconds", quality=Quality.LAGGING, caveat=AT_FINISH
    ),
    histogram(
        "request_queue_time_seconds",
        "vllm:request_queue_time_seconds",
        quality=Quality.LAGGING,
        caveat=f"Engine core only, first queued to first scheduled; nothing below 0.3 s is resolved. {AT_FINISH}",
    ),
    histogram(
        "request_queue_time_seconds",
        "vllm:time_in_queue_requests",
        versions=">=0.6.4,<0.9.1",
        quality=Quality.LAGGING,
        source=V0,
        caveat=f"The V0 engine's other name for it: arrival to first scheduled. {AT_FINISH}",
    ),
    histogram(
        "request_prefill_time_seconds",
        "vllm:request_prefill_time_seconds",
        quality=Quality.LAGGING,
        caveat=f"First scheduled to first token, preemptions included. {AT_FINISH}",
    ),
    histogram(
        "request_decode_time_seconds",
        "vllm:request_decode_time_seconds",
        quality=Quality.LAGGING,
        caveat=f"First to last token, preemptions included. {AT_FINISH}",
    ),
    histogram(
        "request_prompt_tokens",
        "vllm:request_prompt_tokens",
        quality=Quality.LAGGING,
        caveat=f"The top edge is below max_model_len (8192: 5000). {AT_FINISH}",
    ),
    histogram("request_generation_tokens", "vllm:request_generation_tokens", quality=Quality.LAGGING, caveat=AT_FINISH),
)

GAUGES = (
    Row(
        "batch_limit_requests",
        ("num_request_max",),
        source=_NIM,
        caveat="On the page of some NVIDIA NIM images only; else from /server_info with VLLM_SERVER_DEV_MODE=1, or the setting.",
    ),
    counter(
        "requests_running",
        "vllm:num_requests_running",
        caveat="What the last processed step left; counts prefilling requests too. A starved front end can read 0 while tokens flow.",
    ),
    counter("requests_waiting", "vllm:num_requests_waiting"),
    counter(
        "requests_deferred",
        "vllm:num_requests_waiting_by_reason",
        where={"reason": frozenset({"deferred"})},
        versions=">=0.20",
        caveat="Requests that wait for KV on its way, for a LoRA adapter's turn or for a grammar; the page does not say which.",
    ),
    *(
        Row("kv_connector", (name,), reads=Reads.PRESENCE, source=_CONNECTORS, caveat="Whether the page shows one.")
        for name in _CONNECTOR_SAMPLES
    ),
    counter(
        "kv_cache_usage_ratio",
        "vllm:kv_cache_usage_perc",
        versions=">=0.9.2",
        caveat="Blocks held by live requests; evictable prefix-cached blocks count as free. One number over all groups of a hybrid model.",
    ),
    counter(
        "kv_cache_usage_ratio",
        "vllm:gpu_cache_usage_perc",
        versions="<0.9.2",
        caveat="The same quantity's older name.",
    ),
    Row(
        "kv_cache_capacity_tokens",
        (CACHE_INFO,),
        reads=Reads.LABELS,
        labels=("kv_cache_size_tokens",),
        versions=">=0.24",
        source="https://github.com/vllm-project/vllm/pull/42206",
        caveat="The most requests of max_model_len that fit, times that length: of a model with windows or recurrent state a token of a shorter request "
        "takes more of it, so that used tokens and the mean context are too high.",
    ),
    Row(
        "kv_cache_capacity_tokens",
        (CACHE_INFO,),
        reads=Reads.LABELS,
        labels=("num_gpu_blocks", "block_size"),
        shared_by_engines=True,
        of_a_context_part=True,
        versions="<0.24",
        source="https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/v1/engine/core_client.py",
        caveat="num_gpu_blocks x block_size, the label being the sum over the engines of the page; wrong for hybrid models, absent in 0.8. Under decode "
        "context parallelism a block is that many times larger, which only the configuration or /server_info says.",
    ),
    Row("kv_cache_dtype", (CACHE_INFO,), reads=Reads.TEXT, labels=("cache_dtype",), versions=">=0.8", source=LOGGERS),
    Row(
        "state_dtype",
        (CACHE_INFO,),
        reads=Reads.TEXT,
        labels=("mamba_ssm_cache_dtype",),
        versions=">=0.10",
        source=LOGGERS,
        caveat="Of every model; of one without recurrent layers it says nothing.",
    ),
    Row(
        "kv_block_tokens",
        (CACHE_INFO,),
        reads=Reads.LABELS,
        labels=("block_size",),
        of_a_context_part=True,
        # resolve_kv_cache_block_sizes
        source="https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/v1/core/kv_cache_utils.py",
    ),
    counter("awake", "vllm:engine_sleep_state", where={"sleep_state": frozenset({"awake"})}, versions=">=0.11.1"),
)
