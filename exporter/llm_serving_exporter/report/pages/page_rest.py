"""The page's lower half: hours, labels, nodes, commitments, objectives, alerts, gaps, and the sums for an invoice."""

from __future__ import annotations

from datetime import datetime
from itertools import groupby
from zoneinfo import ZoneInfo

from llm_serving_exporter.render.numbers import NOTHING, amount, hours, percent, signed_percent, usd, usd_plain
from llm_serving_exporter.render.report_html import Cell, Column, card, figure, name, table, text
from llm_serving_exporter.report.figures.formulas import change
from llm_serving_exporter.report.figures.review import Review
from llm_serving_exporter.report.pages import charts

MOST_ROWS = 100
# a restart of who evaluates them is no news
_MOST_WATCHED = 0.99
_PRINTED_ROWS, _PRINTED_NODES, _PRINTED_GAPS = 6, 5, 4
_KINDS = {"reserved": "reserved", "on_demand": "on demand", "spot": "spot", "owned": "owned"}


def maps(review: Review) -> str:
    """Three maps of the week: idle, beyond need, held in reserve."""
    hourly, week = review.hourly, review.week
    drawn = [("Idle GPU-hours", charts.heatmap("Idle time", "GPU-hours", week, hourly.idle_gpu_hours))]
    for title, line in (
        ("Replicas beyond the demand and its reserve", hourly.excess_replicas),
        ("Replicas in reserve for a lost node", hourly.reserve_replicas),
    ):
        if line is not None:
            drawn.append((title, charts.heatmap(title, "replica-hours", week, line)))
    body = "".join(f"<div><h3>{title}</h3>{chart}</div>" for title, chart in drawn)
    lead = f"Hours of the clock in {text(week.zone)}."
    if hourly.excess_replicas is None:
        lead += " Replicas are not shown: the rule pack's records of required replicas are not there."
    elif review.spare is not None:
        lead += (
            f" Beyond need: {hours(review.spare.excess_hours)} replica-hours, {usd(review.spare.excess_usd)};"
            f" in reserve: {hours(review.spare.reserve_hours)}, {usd(review.spare.reserve_usd)}."
        )
    return card("When", f'<div class="maps">{body}</div>', lead=lead)


def labels(review: Review) -> str:
    """The bill by each label that was asked for."""
    columns = (
        Column("Value", number=False), Column("Spend", "USD"), Column("Change"), Column("Share"), Column("Tokens"),
        Column("Blended", "USD/M"),
    )  # fmt: skip
    cards = []
    for label, rows in groupby(review.labels, key=lambda row: row.label):
        cells = []
        for row in list(rows)[:MOST_ROWS]:
            share = row.now.usd / review.now.usd if row.now.usd is not None and review.now.usd else None
            moved, unit = change(row.now.usd, row.before.usd), row.now.blended_usd_per_million
            cells.append(
                [
                    name(row.value),
                    figure(usd_plain(row.now.usd), row.now.usd),
                    figure(signed_percent(moved), moved),
                    figure(percent(share), share),
                    figure(amount(row.now.tokens), row.now.tokens),
                    figure(usd_plain(unit), unit),
                ]
            )
        cards.append(card(f"By {label}", table(f"Cost by {label}", columns, cells, printed=_PRINTED_ROWS), "half"))
    return "".join(cards)


def nodes(review: Review) -> str:
    """The five most expensive, or all where there are few more."""
    if not review.nodes:
        return ""
    columns = (Column("Node", number=False), Column("Spend", "USD"), Column("Share"), Column("GPU-hours"))
    shown = review.nodes[:_PRINTED_NODES]
    rows = []
    for row in shown:
        share = row.usd / review.now.usd if review.now.usd else None
        rows.append(
            [
                name(row.node, "(not known)"),
                figure(usd_plain(row.usd), row.usd),
                figure(percent(share), share),
                figure(hours(row.gpu_hours), row.gpu_hours),
            ]
        )
    rest = len(review.nodes) - len(shown)
    more = f'<p class="soft">{rest} more are in the CSV.</p>' if rest else ""
    return card("Most expensive nodes", table("Cost by node", columns, rows) + more, "half")


def bought(review: Review) -> str:
    """Objectives, and what fired."""
    parts = []
    if review.attainments:
        columns = (Column("Objective", number=False), Column("Attained"), Column("Objective"), Column("Events"))
        rows = []
        for one in review.attainments:
            missed = one.objective is not None and one.share is not None and one.share < one.objective
            rows.append(
                [
                    name(one.slo),
                    figure(percent(one.share, 2), one.share, "bad" if missed else ""),
                    figure(percent(one.objective, 2), one.objective),
                    figure(amount(one.total), one.total),
                ]
            )
        parts.append(table("Objectives", columns, rows))
    if review.alerts is not None:
        found = review.alerts
        parts.append(
            f"<p>{found.pages} page{_s(found.pages)} ({hours(found.page_minutes / 60)} h firing), "
            f"{found.tickets} ticket{_s(found.tickets)} ({hours(found.ticket_minutes / 60)} h).</p>"
        )
        if found.noisiest:
            columns = (
                Column("Noisiest alerts", number=False),
                Column("Severity", number=False),
                Column("Episodes"),
                Column("Firing", "minutes"),
            )
            parts.append(
                table(
                    "Noisiest alerts",
                    columns,
                    [
                        [
                            name(row.alert),
                            Cell(text(row.severity), row.severity),
                            figure(str(row.episodes), row.episodes),
                            figure(f"{row.minutes:.0f}", row.minutes),
                        ]
                        for row in found.noisiest
                    ],
                )
            )
    parts.append(_watched(review))
    return card("What was bought: objectives, pages, tickets", "".join(parts), "half")


def _watched(review: Review) -> str:
    """For how long anybody would have noticed."""
    if review.alerts is None:
        said = "Pages and tickets are not known: nothing evaluated the rules (no LLMServingWatchdog in ALERTS), or it could not be read."
    elif review.alerts.watched_hours is None:
        said = "For how long rules were evaluated is not known: LLMServingWatchdog is not in ALERTS."
    elif review.alerts.watched_hours < _MOST_WATCHED * review.week.length_hours:
        said = (
            f"Rules were evaluated for {hours(review.alerts.watched_hours)} of {hours(review.week.length_hours)} hours."
        )
    else:
        return ""
    return f'<p class="soft">{text(said)}</p>'


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def invoice(review: Review) -> str:
    """What to hold an invoice against, and how far commitments were used."""
    columns = (
        Column("Rate", number=False), Column("GPU", number=False), Column("GPU-hours"), Column("Mean price", "USD/GPU-h"),
        Column("Sum", "USD"),
    )  # fmt: skip
    rows = []
    for row in review.invoice:
        kind = f' <span class="soft">{_KINDS[row.kind]}</span>' if row.kind in _KINDS else ""
        rows.append(
            [
                Cell(f"{text(row.rate or '(no price)', 80)}{kind}", row.rate),
                Cell(text(row.gpu_name or NOTHING, 80), row.gpu_name),
                figure(hours(row.gpu_hours), row.gpu_hours),
                figure(f"{row.usd_per_gpu_hour:.4f}" if row.usd_per_gpu_hour else NOTHING, row.usd_per_gpu_hour),
                figure(usd_plain(row.usd), row.usd),
            ]
        )
    for one in review.commitments:
        rows.append(
            [
                Cell(
                    f'{text(one.name, 80)} <span class="soft">unused of {hours(one.committed_gpu_hours)}</span>',
                    one.name,
                ),
                Cell(NOTHING),
                figure(hours(one.unused_gpu_hours), one.unused_gpu_hours),
                figure(f"{one.usd_per_gpu_hour:.4f}" if one.usd_per_gpu_hour else NOTHING, one.usd_per_gpu_hour),
                figure(usd_plain(one.unused_usd), one.unused_usd),
            ]
        )
    if review.now.energy_usd is not None:
        rows.append(
            [
                Cell("Electricity", "~"),
                Cell(NOTHING),
                figure(NOTHING, None),
                figure(NOTHING, None),
                figure(usd_plain(review.now.energy_usd), review.now.energy_usd),
            ]
        )
    foot = [Cell("Sum"), Cell(""), Cell(""), Cell(""), figure(usd_plain(review.invoice_usd), review.invoice_usd)]
    unknown = [one.name for one in review.commitments if one.unused_usd is None]
    named = "; ".join(f"commitment {text(name, 80)}, whose price is not known, is not in this sum" for name in unknown)
    more = f'<p class="soft">{named[0].upper()}{named[1:]}.</p>' if named else ""
    return card("To hold an invoice against", table("Reconciliation", columns, rows, foot) + more, "half")


def gaps(review: Review) -> str:
    """Times without data and what they may have cost."""
    if review.gaps is None:
        return card("Gaps", '<p class="soft">Not known: whether data are missing could not be read.</p>', "half")
    if not review.gaps:
        return card(
            "Gaps",
            '<p class="soft">No minute of the week is without data of a target that was there before and after.</p>',
            "half",
        )
    zone = ZoneInfo(review.week.zone)
    columns = (
        Column("Target", number=False), Column("From", number=False), Column("Hours"), Column("Recovered", "USD"),
        Column("Missing", "USD, estimated"),
    )  # fmt: skip
    rows = []
    for gap in review.gaps[:MOST_ROWS]:
        begin = datetime.fromtimestamp(gap.begin, zone)
        length = (gap.end - gap.begin) / 3600
        recovered = gap.recovered.get("cost")
        rows.append(
            [
                name(gap.target),
                Cell(f"{begin:%a %H:%M}" + ("" if gap.ends else ", to the end"), gap.begin),
                figure(f"{length:.2f}", length),
                figure(usd_plain(recovered), recovered),
                figure(usd_plain(gap.estimated_usd), gap.estimated_usd),
            ]
        )
    foot = [
        Cell("Sum"),
        Cell(""),
        Cell(""),
        figure(usd_plain(review.recovered_usd), None),
        figure(f"{'≥ ' if review.about_missing == 'at least' else ''}{usd_plain(review.missing_usd)}", None),
    ]
    rest = len(review.gaps) - len(rows)
    more = f'<p class="soft">{rest} more are in the CSV.</p>' if rest else ""
    lead = "Recovered: what counters that went on show across it, in the spend. Missing: in no figure; GPUs × time × the price before it."
    return card("Gaps", table("Gaps in the data", columns, rows, foot, printed=_PRINTED_GAPS) + more, "half", lead)
