"""mistral.rs from 0.9.2 on: the table and what names its model. Made from its source; no page was recorded.

Its engine series have no model label, its HTTP series have one that is also "none", "unknown" or an adapter: the label is no
identity, everything on a page is one engine's. With several models loaded each overwrites the others' gauges.
"""

from __future__ import annotations

from llm_serving_exporter.model.facts import ServerFacts
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import Quality
from llm_serving_exporter.model.text import clean
from llm_serving_exporter.normalise.json_values import is_owned_by, listed, mapping
from llm_serving_exporter.normalise.mapping import Endpoint, Fingerprint, Flags, Mark, Reads, Row, Runtime

_REPOSITORY = "https://github.com/EricLBuehler/mistral.rs/blob/9e922623f24b32d41f3892b74f0eed18707f4e6c"
_LOGGER = f"{_REPOSITORY}/mistralrs-core/src/engine/logger.rs"
_ENGINE = f"{_REPOSITORY}/mistralrs-core/src/engine/mod.rs"
_SEQUENCE = f"{_REPOSITORY}/mistralrs-core/src/sequence.rs"
_SCHEDULER = f"{_REPOSITORY}/mistralrs-core/src/paged_attention/scheduler.rs"
_HTTP = f"{_REPOSITORY}/mistralrs-server-core/src/metrics.rs"
_STREAMING = f"{_REPOSITORY}/mistralrs-server-core/src/streaming.rs"
# counters of prefill and decode apart came after 0.9.2
_APART = "https://github.com/EricLBuehler/mistral.rs/blob/0003cf35120f696e063d64993c36e25969cad422/mistralrs-core/src/engine/logger.rs"

_MIXED = "Up to 0.9.2 there is only mistralrs_tokens_processed_total, prefill and decode in one."
_PAGED = "Only with paged attention."
_STREAMS = "Streams only, all their outcomes."

# sequences that ended with text: each had a first token
_TEXT = 'mistralrs_sequences_completed_total{reason="stop|length|tool_calls|canceled"}'
_ANSWERS = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"})
_REASONS = {
    "error": "error",
    "canceled": "abort",
    "tool_calls": "stop",
    "generated_image": "success",
    "generated_speech": "success",
}
# the label is the code itself
_CLASSES = {str(code): f"{code // 100}xx" for code in range(100, 600)}

MAX_MODELS = 256


def read_models(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/v1/models`: data[].id; the first, "default", is another name of one of the others."""
    names = [
        clean(entry["id"])
        for entry in listed(mapping(answer).get("data"), MAX_MODELS)
        if isinstance(entry, dict) and isinstance(entry.get("id"), str) and entry.get("parent") is None
    ]
    names = [name for name in dict.fromkeys(names) if name not in ("", "default")]
    return replace(facts, model_names=tuple(names), model_roots={name: name for name in names}) if names else facts


def is_mistralrs(answer: object) -> bool:
    """Whether a model list is mistral.rs's: it alone lists a model "default" first, and owns all locally."""
    first = next(iter(listed(mapping(answer).get("data"), 1)), None)
    return mapping(first).get("id") == "default" and is_owned_by(answer, "local", MAX_MODELS)


_COUNTERS = (
    Row(
        "prefill_tokens_total",
        ("mistralrs_prefill_tokens_processed_total",),
        versions=">0.9.2",
        source=_APART,
        caveat=f"Tokens of prompt steps. {_MIXED}",
    ),
    Row(
        "decode_tokens_total",
        ("mistralrs_decode_tokens_processed_total", _TEXT),
        versions=">0.9.2",
        quality=Quality.APPROXIMATE,
        source=_APART,
        caveat=f"Tokens of completion steps, which lack each answer's first, and one for each answer that ended. {_MIXED}",
    ),
    Row(
        "decode_pass_tokens",
        ("mistralrs_decode_tokens_processed_total",),
        versions=">0.9.2",
        source=_APART,
        caveat="Inter-token events are those of streams only.",
    ),
    # lookups of sequences, not of tokens: for the ratio only
    Row("prefix_cache_queries", ("mistralrs_prefix_cache_lookups_total",), source=_LOGGER, caveat="Sequences."),
    Row("prefix_cache_hits", ("mistralrs_prefix_cache_hits_total",), source=_LOGGER, caveat="Sequences."),
    Row(
        "requests_finished_total",
        ("mistralrs_sequences_completed_total",),
        by="reason",
        rename=_REASONS,
        source=_SEQUENCE,
        caveat="Sequences: each choice of an n>1 request counts.",
    ),
    Row(
        "requests_rejected_total",
        ("mistralrs_sequences_rejected_total",),
        by="reason",
        source=_SCHEDULER,
        caveat=f"A sequence that the KV cache cannot hold. {_PAGED}",
    ),
    Row(
        "http_responses_total",
        ("http_requests_total",),
        by="status",
        rename=_CLASSES,
        source=_HTTP,
        caveat="An error inside a stream counts as 2xx; /metrics, /health and the documentation are not counted.",
    ),
    Row("preemptions_total", ("mistralrs_paged_preemptions_total",), source=_SCHEDULER, caveat=_PAGED),
    Row(
        "speculative_draft_tokens_total",
        ("mistralrs_speculative_draft_tokens_proposed_total",),
        source=_LOGGER,
        caveat="Only with speculation.",
    ),
    Row(
        "speculative_accepted_tokens_total",
        ("mistralrs_speculative_draft_tokens_accepted_total",),
        source=_LOGGER,
        caveat="Only with speculation.",
    ),
)

_HISTOGRAMS = (
    Row(
        "time_to_first_token_seconds",
        ("mistralrs_time_to_first_token_seconds",),
        reads=Reads.HISTOGRAM,
        source=_STREAMING,
        caveat=_STREAMS,
    ),
    Row(
        "inter_token_latency_seconds",
        ("mistralrs_inter_token_latency_seconds",),
        reads=Reads.HISTOGRAM,
        source=_STREAMING,
        caveat=f"{_STREAMS} One event a chunk sent. Nothing below 10 ms is resolved.",
    ),
    Row(
        "e2e_request_latency_seconds",
        ("http_request_duration_seconds",),
        reads=Reads.HISTOGRAM,
        where={"path": _ANSWERS, "status": frozenset({"200"})},
        quality=Quality.LAGGING,
        source=_HTTP,
        caveat="HTTP requests for text that were answered 200, to the end of the stream; clients that left in between are in it.",
    ),
)

_GAUGES = (
    Row("requests_running", ("mistralrs_sequences_running",), source=_LOGGER, caveat="Sequences."),
    Row(
        "requests_waiting",
        ("mistralrs_sequences_waiting", "mistralrs_requests_pending_admission"),
        source=_ENGINE,
        caveat="Sequences in the scheduler and requests before it.",
    ),
    Row("batch_limit_requests", ("mistralrs_sequences_capacity",), source=_ENGINE, caveat="max_num_seqs."),
    Row(
        "kv_cache_usage_ratio",
        ("mistralrs_kv_cache_blocks_used",),
        over=("mistralrs_kv_cache_blocks_total",),
        source=_SCHEDULER,
        caveat=f"Blocks that are not free over usable blocks. {_PAGED}",
    ),
)

_NOT_READ = (
    "mistralrs_tokens_processed*",
    "mistralrs_prefix_cache_evictions*",
    "mistralrs_speculative_*",
    "mistralrs_encoder_cache_*",
    "mistralrs_kv_cache_blocks_*",
)

_NOT_MEASURED = "not measured"

RUNTIME = Runtime(
    name="mistralrs",
    title="mistral.rs",
    born_at_first_event=True,
    prefixes=("mistralrs_",),
    fingerprints=(Fingerprint((Mark("mistralrs_*"),)),),
    rows=(*_COUNTERS, *_HISTOGRAMS, *_GAUGES),
    flags=Flags(("--max-seqs",), source=_ENGINE),
    endpoints=(Endpoint("/v1/models", read_models, ("model_names", "model_roots")),),
    shows=(("/v1/models", is_mistralrs),),
    ignored=_NOT_READ,
    missing={
        "prompt_tokens_total": "tokens as sent are not counted",
        "cached_prompt_tokens_total": "hits are counted in sequences, not in tokens",
        "prefix_cache_query_tokens_total": "lookups are counted in sequences, not in tokens; their hit ratio is there",
        "prefix_cache_hit_tokens_total": "hits are counted in sequences, not in tokens; their ratio is there",
        "engine_steps_total": "not counted",
        "time_per_output_token_seconds": _NOT_MEASURED,
        "request_queue_time_seconds": _NOT_MEASURED,
        "request_prefill_time_seconds": _NOT_MEASURED,
        "request_decode_time_seconds": _NOT_MEASURED,
        "request_prompt_tokens": _NOT_MEASURED,
        "request_generation_tokens": _NOT_MEASURED,
        "kv_cache_capacity_tokens": "blocks are counted, but the page does not say what a block holds",
        "context_limit_tokens": "the server does not state it",
        "model_gpu_memory_bytes": "the server does not state it",
    },
    versions=">=0.9.2",
)
