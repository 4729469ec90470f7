"""How the week was run, hour by hour, and what lies beyond it: the last weeks, the month to date, days that are unlike others."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from llm_serving_exporter.model.text import count_nouns
from llm_serving_exporter.render.numbers import amount, amount_of, hours, percent, signed_percent, usd, usd_plain
from llm_serving_review.evidence.past import Source
from llm_serving_review.figures.beyond import Measure, UnusualDay
from llm_serving_review.figures.past_weeks import BEFORE_COMMITMENTS, MonthToDate
from llm_serving_review.figures.review import Review
from llm_serving_review.figures.rows import Attainment
from llm_serving_review.figures.totals import change
from llm_serving_review.pages.charts import draw_heatmap, draw_month, draw_trend
from llm_serving_review.pages.tables import (
    BLANK,
    COST,
    EXPORTER,
    MODEL_VARIABLE,
    NONE,
    TARGET_VARIABLE,
    Cell,
    Column,
    Shown,
    link_board,
    link_hour,
    make_table,
    mark,
    name_column,
)

# --- idle and spare hours, objectives and alerts, gaps in the data

_PRINTED_GAPS = 4
# a restart of Prometheus or vmalert is no news
_MOST_EVALUATED = 0.99
_OBJECTIVE_COLUMNS = (
    name_column("Objective"), *(Column(title, "", lambda share: percent(share, 2)) for title in ("Attained", "Objective")),
    Column("Events", "", amount),
)  # fmt: skip
_ALERT_COLUMNS = (
    name_column("Noisiest alerts"), name_column("Severity"), Column("Episodes"), Column("Firing", "minutes", "{:.0f}".format),
)  # fmt: skip
_CHECK_COLUMNS = (
    name_column("Check"), name_column("Model"), *(Column(title, "hours", "{:.1f}".format) for title in ("Page", "Ticket", "Not known")),
)  # fmt: skip
_GAP_COLUMNS = (
    name_column("Target"), name_column("From"), Column("Hours", "", "{:.2f}".format), Column("Recovered", "USD", usd_plain),
    Column("Missing", "USD, estimated", usd_plain),
)  # fmt: skip


def build_hour_maps(review: Review) -> Shown:
    """Maps of idle time, and of replicas where the rule pack records them."""
    hourly, week = review.hourly, review.week
    idle = draw_heatmap("Idle time", "GPU-hours", week, hourly.idle_gpu_hours)
    maps = [Shown(title="Idle GPU-hours", chart=idle)]
    for title, line in (
        ("Replicas beyond the demand and its reserve", hourly.excess_replicas),
        ("Replicas in reserve for a lost node", hourly.reserve_replicas),
    ):
        if line is not None:
            maps.append(Shown(title=title, chart=draw_heatmap(title, "replica-hours", week, line)))
    lead = f"Hours are local time in {week.zone}."
    if hourly.excess_replicas is None:
        lead += " Replicas are not shown because Prometheus has no records of required replicas; load the rule pack."
    elif review.spare is not None:
        lead += (
            f" Beyond the demand and its reserve: {hours(review.spare.excess_hours)} replica-hours, {usd(review.spare.excess_usd)};"
            f" in reserve for a lost node: {hours(review.spare.reserve_hours)}, {usd(review.spare.reserve_usd)}."
        )
    return Shown(lead=lead, maps=maps)


def build_service(review: Review) -> Shown:
    """What the money bought: objectives, pages and tickets, checks that were not fine all week, the worst first."""
    found, alerts = review.alerts, ""
    if found is not None:
        pages, tickets = count_nouns(found.pages, "page"), count_nouns(found.tickets, "ticket")
        alerts = (
            f"{pages} ({hours(found.page_minutes / 60)} h firing), {tickets} ({hours(found.ticket_minutes / 60)} h)."
        )
    objectives = [
        (one.slo, mark(one.share, "bad" if _is_missed(one) else ""), one.objective, one.total)
        for one in review.attainments
    ]
    noisiest = [
        (row.alert, row.severity, row.episodes, row.minutes) for row in (found.noisiest if found is not None else ())
    ]
    checks = [
        (
            one.check, " ".join(text for _, text in one.labels if text), mark(one.page_hours, "bad" if one.page_hours else ""),
            one.ticket_hours, one.unknown_hours,
        )
        for one in review.checks
        if one.page_hours or one.ticket_hours or one.unknown_hours >= 1
    ]  # fmt: skip
    return Shown(
        objectives=make_table("Objectives", _OBJECTIVE_COLUMNS, objectives, most=None) if objectives else None,
        alerts=alerts,
        noisiest=make_table("Noisiest alerts", _ALERT_COLUMNS, noisiest) if noisiest else None,
        checks=make_table("Checks", _CHECK_COLUMNS, checks) if checks else None,
        evaluated=_write_evaluated(review),
    )


def _is_missed(one: Attainment) -> bool:
    return one.objective is not None and one.share is not None and one.share < one.objective


def build_gaps(review: Review) -> Shown:
    """Times without data and what they may have cost."""
    if not review.gaps:
        none = (
            "Gaps are unknown because Prometheus could not be asked for them."
            if review.gaps is None
            else "There are no gaps: every target has data for every minute between its first and its last."
        )
        return Shown(lead="", table=None, none=none)
    rows = []
    for gap in review.gaps:
        begin = f"{datetime.fromtimestamp(gap.begin, ZoneInfo(review.week.zone)):%a %H:%M}{'' if gap.ends else ', to the end'}"
        cell = Cell(begin, gap.begin, link=link_board(review, EXPORTER, gap.begin - 3600, gap.end + 3600))
        length, recovered = (gap.end - gap.begin) / 3600, gap.recovered.get("cost")
        rows.append((gap.target, cell, length, recovered, gap.estimated_usd))
    missing = f"{'≥ ' if review.about_missing == 'at least' else ''}{usd_plain(review.missing_usd)}"
    foot = (Cell("Sum"), BLANK, BLANK, Cell(usd_plain(review.recovered_usd)), Cell(missing))
    lead = (
        "Recovered: cost that counters added up during the gap; it is part of the spend. "
        "Missing: GPUs × time × the last price; it is in no other figure."
    )
    table = make_table("Gaps in the data", _GAP_COLUMNS, rows, foot, printed=_PRINTED_GAPS)
    return Shown(lead=lead, table=table, none="")


def _write_evaluated(review: Review) -> str:
    """For how long anybody would have noticed."""
    if review.alerts is None:
        return (
            "Pages and tickets are unknown: either nothing evaluated the rules (ALERTS has no LLMServingWatchdog), "
            "or ALERTS could not be read."
        )
    evaluated, week = review.alerts.watched_hours, review.week.length_hours
    if evaluated is None:
        return "It is unknown how long rules were evaluated: ALERTS has no LLMServingWatchdog."
    if evaluated < _MOST_EVALUATED * week:
        return f"Rules were evaluated for {hours(evaluated)} of {hours(week)} hours."
    return ""


# --- beyond the week

_TREND_COLUMNS = (
    name_column("Week"), Column("Paid", "USD", usd_plain), Column("Change", "", signed_percent),
    Column("A million tokens", "USD", usd_plain), Column("Tokens", "", amount),
)  # fmt: skip
_FROM = {Source.COUNTERS: "", Source.FILE: "", Source.RECORDS: "from hourly records"}


def build_trend_section(review: Review) -> Shown | None:
    """The last weeks; None where nothing is known of any before."""
    weeks = review.beyond.trend
    if not weeks:
        return None
    rows: list[tuple[Any, ...]] = []
    for index in reversed(range(len(weeks))):
        one = weeks[index]
        if one.known is None:
            rows.append((mark(one.name, aside="not known"), NONE, NONE, NONE, NONE))
            continue
        known, before = one.known, weeks[index - 1].known if index else None
        moved = change(known.paid_usd, before.paid_usd) if before is not None else None
        aside = "; ".join(word for word in (*known.marks, _FROM[known.source]) if word)
        rows.append((mark(one.name, aside=aside), known.paid_usd, moved, known.usd_per_million, known.tokens))
    unknown = sum(1 for one in weeks if one.known is None)
    lead = "Paid: GPU time after pools, unused commitments and electricity."
    if any(one.known is not None and BEFORE_COMMITMENTS in one.known.marks for one in weeks):
        lead += " Weeks from hourly records are before commitments."
    if unknown:
        blank = count_nouns(unknown, "is not known and stays", "are not known and stay")
        lead += f" Of {len(weeks)} weeks {blank} blank: neither a review of them nor hourly records are there."
    return Shown(lead=lead, chart=draw_trend(weeks), table=make_table("The last weeks", _TREND_COLUMNS, rows))


def build_month_section(review: Review) -> Shown | None:
    """The calendar month; None where nothing is known of it."""
    month = review.beyond.month
    if month is None:
        return None
    over = month.is_over
    lead = (
        "The month is over."
        if over
        else f"Forecast: what is known, and {usd(month.usd_per_hour)} for each of the {hours(month.hours_left)} hours that remain. That "
        f"is the mean of the last seven days, of which {hours(month.rate_hours)} hours are known."
    )
    title = f"{month.first:%B %Y}{'' if over else ' to date'}"
    return Shown(title=title, lead=lead, chart=draw_month(month), facts=_list_month_facts(month, review))


def _list_month_facts(month: MonthToDate, review: Review) -> Sequence[tuple[str, str]]:
    zone = ZoneInfo(review.week.zone)
    until = datetime.fromtimestamp(month.until, zone)
    facts = [(f"Paid until {until:%-d %B %H:%M}", usd(month.usd))]
    if not month.is_over:
        facts.append(("Forecast for the whole month", usd(month.forecast_usd)))
    if month.budget_usd is not None:
        left = month.budget_usd - month.forecast_usd
        words = f"{usd(month.budget_usd)} ({usd(abs(left))} {'left' if left >= 0 else 'too little'})"
        facts.append(("Budget", words))
        reached = None if month.budget_reached is None else datetime.fromtimestamp(month.budget_reached, zone)
        facts.append(("Budget used up", f"{reached:%A, %-d %B, %H:%M}" if reached else "not in this month"))
    if month.unknown_hours:
        facts.append(("Hours of the month that are not known", hours(month.unknown_hours)))
    if month.unknown_usd:
        what = "What those and gaps may have cost" if month.unknown_hours else "What gaps in the data may have cost"
        facts.append((f"{what}, in no other figure", f"about {usd(month.unknown_usd)}"))
    return facts


def build_unusual_days(review: Review) -> Shown | None:
    """Days that are unlike others; None for a span, and where nothing is known to compare them with."""
    if review.week.is_span or not review.beyond.weeks_before:
        return None
    days = [
        Shown(
            sentence=write_unusual_day(review, day),
            link=link_hour(review, COST, day.hour_begin, **{MODEL_VARIABLE: day.model_name, TARGET_VARIABLE: day.target}),
        )
        for day in review.beyond.unusual
    ]  # fmt: skip
    weeks = review.beyond.weeks_before
    lead = (
        f"Compared with the days of the {weeks} weeks before that are known."
        if weeks > 1
        else "Compared with the days of the week before."
    )
    return Shown(days=days, none="No day is unlike the others in spend, unit cost or tokens.", lead=lead)


def write_unusual_day(review: Review, day: UnusualDay) -> str:
    """What was unlike, who made it, and when."""
    date = review.week.monday + timedelta(days=day.day)
    apart = f"{percent(abs(day.ratio - 1), 0)} {'more' if day.ratio > 1 else 'less'} than the usual"
    if day.measure is Measure.TOKENS:
        what = f"{amount_of(day.value, 'token')}, {apart} {amount(day.usual)}"
    elif day.measure is Measure.SPEND:
        what = f"GPU time for {usd(day.value)}, {apart} {usd(day.usual)}"
    else:
        what = f"{usd(day.value)} a million tokens, {apart} {usd(day.usual)}"
    said = f"{date:%A, %-d %B}: {what}"
    if not day.target:
        return f"{said}."
    hour = datetime.fromtimestamp(day.hour_begin, ZoneInfo(review.week.zone))
    model = f"{day.model_name} on {day.target}" if day.model_name else day.target
    return f"{said}. Most of the difference is {model}, most of all in the hour from {hour:%H:%M}."
