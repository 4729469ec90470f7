"""TensorRT-LLM's iteration statistics: the JSON of trtllm-serve's /metrics, which reading empties. Read only where the setting says so.

One record an iteration. What a record counts is added up by the exporter from 0; gauges are the newest record's, and so is the number
of iterations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from llm_serving_exporter.model.snapshot import Quality
from llm_serving_exporter.normalise.json_values import mapping, number
from llm_serving_exporter.normalise.mapping import ERRORS, PageKind, Readings, Row, Runtime
from llm_serving_exporter.normalise.polled import reading
from llm_serving_exporter.normalise.runtimes.trtllm_endpoints import ENDPOINTS, FLAGS

_EXECUTOR = "https://github.com/NVIDIA/TensorRT-LLM/blob/main/tensorrt_llm/_torch/pyexecutor/py_executor.py"
_KV_TOKENS = "https://github.com/NVIDIA/TensorRT-LLM/pull/13199"

RANK = "attentionDpRank"
# what comes from outside is bounded: ranks of one server, and the largest count that a float holds exactly
MAX_RANKS, MAX_COUNT = 1024, 2**53

_ADDS = frozenset({"numCtxTokens", "decodedTokens", "numCompletedRequests", "numDraftTokens", "numAcceptedTokens"})
_STAYS = frozenset(
    {
        "iterations", "maxNumActiveRequests", "maxNumBlocks", "tokensPerBlock", "reusedBlocks", "missedBlocks", "requestsLeft",
    }
)  # fmt: skip


def _count(record: Mapping[str, object], name: str) -> float | None:
    value = number(record.get(name))
    return value if value is not None and 0 <= value < MAX_COUNT else None


def _section(record: Mapping[str, object], name: str) -> Mapping[str, object]:
    return mapping(record.get(name))


def _rank(record: Mapping[str, object]) -> int | None:
    """The attention data-parallel rank that a record is of; None where there are none."""
    rank = record.get(RANK)
    return rank if isinstance(rank, int) and not isinstance(rank, bool) and 0 <= rank < MAX_RANKS else None


def _increments(record: Mapping[str, object], *, first: bool) -> Iterable[tuple[str, float]]:
    """What one record adds. Ranks but the first repeat its figures for all that is not scheduling."""
    batch, drafts = _section(record, "inflightBatchingStats"), _section(record, "specDecodingStats")
    context = _count(batch, "numCtxTokens")
    if context is not None:
        yield "numCtxTokens", context
    accepted = _count(drafts, "numAcceptedTokens") if first else None
    generating = _count(batch, "numGenRequests")
    if generating is not None:
        # the PyTorch back end leaves the mean at 0
        each = _count(batch, "avgNumDecodedTokensPerIter")
        decoded = generating * each if each else generating + (accepted or 0.0)
        yield "decodedTokens", decoded + (_count(record, "numNewActiveRequests") or 0.0)
    if not first:
        return
    for name, value in (
        ("numCompletedRequests", _count(record, "numCompletedRequests")),
        ("numDraftTokens", _count(drafts, "numDraftTokens")),
        ("numAcceptedTokens", accepted),
    ):
        if value is not None:
            yield name, value


def _gauges(record: Mapping[str, object], rank: int | None) -> Iterable[tuple[str, float | None]]:
    """What the newest record of a rank says."""
    batch, cache = _section(record, "inflightBatchingStats"), _section(record, "kvCacheStats")
    iteration = _count(record, "iter")
    yield "iterations", iteration + 1 if iteration is not None else None
    yield "numScheduledRequests", _count(batch, "numScheduledRequests")
    yield "numGenKvTokens", _count(batch, "numGenKvTokens")
    yield "maxNumActiveRequests", _count(record, "maxNumActiveRequests")
    if rank:
        return
    yield "numQueuedRequests", _count(record, "numQueuedRequests")
    for name in ("maxNumBlocks", "usedNumBlocks", "tokensPerBlock", "reusedBlocks", "missedBlocks"):
        yield name, _count(cache, name)
    if rank is None:
        active, queued = _count(record, "numActiveRequests"), _count(record, "numQueuedRequests")
        completed = _count(record, "numCompletedRequests")
        yield "numActiveRequests", active
        if active is not None and completed is not None and active <= completed and queued == 0:
            yield "requestsLeft", 0.0


def read_iterations(answer: object) -> Readings | None:
    """The JSON array of iteration records -> increments and gauges by rank; () of an empty one, None of anything else."""
    if not isinstance(answer, list):
        return None
    added: dict[tuple[str, int | None], float] = {}
    newest: dict[int | None, Mapping[str, object]] = {}
    for record in answer:
        if not isinstance(record, dict) or "iterLatencyMS" not in record:
            continue
        rank = _rank(record)
        newest[rank] = record
        for name, value in _increments(record, first=not rank):
            added[name, rank] = added.get((name, rank), 0.0) + value
    if answer and not newest:
        return None
    found = [(name, rank, value) for (name, rank), value in added.items()]
    for rank, record in newest.items():
        found += [(name, rank, value) for name, value in _gauges(record, rank) if value is not None]
    return tuple(
        reading(name, value) if rank is None else reading(name, value, **{RANK: str(rank)})
        for name, rank, value in found
    )


def _row(field: str, *samples: str, **more: object) -> Row:
    return Row(field, samples, **{"source": _EXECUTOR, **more})  # type: ignore[arg-type]  # keyword passthrough


_COUNTED_ON = "Added up by the exporter from 0; iterations that another reader took, or that were dropped, are missing."
_IDLE = "After an empty answer 0, if the last iteration left nothing to do; else absent."
_NO_REQUESTS = "iteration statistics have nothing of single requests"

_ROWS = (
    _row("prefill_tokens_total", "numCtxTokens", caveat=f"Recomputed tokens included. {_COUNTED_ON}"),
    _row(
        "decode_tokens_total",
        "decodedTokens",
        quality=Quality.APPROXIMATE,
        caveat="Generating requests of each iteration, accepted drafts, and one first token for each new request: a request's last iteration "
        f"may be counted once too often, and a request that fails in prefill once. {_COUNTED_ON}",
    ),
    _row(
        "engine_steps_total",
        "iterations",
        caveat="The engine's own number of its newest recorded iteration, from 1. It starts again from 1 when the server restarts.",
    ),
    _row("speculative_draft_tokens_total", "numDraftTokens", caveat=_COUNTED_ON),
    _row("speculative_accepted_tokens_total", "numAcceptedTokens", caveat=_COUNTED_ON),
    _row(
        "requests_finished_total",
        "numCompletedRequests",
        named={"numCompletedRequests": "completed"},
        caveat=f"The page does not say whether they succeeded. {_COUNTED_ON}",
    ),
    _row("prefix_cache_queries", "reusedBlocks", "missedBlocks", caveat="Blocks."),
    _row("prefix_cache_hits", "reusedBlocks", caveat="Blocks."),
    _row(
        "requests_running", "numActiveRequests", caveat=f"Requests admitted, in the iteration's batch or not. {_IDLE}"
    ),
    _row("requests_running", "numScheduledRequests", caveat="With attention data parallelism: the rank's batch."),
    _row("requests_running", "requestsLeft", caveat=_IDLE),
    _row("requests_waiting", "numQueuedRequests", caveat=_IDLE),
    _row("requests_waiting", "requestsLeft", caveat=_IDLE),
    _row("batch_limit_requests", "maxNumActiveRequests", caveat="The limit of admitted requests."),
    _row(
        "kv_cache_usage_ratio",
        "usedNumBlocks",
        over=("maxNumBlocks",),
        caveat="With attention data parallelism the first rank's. Absent after an empty answer.",
    ),
    _row(
        "kv_cache_capacity_tokens",
        "maxNumBlocks",
        times=("tokensPerBlock",),
        caveat="With attention data parallelism the first rank's.",
    ),
    _row("kv_block_tokens", "tokensPerBlock"),
    _row(
        "decode_context_tokens", "numGenKvTokens", source=_KV_TOKENS, caveat="Of the iteration's generating requests."
    ),
)

RUNTIME = Runtime(
    name="trtllm-json",
    title="TensorRT-LLM's iteration statistics",
    rows=_ROWS,
    kind=PageKind.JSON,
    read_page=read_iterations,
    adds=_ADDS,
    stays=_STAYS,
    engine_labels=(RANK,),
    endpoints=ENDPOINTS,
    flags=FLAGS,
    missing={
        ERRORS: "the page does not say whether completed requests succeeded",
        "prompt_tokens_total": "only computed tokens are counted",
        "cached_prompt_tokens_total": "reuse is counted in blocks",
        "prefix_cache_query_tokens_total": "reuse is counted in blocks; the ratio is there",
        "prefix_cache_hit_tokens_total": "reuse is counted in blocks; the ratio is there",
        "preemptions_total": "paused requests are a gauge of one iteration; nothing counts them",
        "requests_rejected_total": _NO_REQUESTS,
        "http_responses_total": _NO_REQUESTS,
        "time_to_first_token_seconds": _NO_REQUESTS,
        "inter_token_latency_seconds": _NO_REQUESTS,
        "time_per_output_token_seconds": _NO_REQUESTS,
        "e2e_request_latency_seconds": _NO_REQUESTS,
        "request_queue_time_seconds": _NO_REQUESTS,
        "request_prefill_time_seconds": _NO_REQUESTS,
        "request_decode_time_seconds": _NO_REQUESTS,
        "request_prompt_tokens": _NO_REQUESTS,
        "request_generation_tokens": _NO_REQUESTS,
        "context_limit_tokens": "not in the statistics",
        "model_gpu_memory_bytes": "gpuMemUsage is all that is in use on the device",
    },
    versions=">=1.0,<=1.4",
)
