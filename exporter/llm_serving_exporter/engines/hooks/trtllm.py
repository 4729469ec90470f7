"""TensorRT-LLM: its side endpoints, and its iteration statistics, the JSON of trtllm-serve's /metrics, which reading empties.

The endpoints name a model that the released versions' page calls "undefined". The JSON is read only where the setting says so. It has one
record an iteration: what a record counts is added up by the exporter from 0; gauges, and the number of iterations, are the newest record's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from llm_serving_exporter.engines.json_answers import (
    is_owned_by,
    mapping,
    number,
    read_model_names,
    read_version,
    reading,
)
from llm_serving_exporter.engines.mapping import Endpoint, Hooks, Readings

_ENDPOINTS = (
    Endpoint("/version", read_version, ("version",)),
    # of a model that was loaded from a directory the list names only the directory's last part
    Endpoint("/v1/models", read_model_names, ("model_names",)),
)

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


def _rank(record: Mapping[str, object]) -> int | None:
    """The attention data-parallel rank that a record is of; None where there are none."""
    rank = record.get(RANK)
    return rank if isinstance(rank, int) and not isinstance(rank, bool) and 0 <= rank < MAX_RANKS else None


def _increments(record: Mapping[str, object], *, first: bool) -> Iterable[tuple[str, float]]:
    """What one record adds. Ranks but the first repeat its figures for all that is not scheduling."""
    batch, drafts = mapping(record.get("inflightBatchingStats")), mapping(record.get("specDecodingStats"))
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
    batch, cache = mapping(record.get("inflightBatchingStats")), mapping(record.get("kvCacheStats"))
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
    samples = [(name, rank, value) for (name, rank), value in added.items()]
    for rank, record in newest.items():
        samples += [(name, rank, value) for name, value in _gauges(record, rank) if value is not None]
    return tuple(reading(name, value, **({} if rank is None else {RANK: str(rank)})) for name, rank, value in samples)


TRTLLM_JSON = Hooks(read_page=read_iterations, adds=_ADDS, stays=_STAYS, endpoints=_ENDPOINTS)

TRTLLM = Hooks(endpoints=_ENDPOINTS, shows=(("/v1/models", partial(is_owned_by, owner="tensorrt_llm")),))
