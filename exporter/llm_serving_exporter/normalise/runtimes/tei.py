"""Hugging Face Text Embeddings Inference 1.x: the table. Made from its source; no page was recorded.

An embedding model prefills and does not decode. The exporter is TGI's: no `_total`, no series before its first observation.
"""

from __future__ import annotations

from llm_serving_exporter.model.snapshot import Quality
from llm_serving_exporter.normalise.mapping import Fingerprint, Flags, Mark, Reads, Row, Runtime
from llm_serving_exporter.normalise.runtimes.tgi_endpoints import TEI_ENDPOINTS, TEI_SHOWS

_REPOSITORY = "https://github.com/huggingface/text-embeddings-inference/blob/v1.9.3"
_QUEUE = f"{_REPOSITORY}/core/src/queue.rs"
_INFER = f"{_REPOSITORY}/core/src/infer.rs"
_TOKENIZATION = f"{_REPOSITORY}/core/src/tokenization.rs"
_ROUTER = f"{_REPOSITORY}/router/src/lib.rs"

_PER_HTTP = "One event an HTTP request that succeeded; of several inputs their mean."

_ENDS = {
    "te_embed_success": "success",
    "te_predict_success": "success",
    'te_request_failure{err="inference"}': "error",
    'te_request_failure{err="dropped"}': "abort",
}

_ROWS = (
    Row(
        "prompt_tokens_total",
        ("te_request_input_length_sum",),
        source=_TOKENIZATION,
        caveat="Counted when an input is tokenised, after truncation; inputs that fail later are in it.",
    ),
    Row(
        "prefill_tokens_total",
        ("te_batch_next_tokens_sum",),
        source=_QUEUE,
        caveat="Tokens that were put into a batch; padding of back ends that pad is not in it.",
    ),
    Row(
        "requests_finished_total",
        tuple(_ENDS),
        named=_ENDS,
        source=_INFER,
        caveat="Inputs, of which an HTTP request may have several; those refused as invalid are left out. te_request_success misses single predictions.",
    ),
    Row(
        "requests_rejected_total",
        ('te_request_failure{err="overloaded"}',),
        by="err",
        source=_INFER,
        caveat="More than --max-concurrent-requests were in the server.",
    ),
    Row(
        "e2e_request_latency_seconds",
        ("te_request_duration",),
        reads=Reads.HISTOGRAM,
        quality=Quality.LAGGING,
        source=_ROUTER,
        caveat="One event an HTTP request that succeeded, whatever the number of its inputs.",
    ),
    Row(
        "request_queue_time_seconds",
        ("te_request_queue_duration",),
        reads=Reads.HISTOGRAM,
        quality=Quality.LAGGING,
        source=_ROUTER,
        caveat=_PER_HTTP,
    ),
    Row(
        "request_prefill_time_seconds",
        ("te_request_inference_duration",),
        reads=Reads.HISTOGRAM,
        quality=Quality.LAGGING,
        source=_ROUTER,
        caveat=f"The forward pass of the batch. {_PER_HTTP}",
    ),
    Row(
        "request_prompt_tokens",
        ("te_request_input_length",),
        reads=Reads.HISTOGRAM,
        source=_TOKENIZATION,
        caveat="One event an input, also those that fail later; the edges end at max_input_length.",
    ),
    Row("requests_waiting", ("te_queue_size",), source=_QUEUE, caveat="Inputs that wait for a batch."),
)

_NOT_READ = (
    "te_request_count",
    "te_request_success",
    "te_request_failure",
    "te_request_tokenization_duration",
    "te_embed_*",
    "te_predict_*",
    "te_batch_next_size",
    "te_batch_next_tokens",
)

_NO_DECODE = "an embedding model does not decode"
_NO_KV = "an embedding model keeps no KV cache"

# "te_" alone is too short to be anybody's: whole names
_ITS_OWN = (
    "te_request_count",
    "te_request_failure",
    "te_request_input_length",
    "te_queue_size",
    "te_embed_count",
    "te_predict_count",
    "te_batch_next_size",
    "te_batch_next_tokens",
)

RUNTIME = Runtime(
    name="tei",
    title="Hugging Face Text Embeddings Inference",
    born_at_first_event=True,
    prefixes=("te_request_", "te_embed_", "te_predict_", "te_batch_", "te_queue_"),
    fingerprints=tuple(Fingerprint((Mark(name),)) for name in _ITS_OWN),
    rows=_ROWS,
    endpoints=TEI_ENDPOINTS,
    flags=Flags(
        ("--max-batch-requests",),
        source="https://huggingface.co/docs/text-embeddings-inference/cli_arguments",
        bounds=("--max-concurrent-requests",),
    ),
    shows=TEI_SHOWS,
    ignored=_NOT_READ,
    missing={
        **dict.fromkeys(
            (
                "decode_tokens_total",
                "speculative_draft_tokens_total",
                "speculative_accepted_tokens_total",
                "time_to_first_token_seconds",
                "inter_token_latency_seconds",
                "time_per_output_token_seconds",
                "request_decode_time_seconds",
                "request_generation_tokens",
            ),
            _NO_DECODE,
        ),
        **dict.fromkeys(
            (
                "cached_prompt_tokens_total",
                "prefix_cache_query_tokens_total",
                "prefix_cache_hit_tokens_total",
                "preemptions_total",
                "kv_cache_usage_ratio",
                "kv_cache_capacity_tokens",
            ),
            _NO_KV,
        ),
        "engine_steps_total": "te_batch_next_size also counts each look into an empty queue as a batch of 0",
        "http_responses_total": "HTTP answers are not counted",
        "requests_running": "no gauge of the batch that runs",
        "batch_limit_requests": "not on the page: max_batch_requests of /info, null unless it was set",
        "context_limit_tokens": "not on the page: max_input_length of /info",
        "model_gpu_memory_bytes": "the server does not state it",
    },
    versions=">=1.5,<=1.9",
)
