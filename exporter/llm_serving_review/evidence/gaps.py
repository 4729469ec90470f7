"""Times without data: what became of each scrape, which of them are gaps, and what counters grew by across them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import groupby, pairwise
from math import fsum

from llm_serving_exporter.clients.json_api import Labels, Sample
from llm_serving_exporter.clients.stored_labels import read_label
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct, field, replace
from llm_serving_review.evidence import names
from llm_serving_review.evidence.fetch import MINUTE_SECONDS, Reader, add_hours, find_owner
from llm_serving_review.evidence.names import Quantity
from llm_serving_review.evidence.usage import Extra, Gap, Hours, Line, Owner, Usage
from llm_serving_review.evidence.week import HOUR_SECONDS, Week
from llm_serving_review.tables.sums import sum_by_key

# --- Minutes in which a target had data -> gaps; counters at both edges of a gap -> what they grew by across it. Pure.


# an instant query looks back so far, so that whatever fell silent is seen that much longer
LOOKBACK_SECONDS = 300.0
# counters that show more GPU time than the GPUs had are another process' counters
_POSSIBLE = 1.05
Who = tuple[Extra, str]
# runs of minutes with samples, the first and the last of each, ascending
Presence = Mapping[Who, Sequence[tuple[float, float]]]


class Silence(Struct, frozen=True):
    """A time without data of a target, to the minute: it may begin five minutes late and end one minute late. Unix seconds."""

    who: Who  # identity labels and name of the target
    begin: float  # the last minute with data
    end: float | None  # the first minute with data again; None where there is none
    alone: bool = False  # whether other targets still had data


def find_silences(presence: Presence, end: float) -> list[Silence]:
    """Minutes without data between two with data, and from a target's last minute to `end`."""
    found = []
    last = max((runs[-1][1] for runs in presence.values() if runs), default=0.0)
    for who, runs in presence.items():
        found += [Silence(who, seen, seen_again) for (_, seen), (seen_again, _) in pairwise(runs)]
        if runs and runs[-1][1] < end - LOOKBACK_SECONDS:
            found.append(Silence(who, runs[-1][1], None, alone=runs[-1][1] <= last - LOOKBACK_SECONDS))
    return sorted(found, key=lambda silence: (silence.begin, silence.who))


def clip_to_week(silence: Silence, week: Week) -> Gap | None:
    """The part of a silence that lies in a week; None for no part."""
    begin = max(silence.begin, week.begin)
    end = week.end if silence.end is None else min(silence.end, week.end)
    if end <= begin:
        return None
    return Gap(*silence.who, begin, end, silence.end is not None and silence.end <= week.end)


def crosses_hour(silence: Silence, week: Week) -> bool:
    """Whether no hour has samples from both sides, so that no hourly increase contains what was counted in between."""
    if silence.end is None:
        return True
    offset = week.begin % HOUR_SECONDS
    return (silence.begin - offset) // HOUR_SECONDS != (silence.end - offset) // HOUR_SECONDS


class Growth(Struct, frozen=True):
    """What the counters of a target show across a silence."""

    lines: Mapping[str, Mapping[tuple[Owner, tuple[str, ...]], float]]  # growth by quantity, then by owner and labels
    gpus: float | None  # the target's GPUs before it; None where that is unknown
    usd_per_gpu_hour: float | None  # their mean price before it; None where that is unknown

    @property
    def gpu_seconds(self) -> float:
        """Of all states."""
        return fsum(self.lines.get(names.GPU_SECONDS.name, {}).values())


def measure_growth(
    before: Iterable[Sample], after: Iterable[Sample], identity: Sequence[str], extra: Sequence[str]
) -> Growth:
    """Growth from all series of a target at both edges. As in `increase`, a counter that fell began again at 0."""
    first = {_key(labels): value for labels, value in before}
    by_name = {names.exported(quantity.counter): quantity for quantity in names.QUANTITIES}
    best: dict[tuple[Quantity, tuple[str, ...]], tuple[float, Labels]] = {}
    for labels, value in after:
        quantity = by_name.get(labels.get("__name__", ""))
        if quantity is None:
            continue
        old = first.get(_key(labels), 0.0)
        grown = value - old if value >= old else value
        whose = (read_label(labels, name) for name in extra)
        alike = (*whose, *(labels.get(name, "") for name in (*names.TARGET, *quantity.alike, *quantity.of)))
        if (quantity, alike) not in best or best[quantity, alike][0] < grown:
            best[quantity, alike] = grown, labels
    grown_by_key = sum_by_key(
        ((quantity.name, find_owner(labels, extra), tuple(labels.get(label, "") for label in quantity.of)), grown)
        for (quantity, _), (grown, labels) in best.items()
    )
    lines: dict[str, dict[tuple[Owner, tuple[str, ...]], float]] = {}
    for (name, owner, of), grown in grown_by_key.items():
        lines.setdefault(name, {})[owner, of] = grown
    kinds: dict[str, float] = {}
    prices = []
    for labels_key, value in first.items():
        own = dict(labels_key)
        if own.get("__name__") == names.exported(names.TARGET_GPUS):
            kinds[own.get("gpu_name", "")] = max(value, kinds.get(own.get("gpu_name", ""), 0.0))
        elif own.get("__name__") == names.exported(names.PRICE):
            prices.append(value)
    return Growth(lines, fsum(kinds.values()) if kinds else None, fsum(prices) / len(prices) if prices else None)


def describe_gap(gap: Gap, silence: Silence, grown: Growth | None, week: Week) -> Gap:
    """The gap with what is known about it. Growth that the GPUs cannot have had is ignored."""
    if grown is None:
        return gap
    gap = replace(gap, gpus=grown.gpus, usd_per_gpu_hour=grown.usd_per_gpu_hour)
    if silence.end is None or not _is_possible(silence, grown):
        return gap
    share = (gap.end - gap.begin) / (silence.end - silence.begin)
    gap = replace(gap, seen_gpu_seconds=share * grown.gpu_seconds)
    if not crosses_hour(silence, week):
        return gap
    return replace(gap, recovered={name: share * fsum(lines.values()) for name, lines in grown.lines.items()})


def add_recovered(
    usage: Usage, gap: Gap, silence: Silence, grown: Growth, week: Week, *, booked: bool = False
) -> Usage:
    """The usage with what counters grew by across a gap, spread evenly over it. `booked`: the hour in which data came back contains all of
    that growth, so it is taken out of that hour."""
    if not (gap.recovered or booked) or silence.end is None:
        return usage
    length = silence.end - silence.begin
    shares = [0.0] * len(week.hours)
    if gap.recovered:
        shares = [max(0.0, min(hour.end, gap.end) - max(hour.begin, gap.begin)) / length for hour in week.hours]
    if booked:
        for index, hour in enumerate(week.hours):
            if hour.begin < silence.end <= hour.end:
                shares[index] -= 1.0
    changed = {}
    for name, lines in grown.lines.items():
        known = {(line.owner, line.of): line for line in getattr(usage, name)}
        for (owner, of), value in lines.items():
            if value:
                more: Hours = tuple(value * share if share else None for share in shares)
                line = known.get((owner, of))
                # no hour holds less than nothing
                hours = add_hours(line.hours, more) if line else more
                known[owner, of] = Line(owner, of, tuple(None if one is None else max(0.0, one) for one in hours))
        changed[name] = tuple(known.values())
    return replace(usage, **changed)


def _is_possible(silence: Silence, grown: Growth) -> bool:
    assert silence.end is not None
    return (
        grown.gpus is None
        or grown.gpu_seconds <= _POSSIBLE * grown.gpus * (silence.end - silence.begin) + MINUTE_SECONDS
    )


def _key(labels: Labels) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))


# --- What became of each scrape, minute by minute -> which part of a silence is a gap, and in which the target was not there.
#
# A target of an exporter that lives on was removed where that exporter was scraped and no longer had it. One that goes with its exporter
# (a sidecar) was removed where Prometheus no longer had the exporter but scraped others. A scrape that failed, and time in which nothing
# was scraped at all, are gaps.


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
        for labels, points in reader.read_by_minute(asking.answers(some), begin, end):
            scrape = read_labels(labels, of_scrape)
            for into, wanted in ((answered, True), (failed, False)):
                mark(
                    into.setdefault(scrape, bytearray(watching.minutes)),
                    (point for point in points if bool(point[1]) == wanted),
                )
        for labels, points in reader.read_by_minute(asking.uncounted(some), begin, end):
            scrape, target = read_labels(labels, of_scrape), labels.get("target", "")
            if target in targets:
                mark(uncounted.setdefault((scrape, target), bytearray(watching.minutes)), points)
    jobs: dict[tuple[str, ...], bytearray] = {}
    for labels, points in reader.read_by_minute(
        asking.scraped_jobs(sorted({scrape[0] for scrape in asked})), begin, end
    ):
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
    for labels, points in reader.read_by_minute(reader.asking.scraped_at_all(), watching.begin, end, _ANYTHING_SECONDS):
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


# --- Looks at both edges of a silence: its exact moments, and what counters grew by.


class Across(Struct, frozen=True):
    """A silence with its exact edges, and what the counters show across it."""

    silence: Silence  # with the moments of the last sample before it and the first after it
    growth: Growth  # what the counters grew by in between


def measure_across(reader: Reader, part: Part) -> Across:
    """Measures a silence at its edges; of a part of one, only what was there before it. Raises ApiError."""
    ask, asking, silence = reader.prometheus, reader.asking, part.silence
    own = [*silence.who[0], ("target", silence.who[1])]
    query = asking.everything_of(own)

    def taken(at: float, seconds: float) -> list[float]:
        return [when for _, points in ask.raw(asking.samples(own, seconds), at) for when, _ in points]

    begin = max(taken(silence.begin, LOOKBACK_SECONDS + 1), default=silence.begin)
    exact = replace(silence, begin=begin)
    before = ask.instant(query, begin)
    if silence.end is None or not part.whole:
        return Across(exact, measure_growth(before, (), asking.identity, asking.extra))
    end = min((at for at in taken(silence.end, MINUTE_SECONDS + 1) if at > begin), default=silence.end)
    return Across(
        replace(exact, end=end), measure_growth(before, ask.instant(query, end), asking.identity, asking.extra)
    )


def is_booked(reader: Reader, usage: Usage, silence: Silence, grown: Growth, week: Week) -> bool:
    """Whether the hour in which data came back already contains the growth across the silence. VictoriaMetrics' increase() begins at the
    last sample before the hour, however old, as far as its query reaches; that of Prometheus begins at the first sample within the
    hour. Raises ApiError."""
    end, growing = silence.end, grown.gpu_seconds
    index = next((index for index, hour in enumerate(week.hours) if end and hour.begin < end <= hour.end), None)
    if end is None or index is None or not growing or not crosses_hour(silence, week):
        return False
    asking, hour_end = reader.asking, week.hours[index].end
    own = [*silence.who[0], ("target", silence.who[1])]
    points = reader.prometheus.raw(asking.samples(own, hour_end - end + MINUTE_SECONDS), hour_end)
    after = [(of, [point for point in each if point[0] >= end]) for of, each in points]
    first, last = ([(of, each[at][1]) for of, each in after if each] for at in (0, -1))
    since = measure_growth(first, last, asking.identity, asking.extra).gpu_seconds
    seen_until = max((each[-1][0] for _, each in after if each), default=end)
    # what an increase that begins after the silence has: up to the hour's end, as far as it goes on alike
    alone = since + growing / (end - silence.begin) * (hour_end - seen_until)
    mine = (line for line in usage.gpu_seconds if line.owner.target == silence.who[1])
    held = fsum(
        line.hours[index] or 0.0
        for line in mine
        if all(line.owner.label(name) == value for name, value in silence.who[0])
    )
    return abs(held - since - growing) < abs(held - alone)
