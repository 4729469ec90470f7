"""Hugging Face TGI 2.0 to 3.3: the table. Made from its source; no page was recorded.

Its Prometheus exporter writes counters without `_total`, and a series only once it was observed: an idle fresh server's page is
empty. A histogram without configured buckets becomes a summary, of which only count and sum, which do not roll, are ever read.
"""

from __future__ import annotations

from llm_serving_exporter.model.snapshot import Quality
from llm_serving_exporter.normalise.mapping import Fingerprint, Flags, Mark, Reads, Row, Runtime
from llm_serving_exporter.normalise.runtimes.tgi_endpoints import TGI_ENDPOINTS, TGI_SHOWS

_REPOSITORY = "https://github.com/huggingface/text-generation-inference/blob/v3.3.7"
_SERVER = f"{_REPOSITORY}/router/src/server.rs"
_VALIDATION = f"{_REPOSITORY}/router/src/validation.rs"
_INFER = f"{_REPOSITORY}/router/src/infer/mod.rs"
_BACKEND = f"{_REPOSITORY}/backends/v3/src/backend.rs"
_QUEUE = f"{_REPOSITORY}/backends/v3/src/queue.rs"

_AT_SUCCESS = "Booked when a request succeeds; failed and dropped ones are missing."
_OWN_BACK_END = "Only TGI's own back end counts it; the TensorRT-LLM and llama.cpp ones do not."

_ENDS = {
    "tgi_request_success": "success",
    'tgi_request_failure{err="generation|incomplete"}': "error",
    'tgi_request_failure{err="dropped"}': "abort",
}

_COUNTERS = (
    Row(
        "prompt_tokens_total",
        ("tgi_request_input_length_sum",),
        source=_VALIDATION,
        caveat="Counted when a request is validated, before it waits: requests that fail later are in it.",
    ),
    Row(
        "prefill_tokens_total",
        ("tgi_request_input_length_sum",),
        quality=Quality.APPROXIMATE,
        source=_VALIDATION,
        caveat="An upper bound: prompt tokens as sent. Prefix-cache hits cannot be seen, and it runs ahead of prefill by the queue time.",
    ),
    Row(
        "decode_tokens_total",
        ("tgi_request_generated_tokens_sum",),
        quality=Quality.LAGGING,
        source=_SERVER,
        caveat=_AT_SUCCESS,
    ),
    Row(
        "decode_tokens_live",
        ("tgi_request_skipped_tokens_count", "tgi_request_skipped_tokens_sum"),
        source=_BACKEND,
        caveat=f"Each step of a sequence is observed with its tokens beyond the first: observations and their sum are all tokens. {_OWN_BACK_END}",
    ),
    Row(
        "speculative_accepted_tokens_total",
        ("tgi_request_skipped_tokens_sum",),
        source=_BACKEND,
        caveat=f"Tokens beyond the first of a step; 0 without speculation. {_OWN_BACK_END}",
    ),
    Row(
        "requests_finished_total",
        tuple(_ENDS),
        named=_ENDS,
        source=_INFER,
        caveat="Requests refused as invalid (validation, template) are left out.",
    ),
    Row(
        "requests_rejected_total",
        ('tgi_request_failure{err="overloaded"}',),
        by="err",
        source=_INFER,
        caveat="More than --max-concurrent-requests were in the server.",
    ),
    Row(
        "engine_steps_total",
        ('tgi_batch_inference_count{method="prefill|decode"}',),
        source=_BACKEND,
        caveat=f"Prefill and decode steps; a chunked prefill step decodes the running batch too. {_OWN_BACK_END}",
    ),
    Row(
        "device_busy_seconds",
        ('tgi_batch_inference_duration_sum{method="prefill|decode"}',),
        source=_BACKEND,
        caveat=f"Durations of batches, one at a time: the calls of the model server, what it does on the CPU included. {_OWN_BACK_END}",
    ),
)


def _histogram(field: str, sample: str, source: str, caveat: str, quality: Quality = Quality.LAGGING) -> Row:
    return Row(field, (sample,), reads=Reads.HISTOGRAM, quality=quality, source=source, caveat=caveat)


_EDGES = "The edges follow the server's token limits: not to be added up with another server's."

_HISTOGRAMS = (
    _histogram("e2e_request_latency_seconds", "tgi_request_duration", _SERVER, _AT_SUCCESS),
    _histogram(
        "request_queue_time_seconds",
        "tgi_request_queue_duration",
        _SERVER,
        f"From validation to the first prefill. {_AT_SUCCESS}",
    ),
    _histogram(
        "request_prompt_tokens",
        "tgi_request_input_length",
        _VALIDATION,
        f"Of validated requests, also those that fail later. {_EDGES}",
        Quality.LIVE,
    ),
    _histogram("request_generation_tokens", "tgi_request_generated_tokens", _SERVER, f"{_AT_SUCCESS} {_EDGES}"),
)

_GAUGES = (
    Row(
        "requests_running",
        ("tgi_batch_current_size",),
        source=_BACKEND,
        caveat=f"Set before each decode step, without what is admitted in it; 0 when idle. {_OWN_BACK_END}",
    ),
    Row("requests_waiting", ("tgi_queue_size",), source=_QUEUE, caveat=_OWN_BACK_END),
)

_NOT_READ = (
    "tgi_request_count",  # a delegated route counts twice
    "tgi_request_failure",
    "tgi_request_validation_duration",
    "tgi_request_inference_duration",
    "tgi_request_mean_time_per_token_duration",
    "tgi_request_max_new_tokens",
    "tgi_request_skipped_tokens",
    "tgi_batch_*",
)

_NO_KV = "its page says nothing about the KV cache"

RUNTIME = Runtime(
    name="tgi",
    title="Hugging Face TGI",
    born_at_first_event=True,
    prefixes=("tgi_",),
    fingerprints=(Fingerprint((Mark("tgi_request_*"),)), Fingerprint((Mark("tgi_batch_*"),))),
    rows=(*_COUNTERS, *_HISTOGRAMS, *_GAUGES),
    endpoints=TGI_ENDPOINTS,
    flags=Flags(
        ("--max-batch-size",),
        source="https://huggingface.co/docs/text-generation-inference/reference/launcher",
        bounds=("--max-concurrent-requests",),
    ),
    shows=TGI_SHOWS,
    ignored=_NOT_READ,
    missing={
        "cached_prompt_tokens_total": _NO_KV,
        "prefix_cache_query_tokens_total": _NO_KV,
        "prefix_cache_hit_tokens_total": _NO_KV,
        "kv_cache_usage_ratio": f"{_NO_KV}; tgi_batch_current_max_tokens is a reservation, not usage",
        "kv_cache_capacity_tokens": _NO_KV,
        "preemptions_total": "it reserves KV for the whole answer at admission and does not count preemptions",
        "speculative_draft_tokens_total": "only accepted tokens are counted",
        "http_responses_total": "HTTP answers are not counted",
        "time_to_first_token_seconds": "not measured; queue and prefill means do not make a distribution",
        "inter_token_latency_seconds": "not measured for a request; batch steps are timed, not tokens",
        "time_per_output_token_seconds": "tgi_request_mean_time_per_token_duration contains prefill: another quantity",
        "request_prefill_time_seconds": "tgi_request_inference_duration is prefill and decode together",
        "request_decode_time_seconds": "tgi_request_inference_duration is prefill and decode together",
        "batch_limit_requests": "a budget of tokens, not a number of requests; only /info before 2.3 has max_batch_size, where it was set",
        "context_limit_tokens": "not on the page: max_total_tokens of /info",
        "model_gpu_memory_bytes": "the server does not state it",
    },
    versions=">=2.0,<=3.3",
)
