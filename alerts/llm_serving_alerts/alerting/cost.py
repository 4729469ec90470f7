"""Check cost: what tokens, idle GPUs and a month come to, and whether anybody is told of it. Money can wait for the morning."""

from __future__ import annotations

from llm_serving_alerts.alerting.kv import hits_lost
from llm_serving_alerts.declare import DIGITS, Alert, Shown, Text, ask, lookup, of_fleet, of_model, value
from llm_serving_alerts.promql import DAY, FLEET, HOUR, MODEL, WEEK, Dialect, clauses, series
from llm_serving_alerts.records.cost import (
    FLEET_COST,
    PER_MILLION_COMPARED,
    PER_MILLION_MEDIAN,
    RUN_RATE,
    TOKENS,
    TOKENS_MEDIAN,
    apply_over_hours,
)
from llm_serving_alerts.records.traffic import workers
from llm_serving_alerts.rules import Check, Severity
from llm_serving_alerts.settings import NUMBER, SPAN, AlertSettings, Settings
from llm_serving_exporter.settings.kinds import integer

# of the catalogue's cost_budget_usd_per_month
MONTH_HOURS = 730
_WHOLE = "printf `%.0f`"


def _per_token(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> tuple[str, Text]:
    expr = clauses(
        ("USD per million tokens of six hours, where there were tokens enough", PER_MILLION_COMPARED),
        ("against the median of 7 days", f"> on ({dialect.labels(*MODEL)}) {own['above']:g} * {PER_MILLION_MEDIAN}"),
    )
    return expr, Text(
        f"{of_model(dialect)}: a million tokens cost {value(DIGITS)} USD",
        f"Over six hours, idle and down time included, a million tokens (prompt as sent and generated) cost {value(DIGITS)} USD; usually it is "
        f"{lookup(dialect, PER_MILLION_MEDIAN, MODEL, DIGITS)} (median of 7 days).",
        "see whether the tokens became fewer or the GPUs more",
    )


def _budget(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> tuple[str, Text]:
    by_all = dialect.labels(*FLEET)
    budget = dialect.one(series("cost_budget_usd_per_month"), *FLEET)
    seen = apply_over_hours(dialect, "count_over_time", FLEET_COST, WEEK)
    expr = clauses(
        ("the pace of the last week, kept for a month", f"{RUN_RATE} * {MONTH_HOURS}"),
        ("is above what the price file allows", f"> on ({by_all}) {budget}"),
        ("of one day a week can be told badly, of less not at all", f"and on ({by_all}) {seen} >= {own['hours']:g}"),
    )
    budget = dialect.one(series("cost_budget_usd_per_month", "%s"), *FLEET)
    seen = apply_over_hours(dialect, "count_over_time", f"{FLEET_COST}{{%s}}", WEEK)
    return expr, Text(
        f"{of_fleet(dialect)}a month at this pace costs {value(_WHOLE)} USD, more than the budget",
        f"The last 7 days make {value(_WHOLE)} USD in a month of {MONTH_HOURS} hours, GPU time and energy. The budget is "
        f"{ask(dialect, budget, FLEET, _WHOLE)} USD. Hours of the week that were seen: {ask(dialect, seen, FLEET, _WHOLE)}.",
        "see which model grew, and what of it is idle",
    )


def _explosion(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> tuple[str, Text]:
    usual = f"({TOKENS_MEDIAN} > {own['least_tokens_per_second']:g})"
    by_model = dialect.labels(*MODEL)
    # what the prefix cache no longer finds is computed again: nobody asks for more, and an alert of its own says so
    again = hits_lost(dialect, settings.alerts["HitRateDropped"])
    expr = (
        f"(({workers(dialect, TOKENS)}) > on ({by_model}) {own['above']:g} * {usual}) unless on ({by_model}) ({again})"
    )
    return expr, Text(
        f"{of_model(dialect)}: far more tokens than usual, {value()} per second",
        f"Over the last hour it was {value()} tokens/s, computed in prefill or generated; at this hour it usually is "
        f"{lookup(dialect, TOKENS_MEDIAN, MODEL, 'humanize')} (median of the last days).",
        "find the client: a loop, a job, or prompts that the cache no longer finds",
    )


def _missed(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> tuple[str, Text]:
    # an exporter that went down with its missed review does not make it come, nor does one that is gone before it is due
    remembered = _remembered(own)
    due, coming, success = (
        dialect.apply_over_time("last_over_time", series(f"report_{name}_timestamp_seconds"), remembered)
        for name in ("due", "next_due", "last_success")
    )
    by_exporter = dialect.labels(*FLEET, "instance")
    # of an exporter that is there and has no schedule any more none is awaited
    unasked = (
        f"({series('exporter_build_info')} unless on ({by_exporter}) {series('report_next_due_timestamp_seconds')})"
    )
    passed = f"({coming} < time()) unless on ({by_exporter}) {unasked}"
    # a label of its own, so that it stands beside the same exporter's last
    due = dialect.one(f'{due} or label_replace({passed}, "which", "next", "", "")', *FLEET)
    success = dialect.one(success, *FLEET)
    late = f"{dialect.age(due)} > {dialect.length(own['late'])}"
    by_all = dialect.labels(*FLEET)
    expr = f"{late} unless on ({by_all}) {success} >= on ({by_all}) {due}"
    last = dialect.apply_over_time(
        "last_over_time", series("report_last_success_timestamp_seconds", "%s"), _remembered(own)
    )
    success = dialect.one(last, *FLEET)
    return expr, Text(
        f"{of_fleet(dialect)}the cost review is overdue by {value('humanizeDuration')}",
        f"The last one that was written, and sent where that is configured: {ask(dialect, dialect.age(success), FLEET, 'humanizeDuration')} ago.",
        "read the exporter's log for the review's failure",
    )


def _remembered(own: AlertSettings) -> float:
    """From a review in time until the next one is too late."""
    return WEEK + own["late"] + own.for_seconds + DAY


COST = (
    Alert(
        "CostPerTokenUp", Check.COST, MODEL, {Severity.WARNING: ""}, _per_token, Shown("cost", "Cost against the baseline"),
        {"above": NUMBER, "tokens": NUMBER},
    ),
    Alert("BudgetExceeded", Check.COST, FLEET, {Severity.WARNING: ""}, _budget, Shown("cost", "Share of the budget"), {"hours": integer(1, round(WEEK / HOUR))}),
    Alert(
        "TokenExplosion", Check.COST, MODEL, {Severity.WARNING: ""}, _explosion, Shown("phases", "Tokens/s against the same hour of other days"),
        {"above": NUMBER, "least_tokens_per_second": NUMBER, "days": integer(1, 7)},
    ),
    Alert("ReportMissed", Check.COST, FLEET, {Severity.WARNING: ""}, _missed, Shown("cost"), {"late": SPAN}),
)  # fmt: skip
