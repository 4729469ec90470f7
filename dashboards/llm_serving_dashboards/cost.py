"""Cost: what tokens cost, where the money goes, and what of it buys nothing."""

from __future__ import annotations

from llm_serving_alerts.rules import Check
from llm_serving_dashboards.panels import Board, Column, Panel, Query, Row, Unit
from llm_serving_dashboards.queries import QueryBuilder
from llm_serving_dashboards.shared_panels import (
    MODEL,
    REPLICA,
    SPENT_ON,
    draw_thresholds,
    make_stat,
    make_table,
    make_time_series,
    warn_above,
)

VARIABLES = ("model_name", "role", "target")
NO_PRICE = "no price is configured"
SPENT = "model:llm_serving_cost_usd:increase1h"
PER_MILLION = "model:llm_serving_cost_usd_per_million_tokens:ratio6h"


def build_board(queries: QueryBuilder) -> Board:
    """Per million tokens, the spend, and what is spare. All of it is absent without a price."""
    return Board(
        Check.COST.dashboard,
        "LLM serving: cost",
        "USD per million tokens by phase, the spend and what it went to. Without a price in the exporter's configuration there is nothing here.",
        VARIABLES,
        (
            Row("Now", _make_now_panels(queries)),
            Row("USD per million tokens", _make_token_cost_panels(queries)),
            Row("Where it goes", _make_spend_panels(queries)),
            Row("What is spare", _make_spare_panels(queries)),
        ),
    )


def _make_now_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    pace = queries.select("fleet:llm_serving_cost_usd_per_hour:avg7d")
    budget = f"max({queries.select('cost_budget_usd_per_month')})"
    return (
        make_stat(
            "A month at this pace",
            "Mean of the last 7 days x 730 hours, GPU time and energy, of all models whatever was chosen.",
            Unit.USD,
            Query(f"730 * {pace}", "month"),
            width=6,
            may_be_empty=NO_PRICE,
        ),
        make_stat(
            "Share of the budget",
            "That pace over the budget of a month. Above 100 % for six hours is a ticket.",
            Unit.RATIO,
            Query(f"730 * sum({pace}) / {budget}", "of the budget"),
            width=6,
            thresholds=warn_above(1),
            may_be_empty="no budget is configured",
        ),
        make_stat(
            "Spent in the last hour",
            "GPU time of what was chosen.",
            Unit.USD,
            Query(f"sum({queries.select(SPENT)})", "USD"),
            width=6,
            decimals=2,
            may_be_empty=NO_PRICE,
        ),
        make_stat(
            "Idle in the last day",
            "Share of the spend of what was chosen that went to idle time.",
            Unit.RATIO,
            Query(
                f"sum({queries.select('model:llm_serving_cost_usd:increase1d', phase='idle')}) / (sum({queries.select('model:llm_serving_cost_usd:increase1d')}) > 0)",
                "idle",
            ),
            width=6,
            thresholds=warn_above(queries.settings.alerts["IdleSpend"]["above"]),
            may_be_empty=NO_PRICE,
        ),
    )


def _make_token_cost_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    own = queries.settings.alerts["CostPerTokenUp"]
    now, usual = (
        queries.select(f"model:llm_serving_cost_usd_per_million_tokens:{name}")
        for name in ("ratio6h_compared", "median7d")
    )
    return (
        make_time_series(
            "By phase, allocated",
            "All time, idle and down included, borne by the tokens: what a million really costs. Six whole hours.",
            Unit.USD,
            Query(queries.select(PER_MILLION, basis="allocated"), f"{{{{phase}}}} {MODEL}"),
            width=8,
            minimum=0,
            may_be_empty=NO_PRICE,
        ),
        make_time_series(
            "By phase, busy",
            "Only the time that a phase took: what a million would cost on full replicas. The distance to allocated is what utilisation would save.",
            Unit.USD,
            Query(queries.select(PER_MILLION, basis="busy"), f"{{{{phase}}}} {MODEL}"),
            width=8,
            minimum=0,
            may_be_empty=NO_PRICE,
        ),
        make_time_series(
            "Against the usual",
            "Blended and allocated, over its median of 7 days.",
            Unit.TIMES,
            Query(f"{now} / {queries.match_on('model_name', 'role')} {usual}", MODEL),
            width=8,
            minimum=0,
            may_be_empty="no price, or less than days of history",
            **draw_thresholds(warn_above(own["above"])),
        ),
    )


def _make_spend_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    return (
        make_time_series(
            "USD per hour by what it went to",
            "Prefill, decode, idle, down and unattributed add up to all GPU time.",
            Unit.USD,
            Query(queries.aggregate("sum", queries.select(SPENT), "phase"), "{{phase}}"),
            width=8,
            minimum=0,
            stacked=True,
            series_colours=SPENT_ON,
            may_be_empty=NO_PRICE,
        ),
        make_time_series(
            "USD per hour by model",
            "All GPU time of its replicas.",
            Unit.USD,
            Query(queries.aggregate("sum", queries.select(SPENT), "model_name", "role"), MODEL),
            width=8,
            minimum=0,
            stacked=True,
            may_be_empty=NO_PRICE,
        ),
        make_time_series(
            "This week and the week before",
            "USD per hour of what was chosen, over the same hours a week ago.",
            Unit.USD,
            Query(f"sum({queries.select(SPENT)})", "now"),
            Query(f"sum({queries.select(SPENT)} offset 1w)", "a week ago"),
            width=8,
            minimum=0,
            may_be_empty=NO_PRICE,
        ),
        make_table(
            "Models, last day",
            "What each spent in 24 hours, and the share of it that was idle.",
            (
                Column("model_name", "model"), Column("role", "role"), Column(0, "USD", Unit.USD, decimals=2),
                Column(1, "idle", Unit.RATIO, warn_above(queries.settings.alerts["IdleSpend"]["above"])),
            ),
            queries.aggregate("sum", queries.select("model:llm_serving_cost_usd:increase1d"), "model_name", "role"),
            queries.select("model:llm_serving_idle_cost:ratio1d"),
            width=8,
            may_be_empty=NO_PRICE,
        ),
        make_time_series(
            "USD per hour by replica",
            "All GPU time of each, whatever it did.",
            Unit.USD,
            Query(queries.aggregate("sum", queries.select("target:llm_serving_cost_usd:increase1h"), "target", "model_name"), REPLICA),
            width=8,
            minimum=0,
            stacked=True,
            may_be_empty=NO_PRICE,
        ),
        make_time_series(
            "Prefix cache savings, USD per hour",
            "What the cached prompt tokens would at least have cost to compute: capacity that was free for other work, not cash.",
            Unit.USD,
            Query(queries.aggregate("sum", queries.select("target:llm_serving_prefix_cache_savings_usd:increase1h"), "model_name", "role"), MODEL),
            width=8,
            minimum=0,
            may_be_empty=NO_PRICE,
        ),
    )  # fmt: skip


def _make_spare_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    return (
        make_time_series(
            "Idle share of the spend",
            "Over 24 whole hours.",
            Unit.RATIO,
            Query(queries.select("model:llm_serving_idle_cost:ratio1d"), MODEL),
            width=8,
            minimum=0,
            maximum=1,
            may_be_empty=NO_PRICE,
            **draw_thresholds(warn_above(queries.settings.alerts["IdleSpend"]["above"])),
        ),
        make_time_series(
            "Beyond what was required, USD per hour",
            "Replicas that ran beyond the demand and the reserve for a lost node. 0 where the fleet is as large as it must be.",
            Unit.USD,
            Query(queries.select("model:llm_serving_overprovisioned_cost_usd:sum1h"), MODEL),
            width=8,
            minimum=0,
            may_be_empty=NO_PRICE,
        ),
        make_time_series(
            "The reserve, USD per hour",
            "What it costs that the largest node may go: an insurance, not waste.",
            Unit.USD,
            Query(queries.select("model:llm_serving_reserve_cost_usd:sum1h"), MODEL),
            width=8,
            minimum=0,
            may_be_empty=NO_PRICE,
        ),
    )
