"""Page one: what was paid, on what, why it changed, what to do, and what that is worth. One sheet of A4, one screen."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from math import fsum
from zoneinfo import ZoneInfo

from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.render.html import make_presentable
from llm_serving_exporter.render.numbers import NOTHING, amount, hours, percent, signed_percent, usd
from llm_serving_review.bills.words import write_difference, write_left_out
from llm_serving_review.figures.causes import write_causes
from llm_serving_review.figures.formulas import change, ratio
from llm_serving_review.figures.month import MonthToDate
from llm_serving_review.figures.review import Review
from llm_serving_review.figures.totals import say_counted
from llm_serving_review.pages.charts import Chart
from llm_serving_review.pages.history_charts import draw_month_bar, draw_share, draw_spark
from llm_serving_review.pages.links import COST, MODEL_VARIABLE, link_week
from llm_serving_review.pages.model_tables import usd_per_thousand_requests
from llm_serving_review.pages.tables import LONGEST_NAME

_SHOWN_MODELS = 3
# a change below half a percent has no colour
_LEAST_COLOURED_CHANGE = 0.005
# of what is paid: a smaller part of its change is in no sentence
_LEAST_SAID = 0.001


class Figure(Struct, frozen=True):
    """A headline figure."""

    name: str
    value: str
    below: str
    marked: str = ""  # what begins that line and is coloured by `kind`; "" for nothing
    kind: str = ""  # "good", "bad" or "" for the colour of `marked`


class MonthLine(Struct, frozen=True):
    """The month on page one."""

    figure: Figure  # as in "November to date"
    bar: Chart | None  # to date, forecast and budget; None where there is no month
    sentences: Sequence[str]  # forecast, budget, what is not known: a sentence each


class ModelBar(Struct, frozen=True):
    """One of the largest models."""

    name: str
    spend: str  # its GPU time
    about: str  # share of the GPU time's cost, and the change against the week before
    bar: Chart  # the share as a bar
    link: str  # its cost dashboard; "" for none


class ActionLine(Struct, frozen=True):
    """Something to do."""

    what: str  # an imperative
    worth: str  # the USD that it comes to
    why: str  # where that figure comes from


class FirstPage(Struct, frozen=True):
    """Everything on page one, below the title."""

    note: str  # the first note; "" for none
    more_notes: int  # how many more there are, further down
    paid: Figure
    parts: Sequence[tuple[str, str]]  # what that consists of, a name with its amount each
    bill: Sequence[str]  # what the bill says beside it, a sentence each; () without bills
    spark: Chart | None  # the last weeks as small columns; None where only this one is known
    month: MonthLine
    figures: Sequence[Figure]
    why: Sequence[str]  # why the spend changed, a sentence each
    no_why: str  # what stands in their place where the weeks are not compared; "" otherwise
    models: Sequence[ModelBar]  # the largest
    more_models: str  # how many models there are beside them, with their share; "" for none
    actions: Sequence[ActionLine]  # the actions, the one that is worth most first
    actions_lead: str  # what the actions' amounts are of
    fewer_actions: str  # what stands below the actions where there are fewer than three; "" otherwise


def build_first_page(review: Review) -> FirstPage:
    """Works out what stands on page one."""
    notes = (*review.notes, *review.missing_parts, *review.beyond.refused)
    week = review.week
    no_why = ""
    differs = review.bills is not None and review.bills.differs
    if review.change is None:
        no_why = (
            f"Nothing is compared with {week.one_before}; the notes say why."
            if review.earlier.usd is None
            else f"Only one of the two has tokens, so the change against {week.one_before} is not divided into causes."
        )
    return FirstPage(
        notes[0] if notes else "",
        max(0, len(notes) - 1),
        _build_paid(review),
        _list_parts(review),
        _write_bill(review),
        draw_spark(review.beyond.trend) if review.beyond.trend else None,
        _build_month(review),
        build_figures(review),
        () if review.change is None else _explain_change(review),
        no_why,
        *_build_models(review),
        tuple(ActionLine(action.what, action.worth, action.why) for action in review.actions),
        f"Amounts are for {week.this}. They may overlap, so they are not added up.",
        [
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
    beside = fsum(value for _, value in review.list_beside()) - (
        review.invoice_before_usd - (review.earlier.usd or 0.0)
    )
    if abs(beside) < max(1.0, _LEAST_SAID * review.invoice_usd):
        return said
    words = "more" if beside > 0 else "less"
    return (*said, f"What is paid beside GPU time came to {usd(abs(beside))} {words}.")


def build_figures(review: Review) -> Sequence[Figure]:
    """Figures beside the headline, each against the week before where it has one."""
    now, before = review.now, review.earlier
    thousand, thousand_before = usd_per_thousand_requests(now), usd_per_thousand_requests(before)
    return (
        compare_usd(
            "A million tokens",
            now.blended_usd_per_million,
            before.blended_usd_per_million,
            say_counted(now.tokens_share),
        ),
        _compare_tokens("Tokens", now.tokens, before.tokens),
        compare_usd("1,000 requests", thousand, thousand_before, say_counted(now.requests_share, "requests")),
        Figure("GPU-hours", hours(now.gpu_hours), f"{percent(now.share('idle'), 0)} of their cost was idle time"),
    )


def compare_usd(name: str, now: float | None, before: float | None, of: str = "") -> Figure:
    """More is bad. `of`: what the figure is of, where that is not all; "" otherwise."""
    moved = change(now, before)
    of = f"; {of}" if of and now is not None else ""
    if moved is None:
        return Figure(name, usd(now), f"nothing to compare with{of}")
    kind = "" if abs(moved) < _LEAST_COLOURED_CHANGE else "bad" if moved > 0 else "good"
    return Figure(name, usd(now), f"from {usd(before)}{of}", signed_percent(moved), kind)


def _build_paid(review: Review) -> Figure:
    return compare_usd(f"Paid for {review.week.this}", review.invoice_usd, review.invoice_before_usd)


def _list_parts(review: Review) -> Sequence[tuple[str, str]]:
    """Nothing where GPU time is all of it."""
    beside = review.list_beside()
    if not beside:
        return ()
    return (("GPU time", usd(review.now.usd)), *((what, usd(value)) for what, value in beside))


def _write_bill(review: Review) -> Sequence[str]:
    """Both sums with the largest reason, and what of the bill is in neither."""
    if review.bills is None:
        return ()
    return tuple(filter(None, (write_difference(review.bills), write_left_out(review.bills))))


def _compare_tokens(name: str, now: float | None, before: float | None) -> Figure:
    """More is neither good nor bad."""
    moved = change(now, before)
    if moved is None:
        return Figure(name, amount(now), "nothing to compare with")
    return Figure(name, amount(now), f"from {amount(before)}", signed_percent(moved))


def _build_month(review: Review) -> MonthLine:
    month = review.beyond.month
    if month is None:
        return MonthLine(Figure("Month to date", NOTHING, "nothing is known of it"), None, ())
    return MonthLine(
        Figure(
            f"{month.first:%B} {'in all' if month.is_over else 'to date'}",
            usd(month.usd),
            write_known_hours(month),
        ),
        draw_month_bar(month),
        tuple(write_month(month, review)),
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


def _build_models(review: Review) -> tuple[Sequence[ModelBar], str]:
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
            ModelBar(
                make_presentable(row.model_name or "(no name)", LONGEST_NAME),
                usd(row.now.usd),
                f"{percent(share, 0)}{against}",
                draw_share(share or 0.0),
                link_week(review, COST, **{MODEL_VARIABLE: row.model_name}),
            )
        )
    rest = review.models[_SHOWN_MODELS:]
    if not rest:
        return bars, ""
    usd_rest = fsum(row.now.usd or 0.0 for row in rest)
    others = "1 other model" if len(rest) == 1 else f"{len(rest)} other models"
    return bars, f"{others}: {usd(usd_rest)}, {percent(ratio(usd_rest, review.now.usd), 0)}."
