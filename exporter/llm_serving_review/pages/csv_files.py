"""The review as CSV for programs: one tidy table of figures, and one of hours.

Numbers are bare, a figure that is not known is an empty cell. A text is one line, so that no reader splits its row, and one that a
spreadsheet would take for a formula is marked as text.
"""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from llm_serving_exporter.model.text import blank_unprintable
from llm_serving_review.evidence.week import HOUR_SECONDS
from llm_serving_review.figures.review import Review
from llm_serving_review.figures.tenants import TenantCost
from llm_serving_review.figures.totals import PHASES, STATES, TOKEN_PHASES, Totals

LABELS = (
    "model_name", "phase", "basis", "state", "rate", "gpu_name", "node", "label", "label_value", "target", "slo", "alert", "severity",
    "tenant",
)  # fmt: skip
COLUMNS = ("week", "section", "item", *LABELS, "value", "unit")
HOUR_COLUMNS = (
    "week", "hour_begin", "utc_offset_hours", "hour_begin_unix_seconds", *(f"{phase}_usd" for phase in PHASES), "idle_gpu_hours",
    "excess_replicas", "reserve_replicas", "prompt_tokens", "generated_tokens", "pools_usd",
)  # fmt: skip
# OWASP, CSV Injection; tabs and line breaks, which it also names, are blanks before this is looked at
_FORMULA = ("=", "+", "-", "@")


class _Figures:
    """Writes rows of the table: of one week, each below a prefix of its section and with the labels that all of them have."""

    def __init__(self, writer: Any, week: str, prefix: str = "", labels: Mapping[str, str] | None = None) -> None:
        self._writer, self._week, self._prefix, self._labels = writer, week, prefix, labels or {}

    def __call__(
        self, section: str, unit: str, labels: Mapping[str, str] | None = None, /, **values: float | None
    ) -> None:
        """A row for each value, by the name of its item."""
        every = {**self._labels, **(labels or {})}
        for item, value in values.items():
            texts = (self._week, f"{self._prefix}{section}", item, *(every.get(name, "") for name in LABELS))
            self._writer.writerow([*map(write_text, texts), _write_number(value), write_text(unit)])


def render_figures_csv(review: Review) -> str:
    """Every figure of the page, a row each."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    models = (("model_", {"model_name": row.model_name}, row.now, row.before) for row in review.models)
    values = (("label_", {"label": row.label, "label_value": row.value}, row.now, row.before) for row in review.labels)
    for prefix, labels, now, before in (("", {}, review.now, review.earlier), *models, *values):
        _add_totals(_Figures(writer, review.week.name, prefix, labels), now)
        _add_totals(_Figures(writer, review.previous.name, prefix, labels), before)
    for add_part in (
        _add_changes, _add_operations, _add_tenants, _add_month, _add_invoice, _add_bills, _add_pools, _add_gaps, _add_beyond,
    ):  # fmt: skip
        add_part(_Figures(writer, review.week.name), review)
    return out.getvalue()


def render_hours_csv(review: Review) -> str:
    """The week hour by hour, in its zone."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(HOUR_COLUMNS)
    hourly, zone = review.hourly, ZoneInfo(review.week.zone)
    columns = (
        *(hourly.usd[phase] for phase in PHASES), hourly.idle_gpu_hours, hourly.excess_replicas, hourly.reserve_replicas,
        hourly.prompt_tokens, hourly.generated_tokens, hourly.pools_usd,
    )  # fmt: skip
    for index, hour in enumerate(review.week.hours):
        begin = datetime.fromtimestamp(hour.begin, zone)
        offset = (begin.utcoffset() or timedelta()).total_seconds() / HOUR_SECONDS
        numbers = (offset, hour.begin, *(line[index] if line else None for line in columns))
        # as spreadsheets take for a date
        writer.writerow([review.week.name, begin.strftime("%Y-%m-%d %H:%M"), *map(_write_number, numbers)])
    return out.getvalue()


def _add_totals(add: _Figures, sums: Totals) -> None:
    add("spend", "USD", gpu_time=sums.usd)
    for phase in PHASES:
        add("spend_by_phase", "USD", {"phase": phase}, gpu_time=sums.usd_by_phase.get(phase))
    add("spend", "USD", electricity=sums.energy_usd)
    add("gpu_time", "GPU-hours", gpu_hours=sums.gpu_hours)
    for state in STATES:
        add("gpu_time_by_state", "GPU-hours", {"state": state}, gpu_hours=sums.gpu_hours_by_state.get(state))
    add("gpu_time", "GPU-hours", unpriced_gpu_hours=sums.unpriced_gpu_hours)
    tokens = {"prompt_as_sent": sums.prompt_tokens, "cached": sums.cached_tokens}
    add("tokens", "tokens", prefill=sums.prefill_tokens, decode=sums.decode_tokens, **tokens)
    add("requests", "requests", finished=sums.requests)
    add("energy", "kWh", energy=sums.energy_kwh)
    add("energy", "kg CO2e", carbon=sums.carbon_kg)
    add("prefix_cache", "USD", savings=sums.savings_usd)
    prices = [
        (phase, basis, price(phase))
        for phase in TOKEN_PHASES
        for basis, price in (("busy", sums.busy_usd_per_million), ("allocated", sums.allocated_usd_per_million))
    ]
    for phase, basis, usd in (*prices, ("blended", "allocated", sums.blended_usd_per_million)):
        add("unit_cost", "USD per million tokens", {"phase": phase, "basis": basis}, million_tokens=usd)
    counted_usd = sums.of_tokens.usd if sums.tokens is not None else None
    add("unit_cost", "USD", gpu_time_whose_tokens_are_counted=counted_usd)
    add("unit_cost", "USD per request", request=sums.usd_per_request)
    add("unit_cost", "tokens per USD", tokens_per_usd=sums.tokens_per_usd)


def _add_changes(add: _Figures, review: Review) -> None:
    if review.split is not None:
        add("change_of_spend", "USD", **review.split.parts())
    for model in review.models:
        if model.split is not None:
            add("model_change_of_spend", "USD", {"model_name": model.model_name}, **model.split.parts())
    if (found := review.change) is not None:
        add("not_compared", "USD", this_week=found.left_out_usd, week_before=found.left_out_before_usd)
        for one in found.movements:
            labels = {"model_name": one.model_name, "target": one.name}
            add("movements", "USD", labels, **{f"{one.kind}: {one.detail}": one.usd})


def _add_operations(add: _Figures, review: Review) -> None:
    for model in review.models:
        ratios = {"bandwidth_ceiling_ratio": model.bandwidth_ratio, "batch_utilization_ratio": model.batch_ratio}
        add("why", "ratio", {"model_name": model.model_name}, **ratios)
    for node in review.nodes:
        add("nodes", "USD", {"node": node.node}, gpu_time=node.usd)
        add("nodes", "GPU-hours", {"node": node.node}, gpu_hours=node.gpu_hours)
    if (spare := review.spare) is not None:
        add("replicas", "replica-hours", excess=spare.excess_hours)
        add("replicas", "USD", excess_cost=spare.excess_usd)
        add("replicas", "replica-hours", reserve=spare.reserve_hours)
        add("replicas", "USD", reserve_cost=spare.reserve_usd)
    for one in review.attainments:
        add("objectives", "events", {"slo": one.slo}, good=one.good, events=one.total)
        add("objectives", "ratio", {"slo": one.slo}, attained=one.share, objective=one.objective)
    for index, action in enumerate(review.actions, 1):
        add("actions", "USD per week", {"basis": action.kind}, **{f"{index}: {action.what}": action.usd_per_week})
    for sizing in review.sizings:
        before, after = sizing.found.today, sizing.found.question
        labels = {
            "model_name": sizing.model_name, "label": "role", "label_value": sizing.found.week.role,
            "gpu_name": after.server.roof.peaks.name, "basis": sizing.found.sure,
        }  # fmt: skip
        needed = {"replicas_needed": float(sizing.needed), "replicas_with_reserve": after.replicas}
        add("sizing", "replicas", labels, replicas=before.replicas, **needed)
        add("sizing", "USD per week", {**labels, "basis": sizing.action.kind}, worth=sizing.action.usd_per_week)
        prices = {"million_tokens_then": after.usd_per_million_tokens}
        add("sizing", "USD per million tokens", labels, million_tokens=before.usd_per_million_tokens, **prices)
    for check in review.checks:
        labels = {**dict(check.labels), "check": check.check}
        fine = {"fine": check.fine_hours, "not known": check.unknown_hours}
        add("checks", "hours", labels, page=check.page_hours, ticket=check.ticket_hours, **fine)
    if (alerts := review.alerts) is not None:
        add("alerts", "episodes", pages=float(alerts.pages))
        add("alerts", "minutes", pages=alerts.page_minutes)
        add("alerts", "episodes", tickets=float(alerts.tickets))
        add("alerts", "minutes", tickets=alerts.ticket_minutes)
        add("alerts", "hours", evaluated=alerts.watched_hours)
        for row in alerts.noisiest:
            labels = {"alert": row.alert, "severity": row.severity}
            add("alerts", "episodes", labels, noisiest=float(row.episodes))
            add("alerts", "minutes", labels, noisiest=row.minutes)


def _add_tenants(add: _Figures, review: Review) -> None:
    """Every figure of every tenant and model, then what no tenant explains, and how far gateway and engines agree."""
    if (split := review.tenants) is None:
        return
    for row in split.rows:
        section = "tenants" if row.served else "tenants_external"
        labels = {
            "tenant": row.tenant, "label": row.kind, "label_value": " / ".join(row.fleet), "model_name": row.model_name,
        }  # fmt: skip
        cached = {"cached_by_mean" if row.cached_is_mean else "cached": row.cached_tokens}
        add(section, "tokens", labels, prompt_as_sent=row.prompt_tokens, **cached, decode=row.decode_tokens)
        add(section, "requests", labels, finished=row.requests)
        if row.served:
            add(section, "USD", labels, **_list_usd(row))
            inputs = {"input_as_sent": row.input_usd_per_million, "input_not_cached": row.uncached_usd_per_million}
            add(section, "USD per million tokens", labels, **inputs, output=row.output_usd_per_million)
    for row in split.unexplained:
        labels = {"model_name": row.model_name, "label_value": " / ".join(row.fleet)}
        add("tenants_unexplained", "USD", labels, **_list_usd(row))
    for scale in split.scales:
        labels = {"model_name": scale.model_name, "label_value": " / ".join(scale.fleet)}
        add("tenants_scale", "ratio", labels, input=scale.prompt, output=scale.decode)


def _list_usd(row: TenantCost) -> dict[str, float]:
    return {
        "spend": row.usd, "prefill": row.prefill_usd, "decode": row.decode_usd, "prefill_idle_and_other": row.prefill_rest_usd,
        "decode_idle_and_other": row.decode_rest_usd,
    }  # fmt: skip


def _add_month(add: _Figures, review: Review) -> None:
    found = review.outlook
    if found is None:
        return
    if found.seen is not None:
        add("month", "hours", hours_seen=found.seen.hours)
    add("month", "USD per month of 730 h", projected=found.projected_usd)
    add("month", "USD per month", other_costs=found.monthly_costs_usd)
    add("month", "USD per month of 730 h", budget=found.budget_usd)
    add("month", "ratio", budget_used=found.budget_used_ratio)
    add("month", "USD per month of 720 h", tco=found.tco_usd)
    if (api := found.api) is not None:
        add("api", "USD", api=api.api_usd, own=api.own_usd)
        add("api", "USD per million tokens", api_unit=api.api_usd_per_million, own_unit=api.own_usd_per_million)
        even = {"break_even_tokens_per_month": api.break_even_tokens_per_month}
        add("api", "tokens per month", **even, tokens=api.tokens_per_month)
        if api.payback is not None:
            add("api", "months", payback_months=api.payback.months)


def _add_invoice(add: _Figures, review: Review) -> None:
    for row in review.invoice:
        labels = {"rate": row.rate, "gpu_name": row.gpu_name}
        add("invoice", "GPU-hours", labels, gpu_hours=row.gpu_hours)
        add("invoice", "USD per GPU-hour", labels, price=row.usd_per_gpu_hour)
        add("invoice", "USD", labels, gpu_time=row.usd)
    for one in review.commitments:
        used = {"used": one.used_gpu_hours, "unused": one.unused_gpu_hours}
        add("commitment", "GPU-hours", {"rate": one.name}, committed=one.committed_gpu_hours, **used)
        add("invoice", "USD", {"rate": one.name}, unused_commitment=one.unused_usd)
    add("invoice", "USD", electricity=review.now.energy_usd, sum=review.invoice_usd)


def _add_bills(add: _Figures, review: Review) -> None:
    if (found := review.bills) is None or (shown := found.comparison) is None:
        return
    total = shown.total
    difference = {"difference": total.difference_usd, "invoiced": shown.invoiced_usd}
    add("bill", "USD", metered=total.metered_usd, billed=total.billed_usd, **difference)
    add("bill_difference", "USD", **shown.reasons.parts())
    for model, pair in shown.models:
        add("bill_by_model", "USD", {"model_name": model}, metered=pair.metered_usd, billed=pair.billed_usd)
    for row in shown.machines:
        labels = {"node": row.name, "target": " ".join(row.targets)}
        add("bill_by_machine", "USD", labels, metered=row.pair.metered_usd, billed=row.pair.billed_usd)
        add("bill_by_machine", "GPU-hours", labels, metered=row.metered_gpu_hours)
        add("bill_by_machine", "hours", labels, billed=row.billed_hours)
        reasons = {name: usd for name, usd in row.reasons.parts().items() if usd}
        add("bill_difference_by_machine", "USD", labels, **reasons)
    for what, one in found.beside:
        add("bill_beside", "lines", **{what: float(one.lines)})
        add("bill_beside", "USD", **{what: one.effective_usd})


def _add_pools(add: _Figures, review: Review) -> None:
    if (found := review.pools) is None:
        return
    for one in found.rows:
        labels = {"rate": one.pool.name, "basis": one.pool.kind.value, "gpu_name": one.pool.use.gpu_name}
        add("pool", "USD", labels, committed=one.committed_usd, used=one.used_usd, unused=one.unused_usd)
        worth = {"uncommitted_price": one.uncommitted_usd, "benefit": one.benefit_usd, "saved": one.saved_usd}
        add("pool", "USD", labels, unknown=one.unknown_usd, **worth)
        used = {"used": one.used_gpu_hours, "unused": one.unused_gpu_hours}
        add("pool", "GPU-hours", labels, committed=one.committed_gpu_hours, **used)
    for model in found.models:
        labels = {"model_name": model.model_name}
        add("pool_models", "USD", labels, metered=model.usd, after_commitments=model.paid_usd)
        add("pool_models", "GPU-hours", labels, gpu_hours=model.gpu_hours, covered=model.covered_gpu_hours)
    for move in found.moves:
        add("pool", "GPU-hours", {"rate": move.pool}, on_demand_that_would_fit=move.gpu_hours)
        add("pool", "USD", {"rate": move.pool}, on_demand_that_would_fit=move.usd)
    unused = {"pools_unused": found.unused_usd, "pools_unknown": found.unknown_usd}
    add("invoice", "USD", pools_benefit=-found.benefit_usd, **unused)


def _add_gaps(add: _Figures, review: Review) -> None:
    add("gaps", "USD", recovered=review.recovered_usd, missing_estimate=review.missing_usd)
    for gap in review.gaps or ():
        item, labels = f"gap {gap.begin:.0f} to {gap.end:.0f}", {"target": gap.target}
        add("gaps", "seconds", labels, **{item: gap.end - gap.begin})
        add("gaps", "USD recovered", labels, **{item: gap.recovered.get("cost")})
        add("gaps", "USD estimated", labels, **{item: gap.estimated_usd})
    for sentence in (*review.notes, *review.missing_parts):
        add("notes", "", **{sentence: None})


def _add_beyond(add: _Figures, review: Review) -> None:
    """The month to date, days that are unlike others, and the settings that decide what a week is: a later review reads these."""
    month = review.beyond.month
    if month is not None:
        add("month_to_date", "USD", paid=month.usd)
        add("month_to_date", "hours", hours_known=month.known_hours, hours_not_known=month.unknown_hours)
        add("month_to_date", "USD", not_known_estimate=month.unknown_usd)
        add("month_to_date", "USD per hour", run_rate=month.usd_per_hour)
        add("month_to_date", "USD per calendar month", forecast=month.forecast_usd)
        add("month_to_date", "unix seconds", budget_reached=month.budget_reached)
    for day in review.beyond.unusual:
        labels = {
            "model_name": day.model_name, "target": day.target, "label": "day", "label_value": review.week.days[day.day],
        }  # fmt: skip
        add("unusual_days", "value", labels, **{day.measure: day.value})
        add("unusual_days", "usual value", labels, **{day.measure: day.usual})
    for item, text in (("timezone", review.week.zone), ("identity_labels", ",".join(review.identity_labels))):
        add("settings", "text", {"label": "setting", "label_value": text}, **{item: None})
    for sentence in review.beyond.refused:
        add("notes", "", **{sentence: None})


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
