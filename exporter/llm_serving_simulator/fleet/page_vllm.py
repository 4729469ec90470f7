"""An engine's page as vLLM 0.32 writes it with its default flags: names, labels, types, edges and moments of booking are the recorded ones.

Prompt tokens are booked with the first token, generated ones as they come, most histograms at the end of a request. Left out: the
instrumentator's histograms of HTTP requests; `request_params_max_tokens` is given the answers' real lengths.
"""

from __future__ import annotations

from llm_serving_simulator.fleet.engine import Engine
from llm_serving_simulator.fleet.exposition import Writer, labels_text
from llm_serving_simulator.fleet.spec import EngineSpec
from llm_serving_simulator.fleet.tally import Tally

VLLM_VERSION = "0.32.0"
_HANDLER = "/v1/chat/completions"
_REASONS = ("stop", "length", "abort", "error", "repetition")
_PARAMS_N_EDGES = (1.0, 2.0, 5.0, 10.0, 20.0)
# as recorded; what an engine decides is put over it
_CACHE_CONFIG = {
    "_block_size_resolved": "True", "cache_dtype": "auto", "cache_hit_alignment_tokens": "None",
    "enable_mamba_shared_prefix_checkpoint": "False", "engine": "0", "hash_block_size": "None", "is_attention_free": "False",
    "kv_cache_dtype_skip_layers": "[]", "kv_cache_layout": "None", "kv_cache_memory_bytes": "None", "kv_offloading_backend": "native",
    "kv_offloading_size": "None", "kv_sharing_fast_prefill": "False", "mamba_block_size": "None", "mamba_cache_dtype": "auto",
    "mamba_cache_mode": "none", "mamba_page_size_padded": "None", "mamba_ssm_cache_dtype": "float32", "num_cpu_blocks": "None",
    "num_gpu_blocks_override": "None", "prefix_cache_retention_interval": "0", "prefix_caching_hash_algo": "sha256",
    "prefix_match_unit": "None", "replayssm_buffer_len": "16", "skip_page_size_padded": "None", "sliding_window": "None",
    "swa_bounded_replay": "True", "use_kda_recoverssm": "False", "use_replayssm": "False", "user_specified_block_size": "False",
}  # fmt: skip


def write_vllm_page(engine: Engine, start_unix_seconds: float) -> bytes:
    """The page now of an engine whose process started at that time."""
    spec, books, counts = engine.spec, engine.books, engine.books.counts
    writer = Writer({"engine": "0", "model_name": spec.served_name}, start_unix_seconds)
    _process(writer, start_unix_seconds, counts.busy_seconds)
    for what in ("flops", "read_bytes", "write_bytes"):
        # there without --enable-mfu-metrics too, and then 0
        writer.counter(f"vllm:estimated_{what}_per_gpu_total", "Estimated work per GPU.", 0.0)
    running, waiting, usage = engine.shown
    writer.gauge("vllm:num_requests_running", "Requests in the batch.", running)
    writer.gauge("vllm:num_requests_waiting", "Requests that wait.", waiting)
    writer.head("vllm:num_requests_waiting_by_reason", "gauge", "Requests that wait, by reason.")
    writer.sample("vllm:num_requests_waiting_by_reason", waiting, reason="capacity")
    writer.sample("vllm:num_requests_waiting_by_reason", 0.0, reason="deferred")
    writer.head("vllm:engine_sleep_state", "gauge", "Sleep state, 1 for the one that holds.")
    for state in ("awake", "weights_offloaded", "discard_all"):
        writer.sample("vllm:engine_sleep_state", float(state == "awake"), sleep_state=state)
    writer.gauge("vllm:kv_cache_usage_perc", "Share of KV blocks in use, 0 to 1.", usage)
    writer.counter("vllm:prefix_cache_queries_total", "Tokens looked up in the prefix cache.", counts.queried_tokens)
    writer.counter("vllm:prefix_cache_hits_total", "Tokens found in the prefix cache.", counts.hit_tokens)
    for name in ("external_prefix_cache_queries", "external_prefix_cache_hits", "mm_cache_queries", "mm_cache_hits"):
        writer.counter(f"vllm:{name}_total", "Of a cache that this engine does not have.", 0.0)
    writer.counter("vllm:num_preemptions_total", "Preemptions.", counts.preemptions)
    writer.counter("vllm:prompt_tokens_total", "Prompt tokens.", counts.prompt_tokens)
    hits = counts.prompt_hit_tokens
    sources = {
        "local_compute": counts.prompt_tokens - hits,
        "local_cache_hit": hits,
        "external_kv_transfer": 0,
    }
    writer.counters(
        "vllm:prompt_tokens_by_source_total",
        "Prompt tokens by where their KV comes from.",
        [({"source": source}, tokens) for source, tokens in sources.items()],
    )
    writer.counter("vllm:prompt_tokens_cached_total", "Prompt tokens from a cache.", hits)
    writer.counters(
        "vllm:prompt_tokens_cached_by_source_total",
        "The same by cache, booked at admission.",
        [
            ({"source": source}, counts.hit_tokens if source == "device" else 0)
            for source in ("device", "host", "p2p", "disk", "external_unspecified")
        ],
    )
    writer.counter("vllm:generation_tokens_total", "Generated tokens.", counts.generated_tokens)
    finished = {
        "stop": counts.finished_stop,
        "length": counts.finished_length,
        "error": counts.finished_error,
    }
    writer.counters(
        "vllm:request_success_total",
        "Finished requests by reason.",
        [({"finished_reason": reason}, finished.get(reason, 0)) for reason in _REASONS],
    )
    _rejections(writer, spec, counts.rejected_queue, start_unix_seconds)
    for name, what, tally in (
        ("request_prompt_tokens", "Prompt tokens of finished requests.", books.prompt),
        ("request_generation_tokens", "Generated tokens of finished requests.", books.generation),
        ("iteration_tokens_total", "Tokens of a step that had output.", books.iteration),
        ("request_max_num_generation_tokens", "Longest answer of a request.", books.generation),
        ("request_params_n", "Answers asked for.", _ones(counts.finished)),
        ("request_params_max_tokens", "Tokens asked for.", books.generation),
        ("time_to_first_token_seconds", "Time to the first token.", books.ttft),
        ("inter_token_latency_seconds", "Time between two tokens.", books.itl),
        ("request_time_per_output_token_seconds", "Mean time per token of a request.", books.tpot),
        ("e2e_request_latency_seconds", "Arrival to last token.", books.e2e),
        ("request_queue_time_seconds", "Arrival to first scheduled.", books.queue),
        ("request_inference_time_seconds", "First scheduled to last token.", books.inference),
        ("request_prefill_time_seconds", "First scheduled to first token.", books.prefill),
        ("request_decode_time_seconds", "First to last token.", books.decode),
        ("request_num_preemptions", "Preemptions of a request.", books.preempted),
        ("request_prefill_kv_computed_tokens", "Prompt tokens that were computed.", books.computed),
    ):
        writer.histogram(f"vllm:{name}", what, tally)
    writer.head("vllm:cache_config_info", "gauge", "Settings of the KV cache.")
    writer.raw(f"vllm:cache_config_info{_cache_config(spec)} 1.0")
    _http(writer, engine, start_unix_seconds)
    return writer.page()


def _process(writer: Writer, start_unix_seconds: float, busy_seconds: float) -> None:
    writer.head("python_info", "gauge", "Python platform information.")
    writer.raw('python_info{implementation="CPython",major="3",minor="12",patchlevel="11",version="3.12.11"} 1.0')
    process = Writer({})
    process.gauge("process_resident_memory_bytes", "Resident memory size in bytes.", 4.1e9)
    process.gauge(
        "process_start_time_seconds", "Start time of the process since unix epoch in seconds.", start_unix_seconds
    )
    process.counter("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.", busy_seconds)
    process.gauge("process_open_fds", "Number of open file descriptors.", 61.0)
    process.gauge("process_max_fds", "Maximum number of open file descriptors.", 1048576.0)
    writer.raw(process.page().decode().rstrip("\n"))


def _rejections(writer: Writer, spec: EngineSpec, queue: int, start_unix_seconds: float) -> None:
    """They have no engine label."""
    own = Writer({"model_name": spec.served_name}, start_unix_seconds)
    own.counters(
        "vllm:admission_rejections_total",
        "Requests that were rejected at admission.",
        [({"reason": "max_num_queued_reqs"}, queue), ({"reason": "max_num_queued_tokens"}, 0)],
    )
    writer.raw(own.page().decode().rstrip("\n"))


def _http(writer: Writer, engine: Engine, start_unix_seconds: float) -> None:
    """Answers by class; a series is there from the first one on."""
    counts = engine.books.counts
    answers = {
        "2xx": counts.finished_stop + counts.finished_length,
        "4xx": counts.rejected_size,
        "5xx": counts.rejected_queue + counts.finished_error,
    }
    own = Writer({"handler": _HANDLER, "method": "POST"}, start_unix_seconds)
    own.counters(
        "http_requests_total",
        "Total number of requests by method, status and handler.",
        [({"status": status}, count) for status, count in answers.items() if count],
    )
    if text := own.page().decode().rstrip("\n"):
        writer.raw(text)


def _ones(count: int) -> Tally:
    tally = Tally(_PARAMS_N_EDGES)
    tally.observe(1, count)
    return tally


def _cache_config(spec: EngineSpec) -> str:
    # one block is set aside: usage is told of the others
    blocks, tokens = spec.usable_blocks + 1, (spec.usable_blocks + 1) * spec.block_tokens
    return labels_text(
        {
            **_CACHE_CONFIG,
            "block_size": str(spec.block_tokens),
            "effective_attention_block_size": str(spec.block_tokens),
            "enable_prefix_caching": str(spec.prefix_caching),
            "gpu_memory_utilization": str(spec.memory_utilisation),
            "kv_cache_max_concurrency": str(tokens / spec.context_limit_tokens),
            "kv_cache_size_tokens": str(tokens),
            "num_gpu_blocks": str(blocks),
        }
    )
