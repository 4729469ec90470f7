"""Where the money went and why it changed: by phase, day, model, label, node and tenant; the month ahead, and sums to check an invoice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from math import fsum
from typing import Any

from llm_serving_exporter.model.record import replace
from llm_serving_exporter.render.html import make_presentable
from llm_serving_exporter.render.numbers import (
    NOTHING,
    amount,
    hours,
    percent,
    signed_percent,
    signed_usd_to_the_cent,
    usd,
    usd_plain,
)
from llm_serving_review.figures.change import CAUSE_WORDS
from llm_serving_review.figures.outlook import ApiComparison, Outlook
from llm_serving_review.figures.review import Review, sum_by_day
from llm_serving_review.figures.rows import ModelRow
from llm_serving_review.figures.split import Split
from llm_serving_review.figures.tenants import LEAST_SCALE, MOST_SCALE, TenantCost, TenantSplit
from llm_serving_review.figures.totals import PHASES, TOKEN_PHASES, Totals, change, ratio, say_counted
from llm_serving_review.pages.charts import draw_causes, draw_days, draw_stacked_bar
from llm_serving_review.pages.tables import (
    BLANK,
    COST,
    MODEL_VARIABLE,
    MOST_ROWS,
    NONE,
    Cell,
    Column,
    Shown,
    Table,
    link_week,
    make_table,
    mark,
    name_column,
    write_cents,
)
from llm_serving_review.tables.sums import sum_known

_PRINTED_LABELS, _PRINTED_MOVEMENTS, _SHOWN_NODES, _SHOWN_MOVEMENTS = 6, 4, 5, 12
_PRINTED_MODELS, _PRINTED_CHANGES, _PRINTED_REASONS = 8, 5, 3
_LONGEST_RATE = 80
# of a span: longer ones are shown by day
_MOST_HOUR_COLUMNS = 48
# phases that are a state of a GPU; the others share its busy time and the time of unknown state
_STATE_OF_PHASE = {"idle": "idle", "down": "down"}
# fewer read as 0.0
_LEAST_HOURS = 0.05
# a change of a unit cost below 3 % has no colour
_LEAST_COLOURED_CHANGE = 0.03
_ALL = "All"
_KINDS = {
    "reserved": "reserved",
    "on_demand": "on demand",
    "spot": "spot",
    "owned": "owned",
    "pool": "before commitments",
}
_SPEND, _SHARE = Column("Spend", "USD", usd_plain), Column("Share", "", percent)
_CHANGE = Column("Change", "", signed_percent)
_GPU_HOURS, _CENTS = Column("GPU-hours", "", hours), Column("Change", "USD", write_cents)
_PHASE_COLUMNS = (name_column("Went to"), _SPEND, _SHARE, _CHANGE, _GPU_HOURS)
_MOVEMENT_COLUMNS = (name_column("Target or workload"), name_column("What happened"), name_column("Model"), _CENTS)
_LABEL_COLUMNS = (
    name_column("Value"), _SPEND, _CHANGE, _SHARE, Column("Tokens", "", amount), Column("All tokens", "USD/M", usd_plain),
)  # fmt: skip
_NODE_COLUMNS = (name_column("Node", "(unknown)"), _SPEND, _SHARE, _GPU_HOURS)
_COST_COLUMNS = (
    name_column("Model"), _SPEND, _CHANGE, _SHARE, Column("Tokens", "in + out", amount), Column("All tokens", "USD/M", usd_plain), _CHANGE,
    *(Column(phase, unit, usd_plain) for phase in ("Prefill", "Decode") for unit in ("busy, $/M", "with idle, $/M")),
    Column("Requests", "USD/1,000", usd_plain), Column("Tokens", "per USD", amount),
)  # fmt: skip
_REASON_COLUMNS = (
    name_column("Model"),
    *(
        Column(title, unit, lambda value: percent(value, 0))
        for title, unit in (("Bandwidth", "of ceiling"), ("Batch", "of limit"), ("From cache", "of prompt"), ("Idle", "of spend"))
    ),
)  # fmt: skip


def build_spend_by_phase(review: Review) -> Shown:
    """The phases that have a cost in either week."""
    now, before = review.now, review.earlier
    rows = []
    for phase in PHASES:
        value, earlier = now.usd_by_phase.get(phase), before.usd_by_phase.get(phase)
        if value or earlier:
            state = _STATE_OF_PHASE.get(phase)
            in_state = now.gpu_hours_by_state.get(state) if state else None
            cell = Cell(phase.capitalize(), phase, phase=phase)
            rows.append((cell, value, now.share(phase), change(value, earlier), in_state))
    foot = (
        Cell("All GPU time"), now.usd, Cell("100 %", 1.0), Cell(signed_percent(change(now.usd, before.usd))), Cell(hours(now.gpu_hours)),
    )  # fmt: skip
    return Shown(
        chart=draw_stacked_bar([(phase, now.usd_by_phase.get(phase, 0.0)) for phase in PHASES], now.usd or 0.0),
        table=make_table("Spend by what it went to", _PHASE_COLUMNS, rows, foot),
        beside=" ".join(filter(None, (_join_sentence(_list_beside(review)), describe_split(review)))),
    )


def describe_split(review: Review) -> str:
    """How busy time was divided into prefill and decode; "" where it is not known."""
    methods = "; ".join(f"{method} (from {inputs})" if inputs else method for method, inputs in review.methods)
    return f"Busy time is divided into prefill and decode by {methods}." if methods else ""


def build_change(review: Review) -> Shown:
    """The split of the change, and the days; without causes where the weeks are not compared."""
    week, hourly, changed = review.week, review.hourly, review.change
    if by_hour := week.is_span and len(week.hours) <= _MOST_HOUR_COLUMNS:
        names = [f"{hour.hour:02d}" for hour in week.hours]
        days = draw_days(names, week.one_before, hourly.usd, hourly.usd_by_hour_before)
    else:
        by_phase = {phase: sum_by_day(hourly.usd[phase], week) for phase in PHASES}
        days = draw_days(week.days, week.one_before, by_phase, hourly.usd_by_day_before)
    summary, parts = "", []
    if changed is not None:
        before = f"{usd(review.earlier.usd)} in {review.previous.name}"
        change_usd = signed_usd_to_the_cent(changed.split.total)
        summary = f"GPU time: {before}, {usd(review.now.usd)} in {review.week.name}: {change_usd}."
        parts = [(CAUSE_WORDS[cause], value) for cause, value in changed.split.parts().items() if value]
    return Shown(
        summary=summary, causes=draw_causes(parts) if parts else None, days=days, one_before=week.one_before,
        step="hour" if by_hour else "day",
    )  # fmt: skip


def build_movements(review: Review) -> Table | None:
    """What came, went, was scaled and moved; None for nothing, or where the weeks are not compared."""
    movements = review.change.movements if review.change is not None else ()
    rows = [(one.name, mark(one.kind, aside=one.detail), one.model_name, one.usd) for one in movements]
    caption, printed = "What came, went, was scaled and moved", _PRINTED_MOVEMENTS
    return make_table(caption, _MOVEMENT_COLUMNS, rows, printed=printed, most=_SHOWN_MOVEMENTS) if rows else None


# --- by model, label and node


def build_model_tables(review: Review) -> Shown:
    """Unit costs by model, the most expensive first, then what they are made of. All tables have the same models in the same order."""
    models = review.models
    many = min(len(models), MOST_ROWS) > 1
    foot = tuple(_list_costs(review, _ALL, review.now, review.earlier)) if many else ()
    costs = [tuple(_list_costs(review, row.model_name, row.now, row.before)) for row in models]
    reasons = [
        (row.model_name, row.bandwidth_ratio, row.batch_ratio, row.now.cached_ratio, row.now.share("idle"))
        for row in models
    ]
    return Shown(
        costs=make_table("Cost by model", _COST_COLUMNS, costs, foot, printed=_PRINTED_MODELS),
        changes=_tabulate_changes(review, models, many=many),
        reasons=make_table("How full each model's GPUs were", _REASON_COLUMNS, reasons, printed=_PRINTED_REASONS),
    )


def _list_costs(review: Review, name: str, now: Totals, before: Totals) -> Iterator[Any]:
    yield mark(name, link="" if name == _ALL else link_week(review, COST, **{MODEL_VARIABLE: name}))
    yield from (now.usd, change(now.usd, before.usd), ratio(now.usd, review.now.usd))
    yield from (now.tokens, now.blended_usd_per_million)
    moved = change(now.blended_usd_per_million, before.blended_usd_per_million)
    kind = "" if moved is None or abs(moved) < _LEAST_COLOURED_CHANGE else "bad" if moved > 0 else "good"
    yield mark(moved, kind)
    for phase in TOKEN_PHASES:
        yield from (now.busy_usd_per_million(phase), now.allocated_usd_per_million(phase))
    yield from (now.usd_per_thousand_requests, now.tokens_per_usd)


def _tabulate_changes(review: Review, models: Sequence[ModelRow], *, many: bool) -> Table | None:
    """What changed each model's spend, in cents that add up; None where the weeks are not compared. Causes that moved no model at all have
    no column."""
    if review.split is None:
        return None
    causes = [cause for cause in CAUSE_WORDS if any(row.split and getattr(row.split, cause) for row in models)]
    columns = (
        name_column("Model"),
        *(Column(title, "USD", write_change) for title in ("Change", *(CAUSE_WORDS[cause] for cause in causes))),
    )
    rows = [(row.model_name, *_list_causes(row.split, causes)) for row in models]
    foot = (Cell(_ALL), *_list_causes(review.split, causes)) if many else ()
    return make_table("What changed each model's spend", columns, rows, foot, printed=_PRINTED_CHANGES)


def _list_causes(split: Split | None, causes: Sequence[str]) -> Sequence[float | None]:
    return (None,) * (1 + len(causes)) if split is None else (split.total, *(getattr(split, one) for one in causes))


def write_change(value: float | None) -> str:
    """A cause's USD in a table of causes."""
    # a sum of parts that cancel is off in its last digit
    return "0" if value is not None and round(value, 2) == 0 else write_cents(value)


def build_label_tables(review: Review) -> Sequence[Shown]:
    """A table for each label that the bill is split by, the most expensive value first."""
    tables = []
    for label, group in groupby(review.labels, key=lambda row: row.label):
        rows = [
            (
                row.value, row.now.usd, change(row.now.usd, row.before.usd), ratio(row.now.usd, review.now.usd), row.now.tokens,
                row.now.blended_usd_per_million,
            )
            for row in group
        ]  # fmt: skip
        table = make_table(f"Cost by {label}", _LABEL_COLUMNS, rows, printed=_PRINTED_LABELS)
        tables.append(Shown(name=label, table=table))
    return tables


def build_node_table(review: Review) -> Table | None:
    """The most expensive nodes; None where no node is known."""
    rows = [(row.node, row.usd, ratio(row.usd, review.now.usd), row.gpu_hours) for row in review.nodes]
    return make_table("Cost by node", _NODE_COLUMNS, rows, most=_SHOWN_NODES) if rows else None


# --- the month ahead, and the invoice


def build_month(review: Review) -> Shown | None:
    """Budget, projection, total cost of ownership, and an API's price; None where the week has no cost."""
    found = review.outlook
    if found is None:
        return None
    back = found.api.payback if found.api is not None else None
    lead = f"All of it is projected {found.of_hours}." if found.of_hours else ""
    return Shown(lead=lead, facts=tuple(_list_month(found)), no_payback=back.reason if back is not None else "")


def build_invoice(review: Review) -> Shown:
    """By rate, with commitments that stood unused, what pools come to, and electricity."""
    rows: list[tuple[Any, ...]] = [
        (_rate_cell(row.rate, row.kind), row.gpu_name, row.gpu_hours, row.usd_per_gpu_hour, row.usd)
        for row in review.invoice
    ]
    for one in review.commitments:
        aside = f"committed, not used (of {hours(one.committed_gpu_hours)})"
        rows.append((mark(one.name, aside=aside), NONE, one.unused_gpu_hours, one.usd_per_gpu_hour, one.unused_usd))
    for pool in review.pools.rows if review.pools is not None else ():
        beside = pool.committed_usd - pool.uncommitted_usd
        rows.append((mark(pool.pool.name, aside="pool, net"), NONE, NONE, NONE, beside))
    if review.now.energy_usd is not None:
        # sorted behind every rate
        rows.append((Cell("Electricity", "~"), NONE, NONE, NONE, review.now.energy_usd))
    columns = (
        name_column("Rate", longest=_LONGEST_RATE), name_column("GPU", NOTHING, _LONGEST_RATE), _GPU_HOURS,
        Column("Mean price", "USD/GPU-h", lambda price: f"{price:.4f}" if price else NOTHING), Column("Sum", "USD", usd_plain),
    )  # fmt: skip
    unknown = [make_presentable(one.name, _LONGEST_RATE) for one in review.commitments if one.unused_usd is None]
    foot = (Cell("Sum"), BLANK, BLANK, BLANK, review.invoice_usd)
    lacking = _join_sentence(f"commitment {name} is not in this sum because its price is unknown" for name in unknown)
    return Shown(table=make_table("Reconciliation", columns, rows, foot, most=None), without_price=lacking)


def _rate_cell(rate: str, kind: str) -> Cell:
    """A rate with its kind, once where both are the same words."""
    shown, words = make_presentable(rate or "(no price)", _LONGEST_RATE), _KINDS.get(kind, "")
    same = shown.replace("_", " ").replace("-", " ").lower() == words
    return Cell(words if same else shown, rate, aside="" if same else words)


def _list_beside(review: Review) -> Iterator[str]:
    """What a reader of the table of phases has to know beside it."""
    now = review.now
    busy, unknown = (now.gpu_hours_by_state.get(state) for state in ("busy", "unknown"))
    if busy is not None:
        rest = f" and {hours(unknown)} of unknown state" if unknown and unknown >= _LEAST_HOURS else ""
        yield f"prefill, decode and unattributed share {hours(busy)} busy GPU-hours{rest}"
    if now.energy_usd is not None:
        energy = f" for {amount(now.energy_kwh)} kWh" if now.energy_kwh else ""
        yield f"electricity costs {usd(now.energy_usd)} more{energy}"
    if now.carbon_kg is not None:
        yield f"{amount(now.carbon_kg)} kg CO₂e"
    if now.savings_usd:
        yield f"the prefix cache freed capacity worth at least {usd(now.savings_usd)}"
    if now.unpriced_gpu_hours >= _LEAST_HOURS:
        yield f"{hours(now.unpriced_gpu_hours)} GPU-hours have no price"
    if review.recovered_usd:
        yield f"{usd(review.recovered_usd)} of the spend was recovered from counters across gaps"


def _list_month(found: Outlook) -> Iterator[tuple[str, str]]:
    yield "GPU time, commitments, electricity, 730 h", usd(found.projected_usd)
    if found.budget_usd is not None:
        left = found.budget_usd - found.projected_usd
        yield "Budget", f"{usd(found.budget_usd)} ({usd(abs(left))} {'under' if left >= 0 else 'over'})"
    if found.monthly_costs_usd:
        yield "Storage, network, monitoring, engineering", usd(found.monthly_costs_usd)
    yield "Total cost of ownership, month of 720 h", usd(found.tco_usd)
    if found.api is not None:
        yield from _list_api(found.api)


def _list_api(api: ApiComparison) -> Iterator[tuple[str, str]]:
    # why both are less than the month above
    if of := say_counted(api.counted_share):
        yield "Below", of
    yield f"These tokens at {api.name}", f"{usd(api.api_usd)} ({usd(api.api_usd_per_million)}/M)"
    yield "These tokens here, other costs included", f"{usd(api.own_usd)} ({usd(api.own_usd_per_million)}/M)"
    even = f"{amount(api.break_even_tokens_per_month)} (now {amount(api.tokens_per_month)})"
    yield "Break-even at this mix, tokens a month", even
    if api.payback is not None:
        months, never = api.payback.months, "never" if api.payback.is_known else NOTHING
        yield "Purchase paid back in", f"{months:.1f} months" if months is not None else never


def _join_sentence(parts: Iterable[str]) -> str:
    joined = "; ".join(parts)
    return f"{joined[:1].upper()}{joined[1:]}." if joined else ""


# --- by tenant: what each of them costs, what its tokens would be billed at, and how far gateway and engines agree

_PRINTED_TENANTS, _PRINTED_PRICES, _PRINTED_SCALES = 10, 10, 5
_EXTERNAL, _UNEXPLAINED = "external", "(no tenant)"
_TENANT_COLUMNS = (
    name_column("Tenant"), _SPEND, _SHARE,
    *(Column(title, "USD", usd_plain) for title in ("Prefill", "Decode", "Idle and other")),
    Column("Input as sent", "tokens", amount), Column("Cached", "of input", lambda share: percent(share, 0)),
    Column("Output", "tokens", amount), Column("Requests", "", amount),
)  # fmt: skip
_PRICE_COLUMNS = (
    name_column("Tenant"), name_column("Model", "(not named)"), _SPEND,
    *(Column(title, "USD/M", usd_plain) for title in ("Input as sent", "Input, not cached", "Output")),
    Column("Input as sent", "tokens", amount), Column("Output", "tokens", amount),
)  # fmt: skip
_SCALE_COLUMNS = (
    name_column("Model"),
    *(Column(title, "engines over gateway", lambda value: NOTHING if value is None else f"{value:.2f}") for title in ("Input", "Output")),
)  # fmt: skip


def build_tenants(review: Review) -> Shown | None:
    """The tables; None where no gateway counts by tenant."""
    split = review.tenants
    if split is None:
        return None
    names = list(dict.fromkeys((row.tenant, row.kind) for row in split.rows))
    costs = sorted(names, key=lambda name: -fsum(row.usd for row in _pick(split, name)))
    # with one row for all the others, and what is no tenant's: what is shown adds up, however many there are
    shown = costs if len(costs) < MOST_ROWS else costs[: MOST_ROWS - 2]
    rows = [tuple(_list_tenant_costs(name[0], _pick(split, name), split)) for name in shown]
    if others := costs[len(shown) :]:
        rest = [row for name in others for row in _pick(split, name)]
        rows.append(tuple(_list_tenant_costs(f"({len(others)} more)", rest, split)))
    if split.unexplained:
        rows.append(tuple(_list_tenant_costs(_UNEXPLAINED, split.unexplained, split)))
    foot = tuple(_list_tenant_costs("All", (*split.rows, *split.unexplained), split))
    prices = [
        (
            row.tenant, row.model_name, row.usd if row.served else Cell(_EXTERNAL), row.input_usd_per_million,
            row.uncached_usd_per_million, row.output_usd_per_million, row.prompt_tokens, row.decode_tokens,
        )
        for row in split.rows
    ]  # fmt: skip
    scales = [
        (" / ".join((scale.model_name, *filter(None, scale.fleet))), _mark_far(scale.prompt), _mark_far(scale.decode))
        for scale in split.scales
    ]
    costs_table = make_table("Cost by tenant", _TENANT_COLUMNS, rows, foot, printed=_PRINTED_TENANTS, most=None)
    return Shown(
        lead="Gateways say how a model's tokens divide among tenants, the engines what they cost and how many there were. Idle, down and "
        "unattributed time goes with the busy time of its hour.",
        costs=replace(costs_table, left_out=len(others)),
        prices=make_table("Tokens as an API bills them", _PRICE_COLUMNS, prices, printed=_PRINTED_PRICES),
        scales=make_table("Engines' tokens over the gateway's", _SCALE_COLUMNS, scales, printed=_PRINTED_SCALES, most=None)
        if scales
        else None,
        notes=tuple(_list_tenant_notes(split)),
    )  # fmt: skip


def _list_tenant_notes(split: TenantSplit) -> Iterator[str]:
    """What a reader has to know, in sentences."""
    apart = [scale.model_name for scale in split.scales if scale.flagged]
    if apart:
        yield (
            f"Engines over gateway is below {LEAST_SCALE} or above {MOST_SCALE} for {_name_some(apart)}. Above 1: requests tried again, "
            "fallbacks, streams that broke off, requests past the gateway. Below 1: answers from the gateway's own "
            "cache, a tokenizer that counts more. Shares hold as long as it is the same for all tenants."
        )
    if split.unexplained:
        yield (
            f"{usd(split.unexplained_usd)} belong to no tenant: hours in which no tenant had tokens, models without a gateway, and "
            "what engines counted beyond twice the gateway's tokens of an hour."
        )
    if any(row.cached_is_mean and row.prompt_tokens for row in split.rows):
        yield "* Cached tokens are not known to the gateway: the engines' mean of the hour is taken for every tenant."
    outside = list(dict.fromkeys(row.model_name or "(not named)" for row in split.rows if not row.served))
    if outside:
        remedy = "If an engine serves it under another name, add it to tenants.aliases."
        yield f"External, without GPU cost here: {_name_some(outside)}. {remedy}"


def _pick(split: TenantSplit, name: tuple[str, str]) -> tuple[TenantCost, ...]:
    return tuple(row for row in split.rows if (row.tenant, row.kind) == name)


def _list_tenant_costs(name: str, rows: Sequence[TenantCost], split: TenantSplit) -> Iterator[Any]:
    spend = fsum(row.usd for row in rows)
    served = [row for row in rows if row.served]
    sent = fsum(row.prompt_tokens for row in served)
    cached = ratio(fsum(row.cached_tokens or 0.0 for row in served), sent)
    mark = "*" if any(row.cached_is_mean and row.prompt_tokens for row in rows) else ""
    yield from (name, spend, ratio(spend, split.usd))
    yield from (
        fsum(row.prefill_usd for row in rows),
        fsum(row.decode_usd for row in rows),
        fsum(row.rest_usd for row in rows),
    )
    yield from (sent, Cell(percent(cached, 0) + mark, cached))
    yield from (fsum(row.decode_tokens for row in served), sum_known(row.requests for row in served))


def _mark_far(value: float | None) -> Cell:
    return mark(value, "bad" if value is not None and not LEAST_SCALE <= value <= MOST_SCALE else "")


def _name_some(names: Sequence[str]) -> str:
    more = len(names) - 3
    return ", ".join(names[:3]) + (f" and {more} more" if more > 0 else "")
