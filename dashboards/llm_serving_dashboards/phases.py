"""Throughput and phases: how much is served, by which phase, and what holds it."""

from __future__ import annotations

from llm_serving_alerts.rules import Check
from llm_serving_dashboards.home import make_limiter
from llm_serving_dashboards.panels import Board, Panel, Query, Row, Unit
from llm_serving_dashboards.queries import RATE, QueryBuilder
from llm_serving_dashboards.shared_panels import (
    ENGINE,
    MODEL,
    REASONS,
    REPLICA,
    draw_thresholds,
    make_time_series,
    warn_above,
    warn_below,
)

VARIABLES = ("model_name", "role", "target")
PHASES = ("prefill", "decode")


def build_board(queries: QueryBuilder) -> Board:
    """By model above, by replica below."""
    return Board(
        Check.PHASES.dashboard,
        "LLM serving: throughput and phases",
        "How many tokens are computed and generated, how full the batch is, which phase takes the time, and what limits.",
        VARIABLES,
        (
            Row("Models", _make_model_panels(queries)),
            Row("Against the usual", _make_baseline_panels(queries)),
            Row("Phases", _make_phase_panels(queries)),
            Row("Requests", _make_request_panels(queries)),
            Row("Replicas", _make_replica_panels(queries)),
        ),
    )


def _make_model_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    tokens = "model:llm_serving_phase_tokens:rate5m"
    return (
        *(
            make_time_series(
                f"{phase.capitalize()} tokens/s",
                f"{what} by all replicas of a model, mean of 5m.",
                Unit.TOKENS_PER_SECOND,
                Query(queries.select(tokens, phase=phase), MODEL),
                width=8,
                minimum=0,
            )
            for phase, what in (
                ("prefill", "Prompt tokens really computed (no cache hits)"),
                ("decode", "Tokens generated"),
            )
        ),
        make_limiter(queries, 8, 8),
        make_time_series(
            "Prompt tokens/s: computed and cached",
            "What clients sent, and what of it the prefix cache had. The distance is prefill that was spared.",
            Unit.TOKENS_PER_SECOND,
            Query(queries.select("model:llm_serving_prompt_tokens:rate5m"), f"sent {MODEL}"),
            Query(queries.select("model:llm_serving_cached_prompt_tokens:rate5m"), f"cached {MODEL}"),
            minimum=0,
        ),
        make_time_series(
            "Tokens/s per GPU",
            "By phase, over the GPUs of the ready replicas.",
            Unit.TOKENS_PER_SECOND,
            Query(queries.select("model:llm_serving_phase_tokens_per_gpu:rate5m"), f"{{{{phase}}}} {MODEL}"),
            minimum=0,
        ),
    )


def _make_baseline_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    own = queries.settings.alerts["ThroughputBelowBaseline"]
    work, usual = (
        queries.select(f"model:llm_serving_reference_work_per_replica:{name}") for name in ("rate5m_waiting", "p90_7d")
    )
    return (
        make_time_series(
            "Work of a replica under a queue, against its usual",
            "Prefill and decode weighed by their reference seconds, at moments when requests waited, over the 90th percentile of 7 days. Absent while "
            "nothing waits or there is no history.",
            Unit.RATIO,
            Query(f"{work} / {queries.match_on('model_name', 'role')} {usual}", MODEL),
            minimum=0,
            may_be_empty="nothing waited",
            **draw_thresholds(warn_below(own["warning_below"], own["critical_below"])),
        ),
        make_time_series(
            "Tokens/s against the same hour of other days",
            "Both phases together; usual: median of the same hour on the last seven days. A fall without a queue is traffic that went elsewhere.",
            Unit.TOKENS_PER_SECOND,
            Query(queries.select("model:llm_serving_tokens:rate5m"), f"now {MODEL}"),
            Query(queries.select("model:llm_serving_tokens:same_hour_median7d"), f"usual {MODEL}"),
            minimum=0,
        ),
    )


def _make_phase_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    starved = queries.settings.alerts["PrefillStarvesDecode"]
    busy = queries.aggregate(
        "avg",
        queries.select_one("phase_busy_ratio", "target", "model_name", "role", "engine", "phase"),
        "model_name",
        "role",
        "phase",
    )
    reference = queries.aggregate(
        "avg",
        queries.select_one("phase_reference_seconds_per_token", "target", "model_name", "role", "engine", "phase"),
        "model_name",
        "role",
        "phase",
    )
    return (
        make_time_series(
            "Share of busy time by phase",
            "What each phase needs at its ceiling, mean of the replicas. Above half of it in prefill, answers may stutter while prompts are computed.",
            Unit.RATIO,
            Query(busy, f"{{{{phase}}}} {MODEL}"),
            width=8,
            minimum=0,
            maximum=1,
            **draw_thresholds(warn_above(starved["prefill_above"])),
        ),
        make_time_series(
            "Reference seconds per token",
            "Time of a token at the ceilings, at a fixed batch and context: the weights by which mixed work is added up. Changes with model, GPU or format only.",
            Unit.SECONDS,
            Query(reference, f"{{{{phase}}}} {MODEL}"),
            width=8,
            minimum=0,
        ),
        make_time_series(
            "Batch utilisation",
            "Running requests over the engines' limit. At the limit with a queue, a higher limit gives more while bandwidth binds.",
            Unit.RATIO,
            Query(queries.select("model:llm_serving_batch_utilization:ratio"), MODEL),
            width=8,
            minimum=0,
            maximum=1,
        ),
    )


def _make_request_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    return (
        make_time_series(
            "Running requests",
            "In the batch of all replicas.",
            Unit.COUNT,
            Query(queries.select("model:llm_serving_requests_running:sum"), MODEL),
            width=6,
            minimum=0,
        ),
        make_time_series(
            "Waiting requests",
            "Not yet in a batch.",
            Unit.COUNT,
            Query(queries.select("model:llm_serving_requests_waiting:sum"), MODEL),
            width=6,
            minimum=0,
        ),
        make_time_series(
            "Finished requests/s by reason",
            "stop and length are good ends; error is not; abort is the client's.",
            Unit.REQUESTS_PER_SECOND,
            Query(queries.select("model:llm_serving_requests_finished:rate5m"), f"{{{{reason}}}} {MODEL}"),
            width=6,
            minimum=0,
            stacked=True,
            series_colours=REASONS,
        ),
        make_time_series(
            "Rejected requests/s by reason",
            "Refused at admission: neither good nor bad for the objectives, and still somebody's error.",
            Unit.REQUESTS_PER_SECOND,
            Query(queries.select("model:llm_serving_requests_rejected:rate5m"), f"{{{{reason}}}} {MODEL}"),
            width=6,
            minimum=0,
            stacked=True,
            may_be_empty="the engine's page counts no rejections",
        ),
    )


def _make_replica_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    tokens = "target:llm_serving_phase_tokens:rate5m"
    drafts, accepted = (
        queries.aggregate(
            "sum",
            queries.dialect.one(
                f"rate({queries.select(f'speculative_{what}_tokens_total')}[{RATE}])", "target", "model_name", "engine"
            ),
            "target",
            "model_name",
        )
        for what in ("draft", "accepted")
    )
    return (
        *(
            make_time_series(
                f"{phase.capitalize()} tokens/s by replica",
                "A replica that does less than its peers under the same load is slow, or the router favours others.",
                Unit.TOKENS_PER_SECOND,
                Query(queries.select(tokens, phase=phase), REPLICA),
                width=8,
                minimum=0,
            )
            for phase in PHASES
        ),
        make_time_series(
            "Batch size by replica",
            "Decoding sequences in a step, mean of the exporter's window.",
            Unit.COUNT,
            Query(queries.select_one("batch_size_mean", "target", "model_name", "engine"), ENGINE),
            width=8,
            minimum=0,
        ),
        make_time_series(
            "Running requests by replica",
            "In the batch.",
            Unit.COUNT,
            Query(queries.select("target:llm_serving_requests_running:sum"), REPLICA),
            width=8,
            minimum=0,
        ),
        make_time_series(
            "Waiting requests by replica",
            "A queue at one replica while others are idle is the router's.",
            Unit.COUNT,
            Query(queries.select("target:llm_serving_requests_waiting:sum"), REPLICA),
            width=8,
            minimum=0,
        ),
        make_time_series(
            "Speculative tokens accepted",
            "Share of proposed tokens that were kept. Low acceptance computes tokens for nothing.",
            Unit.RATIO,
            Query(f"{accepted} / ({drafts} > 0)", REPLICA),
            width=8,
            minimum=0,
            maximum=1,
            may_be_empty="no speculative decoding",
        ),
    )
