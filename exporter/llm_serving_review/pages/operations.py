"""How the week was run: idle and spare hours, objectives and alerts, gaps in the data."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.text import count_nouns
from llm_serving_exporter.render.numbers import amount, hours, percent, usd, usd_plain
from llm_serving_review.figures.review import Review
from llm_serving_review.figures.rows import AlertSums
from llm_serving_review.pages.charts import Chart, draw_heatmap
from llm_serving_review.pages.links import EXPORTER, link_board
from llm_serving_review.pages.tables import MOST_ROWS, Cell, Column, Table, name_cell, number_cell

_PRINTED_GAPS = 4
# a restart of Prometheus or vmalert is no news
_MOST_EVALUATED = 0.99
_OBJECTIVE_COLUMNS = (Column("Objective", number=False), Column("Attained"), Column("Objective"), Column("Events"))
_ALERT_COLUMNS = (
    Column("Noisiest alerts", number=False), Column("Severity", number=False), Column("Episodes"), Column("Firing", "minutes"),
)  # fmt: skip
_CHECK_COLUMNS = (
    Column("Check", number=False), Column("Model", number=False), Column("Page", "hours"), Column("Ticket", "hours"),
    Column("Not known", "hours"),
)  # fmt: skip
_GAP_COLUMNS = (
    Column("Target", number=False), Column("From", number=False), Column("Hours"), Column("Recovered", "USD"),
    Column("Missing", "USD, estimated"),
)  # fmt: skip


class HourMap(Struct, frozen=True):
    """A heatmap with its heading."""

    title: str
    chart: Chart  # days by hours of the clock


class HourMaps(Struct, frozen=True):
    """When GPUs were idle and replicas spare."""

    lead: str  # the time zone, and what the replicas cost or why they are not shown
    maps: Sequence[HourMap]  # idle GPU-hours, then replicas beyond need and in reserve where they are known


class Service(Struct, frozen=True):
    """What the money bought."""

    objectives: Table | None  # how far objectives were attained; None where no event was counted
    alerts: str  # how many pages and tickets there were, as a sentence; "" where that is not known
    noisiest: Table | None  # the alerts that fired most often; None for none
    checks: Table | None  # checks that were not fine all week, the worst first; None for none
    evaluated: str  # for how long rules were evaluated, where that was not all week or is not known; "" where it was


class Gaps(Struct, frozen=True):
    """Times without data."""

    lead: str  # what the columns mean; "" without a table
    table: Table | None  # a row for each gap; None where there is none, or gaps are not known
    none: str  # the sentence in place of a table


def build_hour_maps(review: Review) -> HourMaps:
    """Maps of idle time, and of replicas where the rule pack records them."""
    hourly, week = review.hourly, review.week
    maps = [HourMap("Idle GPU-hours", draw_heatmap("Idle time", "GPU-hours", week, hourly.idle_gpu_hours))]
    for title, line in (
        ("Replicas beyond the demand and its reserve", hourly.excess_replicas),
        ("Replicas in reserve for a lost node", hourly.reserve_replicas),
    ):
        if line is not None:
            maps.append(HourMap(title, draw_heatmap(title, "replica-hours", week, line)))
    lead = f"Hours are local time in {week.zone}."
    if hourly.excess_replicas is None:
        lead += " Replicas are not shown because Prometheus has no records of required replicas; load the rule pack."
    elif review.spare is not None:
        lead += (
            f" Beyond the demand and its reserve: {hours(review.spare.excess_hours)} replica-hours, {usd(review.spare.excess_usd)};"
            f" in reserve for a lost node: {hours(review.spare.reserve_hours)}, {usd(review.spare.reserve_usd)}."
        )
    return HourMaps(lead, maps)


def build_service(review: Review) -> Service:
    """Objectives, pages and tickets."""
    found = review.alerts
    return Service(
        _tabulate_objectives(review),
        "" if found is None else _count_alerts(found),
        None if found is None or not found.noisiest else _tabulate_alerts(found),
        _tabulate_checks(review),
        _write_evaluated(review),
    )


def build_gaps(review: Review) -> Gaps:
    """Times without data and what they may have cost."""
    if review.gaps is None:
        return Gaps("", None, "Gaps are unknown because Prometheus could not be asked for them.")
    if not review.gaps:
        return Gaps(
            "", None, "There are no gaps: every target has data for every minute between its first and its last."
        )
    zone = ZoneInfo(review.week.zone)
    rows = []
    for gap in review.gaps[:MOST_ROWS]:
        begin = datetime.fromtimestamp(gap.begin, zone)
        length = (gap.end - gap.begin) / 3600
        recovered = gap.recovered.get("cost")
        rows.append(
            (
                name_cell(gap.target),
                Cell(
                    f"{begin:%a %H:%M}" + ("" if gap.ends else ", to the end"),
                    gap.begin,
                    link=link_board(review, EXPORTER, gap.begin - 3600, gap.end + 3600),
                ),
                number_cell(f"{length:.2f}", length),
                number_cell(usd_plain(recovered), recovered),
                number_cell(usd_plain(gap.estimated_usd), gap.estimated_usd),
            )
        )
    missing = f"{'≥ ' if review.about_missing == 'at least' else ''}{usd_plain(review.missing_usd)}"
    foot = (Cell("Sum"), Cell(""), Cell(""), Cell(usd_plain(review.recovered_usd)), Cell(missing))
    return Gaps(
        "Recovered: cost that counters added up during the gap; it is part of the spend. "
        "Missing: GPUs × time × the last price; it is in no other figure.",
        Table("Gaps in the data", _GAP_COLUMNS, rows, foot, _PRINTED_GAPS, len(review.gaps) - len(rows)),
        "",
    )


def _tabulate_objectives(review: Review) -> Table | None:
    if not review.attainments:
        return None
    rows = []
    for one in review.attainments:
        missed = one.objective is not None and one.share is not None and one.share < one.objective
        rows.append(
            (
                name_cell(one.slo),
                number_cell(percent(one.share, 2), one.share, "bad" if missed else ""),
                number_cell(percent(one.objective, 2), one.objective),
                number_cell(amount(one.total), one.total),
            )
        )
    return Table("Objectives", _OBJECTIVE_COLUMNS, rows)


def _tabulate_alerts(found: AlertSums) -> Table:
    rows = [
        (
            name_cell(row.alert),
            Cell(row.severity, row.severity),
            number_cell(str(row.episodes), row.episodes),
            number_cell(f"{row.minutes:.0f}", row.minutes),
        )
        for row in found.noisiest
    ]
    return Table("Noisiest alerts", _ALERT_COLUMNS, rows)


def _tabulate_checks(review: Review) -> Table | None:
    troubled = [one for one in review.checks if one.page_hours or one.ticket_hours or one.unknown_hours >= 1]
    if not troubled:
        return None
    rows = []
    for one in troubled[:MOST_ROWS]:
        cells = [
            number_cell(f"{found:.1f}", found, "bad" if bad and found else "")
            for found, bad in ((one.page_hours, True), (one.ticket_hours, False), (one.unknown_hours, False))
        ]
        rows.append((name_cell(one.check), name_cell(" ".join(text for _, text in one.labels if text)), *cells))
    return Table("Checks", _CHECK_COLUMNS, rows, left_out=len(troubled) - len(rows))


def _count_alerts(found: AlertSums) -> str:
    return (
        f"{count_nouns(found.pages, 'page')} ({hours(found.page_minutes / 60)} h firing), "
        f"{count_nouns(found.tickets, 'ticket')} ({hours(found.ticket_minutes / 60)} h)."
    )


def _write_evaluated(review: Review) -> str:
    """For how long anybody would have noticed."""
    if review.alerts is None:
        return (
            "Pages and tickets are unknown: either nothing evaluated the rules (ALERTS has no LLMServingWatchdog), "
            "or ALERTS could not be read."
        )
    evaluated, week = review.alerts.watched_hours, review.week.length_hours
    if evaluated is None:
        return "It is unknown how long rules were evaluated: ALERTS has no LLMServingWatchdog."
    if evaluated < _MOST_EVALUATED * week:
        return f"Rules were evaluated for {hours(evaluated)} of {hours(week)} hours."
    return ""
