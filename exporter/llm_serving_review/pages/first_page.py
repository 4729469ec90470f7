"""Page one: what was paid, on what, why it changed, what to do, and what that is worth. One sheet of A4, one screen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from math import fsum
from zoneinfo import ZoneInfo

from llm_serving_exporter.model.record import Struct, replace
from llm_serving_exporter.render.html import make_presentable
from llm_serving_exporter.render.numbers import NOTHING, amount, hours, percent, signed_percent, usd
from llm_serving_review.bills.review import write_difference, write_left_out
from llm_serving_review.figures.change import write_causes
from llm_serving_review.figures.findings import CAUSE_RULE
from llm_serving_review.figures.past_weeks import MonthToDate
from llm_serving_review.figures.review import Review
from llm_serving_review.figures.totals import change, ratio, say_counted
from llm_serving_review.pages.charts import draw_month_bar, draw_share, draw_spark
from llm_serving_review.pages.tables import COST, HOME, LATENCY, LONGEST_NAME, MODEL_VARIABLE, Shown, link_week

_SHOWN_MODELS, _SHOWN_NOTES = 3, 24
# a change below half a percent has no colour
_LEAST_COLOURED_CHANGE = 0.005
# of what is paid: a smaller part of its change is in no sentence
_LEAST_SAID = 0.001


class Figure(Struct, frozen=True):
    """A headline figure."""

    name: str
    value: str
    below: str  # the line below it
    marked: str = ""  # what begins that line and is coloured by `kind`; "" for nothing
    kind: str = ""  # "good", "bad" or "" for the colour of `marked`


def build_first_page(review: Review) -> Shown:
    """Works out what stands on page one, below the title."""
    notes = list_notes(review)
    week = review.week
    no_why = ""
    differs = review.bills is not None and review.bills.differs
    if review.change is None:
        no_why = (
            f"Nothing is compared with {week.one_before}; the notes say why."
            if review.earlier.usd is None
            else f"Only one of the two has tokens, so the change against {week.one_before} is not divided into causes."
        )
    models, more_models = _build_models(review)
    beside = review.list_beside()
    bill = () if review.bills is None else (write_difference(review.bills), write_left_out(review.bills))
    return Shown(
        note=notes[0] if notes else "",
        more_notes=max(0, len(notes) - 1),
        paid=compare_usd(f"Paid for {week.this}", review.invoice_usd, review.invoice_before_usd),
        # nothing where GPU time is all of it
        parts=[(what, usd(value)) for what, value in (("GPU time", review.now.usd), *beside)] if beside else (),
        bill=tuple(filter(None, bill)),
        spark=draw_spark(review.beyond.trend) if review.beyond.trend else None,
        month=_build_month(review),
        figures=_build_figures(review),
        why=() if review.change is None else _explain_change(review),
        no_why=no_why,
        models=models,
        more_models=more_models,
        actions=review.actions,
        actions_lead=f"Amounts are for {week.this}. They may overlap, so they are not added up.",
        fewer_actions=[
            "These figures call for no action, but the bill for a look."
            if differs
            else "These figures call for no action.",
            "These figures call for no other action.",
            "These figures call for no third action.",
            "",
        ][min(3, len(review.actions))],
    )


def _explain_change(review: Review) -> Sequence[str]:
    """Why GPU time cost another sum, then how much of the change is paid beside it."""
    assert review.change is not None
    week = review.week
    said = write_causes(review.change, week.this, week.one_before)
    if review.invoice_before_usd is None:
        return said
    before = review.invoice_before_usd - (review.earlier.usd or 0.0)
    beside = fsum(value for _, value in review.list_beside()) - before
    if abs(beside) < max(1.0, _LEAST_SAID * review.invoice_usd):
        return said
    words = "more" if beside > 0 else "less"
    return (*said, f"What is paid beside GPU time came to {usd(abs(beside))} {words}.")


def _build_figures(review: Review) -> Sequence[Figure]:
    """Figures beside the headline, each against the week before where it has one."""
    now, before = review.now, review.earlier
    of_tokens, of_requests = say_counted(now.tokens_share), say_counted(now.requests_share, "requests")
    return (
        compare_usd("A million tokens", now.blended_usd_per_million, before.blended_usd_per_million, of_tokens),
        # more is neither good nor bad
        replace(_compare("Tokens", now.tokens, before.tokens, amount), kind=""),
        compare_usd("1,000 requests", now.usd_per_thousand_requests, before.usd_per_thousand_requests, of_requests),
        Figure("GPU-hours", hours(now.gpu_hours), f"{percent(now.share('idle'), 0)} of their cost was idle time"),
    )


def compare_usd(name: str, now: float | None, before: float | None, of: str = "") -> Figure:
    """More is bad. `of`: what the figure is of, where that is not all; "" otherwise."""
    return _compare(name, now, before, usd, f"; {of}" if of and now is not None else "")


def _compare(
    name: str, now: float | None, before: float | None, write: Callable[[float | None], str], behind: str = ""
) -> Figure:
    moved = change(now, before)
    if moved is None:
        return Figure(name, write(now), f"nothing to compare with{behind}")
    kind = "" if abs(moved) < _LEAST_COLOURED_CHANGE else "bad" if moved > 0 else "good"
    return Figure(name, write(now), f"from {write(before)}{behind}", signed_percent(moved), kind)


def _build_month(review: Review) -> Shown:
    month = review.beyond.month
    if month is None:
        return Shown(figure=Figure("Month to date", NOTHING, "nothing is known of it"), bar=None, sentences=())
    name = f"{month.first:%B} {'in all' if month.is_over else 'to date'}"
    return Shown(
        figure=Figure(name, usd(month.usd), write_known_hours(month)),
        bar=draw_month_bar(month),
        sentences=write_month(month, review),
    )


def write_known_hours(month: MonthToDate) -> str:
    """How much of the month so far is known."""
    passed = month.known_hours + month.unknown_hours
    if not month.unknown_hours:
        return f"all of its {hours(passed)} hours so far"
    return f"{hours(month.known_hours)} of its {hours(passed)} hours so far are known"


def write_month(month: MonthToDate, review: Review) -> list[str]:
    """Forecast, budget, and what is not known, a sentence each."""
    said = []
    if not month.is_over:
        said.append(f"Forecast for {month.first:%B}: {usd(month.forecast_usd)}.")
    if month.budget_usd is not None:
        said.append(_write_budget(month, review))
    if month.unknown_usd >= 0.005 * month.usd and month.unknown_usd > 0:
        said.append(f"About {usd(month.unknown_usd)} more for what is not known of it.")
    return said


def _write_budget(month: MonthToDate, review: Review) -> str:
    budget = month.budget_usd or 0.0
    share = percent(ratio(month.forecast_usd, budget), 0)
    begin = f"{'It' if month.is_over else 'That'} is {share} of the budget of {usd(budget)}"
    if month.budget_reached is None:
        return f"{begin}."
    when = datetime.fromtimestamp(month.budget_reached - 1, ZoneInfo(review.week.zone))
    past = month.budget_reached <= month.until
    return f"{begin}, which {'was' if past else 'is'} used up on {when:%-d %B}."


def _build_models(review: Review) -> tuple[Sequence[Shown], str]:
    shown = review.models[:_SHOWN_MODELS]
    bars = []
    for row in shown:
        share = ratio(row.now.usd, review.now.usd)
        moved = change(row.now.usd, row.before.usd)
        against = ""
        if moved is not None:
            words = f"{percent(abs(moved), 0)} {'more' if moved >= 0 else 'less'}"
            against = f" · {'unchanged' if abs(moved) < _LEAST_COLOURED_CHANGE else words}"
        bars.append(
            Shown(
                name=make_presentable(row.model_name or "(no name)", LONGEST_NAME),
                spend=usd(row.now.usd),
                about=f"{percent(share, 0)}{against}",
                bar=draw_share(share or 0.0),
                link=link_week(review, COST, **{MODEL_VARIABLE: row.model_name}),
            )
        )
    rest = review.models[_SHOWN_MODELS:]
    if not rest:
        return bars, ""
    usd_rest = fsum(row.now.usd or 0.0 for row in rest)
    others = "1 other model" if len(rest) == 1 else f"{len(rest)} other models"
    return bars, f"{others}: {usd(usd_rest)}, {percent(ratio(usd_rest, review.now.usd), 0)}."


# --- above page one the title and the days; below it notes, and what stands out


def build_heading(review: Review) -> Shown:
    """The title and the days."""
    week = review.week
    boards = (("Overview", HOME), ("Cost", COST), ("Latency", LATENCY))
    links = [(words, link_week(review, board)) for words, board in boards]
    return Shown(
        title=f"{review.title}, {week.name}",
        about=f"{_write_days(review)}, {week.zone}; compared with {review.previous.name}. All amounts in USD.",
        links=[(words, address) for words, address in links if address],
    )


def _write_days(review: Review) -> str:
    week, zone = review.week, ZoneInfo(review.week.zone)
    if week.is_span:
        begin, end = (datetime.fromtimestamp(at, zone) for at in (week.begin, week.end))
        return f"{begin:%a %-d %B %H:%M} to {end:%a %-d %B %Y %H:%M}"
    last = week.monday + timedelta(days=6)
    first = f"{week.monday:%A, %-d %B}" if week.monday.year == last.year else f"{week.monday:%A, %-d %B %Y}"
    whole = "" if week.length_hours == 168 else f" ({hours(week.length_hours)} hours)"
    return f"{first} to {last:%A, %-d %B %Y}{whole}"


def list_notes(review: Review) -> Sequence[str]:
    """What a reader must know before relying on a figure, in sentences."""
    return (*review.notes, *review.missing_parts, *review.beyond.refused)


def build_notes(review: Review) -> Shown | None:
    """The first of them, and how many are in the CSV only; None for nothing."""
    notes = list_notes(review)
    return Shown(sentences=notes[:_SHOWN_NOTES], left_out=max(0, len(notes) - _SHOWN_NOTES)) if notes else None


def list_findings(review: Review) -> Sequence[str]:
    """What stands out beside the causes of the change, which page one has; a sentence each, () for nothing."""
    return tuple(finding.sentence for finding in review.findings if finding.rule != CAUSE_RULE)


def build_sizing(review: Review) -> Shown | None:
    """A line for each model that fewer or cheaper replicas would carry; None for nothing."""
    if not review.sizings:
        return None
    lead = (
        f"By the load of {review.week.this} and how the engines stepped in it; ceiling --from-prometheus answers other questions. "
        "Amounts are parts of what idle and spare time cost: they are not added to those of page one."
    )
    return Shown(lead=lead, sizings=review.sizings)
