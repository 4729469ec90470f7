"""Weeks in their zones: as many hours as the clock on the wall has."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from llm_serving_review.evidence.week import last_complete_week, parse_week, week_before
from tests.support.rows import check_rows

BERLIN = ZoneInfo("Europe/Berlin")


@check_rows(
    ("text", "zone", "hours"),
    [
        ("2026-W46", "UTC", 168),
        ("2026-W46", "Europe/Berlin", 168),
        # clocks go forward on 29 March 2026 and back on 25 October 2026 (directive 2000/84/EC)
        ("2026-W13", "Europe/Berlin", 167),
        ("2026-W43", "Europe/Berlin", 169),
        ("2026-W46", "Asia/Kolkata", 168),
        # Lord Howe Island's clocks change by half an hour: back on 5 April 2026, forward on 4 October 2026
        ("2026-W14", "Australia/Lord_Howe", 168.5),
        ("2026-W40", "Australia/Lord_Howe", 167.5),
    ],
)
def test_a_week_has_as_many_hours_as_pass(text: str, zone: str, hours: float) -> None:
    week = parse_week(text, ZoneInfo(zone))
    assert week.length_hours == hours
    assert sum(hour.seconds for hour in week.hours) == hours * 3600
    assert [one.end for one in week.hours[:-1]] == [one.begin for one in week.hours[1:]]
    for moment in (week.begin, week.end):
        local = datetime.fromtimestamp(moment, ZoneInfo(zone))
        assert (local.isoweekday(), local.hour, local.minute) == (1, 0, 0)
    assert [hour.day for hour in week.hours] == sorted(hour.day for hour in week.hours)


def test_a_zone_half_an_hour_off_has_its_own_hours() -> None:
    week = parse_week("2026-W46", ZoneInfo("Asia/Kolkata"))
    assert week.begin % 3600 == 1800
    assert [hour.hour for hour in week.hours] == list(range(24)) * 7


def test_at_clock_changes_an_hour_is_missing_or_there_twice() -> None:
    spring, autumn = parse_week("2026-W13", BERLIN), parse_week("2026-W43", BERLIN)
    sunday = [hour.hour for hour in spring.hours if hour.day == 6]
    assert 2 not in sunday
    assert len(sunday) == 23
    assert [hour.hour for hour in autumn.hours if hour.day == 6][:5] == [0, 1, 2, 2, 3]


def test_the_last_complete_week_is_by_the_zones_own_clock() -> None:
    # Monday 2026-11-16 00:30 in Berlin is Sunday 23:30 in London
    moment = datetime(2026, 11, 16, 0, 30, tzinfo=BERLIN).timestamp()
    assert last_complete_week(moment, BERLIN).name == "2026-W46"
    assert last_complete_week(moment, ZoneInfo("UTC")).name == "2026-W45"


def test_the_week_before_crosses_years() -> None:
    # 2026 has 53 ISO weeks
    week = parse_week("2027-W01", BERLIN)
    assert week_before(week, BERLIN).name == "2026-W53"
    assert week_before(week, BERLIN).end == week.begin


@check_rows("text", ["2026-46", "W46", "2026-W54", "2026-W00", "2025-W53", "0000-W01", "2026-W4", ""])
def test_what_is_no_week_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="write it as in 2026-W46"):
        parse_week(text, BERLIN)
