"""Beyond the week: the last twelve weeks, the month to date, and days that are unlike others."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from llm_serving_exporter.model.text import count_nouns
from llm_serving_exporter.render.numbers import (
    amount,
    amount_of,
    hours,
    percent,
    signed_percent,
    usd,
    usd_plain,
)
from llm_serving_review.evidence.past import Source
from llm_serving_review.figures.beyond import Measure, UnusualDay
from llm_serving_review.figures.past_weeks import BEFORE_COMMITMENTS, MonthToDate
from llm_serving_review.figures.review import Review
from llm_serving_review.figures.totals import change
from llm_serving_review.pages.charts import draw_month, draw_trend
from llm_serving_review.pages.tables import (
    COST,
    MODEL_VARIABLE,
    NONE,
    TARGET_VARIABLE,
    Column,
    Marked,
    Shown,
    link_hour,
    make_table,
    name_column,
)

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
            rows.append((Marked(one.name, aside="not known"), NONE, NONE, NONE, NONE))
            continue
        known, before = one.known, weeks[index - 1].known if index else None
        moved = change(known.paid_usd, before.paid_usd) if before is not None else None
        aside = "; ".join(word for word in (*known.marks, _FROM[known.source]) if word)
        rows.append((Marked(one.name, aside=aside), known.paid_usd, moved, known.usd_per_million, known.tokens))
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
    return Shown(title=title, lead=lead, chart=draw_month(month), facts=_list_month(month, review))


def _list_month(month: MonthToDate, review: Review) -> Sequence[tuple[str, str]]:
    zone = ZoneInfo(review.week.zone)
    until = datetime.fromtimestamp(month.until, zone)
    facts = [(f"Paid until {until:%-d %B %H:%M}", usd(month.usd))]
    if not month.is_over:
        facts.append(("Forecast for the whole month", usd(month.forecast_usd)))
    if month.budget_usd is not None:
        left = month.budget_usd - month.forecast_usd
        words = f"{usd(month.budget_usd)} ({usd(abs(left))} {'left' if left >= 0 else 'too little'})"
        facts.append(("Budget", words))
        if month.budget_reached is not None:
            reached = datetime.fromtimestamp(month.budget_reached, zone)
            facts.append(("Budget used up", f"{reached:%A, %-d %B, %H:%M}"))
        else:
            facts.append(("Budget used up", "not in this month"))
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
        Shown(sentence=write_unusual_day(review, day), link=_link_day(review, day)) for day in review.beyond.unusual
    ]
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
        said = f"{date:%A, %-d %B}: {amount_of(day.value, 'token')}, {apart} {amount(day.usual)}"
    elif day.measure is Measure.SPEND:
        said = f"{date:%A, %-d %B}: GPU time for {usd(day.value)}, {apart} {usd(day.usual)}"
    else:
        said = f"{date:%A, %-d %B}: {usd(day.value)} a million tokens, {apart} {usd(day.usual)}"
    if not day.target:
        return f"{said}."
    hour = datetime.fromtimestamp(day.hour_begin, ZoneInfo(review.week.zone))
    model = f"{day.model_name} on {day.target}" if day.model_name else day.target
    return f"{said}. Most of the difference is {model}, most of all in the hour from {hour:%H:%M}."


def _link_day(review: Review, day: UnusualDay) -> str:
    chosen = {MODEL_VARIABLE: day.model_name, TARGET_VARIABLE: day.target}
    return link_hour(review, COST, day.hour_begin, **chosen)
