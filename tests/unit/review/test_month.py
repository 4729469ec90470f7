"""The calendar month, by hand: what was paid, what remains, when the budget is reached, what is not known."""

from __future__ import annotations

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest

from llm_serving_exporter.model.record import replace
from llm_serving_review.evidence.past import Source, WeekSpend
from llm_serving_review.evidence.week import Week, parse_week, span_of, week_before
from llm_serving_review.figures.past_weeks import sum_month

ZONE = ZoneInfo("UTC")
WEEK = parse_week("2026-W46", ZONE)  # 9 to 15 November
BEFORE = week_before(WEEK, ZONE)
EARLIER = week_before(BEFORE, ZONE)  # ends on 1 November


def known(
    week: Week, usd_per_hour: float, beside: float = 0.0, hours: int | None = None, source: Source = Source.FILE
) -> WeekSpend:
    """A flat week; `hours` is how many of its last hours are known."""
    there = week.hours[-hours:] if hours is not None else week.hours
    usd = {round(hour.begin): usd_per_hour for hour in there}
    return WeekSpend(week, source, usd_per_hour * len(there) + beside, None, None, float(len(there)), 0.0, usd)


def test_a_flat_month_is_forecast_to_the_cent() -> None:
    month = sum_month(WEEK, [known(EARLIER, 10.0), known(BEFORE, 10.0), known(WEEK, 10.0)], 9000.0)
    assert month is not None
    # 15 days of 24 hours
    assert (month.usd, month.known_hours, month.unknown_hours, month.unknown_usd) == (3600.0, 360.0, 0.0, 0.0)
    assert (month.hours_left, month.usd_per_hour, month.rate_hours) == (360.0, 10.0, 168.0)
    assert month.forecast_usd == 7200.0
    assert month.budget_reached is None
    assert len(month.days) == 15
    assert {day.usd for day in month.days} == {240.0}


def test_the_run_rate_is_that_of_the_last_seven_days() -> None:
    month = sum_month(WEEK, [known(EARLIER, 10.0), known(BEFORE, 10.0), known(WEEK, 20.0)], 9000.0)
    assert month is not None
    # 24 + 168 hours at 10, then 168 at 20
    assert month.usd == 24 * 10 + 168 * 10 + 168 * 20 == 5280.0
    assert month.forecast_usd == 5280.0 + 360 * 20
    # 3,720 more at 20 an hour are 186 hours after the 16th began
    assert month.budget_reached == WEEK.end + 186 * 3600


def test_a_budget_that_was_reached_has_its_hour() -> None:
    month = sum_month(WEEK, [known(EARLIER, 10.0), known(BEFORE, 10.0), known(WEEK, 10.0)], 240.0)
    assert month is not None
    assert month.budget_reached == datetime(2026, 11, 2, tzinfo=UTC).timestamp()


def test_what_is_paid_beside_gpu_time_is_spread_over_the_week() -> None:
    month = sum_month(
        WEEK, [known(EARLIER, 10.0, beside=168.0), known(BEFORE, 10.0), known(WEEK, 10.0, beside=84.0)], None
    )
    assert month is not None
    assert month.usd == pytest.approx(3600 + 24 * 1.0 + 84.0)
    assert month.usd_per_hour == pytest.approx(10.5)


def test_what_is_not_known_is_said_and_estimated_apart() -> None:
    month = sum_month(WEEK, [known(WEEK, 10.0)], 9000.0)
    assert month is not None
    assert (month.usd, month.known_hours, month.unknown_hours) == (1680.0, 168.0, 192.0)
    assert month.unknown_usd == pytest.approx(1920.0)
    assert month.forecast_usd == 1680.0 + 3600.0
    assert [day.usd for day in month.days[:8]] == [None] * 8


def test_an_hour_without_data_is_free_only_in_a_week_that_is_whole() -> None:
    off_at_night = known(WEEK, 10.0)
    hours = {at: usd for index, (at, usd) in enumerate(off_at_night.usd_by_hour.items()) if index % 24 >= 8}
    whole = WeekSpend(WEEK, Source.COUNTERS, sum(hours.values()), None, None, 168.0, 0.0, hours)
    part = WeekSpend(WEEK, Source.COUNTERS, sum(hours.values()), None, None, 112.0, 0.0, hours)
    before = [known(EARLIER, 10.0), known(BEFORE, 10.0)]
    first, second = sum_month(WEEK, [*before, whole], None), sum_month(WEEK, [*before, part], None)
    assert first is not None
    assert second is not None
    assert (first.unknown_hours, second.unknown_hours) == (0.0, 56.0)
    assert first.usd_per_hour == pytest.approx(1120 / 168)
    assert second.usd_per_hour == pytest.approx(10.0)


def test_months_begin_at_midnight_of_the_zone_and_have_their_own_hours() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    week = parse_week("2026-W44", berlin)  # 26 October to 1 November, clocks were put back on the 25th
    weeks = [week]
    while len(weeks) < 6:
        weeks.append(week_before(weeks[-1], berlin))
    month = sum_month(week, [known(one, 1.0) for one in weeks], None)
    assert month is not None
    # the week ends with the first day of November
    assert (month.first, month.known_hours, month.hours_left) == (date(2026, 11, 1), 24.0, 29 * 24.0)
    month = sum_month(weeks[1], [known(one, 1.0) for one in weeks], None)
    assert month is not None
    # 25 days, one of them with 25 hours
    assert (month.first, month.known_hours, month.unknown_hours) == (date(2026, 10, 1), 25 * 24 + 1.0, 0.0)


def test_a_span_takes_its_rate_from_seven_days_and_adds_no_hour_twice() -> None:
    span = span_of(datetime(2026, 11, 11, 12, tzinfo=UTC).timestamp(), 24, ZONE)
    running = known(WEEK, 10.0, source=Source.RECORDS)
    records = WeekSpend(
        WEEK,
        Source.RECORDS,
        600.0,
        None,
        None,
        60.0,
        0.0,
        {at: usd for at, usd in running.usd_by_hour.items() if at < span.end},
    )
    month = sum_month(
        span, [known(EARLIER, 10.0), known(BEFORE, 10.0), records, known(span, 30.0, source=Source.COUNTERS)], None
    )
    assert month is not None
    assert month.usd == pytest.approx(10 * (24 + 168 + 36) + 30 * 24)
    assert month.rate_hours == 168.0
    assert month.usd_per_hour == pytest.approx((144 * 10 + 24 * 30) / 168)


def test_without_any_hour_there_is_no_month() -> None:
    assert sum_month(WEEK, [], None) is None


def test_a_gap_that_a_week_and_a_span_both_know_counts_once() -> None:
    """The 48 hours to Tuesday's midnight: $80 of gaps lie in the last day of the week before, of which its own review has $80."""
    span = span_of(WEEK.end + 86_400, 48, ZONE)
    week = replace(known(WEEK, 10.0), missing_usd=80.0)
    both = replace(known(span, 10.0, source=Source.COUNTERS), missing_usd=160.0)
    month = sum_month(span, [week, both, known(EARLIER, 10.0), known(BEFORE, 10.0)], None)
    assert month is not None
    # of the span's $160 half is its second day's
    assert month.unknown_usd == pytest.approx(80.0 + 80.0)
