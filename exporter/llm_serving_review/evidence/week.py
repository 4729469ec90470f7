"""An ISO week in a time zone, or the last hours -> hours. At clock changes a week has 167 or 169 of them."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.text import count_nouns

HOUR_SECONDS = 3600.0
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_WEEK = re.compile(r"([0-9]{4})-?W([0-9]{2})")


class Hour(Struct, frozen=True):
    """An hour of a week. The last one may be shorter where clocks change by half an hour."""

    begin: float  # Unix seconds
    end: float  # Unix seconds
    day: int  # number of the day within the week, 0 for Monday to 6 for Sunday; of a span within the span
    hour: int  # of the local clock where the hour begins

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end - self.begin


class Week(Struct, frozen=True):
    """What is reviewed: an ISO week in a time zone, or a span of hours."""

    name: str  # as in "2026-W46"; of a span "24 hours to 2026-11-25 14:00"
    zone: str  # the time zone's name, as in "Europe/Berlin"
    monday: date  # its first day, a Monday but for spans
    hours: tuple[Hour, ...]  # its hours in order: 168, or 167 or 169 where clocks change; of a span as many as it has
    is_span: bool = False  # whether it is a span of hours and no calendar week

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
        """168, but for clock changes and spans."""
        return (self.end - self.begin) / HOUR_SECONDS

    @property
    def file_name(self) -> str:
        """What its files are called: "2026-W46", or "since-2026-11-24T14-24h"."""
        if not self.is_span:
            return self.name
        begin = datetime.fromtimestamp(self.begin, ZoneInfo(self.zone))
        return f"since-{begin:%Y-%m-%dT%H}-{round(self.length_hours)}h"

    @property
    def this(self) -> str:
        """How a sentence calls it: "the week", "these 24 hours", "this hour"."""
        return self._name("these {}", "this hour", "the week")

    @property
    def one_before(self) -> str:
        """How a sentence calls what it is compared with."""
        return self._name("the {} before", "the hour before", "the week before")

    @property
    def each(self) -> str:
        """How often an amount of it comes: "a week", "in 24 hours"."""
        return self._name("in {}", "an hour", "a week")

    def _name(self, span: str, hour: str, week: str) -> str:
        hours = round(self.length_hours)
        return week if not self.is_span else hour if hours == 1 else span.format(count_nouns(hours, "hour"))

    @property
    def days(self) -> tuple[str, ...]:
        """Its days, short: "Mon" to "Sun", of a span with the day of the month."""
        if not self.is_span:
            return WEEKDAYS
        last = self.hours[-1].day
        return tuple(f"{self.monday + timedelta(days=day):%a %-d}" for day in range(last + 1))


# a review asks for each week of a quarter twice
@lru_cache(maxsize=32)
def week_of(year: int, number: int, zone: ZoneInfo) -> Week:
    """An ISO week. Raises ValueError where the year has no such week."""
    monday = date.fromisocalendar(year, number, 1)
    begin, end = (find_midnight(monday + timedelta(days=days), zone) for days in (0, 7))
    hours = []
    at = begin
    while at < end:
        local = datetime.fromtimestamp(at, zone)
        hours.append(Hour(at, min(at + HOUR_SECONDS, end), (local.date() - monday).days, local.hour))
        at += HOUR_SECONDS
    return Week(f"{year}-W{number:02d}", zone.key, monday, tuple(hours))


def span_of(end_unix_seconds: float, hours: int, zone: ZoneInfo) -> Week:
    """The whole hours of the zone's clock before a moment, as weeks have them; `hours` is at least 1."""
    offset = (datetime.fromtimestamp(end_unix_seconds, zone).utcoffset() or timedelta()).total_seconds()
    end = (end_unix_seconds + offset) // HOUR_SECONDS * HOUR_SECONDS - offset
    begin = end - hours * HOUR_SECONDS
    first = datetime.fromtimestamp(begin, zone).date()
    found = []
    for number in range(hours):
        at = begin + number * HOUR_SECONDS
        local = datetime.fromtimestamp(at, zone)
        found.append(Hour(at, at + HOUR_SECONDS, (local.date() - first).days, local.hour))
    name = f"{count_nouns(hours, 'hour')} to {datetime.fromtimestamp(end, zone):%Y-%m-%d %H:%M}"
    return Week(name, zone.key, first, tuple(found), is_span=True)


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
    """The week before; of a span as many hours before it."""
    if week.is_span:
        return span_of(week.begin, len(week.hours), zone)
    year, number, _ = (week.monday - timedelta(days=7)).isocalendar()
    return week_of(year, number, zone)


def find_midnight(day: date, zone: ZoneInfo) -> float:
    """Unix seconds at which a day begins."""
    # a midnight that a clock change skips is read with the offset before it, so that the day begins at the change
    return datetime.combine(day, time(), tzinfo=zone).astimezone(UTC).timestamp()
