"""The review as CSV for programs: one tidy table of figures, and one of hours.

Numbers are bare, a figure that is not known is an empty cell. A text is one line, so that no reader splits its row, and one that a
spreadsheet would take for a formula is marked as text.
"""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Iterator
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from llm_serving_exporter.model.text import blank_unprintable
from llm_serving_review.evidence.week import HOUR_SECONDS
from llm_serving_review.figures.review import Review
from llm_serving_review.figures.tenants import TenantCost, TenantSplit
from llm_serving_review.figures.totals import PHASES, STATES, TOKEN_PHASES, Totals

LABELS = (
    "model_name",
    "phase",
    "basis",
    "state",
    "rate",
    "gpu_name",
    "node",
    "label",
    "label_value",
    "target",
    "slo",
    "alert",
    "severity",
    "tenant",
)
COLUMNS = ("week", "section", "item", *LABELS, "value", "unit")
HOUR_COLUMNS = (
    "week", "hour_begin", "utc_offset_hours", "hour_begin_unix_seconds", *(f"{phase}_usd" for phase in PHASES), "idle_gpu_hours",
    "excess_replicas", "reserve_replicas", "prompt_tokens", "generated_tokens", "pools_usd",
)  # fmt: skip
# OWASP, CSV Injection; tabs and line breaks, which it also names, are blanks before this is looked at
_FORMULA = ("=", "+", "-", "@")

# section, item, labels, value, unit
_Figure = tuple[str, str, dict[str, str], float | None, str]


def render_figures_csv(review: Review) -> str:
    """Every figure of the page, a row each."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for week, section, item, labels, value, unit in _list_rows(review):
        texts = (week, section, item, *(labels.get(name, "") for name in LABELS))
        writer.writerow([*map(write_text, texts), _write_number(value), write_text(unit)])
    return out.getvalue()


def render_hours_csv(review: Review) -> str:
    """The week hour by hour, in its zone."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(HOUR_COLUMNS)
    hourly, zone = review.hourly, ZoneInfo(review.week.zone)
    for index, hour in enumerate(review.week.hours):
        columns = [hourly.usd[phase][index] for phase in PHASES]
        columns += [hourly.idle_gpu_hours[index]]
        columns += [
            line[index] if line else None
            for line in (
                hourly.excess_replicas,
                hourly.reserve_replicas,
                hourly.prompt_tokens,
                hourly.generated_tokens,
                hourly.pools_usd,
            )
        ]
        begin = datetime.fromtimestamp(hour.begin, zone)
        offset = (begin.utcoffset() or timedelta()).total_seconds() / HOUR_SECONDS
        # as spreadsheets take for a date
        local = begin.strftime("%Y-%m-%d %H:%M")
        numbers = (_write_number(value) for value in (offset, hour.begin, *columns))
        writer.writerow([review.week.name, local, *numbers])
    return out.getvalue()


def _list_rows(review: Review) -> Iterator[tuple[str, *_Figure]]:
    models = (("model_", {"model_name": row.model_name}, row.now, row.before) for row in review.models)
    values = (("label_", {"label": row.label, "label_value": row.value}, row.now, row.before) for row in review.labels)
    for prefix, own, now, before in (("", {}, review.now, review.earlier), *models, *values):
        for name, sums in ((review.week.name, now), (review.previous.name, before)):
            for section, item, labels, value, unit in _list_totals(sums):
                yield name, f"{prefix}{section}", item, {**own, **labels}, value, unit
    for section, item, labels, value, unit in (
        *_list_changes(review),
        *_list_operations(review),
        *_list_tenants(review.tenants),
        *_list_month(review),
        *_list_invoice(review),
        *_list_bills(review),
        *_list_pools(review),
        *_list_gaps(review),
        *_list_beyond(review),
    ):
        yield review.week.name, section, item, labels, value, unit


def _list_totals(sums: Totals) -> Iterator[_Figure]:
    yield "spend", "gpu_time", {}, sums.usd, "USD"
    for phase in PHASES:
        yield "spend_by_phase", "gpu_time", {"phase": phase}, sums.usd_by_phase.get(phase), "USD"
    yield "spend", "electricity", {}, sums.energy_usd, "USD"
    yield "gpu_time", "gpu_hours", {}, sums.gpu_hours, "GPU-hours"
    for state in STATES:
        yield "gpu_time_by_state", "gpu_hours", {"state": state}, sums.gpu_hours_by_state.get(state), "GPU-hours"
    yield "gpu_time", "unpriced_gpu_hours", {}, sums.unpriced_gpu_hours, "GPU-hours"
    for item, value in (
        ("prefill", sums.prefill_tokens), ("decode", sums.decode_tokens), ("prompt_as_sent", sums.prompt_tokens),
        ("cached", sums.cached_tokens),
    ):  # fmt: skip
        yield "tokens", item, {}, value, "tokens"
    yield "requests", "finished", {}, sums.requests, "requests"
    yield "energy", "energy", {}, sums.energy_kwh, "kWh"
    yield "energy", "carbon", {}, sums.carbon_kg, "kg CO2e"
    yield "prefix_cache", "savings", {}, sums.savings_usd, "USD"
    for phase in TOKEN_PHASES:
        yield (
            "unit_cost",
            "million_tokens",
            {"phase": phase, "basis": "busy"},
            sums.busy_usd_per_million(phase),
            "USD per million tokens",
        )
        yield (
            "unit_cost", "million_tokens", {"phase": phase, "basis": "allocated"}, sums.allocated_usd_per_million(phase),
            "USD per million tokens",
        )  # fmt: skip
    yield (
        "unit_cost", "million_tokens", {"phase": "blended", "basis": "allocated"}, sums.blended_usd_per_million, "USD per million tokens",
    )  # fmt: skip
    yield (
        "unit_cost",
        "gpu_time_whose_tokens_are_counted",
        {},
        sums.of_tokens.usd if sums.tokens is not None else None,
        "USD",
    )
    yield "unit_cost", "request", {}, sums.usd_per_request, "USD per request"
    yield "unit_cost", "tokens_per_usd", {}, sums.tokens_per_usd, "tokens per USD"


def _list_changes(review: Review) -> Iterator[_Figure]:
    if review.split is not None:
        for cause, value in review.split.parts().items():
            yield "change_of_spend", cause, {}, value, "USD"
    for model in review.models:
        if model.split is not None:
            for cause, value in model.split.parts().items():
                yield "model_change_of_spend", cause, {"model_name": model.model_name}, value, "USD"
    if review.change is not None:
        yield "not_compared", "this_week", {}, review.change.left_out_usd, "USD"
        yield "not_compared", "week_before", {}, review.change.left_out_before_usd, "USD"
        for one in review.change.movements:
            labels = {"model_name": one.model_name, "target": one.name}
            yield "movements", f"{one.kind}: {one.detail}", labels, one.usd, "USD"


def _list_operations(review: Review) -> Iterator[_Figure]:
    for model in review.models:
        labels = {"model_name": model.model_name}
        yield "why", "bandwidth_ceiling_ratio", labels, model.bandwidth_ratio, "ratio"
        yield "why", "batch_utilization_ratio", labels, model.batch_ratio, "ratio"
    for node in review.nodes:
        yield "nodes", "gpu_time", {"node": node.node}, node.usd, "USD"
        yield "nodes", "gpu_hours", {"node": node.node}, node.gpu_hours, "GPU-hours"
    if review.spare is not None:
        yield "replicas", "excess", {}, review.spare.excess_hours, "replica-hours"
        yield "replicas", "excess_cost", {}, review.spare.excess_usd, "USD"
        yield "replicas", "reserve", {}, review.spare.reserve_hours, "replica-hours"
        yield "replicas", "reserve_cost", {}, review.spare.reserve_usd, "USD"
    for one in review.attainments:
        yield "objectives", "good", {"slo": one.slo}, one.good, "events"
        yield "objectives", "events", {"slo": one.slo}, one.total, "events"
        yield "objectives", "attained", {"slo": one.slo}, one.share, "ratio"
        yield "objectives", "objective", {"slo": one.slo}, one.objective, "ratio"
    for index, action in enumerate(review.actions, 1):
        yield "actions", f"{index}: {action.what}", {"basis": action.kind}, action.usd_per_week, "USD per week"
    for sizing in review.sizings:
        before, after = sizing.found.today, sizing.found.question
        labels = {
            "model_name": sizing.model_name, "label": "role", "label_value": sizing.found.week.role,
            "gpu_name": after.server.roof.peaks.name, "basis": sizing.found.sure,
        }  # fmt: skip
        yield "sizing", "replicas", labels, before.replicas, "replicas"
        yield "sizing", "replicas_needed", labels, float(sizing.needed), "replicas"
        yield "sizing", "replicas_with_reserve", labels, after.replicas, "replicas"
        yield "sizing", "worth", {**labels, "basis": sizing.action.kind}, sizing.action.usd_per_week, "USD per week"
        yield "sizing", "million_tokens", labels, before.usd_per_million_tokens, "USD per million tokens"
        yield "sizing", "million_tokens_then", labels, after.usd_per_million_tokens, "USD per million tokens"
    for check in review.checks:
        labels = {**dict(check.labels), "check": check.check}
        for said, hours in (
            ("page", check.page_hours), ("ticket", check.ticket_hours), ("fine", check.fine_hours), ("not known", check.unknown_hours),
        ):  # fmt: skip
            yield "checks", said, labels, hours, "hours"
    if review.alerts is not None:
        for item, value, unit in (
            ("pages", review.alerts.pages, "episodes"), ("pages", review.alerts.page_minutes, "minutes"),
            ("tickets", review.alerts.tickets, "episodes"), ("tickets", review.alerts.ticket_minutes, "minutes"),
        ):  # fmt: skip
            yield "alerts", item, {}, float(value), unit
        yield "alerts", "evaluated", {}, review.alerts.watched_hours, "hours"
        for row in review.alerts.noisiest:
            labels = {"alert": row.alert, "severity": row.severity}
            yield "alerts", "noisiest", labels, float(row.episodes), "episodes"
            yield "alerts", "noisiest", labels, row.minutes, "minutes"


def _list_month(review: Review) -> Iterator[_Figure]:
    found = review.outlook
    if found is None:
        return
    if found.seen is not None:
        yield "month", "hours_seen", {}, found.seen.hours, "hours"
    yield "month", "projected", {}, found.projected_usd, "USD per month of 730 h"
    yield "month", "other_costs", {}, found.monthly_costs_usd, "USD per month"
    yield "month", "budget", {}, found.budget_usd, "USD per month of 730 h"
    yield "month", "budget_used", {}, found.budget_used_ratio, "ratio"
    yield "month", "tco", {}, found.tco_usd, "USD per month of 720 h"
    if (api := found.api) is not None:
        yield "api", "api", {}, api.api_usd, "USD"
        yield "api", "own", {}, api.own_usd, "USD"
        yield "api", "api_unit", {}, api.api_usd_per_million, "USD per million tokens"
        yield "api", "own_unit", {}, api.own_usd_per_million, "USD per million tokens"
        yield "api", "break_even_tokens_per_month", {}, api.break_even_tokens_per_month, "tokens per month"
        yield "api", "tokens", {}, api.tokens_per_month, "tokens per month"
        if api.payback is not None:
            yield "api", "payback_months", {}, api.payback.months, "months"


def _list_invoice(review: Review) -> Iterator[_Figure]:
    for row in review.invoice:
        labels = {"rate": row.rate, "gpu_name": row.gpu_name}
        yield "invoice", "gpu_hours", labels, row.gpu_hours, "GPU-hours"
        yield "invoice", "price", labels, row.usd_per_gpu_hour, "USD per GPU-hour"
        yield "invoice", "gpu_time", labels, row.usd, "USD"
    for one in review.commitments:
        labels = {"rate": one.name}
        yield "commitment", "committed", labels, one.committed_gpu_hours, "GPU-hours"
        yield "commitment", "used", labels, one.used_gpu_hours, "GPU-hours"
        yield "commitment", "unused", labels, one.unused_gpu_hours, "GPU-hours"
        yield "invoice", "unused_commitment", labels, one.unused_usd, "USD"
    yield "invoice", "electricity", {}, review.now.energy_usd, "USD"
    yield "invoice", "sum", {}, review.invoice_usd, "USD"


def _list_bills(review: Review) -> Iterator[_Figure]:
    found = review.bills
    if found is None or found.comparison is None:
        return
    shown = found.comparison
    for item, value in (
        ("metered", shown.total.metered_usd), ("billed", shown.total.billed_usd),
        ("difference", shown.total.difference_usd), ("invoiced", shown.invoiced_usd),
    ):  # fmt: skip
        yield "bill", item, {}, value, "USD"
    for name, usd in shown.reasons.parts().items():
        yield "bill_difference", name, {}, usd, "USD"
    for model, pair in shown.models:
        yield "bill_by_model", "metered", {"model_name": model}, pair.metered_usd, "USD"
        yield "bill_by_model", "billed", {"model_name": model}, pair.billed_usd, "USD"
    for row in shown.machines:
        labels = {"node": row.name, "target": " ".join(row.targets)}
        yield "bill_by_machine", "metered", labels, row.pair.metered_usd, "USD"
        yield "bill_by_machine", "billed", labels, row.pair.billed_usd, "USD"
        yield "bill_by_machine", "metered", labels, row.metered_gpu_hours, "GPU-hours"
        yield "bill_by_machine", "billed", labels, row.billed_hours, "hours"
        for name, usd in row.reasons.parts().items():
            if usd:
                yield "bill_difference_by_machine", name, labels, usd, "USD"
    for what, one in found.beside:
        yield "bill_beside", what, {}, float(one.lines), "lines"
        yield "bill_beside", what, {}, one.effective_usd, "USD"


def _list_pools(review: Review) -> Iterator[_Figure]:
    found = review.pools
    if found is None:
        return
    for one in found.rows:
        labels = {"rate": one.pool.name, "basis": one.pool.kind.value, "gpu_name": one.pool.use.gpu_name}
        for item, value in (
            ("committed", one.committed_usd), ("used", one.used_usd), ("unused", one.unused_usd), ("unknown", one.unknown_usd),
            ("uncommitted_price", one.uncommitted_usd), ("benefit", one.benefit_usd), ("saved", one.saved_usd),
        ):  # fmt: skip
            yield "pool", item, labels, value, "USD"
        for item, number in (
            ("committed", one.committed_gpu_hours), ("used", one.used_gpu_hours), ("unused", one.unused_gpu_hours),
        ):  # fmt: skip
            yield "pool", item, labels, number, "GPU-hours"
    for model in found.models:
        labels = {"model_name": model.model_name}
        yield "pool_models", "metered", labels, model.usd, "USD"
        yield "pool_models", "after_commitments", labels, model.paid_usd, "USD"
        yield "pool_models", "gpu_hours", labels, model.gpu_hours, "GPU-hours"
        yield "pool_models", "covered", labels, model.covered_gpu_hours, "GPU-hours"
    for move in found.moves:
        yield "pool", "on_demand_that_would_fit", {"rate": move.pool}, move.gpu_hours, "GPU-hours"
        yield "pool", "on_demand_that_would_fit", {"rate": move.pool}, move.usd, "USD"
    yield "invoice", "pools_benefit", {}, -found.benefit_usd, "USD"
    yield "invoice", "pools_unused", {}, found.unused_usd, "USD"
    yield "invoice", "pools_unknown", {}, found.unknown_usd, "USD"


def _list_tenants(split: TenantSplit | None) -> Iterator[_Figure]:
    """Every figure of every tenant and model, then what no tenant explains, and how far gateway and engines agree."""
    if split is None:
        return
    for row in split.rows:
        yield from _list_tenant("tenants" if row.served else "tenants_external", row)
    for row in split.unexplained:
        labels = {"model_name": row.model_name, "label_value": " / ".join(row.fleet)}
        for item, usd in _list_usd(row):
            yield "tenants_unexplained", item, labels, usd, "USD"
    for scale in split.scales:
        labels = {"model_name": scale.model_name, "label_value": " / ".join(scale.fleet)}
        yield "tenants_scale", "input", labels, scale.prompt, "ratio"
        yield "tenants_scale", "output", labels, scale.decode, "ratio"


def _list_tenant(section: str, row: TenantCost) -> Iterator[_Figure]:
    labels = {
        "tenant": row.tenant,
        "label": row.kind,
        "label_value": " / ".join(row.fleet),
        "model_name": row.model_name,
    }
    cached = "cached_by_mean" if row.cached_is_mean else "cached"
    for item, tokens in (
        ("prompt_as_sent", row.prompt_tokens),
        (cached, row.cached_tokens),
        ("decode", row.decode_tokens),
    ):
        yield section, item, labels, tokens, "tokens"
    yield section, "finished", labels, row.requests, "requests"
    if not row.served:
        return
    for item, usd in _list_usd(row):
        yield section, item, labels, usd, "USD"
    for item, price in (
        ("input_as_sent", row.input_usd_per_million), ("input_not_cached", row.uncached_usd_per_million),
        ("output", row.output_usd_per_million),
    ):  # fmt: skip
        yield section, item, labels, price, "USD per million tokens"


def _list_usd(row: TenantCost) -> Iterator[tuple[str, float]]:
    yield "spend", row.usd
    yield "prefill", row.prefill_usd
    yield "decode", row.decode_usd
    yield "prefill_idle_and_other", row.prefill_rest_usd
    yield "decode_idle_and_other", row.decode_rest_usd


def _list_gaps(review: Review) -> Iterator[_Figure]:
    yield "gaps", "recovered", {}, review.recovered_usd, "USD"
    yield "gaps", "missing_estimate", {}, review.missing_usd, "USD"
    for gap in review.gaps or ():
        item = f"gap {gap.begin:.0f} to {gap.end:.0f}"
        labels = {"target": gap.target}
        yield "gaps", item, labels, gap.end - gap.begin, "seconds"
        yield "gaps", item, labels, gap.recovered.get("cost"), "USD recovered"
        yield "gaps", item, labels, gap.estimated_usd, "USD estimated"
    for sentence in (*review.notes, *review.missing_parts):
        yield "notes", sentence, {}, None, ""


def _list_beyond(review: Review) -> Iterator[_Figure]:
    """The month to date, days that are unlike others, and the settings that decide what a week is: a later review reads these."""
    month = review.beyond.month
    if month is not None:
        yield "month_to_date", "paid", {}, month.usd, "USD"
        yield "month_to_date", "hours_known", {}, month.known_hours, "hours"
        yield "month_to_date", "hours_not_known", {}, month.unknown_hours, "hours"
        yield "month_to_date", "not_known_estimate", {}, month.unknown_usd, "USD"
        yield "month_to_date", "run_rate", {}, month.usd_per_hour, "USD per hour"
        yield "month_to_date", "forecast", {}, month.forecast_usd, "USD per calendar month"
        yield "month_to_date", "budget_reached", {}, month.budget_reached, "unix seconds"
    for day in review.beyond.unusual:
        labels = {
            "model_name": day.model_name,
            "target": day.target,
            "label": "day",
            "label_value": review.week.days[day.day],
        }
        yield "unusual_days", day.measure, labels, day.value, "value"
        yield "unusual_days", day.measure, labels, day.usual, "usual value"
    for item, text in (("timezone", review.week.zone), ("identity_labels", ",".join(review.identity_labels))):
        yield "settings", item, {"label": "setting", "label_value": text}, None, "text"
    for sentence in review.beyond.refused:
        yield "notes", sentence, {}, None, ""


def write_text(text: str) -> str:
    """Text as a cell: one line, and nothing that a spreadsheet evaluates.

    Spreadsheets skip what stands before a formula (blanks, quotes, characters without a picture), and some fold full-width signs.
    """
    cell = blank_unprintable(text)
    begin = unicodedata.normalize("NFKC", cell).lstrip(" '\"")
    return f"'{cell}" if begin.startswith(_FORMULA) or cell[:1].isspace() else cell


def _write_number(value: float | None) -> str:
    if value is None:
        return ""
    return repr(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))
