"""What several dashboards share: verdicts of checks, thresholds of alerts, legends, colours of series, and short ways to make a panel."""

from __future__ import annotations

from typing import Any

from llm_serving_alerts.alerting.verdicts import GOOD, PAGE, REST, TICKET, VERDICT
from llm_serving_alerts.rules import Check
from llm_serving_dashboards.panels import Colour, Column, Panel, Query, ThresholdStep, Unit, ValueMapping, Visualization
from llm_serving_dashboards.queries import QueryBuilder

# beside those of the record
UNKNOWN, DEAD = 3.0, 4.0
VERDICTS = (
    ValueMapping(GOOD, "fine", Colour.GOOD),
    ValueMapping(TICKET, "ticket", Colour.WARNING),
    ValueMapping(PAGE, "page", Colour.BAD),
    ValueMapping(UNKNOWN, "unknown", Colour.UNKNOWN),
    ValueMapping(DEAD, "no exporter", Colour.DEAD),
)


def make_verdict(queries: QueryBuilder, check: Check, title: str, width: int = 4, height: int = 6) -> Panel:
    """The verdict of a check as the rules record it, with a link to its dashboard: the worst of the selection. Where none is recorded it is
    "unknown", or "no exporter" where none is running."""
    said = queries.select(VERDICT, check=check.value)
    worst = [
        # what is of no model counts where something is wrong; that it is well says nothing of a model
        f"max({said} or {queries.select(REST, check=check.value)} > {GOOD})",
        f"max({UNKNOWN:g} * {queries.select('exporter_build_info')})",
        # without any series Grafana would show no field at all
        f"vector({DEAD:g})",
    ]
    return Panel(
        title,
        f"The worst verdict of the check {check.value}: a page, a ticket or none (fine), by the alerts of these rules alone. Unknown: the series that the "
        "check needs are absent, or its alerts are not evaluated; the exporter's dashboard says which and why. No exporter: no exporter is running.",
        Visualization.STAT,
        (Query(" or ".join(worst), title),),
        Unit.NONE,
        width,
        height,
        mappings=VERDICTS,
        detail_uid=check.dashboard,
    )


def warn_below(warning: float, bad: float | None = None) -> tuple[ThresholdStep, ...]:
    """Colours of a value that should be large: a warning below the first threshold, bad below the second."""
    if bad is None:
        return (ThresholdStep(Colour.WARNING), ThresholdStep(Colour.GOOD, warning))
    return (ThresholdStep(Colour.BAD), ThresholdStep(Colour.WARNING, bad), ThresholdStep(Colour.GOOD, warning))


def warn_above(warning: float, bad: float | None = None) -> tuple[ThresholdStep, ...]:
    """Colours of a value that should be small: a warning from the first threshold on, bad from the second."""
    steps = (ThresholdStep(Colour.GOOD), ThresholdStep(Colour.WARNING, warning))
    return steps if bad is None else (*steps, ThresholdStep(Colour.BAD, bad))


# the same on every dashboard: how a request ended, and what time or money went to
REASONS = (("stop", Colour.GOOD), ("length", Colour.PLAIN), ("error", Colour.BAD), ("abort", Colour.UNKNOWN))
PHASES = (("prefill", "super-light-orange"), ("decode", Colour.PLAIN))
SPENT_ON = (*PHASES, ("idle", Colour.UNKNOWN), ("down", Colour.BAD), ("unattributed", Colour.DEAD))

# in place of "No data" where money is meant
NO_PRICE = "no price is configured, or it is too early"

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
