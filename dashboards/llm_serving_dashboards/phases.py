"""The dashboard of throughput and phases: how much is served, in which phase, and what limits it."""

from __future__ import annotations

from collections.abc import Iterator

from llm_serving_alerts.alerting.phases import choose_itl_threshold
from llm_serving_alerts.declare import CHOICES
from llm_serving_alerts.records.bands import BATCH, RUNNING, TOKENS, WAITING
from llm_serving_alerts.rules import Check
from llm_serving_dashboards.firing import make_firing
from llm_serving_dashboards.panels import Board, Look, Panel, Query, Row, Unit, Worst
from llm_serving_dashboards.queries import RATE, QueryBuilder
from llm_serving_dashboards.shared_panels import (
    MODEL,
    REASONS,
    draw_parts,
    make_band,
    make_limiter,
    make_model_graph,
    make_time_series,
    warn_above,
    warn_below,
)

VARIABLES = CHOICES[Check.PHASES.dashboard]
PHASES = ("prefill", "decode")
_ITL = "model:llm_serving_inter_token_latency_seconds:quantile_rate10m"


def build_board(queries: QueryBuilder) -> Board:
    """Models first, then replicas."""
    return Board(
        Check.PHASES.dashboard,
        "LLM serving: throughput and phases",
        "How many tokens are computed and generated, how full the batch is, which phase takes the time, and what limits throughput.",
        VARIABLES,
        (
            Row("", (make_firing(queries, Check.PHASES.dashboard),)),
            Row("Models", _make_model_panels(queries)),
            Row("Against the baseline", _make_baseline_panels(queries)),
            Row("Phases", _make_phase_panels(queries)),
            Row("Requests", _make_request_panels(queries)),
            Row("Replicas", _make_replica_panels(queries)),
        ),
    )


def _make_model_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    tokens = "model:llm_serving_phase_tokens:rate5m"
    return (
        *(
            make_model_graph(
                queries,
                f"{phase.capitalize()} tokens/s",
                f"{what} on all replicas of a model, averaged over 5m.",
                Look(Unit.TOKENS_PER_SECOND, width=8),
                Query(queries.select(tokens, phase=phase), MODEL),
            )
            for phase, what in (
                ("prefill", "Prompt tokens that were computed (without cache hits)"),
                ("decode", "Generated tokens"),
            )
        ),
        make_limiter(queries, 8, 8),
        make_model_graph(
            queries,
            "Prompt tokens/s: computed and cached",
            "Prompt tokens that clients sent, and those of them that came from the prefix cache. The cache saved the prefill of the latter.",
            Look(Unit.TOKENS_PER_SECOND),
            Query(queries.select("model:llm_serving_prompt_tokens:rate5m"), f"sent {MODEL}"),
            Query(queries.select("model:llm_serving_cached_prompt_tokens:rate5m"), f"cached {MODEL}"),
        ),
        make_model_graph(
            queries,
            "Tokens/s per GPU",
            "Tokens/s of each phase over the GPUs of the ready replicas.",
            Look(Unit.TOKENS_PER_SECOND),
            *_list_phases(queries, "model:llm_serving_phase_tokens_per_gpu:rate5m", *reversed(PHASES)),
        ),
    )


def _make_baseline_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    own = queries.settings.alerts["ThroughputBelowBaseline"]
    work, usual = (
        queries.select(f"model:llm_serving_reference_work_per_replica:{name}") for name in ("rate5m_waiting", "p90_7d")
    )
    return (
        make_model_graph(
            queries,
            "Work per replica with a queue, against the baseline",
            "Prefill and decode tokens, weighted by their reference seconds, while requests wait. The baseline is the 90th percentile of the last 7 days. "
            "There is no data while no requests wait or the history is too short.",
            Look(Unit.RATIO, worst=Worst.LOWEST, limits=warn_below(own["warning_below"], own["critical_below"])),
            Query(f"{work} / {queries.match_on('model_name', 'role')} {usual}", MODEL),
            may_be_empty="no requests waited",
        ),
        make_model_graph(
            queries,
            "Tokens/s against the same hour of other days",
            "Both phases together. Usual: the median of the same hour on the last seven days. A drop without a queue means less traffic, not a slower server.",
            Look(Unit.TOKENS_PER_SECOND),
            Query(queries.select("model:llm_serving_tokens:rate5m"), f"now {MODEL}"),
            Query(queries.select("model:llm_serving_tokens:same_hour_median7d"), f"usual {MODEL}"),
        ),
    )


def _make_phase_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    starved = queries.settings.alerts["PrefillStarvesDecode"]
    return (
        make_model_graph(
            queries,
            "Share of busy time by phase",
            "Share of time that each phase needs at its ceiling, averaged over the replicas. With a high prefill share, decode may stall while prompts are computed.",
            Look(Unit.RATIO, width=6, maximum=1, limits=warn_above(starved["prefill_above"])),
            *_list_phases(queries, "model:llm_serving_phase_busy_ratio:avg", *PHASES),
        ),
        make_model_graph(
            queries,
            "Inter-token latency beside prefill",
            "95th percentile over 10m of servers that do both phases. Above the line, with a high prefill share of busy time, answers stutter while prompts are computed.",
            Look(Unit.SECONDS, width=6, limits=warn_above(choose_itl_threshold(queries.settings, starved))),
            Query(queries.select(_ITL, rank="p95", role="unified"), MODEL),
            may_be_empty="no server does both phases, or no token was generated",
        ),
        make_model_graph(
            queries,
            "Reference seconds per token",
            "Time per token at the ceilings, with a fixed batch and context. These weights add up prefill and decode work. They change only with the model, GPU or format.",
            Look(Unit.SECONDS, width=6),
            *_list_phases(queries, "model:llm_serving_phase_reference_seconds_per_token:avg", *reversed(PHASES)),
        ),
        make_model_graph(
            queries,
            "Batch utilisation",
            "Running requests over the engines' limit. If the batch is at its limit, requests wait and decode is bandwidth-bound, a higher limit gives more throughput.",
            Look(Unit.RATIO, width=6, maximum=1),
            Query(queries.select("model:llm_serving_batch_utilization:ratio"), MODEL),
        ),
    )


def _list_phases(queries: QueryBuilder, record: str, *phases: str) -> Iterator[Query]:
    return (Query(queries.select(record, phase=phase), f"{phase} {MODEL}") for phase in phases)


def _make_request_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    return (
        make_model_graph(
            queries,
            "Running requests",
            "Requests in the batches of all replicas.",
            Look(Unit.COUNT, width=6),
            Query(queries.select("model:llm_serving_requests_running:sum"), MODEL),
        ),
        make_model_graph(
            queries,
            "Waiting requests",
            "Requests that are not yet in a batch.",
            Look(Unit.COUNT, width=6),
            Query(queries.select("model:llm_serving_requests_waiting:sum"), MODEL),
        ),
        make_time_series(
            "Finished requests/s by reason",
            "Stop and length are successes. Error is a failure. Abort: the client gave up.",
            Look(Unit.REQUESTS_PER_SECOND, width=6, stacked=True, series_colours=REASONS),
            *draw_parts(queries, queries.select("model:llm_serving_requests_finished:rate5m"), "reason"),
        ),
        make_time_series(
            "Rejected requests/s by reason",
            "Requests refused at admission. The objectives count them neither as good nor as bad, but each one is an error for its client.",
            Look(Unit.REQUESTS_PER_SECOND, width=6, stacked=True),
            *draw_parts(queries, queries.select("model:llm_serving_requests_rejected:rate5m"), "reason"),
            may_be_empty="the engine does not count rejections",
        ),
    )


def _make_replica_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    drafts, accepted = (
        queries.aggregate(
            "sum",
            queries.dialect.one(
                f"rate({queries.select_scraped(f'speculative_{what}_tokens_total')}[{RATE}])",
                "target",
                "model_name",
                "engine",
                "role",
            ),
            "model_name",
            "role",
        )
        for what in ("draft", "accepted")
    )
    return (
        *(
            make_band(
                queries,
                f"{phase.capitalize()} tokens/s by replica",
                "A replica with fewer tokens/s than its peers is slow, or the router prefers the others.",
                Look(Unit.TOKENS_PER_SECOND, worst=Worst.LOWEST, width=8),
                TOKENS,
                phase=phase,
            )
            for phase in PHASES
        ),
        make_band(
            queries,
            "Batch size by replica",
            "Decoding sequences per step, averaged over the exporter's window, on the replica's fullest engine.",
            Look(Unit.COUNT, width=8),
            BATCH,
        ),
        make_band(
            queries,
            "Running requests by replica",
            "Requests in the batch of each replica.",
            Look(Unit.COUNT, width=8),
            RUNNING,
        ),
        make_band(
            queries,
            "Waiting requests by replica",
            "Requests in the queue of each replica. If one replica has a queue while others are idle, check the router.",
            Look(Unit.COUNT, width=8),
            WAITING,
        ),
        make_model_graph(
            queries,
            "Speculative tokens accepted",
            "Share of a model's draft tokens that were accepted. With a low share, most of the draft work is wasted.",
            Look(Unit.RATIO, worst=Worst.LOWEST, width=8, maximum=1),
            Query(f"{accepted} / ({drafts} > 0)", MODEL),
            may_be_empty="speculative decoding is off",
        ),
    )
