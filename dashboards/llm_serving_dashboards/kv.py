"""KV cache and long-context tail: what memory holds, what it spares, and how much a few long requests take."""

from __future__ import annotations

from llm_serving_dashboards.panels import Board, Panel, Query, Row, Unit, Visualization
from llm_serving_dashboards.queries import QueryBuilder
from llm_serving_dashboards.shared_panels import (
    ENGINE,
    MODEL,
    draw_thresholds,
    make_time_series,
    warn_above,
    warn_below,
)

UID = "llm-serving-kv"
VARIABLES = ("model_name", "role", "target")


def build_board(queries: QueryBuilder) -> Board:
    """Room, hits, preemptions; then the tail."""
    return Board(
        UID,
        "LLM serving: KV cache and long contexts",
        "Is there room for the next request, does the prefix cache find what it used to, and what do the longest requests take.",
        VARIABLES,
        (
            Row("Room", _make_room_panels(queries)),
            Row("Prefix cache", _make_prefix_cache_panels(queries)),
            Row("Long-context tail", _make_tail_panels(queries)),
            Row("Replicas", _make_replica_panels(queries)),
        ),
    )


def _make_room_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    own = queries.settings.alerts
    used, capacity = (queries.select(f"model:llm_serving_kv_cache_{what}_tokens:sum") for what in ("used", "capacity"))
    preempted, finished = (
        queries.aggregate("sum", queries.select(f"target:llm_serving_{what}:increase10m"), "model_name", "role")
        for what in ("preemptions", "requests_finished")
    )
    return (
        make_time_series(
            "KV cache usage",
            "Share of all KV tokens of a model in use, and of its fullest engine. Far apart, the load is spread unevenly.",
            Unit.RATIO,
            Query(queries.select("model:llm_serving_kv_cache_usage:ratio"), f"mean {MODEL}"),
            Query(queries.select("model:llm_serving_kv_cache_usage_ratio:max"), f"fullest {MODEL}"),
            width=8,
            minimum=0,
            maximum=1,
            **draw_thresholds(warn_above(own["KVFilling"]["above"], own["KVSaturated"]["above"])),
        ),
        make_time_series(
            "KV tokens in use and that fit",
            "Tokens of context that live requests hold, and what the caches of all replicas hold at most.",
            Unit.TOKENS,
            Query(used, f"used {MODEL}"),
            Query(capacity, f"capacity {MODEL}"),
            width=8,
            minimum=0,
        ),
        make_time_series(
            "Preemptions per finished request",
            "How often a running request lost its KV to others, over 10m. Its prompt is computed again: more memory, or fewer requests at once.",
            Unit.COUNT,
            Query(f"{preempted} / ({finished} > 0)", MODEL),
            width=8,
            minimum=0,
            **draw_thresholds(warn_above(own["PreemptionStorm"]["above"])),
        ),
    )


def _make_prefix_cache_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    return (
        make_time_series(
            "Prefix cache hit rate",
            "Share of looked-up tokens that were there: over 5m, and usually (median of 7 days).",
            Unit.RATIO,
            Query(queries.select("model:llm_serving_prefix_cache_hit:ratio_rate5m"), f"now {MODEL}"),
            Query(queries.select("model:llm_serving_prefix_cache_hit:median7d"), f"usual {MODEL}"),
            minimum=0,
            maximum=1,
        ),
        make_time_series(
            "Prefix cache tokens/s",
            "Looked up, and found.",
            Unit.TOKENS_PER_SECOND,
            Query(queries.select("model:llm_serving_prefix_cache_query_tokens:rate5m"), f"looked up {MODEL}"),
            Query(queries.select("model:llm_serving_prefix_cache_hit_tokens:rate5m"), f"found {MODEL}"),
            minimum=0,
        ),
    )


def _make_tail_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    own = queries.settings.alerts
    fit, share = "model:llm_serving_long_context_requests_fit:min", "model:llm_serving_long_context_kv_share_ratio:max"
    return (
        make_time_series(
            "Requests of p99 length that fit",
            "With a p99 prompt and a mean answer, of the engine where fewest fit; both bounds, from the bucket edges of the lengths of finished requests.",
            Unit.COUNT,
            Query(queries.select(fit), f"{{{{bound}}}} {MODEL}"),
            width=8,
            minimum=0,
            **draw_thresholds(warn_below(own["LongContextFewFit"]["below"])),
        ),
        make_time_series(
            "KV held by the longest hundredth",
            "Share of all context that the longest 1 % of requests take; both bounds.",
            Unit.RATIO,
            Query(queries.select(share), f"{{{{bound}}}} {MODEL}"),
            width=8,
            minimum=0,
            maximum=1,
            **draw_thresholds(warn_above(own["LongContextShare"]["above"])),
        ),
        make_time_series(
            "p99 to mean",
            "How many times as long as the mean prompt the p99 prompt is. A long tail makes means of anything useless.",
            Unit.TIMES,
            Query(queries.select("model:llm_serving_long_context_amplification_ratio:max"), MODEL),
            width=4,
            minimum=0,
        ),
        make_time_series(
            "Observed",
            "Requests behind these estimates: of the last hour, or the last thousand. Few of them make wide bounds.",
            Unit.COUNT,
            Query(queries.select("model:llm_serving_long_context_requests_observed:max"), MODEL),
            width=4,
            minimum=0,
        ),
    )


def _make_replica_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    beyond = queries.select_one("long_context_beyond_top_bucket_ratio", "target", "model_name", "engine")
    prompts = queries.aggregate("sum", queries.select("model:llm_serving_request_prompt_tokens_bucket:rate5m"), "le")
    return (
        make_time_series(
            "KV cache usage by engine",
            "One full engine among free ones: the router sends it what others could take.",
            Unit.RATIO,
            Query(queries.select("engine:llm_serving_kv_cache_usage_ratio:max"), ENGINE),
            width=8,
            minimum=0,
            maximum=1,
        ),
        make_time_series(
            "Mean context of a running request",
            "KV tokens a request, mean of the exporter's window; a shared prefix counts once.",
            Unit.TOKENS,
            Query(queries.select_one("context_tokens_mean", "target", "model_name", "engine"), ENGINE),
            width=8,
            minimum=0,
        ),
        make_time_series(
            "Prompts beyond the top bucket",
            "Share of prompts longer than the engine's largest edge: their length is known as at least.",
            Unit.RATIO,
            Query(beyond, ENGINE),
            width=8,
            minimum=0,
            maximum=1,
        ),
        Panel(
            "Prompt lengths",
            "Finished requests per second between two edges of the engines' buckets.",
            Visualization.HEATMAP,
            (Query(prompts, "{{le}}"),),
            Unit.TOKENS,
            12,
        ),
        make_time_series(
            "GPU memory: weights, KV, other",
            "Estimate of what takes up the engine's GPUs. Other is activations, graphs and the context of the driver.",
            Unit.BYTES,
            Query(
                queries.aggregate("sum", queries.select("model:llm_serving_gpu_memory_bytes_estimate:sum"), "part"),
                "{{part}}",
            ),
            width=12,
            minimum=0,
            stacked=True,
        ),
    )
