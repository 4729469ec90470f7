"""What engines and the front doors before them both tell of, taken once."""

from __future__ import annotations

from llm_serving_alerts.promql import seconds_text
from llm_serving_alerts.records.slo import CLOCK, longest
from llm_serving_dashboards.queries import QueryBuilder


def engines_first(queries: QueryBuilder, record: str, **equal: str) -> str:
    """A model's record by role: of a front door only where no engine behind it is read."""
    engines, front = (queries.select(record, matcher, **equal) for matcher in ('role!="frontend"', 'role="frontend"'))
    return f"({engines} or {queries.match_on('model_name')} {front})"


def count_once(queries: QueryBuilder, record: str, slo: str, span: float) -> str:
    """Events of an objective over a window: of first tokens those of the clock that is gone by, of others the engines' first."""
    if slo != "ttft":
        return engines_first(queries, record, slo=slo)
    clock = CLOCK.format(window=seconds_text(span))
    return f"{queries.select(record, slo=slo)} and {queries.match_on('model_name', 'role')} {queries.select(clock)}"


def name_clock(queries: QueryBuilder, record: str, slo: str) -> str:
    """An objective's record by model and role; of first tokens that of the clock that pages go by, with the label `clock`."""
    series = queries.select(record, slo=slo)
    if slo != "ttft" or queries.settings.slo["ttft"].threshold_seconds is None:
        return series
    clock = CLOCK.format(window=seconds_text(longest(queries.settings, "fast")))
    # whatever role it counts for
    one = queries.aggregate("max", queries.select(clock), "model_name", "role", "clock")
    return f"{series} * {queries.match_on('model_name', 'role')} group_left (clock) {one}"
