"""Pools by the hour in the month to date: what is committed falls on its own days, and survives the folder of earlier reviews."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from llm_serving_exporter.model.cost import Pool, PoolBook, PoolKind, PoolUse
from llm_serving_exporter.model.record import replace
from llm_serving_review.command import write
from llm_serving_review.evidence.past import Past, read_kept_week
from llm_serving_review.evidence.week import week_before
from llm_serving_review.figures.past_weeks import describe_recorded_week, list_known_weeks
from llm_serving_review.figures.review import Review, build_review
from llm_serving_review.pages.page import render_page
from llm_serving_review.settings.settings import Settings
from tests.support.builders.poolweek import P5, PoolWeek

RESERVED = Pool("reserved", PoolKind.QUANTITY, PoolUse(instance_type=P5), 8.0, 1.0)


def days_of(review: Review) -> dict[date, float]:
    month = review.beyond.month
    assert month is not None
    return {one.day: round(one.usd, 6) for one in month.days if one.usd is not None}


# in a zone of half hours the UTC hour over Friday's midnight has half its load, and is spread over both days
@pytest.mark.parametrize(("zone", "apart"), [("UTC", 0.0), ("Australia/Melbourne", 0.0), ("Asia/Kolkata", 8.0)])
def test_a_commitment_costs_the_same_on_days_without_load(zone: str, apart: float) -> None:
    week = PoolWeek(zone)
    # 8 GPUs from Monday to Friday; the eight that are committed cost $8 an hour on Saturday, too, and no day less than nothing
    week.add("a", dict.fromkeys(range(120), 8.0))
    found = build_review(week.evidence(RESERVED), Settings(timezone=zone))
    assert found.invoice_usd == pytest.approx(168 * 8.0)
    assert list(days_of(found).values()) == pytest.approx([192.0] * 7, abs=apart + 1e-6)
    assert found.pools is not None
    assert sum(value or 0.0 for value in found.pools.effect_by_hour) == pytest.approx(found.pools.effect_usd)


def test_a_prepaid_window_over_the_end_of_a_month_is_paid_where_it_lies(tmp_path: Path) -> None:
    """A capacity block of 31 October and 1 November: $960 for 48 hours. One half is in either month."""
    begin = datetime(2026, 10, 31, tzinfo=UTC).timestamp()
    # 8 GPUs x 48 h x $2.50
    block = Pool(
        "block",
        PoolKind.WINDOW,
        PoolUse(instance_type=P5),
        8.0,
        2.5,
        from_unix_seconds=begin,
        until_unix_seconds=begin + 48 * 3600,
    )
    week = PoolWeek(name="2026-W44")
    week.add("a", dict.fromkeys(range(120, 168), 8.0))
    review = build_review(week.evidence(block), Settings())
    assert review.invoice_usd == pytest.approx(960.0)
    # the month of the week's last hour has Sunday alone
    month = review.beyond.month
    assert month is not None
    assert month.first == date(2026, 11, 1)
    assert month.usd == pytest.approx(480.0)
    # a week later it is read from the folder, and is the same
    write(review, tmp_path, None)
    kept = read_kept_week(tmp_path, PoolWeek(name="2026-W44").week)
    assert kept is not None
    later = PoolWeek(name="2026-W45")
    later.add("b", {0: 8.0}, rate="on_demand")
    evidence = replace(later.evidence(), previous=week_before(later.week, ZoneInfo("UTC")), pools=PoolBook((block,)))
    found = build_review(evidence, Settings(), Past((kept,)))
    assert days_of(found)[date(2026, 11, 1)] == 480.0
    assert found.beyond.trend[-2].known is not None
    assert found.beyond.trend[-2].known.paid_usd == pytest.approx(960.0)


def test_a_week_of_hourly_records_says_that_no_pool_was_taken_off_it() -> None:
    week = PoolWeek(name="2026-W45")
    week.add("a", dict.fromkeys(range(168), 8.0))
    past = Past((describe_recorded_week(PoolWeek(name="2026-W44").week, week.usage),))
    marks = {one.week.name: one.marks for one in list_known_weeks(week.week, past, ())}
    assert marks == {"2026-W44": ("before commitments",)}
    review = build_review(week.evidence(RESERVED), Settings(), past)
    assert "Weeks from hourly records are before commitments." in render_page(review)
    assert "before commitments; from hourly records" in render_page(review)
