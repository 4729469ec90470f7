"""What stands above the figures: the title and the days. Further down: what a reader must know, and what stands out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.render.numbers import hours
from llm_serving_review.figures.findings import CAUSE_RULE
from llm_serving_review.figures.review import Review
from llm_serving_review.pages.links import COST, HOME, LATENCY, link_week

_SHOWN_NOTES = 24


class Link(Struct, frozen=True):
    """A link to a dashboard."""

    words: str
    address: str


class Heading(Struct, frozen=True):
    """What stands above the figures."""

    title: str
    about: str  # days, time zone, what the week is compared with
    links: Sequence[Link]  # dashboards at that time; () without a Grafana


class Notes(Struct, frozen=True):
    """What a reader must know."""

    sentences: Sequence[str]
    left_out: int  # notes that are in the CSV only


def build_heading(review: Review) -> Heading:
    """The title and the days."""
    week = review.week
    boards = (("Overview", HOME), ("Cost", COST), ("Latency", LATENCY))
    links = [Link(words, link_week(review, board)) for words, board in boards]
    return Heading(
        f"{review.title}, {week.name}",
        f"{_write_days(review)}, {week.zone}; compared with {review.previous.name}. All amounts in USD.",
        [one for one in links if one.address],
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


def build_notes(review: Review) -> Notes | None:
    """What a reader must know before relying on a figure; None for nothing."""
    notes = (*review.notes, *review.missing_parts, *review.beyond.refused)
    return Notes(notes[:_SHOWN_NOTES], max(0, len(notes) - _SHOWN_NOTES)) if notes else None


def list_findings(review: Review) -> Sequence[str]:
    """What stands out beside the causes of the change, which page one has; a sentence each, () for nothing."""
    return tuple(finding.sentence for finding in review.findings if finding.rule != CAUSE_RULE)


def describe_split(review: Review) -> str:
    """How busy time was divided into prefill and decode; "" where it is not known."""
    methods = "; ".join(f"{method} (from {inputs})" if inputs else method for method, inputs in review.methods)
    return f"Busy time is divided into prefill and decode by {methods}." if methods else ""
