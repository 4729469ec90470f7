"""How the week was run: idle and spare hours, objectives and alerts, gaps in the data."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

from llm_serving_exporter.model.text import count_nouns
from llm_serving_exporter.render.numbers import amount, hours, percent, usd, usd_plain
from llm_serving_review.figures.review import Review
from llm_serving_review.figures.rows import AlertSums
from llm_serving_review.pages.charts import draw_heatmap
from llm_serving_review.pages.tables import (
    BLANK,
    EXPORTER,
    Cell,
    Column,
    Marked,
    Shown,
    link_board,
    make_table,
    name_column,
)

_PRINTED_GAPS = 4
# a restart of Prometheus or vmalert is no news
_MOST_EVALUATED = 0.99
_OBJECTIVE_COLUMNS = (
    name_column("Objective"), *(Column(title, "", lambda share: percent(share, 2)) for title in ("Attained", "Objective")),
    Column("Events", "", amount),
)  # fmt: skip
_ALERT_COLUMNS = (
    name_column("Noisiest alerts"), name_column("Severity"), Column("Episodes"), Column("Firing", "minutes", "{:.0f}".format),
)  # fmt: skip
_CHECK_COLUMNS = (
    name_column("Check"), name_column("Model"), *(Column(title, "hours", "{:.1f}".format) for title in ("Page", "Ticket", "Not known")),
)  # fmt: skip
_GAP_COLUMNS = (
    name_column("Target"), name_column("From"), Column("Hours", "", "{:.2f}".format), Column("Recovered", "USD", usd_plain),
    Column("Missing", "USD, estimated", usd_plain),
)  # fmt: skip


def build_hour_maps(review: Review) -> Shown:
    """Maps of idle time, and of replicas where the rule pack records them."""
    hourly, week = review.hourly, review.week
    idle = draw_heatmap("Idle time", "GPU-hours", week, hourly.idle_gpu_hours)
    maps = [Shown(title="Idle GPU-hours", chart=idle)]
    for title, line in (
        ("Replicas beyond the demand and its reserve", hourly.excess_replicas),
        ("Replicas in reserve for a lost node", hourly.reserve_replicas),
    ):
        if line is not None:
            maps.append(Shown(title=title, chart=draw_heatmap(title, "replica-hours", week, line)))
    lead = f"Hours are local time in {week.zone}."
    if hourly.excess_replicas is None:
        lead += " Replicas are not shown because Prometheus has no records of required replicas; load the rule pack."
    elif review.spare is not None:
        lead += (
            f" Beyond the demand and its reserve: {hours(review.spare.excess_hours)} replica-hours, {usd(review.spare.excess_usd)};"
            f" in reserve for a lost node: {hours(review.spare.reserve_hours)}, {usd(review.spare.reserve_usd)}."
        )
    return Shown(lead=lead, maps=maps)


def build_service(review: Review) -> Shown:
    """What the money bought: objectives, pages and tickets, checks that were not fine all week, the worst first."""
    found = review.alerts
    objectives = [
        (
            one.slo,
            Marked(
                one.share,
                "bad" if one.objective is not None and one.share is not None and one.share < one.objective else "",
            ),
            one.objective,
            one.total,
        )
        for one in review.attainments
    ]
    noisiest = [
        (row.alert, row.severity, row.episodes, row.minutes) for row in (found.noisiest if found is not None else ())
    ]
    checks = [
        (
            one.check, " ".join(text for _, text in one.labels if text), Marked(one.page_hours, "bad" if one.page_hours else ""),
            one.ticket_hours, one.unknown_hours,
        )
        for one in review.checks
        if one.page_hours or one.ticket_hours or one.unknown_hours >= 1
    ]  # fmt: skip
    return Shown(
        objectives=make_table("Objectives", _OBJECTIVE_COLUMNS, objectives, most=None) if objectives else None,
        alerts="" if found is None else _count_alerts(found),
        noisiest=make_table("Noisiest alerts", _ALERT_COLUMNS, noisiest) if noisiest else None,
        checks=make_table("Checks", _CHECK_COLUMNS, checks) if checks else None,
        evaluated=_write_evaluated(review),
    )


def build_gaps(review: Review) -> Shown:
    """Times without data and what they may have cost."""
    if not review.gaps:
        none = (
            "Gaps are unknown because Prometheus could not be asked for them."
            if review.gaps is None
            else "There are no gaps: every target has data for every minute between its first and its last."
        )
        return Shown(lead="", table=None, none=none)
    rows = []
    for gap in review.gaps:
        begin = f"{datetime.fromtimestamp(gap.begin, ZoneInfo(review.week.zone)):%a %H:%M}{'' if gap.ends else ', to the end'}"
        link = link_board(review, EXPORTER, gap.begin - 3600, gap.end + 3600)
        length = (gap.end - gap.begin) / 3600
        rows.append(
            (gap.target, Cell(begin, gap.begin, link=link), length, gap.recovered.get("cost"), gap.estimated_usd)
        )
    missing = f"{'≥ ' if review.about_missing == 'at least' else ''}{usd_plain(review.missing_usd)}"
    foot = (Cell("Sum"), BLANK, BLANK, Cell(usd_plain(review.recovered_usd)), Cell(missing))
    lead = (
        "Recovered: cost that counters added up during the gap; it is part of the spend. "
        "Missing: GPUs × time × the last price; it is in no other figure."
    )
    return Shown(
        lead=lead, table=make_table("Gaps in the data", _GAP_COLUMNS, rows, foot, printed=_PRINTED_GAPS), none=""
    )


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
