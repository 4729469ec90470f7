"""Twelve weeks, the one under review last. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from llm_serving_exporter.model.record import Struct
from llm_serving_review.evidence.past import WEEKS, list_weeks_before
from llm_serving_review.evidence.week import Week
from llm_serving_review.figures.past_weeks import Known


class TrendWeek(Struct, frozen=True):
    """A week of the trend."""

    name: str  # as in "2026-W46"
    known: Known | None  # what is known of it; None for nothing, which is not 0


def build_trend(week: Week, known: Sequence[Known]) -> tuple[TrendWeek, ...]:
    """The last weeks, the earliest first; () where nothing is known but the week itself. Of a span: the weeks before it."""
    by_name = {one.week.name: one for one in known}
    names = [] if week.is_span else [week.name]
    names += [one.name for one in list_weeks_before(week, WEEKS - 1) if not _is_running(one, week)]
    found = tuple(TrendWeek(name, by_name.get(name)) for name in reversed(names[:WEEKS]))
    return found if any(one.known is not None for one in found if one.name != week.name) else ()


def _is_running(one: Week, span: Week) -> bool:
    """Whether a week was not over when a span ended."""
    return one.end > span.end
