"""llama.cpp llama-server: the table. Facts: llama.cpp's `tools/server/server-task.cpp` and `server-context.cpp`; limits: docs/llamacpp.md."""

from __future__ import annotations

from llm_serving_exporter.model.snapshot import Quality
from llm_serving_exporter.normalise.mapping import Fingerprint, Flags, Mark, Row, Runtime
from llm_serving_exporter.normalise.runtimes.llamacpp_endpoints import (
    CAPACITY,
    CONTEXT,
    DECODED,
    ENDPOINTS,
    POLLS,
    USED,
)

_PAGE = "https://github.com/ggml-org/llama.cpp/blob/master/tools/server/server-task.cpp"
_SERVER = "https://github.com/ggml-org/llama.cpp/blob/master/tools/server/server-context.cpp"
_KV_GAUGES_REMOVED = "https://github.com/ggml-org/llama.cpp/pull/13660"

_PROMPT = "llamacpp:prompt_tokens_total"
_CACHED = "llamacpp:prompt_tokens_cached_total"
_PREDICTED = "llamacpp:tokens_predicted_total"

_SIX_DIGITS = "Printed with six significant digits: moves in steps of 10 after a million, of 1000 after 100 million."
_ASKED_WHILE_BUSY = "/slots is asked only while a request runs, because asking wakes a sleeping server."


def _row(field: str, *samples: str, **more: object) -> Row:
    return Row(field, samples, **{"source": _PAGE, **more})  # type: ignore[arg-type]  # keyword passthrough


_TOKENS = (
    _row("prefill_tokens_total", _PROMPT, caveat=f"Booked batch by batch, aborted prompts included. {_SIX_DIGITS}"),
    _row("cached_prompt_tokens_total", _CACHED, caveat="Builds of 2026 on."),
    # the cached counter first: without it the other one is not the prompts as sent
    _row("prompt_tokens_total", _CACHED, _PROMPT, caveat="Computed + cached: builds with the cached counter only."),
    _row(
        "decode_tokens_total",
        _PREDICTED,
        quality=Quality.LAGGING,
        caveat=f"Booked when a slot is released, aborted requests and what they ran on included. {_SIX_DIGITS}",
    ),
    # the slots' sample first: without it there is nothing to add
    _row(
        "decode_tokens_live",
        DECODED,
        _PREDICTED,
        quality=Quality.APPROXIMATE,
        may_fall=True,
        source=_SERVER,
        caveat=f"The page is read first, then /slots: what is released in between shows one tick late. {_ASKED_WHILE_BUSY}",
    ),
)

_PREFIX_CACHE = (
    _row("prefix_cache_query_tokens_total", _CACHED, _PROMPT, caveat="Every prompt token of a request that began."),
    _row("prefix_cache_hit_tokens_total", _CACHED),
    _row("prefix_cache_queries", _CACHED, _PROMPT),
    _row("prefix_cache_hits", _CACHED),
)

_WORK = (
    _row("engine_steps_total", "llamacpp:n_decode_total", caveat="llama_decode calls, prefill batches among them."),
    _row("speculative_draft_tokens_total", "llamacpp:spec_decode_num_draft_tokens_total", caveat="Builds of 2026 on."),
    _row(
        "speculative_accepted_tokens_total",
        "llamacpp:spec_decode_num_accepted_tokens_total",
        caveat="Builds of 2026 on.",
    ),
)

_GAUGES = (
    _row("requests_running", "llamacpp:requests_processing", caveat="Busy slots."),
    _row("requests_waiting", "llamacpp:requests_deferred", caveat="Requests that wait for a slot."),
    _row(
        "kv_cache_usage_ratio",
        "llamacpp:kv_cache_usage_ratio",
        source=_KV_GAUGES_REMOVED,
        caveat="Cells that hold anything, sequences cached for idle slots included; removed in 2025 (build 4747 has it).",
    ),
    _row(
        "kv_cache_usage_ratio",
        USED,
        over=(CAPACITY,),
        quality=Quality.APPROXIMATE,
        source=_SERVER,
        caveat="Tokens of busy slots over the context of all; a prompt counts whole from its start. Too low with a unified KV "
        f"cache, which slots share. {_ASKED_WHILE_BUSY}",
    ),
    _row(
        "kv_cache_capacity_tokens",
        CAPACITY,
        quality=Quality.APPROXIMATE,
        source=_SERVER,
        caveat="n_ctx of all slots added. With a unified KV cache (the default unless --parallel is given) they share one n_ctx, "
        "and no endpoint tells: then too high by the number of slots.",
    ),
    _row(
        "decode_context_tokens",
        CONTEXT,
        quality=Quality.APPROXIMATE,
        source=_SERVER,
        caveat="Prompt and generated tokens of the slots that have generated some.",
    ),
)

_MISSING = {
    "preemptions_total": "never preempts: a slot that runs out of context stops or shifts it",
    "requests_finished_total": "no request counter",
    "requests_rejected_total": "no request counter",
    "http_responses_total": "no HTTP counter: errors and aborts are invisible",
    "time_to_first_token_seconds": "no histogram",
    "inter_token_latency_seconds": "no histogram",
    "time_per_output_token_seconds": "no histogram",
    "e2e_request_latency_seconds": "no histogram",
    "request_queue_time_seconds": "no histogram",
    "request_prefill_time_seconds": "no histogram, and no request counter to divide the seconds by",
    "request_decode_time_seconds": "no histogram",
    "request_prompt_tokens": "no histogram",
    "request_generation_tokens": "no histogram",
    "batch_limit_requests": "not on the page; /props says it (total_slots)",
    "context_limit_tokens": "not on the page; /props says it (n_ctx of a slot)",
    "model_gpu_memory_bytes": "the server does not state it",
    "awake": "a sleeping server answers from a cached page that does not tell",
    "kv_cache_dtype": "the server does not state it",
    "kv_block_tokens": "cells, not blocks",
    "estimated_read_bytes_per_gpu": "no estimate",
    "estimated_flops_per_gpu": "no estimate",
    "accepted_tokens_per_step": "no inter-token events",
    "role": "no disaggregation",
}

_NOT_READ = (
    # since the last scrape by anybody: two scrapers take from each other, and no rate may be made of them
    "llamacpp:prompt_tokens_seconds",
    "llamacpp:predicted_tokens_seconds",
    # mean since the start, and a high-water mark that calls itself a counter
    "llamacpp:n_busy_slots_per_decode",
    "llamacpp:n_tokens_max",
    # of slots that overlap, the first without a count of requests to divide by
    "llamacpp:prompt_seconds_total",
    "llamacpp:tokens_predicted_seconds_total",
    "llamacpp:spec_decode_num_drafts_total",
    "llamacpp:spec_decode_num_accepted_tokens_per_pos_total",
    "llamacpp:kv_cache_tokens",
)

RUNTIME = Runtime(
    name="llamacpp",
    title="llama.cpp",
    prefixes=("llamacpp:",),
    fingerprints=(Fingerprint((Mark("llamacpp:tokens_predicted_total"),)),),
    rows=(*_TOKENS, *_PREFIX_CACHE, *_WORK, *_GAUGES),
    significant_digits=6,
    paths=("/metrics",),
    endpoints=ENDPOINTS,
    flags=Flags(
        ("--parallel", "-np"), source="https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md"
    ),
    polls=POLLS,
    ignored=_NOT_READ,
    missing=_MISSING,
    versions=">=4747",
    covered="b11434",
)
