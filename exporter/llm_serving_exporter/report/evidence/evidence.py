"""Reads all that the review is computed from: both weeks, prices, the fleet, alerts, gaps, and notes on what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from zoneinfo import ZoneInfo

from llm_serving_exporter.errors import LLMServingExporterError
from llm_serving_exporter.model.text import on_one_line
from llm_serving_exporter.report.evidence import context, names
from llm_serving_exporter.report.evidence.across import Across, is_booked, measure_across
from llm_serving_exporter.report.evidence.fetch import Reader
from llm_serving_exporter.report.evidence.gaps import Silence, add_recovered, clip_to_week, describe_gap, find_silences
from llm_serving_exporter.report.evidence.usage import Evidence, Gap, Usage
from llm_serving_exporter.report.evidence.week import HOUR_SECONDS, Week, week_before
from llm_serving_exporter.schema.duration import format_duration

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
    retention = context.retention_seconds(reader)
    usage, usage_before = reader.usage(week), reader.usage(previous)
    if usage.empty:
        raise NoDataError(_explain_no_data(reader, week, retention, now_unix_seconds))
    found = _silences(reader, previous, week, now_unix_seconds)
    silent = _Silences(found or (), min(now_unix_seconds, week.end))
    usage, gaps, away = _fill_gaps(reader, usage, silent, week)
    usage_before, gaps_before, _ = _fill_gaps(reader, usage_before, silent, previous)
    begins_before = _find_first_hour(usage_before)
    # else a beginning that is missing is a gap
    begins = _find_first_hour(usage) or 0 if begins_before is None else 0
    book, fleet = context.book(reader, week), context.fleet(reader, week)
    episodes, methods = context.episodes(reader, week), context.methods(reader, week)
    watched = context.watched_hours(reader, week)
    # once everything has been asked, or a warning would be missed
    notes = [f"Prometheus warned: {on_one_line(warning, 300)}" for warning in reader.prometheus.warnings]
    if away.back:
        notes.append(_note_absences(away.back))
    if away.ended:
        notes.append(_note_ends(away.ended))
    if gaps_before:
        notes.append(
            f"The week before has {len(gaps_before)} gaps too, so the figures that this week is compared with may be too low."
        )
    if found is not None and len(found) > MOST_GAPS:
        notes.append(
            f"There are {len(found)} gaps; only the {MOST_GAPS} longest were checked for cost that counters recovered."
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
    )


def _silences(reader: Reader, previous: Week, week: Week, now: float) -> list[Silence] | None:
    reader.progress("gaps")
    until = min(now, week.end + _AFTER_SECONDS)
    query = reader.asking.presence()
    presence: dict[tuple[tuple[tuple[str, str], ...], str], list[float]] = {}
    read = reader.attempt("gaps", lambda: list(reader.by_minute(query, previous.begin, until)))
    if read is None:
        return None
    for labels, points in read:
        who = tuple((name, labels.get(name, "")) for name in reader.asking.identity), labels.get("target", "")
        presence.setdefault(who, []).extend(at for at, _ in points)
    return find_silences(presence, min(now, week.end))


class _Silences:
    """The silences of both weeks and what was found at their edges, each looked at once. `end`: end of the later week, or now."""

    def __init__(self, found: Sequence[Silence], end: float) -> None:
        self.found = found
        # Prometheus itself may have been gone from where all data end
        self._until = min(end, *(one.begin for one in found if one.end is None and not one.alone), end)
        self._asked: set[Silence] = set()
        for ended in (False, True):
            alike = (one for one in found if (one.end is None) == ended)
            self._asked |= set(sorted(alike, key=lambda one: one.begin - (one.end or 0.0))[:MOST_GAPS])
        self._seen: dict[Silence, Across | None] = {}

    def read_across(self, reader: Reader, silence: Silence) -> Across | None:
        """None where it cannot be read, or there are too many."""
        if silence in self._asked and silence not in self._seen:
            what = f"the counters of {silence.who[1]} across a gap"
            self._seen[silence] = reader.attempt(what, measure_across, reader, silence, self._until)
        return self._seen.get(silence)


@dataclass(frozen=True, slots=True)
class _Away:
    """Silences of targets that were taken away, which are no gaps."""

    # of targets that came back
    back: list[Silence] = field(default_factory=list)
    # of targets that did not, where nothing shows whether they were taken away
    ended: list[Silence] = field(default_factory=list)


def _fill_gaps(reader: Reader, usage: Usage, silent: _Silences, week: Week) -> tuple[Usage, list[Gap], _Away]:
    """The usage with what counters grew by across gaps, the gaps, and the silences of targets that were taken away."""
    read, gaps, away = usage, [], _Away()
    for silence in silent.found:
        if clip_to_week(silence, week) is None:
            continue
        seen = silent.read_across(reader, silence)
        if seen is None and silence.alone:
            away.ended.append(silence)
            continue
        if seen is not None and seen.left:
            if silence.end is not None:
                away.back.append(seen.silence)
            elif seen.unsure:
                away.ended.append(seen.silence)
            continue
        exact, grown = (seen.silence, seen.growth) if seen is not None else (silence, None)
        gap = clip_to_week(exact, week)
        if gap is not None:
            gap = describe_gap(gap, exact, grown, week)
            gaps.append(gap)
            if grown is not None:
                there = reader.attempt(
                    f"the hours after a gap of {gap.target}", is_booked, reader, read, exact, grown, week
                )
                usage = add_recovered(usage, gap, exact, grown, week, booked=bool(there))
    return usage, gaps, away


def _name_targets(away: Sequence[Silence]) -> str:
    names_ = list(dict.fromkeys(silence.who[1] for silence in away))
    return ", ".join(names_[:3]) + (f" and {len(names_) - 3} more" if len(names_) > 3 else "")


def _note_ends(ended: Sequence[Silence]) -> str:
    return (
        f"Data of {_name_targets(ended)} end before the week does, and nothing shows whether Prometheus still scraped there. "
        "The time after it counts as free and is in no figure; if an exporter was down, the spend is too low."
    )


def _note_absences(away: Sequence[Silence]) -> str:
    hours = sum((silence.end or silence.begin) - silence.begin for silence in away) / HOUR_SECONDS
    return (
        f"{len(away)} times a target disappeared and came back ({_name_targets(away)}; {hours:.0f} hours in all): Prometheus no "
        "longer had it as a target but scraped others, as when replicas are scaled down. That time counts as free and is in no figure."
    )


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
            f"Prometheus keeps samples for {format_duration(retention)}; the review of {week.name} and the week before needs "
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
    return [
        f"Data of {week.name} begin on {moment:%a %d %b at %H:%M}: the first {first} hours of the week are in no figure."
    ]


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
        return f"Prometheus has {counter} now, but nothing of {week.name}; choose a later week (--week)"
    return (
        f"Prometheus has no {counter} of {week.name}; check that it scrapes the exporters, that they have a price file, "
        "and the identity labels"
    )
