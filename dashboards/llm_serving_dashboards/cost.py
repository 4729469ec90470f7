"""Cost: what tokens cost, where the money goes, and what of it buys nothing."""

from __future__ import annotations

from llm_serving_alerts.rules import Check
from llm_serving_dashboards.asking import Asking
from llm_serving_dashboards.nouns import Board, Column, Panel, Query, Row, Unit
from llm_serving_dashboards.parts import MODEL, REPLICA, SPENT_ON, above, lines, table, threshold, value

VARIABLES = ("model_name", "role", "target")
NO_PRICE = "no price is configured"
SPENT = "model:llm_serving_cost_usd:increase1h"
PER_MILLION = "model:llm_serving_cost_usd_per_million_tokens:ratio6h"


def board(asking: Asking) -> Board:
    """Per million tokens, the spend, and what is spare. All of it is absent without a price."""
    return Board(
        Check.COST.dashboard,
        "LLM serving: cost",
        "USD per million tokens by phase, the spend and what it went to. Without a price in the exporter's configuration there is nothing here.",
        VARIABLES,
        (
            Row("Now", _now(asking)),
            Row("USD per million tokens", _tokens(asking)),
            Row("Where it goes", _spend(asking)),
            Row("What is spare", _spare(asking)),
        ),
    )


def _now(asking: Asking) -> tuple[Panel, ...]:
    pace = asking.of("fleet:llm_serving_cost_usd_per_hour:avg7d")
    budget = f"max({asking.of('cost_budget_usd_per_month')})"
    return (
        value(
            "A month at this pace",
            "Mean of the last 7 days x 730 hours, GPU time and energy, of all models whatever was chosen.",
            Unit.USD,
            Query(f"730 * {pace}", "month"),
            width=6,
            may_be_empty=NO_PRICE,
        ),
        value(
            "Share of the budget",
            "That pace over the budget of a month. Above 100 % for six hours is a ticket.",
            Unit.RATIO,
            Query(f"730 * sum({pace}) / {budget}", "of the budget"),
            width=6,
            steps=above(1),
            may_be_empty="no budget is configured",
        ),
        value(
            "Spent in the last hour",
            "GPU time of what was chosen.",
            Unit.USD,
            Query(f"sum({asking.of(SPENT)})", "USD"),
            width=6,
            decimals=2,
            may_be_empty=NO_PRICE,
        ),
        value(
            "Idle in the last day",
            "Share of the spend of what was chosen that went to idle time.",
            Unit.RATIO,
            Query(
                f"sum({asking.of('model:llm_serving_cost_usd:increase1d', phase='idle')}) / (sum({asking.of('model:llm_serving_cost_usd:increase1d')}) > 0)",
                "idle",
            ),
            width=6,
            steps=above(asking.settings.alerts["IdleSpend"]["above"]),
            may_be_empty=NO_PRICE,
        ),
    )


def _tokens(asking: Asking) -> tuple[Panel, ...]:
    own = asking.settings.alerts["CostPerTokenUp"]
    now, usual = (
        asking.of(f"model:llm_serving_cost_usd_per_million_tokens:{name}") for name in ("ratio6h_compared", "median7d")
    )
    return (
        lines(
            "By phase, allocated",
            "All time, idle and down included, borne by the tokens: what a million really costs. Six whole hours.",
            Unit.USD,
            Query(asking.of(PER_MILLION, basis="allocated"), f"{{{{phase}}}} {MODEL}"),
            width=8,
            least=0,
            may_be_empty=NO_PRICE,
        ),
        lines(
            "By phase, busy",
            "Only the time that a phase took: what a million would cost on full replicas. The distance to allocated is what utilisation would save.",
            Unit.USD,
            Query(asking.of(PER_MILLION, basis="busy"), f"{{{{phase}}}} {MODEL}"),
            width=8,
            least=0,
            may_be_empty=NO_PRICE,
        ),
        lines(
            "Against the usual",
            "Blended and allocated, over its median of 7 days.",
            Unit.TIMES,
            Query(f"{now} / {asking.on('model_name', 'role')} {usual}", MODEL),
            width=8,
            least=0,
            may_be_empty="no price, or less than days of history",
            **threshold(above(own["above"])),
        ),
    )


def _spend(asking: Asking) -> tuple[Panel, ...]:
    return (
        lines(
            "USD per hour by what it went to",
            "Prefill, decode, idle, down and unattributed add up to all GPU time.",
            Unit.USD,
            Query(asking.by("sum", asking.of(SPENT), "phase"), "{{phase}}"),
            width=8,
            least=0,
            stacked=True,
            colours=SPENT_ON,
            may_be_empty=NO_PRICE,
        ),
        lines(
            "USD per hour by model",
            "All GPU time of its replicas.",
            Unit.USD,
            Query(asking.by("sum", asking.of(SPENT), "model_name", "role"), MODEL),
            width=8,
            least=0,
            stacked=True,
            may_be_empty=NO_PRICE,
        ),
        lines(
            "This week and the week before",
            "USD per hour of what was chosen, over the same hours a week ago.",
            Unit.USD,
            Query(f"sum({asking.of(SPENT)})", "now"),
            Query(f"sum({asking.of(SPENT)} offset 1w)", "a week ago"),
            width=8,
            least=0,
            may_be_empty=NO_PRICE,
        ),
        table(
            "Models, last day",
            "What each spent in 24 hours, and the share of it that was idle.",
            (
                Column("model_name", "model"), Column("role", "role"), Column(0, "USD", Unit.USD, decimals=2),
                Column(1, "idle", Unit.RATIO, above(asking.settings.alerts["IdleSpend"]["above"])),
            ),
            asking.by("sum", asking.of("model:llm_serving_cost_usd:increase1d"), "model_name", "role"),
            asking.of("model:llm_serving_idle_cost:ratio1d"),
            width=8,
            may_be_empty=NO_PRICE,
        ),
        lines(
            "USD per hour by replica",
            "All GPU time of each, whatever it did.",
            Unit.USD,
            Query(asking.by("sum", asking.of("target:llm_serving_cost_usd:increase1h"), "target", "model_name"), REPLICA),
            width=8,
            least=0,
            stacked=True,
            may_be_empty=NO_PRICE,
        ),
        lines(
            "Prefix cache savings, USD per hour",
            "What the cached prompt tokens would at least have cost to compute: capacity that was free for other work, not cash.",
            Unit.USD,
            Query(asking.by("sum", asking.of("target:llm_serving_prefix_cache_savings_usd:increase1h"), "model_name", "role"), MODEL),
            width=8,
            least=0,
            may_be_empty=NO_PRICE,
        ),
    )  # fmt: skip


def _spare(asking: Asking) -> tuple[Panel, ...]:
    return (
        lines(
            "Idle share of the spend",
            "Over 24 whole hours.",
            Unit.RATIO,
            Query(asking.of("model:llm_serving_idle_cost:ratio1d"), MODEL),
            width=8,
            least=0,
            most=1,
            may_be_empty=NO_PRICE,
            **threshold(above(asking.settings.alerts["IdleSpend"]["above"])),
        ),
        lines(
            "Beyond what was required, USD per hour",
            "Replicas that ran beyond the demand and the reserve for a lost node. 0 where the fleet is as large as it must be.",
            Unit.USD,
            Query(asking.of("model:llm_serving_overprovisioned_cost_usd:sum1h"), MODEL),
            width=8,
            least=0,
            may_be_empty=NO_PRICE,
        ),
        lines(
            "The reserve, USD per hour",
            "What it costs that the largest node may go: an insurance, not waste.",
            Unit.USD,
            Query(asking.of("model:llm_serving_reserve_cost_usd:sum1h"), MODEL),
            width=8,
            least=0,
            may_be_empty=NO_PRICE,
        ),
    )
