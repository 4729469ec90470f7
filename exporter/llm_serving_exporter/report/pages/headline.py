"""What the page says first: its title and what a reader must know, six figures against the week before, what stands out, what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from llm_serving_exporter.render.numbers import NOTHING, amount, hours, percent, signed_percent, usd
from llm_serving_exporter.report.figures.formulas import change
from llm_serving_exporter.report.figures.review import Review
from llm_serving_exporter.report.pages.model_tables import usd_per_thousand_requests

_SHOWN_NOTES = 12
# a change below half a percent has no colour
_LEAST_COLOURED_CHANGE = 0.005


@dataclass(frozen=True, slots=True)
class Heading:
    """What stands above the figures."""

    # the review's title and week
    title: str
    # days, time zone, what the week is compared with, how busy time was split
    about: str
    # what a reader must know before the first figure, a sentence each
    notes: Sequence[str]
    # notes that are in the CSV only
    more_notes: int


@dataclass(frozen=True, slots=True)
class Tile:
    """A headline figure."""

    # what it is
    name: str
    # the figure
    value: str
    # the line below it
    below: str
    # what begins that line and is coloured by `kind`; "" for nothing
    marked: str = ""
    # "good", "bad" or "" for the colour of `marked`
    kind: str = ""


@dataclass(frozen=True, slots=True)
class ActionLine:
    """Something to do."""

    # an imperative
    what: str
    # the USD that it comes to in a week
    worth: str
    # where that figure comes from
    why: str


def build_heading(review: Review) -> Heading:
    """The title, the days and the notes."""
    first, last = review.week.monday, review.week.monday + timedelta(days=6)
    methods = "; ".join(f"{method} (from {inputs})" if inputs else method for method, inputs in review.methods)
    split = f" Busy time is split into prefill and decode by {methods}." if methods else ""
    about = (
        f"{first:%A, %-d %B} to {last:%A, %-d %B %Y}, {review.week.zone}, {hours(review.week.length_hours)} hours; against "
        f"{review.previous.name}.{split} All amounts in USD."
    )
    notes = (*review.notes, *review.missing_parts)
    return Heading(
        f"{review.title}, {review.week.name}", about, notes[:_SHOWN_NOTES], max(0, len(notes) - _SHOWN_NOTES)
    )


def build_tiles(review: Review) -> Sequence[Tile]:
    """Six figures, each against the week before where it has one. The week and the month are what is paid: GPU time, unused commitments and
    electricity."""
    now, before = review.now, review.earlier
    thousand, thousand_before = usd_per_thousand_requests(now), usd_per_thousand_requests(before)
    return (
        _week_tile(review),
        _compare_usd("A million tokens", now.blended_usd_per_million, before.blended_usd_per_million),
        _compare_tokens("Tokens", now.tokens, before.tokens),
        _compare_usd("1,000 requests", thousand, thousand_before),
        Tile("GPU-hours", hours(now.gpu_hours), f"{percent(now.share('idle'), 0)} of the spend idle"),
        _month_tile(review),
    )


def list_findings(review: Review) -> Sequence[str]:
    """What stands out, a sentence each; () for nothing."""
    return tuple(finding.sentence for finding in review.findings)


def build_action_lines(review: Review) -> Sequence[ActionLine]:
    """The actions, the one that is worth most first."""
    return tuple(ActionLine(action.what, action.worth, action.why) for action in review.actions)


def _compare_usd(name: str, now: float | None, before: float | None) -> Tile:
    """More is bad."""
    moved = change(now, before)
    if moved is None:
        return Tile(name, usd(now), "nothing to compare with")
    kind = "" if abs(moved) < _LEAST_COLOURED_CHANGE else "bad" if moved > 0 else "good"
    return Tile(name, usd(now), f"on {usd(before)}", signed_percent(moved), kind)


def _week_tile(review: Review) -> Tile:
    tile = _compare_usd("Spend in the week", review.invoice_usd, review.invoice_before_usd)
    beside = review.list_beside()
    if not beside:
        return tile
    parts = ", ".join(f"{usd(value)} {what}" for what, value in beside)
    return replace(tile, below=f"{tile.below}; of it {parts}")


def _compare_tokens(name: str, now: float | None, before: float | None) -> Tile:
    """More is neither good nor bad."""
    moved = change(now, before)
    if moved is None:
        return Tile(name, amount(now), "nothing to compare with")
    return Tile(name, amount(now), f"on {amount(before)}", signed_percent(moved))


def _month_tile(review: Review) -> Tile:
    ahead = review.outlook
    if ahead is None:
        return Tile("Month", NOTHING, "")
    if ahead.budget_usd is None:
        return Tile("Month", usd(ahead.projected_usd), f"at this rate {ahead.of_hours}".rstrip())
    kind = "bad" if (ahead.budget_used_ratio or 0.0) > 1 else ""
    below = f"of {usd(ahead.budget_usd)} {ahead.of_hours}".rstrip()
    return Tile("Month", usd(ahead.projected_usd), below, percent(ahead.budget_used_ratio, 0), kind)
