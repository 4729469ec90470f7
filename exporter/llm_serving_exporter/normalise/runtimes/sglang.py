"""SGLang 0.4 to 0.5.23: the table. Facts: SGLang's `srt/observability/metrics_collector.py` and who calls it; limits: docs/sglang.md."""

from __future__ import annotations

from llm_serving_exporter.model.snapshot import Quality
from llm_serving_exporter.normalise.mapping import Aggregate, Fingerprint, Mark, Reads, Row, Runtime
from llm_serving_exporter.normalise.runtimes.sglang_endpoints import ENDPOINTS, FLAGS, SHOWS
from llm_serving_exporter.normalise.runtimes.sglang_names import DEFAULT_EDGES, NOT_READ, SERVING_ENDPOINTS

_SRT = "https://github.com/sgl-project/sglang/blob/v0.5.23/python/sglang/srt"
_COLLECTOR = f"{_SRT}/observability/metrics_collector.py"
_REPORTER = f"{_SRT}/managers/scheduler_components/metrics_reporter.py"
_HTTP = f"{_SRT}/observability/http_request_metrics.py"
_OLD_COLLECTOR = "https://github.com/sgl-project/sglang/blob/v0.4.6/python/sglang/srt/metrics/collector.py"

_REALTIME = "sglang:realtime_tokens_total"
_EFFECTIVE = "sglang:prefill_effective_tokens_total"
_FIRST_TOKENS = "sglang:time_to_first_token_seconds_count"
_RUNNING = "sglang:num_running_reqs"
_PASSES = "sglang:cuda_graph_passes_total"
_CAPACITY = "sglang:max_total_num_tokens"
_HITS = "device_hit|host_hit|storage_hit"

# a decode worker computes no prompt, a prefill worker hands its first token over to be counted where it is sent
_DECODE_WORKER = (_RUNNING, "engine_type", "decode")
_PREFILL_WORKER = (_RUNNING, "engine_type", "prefill")
# with priority scheduling the queue gauges have a series a priority beside the total; request counters have the parts only
_TOTAL = {"priority": frozenset({""})}

# those of them that wait for KV, at either end
_TRANSFER_QUEUES = (
    "sglang:num_decode_transfer_queue_reqs", "sglang:num_decode_prealloc_queue_reqs", "sglang:num_prefill_inflight_queue_reqs",
)  # fmt: skip
# 0 outside disaggregation. num_decode_host_receive_queue_reqs is a part of the transfer queue
_DISAGGREGATION_QUEUES = (
    "sglang:num_prefill_bootstrap_queue_reqs", "sglang:num_prefill_inflight_queue_reqs",
    "sglang:num_decode_prealloc_queue_reqs", "sglang:num_decode_transfer_queue_reqs",
    # their names up to 0.5.11 and before 0.5.2
    "sglang:num_prefill_prealloc_queue_reqs", "sglang:num_prefill_infight_queue_reqs",
)  # fmt: skip

_AT_FINISH = "Booked when a request finishes, in one lump."
_NO_DP_RANK = 'Has no dp_rank: with several data-parallel ranks its engine is "".'
_EVERY_40 = (
    "Updated at each prefill batch and every 40 decode steps (--decode-log-interval); up to 30 s late once idle."
)


def _row(field: str, *samples: str, **more: object) -> Row:
    return Row(field, samples, **{"source": _COLLECTOR, **more})  # type: ignore[arg-type]  # keyword passthrough


def _histogram(field: str, sample: str, **more: object) -> Row:
    return _row(field, sample, reads=Reads.HISTOGRAM, **more)


def _gauge(field: str, *samples: str, **more: object) -> Row:
    # 40 steps of up to 50 ms. The recorded collector has them from the start, others from the first batch on (docs/sglang.md)
    known = {"quality": Quality.SLOW, "refresh_seconds": 2.0, "born_at_first_event": True, "source": _REPORTER}
    return _row(field, *samples, **{**known, **more})


_TOKENS = (
    _row(
        "prompt_tokens_total",
        "sglang:prompt_tokens_total",
        quality=Quality.LAGGING,
        caveat=f"Includes cached tokens; in prefill/decode disaggregation both sides count. {_AT_FINISH} {_NO_DP_RANK}",
    ),
    _row(
        "prefill_tokens_total",
        f'{_REALTIME}{{mode="prefill_compute"}}',
        versions=">=0.5.7",
        source=_REPORTER,
        caveat="Live, a batch at a time; tokens recomputed after a retraction are counted again.",
    ),
    _row(
        "prefill_tokens_total",
        "sglang:prompt_tokens_total",
        minus=("sglang:cached_tokens_total",),
        versions=">=0.4.4,<0.5.7",
        unless=_DECODE_WORKER,
        quality=Quality.LAGGING,
        may_fall=True,
        source=_OLD_COLLECTOR,
        caveat=f"Prompt less cached tokens, counted on by the exporter from 0. {_AT_FINISH}",
    ),
    _row(
        "prefill_tokens_total",
        "sglang:prompt_tokens_total",
        versions=">=0.4.4,<0.5.7",
        guarded=True,
        unless=_DECODE_WORKER,
        quality=Quality.LAGGING,
        may_fall=True,
        source=_OLD_COLLECTOR,
        caveat=f"No cached token was counted yet: every one was computed. {_AT_FINISH}",
    ),
    _row(
        "cached_prompt_tokens_total",
        "sglang:cached_tokens_total",
        versions=">=0.4.4",
        quality=Quality.LAGGING,
        caveat="All cache_source values: a request is booked under its sources or, where these are not known, under "
        f'"total", never both. Absent before the first hit. {_AT_FINISH}',
    ),
    _row(
        "decode_tokens_total",
        "sglang:generation_tokens_total",
        unless=_PREFILL_WORKER,
        quality=Quality.LAGGING,
        caveat=f"Exact. {_AT_FINISH} Rates are of decode_tokens_live from 0.5.7 on.",
    ),
    _row(
        "decode_tokens_live",
        f'{_REALTIME}{{mode="decode"}}',
        _FIRST_TOKENS,
        versions=">=0.5.7",
        source=_REPORTER,
        caveat="Sequences of decode passes plus first tokens (those of time_to_first_token_seconds), which prefill makes. About one more for each "
        "answer than it has tokens: the overlapped scheduler has begun another pass when an answer ends (0.4 % on an H100 with 0.5.17). "
        'With data parallelism first tokens are under engine "".',
    ),
    _row(
        "decode_pass_tokens",
        f'{_REALTIME}{{mode="decode"}}',
        versions=">=0.5.7",
        source=_REPORTER,
        caveat="Requests that are not streamed have inter-token events from their first output on only, at every 50th token or the end.",
    ),
)


def _lookups(queries: str, hits: str) -> tuple[Row, ...]:
    """Prefix-cache rows for the tokens looked up and those found."""
    again = "Chunked and retracted requests are counted again."
    old = {"versions": "<0.5.7", "unless": _DECODE_WORKER, "quality": Quality.LAGGING, "source": _OLD_COLLECTOR}
    return (
        _row(
            queries,
            f'{_EFFECTIVE}{{mode="input|{_HITS}"}}',
            versions=">=0.5.18",
            caveat="Computed (input) plus found on the device, in host memory and in storage.",
        ),
        _row(
            queries,
            f'{_REALTIME}{{mode="prefill_compute"}}',
            f'{_REALTIME}{{mode="prefill_cache"}}',
            versions=">=0.5.7,<0.5.18",
            caveat=again,
        ),
        _row(queries, "sglang:prompt_tokens_total", caveat=_AT_FINISH, **old),
        _row(hits, f'{_EFFECTIVE}{{mode="{_HITS}"}}', versions=">=0.5.18"),
        _row(hits, f'{_REALTIME}{{mode="prefill_cache"}}', versions=">=0.5.7,<0.5.18", caveat=again),
        _row(hits, "sglang:cached_tokens_total", caveat=_AT_FINISH, **{**old, "versions": ">=0.4.4,<0.5.7"}),
    )


_PREFIX_CACHE = (
    *_lookups("prefix_cache_query_tokens_total", "prefix_cache_hit_tokens_total"),
    *_lookups("prefix_cache_queries", "prefix_cache_hits"),
)

_REQUESTS = (
    _row(
        "requests_finished_total",
        "sglang:num_requests_total",
        "sglang:num_aborted_requests_total",
        named={"sglang:num_requests_total": "success", "sglang:num_aborted_requests_total": "abort"},
        versions=">=0.4.2",
        caveat="SGLang does not say why a request finished; aborts since 0.4.7. An aborted request that still gives a last output counts as "
        f"success too. {_NO_DP_RANK}",
    ),
    _row(
        "http_responses_total",
        f'sglang:http_responses_total{{endpoint="{SERVING_ENDPOINTS}"}}',
        by="status_code",
        rename={str(code): f"{code // 100}xx" for code in range(200, 600)},
        versions=">=0.5.7",
        source=_HTTP,
        caveat="Endpoints that serve requests only: /metrics, health checks and administration are left out.",
    ),
    _row(
        "preemptions_total",
        "sglang:num_retracted_requests_total",
        versions=">=0.5.7",
        caveat="Retractions. The page has none before the first one: 0 until then, where the version is known.",
    ),
    _row(
        "preemptions_total",
        "sglang:total_retracted_reqs",
        versions=">=0.4.10,<0.5.2",
        source="https://github.com/sgl-project/sglang/blob/v0.4.10/python/sglang/srt/metrics/collector.py",
        caveat="A gauge there that holds the count since start.",
    ),
    _row(
        "engine_steps_total",
        _PASSES,
        versions=">=0.5.7",
        caveat="Forward passes, prefill and decode. Every rank counts decode passes, rank 0 alone prefill passes: the "
        "largest of the ranks is taken for each mode.",
    ),
)

_DECODE_PASSES = (
    _row(
        "decode_steps_total",
        f'{_PASSES}{{mode="decode_cuda_graph|decode_none"}}',
        versions=">=0.5.7",
        caveat="Prompts are computed in passes of their own, unless --enable-mixed-chunk lets them ride along.",
    ),
)

_DEVICE_TIMER = (
    "Only with the device timer (SGLANG_ENABLE_METRICS_DEVICE_TIMER). The largest of the ranks is taken for each mode; passes without a "
    "request, which data-parallel attention makes, are left out."
)
_MODES = "decode|extend|mixed|split_prefill|target_verify|draft_extend|draft_extend_v2|dllm_extend|prebuilt"
_DEVICE_TIME = (
    _row(
        "device_busy_seconds",
        f'sglang:forward_execution_seconds_total{{category="{_MODES}"}}',
        versions=">=0.5.11",
        caveat=_DEVICE_TIMER,
    ),
    _row(
        "device_busy_seconds",
        f'sglang:gpu_execution_seconds_total{{category="{_MODES}"}}',
        versions=">=0.5.7,<0.5.11",
        caveat=f"The same quantity's older name. {_DEVICE_TIMER}",
    ),
)

_TTFT = "sglang:time_to_first_token_seconds"
_LATENCIES = (
    _histogram(
        "time_to_first_token_seconds",
        f'{_TTFT}{{is_streaming="true"}}',
        versions=">=0.5.17",
        source="https://github.com/sgl-project/sglang/pull/32363",
        caveat=f"Streamed requests only: others give their first output late. Nothing below 0.1 s is resolved. {_NO_DP_RANK}",
    ),
    _histogram(
        "time_to_first_token_seconds",
        f'{_TTFT}{{is_streaming=""}}',
        versions="<0.5.17",
        source=_OLD_COLLECTOR,
        caveat="Requests that are not streamed give their first output every 50 tokens or at the end, and raise it.",
    ),
    _histogram(
        "inter_token_latency_seconds",
        "sglang:inter_token_latency_seconds",
        versions=">=0.4.4",
        caveat="One event a token: a gap between two outputs is shared by the tokens in the later one, under "
        f"speculation too. {_NO_DP_RANK}",
    ),
    _histogram(
        "inter_token_latency_seconds",
        "sglang:time_per_output_token_seconds",
        versions="<0.4.4",
        source=_OLD_COLLECTOR,
        caveat="The same quantity's older name.",
    ),
    _histogram(
        "time_per_output_token_seconds",
        "sglang:request_time_per_output_token_seconds",
        versions=">=0.5.22",
        quality=Quality.LAGGING,
        caveat=f"Mean per request, streamed or not. {_AT_FINISH}",
    ),
    _histogram(
        "e2e_request_latency_seconds",
        "sglang:e2e_request_latency_seconds",
        quality=Quality.LAGGING,
        caveat=f"Streamed or not. {_AT_FINISH}",
    ),
    _histogram(
        "request_queue_time_seconds",
        "sglang:queue_time_seconds",
        versions=">=0.5.3",
        caveat="Booked when a request leaves the queue. Every rank observes it: the lowest tensor-parallel rank is taken.",
    ),
    _histogram(
        "request_queue_time_seconds",
        "sglang:queue_time_s",
        versions=">=0.5.2,<0.5.3",
        caveat="The same quantity's older name.",
    ),
    _histogram(
        "request_prompt_tokens",
        "sglang:prompt_tokens_histogram",
        versions=">=0.4.7",
        quality=Quality.LAGGING,
        caveat=f"The lowest edge is 100. {_AT_FINISH}",
    ),
    _histogram(
        "request_generation_tokens",
        "sglang:generation_tokens_histogram",
        versions=">=0.4.7",
        quality=Quality.LAGGING,
        caveat=f"The lowest edge is 100. {_AT_FINISH}",
    ),
)

_GAUGES = (
    _gauge(
        "requests_running",
        _RUNNING,
        where=_TOTAL,
        decode_only=True,
        caveat=f"{_EVERY_40} Requests that end in prefill stay in it until something decodes. Under pipeline parallelism those of the first stage's micro-batch.",
    ),
    _gauge(
        "requests_waiting",
        "sglang:num_queue_reqs",
        "sglang:num_grammar_queue_reqs",
        *_DISAGGREGATION_QUEUES,
        where=_TOTAL,
        caveat="Queued and waiting for a grammar (0.4.7+); in prefill/decode disaggregation also waiting for a connection, for memory and for KV "
        f"on its way: on a prefill worker computed prompts that are being sent are in it. {_EVERY_40}",
    ),
    _gauge(
        "requests_deferred",
        "sglang:num_grammar_queue_reqs",
        *_DISAGGREGATION_QUEUES,
        where=_TOTAL,
        caveat=f"Waiting for a grammar, or in disaggregation for a connection, memory or KV on its way. {_EVERY_40}",
    ),
    _gauge(
        "kv_connector",
        *_TRANSFER_QUEUES,
        where=_TOTAL,
        caveat="Requests whose KV is on its way; 0 outside disaggregation.",
    ),
    _gauge(
        "kv_cache_usage_ratio",
        "sglang:full_token_usage",
        aggregate=Aggregate.MAX,
        versions=">=0.5.10",
        caveat=f"The pool that keeps every token; evictable prefix-cached ones count as free. {_EVERY_40}",
    ),
    _gauge(
        "kv_cache_usage_ratio",
        "sglang:token_usage",
        aggregate=Aggregate.MAX,
        caveat=f"The fullest pool of a hybrid model, with two decimals; evictable prefix-cached tokens count as free. {_EVERY_40}",
    ),
    _gauge(
        "state_cache_usage_ratio",
        "sglang:mamba_usage",
        aggregate=Aggregate.MAX,
        versions=">=0.5.5",
        caveat=f"0 for a model without recurrent layers. {_EVERY_40}",
    ),
    _gauge(
        "kv_used_tokens",
        "sglang:kv_used_tokens",
        aggregate=Aggregate.MAX,
        versions=">=0.5.11",
        caveat=f"Of the pool that keeps every token; evictable prefix-cached ones count as free. {_EVERY_40}",
    ),
    _gauge(
        "kv_used_tokens",
        "sglang:full_token_usage",
        times=(_CAPACITY,),
        versions=">=0.5.10,<0.5.11",
        caveat=_EVERY_40,
    ),
    _row(
        "kv_cache_capacity_tokens", _CAPACITY, aggregate=Aggregate.MAX, versions=">=0.5.6",
        caveat="Of a data-parallel rank.",
    ),
    _row("context_limit_tokens", "sglang:context_len", aggregate=Aggregate.MAX, versions=">=0.5.11"),
    _row("kv_block_tokens", "sglang:page_size", aggregate=Aggregate.MAX, versions=">=0.5.11"),
    _gauge(
        "decode_context_tokens",
        "sglang:decode_sum_seq_lens",
        versions=">=0.5.7",
        freezes=True,
        decode_only=True,
        caveat=f"Keeps its last value while nothing decodes. {_EVERY_40}",
    ),
    _gauge(
        "accepted_tokens_per_step",
        "sglang:spec_accept_length",
        aggregate=Aggregate.MAX,
        versions=">=0.4.2",
        caveat=f"0 without speculation. {_EVERY_40}",
    ),
    _row(
        "role",
        _RUNNING,
        reads=Reads.TEXT,
        labels=("engine_type",),
        # a dynamic worker may be asked for either phase
        rename={"dynamic": "unified"},
        caveat="dynamic is taken for unified.",
    ),
)  # fmt: skip

# processes that pass SGLang's names on beside their own: each has a table of its own, or is a router
_OTHERS_WITH_ITS_NAMES = (
    Mark("dynamo_component_*"), Mark("dynamo_frontend_*"), Mark("ray_*"), Mark("smg_*"), Mark("sgl_router_*"),
)  # fmt: skip

RUNTIME = Runtime(
    name="sglang",
    title="SGLang",
    born_at_first_event=True,
    prefixes=("sglang:",),
    fingerprints=(Fingerprint((Mark("sglang:*"),), _OTHERS_WITH_ITS_NAMES),),
    rows=(*_TOKENS, *_PREFIX_CACHE, *_REQUESTS, *_DECODE_PASSES, *_DEVICE_TIME, *_LATENCIES, *_GAUGES),
    model_labels=("model_name",),
    # tp_rank is no engine: with data-parallel attention it counts on over the data-parallel ranks
    engine_labels=("dp_rank",),
    rank_labels=("tp_rank", "moe_ep_rank", "pid"),
    # every pipeline stage tells the same
    only={"pp_rank": frozenset({"0", ""})},
    # NVIDIA NIM 2.x passes the page on under the second
    paths=("/metrics", "/v1/metrics"),
    endpoints=ENDPOINTS,
    flags=FLAGS,
    shows=SHOWS,
    ignored=NOT_READ,
    # srt/mem_cache/kv_cache_dtype.py, before that model_executor/model_runner.py; deepseek_v4_memory_pool.py
    kv_as_calibrated={"modelopt/fp8_e4m3": ">=0.5.3", "deepseek_v4": ""},
    default_edges=DEFAULT_EDGES,
    missing={
        "requests_rejected_total": "refusals are not counted; see http_responses_total",
        "speculative_draft_tokens_total": "there are gauges of the last log interval only",
        "speculative_accepted_tokens_total": "there are gauges of the last log interval only",
        "request_prefill_time_seconds": "the stage prefill_forward leaves out all chunks but the last",
        "request_decode_time_seconds": "no stage lasts from the first to the last token",
        "batch_limit_requests": "not on the page; read from /v1/loads or /server_info",
        "model_gpu_memory_bytes": "gauges of weights, KV cache and graphs are of each rank and rounded",
    },
    versions=">=0.4,<=0.5.23",
    covered="0.5.23 (simulated)",
)
