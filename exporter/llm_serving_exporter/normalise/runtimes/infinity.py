"""Infinity (embeddings): the table. Its page has only the HTTP counters that any FastAPI application has; queue, batch size and model come
from its model list, which is how it is recognised too. Facts: infinity-emb 0.0.78 with prometheus-fastapi-instrumentator 8.1.0."""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.model.facts import ServerFacts
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import Quality
from llm_serving_exporter.normalise.json_values import listed, mapping, number, text
from llm_serving_exporter.normalise.mapping import Endpoint, Poll, Readings, Reads, Row, Runtime
from llm_serving_exporter.normalise.polled import reading

_SERVER = "https://github.com/michaelfeil/infinity/blob/main/libs/infinity_emb/infinity_emb/infinity_server.py"
_BATCHES = "https://github.com/michaelfeil/infinity/blob/main/libs/infinity_emb/infinity_emb/inference/batch_handler.py"
_INSTRUMENTATOR = "https://github.com/trallnag/prometheus-fastapi-instrumentator/blob/master/src/prometheus_fastapi_instrumentator/metrics.py"

MAX_MODELS = 64
_STATS = ("queue_absolute", "queue_fraction", "results_pending", "batch_size")

# what is not a model's work, our own reading of the server among it: it counts the requests for its page and its model list. "none": a
# path that it does not have, which is what every other runtime's endpoints are to it
_NOT_WORK = frozenset(
    {
        "/metrics", "/health", "/models", "/v1/models", "none", "/", "/docs", "/v1/docs", "/openapi.json", "/v1/openapi.json",
        "/docs/oauth2-redirect", "/redoc",
    }
)  # fmt: skip


def _entries(answer: object) -> dict[str, Mapping[str, object]]:
    """The stats of each model of `/models` by its name; {} for any other JSON."""
    found = {}
    for entry in map(mapping, listed(mapping(answer).get("data"), MAX_MODELS)):
        name, stats = text(entry.get("id")), mapping(entry.get("stats"))
        if name is not None and "queue_absolute" in stats:
            found[name] = stats
    return found


def is_infinity(answer: object) -> bool:
    """Whether a model list is Infinity's: no other server puts its queue into it."""
    return bool(_entries(answer))


def read_stats(answer: object) -> Readings:
    """`/models`: the stats of each model as `infinity:<name>{model_name}`."""
    found = []
    for name, stats in _entries(answer).items():
        for key in _STATS:
            value = number(stats.get(key))
            if value is not None:
                found.append(reading(f"infinity:{key}", value, model_name=name))
    return tuple(found)


def read_models(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/models`: what it serves."""
    names = tuple(_entries(answer))
    return replace(facts, model_names=names) if names else facts


# with --url-prefix /v1 (INFINITY_URL_PREFIX) everything but /metrics and /health stands below it
_LISTS = ("/models", "/v1/models")

_ROWS = (
    Row(
        "requests_waiting",
        ("infinity:queue_absolute",),
        source=_BATCHES,
        caveat="Inputs, of which a request may have many, without the up to 16 batches on their way to the model. Those of clients that gave up stay in it.",
    ),
    Row(
        "batch_limit_requests",
        ("infinity:batch_size",),
        source=_SERVER,
        caveat="Inputs in a batch, not requests.",
    ),
    Row(
        "requests_finished_total",
        ("http_requests_total",),
        by="status",
        where={"status": frozenset({"2xx", "5xx"})},
        rename={"2xx": "success", "5xx": "error"},
        source=_INSTRUMENTATOR,
        caveat="HTTP answers. A request whose client gave up is still computed, and counts as success.",
    ),
    Row(
        "http_responses_total",
        ("http_requests_total",),
        by="status",
        source=_INSTRUMENTATOR,
        caveat="Without /metrics, /health, model lists, documentation and unknown paths. An overload (429) is among 4xx.",
    ),
    Row(
        "e2e_request_latency_seconds",
        ("http_request_duration_seconds",),
        reads=Reads.HISTOGRAM,
        quality=Quality.APPROXIMATE,
        source=_INSTRUMENTATOR,
        caveat="HTTP time of all answers, refused ones too; edges are 0.1, 0.5 and 1 s.",
    ),
)

_NOT_TOLD = "its page has HTTP counters only"
_NO_TOKENS = "tokens are not counted"
_MISSING = {
    **dict.fromkeys(
        (
            "prompt_tokens_total", "prefill_tokens_total", "cached_prompt_tokens_total", "prefix_cache_query_tokens_total",
            "prefix_cache_hit_tokens_total", "request_prompt_tokens",
        ),
        _NO_TOKENS,
    ),
    **dict.fromkeys(
        (
            "decode_tokens_total", "preemptions_total", "speculative_draft_tokens_total", "speculative_accepted_tokens_total",
            "time_to_first_token_seconds", "inter_token_latency_seconds", "time_per_output_token_seconds", "request_decode_time_seconds",
            "request_generation_tokens", "kv_cache_usage_ratio", "kv_cache_capacity_tokens",
        ),
        "it generates nothing",
    ),
    "requests_running": "results_pending reads 0 under full load",
    "requests_rejected_total": "429 and other 4xx are one number",
    **dict.fromkeys(
        (
            "engine_steps_total", "request_queue_time_seconds", "request_prefill_time_seconds", "context_limit_tokens",
            "model_gpu_memory_bytes",
        ),
        _NOT_TOLD,
    ),
}  # fmt: skip

RUNTIME = Runtime(
    name="infinity",
    title="Infinity",
    rows=_ROWS,
    model_labels=("model_name",),
    never={"handler": _NOT_WORK},
    start_sample="process_start_time_seconds",
    endpoints=tuple(Endpoint(path, read_models, ("model_names",)) for path in _LISTS),
    polls=tuple(Poll(path, read_stats, "the queue") for path in _LISTS),
    shows=tuple((path, is_infinity) for path in _LISTS),
    default_edges={"e2e": (0.1, 0.5, 1.0)},
    missing=_MISSING,
    versions="<=0.0.78",
    covered="0.0.78",
)
