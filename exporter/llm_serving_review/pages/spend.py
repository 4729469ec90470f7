"""Where the money went and why it changed: by phase, day, label and node, the month ahead, and the sums to check an invoice against."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from llm_serving_exporter.model.record import Struct
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
from llm_serving_review.figures.causes import CAUSE_WORDS
from llm_serving_review.figures.formulas import change, ratio
from llm_serving_review.figures.outlook import ApiComparison, Outlook
from llm_serving_review.figures.review import Review, sum_by_day
from llm_serving_review.figures.totals import PHASES, say_counted
from llm_serving_review.pages.charts import Chart, draw_causes, draw_days, draw_stacked_bar
from llm_serving_review.pages.headline import describe_split
from llm_serving_review.pages.tables import MOST_ROWS, Cell, Column, Table, name_cell, number_cell

_PRINTED_LABELS, _PRINTED_MOVEMENTS, _SHOWN_NODES, _SHOWN_MOVEMENTS = 6, 4, 5, 12
_LONGEST_RATE = 80
# of a span: longer ones are shown by day
_MOST_HOUR_COLUMNS = 48
# phases that are a state of a GPU; the others share its busy time and the time of unknown state
_STATE_OF_PHASE = {"idle": "idle", "down": "down"}
# fewer read as 0.0
_LEAST_HOURS = 0.05
_KINDS = {
    "reserved": "reserved",
    "on_demand": "on demand",
    "spot": "spot",
    "owned": "owned",
    "pool": "before commitments",
}
_PHASE_COLUMNS = (
    Column("Went to", number=False), Column("Spend", "USD"), Column("Share"), Column("Change"), Column("GPU-hours"),
)  # fmt: skip
_MOVEMENT_COLUMNS = (
    Column("Target or workload", number=False), Column("What happened", number=False), Column("Model", number=False),
    Column("Change", "USD"),
)  # fmt: skip
_LABEL_COLUMNS = (
    Column("Value", number=False), Column("Spend", "USD"), Column("Change"), Column("Share"), Column("Tokens"),
    Column("All tokens", "USD/M"),
)  # fmt: skip
_NODE_COLUMNS = (Column("Node", number=False), Column("Spend", "USD"), Column("Share"), Column("GPU-hours"))
_INVOICE_COLUMNS = (
    Column("Rate", number=False), Column("GPU", number=False), Column("GPU-hours"), Column("Mean price", "USD/GPU-h"),
    Column("Sum", "USD"),
)  # fmt: skip


class SpendByPhase(Struct, frozen=True):
    """Where the week's GPU time went."""

    chart: Chart  # one bar, a part for each phase
    table: Table  # the same with GPU-hours
    beside: str  # what is no part of the spend by phase but belongs to it, as one sentence; "" for nothing


class Change(Struct, frozen=True):
    """Why the spend is another than the week before."""

    summary: str  # both weeks' spend and their difference; "" where they are not compared
    causes: Chart | None  # a bar for each cause; None where the weeks are not compared
    days: Chart  # the days of the week against those of the week before
    one_before: str  # how sentences call what it is compared with
    step: str  # what a column is: "day", or "hour" of a short span


class LabelTable(Struct, frozen=True):
    """The bill by one label."""

    name: str
    table: Table


class Month(Struct, frozen=True):
    """The month at this week's rate, and the price of an API for the same tokens."""

    lead: str  # on which hours all of it rests; "" for a whole week
    facts: Sequence[tuple[str, str]]
    no_payback: str  # why a purchase is never paid back; "" where it is, or nothing was purchased


class Invoice(Struct, frozen=True):
    """What invoices should come to."""

    table: Table  # by rate, then commitments that stood unused, then electricity
    without_price: str  # commitments that are in no sum because their price is not known, as one sentence; "" for none


def build_spend_by_phase(review: Review) -> SpendByPhase:
    """The phases that have a cost in either week."""
    now, before = review.now, review.earlier
    rows = []
    for phase in PHASES:
        value, earlier = now.usd_by_phase.get(phase), before.usd_by_phase.get(phase)
        if not value and not earlier:
            continue
        state = _STATE_OF_PHASE.get(phase)
        in_state = now.gpu_hours_by_state.get(state) if state else None
        rows.append(
            (
                Cell(phase.capitalize(), phase, phase=phase),
                number_cell(usd_plain(value), value),
                number_cell(percent(now.share(phase)), now.share(phase)),
                number_cell(signed_percent(change(value, earlier)), change(value, earlier)),
                number_cell(hours(in_state), in_state),
            )
        )
    foot = (
        Cell("All GPU time"),
        number_cell(usd_plain(now.usd), now.usd),
        number_cell("100 %", 1.0),
        Cell(signed_percent(change(now.usd, before.usd))),
        Cell(hours(now.gpu_hours)),
    )
    return SpendByPhase(
        draw_stacked_bar([(phase, now.usd_by_phase.get(phase, 0.0)) for phase in PHASES], now.usd or 0.0),
        Table("Spend by what it went to", _PHASE_COLUMNS, rows, foot),
        " ".join(filter(None, (_join_sentence(_list_beside(review)), describe_split(review)))),
    )


def build_change(review: Review) -> Change:
    """The split of the change, and the days."""
    week, hourly = review.week, review.hourly
    by_hour = week.is_span and len(week.hours) <= _MOST_HOUR_COLUMNS
    step = "hour" if by_hour else "day"
    if by_hour:
        names = [f"{hour.hour:02d}" for hour in week.hours]
        days = draw_days(names, week.one_before, hourly.usd, hourly.usd_by_hour_before)
    else:
        by_phase = {phase: sum_by_day(hourly.usd[phase], week) for phase in PHASES}
        days = draw_days(week.days, week.one_before, by_phase, hourly.usd_by_day_before)
    changed = review.change
    if changed is None:
        return Change("", None, days, week.one_before, step)
    before = f"{usd(review.earlier.usd)} in {review.previous.name}"
    change_usd = signed_usd_to_the_cent(changed.split.total)
    summary = f"GPU time: {before}, {usd(review.now.usd)} in {review.week.name}: {change_usd}."
    parts = [(CAUSE_WORDS[cause], value) for cause, value in changed.split.parts().items() if value]
    causes = draw_causes(parts) if parts else None
    return Change(summary, causes, days, week.one_before, step)


def build_movements(review: Review) -> Table | None:
    """What came, went, was scaled and moved; None for nothing, or where the weeks are not compared."""
    movements = review.change.movements if review.change is not None else ()
    if not movements:
        return None
    rows = [
        (
            name_cell(one.name),
            Cell(one.kind, one.kind, aside=one.detail),
            name_cell(one.model_name),
            number_cell(signed_usd_to_the_cent(one.usd).replace("$", ""), one.usd),
        )
        for one in movements[:_SHOWN_MOVEMENTS]
    ]
    left_out = len(movements) - len(rows)
    return Table("What came, went, was scaled and moved", _MOVEMENT_COLUMNS, rows, (), _PRINTED_MOVEMENTS, left_out)


def build_label_tables(review: Review) -> Sequence[LabelTable]:
    """A table for each label that the bill is split by, the most expensive value first."""
    tables = []
    for label, group in groupby(review.labels, key=lambda row: row.label):
        rows = list(group)
        cells = []
        for row in rows[:MOST_ROWS]:
            share = ratio(row.now.usd, review.now.usd)
            moved, unit = change(row.now.usd, row.before.usd), row.now.blended_usd_per_million
            cells.append(
                (
                    name_cell(row.value),
                    number_cell(usd_plain(row.now.usd), row.now.usd),
                    number_cell(signed_percent(moved), moved),
                    number_cell(percent(share), share),
                    number_cell(amount(row.now.tokens), row.now.tokens),
                    number_cell(usd_plain(unit), unit),
                )
            )
        caption = f"Cost by {label}"
        tables.append(
            LabelTable(label, Table(caption, _LABEL_COLUMNS, cells, (), _PRINTED_LABELS, len(rows) - len(cells)))
        )
    return tables


def build_node_table(review: Review) -> Table | None:
    """The most expensive nodes; None where no node is known."""
    if not review.nodes:
        return None
    rows = []
    for row in review.nodes[:_SHOWN_NODES]:
        share = ratio(row.usd, review.now.usd)
        rows.append(
            (
                name_cell(row.node, "(unknown)"),
                number_cell(usd_plain(row.usd), row.usd),
                number_cell(percent(share), share),
                number_cell(hours(row.gpu_hours), row.gpu_hours),
            )
        )
    return Table("Cost by node", _NODE_COLUMNS, rows, left_out=len(review.nodes) - len(rows))


def build_month(review: Review) -> Month | None:
    """Budget, projection, total cost of ownership, and an API's price; None where the week has no cost."""
    found = review.outlook
    if found is None:
        return None
    back = found.api.payback if found.api is not None else None
    lead = f"All of it is projected {found.of_hours}." if found.of_hours else ""
    return Month(lead, tuple(_list_month(found)), back.reason if back is not None else "")


def build_invoice(review: Review) -> Invoice:
    """By rate, with commitments that stood unused and electricity."""
    rows = []
    for row in review.invoice:
        rate = make_presentable(row.rate or "(no price)", _LONGEST_RATE)
        rows.append(
            (
                _rate_cell(rate, row.rate, row.kind),
                Cell(make_presentable(row.gpu_name or NOTHING, _LONGEST_RATE), row.gpu_name),
                number_cell(hours(row.gpu_hours), row.gpu_hours),
                number_cell(_write_price(row.usd_per_gpu_hour), row.usd_per_gpu_hour),
                number_cell(usd_plain(row.usd), row.usd),
            )
        )
    for one in review.commitments:
        name = make_presentable(one.name, _LONGEST_RATE)
        rows.append(
            (
                Cell(name, one.name, aside=f"committed, not used (of {hours(one.committed_gpu_hours)})"),
                Cell(NOTHING),
                number_cell(hours(one.unused_gpu_hours), one.unused_gpu_hours),
                number_cell(_write_price(one.usd_per_gpu_hour), one.usd_per_gpu_hour),
                number_cell(usd_plain(one.unused_usd), one.unused_usd),
            )
        )
    for pool in review.pools.rows if review.pools is not None else ():
        shown = make_presentable(pool.pool.name, _LONGEST_RATE)
        beside = pool.committed_usd - pool.uncommitted_usd
        price = number_cell(usd_plain(beside), beside)
        rows.append(
            (Cell(shown, pool.pool.name, aside="pool, net"), Cell(NOTHING), Cell(NOTHING), Cell(NOTHING), price)
        )
    if review.now.energy_usd is not None:
        # sorted behind every rate
        name_last = "~"
        price = number_cell(usd_plain(review.now.energy_usd), review.now.energy_usd)
        rows.append((Cell("Electricity", name_last), Cell(NOTHING), Cell(NOTHING), Cell(NOTHING), price))
    foot = (Cell("Sum"), Cell(""), Cell(""), Cell(""), number_cell(usd_plain(review.invoice_usd), review.invoice_usd))
    unknown = [make_presentable(one.name, _LONGEST_RATE) for one in review.commitments if one.unused_usd is None]
    return Invoice(
        Table("Reconciliation", _INVOICE_COLUMNS, rows, foot),
        _join_sentence([f"commitment {name} is not in this sum because its price is unknown" for name in unknown]),
    )


def _rate_cell(shown: str, rate: str, kind: str) -> Cell:
    """A rate with its kind, once where both are the same words."""
    words = _KINDS.get(kind, "")
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
        months = api.payback.months
        yield (
            "Purchase paid back in",
            f"{months:.1f} months" if months is not None else "never" if api.payback.is_known else NOTHING,
        )


def _write_price(usd_per_gpu_hour: float | None) -> str:
    return f"{usd_per_gpu_hour:.4f}" if usd_per_gpu_hour else NOTHING


def _join_sentence(parts: Iterator[str] | Sequence[str]) -> str:
    joined = "; ".join(parts)
    return f"{joined[:1].upper()}{joined[1:]}." if joined else ""
