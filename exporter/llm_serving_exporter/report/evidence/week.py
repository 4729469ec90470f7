"""An ISO week in a time zone -> its hours. At clock changes it has 167 or 169 of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

HOUR_SECONDS = 3600.0
_WEEK = re.compile(r"([0-9]{4})-?W([0-9]{2})")


@dataclass(frozen=True, slots=True)
class Hour:
    """An hour of a week. The last one may be shorter where clocks change by half an hour."""

    # Unix seconds
    begin: float
    # Unix seconds
    end: float
    # 0 for Monday to 6 for Sunday
    day: int
    # of the local clock where the hour begins
    hour: int

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class Week:
    """An ISO week in a time zone."""

    # as in "2026-W46"
    name: str
    # the time zone's name, as in "Europe/Berlin"
    zone: str
    # its first day
    monday: date
    # its hours in order: 168, or 167 or 169 where clocks change
    hours: tuple[Hour, ...]

    @property
    def begin(self) -> float:
        """Unix seconds of Monday's midnight."""
        return self.hours[0].begin

    @property
    def end(self) -> float:
        """Unix seconds of the next Monday's midnight."""
        return self.hours[-1].end

    @property
    def length_hours(self) -> float:
        """168, but for clock changes."""
        return (self.end - self.begin) / HOUR_SECONDS


def week_of(year: int, number: int, zone: ZoneInfo) -> Week:
    """An ISO week. Raises ValueError where the year has no such week."""
    monday = date.fromisocalendar(year, number, 1)
    begin, end = (_midnight(monday + timedelta(days=days), zone) for days in (0, 7))
    hours = []
    at = begin
    while at < end:
        local = datetime.fromtimestamp(at, zone)
        hours.append(Hour(at, min(at + HOUR_SECONDS, end), (local.date() - monday).days, local.hour))
        at += HOUR_SECONDS
    return Week(f"{year}-W{number:02d}", zone.key, monday, tuple(hours))


def parse_week(text: str, zone: ZoneInfo) -> Week:
    """ "2026-W46" -> that week. Raises ValueError with what is wrong."""
    match = _WEEK.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not an ISO week; write it as in 2026-W46")
    try:
        return week_of(int(match[1]), int(match[2]), zone)
    except (ValueError, OverflowError):
        raise ValueError(f"the year {match[1]} has no week {match[2]}; write it as in 2026-W46") from None


def last_complete_week(now_unix_seconds: float, zone: ZoneInfo) -> Week:
    """The latest week that is over."""
    today = datetime.fromtimestamp(now_unix_seconds, zone).date()
    year, number, _ = (today - timedelta(days=7)).isocalendar()
    return week_of(year, number, zone)


def week_before(week: Week, zone: ZoneInfo) -> Week:
    """The week before."""
    year, number, _ = (week.monday - timedelta(days=7)).isocalendar()
    return week_of(year, number, zone)


def _midnight(day: date, zone: ZoneInfo) -> float:
    # a midnight that a clock change skips is read with the offset before it, so that the day begins at the change
    return datetime.combine(day, time(), tzinfo=zone).astimezone(UTC).timestamp()
