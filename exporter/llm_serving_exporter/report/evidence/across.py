"""Looks at both edges of a silence: its exact moments, what counters grew by, and whether Prometheus still scraped the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from llm_serving_exporter.clients.prometheus import Sample
from llm_serving_exporter.report.evidence.fetch import MINUTE_SECONDS, Reader
from llm_serving_exporter.report.evidence.gaps import LOOKBACK_SECONDS, Growth, Silence, crosses_hour, measure_growth
from llm_serving_exporter.report.evidence.usage import Usage
from llm_serving_exporter.report.evidence.week import HOUR_SECONDS, Week

# a shorter silence is a gap whoever was scraped in it
_SHORTEST_ABSENCE_SECONDS = 1800.0
# so long after data ended it is looked whether others were scraped: all scrapes of days are too many samples
_OTHERS_SECONDS = 6 * HOUR_SECONDS
_ALL = 0.9


@dataclass(frozen=True, slots=True)
class Across:
    """A silence with its exact edges, and what the counters show across it."""

    # with the moments of the last sample before it and the first after it
    silence: Silence
    # what the counters grew by in between
    growth: Growth
    # whether the target was taken away, so that the silence is no gap
    left: bool = False
    # whether nothing shows if the target was taken away or its exporter was down
    unsure: bool = False


def measure_across(reader: Reader, silence: Silence, until: float) -> Across:
    """Measures a silence at its edges. `until`: where to stop looking at a silence that does not end. Raises ApiError."""
    ask, asking = reader.prometheus, reader.asking
    own = [*silence.who[0], ("target", silence.who[1])]
    query = asking.everything_of(own)

    def taken(at: float, seconds: float) -> list[float]:
        return [when for _, points in ask.raw(asking.samples(own, seconds), at) for when, _ in points]

    begin = max(taken(silence.begin, LOOKBACK_SECONDS + 1), default=silence.begin)
    silence = replace(silence, begin=begin)
    before = ask.instant(query, begin)
    if silence.end is None:
        grown = measure_growth(before, (), asking.identity, asking.extra)
        return _judge_end(reader, silence, grown, before, until) if silence.alone else Across(silence, grown)
    end = min((at for at in taken(silence.end, MINUTE_SECONDS + 1) if at > begin), default=silence.end)
    grown = measure_growth(before, ask.instant(query, end), asking.identity, asking.extra)
    return Across(replace(silence, end=end), grown, _has_left(reader, before, begin, end))


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
    held = sum(
        line.hours[index] or 0.0
        for line in mine
        if all(line.owner.label(name) == value for name, value in silence.who[0])
    )
    return abs(held - since - growing) < abs(held - alone)


def _judge_end(reader: Reader, silence: Silence, grown: Growth, before: Sequence[Sample], until: float) -> Across:
    """A silence that does not end, while others have data. If Prometheus still tried to scrape, the exporter was down; otherwise the target
    was taken away."""
    begin, length = silence.begin, until - silence.begin - 2 * MINUTE_SECONDS
    scrapes = _list_scrapes(before)
    # of an hour: one scrape more or less is no matter in it
    usual = _scrapes_per_second(reader, scrapes, begin, HOUR_SECONDS) if scrapes else 0.0
    if not usual or length <= 0:
        return Across(silence, grown, left=True, unsure=True)
    tried = _count_scrapes(reader, scrapes, until - MINUTE_SECONDS, length) / usual
    if tried > _ALL * length:
        return Across(silence, grown)
    if tried >= _SHORTEST_ABSENCE_SECONDS:
        # in vain for a while, then no more
        return Across(replace(silence, end=begin + tried), grown)
    looked = min(length, _OTHERS_SECONDS)
    others = _count_scrapes(reader, (), begin + MINUTE_SECONDS + looked, looked)
    return Across(silence, grown, left=True, unsure=others <= usual * looked / 2)


def _has_left(reader: Reader, before: Sequence[Sample], begin: float, end: float) -> bool:
    """Whether the target was taken away: Prometheus scraped others and did not even try this one.

    With a dead exporter scrapes fail, with a dead Prometheus there are none at all: both are gaps, and so is everything unknown.
    """
    scrapes = _list_scrapes(before)
    if end - begin < _SHORTEST_ABSENCE_SECONDS or not scrapes:
        return False
    usual = _scrapes_per_second(reader, scrapes, begin, 2 * LOOKBACK_SECONDS)
    inside = end - begin - 2 * MINUTE_SECONDS
    own, any_ = (_count_scrapes(reader, whom, end - MINUTE_SECONDS, inside) for whom in (scrapes, ()))
    return usual > 0 and any_ > usual * inside / 2 and own < any_ / 2


def _list_scrapes(before: Sequence[Sample]) -> list[tuple[str, str]]:
    return sorted({(of["job"], of["instance"]) for of, _ in before if "job" in of and "instance" in of})


def _scrapes_per_second(reader: Reader, scrapes: Sequence[tuple[str, str]], at: float, seconds: float) -> float:
    """Scrapes a second, over so many seconds while there were data."""
    return _count_scrapes(reader, scrapes, at, seconds) / seconds


def _count_scrapes(reader: Reader, whom: Sequence[tuple[str, str]], at: float, seconds: float) -> float:
    return reader.prometheus.value(reader.asking.scraped(whom, seconds), at) or 0.0
