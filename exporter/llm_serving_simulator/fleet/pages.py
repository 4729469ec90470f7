"""What a simulated server answers: its metrics page as the engine writes it, and its side endpoints."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from prometheus_client.utils import floatToGoString

from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.text import escape_label_value
from llm_serving_simulator.fleet.books import Tally
from llm_serving_simulator.fleet.engine import Engine
from llm_serving_simulator.fleet.spec import VLLM, EngineSpec

# --- Text exposition as prometheus_client writes it for the engines: labels sorted, values as floats.


# as the engines' own pages; the library leaves it unannotated
_number: Callable[[float], str] = floatToGoString


def labels_text(labels: Mapping[str, str]) -> str:
    """`{a="1",b="2"}` in order of names, "" without labels."""
    return _text(tuple(labels.items()))


@lru_cache(maxsize=8192)
def _text(labels: tuple[tuple[str, str], ...]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{escape_label_value(value)}"' for name, value in sorted(labels)) + "}"


def leave_out(page: bytes, families: Iterable[str]) -> bytes:
    """A page without some families: their names as in `# TYPE`, whatever suffixes their samples have."""
    names = "|".join(re.escape(name) for name in families)
    line = rf"^(?:# (?:HELP|TYPE) )?(?:{names})(?:_bucket|_count|_sum|_created)?[ {{].*\n"
    return re.sub(line.encode(), b"", page, flags=re.MULTILINE)


class Writer:
    """A page under construction. `created`: the time that `_created` series say, None for pages without them."""

    def __init__(self, labels: dict[str, str], created_unix_seconds: float | None = None) -> None:
        self._labels = labels
        self._of = labels_text(labels)
        self._created = None if created_unix_seconds is None else _number(created_unix_seconds)
        self._lines: list[str] = []

    def head(self, name: str, kind: str, what: str) -> None:
        """HELP and TYPE of a family."""
        self._lines.append(f"# HELP {name} {what}\n# TYPE {name} {kind}\n")

    def raw(self, line: str) -> None:
        """A sample as it is, without the page's own labels."""
        self._lines.append(line + "\n")

    def gauge(self, name: str, what: str, value: float, **more: str) -> None:
        """A gauge of one series."""
        self.head(name, "gauge", what)
        self.sample(name, value, **more)

    def sample(self, name: str, value: float, **more: str) -> None:
        """One series of the family that was begun last."""
        of = labels_text({**self._labels, **more}) if more else self._of
        self._lines.append(f"{name}{of} {_number(value)}\n")

    def counter(self, name: str, what: str, value: float, **more: str) -> None:
        """A counter of one series; `name` with its `_total`."""
        self.counters(name, what, [(more, value)])

    def counters(self, name: str, what: str, series: Iterable[tuple[Mapping[str, str], float]]) -> None:
        """A counter of several series, each with labels of its own beside the page's; none at all where there are none."""
        samples = list(series)
        if not samples:
            return
        self.head(name, "counter", what)
        for more, value in samples:
            self.sample(name, value, **more)
        if self._created is not None:
            created = f"{name.removesuffix('_total')}_created"
            self.head(created, "gauge", what)
            for more, _ in samples:
                self._lines.append(f"{created}{labels_text({**self._labels, **more})} {self._created}\n")

    def histogram(self, name: str, what: str, tally: Tally, **more: str) -> None:
        """A histogram of one series."""
        labels = tuple({**self._labels, **more}.items())
        of = _text(labels)
        self.head(name, "histogram", what)
        total = 0
        for text, count in zip(_bucket_labels(labels, tally.edges), tally.counts, strict=True):
            total += count
            self._lines.append(f"{name}_bucket{text} {total}.0\n")
        self._lines.append(f"{name}_count{of} {total}.0\n{name}_sum{of} {_number(tally.total)}\n")
        if self._created is not None:
            self.head(f"{name}_created", "gauge", what)
            self._lines.append(f"{name}_created{of} {self._created}\n")

    def page(self) -> bytes:
        """All of it."""
        return "".join(self._lines).encode()


@lru_cache(maxsize=4096)
def _bucket_labels(labels: tuple[tuple[str, str], ...], edges: tuple[float, ...]) -> tuple[str, ...]:
    """The labels of each bucket, with `le` where the order of names puts it."""
    return tuple(labels_text({**dict(labels), "le": _number(edge)}) for edge in (*edges, float("inf")))


# --- An engine's page as vLLM 0.32 writes it with its default flags: names, labels, types, edges and moments of booking are the recorded
# ones.
#
# Prompt tokens are booked with the first token, generated ones as they come, most histograms at the end of a request. Left out: the
# instrumentator's histograms of HTTP requests; `request_params_max_tokens` is given the answers' real lengths.


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
    sources = {"local_compute": counts.prompt_tokens - hits, "local_cache_hit": hits, "external_kv_transfer": 0}
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
    finished = {"stop": counts.finished_stop, "length": counts.finished_length, "error": counts.finished_error}
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
    rejections = Writer({"model_name": spec.served_name}, start_unix_seconds)
    rejections.counters(
        "vllm:admission_rejections_total",
        "Requests that were rejected at admission.",
        [({"reason": "max_num_queued_reqs"}, queue), ({"reason": "max_num_queued_tokens"}, 0)],
    )
    writer.raw(rejections.page().decode().rstrip("\n"))


def _http(writer: Writer, engine: Engine, start_unix_seconds: float) -> None:
    """Answers by class; a series is there from the first one on."""
    counts = engine.books.counts
    answers = {
        "2xx": counts.finished_stop + counts.finished_length,
        "4xx": counts.rejected_size,
        "5xx": counts.rejected_queue + counts.finished_error,
    }
    responses = Writer({"handler": _HANDLER, "method": "POST"}, start_unix_seconds)
    responses.counters(
        "http_requests_total",
        "Total number of requests by method, status and handler.",
        [({"status": status}, count) for status, count in answers.items() if count],
    )
    if text := responses.page().decode().rstrip("\n"):
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


# --- An engine's page as SGLang 0.5.23 writes it: a series is there from its first event on, request counters move when a request ends.
#
# Gauges lag: the scheduler writes them at each prefill batch and every 40 decode steps, and once idle up to 30 s later. Left out: stages,
# data-parallel balance, routing keys, the scheduler's own time. SGLang runs prompts and decode steps apart where the engine mixes them.


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


# --- What a simulated server answers beside its page: as much of it as somebody reads.


SGLANG_VERSION = "0.5.23"


@lru_cache(maxsize=64)
def _vllm(spec: EngineSpec, start_unix_seconds: int) -> dict[str, bytes]:
    model = {
        "id": spec.served_name, "object": "model", "created": start_unix_seconds, "owned_by": "vllm", "root": spec.model,
        "parent": None, "max_model_len": spec.context_limit_tokens,
    }  # fmt: skip
    config = {
        "model_config": {
            "model": spec.model, "served_model_name": spec.served_name, "dtype": "torch.bfloat16",
            "max_model_len": spec.context_limit_tokens, "quantization": None,
        },
        "cache_config": {"block_size": spec.block_tokens, "cache_dtype": "auto", "num_gpu_blocks": spec.usable_blocks + 1},
        "parallel_config": {
            "tensor_parallel_size": spec.tensor, "pipeline_parallel_size": spec.pipeline, "data_parallel_size": 1,
            "is_moe_model": bool(spec.roof.model.geometry.experts),
        },
        "scheduler_config": {"max_num_seqs": spec.max_num_seqs, "max_num_batched_tokens": spec.max_num_batched_tokens},
        "speculative_config": None,
    }  # fmt: skip
    return _bytes(
        {
            "/version": {"version": spec.version or VLLM_VERSION},
            "/v1/models": {"object": "list", "data": [model]},
            # with VLLM_SERVER_DEV_MODE=1
            "/server_info": {"vllm_config": config},
        }
    )


@lru_cache(maxsize=64)
def _sglang(spec: EngineSpec, start_unix_seconds: int) -> dict[str, bytes]:
    model = {
        "id": spec.served_name, "object": "model", "created": start_unix_seconds, "owned_by": "sglang", "root": spec.model,
        "max_model_len": spec.context_limit_tokens,
    }  # fmt: skip
    info = {
        "model_path": spec.model, "served_model_name": spec.served_name, "version": spec.version or SGLANG_VERSION, "tp_size": spec.tensor,
        "pp_size": spec.pipeline, "dp_size": 1, "enable_dp_attention": False, "context_length": spec.context_limit_tokens,
        "max_running_requests": spec.max_num_seqs, "chunked_prefill_size": spec.max_num_batched_tokens,
        "dtype": "bfloat16", "quantization": None, "kv_cache_dtype": "auto", "speculative_algorithm": None,
        "max_total_num_tokens": spec.kv_capacity_tokens,
        "internal_states": [{"effective_max_running_requests_per_dp": spec.max_num_seqs}],
    }  # fmt: skip
    loads = {
        "version": spec.version or SGLANG_VERSION, "accelerator": f"NVIDIA {spec.gpu_spec.names[0]}", "num_accelerators": spec.gpus,
        "loads": [{"dp_rank": 0, "max_running_requests": spec.max_num_seqs}],
    }  # fmt: skip
    return _bytes(
        {
            "/server_info": info,
            "/get_server_info": info,
            "/v1/models": {"object": "list", "data": [model]},
            "/v1/loads": loads,
        }
    )


def side_answers(spec: EngineSpec, start_unix_seconds: float) -> dict[str, bytes]:
    """JSON by path, of a server that started then."""
    return (_vllm if spec.runtime == VLLM else _sglang)(spec, int(start_unix_seconds))


def _bytes(documents: dict[str, object]) -> dict[str, bytes]:
    return {path: json.dumps(document).encode() for path, document in documents.items()}
