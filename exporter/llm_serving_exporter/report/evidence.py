"""All that the review rests on, read from Prometheus: both weeks, prices, the fleet, alerts, gaps, and what is not there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from zoneinfo import ZoneInfo

from llm_serving_exporter.config.duration import format_duration
from llm_serving_exporter.errors import LLMServingExporterError
from llm_serving_exporter.prometheus_api.nouns import Sample
from llm_serving_exporter.prometheus_api.text import on_one_line
from llm_serving_exporter.report import context, names
from llm_serving_exporter.report.fetch import MINUTE_SECONDS, Reader
from llm_serving_exporter.report.gaps import (
    LOOKBACK_SECONDS,
    Growth,
    Silence,
    described,
    growth,
    recovered,
    silences,
    within,
)
from llm_serving_exporter.report.nouns import Evidence, Gap, Usage
from llm_serving_exporter.report.week import HOUR_SECONDS, Week, before

# of data after the week: what comes back by then was away, not gone
_AFTER_SECONDS = 6 * HOUR_SECONDS
# each is asked about at both its edges; beyond them gaps are named without what counters show across them
MOST_GAPS = 300
# a shorter silence is a gap whoever was scraped in it
_SHORTEST_ABSENCE_SECONDS = 1800.0
# that much of a week may be missing at its beginning before it is compared with nothing
_LATE_HOURS = 2


class NoDataError(LLMServingExporterError):
    """There is nothing of which a review could be made. The message says what was asked and what to do."""


def gather(reader: Reader, week: Week, now_unix_seconds: float) -> Evidence:
    """Reads it all. Raises ApiError where money or GPU time cannot be read, NoDataError where the week has neither."""
    zone = ZoneInfo(week.zone)
    previous = before(week, zone)
    retention = context.retention_seconds(reader)
    usage, usage_before = reader.usage(week), reader.usage(previous)
    if usage.empty:
        raise NoDataError(_nothing(reader, week, retention, now_unix_seconds))
    found = _silences(reader, previous, week, now_unix_seconds)
    usage, gaps, away = _filled(reader, usage, found, week)
    usage_before, gaps_before, _ = _filled(reader, usage_before, found, previous)
    book, fleet = context.book(reader, week), context.fleet(reader, week)
    episodes, methods = context.episodes(reader, week), context.methods(reader, week)
    # once everything has been asked, or a warning would be missed
    notes = [
        *_remembered(week, previous, usage, usage_before, retention, now_unix_seconds, zone),
        *(f"Prometheus warned: {on_one_line(warning)[:300]}" for warning in reader.prometheus.warnings),
    ]
    if away:
        notes.append(_of_absences(away))
    if gaps_before:
        notes.append(f"The week before has {len(gaps_before)} gaps itself; what it is compared with may be too low.")
    if len(found) > MOST_GAPS:
        notes.append(
            f"There are {len(found)} gaps; what counters show across them was looked up for the {MOST_GAPS} longest."
        )
    return Evidence(
        week,
        previous,
        usage,
        _comparable(usage_before),
        book,
        fleet,
        episodes,
        tuple(gaps),
        methods,
        tuple(notes),
        tuple(reader.missing),
    )


def _silences(reader: Reader, previous: Week, week: Week, now: float) -> list[Silence]:
    reader.progress("gaps")
    until = min(now, week.end + _AFTER_SECONDS)
    query = reader.asking.presence()
    presence: dict[tuple[tuple[tuple[str, str], ...], str], list[float]] = {}
    read = reader.attempt("gaps", lambda: list(reader.by_minute(query, previous.begin, until)))
    for labels, points in read or ():
        who = tuple((name, labels.get(name, "")) for name in reader.asking.identity), labels.get("target", "")
        presence.setdefault(who, []).extend(at for at, _ in points)
    return silences(presence, min(now, week.end))


def _filled(
    reader: Reader, usage: Usage, found: Sequence[Silence], week: Week
) -> tuple[Usage, list[Gap], list[Silence]]:
    """The usage with what counters show across gaps, the gaps, and silences of targets that were not there to be read."""
    gaps, away = [], []
    longest = sorted(found, key=lambda one: one.begin - (one.end if one.end is not None else float("inf")))[:MOST_GAPS]
    for silence in found:
        if within(silence, week) is None:
            continue
        seen = None
        if silence in longest:
            seen = reader.attempt(f"the counters of {silence.who[1]} across a gap", _across, reader, silence)
        if seen is not None and seen.left:
            away.append(seen.silence)
            continue
        exact, grown = (seen.silence, seen.growth) if seen is not None else (silence, None)
        gap = within(exact, week)
        if gap is not None:
            gap = described(gap, exact, grown, week)
            gaps.append(gap)
            if grown is not None:
                usage = recovered(usage, gap, exact, grown, week)
    return usage, gaps, away


@dataclass(frozen=True, slots=True)
class _Across:
    """A silence with its exact edges, and what the counters show across it. `left`: its target was not there to be read."""

    silence: Silence
    growth: Growth
    left: bool = False


def _across(reader: Reader, silence: Silence) -> _Across:
    ask, asking = reader.prometheus, reader.asking
    own = [*silence.who[0], ("target", silence.who[1])]
    query = asking.everything_of(own)

    def taken(at: float, seconds: float) -> list[float]:
        return [when for _, points in ask.raw(asking.samples(own, seconds), at) for when, _ in points]

    begin = max(taken(silence.begin, LOOKBACK_SECONDS + 1), default=silence.begin)
    silence = replace(silence, begin=begin)
    before = ask.instant(query, begin)
    if silence.end is None:
        return _Across(silence, growth(before, (), asking.identity, asking.extra))
    end = min((at for at in taken(silence.end, MINUTE_SECONDS + 1) if at > begin), default=silence.end)
    grown = growth(before, ask.instant(query, end), asking.identity, asking.extra)
    return _Across(replace(silence, end=end), grown, _left(reader, before, begin, end))


def _left(reader: Reader, before: Sequence[Sample], begin: float, end: float) -> bool:
    """Whether the target was not to be read: Prometheus went on scraping others and did not even try this one.

    A dead exporter is tried and fails, a dead Prometheus tries nobody: these are gaps, and so is what nothing is known of.
    """
    scrapes = sorted({(of["job"], of["instance"]) for of, _ in before if "job" in of and "instance" in of})
    if end - begin < _SHORTEST_ABSENCE_SECONDS or not scrapes:
        return False

    def tried(whom: Sequence[tuple[str, str]], at: float, seconds: float) -> float:
        return reader.prometheus.value(reader.asking.scraped(whom, seconds), at) or 0.0

    usual = tried(scrapes, begin, 2 * LOOKBACK_SECONDS) / (2 * LOOKBACK_SECONDS)
    inside = end - begin - 2 * MINUTE_SECONDS
    own, any_ = (tried(whom, end - MINUTE_SECONDS, inside) for whom in (scrapes, ()))
    return usual > 0 and any_ > usual * inside / 2 and own < any_ / 2


def _of_absences(away: Sequence[Silence]) -> str:
    names_ = list(dict.fromkeys(silence.who[1] for silence in away))
    hours = sum((silence.end or silence.begin) - silence.begin for silence in away) / HOUR_SECONDS
    some = ", ".join(names_[:3]) + (f" and {len(names_) - 3} more" if len(names_) > 3 else "")
    return (
        f"{len(away)} times a target went and came back ({some}; {hours:.0f} hours in all): Prometheus had it as a target no more while it "
        "scraped others, as when replicas are scaled down. That time is in no figure and taken for free."
    )


def _remembered(
    week: Week, previous: Week, usage: Usage, usage_before: Usage, retention: float | None, now: float, zone: ZoneInfo
) -> list[str]:
    """What is not there because Prometheus does not remember it, or had nothing yet."""
    said = []
    needed = now - previous.begin
    if retention is not None and retention < needed:
        said.append(
            f"Prometheus keeps samples for {format_duration(retention)}; the review of {week.name} and the week before wants "
            f"{format_duration(float(round(needed / HOUR_SECONDS)) * HOUR_SECONDS)}. Raise --storage.tsdb.retention.time, or run it sooner."
        )
    first = _first_hour(usage_before)
    if first is None:
        said.append(f"There are no data of {previous.name}: nothing is compared with it.")
        # else a beginning that is missing is a gap, and named as such
        said += _begins(week, _first_hour(usage), zone)
    else:
        said += _begins(previous, first, zone)
        if first > _LATE_HOURS:
            said.append(f"{week.name} is not compared with it.")
    return said


def _begins(week: Week, first: int | None, zone: ZoneInfo) -> list[str]:
    if not first:
        return []
    moment = datetime.fromtimestamp(week.hours[first].begin, zone)
    return [f"Data of {week.name} begin on {moment:%a %d %b at %H:%M}: its first {first} hours are not in it."]


def _comparable(usage_before: Usage) -> Usage:
    """The week before; nothing of it where its beginning is missing: what is half there would look like a change."""
    first = _first_hour(usage_before)
    return usage_before if first is not None and first <= _LATE_HOURS else Usage()


def _first_hour(usage: Usage) -> int | None:
    known = [
        next((index for index, value in enumerate(line.hours) if value is not None), None)
        for line in (*usage.cost, *usage.gpu_seconds)
    ]
    return min((index for index in known if index is not None), default=None)


def _nothing(reader: Reader, week: Week, retention: float | None, now: float) -> str:
    counter = names.exported(names.COST.counter)
    if retention is not None and now - week.end > retention:
        return (
            f"Prometheus keeps samples for {format_duration(retention)} and has none of {week.name} any more; "
            "choose a later week, or raise --storage.tsdb.retention.time"
        )
    if reader.prometheus.instant(f"count({counter})"):
        return f"Prometheus has {counter} now, but nothing of {week.name}; choose a later week (--week)"
    return (
        f"Prometheus has no {counter} of {week.name}; check that it scrapes the exporters, that they have a price file, "
        "and the identity labels"
    )
