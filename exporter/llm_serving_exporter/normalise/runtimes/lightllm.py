"""LightLLM 1.0: the table, what names its model and how full its KV cache is. Made from its source; no page was recorded.

Its client library writes a family at 0 before anything was observed, and some families never are: those are not read, because
their 0 is no measurement.
"""

from __future__ import annotations

from llm_serving_exporter.model.facts import ServerFacts
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import Quality
from llm_serving_exporter.model.text import clean
from llm_serving_exporter.normalise.json_values import listed, mapping, number
from llm_serving_exporter.normalise.mapping import (
    ERRORS,
    Endpoint,
    Fingerprint,
    Flags,
    Mark,
    Poll,
    Readings,
    Reads,
    Row,
    Runtime,
)
from llm_serving_exporter.normalise.polled import reading

_REPOSITORY = "https://github.com/ModelTC/lightllm/blob/v1.0.1"
_MANAGER = f"{_REPOSITORY}/lightllm/server/httpserver/manager.py"
_ROUTER = f"{_REPOSITORY}/lightllm/server/router/manager.py"
_LOAD = f"{_REPOSITORY}/lightllm/server/router/req_queue/base_queue.py"
_API = f"{_REPOSITORY}/lightllm/server/api_http.py"

_LOADED = "lightllm_polled_token_load"
MAX_RANKS = 1024

_AT_ARRIVAL = "Counted when a request has been tokenised, before it waits; requests that fail later are in it."
_AT_FINISH = "Booked when a request succeeds; failed and aborted ones are missing."


def read_model_name(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/get_model_name`: {"model_name": "…"}."""
    name = answer.get("model_name") if isinstance(answer, dict) else None
    return replace(facts, model_names=(clean(name),)) if isinstance(name, str) and name else facts


def read_token_load(answer: object) -> Readings:
    """`/token_load`: {"current_load": 0.4, …}, under data parallelism a list with one entry a rank: then their mean."""
    load = mapping(answer).get("current_load")
    ranks = listed(load, MAX_RANKS) or [load]
    loads = [found for one in ranks if (found := number(one)) is not None and 0 <= found <= 1]
    return (reading(_LOADED, add_up(loads) / len(loads)),) if loads else ()


def _histogram(field: str, sample: str, caveat: str, quality: Quality = Quality.LAGGING) -> Row:
    return Row(field, (sample,), reads=Reads.HISTOGRAM, quality=quality, source=_MANAGER, caveat=caveat)


_ENDS = {"lightllm_request_success_total": "success", "lightllm_request_failure_total": "failed"}

_ROWS = (
    Row("prompt_tokens_total", ("lightllm_request_input_length_sum",), source=_MANAGER, caveat=_AT_ARRIVAL),
    Row(
        "prefill_tokens_total",
        ("lightllm_request_input_length_sum",),
        minus=("lightllm_cache_length_sum",),
        quality=Quality.APPROXIMATE,
        may_fall=True,
        source=_MANAGER,
        caveat="Prompt tokens, counted at arrival, less cache hits, booked when a request succeeds. Counted on by the exporter from 0, because the difference dips.",
    ),
    Row(
        "cached_prompt_tokens_total",
        ("lightllm_cache_length_sum",),
        quality=Quality.LAGGING,
        source=_MANAGER,
        caveat=_AT_FINISH,
    ),
    Row(
        "prefix_cache_query_tokens_total",
        ("lightllm_request_input_length_sum",),
        quality=Quality.APPROXIMATE,
        source=_MANAGER,
        caveat=f"Every prompt is looked up. {_AT_ARRIVAL} Hits are booked at the end.",
    ),
    Row(
        "prefix_cache_hit_tokens_total",
        ("lightllm_cache_length_sum",),
        quality=Quality.LAGGING,
        source=_MANAGER,
        caveat=_AT_FINISH,
    ),
    Row("prefix_cache_queries", ("lightllm_request_input_length_sum",), quality=Quality.APPROXIMATE, source=_MANAGER),
    Row("prefix_cache_hits", ("lightllm_cache_length_sum",), quality=Quality.LAGGING, source=_MANAGER),
    Row(
        "decode_tokens_total",
        ("lightllm_request_generated_tokens_sum",),
        quality=Quality.LAGGING,
        source=_MANAGER,
        caveat=_AT_FINISH,
    ),
    Row(
        "requests_finished_total",
        tuple(_ENDS),
        named=_ENDS,
        source=_API,
        caveat="`failed`: every answer with an error. Invalid requests and clients that left are in it, streams that broke off are not.",
    ),
    _histogram(
        "time_to_first_token_seconds",
        "lightllm_request_first_token_duration",
        f"From arrival to the first token. {_AT_FINISH}",
    ),
    _histogram(
        "time_per_output_token_seconds",
        "lightllm_request_mean_time_per_token_duration",
        "Time after the first token over all tokens, the first included: too low by one part in the answer's length.",
        Quality.APPROXIMATE,
    ),
    _histogram(
        "e2e_request_latency_seconds",
        "lightllm_request_inference_duration",
        f"From arrival to the last token, whatever its name. {_AT_FINISH}",
    ),
    _histogram(
        "request_prompt_tokens",
        "lightllm_request_input_length",
        f"{_AT_ARRIVAL} The edges follow max_req_total_len.",
        Quality.LIVE,
    ),
    _histogram(
        "request_generation_tokens",
        "lightllm_request_generated_tokens",
        f"{_AT_FINISH} The edges follow max_req_total_len.",
    ),
    Row("requests_running", ("lightllm_batch_current_size",), source=_ROUTER, caveat="Idle is shown 3 s late."),
    Row("requests_waiting", ("lightllm_queue_size",), source=_ROUTER, caveat="Idle is shown 3 s late."),
    Row(
        "kv_cache_usage_ratio",
        (_LOADED,),
        source=_LOAD,
        caveat="current_load of /token_load: tokens held by live requests; what only the prompt cache holds counts as free.",
    ),
)

_NOT_READ = (
    "lightllm_request_count*",
    "lightllm_request_max_new_tokens",
    "lightllm_cache_ratio",
    "lightllm_batch_pause_size",
    "lightllm_batch_current_max_tokens",
    # declared and never observed (lightllm/server/metrics/metrics.py): their 0 says nothing
    "lightllm_request_duration",
    "lightllm_request_validation_duration",
    "lightllm_request_queue_duration_bucket",
    "lightllm_batch_inference_count*",
    "lightllm_batch_inference_duration_bucket",
    "lightllm_batch_next_size",
)

RUNTIME = Runtime(
    name="lightllm",
    title="LightLLM",
    prefixes=("lightllm_",),
    fingerprints=(Fingerprint((Mark("lightllm_*"),)),),
    rows=_ROWS,
    flags=Flags(
        ("--running-max-req-size",), source="https://github.com/ModelTC/lightllm/blob/main/lightllm/server/api_cli.py"
    ),
    endpoints=(Endpoint("/get_model_name", read_model_name, ("model_names",)),),
    polls=(Poll("/token_load", read_token_load, "kv_cache_usage_ratio"),),
    ignored=_NOT_READ,
    missing={
        ERRORS: "errors, mistakes of clients and clients that left are one number",
        "requests_rejected_total": "refusals are among the failures",
        "http_responses_total": "HTTP answers are not counted",
        "preemptions_total": "lightllm_batch_pause_size is how many are paused now, not how often",
        "engine_steps_total": "lightllm_batch_inference_count is declared and never counted",
        "speculative_draft_tokens_total": "not counted",
        "speculative_accepted_tokens_total": "not counted",
        "inter_token_latency_seconds": "only a mean per request",
        "request_queue_time_seconds": "lightllm_request_queue_duration_bucket is declared and never observed",
        "request_prefill_time_seconds": "not measured",
        "request_decode_time_seconds": "not measured",
        "batch_limit_requests": "the server does not state running_max_req_size",
        "kv_cache_capacity_tokens": "the server does not state max_total_token_num",
        "context_limit_tokens": "the server does not state max_req_total_len",
        "model_gpu_memory_bytes": "the server does not state it",
    },
    versions=">=1.0",
)
