"""What several dashboards share: verdicts of checks, thresholds of alerts, legends, colours of series, and short ways to make a panel."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from llm_serving_alerts.alerting.verdicts import GOOD, PAGE, TICKET
from llm_serving_alerts.rules import ALERT_PREFIX
from llm_serving_dashboards.panels import Colour, Column, Panel, Query, ThresholdStep, Unit, ValueMapping, Visualization
from llm_serving_dashboards.queries import QueryBuilder

# beside those of the record
UNKNOWN, DEAD = 3.0, 4.0
VERDICTS = (
    ValueMapping(GOOD, "fine", Colour.FINE),
    ValueMapping(TICKET, "ticket", Colour.WARNING),
    ValueMapping(PAGE, "page", Colour.BAD),
    ValueMapping(UNKNOWN, "unknown", Colour.UNKNOWN),
    ValueMapping(DEAD, "no exporter", Colour.DEAD),
)


def make_share(
    title: str,
    about: str,
    part: str,
    whole: str,
    steps: tuple[ThresholdStep, ...],
    width: int = 4,
    height: int = 4,
    **more: Any,
) -> Panel:
    """How many there are of how many, as "95 of 96". `part`, `whole`: PromQL that counts; no answer of `part` is 0. `steps`: colours by how
    many are missing."""
    counted = f'count_values("part", ({part}) or vector(0)) * ignoring (part, whole) group_left (whole) count_values("whole", {whole})'
    query = (
        f'label_join({counted}, "said", " of ", "part", "whole") * 0 + scalar({whole}) - scalar(({part}) or vector(0))'
    )
    return make_stat(
        title,
        about,
        Unit.COUNT,
        Query(query, "{{said}}", instant=True),
        width=width,
        height=height,
        thresholds=steps,
        named=True,
        **more,
    )


def find_start(queries: QueryBuilder, alert: str, *level: str) -> str:
    """PromQL of when the condition of an alert began to hold, by these labels. `alert`: its name without the prefix. No answer where the
    ruler does not write it down."""
    return queries.aggregate(
        "min", queries.select_alerts("ALERTS_FOR_STATE", f'alertname="{ALERT_PREFIX}{alert}"'), *level
    )


# what sums of counters differ by where they are the same, such as the cost of an hour at one price
_ALIKE = 1.01


def keep_highest(expression: str, most: int) -> str:
    """PromQL of the series with the highest values, of `most` at most: those above the first that would be one too many. So of series that are
    alike all are kept or none."""
    one_too_many = f"min(topk({most + 1}, {expression})) * (count({expression}) > bool {most})"
    return f"{expression} > {_ALIKE:g} * scalar({one_too_many})"


def number_states(states: Iterable[tuple[str, float]]) -> str:
    """PromQL of the number of each state, with the label `state`: series join it instead of being asked state by state."""
    return " or ".join(f'label_replace(vector({number:g}), "state", "{state}", "", "")' for state, number in states)


def list_worst_first(queries: QueryBuilder, name: str, states: str, *worst: int) -> tuple[Query, ...]:
    """Queries of a timeline's rows, a model each, the worst at its top: Grafana draws them query by query, and those of one by name.

    `name`: of these groups on this dashboard; `states`: PromQL of codes; `worst`: the lowest code of each group, by the code at the end of the
    range, the worst first. What is below all of them stands last. Each query reads the models of its own group alone.
    """
    bounds = [f">= {code}" + (f" < {above}" if above else "") for code, above in zip(worst, (0, *worst), strict=False)]
    groups = enumerate((*bounds, f"< {worst[-1]}"))
    return tuple(
        Query(queries.narrow(f"{name}_{number}", f"({states}) {bound}", "model_name", states), MODEL)
        for number, bound in groups
    )


def warn_below(warning: float, bad: float | None = None) -> tuple[ThresholdStep, ...]:
    """Colours of a value that should be large: a warning below the first threshold, bad below the second."""
    if bad is None:
        return (ThresholdStep(Colour.WARNING), ThresholdStep(Colour.FINE_TEXT, warning))
    return (ThresholdStep(Colour.BAD), ThresholdStep(Colour.WARNING, bad), ThresholdStep(Colour.FINE_TEXT, warning))


def warn_above(warning: float, bad: float | None = None) -> tuple[ThresholdStep, ...]:
    """Colours of a value that should be small: a warning from the first threshold on, bad from the second."""
    steps = (ThresholdStep(Colour.FINE_TEXT), ThresholdStep(Colour.WARNING, warning))
    return steps if bad is None else (*steps, ThresholdStep(Colour.BAD, bad))


# the same on every dashboard: how a request ended, and what time or money went to
REASONS = (("stop", Colour.GOOD), ("length", Colour.PLAIN), ("error", Colour.BAD), ("abort", Colour.UNKNOWN))
PHASES = (("prefill", "super-light-orange"), ("decode", Colour.PLAIN))
SPENT_ON = (*PHASES, ("idle", Colour.UNKNOWN), ("down", Colour.BAD), ("unattributed", Colour.DEAD))

ABSENT = ValueMapping(None, "–", "transparent")  # a dash, as in our documents
# in place of "No data" where money is meant
NO_PRICE = "no price is configured, or too little time has passed"

MODEL = "{{model_name}} {{role}}"
TARGET = "{{target}}"
REPLICA = f"{{{{model_name}}}} {TARGET}"
ENGINE = f"{REPLICA} engine {{{{engine}}}}"


def make_time_series(
    title: str, about: str, unit: Unit, *queries: Query, width: int = 12, height: int = 8, **more: Any
) -> Panel:
    """A graph over time."""
    return Panel(title, about, Visualization.TIME_SERIES, queries, unit, width, height, **more)


def make_stat(
    title: str, about: str, unit: Unit, *queries: Query, width: int = 4, height: int = 4, **more: Any
) -> Panel:
    """The last value in large type."""
    return Panel(title, about, Visualization.STAT, queries, unit, width, height, **more)


def make_table(
    title: str, about: str, columns: tuple[Column, ...], *queries: str, width: int = 12, height: int = 8, **more: Any
) -> Panel:
    """A table with a row for each set of labels, as it is now."""
    asked = tuple(Query(query, instant=True, table=True) for query in queries)
    return Panel(title, about, Visualization.TABLE, asked, Unit.NONE, width, height, columns=columns, **more)


def draw_thresholds(steps: tuple[ThresholdStep, ...]) -> dict[str, Any]:
    """A graph's arguments for thresholds that are drawn as lines; none without steps."""
    return {"thresholds": steps, "draw_thresholds": True} if steps else {}
