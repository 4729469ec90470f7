"""An engine's page as SGLang 0.5.23 writes it: a series is there from its first event on, request counters move when a request ends.

Gauges lag: the scheduler writes them at each prefill batch and every 40 decode steps, and once idle up to 30 s later. Left out: stages,
data-parallel balance, routing keys, the scheduler's own time. SGLang runs prompts and decode steps apart where the engine mixes them.
"""

from __future__ import annotations

from llm_serving_exporter.model.record import Struct
from llm_serving_simulator.fleet.engine import Engine
from llm_serving_simulator.fleet.exposition import Writer
from llm_serving_simulator.fleet.tally import Tally

_LOG_STEPS = 40
_IDLE_SECONDS = 30.0
_ENDPOINT = "/v1/chat/completions"
_ZEROS = (
    "num_grammar_queue_reqs", "swa_token_usage", "mamba_usage", "swa_available_tokens", "swa_evictable_tokens", "swa_used_tokens",
    "mamba_available_tokens", "mamba_evictable_tokens", "mamba_used_tokens", "spec_accept_length", "spec_accept_rate", "spec_cap_length",
    "spec_num_steps", "spec_num_draft_tokens", "num_prefill_bootstrap_queue_reqs", "num_prefill_inflight_queue_reqs",
    "num_decode_prealloc_queue_reqs", "num_decode_transfer_queue_reqs", "pending_prealloc_token_usage", "utilization",
    "is_cuda_graph",
)  # fmt: skip


class LoggedGauges(Struct, frozen=True):
    """What the scheduler logged last."""

    at_seconds: float = 0.0  # simulated time of that log line
    prefill_passes: int = 0  # until then
    decode_passes: int = 0  # until then
    running: int = 0  # requests
    waiting: int = 0  # requests
    used_tokens: int = 0  # in the KV cache
    context_tokens: int = 0  # of all running requests


def log_gauges(engine: Engine, before: LoggedGauges, now_seconds: float) -> LoggedGauges:
    """What the scheduler has logged by now."""
    if engine.hung:
        return before
    counts = engine.books.counts
    stepped = counts.prefill_passes > before.prefill_passes
    stepped |= counts.decode_passes // _LOG_STEPS > before.decode_passes // _LOG_STEPS
    if not stepped and now_seconds - before.at_seconds < _IDLE_SECONDS:
        return before
    # the sum of contexts keeps its last value while nothing decodes
    contexts = engine.context_tokens if engine.batch else before.context_tokens
    return LoggedGauges(
        now_seconds,
        counts.prefill_passes,
        counts.decode_passes,
        len(engine.running),
        len(engine.waiting),
        (engine.kv.blocks - engine.kv.free) * engine.kv.block_tokens,
        contexts,
    )


def write_sglang_page(engine: Engine, logged: LoggedGauges) -> bytes:
    """The page now."""
    spec, books, counts = engine.spec, engine.books, engine.books.counts
    served = {"engine_type": "unified", "model_name": spec.served_name}
    ranked = {**served, "moe_ep_rank": "0", "pp_rank": "0", "tp_rank": "0"}
    writer, scheduler = Writer(served), Writer(ranked)
    _histogram(scheduler, "queue_time_seconds", "Time in the queue.", books.queued)
    for name, what, amount in (
        ("prompt_tokens_total", "Prompt tokens of finished requests.", counts.finished_prompt_tokens),
        ("generation_tokens_total", "Generated tokens of finished requests.", counts.finished_generated_tokens),
        ("num_requests_total", "Finished requests.", counts.finished),
    ):
        _counter(writer, name, what, amount, is_streaming="true")
    _counter(writer, "cached_tokens_total", "Cached prompt tokens.", counts.finished_hit_tokens, cache_source="device")
    for name, what, tally in (
        ("time_to_first_token_seconds", "Time to the first token.", books.ttft),
        ("e2e_request_latency_seconds", "Arrival to the end.", books.e2e),
        ("request_time_per_output_token_seconds", "Mean time per token of a request.", books.tpot),
    ):
        _histogram(writer, name, what, tally, is_streaming="true")
    for name, what, tally in (
        ("inter_token_latency_seconds", "Time between two tokens.", books.itl),
        ("prompt_tokens_histogram", "Prompt tokens of finished requests.", books.prompt),
        ("uncached_prompt_tokens_histogram", "Those that were computed.", books.computed),
        ("generation_tokens_histogram", "Generated tokens of finished requests.", books.generation),
    ):
        _histogram(writer, name, what, tally)
    if counts.admitted:
        effective = {"input": counts.queried_tokens - counts.hit_tokens, "device_hit": counts.hit_tokens}
        scheduler.counters(
            "sglang:prefill_effective_tokens_total",
            "Prompt tokens, computed and found.",
            [({"mode": mode}, effective.get(mode, 0)) for mode in ("input", "device_hit", "host_hit", "storage_hit")],
        )
        live = {
            "prefill_compute": counts.prefill_pass_tokens,
            "decode": counts.decode_pass_tokens,
            "prefill_cache": counts.hit_tokens,
        }
        scheduler.counters(
            "sglang:realtime_tokens_total", "Tokens by pass.", [({"mode": mode}, n) for mode, n in live.items() if n]
        )
        passes = {"decode_cuda_graph": counts.decode_passes, "prefill_none": counts.prefill_passes}
        scheduler.counters(
            "sglang:cuda_graph_passes_total",
            "Forward passes.",
            [({"mode": mode}, n) for mode, n in passes.items() if n],
        )
    _counter(scheduler, "num_retracted_requests_total", "Retractions.", counts.preemptions)
    _gauges(scheduler, engine, logged)
    answers = {
        "200": counts.finished_stop + counts.finished_length,
        "400": counts.rejected_size,
        "500": counts.finished_error,
        "503": counts.rejected_queue,
    }
    http = Writer({"endpoint": _ENDPOINT, "method": "POST"})
    http.counters(
        "sglang:http_responses_total",
        "Answers.",
        [({"status_code": code}, count) for code, count in answers.items() if count],
    )
    return http.page() + writer.page() + scheduler.page()


def _gauges(writer: Writer, engine: Engine, logged: LoggedGauges) -> None:
    spec = engine.spec
    capacity = engine.kv.blocks * engine.kv.block_tokens
    evictable = engine.kv.cached_blocks * engine.kv.block_tokens
    for name, value in (
        ("max_total_num_tokens", capacity),
        ("page_size", spec.block_tokens),
        ("num_pages", engine.kv.blocks),
        ("context_len", spec.context_limit_tokens),
        ("num_running_reqs", logged.running),
        ("num_queue_reqs", logged.waiting),
        ("decode_sum_seq_lens", logged.context_tokens),
        ("token_usage", logged.used_tokens / capacity),
        ("full_token_usage", logged.used_tokens / capacity),
        ("num_used_tokens", logged.used_tokens),
        ("kv_used_tokens", logged.used_tokens),
        ("kv_evictable_tokens", evictable),
        ("kv_available_tokens", capacity - logged.used_tokens - evictable),
    ):
        writer.gauge(f"sglang:{name}", "As the scheduler logged it last.", value)
    for name in _ZEROS:
        writer.gauge(f"sglang:{name}", "Of what this engine does not have.", 0.0)


def _counter(writer: Writer, name: str, what: str, amount: float, **more: str) -> None:
    if amount:
        writer.counter(f"sglang:{name}", what, amount, **more)


def _histogram(writer: Writer, name: str, what: str, tally: Tally, **more: str) -> None:
    if tally.count:
        writer.histogram(f"sglang:{name}", what, tally, **more)
