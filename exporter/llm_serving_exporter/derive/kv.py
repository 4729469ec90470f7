"""KV cache: tokens in use and free, prefix hits, context length, preemptions."""

from __future__ import annotations

from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.window import EngineWindow


def used_and_free_tokens(window: EngineWindow) -> tuple[float, float] | Absence:
    """Tokens held by live requests and the rest: usage ratio x capacity, in whole blocks as the engine allots them."""
    usage, capacity = window.last.kv_cache_usage_ratio, window.last.kv_cache_capacity_tokens
    if usage is None or capacity is None:
        return Absence.INPUT_MISSING
    return usage * capacity, max(0.0, 1 - usage) * capacity


def prefix_cache_hit_ratio(window: EngineWindow) -> float | Absence:
    """Looked-up tokens that were found / looked up, over the window; without look-ups there is no ratio."""
    if window.last.prefix_cache_queries is None or window.last.prefix_cache_hits is None:
        return Absence.INPUT_MISSING
    queries, hits = window.increase("prefix_cache_queries"), window.increase("prefix_cache_hits")
    if queries is None or hits is None:
        return Absence.WARMING_UP
    return hits / queries if queries > 0 else Absence.IDLE


def context_tokens_mean(window: EngineWindow) -> float | Absence:
    """KV tokens held per running request: sum over the readings with running requests of tokens / of requests.

    Counts a shared prefix once and rounds each request up to whole blocks.
    """
    tokens = requests = 0.0
    known = False
    for reading in window.readings:
        if (
            reading.kv_cache_usage_ratio is None
            or reading.kv_cache_capacity_tokens is None
            or reading.requests_running is None
        ):
            continue
        known = True
        if reading.requests_running > 0:
            tokens += reading.kv_cache_usage_ratio * reading.kv_cache_capacity_tokens
            requests += reading.requests_running
    if not known:
        return Absence.INPUT_MISSING
    return tokens / requests if requests else Absence.IDLE


def preemptions_per_second(window: EngineWindow) -> float | Absence:
    """Preemption events per second over the window."""
    if window.last.preemptions_total is None:
        return Absence.INPUT_MISSING
    increase = window.increase("preemptions_total")
    return increase / window.elapsed_seconds if increase is not None else Absence.WARMING_UP
