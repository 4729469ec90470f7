"""How long each check of each model was fine, a ticket, a page, or not known, by the verdicts that the rules record."""

from __future__ import annotations

from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct
from llm_serving_review.evidence.usage import Fleet
from llm_serving_review.evidence.week import Week


class CheckRow(Struct, frozen=True):
    """One check of one model and role. Hours of the week."""

    # the fleet's identity labels, the model and its role, as they tell it from others
    labels: tuple[tuple[str, str], ...]
    # phases, ttft, kv, tail, node_loss, slo, cost, gpu or exporter
    check: str
    # in which an alert of it paged
    page_hours: float
    # in which one opened a ticket and none paged
    ticket_hours: float
    # in which none fired
    fine_hours: float
    # without a verdict: its inputs were absent, or its alerts were not evaluated
    unknown_hours: float


def sum_checks(fleet: Fleet, week: Week) -> tuple[CheckRow, ...]:
    """A row for each check of each model that had a verdict at all, the worst first."""
    sums: dict[tuple[tuple[tuple[str, str], ...], str], dict[str, float]] = {}
    for gauge in fleet.verdicts:
        labels = tuple(sorted((name, text) for name, text in gauge.labels.items() if name not in ("check", "verdict")))
        into = sums.setdefault((labels, gauge.labels.get("check", "")), {})
        said = gauge.labels["verdict"]
        into[said] = into.get(said, 0.0) + add_up(hours for hours in gauge.hours if hours is not None)
    rows = []
    for (labels, check), hours in sums.items():
        page, ticket, fine = (hours.get(said, 0.0) for said in ("page", "ticket", "fine"))
        rows.append(CheckRow(labels, check, page, ticket, fine, max(0.0, week.length_hours - page - ticket - fine)))
    return tuple(
        sorted(rows, key=lambda row: (-row.page_hours, -row.ticket_hours, -row.unknown_hours, row.labels, row.check))
    )
