"""What became of each scrape, minute by minute -> which part of a silence is a gap, and in which the target was not there.

A target of an exporter that lives on was removed where that exporter was scraped and no longer had it. One that goes with its exporter (a
sidecar) was removed where Prometheus no longer had the exporter but scraped others. A scrape that failed, and time in which nothing was
scraped at all, are gaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import groupby

from llm_serving_exporter.clients.prometheus import Labels
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct, field, replace
from llm_serving_review.evidence.fetch import MINUTE_SECONDS, Reader
from llm_serving_review.evidence.gaps import LOOKBACK_SECONDS, Silence, Who

# job, instance, and the values of labels that tell fleets apart
Scrape = tuple[str, ...]
# so many exporters are asked about at once: a query names each of them
_ASKED_AT_ONCE = 100
# whether anything at all is scraped is looked at so often: all scrapes of a large Prometheus by the minute are too many samples
_ANYTHING_SECONDS = 300.0
# shorter parts of a silence belong to the longer one beside them: a pod that ends fails a few scrapes before it is gone
_SHORTEST_PART_SECONDS = 600.0
# discovery may lose sight of an exporter for a moment
_SHORTEST_ABSENCE_SECONDS = 1800.0


class Reason(Enum):
    """Why a target has no data."""

    # its exporter was scraped and did not have it
    REMOVED = "removed"
    # Prometheus did not have its exporter, and scraped others
    GONE = "gone"
    # its exporter was scraped and had it, but counted nothing
    UNCOUNTED = "uncounted"
    # scrapes of its exporter failed
    DOWN = "down"
    # nothing was scraped
    NOTHING = "nothing"

    @property
    def absent(self) -> bool:
        """Whether the target was not there, so that the time is free."""
        return self in (Reason.REMOVED, Reason.GONE)


class Part(Struct, frozen=True):
    """A part of a silence, of one kind."""

    silence: Silence  # its moments; an `end` of None goes on to the end of the week
    reason: Reason | None  # why there are no data; None where nothing shows it
    whole: bool  # whether it is the whole silence


class Watching(Struct, frozen=True):
    """What Prometheus saw of exporters, minute by minute from `begin` on; bytes by minute are 1 where something was so."""

    begin: float  # Unix seconds of the first minute
    minutes: int
    # minutes in which a scrape had the target's GPU time
    counted: Mapping[Who, Mapping[Scrape, bytearray]] = field(default_factory=dict)
    answered: Mapping[Scrape, bytearray] = field(default_factory=dict)  # minutes in which an exporter was scraped
    failed: Mapping[Scrape, bytearray] = field(default_factory=dict)  # minutes in which a scrape of it failed
    # minutes in which an exporter had a target of this name without counting its GPU time
    uncounted: Mapping[tuple[Scrape, str], bytearray] = field(default_factory=dict)
    # minutes in which a job had any scrape, by job and fleet
    jobs: Mapping[tuple[str, ...], bytearray] = field(default_factory=dict)
    # minutes in which anything of a fleet was scraped
    anything: Mapping[tuple[str, ...], bytearray] = field(default_factory=dict)

    def place(self, at: float) -> int:
        """The minute in which a moment lies."""
        return min(max(round((at - self.begin) / MINUTE_SECONDS), 0), self.minutes - 1)

    def list_exporters(self, silence: Silence) -> list[Scrape]:
        """Those that had the target shortly before a silence, or right after it."""
        before = self.place(silence.begin)
        looked = slice(max(0, before - round(LOOKBACK_SECONDS / MINUTE_SECONDS)), before + 1)
        after = None if silence.end is None else self.place(silence.end)
        return [
            scrape
            for scrape, there in self.counted.get(silence.who, {}).items()
            if scrape[1] and (any(there[looked]) or (after is not None and there[after]))
        ]

    def judge_minute(self, at: int, exporters: Sequence[Scrape], target: str) -> Reason:
        """Why a target has no data in a minute."""
        if any(_holds(self.uncounted.get((scrape, target)), at) for scrape in exporters):
            return Reason.UNCOUNTED
        if any(_holds(self.answered.get(scrape), at) for scrape in exporters):
            return Reason.REMOVED
        if any(_holds(self.failed.get(scrape), at) for scrape in exporters):
            return Reason.DOWN
        if any(
            _holds(self.jobs.get((job, *fleet)), at) or _holds(self.anything.get(tuple(fleet)), at)
            for job, _, *fleet in exporters
        ):
            return Reason.GONE
        return Reason.NOTHING


def _holds(minutes: bytearray | None, at: int) -> bool:
    return minutes is not None and at < len(minutes) and bool(minutes[at])


def divide_silence(silence: Silence, watching: Watching, end: float) -> list[Part]:
    """A silence as parts of one reason each, in order. `end`: where one that does not end is no longer looked at."""
    exporters = watching.list_exporters(silence)
    if not any(scrape in watching.answered or scrape in watching.failed for scrape in exporters):
        return [Part(silence, None, whole=True)]
    until = end if silence.end is None else silence.end
    first, last = watching.place(silence.begin) + 1, watching.place(until)
    reasons: list[Reason] = []
    for at in range(first, last):
        reason = watching.judge_minute(at, exporters, silence.who[1])
        # what was not there before nothing was scraped has not come since
        still = reason == Reason.NOTHING and bool(reasons) and reasons[-1].absent
        reasons.append(reasons[-1] if still else reason)
    runs = _join_short([(reason, len(list(same))) for reason, same in groupby(reasons)])
    if not runs:
        return [Part(silence, Reason.DOWN, whole=True)]
    if len(runs) == 1:
        return [Part(silence, _settle(runs[0], silence, until), whole=True)]
    parts, begin = [], silence.begin
    for number, run in enumerate(runs):
        stop = begin + run[1] * MINUTE_SECONDS
        own = replace(silence, begin=begin, end=silence.end if number == len(runs) - 1 else stop)
        parts.append(Part(own, _settle(run, own, until), whole=False))
        begin = stop
    return parts


def _settle(run: tuple[Reason, int], silence: Silence, until: float) -> Reason:
    length = (until if silence.end is None else silence.end) - silence.begin
    return Reason.DOWN if run[0] == Reason.GONE and length < _SHORTEST_ABSENCE_SECONDS else run[0]


def _join_short(runs: Iterable[tuple[Reason, int]]) -> list[tuple[Reason, int]]:
    """Runs of (reason, minutes), the short ones part of the longer one beside each."""
    left = _join_alike(runs)
    while len(left) > 1:
        at = min(range(len(left)), key=lambda index: left[index][1])
        if left[at][1] * MINUTE_SECONDS >= _SHORTEST_PART_SECONDS:
            break
        beside = [index for index in (at - 1, at + 1) if 0 <= index < len(left)]
        into = max(beside, key=lambda index: left[index][1])
        left[into] = left[into][0], left[into][1] + left[at][1]
        del left[at]
        left = _join_alike(left)
    return left


def _join_alike(runs: Iterable[tuple[Reason, int]]) -> list[tuple[Reason, int]]:
    """Neighbours as one where both are gaps, for whatever reason, or both are not."""
    found = []
    for _, same in groupby(runs, key=lambda run: run[0].absent):
        alike = list(same)
        found.append((max(alike, key=lambda run: run[1])[0], add_up(length for _, length in alike)))
    return found


def watch_exporters(
    reader: Reader,
    counted: Mapping[Who, Mapping[Scrape, bytearray]],
    silences: Sequence[Silence],
    begin: float,
    end: float,
) -> Watching:
    """Asks what became of the scrapes of silent targets' exporters. Raises ApiError."""
    watching = Watching(begin, count_minutes(begin, end), counted)
    asked = sorted({scrape for silence in silences for scrape in watching.list_exporters(silence)})
    if not asked:
        return watching
    answered: dict[Scrape, bytearray] = {}
    failed: dict[Scrape, bytearray] = {}
    uncounted: dict[tuple[Scrape, str], bytearray] = {}
    targets = {silence.who[1] for silence in silences}
    asking = reader.asking
    of_scrape = ("job", "instance", *asking.scraped_by)

    def mark(into: bytearray, points: Iterable[tuple[float, float]]) -> None:
        for at, _ in points:
            into[watching.place(at)] = 1

    for some in _chunk(asked):
        for labels, points in reader.by_minute(asking.answers(some), begin, end):
            scrape = read_labels(labels, of_scrape)
            for into, wanted in ((answered, True), (failed, False)):
                mark(
                    into.setdefault(scrape, bytearray(watching.minutes)),
                    (point for point in points if bool(point[1]) == wanted),
                )
        for labels, points in reader.by_minute(asking.uncounted(some), begin, end):
            scrape, target = read_labels(labels, of_scrape), labels.get("target", "")
            if target in targets:
                mark(uncounted.setdefault((scrape, target), bytearray(watching.minutes)), points)
    jobs: dict[tuple[str, ...], bytearray] = {}
    for labels, points in reader.by_minute(asking.scraped_jobs(sorted({scrape[0] for scrape in asked})), begin, end):
        of_job = read_labels(labels, ("job", *asking.scraped_by))
        mark(jobs.setdefault(of_job, bytearray(watching.minutes)), points)
    for scrape in asked:
        # a label of the targets alone: `up` tells no fleets apart by it
        bare = *scrape[:2], *("" for _ in scrape[2:])
        for into in (answered, failed):
            if scrape not in into and bare in into:
                into[scrape] = into[bare]
        if (job := (scrape[0], *scrape[2:])) not in jobs and (bare_job := (bare[0], *bare[2:])) in jobs:
            jobs[job] = jobs[bare_job]
    found = replace(watching, answered=answered, failed=failed, uncounted=uncounted, jobs=jobs)
    alone = any(part.reason == Reason.NOTHING for silence in silences for part in divide_silence(silence, found, end))
    return replace(found, anything=_watch_anything(reader, found, end)) if alone else found


def _watch_anything(reader: Reader, watching: Watching, end: float) -> dict[tuple[str, ...], bytearray]:
    found: dict[tuple[str, ...], bytearray] = {}
    each = round(_ANYTHING_SECONDS / MINUTE_SECONDS)
    for labels, points in reader.by_minute(reader.asking.scraped_at_all(), watching.begin, end, _ANYTHING_SECONDS):
        fleet = read_labels(labels, reader.asking.scraped_by)
        minutes = found.setdefault(fleet, bytearray(watching.minutes))
        for at, _ in points:
            place = watching.place(at)
            # an instant query looks back as long as the step is
            minutes[max(0, place - each + 1) : place + 1] = b"\1" * min(each, place + 1)
    return found


def read_labels(labels: Labels, names: Sequence[str]) -> tuple[str, ...]:
    """The values of labels, "" where a series has none."""
    return tuple(labels.get(name, "") for name in names)


def count_minutes(begin: float, end: float) -> int:
    """Minutes from `begin` to `end`, both counted."""
    return int((end - begin) // MINUTE_SECONDS) + 1


def _chunk(scrapes: Sequence[Scrape]) -> Iterator[Sequence[Scrape]]:
    for at in range(0, len(scrapes), _ASKED_AT_ONCE):
        yield scrapes[at : at + _ASKED_AT_ONCE]
