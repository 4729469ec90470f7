"""Xinference 2.8 to 3.2: the table. Made from its source; no page was recorded.

The page to read is a worker's (its --metrics-exporter-port): it has every model of the worker, one engine a replica. The supervisor's
has only the models' GPU memory. What the engine inside (vLLM, SGLang …) says of itself is not passed on; `engine` there is its name.
"""

from __future__ import annotations

from llm_serving_exporter.model.snapshot import Quality
from llm_serving_exporter.normalise.mapping import ERRORS, Fingerprint, Mark, Reads, Row, Runtime

_MODEL = "https://github.com/xorbitsai/inference/blob/v3.2.1/xinference/core/model.py"
_METRICS = "https://github.com/xorbitsai/inference/blob/v3.2.1/xinference/core/metrics.py"

_AT_END = "Booked when a request ends, from the usage that its engine reports."

_ROWS = (
    Row(
        "prompt_tokens_total",
        ("xinference:input_tokens_total_counter",),
        quality=Quality.LAGGING,
        source=_MODEL,
        caveat=f"As sent, cached tokens included. {_AT_END}",
    ),
    Row(
        "prefill_tokens_total",
        ("xinference:input_tokens_total_counter",),
        quality=Quality.APPROXIMATE,
        source=_MODEL,
        caveat=f"Upper bound: prompts as sent; tokens found in a cache are in it. {_AT_END}",
    ),
    # two names of one count: never added
    Row(
        "decode_tokens_total",
        ("xinference:generate_tokens_total",),
        versions=">=2.8",
        quality=Quality.LAGGING,
        source=_MODEL,
        caveat=_AT_END,
    ),
    Row(
        "decode_tokens_total",
        ("xinference:output_tokens_total_counter",),
        versions="<2.8",
        quality=Quality.LAGGING,
        source=_MODEL,
        caveat=f"The same count's older name. {_AT_END}",
    ),
    Row(
        "requests_rejected_total",
        ('xinference:model_request_total{stream="unknown"}',),
        named={'xinference:model_request_total{stream="unknown"}': "request_limit"},
        source=_MODEL,
        caveat="Refused at the request limit, which are the requests counted without knowing whether they stream.",
    ),
    Row(
        "time_to_first_token_seconds",
        ("xinference:time_to_first_token_seconds",),
        reads=Reads.HISTOGRAM,
        where={"stream": frozenset({"true"})},
        quality=Quality.LAGGING,
        source=_MODEL,
        caveat="Streams only: of other requests it is the whole duration. Booked when the stream ends; the top edge is 30 s.",
    ),
    Row(
        "requests_running",
        ("xinference:model_serve_count",),
        source=_MODEL,
        caveat="Requests that were let in, those that wait inside the engine included.",
    ),
    Row(
        "batch_limit_requests",
        ("xinference:model_request_limit",),
        zero_is_unset=True,
        source=_MODEL,
        caveat="What is above is refused, not queued. -1, no limit, leaves it absent.",
    ),
    Row(
        "model_gpu_memory_bytes",
        ("xinference:model_gpu_memory_used_bytes",),
        source=_METRICS,
        caveat="On the supervisor's page only; all GPUs of the replica.",
    ),
)

_NOT_READ = (
    "xinference:output_tokens_total_counter",
    "xinference:model_request_*",
    "xinference:model_last_load_duration_seconds",
    "xinference:model_info",
    "xinference:model_status",
    "xinference:model_gpu_binding",
    "xinference:model_unexpected_termination",
    "xinference:models_loaded_total",
    "xinference:build_info",
    "xinference:config_info",
    "xinference:supervisor_*",
    "xinference:worker_*",
    "xinference:workers_total",
    "xinference:token_router_*",
    "xinference:banned_*",
    # gauges of the last request, up to 2.7
    "xinference:generate_tokens_per_s",
    "xinference:time_to_first_token_ms",
)

_INSIDE = "known to the engine inside, which does not pass it on"

RUNTIME = Runtime(
    name="xinference",
    title="Xinference",
    # its client library declares families and gives them no sample before the first
    born_at_first_event=True,
    prefixes=("xinference:",),
    fingerprints=(Fingerprint((Mark("xinference:*"),)),),
    rows=_ROWS,
    model_labels=("model_uid", "model"),
    engine_labels=("replica_index",),
    ignored=_NOT_READ,
    missing={
        **dict.fromkeys(
            (
                "cached_prompt_tokens_total",
                "prefix_cache_query_tokens_total",
                "prefix_cache_hit_tokens_total",
                "preemptions_total",
                "engine_steps_total",
                "speculative_draft_tokens_total",
                "speculative_accepted_tokens_total",
                "inter_token_latency_seconds",
                "time_per_output_token_seconds",
                "request_queue_time_seconds",
                "request_prefill_time_seconds",
                "request_decode_time_seconds",
                "request_prompt_tokens",
                "request_generation_tokens",
                "requests_waiting",
                "kv_cache_usage_ratio",
                "kv_cache_capacity_tokens",
            ),
            _INSIDE,
        ),
        ERRORS: "errors and refusals are one number",
        "requests_finished_total": "streams are counted when they start, and errors include refusals",
        "http_responses_total": "HTTP answers are not counted",
        "e2e_request_latency_seconds": "model_request_duration_seconds of a stream ends when the stream starts",
        "context_limit_tokens": "the server does not state it",
    },
    versions=">=2.8,<=3.2",
)
