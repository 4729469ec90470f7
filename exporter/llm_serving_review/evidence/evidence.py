"""Reads all that the review is computed from: both weeks, prices, the fleet, alerts, gaps, and notes on what is missing."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from math import fsum
from zoneinfo import ZoneInfo

from llm_serving_exporter.errors import LLMServingExporterError
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.text import count_nouns, on_one_line
from llm_serving_exporter.settings.kinds import format_duration
from llm_serving_review.evidence import context, names
from llm_serving_review.evidence.context import read_tenants
from llm_serving_review.evidence.fetch import MINUTE_SECONDS, Reader
from llm_serving_review.evidence.gaps import (
    Across,
    Part,
    Presence,
    Scrape,
    Watching,
    Who,
    add_recovered,
    clip_to_week,
    count_minutes,
    describe_gap,
    divide_silence,
    find_silences,
    is_booked,
    measure_across,
    read_labels,
    watch_exporters,
)
from llm_serving_review.evidence.usage import Evidence, Gap, Usage
from llm_serving_review.evidence.week import HOUR_SECONDS, Week, week_before

# of data after the week: what comes back by then was away, not gone
_AFTER_SECONDS = 6 * HOUR_SECONDS
# each is asked about at both its edges; beyond them gaps are named without what counters show across them
MOST_GAPS = 300


class NoDataError(LLMServingExporterError):
    """Prometheus has nothing to make a review of. The message says what was looked for and what to do."""


def gather(reader: Reader, week: Week, now_unix_seconds: float) -> Evidence:
    """Reads the evidence. Raises ApiError where money or GPU time cannot be read, NoDataError where the week has neither."""
    zone = ZoneInfo(week.zone)
    previous = week_before(week, zone)
    retention = context.read_retention_seconds(reader)
    usage, usage_before = reader.read_usage(week), reader.read_usage(previous)
    if usage.empty:
        raise NoDataError(_explain_no_data(reader, week, retention, now_unix_seconds))
    found = _read_silences(reader, previous, week, now_unix_seconds)
    away = [part for part in found or () if _is_absence(part)]
    holes = [part for part in found or () if not _is_absence(part)]
    measured = _Measured(reader, holes)
    usage, gaps = _fill_gaps(reader, usage, holes, measured, week)
    usage_before, gaps_before = _fill_gaps(reader, usage_before, holes, measured, previous)
    begins_before = _find_first_hour(usage_before)
    # else a beginning that is missing is a gap
    begins = _find_first_hour(usage) or 0 if begins_before is None else 0
    book, fleet = context.read_book(reader, week), context.read_fleet(reader, week)
    book_before = context.read_book(reader, previous)
    episodes, methods = context.read_episodes(reader, week), context.read_methods(reader, week)
    watched = context.read_watched_hours(reader, week)
    tenants = read_tenants(reader, week)
    loads = context.read_loads(reader, week, usage, fleet)
    # once everything has been asked, or a warning would be missed
    notes = [f"Prometheus warned: {on_one_line(warning, 300)}" for warning in reader.prometheus.warnings]
    notes += _note_absences([one for one in away if one.silence.end is None or one.silence.end > week.begin])
    if gaps_before:
        notes.append(
            f"{previous.name} has {len(gaps_before)} gaps too, so the figures that {week.name} is compared with may be too low."
        )
    if len(holes) > MOST_GAPS:
        notes.append(
            f"There are {len(holes)} gaps; only the {MOST_GAPS} longest were checked for cost that counters recovered."
        )
    return Evidence(
        week,
        previous,
        usage,
        usage_before,
        book,
        fleet,
        episodes,
        None if found is None else tuple(gaps),
        None if found is None else tuple(gaps_before),
        begins,
        begins_before or 0,
        methods,
        tuple(notes),
        tuple(reader.missing),
        tuple(_note_memory(week, previous, begins, begins_before, retention, now_unix_seconds, zone)),
        watched,
        book_before,
        tenants=tenants,
        loads=loads,
    )


def _read_silences(reader: Reader, previous: Week, week: Week, now: float) -> list[Part] | None:
    """The silences of both weeks, each as parts of one reason; None where they cannot be read."""
    reader.progress("gaps")
    until = min(now, week.end + _AFTER_SECONDS)
    read = reader.attempt("gaps", _read_presence, reader, previous.begin, until)
    if read is None:
        return None
    presence, counted = read
    end = min(now, week.end)
    found = find_silences(presence, end)
    watching = reader.attempt("what Prometheus scraped", watch_exporters, reader, counted, found, previous.begin, until)
    if watching is None:
        watching = Watching(previous.begin, count_minutes(previous.begin, until))
    return [part for silence in found for part in divide_silence(silence, watching, end)]


def _read_presence(reader: Reader, begin: float, until: float) -> tuple[Presence, dict[Who, dict[Scrape, bytearray]]]:
    """By target: when it had data; the same minute by minute, by the scrape that had them."""
    minutes = count_minutes(begin, until)
    counted: dict[Who, dict[Scrape, bytearray]] = {}
    for labels, points in reader.read_by_minute(reader.asking.presence(), begin, until):
        who = tuple((name, labels.get(name, "")) for name in reader.asking.identity), labels.get("target", "")
        scrape = read_labels(labels, ("job", "instance", *reader.asking.scraped_by))
        there = counted.setdefault(who, {}).setdefault(scrape, bytearray(minutes))
        for at, _ in points:
            there[min(round((at - begin) / MINUTE_SECONDS), minutes - 1)] = 1
    presence = {
        who: [
            (begin + first * MINUTE_SECONDS, begin + last * MINUTE_SECONDS)
            for first, last in _find_runs(scrapes.values())
        ]
        for who, scrapes in counted.items()
    }
    return presence, counted


def _find_runs(scrapes: Collection[bytearray]) -> Iterator[tuple[int, int]]:
    """The first and the last minute of each run in which any scrape had data."""
    seen = bytes(map(any, zip(*scrapes, strict=True))) if len(scrapes) > 1 else next(iter(scrapes))
    return ((run.start(), run.end() - 1) for run in re.finditer(b"\1+", seen))


class _Measured:
    """Gaps of both weeks with what was found at their edges, each looked at once."""

    def __init__(self, reader: Reader, gaps: Sequence[Part]) -> None:
        self._reader = reader
        self._asked: set[Part] = set()
        for ended in (False, True):
            alike = (one for one in gaps if (one.silence.end is None) == ended)
            longest = sorted(alike, key=lambda one: one.silence.begin - (one.silence.end or 0.0))
            self._asked |= set(longest[:MOST_GAPS])
        self._seen: dict[Part, Across | None] = {}

    def read_across(self, part: Part) -> Across | None:
        """None where it cannot be read, or there are too many."""
        if part in self._asked and part not in self._seen:
            what = f"the counters of {part.silence.who[1]} across a gap"
            self._seen[part] = self._reader.attempt(what, measure_across, self._reader, part)
        return self._seen.get(part)


def _is_absence(part: Part) -> bool:
    """Whether the target was not there: that time is free, and no gap."""
    if part.reason is None:
        # nothing shows it: one of several targets whose data end is taken to have been removed, one that comes back not
        return part.silence.end is None and part.silence.alone
    return part.reason.absent


def _fill_gaps(
    reader: Reader, usage: Usage, gaps: Sequence[Part], measured: _Measured, week: Week
) -> tuple[Usage, list[Gap]]:
    """The usage with what counters grew by across gaps, and the gaps of a week."""
    read, found = usage, []
    for part in gaps:
        if clip_to_week(part.silence, week) is None:
            continue
        seen = measured.read_across(part)
        exact, grown = (seen.silence, seen.growth) if seen is not None else (part.silence, None)
        gap = clip_to_week(exact, week)
        if gap is None:
            continue
        if grown is None or not part.whole:
            known = gap if grown is None else replace(gap, gpus=grown.gpus, usd_per_gpu_hour=grown.usd_per_gpu_hour)
            found.append(known)
            continue
        gap = describe_gap(gap, exact, grown, week)
        found.append(gap)
        there = reader.attempt(f"the hours after a gap of {gap.target}", is_booked, reader, read, exact, grown, week)
        usage = add_recovered(usage, gap, exact, grown, week, booked=bool(there))
    return usage, found


def _name_targets(away: Sequence[Part]) -> str:
    names_ = list(dict.fromkeys(one.silence.who[1] for one in away))
    return ", ".join(names_[:3]) + (f" and {len(names_) - 3} more" if len(names_) > 3 else "")


def _note_absences(away: Sequence[Part]) -> list[str]:
    """What a reader has to know about time that counts as free, in sentences."""
    said = []
    back = [one for one in away if one.silence.end is not None]
    if back:
        hours = fsum((one.silence.end or 0.0) - one.silence.begin for one in back) / HOUR_SECONDS
        said.append(
            f"{count_nouns(len(back), 'time')} a target disappeared and came back ({_name_targets(back)}; "
            f"{count_nouns(round(hours), 'hour')} in all): its exporter "
            "no longer had it, or Prometheus no longer had its exporter but scraped others, as when replicas are scaled down. That time "
            "counts as free and is in no figure."
        )
    ended = [one for one in away if one.reason is None]
    if ended:
        said.append(
            f"Data of {_name_targets(ended)} end before the week does, and nothing shows whether Prometheus still scraped there. "
            "The time after it counts as free and is in no figure; if an exporter was down, the spend is too low."
        )
    return said


def _note_memory(
    week: Week,
    previous: Week,
    begins: int,
    begins_before: int | None,
    retention: float | None,
    now: float,
    zone: ZoneInfo,
) -> list[str]:
    """What is missing because Prometheus no longer has it, or did not yet have it, in sentences."""
    said = []
    needed = now - previous.begin
    if retention is not None and retention < needed:
        said.append(
            f"Prometheus keeps samples for {format_duration(retention)}; the review of {week.name} and {week.one_before} needs "
            f"{format_duration(float(round(needed / HOUR_SECONDS)) * HOUR_SECONDS)}. Raise "
            "--storage.tsdb.retention.time, or make the review sooner."
        )
    if begins_before is None:
        said.append(f"There are no data of {previous.name}, so nothing is compared with it.")
    return [*said, *_note_begin(previous, begins_before or 0, zone), *_note_begin(week, begins, zone)]


def _note_begin(week: Week, first: int | None, zone: ZoneInfo) -> list[str]:
    if not first:
        return []
    moment = datetime.fromtimestamp(week.hours[first].begin, zone)
    what = f"the first hour of {week.this} is" if first == 1 else f"the first {first} hours of {week.this} are"
    return [f"Data of {week.name} begin on {moment:%a %d %b at %H:%M}: {what} in no figure."]


def _find_first_hour(usage: Usage) -> int | None:
    known = [
        next((index for index, value in enumerate(line.hours) if value is not None), None)
        for line in (*usage.cost, *usage.gpu_seconds)
    ]
    return min((index for index in known if index is not None), default=None)


def _explain_no_data(reader: Reader, week: Week, retention: float | None, now: float) -> str:
    counter = names.exported(names.COST.counter)
    if retention is not None and now - week.end > retention:
        return (
            f"Prometheus keeps samples for {format_duration(retention)} and no longer has any of {week.name}; "
            "choose a later week, or raise --storage.tsdb.retention.time"
        )
    if reader.prometheus.instant(f"count({counter})"):
        return (
            f"Prometheus has {counter} now, but nothing of {week.name}; choose a later week (--week), "
            "or on the first day --since 24h after a full hour"
        )
    return (
        f"Prometheus has no {counter} of {week.name}; check that it scrapes the exporters, that they have a price file, "
        "and the identity labels"
    )
