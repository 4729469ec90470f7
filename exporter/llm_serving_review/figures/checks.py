"""How long each check of each model was fine, a ticket, a page, or not known, by the verdicts that the rules record."""

from __future__ import annotations

from llm_serving_exporter.model.record import Struct
from llm_serving_review.evidence.usage import Fleet
from llm_serving_review.evidence.week import Week
from llm_serving_review.tables.sums import group_by_key, sum_by_key, sum_known


class CheckRow(Struct, frozen=True):
    """One check of one model and role. Hours of the week."""

    labels: tuple[
        tuple[str, str], ...
    ]  # the fleet's identity labels, the model and its role, as they tell it from others
    check: str  # phases, ttft, kv, tail, node_loss, slo, cost, gpu or exporter
    page_hours: float  # in which an alert of it paged
    ticket_hours: float  # in which one opened a ticket and none paged
    fine_hours: float  # in which none fired
    unknown_hours: float  # without a verdict: its inputs were absent, or its alerts were not evaluated


def sum_checks(fleet: Fleet, week: Week) -> tuple[CheckRow, ...]:
    """A row for each check of each model that had a verdict at all, the worst first."""
    verdicts = group_by_key(
        (
            (
                tuple(sorted(pair for pair in gauge.labels.items() if pair[0] not in ("check", "verdict"))),
                gauge.labels.get("check", ""),
            ),
            (gauge.labels["verdict"], sum_known(gauge.hours) or 0.0),
        )
        for gauge in fleet.verdicts
    )
    rows = []
    for (labels, check), pairs in verdicts.items():
        hours = sum_by_key(pairs)
        page, ticket, fine = (hours.get(said, 0.0) for said in ("page", "ticket", "fine"))
        rows.append(CheckRow(labels, check, page, ticket, fine, max(0.0, week.length_hours - page - ticket - fine)))
    return tuple(
        sorted(rows, key=lambda row: (-row.page_hours, -row.ticket_hours, -row.unknown_hours, row.labels, row.check))
    )
