"""The rows of the KV cache: tokens in use and free, prefix hits, context, tokens that a request holds, preemptions."""

from __future__ import annotations

from llm_serving_exporter.catalogue import derived as names
from llm_serving_exporter.derive.context import average_context, holds_every_token
from llm_serving_exporter.derive.contradiction import CONTRADICTED
from llm_serving_exporter.derive.figures import figure
from llm_serving_exporter.derive.inputs import MODEL, WINDOW, window_over
from llm_serving_exporter.derive.kv_in_use import average_tokens_per_request, read_used_tokens
from llm_serving_exporter.derive.signals import NOT_ON_A_FRONT_END, Row, Series, gauge
from llm_serving_exporter.model.shape import ModelFacts
from llm_serving_exporter.model.snapshot import Absence, Quality
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.model.window import EngineWindow


def used_and_free_tokens(window: EngineWindow) -> tuple[float, float] | Absence:
    """Tokens held by live requests and the rest, in whole blocks as the engine allots them."""
    last = window.last
    used, capacity = read_used_tokens(last), last.kv_cache_capacity_tokens
    if used is None or capacity is None:
        return Absence.INPUT_MISSING
    usage = last.kv_cache_usage_ratio if last.kv_used_tokens is None else None
    free = capacity - used if usage is None else (1 - usage) * capacity
    return used, max(0.0, free)


def prefix_cache_hit_ratio(window: EngineWindow) -> float | Absence:
    """Looked-up tokens that were found / looked up, over the window; without look-ups there is no ratio."""
    if window.last.prefix_cache_queries is None or window.last.prefix_cache_hits is None:
        return Absence.INPUT_MISSING
    queries, hits = window.increase("prefix_cache_queries"), window.increase("prefix_cache_hits")
    if queries is None or hits is None:
        return Absence.WARMING_UP
    return hits / queries if queries > 0 else Absence.IDLE


def _context(window: EngineWindow, contradicted: bool) -> float | Absence:  # a figure's inputs go by place
    return _known(average_context(window), contradicted)


def _tokens_per_request(window: EngineWindow, contradicted: bool) -> float | Absence:
    return _known(average_tokens_per_request(window), contradicted)


def _known(mean: float | Absence, contradicted: bool) -> float | Absence:
    """INCONSISTENT where no reading shows a request, and that cannot be."""
    return Absence.INCONSISTENT if contradicted and mean is Absence.IDLE else mean


def preemptions_per_second(window: EngineWindow) -> float | Absence:
    """Preemption events per second over the window."""
    if window.last.preemptions_total is None:
        return Absence.INPUT_MISSING
    increase = window.increase("preemptions_total")
    return increase / window.elapsed_seconds if increase is not None else Absence.WARMING_UP


def _state_usage(window: EngineWindow) -> float | None:
    return window.last.state_cache_usage_ratio


def _used_quality(window: EngineWindow, model: ModelFacts | Absence) -> Quality | None:
    """Where layers forget, a share of the capacity is no count of tokens."""
    forgets = isinstance(model, ModelFacts) and not holds_every_token(model.geometry)
    return Quality.APPROXIMATE if forgets and window.last.kv_used_tokens is None else None


def _used(tokens: tuple[float, float]) -> float:
    return tokens[0]


def _free(tokens: tuple[float, float]) -> float:
    return tokens[1]


USED_AND_FREE: Row[tuple[float, float]] = Row(
    figure(used_and_free_tokens, WINDOW),
    names.KV_CACHE_USED_TOKENS.name,
    fields=("kv_cache_usage_ratio", "kv_cache_capacity_tokens"),
    quality=figure(_used_quality, WINDOW, MODEL),
    silent=NOT_ON_A_FRONT_END,
    series=(Series(names.KV_CACHE_USED_TOKENS, part=_used), Series(names.KV_CACHE_FREE_TOKENS, part=_free)),
)
# above 1, more found than looked up, where the two are booked at different moments of a request: suspect, as its declaration says
HIT_RATIO = gauge(
    names.PREFIX_CACHE_HIT_RATIO,
    figure(prefix_cache_hit_ratio, window_over("prefix_cache_queries", "prefix_cache_hits")),
    # in the engine's unit too, where that is not known to be tokens
    fields=(
        "prefix_cache_query_tokens_total",
        "prefix_cache_hit_tokens_total",
        "prefix_cache_queries",
        "prefix_cache_hits",
    ),
    # the prompt's KV arrives from the prefill replica and is a hit by definition (facts runtimes-others 18)
    silent=frozenset({Role.DECODE}),
    sentences={Absence.IDLE: "No request looked anything up in the prefix cache within the window."},
)
_HELD_WINDOW = window_over("requests_running", "kv_cache_usage_ratio")
CONTEXT_MEAN = gauge(
    names.CONTEXT_TOKENS_MEAN,
    figure(_context, _HELD_WINDOW, CONTRADICTED),
    fields=("kv_cache_capacity_tokens", "requests_running"),
    silent=NOT_ON_A_FRONT_END,
    sentences={
        Absence.IDLE: "No request ran at any reading of the window.",
        Absence.INCONSISTENT: "The gauge of running requests shows none, while tokens flow.",
    },
)
# absent for the same reasons
TOKENS_PER_REQUEST: Row[float] = Row(
    figure(_tokens_per_request, _HELD_WINDOW, CONTRADICTED),
    silent=NOT_ON_A_FRONT_END,
    series=(Series(names.KV_CACHE_TOKENS_PER_REQUEST),),
)
PREEMPTIONS = gauge(
    names.PREEMPTIONS_PER_SECOND,
    figure(preemptions_per_second, window_over("preemptions_total")),
    fields=("preemptions_total",),
    explained_by="preemptions_total",
)
STATE_USAGE: Row[float] = Row(
    figure(_state_usage, WINDOW), silent=NOT_ON_A_FRONT_END, series=(Series(names.STATE_CACHE_USAGE_RATIO),)
)
ROWS = (USED_AND_FREE, HIT_RATIO, CONTEXT_MEAN, TOKENS_PER_REQUEST, STATE_USAGE, PREEMPTIONS)
