"""Looks at both edges of a silence: its exact moments, and what counters grew by."""

from __future__ import annotations

from math import fsum

from llm_serving_exporter.model.record import Struct, replace
from llm_serving_review.evidence.fetch import MINUTE_SECONDS, Reader
from llm_serving_review.evidence.gaps import LOOKBACK_SECONDS, Growth, Silence, crosses_hour, measure_growth
from llm_serving_review.evidence.presence import Part
from llm_serving_review.evidence.usage import Usage
from llm_serving_review.evidence.week import Week


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
