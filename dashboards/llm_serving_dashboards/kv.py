"""KV cache and long-context tail: what memory holds, what it spares, and how much a few long requests take."""

from __future__ import annotations

from llm_serving_dashboards.asking import Asking
from llm_serving_dashboards.nouns import Board, Look, Panel, Query, Row, Unit
from llm_serving_dashboards.parts import ENGINE, MODEL, above, below, lines, threshold

UID = "llm-serving-kv"
VARIABLES = ("model_name", "role", "target")


def board(asking: Asking) -> Board:
    """Room, hits, preemptions; then the tail."""
    return Board(
        UID,
        "LLM serving: KV cache and long contexts",
        "Is there room for the next request, does the prefix cache find what it used to, and what do the longest requests take.",
        VARIABLES,
        (
            Row("Room", _room(asking)),
            Row("Prefix cache", _prefixes(asking)),
            Row("Long-context tail", _tail(asking)),
            Row("Replicas", _replicas(asking)),
        ),
    )


def _room(asking: Asking) -> tuple[Panel, ...]:
    own = asking.settings.alerts
    used, capacity = (asking.of(f"model:llm_serving_kv_cache_{what}_tokens:sum") for what in ("used", "capacity"))
    preempted, finished = (
        asking.by("sum", asking.of(f"target:llm_serving_{what}:increase10m"), "model_name", "role")
        for what in ("preemptions", "requests_finished")
    )
    return (
        lines(
            "KV cache usage",
            "Share of all KV tokens of a model in use, and of its fullest engine. Far apart, the load is spread unevenly.",
            Unit.RATIO,
            Query(asking.of("model:llm_serving_kv_cache_usage:ratio"), f"mean {MODEL}"),
            Query(asking.of("model:llm_serving_kv_cache_usage_ratio:max"), f"fullest {MODEL}"),
            width=8,
            least=0,
            most=1,
            **threshold(above(own["KVFilling"]["above"], own["KVSaturated"]["above"])),
        ),
        lines(
            "KV tokens in use and that fit",
            "Tokens of context that live requests hold, and what the caches of all replicas hold at most.",
            Unit.TOKENS,
            Query(used, f"used {MODEL}"),
            Query(capacity, f"capacity {MODEL}"),
            width=8,
            least=0,
        ),
        lines(
            "Preemptions per finished request",
            "How often a running request lost its KV to others, over 10m. Its prompt is computed again: more memory, or fewer requests at once.",
            Unit.COUNT,
            Query(f"{preempted} / ({finished} > 0)", MODEL),
            width=8,
            least=0,
            **threshold(above(own["PreemptionStorm"]["above"])),
        ),
    )


def _prefixes(asking: Asking) -> tuple[Panel, ...]:
    return (
        lines(
            "Prefix cache hit rate",
            "Share of looked-up tokens that were there: over 5m, and usually (median of 7 days).",
            Unit.RATIO,
            Query(asking.of("model:llm_serving_prefix_cache_hit:ratio_rate5m"), f"now {MODEL}"),
            Query(asking.of("model:llm_serving_prefix_cache_hit:median7d"), f"usual {MODEL}"),
            least=0,
            most=1,
        ),
        lines(
            "Prefix cache tokens/s",
            "Looked up, and found.",
            Unit.TOKENS_PER_SECOND,
            Query(asking.of("model:llm_serving_prefix_cache_query_tokens:rate5m"), f"looked up {MODEL}"),
            Query(asking.of("model:llm_serving_prefix_cache_hit_tokens:rate5m"), f"found {MODEL}"),
            least=0,
        ),
    )


def _tail(asking: Asking) -> tuple[Panel, ...]:
    own = asking.settings.alerts
    fit, share = "model:llm_serving_long_context_requests_fit:min", "model:llm_serving_long_context_kv_share_ratio:max"
    return (
        lines(
            "Requests of p99 length that fit",
            "With a p99 prompt and a mean answer, of the engine where fewest fit; both bounds, from the bucket edges of the lengths of finished requests.",
            Unit.COUNT,
            Query(asking.of(fit), f"{{{{bound}}}} {MODEL}"),
            width=8,
            least=0,
            **threshold(below(own["LongContextFewFit"]["below"])),
        ),
        lines(
            "KV held by the longest hundredth",
            "Share of all context that the longest 1 % of requests take; both bounds.",
            Unit.RATIO,
            Query(asking.of(share), f"{{{{bound}}}} {MODEL}"),
            width=8,
            least=0,
            most=1,
            **threshold(above(own["LongContextShare"]["above"])),
        ),
        lines(
            "p99 to mean",
            "How many times as long as the mean prompt the p99 prompt is. A long tail makes means of anything useless.",
            Unit.TIMES,
            Query(asking.of("model:llm_serving_long_context_amplification_ratio:max"), MODEL),
            width=4,
            least=0,
        ),
        lines(
            "Observed",
            "Requests behind these estimates: of the last hour, or the last thousand. Few of them make wide bounds.",
            Unit.COUNT,
            Query(asking.of("model:llm_serving_long_context_requests_observed:max"), MODEL),
            width=4,
            least=0,
        ),
    )


def _replicas(asking: Asking) -> tuple[Panel, ...]:
    beyond = asking.one("long_context_beyond_top_bucket_ratio", "target", "model_name", "engine")
    prompts = asking.by("sum", asking.of("model:llm_serving_request_prompt_tokens_bucket:rate5m"), "le")
    return (
        lines(
            "KV cache usage by engine",
            "One full engine among free ones: the router sends it what others could take.",
            Unit.RATIO,
            Query(asking.of("engine:llm_serving_kv_cache_usage_ratio:max"), ENGINE),
            width=8,
            least=0,
            most=1,
        ),
        lines(
            "Mean context of a running request",
            "KV tokens a request, mean of the exporter's window; a shared prefix counts once.",
            Unit.TOKENS,
            Query(asking.one("context_tokens_mean", "target", "model_name", "engine"), ENGINE),
            width=8,
            least=0,
        ),
        lines(
            "Prompts beyond the top bucket",
            "Share of prompts longer than the engine's largest edge: their length is known as at least.",
            Unit.RATIO,
            Query(beyond, ENGINE),
            width=8,
            least=0,
            most=1,
        ),
        Panel(
            "Prompt lengths",
            "Finished requests per second between two edges of the engines' buckets.",
            Look.HEATMAP,
            (Query(prompts, "{{le}}"),),
            Unit.TOKENS,
            12,
        ),
        lines(
            "GPU memory: weights, KV, other",
            "Estimate of what takes up the engine's GPUs. Other is activations, graphs and the context of the driver.",
            Unit.BYTES,
            Query(
                asking.by("sum", asking.of("model:llm_serving_gpu_memory_bytes_estimate:sum"), "part"),
                "{{part}}",
            ),
            width=12,
            least=0,
            stacked=True,
        ),
    )
