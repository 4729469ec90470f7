"""What the tables of routers and gateways share: they route to engines, and have none of what an engine has."""

from __future__ import annotations

from collections.abc import Collection, Mapping

_ENGINES = "an engine's: on the page of each engine behind it"
_NOT_COUNTED = "not counted by it"

# fields that only an engine has
_OF_ENGINES = (
    "prefill_tokens_total",
    "prefix_cache_query_tokens_total",
    "prefix_cache_hit_tokens_total",
    "preemptions_total",
    "engine_steps_total",
    "speculative_draft_tokens_total",
    "speculative_accepted_tokens_total",
    "request_queue_time_seconds",
    "request_prefill_time_seconds",
    "request_decode_time_seconds",
    "requests_running",
    "batch_limit_requests",
    "kv_cache_usage_ratio",
    "kv_cache_capacity_tokens",
    "context_limit_tokens",
    "model_gpu_memory_bytes",
)
# fields that a front door may have
_OF_REQUESTS = (
    "prompt_tokens_total",
    "cached_prompt_tokens_total",
    "decode_tokens_total",
    "requests_finished_total",
    "requests_rejected_total",
    "http_responses_total",
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "time_per_output_token_seconds",
    "e2e_request_latency_seconds",
    "request_prompt_tokens",
    "request_generation_tokens",
    "requests_waiting",
)
# an HTTP status as a label has it -> its class
CLASS_OF_STATUS = {str(code): f"{code // 100}xx" for code in range(100, 600)}
# ... -> how the request ended; a mistake of the client's is neither good nor bad, 499 is a client that went away
OUTCOME_OF_STATUS = {
    **{str(code): "success" for code in range(200, 300)},
    **{str(code): "" for code in range(100, 200)},
    **{str(code): "" for code in range(300, 500)},
    "499": "abort",
    **{str(code): "error" for code in range(500, 600)},
}


def explain_missing(read: Collection[str], own: Mapping[str, str]) -> dict[str, str]:
    """Why each field without a row is not there. `read`: the fields that have one; `own`: reasons of this table alone, which win."""
    reasons = {**dict.fromkeys(_OF_ENGINES, _ENGINES), **dict.fromkeys(_OF_REQUESTS, _NOT_COUNTED), **own}
    return {name: why for name, why in reasons.items() if name not in read}
