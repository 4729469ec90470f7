"""What several dashboards show: verdicts, colours by an alert's own threshold, latencies by rank."""

from __future__ import annotations

from typing import Any

from llm_serving_alerts.rules import Check
from llm_serving_dashboards.asking import Asking
from llm_serving_dashboards.nouns import Colour, Column, Look, Panel, Query, Says, Step, Unit

FINE, TICKET, PAGE, UNKNOWN, DEAD = 0.0, 1.0, 2.0, 3.0, 4.0
VERDICT = (
    Says(FINE, "fine", Colour.GOOD),
    Says(TICKET, "ticket", Colour.WARNING),
    Says(PAGE, "page", Colour.BAD),
    Says(UNKNOWN, "unknown", Colour.UNKNOWN),
    Says(DEAD, "no exporter", Colour.DEAD),
)


def verdict(asking: Asking, check: Check, about: str, present: str, width: int = 4, height: int = 6) -> Panel:
    """The worst alert of a check that fires; unknown where `present`, what the check rests on, is not there; dead without an exporter."""
    page, ticket = (
        asking.alerts(f'check="{check.value}",severity="{severity}"') for severity in ("critical", "warning")
    )
    worst = [
        f"max({PAGE:g} * {page})",
        f"max({TICKET:g} * {ticket})",
        f"max({FINE:g} * {present})",
        f"max({UNKNOWN:g} * {asking.of('exporter_build_info')})",
        # Grafana shows nothing at all where a query yields nothing
        f"vector({DEAD:g})",
    ]
    return Panel(
        about,
        f"The loudest alert of the check {check.value} that fires: a page, a ticket, or none. Unknown: the series that the check rests on are "
        "absent, so silence means nothing; the exporter's dashboard says which and why. No exporter: nobody looks.",
        Look.VALUE,
        (Query(" or ".join(worst), about),),
        Unit.NONE,
        width,
        height,
        says=VERDICT,
        detail=check.dashboard,
    )


def below(warning: float, bad: float | None = None) -> tuple[Step, ...]:
    """Good from the larger threshold on, worse below."""
    if bad is None:
        return (Step(Colour.WARNING), Step(Colour.GOOD, warning))
    return (Step(Colour.BAD), Step(Colour.WARNING, bad), Step(Colour.GOOD, warning))


def above(warning: float, bad: float | None = None) -> tuple[Step, ...]:
    """Good below the smaller threshold, worse from there on."""
    steps = (Step(Colour.GOOD), Step(Colour.WARNING, warning))
    return steps if bad is None else (*steps, Step(Colour.BAD, bad))


# the same everywhere: how a request ended, what money or time went to
REASONS = (("stop", Colour.GOOD), ("length", Colour.PLAIN), ("error", Colour.BAD), ("abort", Colour.UNKNOWN))
PHASES = (("prefill", "super-light-orange"), ("decode", Colour.PLAIN))
SPENT_ON = (*PHASES, ("idle", Colour.UNKNOWN), ("down", Colour.BAD), ("unattributed", Colour.DEAD))

MODEL = "{{model_name}} {{role}}"
TARGET = "{{target}}"
REPLICA = f"{{{{model_name}}}} {TARGET}"
ENGINE = f"{REPLICA} engine {{{{engine}}}}"


def lines(title: str, about: str, unit: Unit, *queries: Query, width: int = 12, height: int = 8, **more: Any) -> Panel:
    """A graph over time."""
    return Panel(title, about, Look.LINES, queries, unit, width, height, **more)


def value(title: str, about: str, unit: Unit, *queries: Query, width: int = 4, height: int = 4, **more: Any) -> Panel:
    """The last value, large."""
    return Panel(title, about, Look.VALUE, queries, unit, width, height, **more)


def table(
    title: str, about: str, columns: tuple[Column, ...], *queries: str, width: int = 12, height: int = 8, **more: Any
) -> Panel:
    """A row a set of labels, as it is now."""
    asked = tuple(Query(query, instant=True, table=True) for query in queries)
    return Panel(title, about, Look.TABLE, asked, Unit.NONE, width, height, columns=columns, **more)


def threshold(steps: tuple[Step, ...]) -> dict[str, Any]:
    """Steps that are drawn into a graph; nothing without any."""
    return {"steps": steps, "lines": True} if steps else {}
