"""The dashboard of the KV cache and long contexts: capacity, prefix cache hits, and the share of the longest requests."""

from __future__ import annotations

from llm_serving_alerts.declare import CHOICES
from llm_serving_alerts.records.bands import CONTEXT, KV_USAGE
from llm_serving_dashboards.firing import make_firing
from llm_serving_dashboards.panels import Board, Look, Panel, Query, Row, Unit, Visualization, Worst
from llm_serving_dashboards.shared_panels import MODEL, BoardBuilder, warn_above, warn_below

UID = "llm-serving-kv"
VARIABLES = CHOICES[UID]
# the cautious one first
BOUNDS = ("lower", "upper")


def build_board(board: BoardBuilder) -> Board:
    """Capacity, prefix cache, long-context tail, replicas."""
    return Board(
        UID,
        "LLM serving: KV cache and long contexts",
        "Is there room for the next request, does the prefix cache hit as usual, and how much do the longest requests hold?",
        VARIABLES,
        (
            Row("", (make_firing(board, UID),)),
            Row("Capacity", _make_capacity_panels(board)),
            Row("Prefix cache", _make_prefix_cache_panels(board)),
            Row("Long-context tail", _make_tail_panels(board)),
            Row("Replicas", _make_replica_panels(board)),
        ),
    )


def _make_capacity_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    own = board.settings.alerts
    used, capacity = (board.select(f"model:llm_serving_kv_cache_{what}_tokens:sum") for what in ("used", "capacity"))
    return (
        board.model_graph(
            "KV cache usage",
            "Share of KV cache tokens in use: over all engines of a model, and on its fullest engine. If the two differ widely, the load is uneven.",
            Look(
                Unit.RATIO,
                width=8,
                maximum=1,
                limits=warn_above(own["KVSaturated"]["filling_above"], own["KVSaturated"]["above"]),
            ),
            board.line("model:llm_serving_kv_cache_usage_ratio:max", f"fullest {MODEL}"),
            board.line("model:llm_serving_kv_cache_usage:ratio", f"all {MODEL}"),
        ),
        board.model_graph(
            "KV cache tokens: used and capacity",
            "Context tokens that running requests hold, and the capacity of all replicas.",
            Look(Unit.TOKENS, width=8),
            Query(used, f"used {MODEL}"),
            Query(capacity, f"capacity {MODEL}"),
        ),
        board.model_graph(
            "Preemptions per finished request",
            "How often a running request lost its KV cache to others, over 10m. The engine computes its context again. Add memory or lower the batch limit.",
            Look(Unit.COUNT, width=8, limits=warn_above(own["PreemptionStorm"]["above"])),
            board.line("model:llm_serving_preemptions_per_request:ratio_increase10m", MODEL),
        ),
        board.time_series(
            "Waiting with free KV cache, by limiter",
            f"Requests that wait on engines with less than {100 * board.settings.panels.free_kv_below:g} % of the KV cache in use and room in the batch, by what limits "
            "the replica. More memory would not help them: look at the limiter, the prefill budget and the router's queue.",
            Look(Unit.COUNT, width=24, limits=warn_above(1)),
            *board.draw_parts(board.select("model:llm_serving_requests_waiting_with_room:sum"), "state"),
        ),
    )


def _make_prefix_cache_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    return (
        board.model_graph(
            "Prefix cache hit rate",
            "Share of looked-up tokens that were in the cache. Now: over 5m. Usual: the median of 7 days.",
            Look(Unit.RATIO, worst=Worst.LOWEST, maximum=1),
            board.line("model:llm_serving_prefix_cache_hit:ratio_rate5m", f"now {MODEL}"),
            board.line("model:llm_serving_prefix_cache_hit:median7d", f"usual {MODEL}"),
        ),
        board.model_graph(
            "Prefix cache tokens/s",
            "Tokens that were looked up in the prefix cache, and tokens that were found.",
            Look(Unit.TOKENS_PER_SECOND),
            board.line("model:llm_serving_prefix_cache_query_tokens:rate5m", f"looked up {MODEL}"),
            board.line("model:llm_serving_prefix_cache_hit_tokens:rate5m", f"found {MODEL}"),
        ),
    )


def _make_tail_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    own = board.settings.alerts
    fit, share = "model:llm_serving_long_context_requests_fit:min", "model:llm_serving_long_context_kv_share_ratio:max"
    return (
        board.model_graph(
            "Long requests that fit",
            "Requests with a p99 prompt and a mean answer that fit at once, on the engine where the fewest fit. Both bounds come from the bucket edges of request lengths.",
            Look(Unit.COUNT, worst=Worst.LOWEST, width=8, limits=warn_below(own["LongContextFewFit"]["below"])),
            *(board.line(fit, f"{bound} {MODEL}", bound=bound) for bound in BOUNDS),
        ),
        board.model_graph(
            "KV cache share of the longest 1 %",
            "Share of the context tokens that the longest 1 % of requests hold, with both bounds.",
            Look(Unit.RATIO, width=8, maximum=1, limits=warn_above(board.settings.panels.long_context_share_above)),
            *(board.line(share, f"{bound} {MODEL}", bound=bound) for bound in BOUNDS),
        ),
        board.model_graph(
            "p99 over mean",
            "Length of the p99 prompt over the mean prompt. With a long tail, means say little.",
            Look(Unit.TIMES, width=4),
            board.line("model:llm_serving_long_context_amplification_ratio:max", MODEL),
        ),
        board.model_graph(
            "Observed requests",
            "Requests behind these estimates: those of the last hour, or the last thousand. With few requests the bounds are wide.",
            Look(Unit.COUNT, worst=Worst.LOWEST, width=4),
            board.line("model:llm_serving_long_context_requests_observed:max", MODEL),
        ),
    )


def _make_replica_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    prompts = board.sum("model:llm_serving_request_prompt_tokens_bucket:rate5m", "le")
    return (
        board.band(
            "KV cache usage by replica",
            "On the replica's fullest engine. If one is full and others are not, the router distributes requests unevenly.",
            Look(Unit.RATIO, width=8, maximum=1),
            KV_USAGE,
        ),
        board.band(
            "Mean context of a running request",
            "KV cache tokens per running request, averaged over the exporter's window. A shared prefix counts once.",
            Look(Unit.TOKENS, width=8),
            CONTEXT,
        ),
        board.model_graph(
            "Prompts beyond the top bucket",
            "Share of prompts that are longer than the engine's largest bucket edge, on the engine with the largest share. Only a lower bound of their length is known.",
            Look(Unit.RATIO, width=8, maximum=1),
            board.line("model:llm_serving_long_context_beyond_top_bucket_ratio:max", MODEL),
        ),
        Panel(
            "Prompt lengths",
            "Finished requests per second between two bucket edges of the engine.",
            Visualization.HEATMAP,
            Look(Unit.TOKENS),
            (Query(prompts, "{{le}}"),),
        ),
        board.time_series(
            "GPU memory: weights, KV cache, other",
            "Estimated use of the engine's GPU memory. Other: activations, CUDA graphs and the driver's context.",
            Look(Unit.BYTES, stacked=True),
            Query(board.sum("model:llm_serving_gpu_memory_bytes_estimate:sum", "part"), "{{part}}"),
        ),
    )
