"""Minutes in which a target had data -> gaps; counters at both edges of a gap -> what they grew by across it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import fsum

from llm_serving_exporter.clients.prometheus import Labels, Sample
from llm_serving_exporter.clients.stored_labels import read_label
from llm_serving_exporter.model.record import Struct, replace
from llm_serving_review.evidence import names
from llm_serving_review.evidence.fetch import MINUTE_SECONDS, add_hours, owner_of
from llm_serving_review.evidence.names import Quantity
from llm_serving_review.evidence.usage import Extra, Gap, Hours, Line, Owner, Usage
from llm_serving_review.evidence.week import HOUR_SECONDS, Week
from llm_serving_review.tables.sums import sum_by_key

# an instant query looks back so far, so that whatever fell silent is seen that much longer
LOOKBACK_SECONDS = 300.0
# counters that show more GPU time than the GPUs had are another process' counters
_POSSIBLE = 1.05
Who = tuple[Extra, str]
# minutes at which there was a sample, ascending
Presence = Mapping[Who, Sequence[float]]


class Silence(Struct, frozen=True):
    """A time without data of a target, to the minute: it may begin five minutes late and end one minute late. Unix seconds."""

    who: Who  # identity labels and name of the target
    begin: float  # the last minute with data
    end: float | None  # the first minute with data again; None where there is none
    alone: bool = False  # whether other targets still had data


def find_silences(presence: Presence, end: float) -> list[Silence]:
    """Minutes without data between two with data, and from a target's last minute to `end`."""
    found = []
    last = max((minutes[-1] for minutes in presence.values() if minutes), default=0.0)
    for who, minutes in presence.items():
        for seen, seen_again in pairwise(minutes):
            if seen_again - seen > 1.5 * MINUTE_SECONDS:
                found.append(Silence(who, seen, seen_again))
        if minutes and minutes[-1] < end - LOOKBACK_SECONDS:
            found.append(Silence(who, minutes[-1], None, alone=minutes[-1] <= last - LOOKBACK_SECONDS))
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
        ((quantity.name, owner_of(labels, extra), tuple(labels.get(label, "") for label in quantity.of)), grown)
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
