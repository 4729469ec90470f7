"""The dashboard of cost: USD per million tokens, where the money goes, and what is spare."""

from __future__ import annotations

from collections.abc import Iterator

from llm_serving_alerts.declare import CHOICES
from llm_serving_alerts.promql import one_of
from llm_serving_alerts.records.signals import UNPRICED
from llm_serving_alerts.records.traffic import TENANT_TOKENS
from llm_serving_alerts.rules import Check
from llm_serving_dashboards.firing import make_firing
from llm_serving_dashboards.panels import Board, Column, Look, Panel, Query, Row, Unit
from llm_serving_dashboards.shared_panels import MODEL, NO_PRICE, SPENT_ON, BoardBuilder, keep_highest, warn_above

VARIABLES = CHOICES[Check.COST.dashboard]
SPENT = "model:llm_serving_cost_usd:increase1h"
# replicas that can be looked at one by one
_MOST_EXPENSIVE = 10
PER_MILLION = "model:llm_serving_cost_usd_per_million_tokens:ratio6h"


def build_board(board: BoardBuilder) -> Board:
    """The present, cost per million tokens, the spend, and spare capacity. Without a price there is no data."""
    return Board(
        Check.COST.dashboard,
        "LLM serving: cost",
        "USD per million tokens by phase, and where the money goes. GPUs of pools count at their price before commitments; the weekly review has what is paid. "
        "There is no data without a price in the exporter's configuration.",
        VARIABLES,
        (
            Row("", (make_firing(board, Check.COST.dashboard),)),
            Row("Now", _make_now_panels(board), may_be_empty=NO_PRICE),
            Row("USD per million tokens", _make_token_cost_panels(board), may_be_empty=NO_PRICE),
            Row("Where the money goes", _make_spend_panels(board), may_be_empty=NO_PRICE),
            Row("Spare capacity", _make_spare_panels(board), may_be_empty=NO_PRICE),
        ),
    )


def _make_now_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    pace = board.select("fleet:llm_serving_cost_usd_per_hour:avg7d")
    budget = f"max({board.select('cost_budget_usd_per_month')})"
    return (
        board.stat(
            "Monthly cost at this pace",
            "Mean hourly cost of the last 7 days x 730 hours: GPU time and energy of all models, whatever the selection. GPUs of pools count at "
            "their price before commitments: the weekly review has what is paid.",
            Look(Unit.USD, width=6, height=4),
            Query(f"730 * {pace}", "month"),
        ),
        board.stat(
            "Share of the budget",
            "The monthly cost at this pace over the monthly budget. Above 100 % for six hours, a ticket opens. From 200 % on the month's budget is gone by the middle of the month.",
            # nobody who spends it twice as fast gets back within it in what is left of the month
            Look(Unit.RATIO, width=6, height=4, thresholds=warn_above(1, 2)),
            Query(f"730 * sum({pace}) / {budget}", "of the budget"),
            may_be_empty="no budget is configured",
        ),
        board.stat(
            "Spent in the last hour",
            "Cost of the selection's GPU time.",
            Look(Unit.USD, width=6, height=4, decimals=2),
            Query(f"sum({board.select(SPENT)})", "USD"),
        ),
        board.stat(
            "Idle share of the last day",
            "Share of the selection's cost that went to idle time.",
            Look(Unit.RATIO, width=6, height=4, thresholds=warn_above(board.settings.panels.idle_above)),
            Query(
                f"sum({board.select('model:llm_serving_cost_usd:increase1d', phase='idle')}) / (sum({board.select('model:llm_serving_cost_usd:increase1d')}) > 0)",
                "idle",
            ),
        ),
    )


def _make_token_cost_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    own = board.settings.alerts["CostPerTokenUp"]
    now, usual = (
        board.select(f"model:llm_serving_cost_usd_per_million_tokens:{name}")
        for name in ("ratio6h_compared", "median7d")
    )
    return (
        board.model_graph(
            "By phase, allocated",
            "All GPU time, including idle and down time, shared out over the tokens: what a million tokens really cost. Over 6h.",
            Look(Unit.USD, width=8),
            *_list_phases(board, "allocated"),
        ),
        board.model_graph(
            "By phase, busy",
            "Only the time that the phase took: what a million tokens would cost on fully used replicas. The difference to the allocated cost is the price of low utilisation.",
            Look(Unit.USD, width=8),
            *_list_phases(board, "busy"),
        ),
        board.model_graph(
            "Cost against the baseline",
            "Blended, allocated cost per token over its median of 7 days.",
            Look(Unit.TIMES, width=8, limits=warn_above(own["above"])),
            Query(f"{now} / {board.match_on('model_name', 'role')} {usual}", MODEL),
        ),
    )


def _list_phases(board: BoardBuilder, basis: str) -> Iterator[Query]:
    """USD per million tokens, of both phases together first."""
    for phase in ("blended", "decode", "prefill"):
        yield board.line(PER_MILLION, f"{phase} {MODEL}", basis=basis, phase=phase)


def _make_spend_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    by_replica = board.sum("target:llm_serving_cost_usd:increase1h", "target", "model_name")
    most_expensive = board.narrow("most_expensive", keep_highest(by_replica, _MOST_EXPENSIVE), "target", by_replica)
    return (
        board.time_series(
            "USD per hour by use",
            "Prefill, decode, idle, down and unattributed time add up to all GPU time.",
            Look(Unit.USD, width=8, stacked=True, series_colours=SPENT_ON),
            Query(board.sum(SPENT, "phase"), "{{phase}}"),
        ),
        board.time_series(
            "USD per hour by model",
            "All GPU time of the model's replicas.",
            Look(Unit.USD, width=8, stacked=True),
            Query(board.sum(SPENT, "model_name", "role"), MODEL),
        ),
        board.time_series(
            "This week and the week before",
            "USD per hour of the selection, and the same hours a week ago.",
            Look(Unit.USD, width=8),
            Query(f"sum({board.select(SPENT)})", "now"),
            Query(f"sum({board.select(SPENT)} offset 1w)", "a week ago"),
        ),
        board.table(
            "Cost by model, last day",
            "Cost of each model in 24 hours, and its idle share. The most expensive first.",
            Look(width=8, sorted_by=0),
            (
                "model_name",
                "role",
                Column(0, "USD", Unit.USD, decimals=2),
                Column(1, "idle", Unit.RATIO, warn_above(board.settings.panels.idle_above)),
            ),
            board.sum("model:llm_serving_cost_usd:increase1d", "model_name", "role"),
            board.select("model:llm_serving_idle_cost:ratio1d"),
        ),
        board.table(
            "The most expensive replicas",
            f"Cost of all GPU time of the last hour, for up to {_MOST_EXPENSIVE} replicas that cost more than all others, and as a multiple of the median replica. Replicas with equal cost are all "
            "shown or none. A click on one opens its dashboard.",
            Look(width=8, sorted_by=0),
            (
                Column("target", "replica"),
                "model_name",
                Column(0, "USD per hour", Unit.USD, decimals=2),
                Column(1, "of the median", Unit.TIMES, decimals=1),
            ),
            most_expensive,
            f"({most_expensive}) / scalar(quantile(0.5, {by_replica}))",
            may_be_empty=f"no price is configured, or more than {_MOST_EXPENSIVE} replicas cost as much as the most expensive one",
        ),
        board.time_series(
            "Tokens by tenant, the top ten",
            "Share of the tokens that gateways count for the selected models now, prompt as sent and generated. The weekly review says what each tenant costs.",
            Look(Unit.RATIO, width=8, maximum=1, stacked=True),
            Query(
                f"topk(10, {board.sum(TENANT_TOKENS, 'tenant')}) / scalar(sum({board.select(TENANT_TOKENS)}) > 0)",
                "{{tenant}}",
            ),
            may_be_empty="no gateway counts by tenant (tenants.by)",
        ),
        board.time_series(
            "Prefix cache savings, USD per hour",
            "What it would have cost, at least, to compute the cached prompt tokens. The saving is capacity for other work, not money.",
            Look(Unit.USD, width=8),
            Query(board.sum("target:llm_serving_prefix_cache_savings_usd:increase1h", "model_name", "role"), MODEL),
        ),
    )


def _find_unpriced(board: BoardBuilder) -> str:
    """PromQL of the targets whose GPU time has no price, with the reason. Of two exporters the one with the prices is enough."""
    unpriced = one_of("reason", UNPRICED)
    missing = board.select_one("signal_available", "target", "reason", matchers=unpriced, signal="cost_usd_total")
    return board.name_models(f"{missing} == 0 unless {board.match_on('target')} {board.select('cost_usd_total')}")


def _make_spare_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    return (
        board.time_series(
            "Idle share of the cost",
            "Share of each model's cost that went to idle time, over 24h.",
            Look(Unit.RATIO, width=8, maximum=1, limits=warn_above(board.settings.panels.idle_above)),
            board.line("model:llm_serving_idle_cost:ratio1d", MODEL),
        ),
        board.time_series(
            "Overprovisioning, USD per hour",
            "Cost of replicas beyond the demand and the node-loss reserve. 0: the fleet has no surplus.",
            Look(Unit.USD, width=8),
            board.line("model:llm_serving_overprovisioned_cost_usd:sum1h", MODEL),
        ),
        board.time_series(
            "Node-loss reserve, USD per hour",
            "Cost of the replicas that let the fleet survive the loss of its largest node. This is an insurance, not waste.",
            Look(Unit.USD, width=8),
            board.line("model:llm_serving_reserve_cost_usd:sum1h", MODEL),
        ),
        board.table(
            "Targets without a price",
            "Their GPU time is in no sum of this dashboard. Reason: no_price means that the price file has none for this GPU; price_ambiguous that several "
            "statements fit; gpu_claimed_twice that two targets claim the same card.",
            Look(height=6),
            ("model_name", "target", "reason"),
            _find_unpriced(board),
            may_be_empty="no exporter reports a target without a price",
        ),
        board.table(
            "Source of the busy time",
            "How many of a model's targets take their busy time from which source. The sources, the best first: engine_time (the engine counts the time that its device works), gpm, nvml_samples (100 % may also be "
            "waiting for other GPUs), estimate (latencies over the batch, or the time that the work takes at the ceiling), requests (a tick in which a request ran is busy as a whole).",
            Look(height=6, sorted_by=0),
            ("model_name", "source", Column(0, "targets", Unit.COUNT)),
            board.aggregate(
                "count",
                board.name_models(board.select_one("gpu_busy_source", "target", "source")),
                "model_name",
                "source",
            ),
            may_be_empty="no target was busy since its exporter's start",
        ),
    )
