"""Both weeks side by side: which hours are compared with each other, and what came, went, was scaled and moved. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from functools import cache
from math import fsum
from typing import NamedTuple
from zoneinfo import ZoneInfo

from llm_serving_exporter.model.record import Struct, field, replace
from llm_serving_exporter.render.numbers import hours as hours_text
from llm_serving_review.evidence.usage import Book, Evidence, Gap, Gauge, Line, Owner, Place, Usage
from llm_serving_review.evidence.week import Week
from llm_serving_review.figures.rates import GpuKinds, LastPrices, split_prices, sum_bills
from llm_serving_review.tables.sums import group_by_key, sum_by_key

# --- Which hours of both weeks are compared with each other: what came and went, and what only one of the weeks knows, is taken out. Pure.
#
# An hour of one week stands beside the same hour of the same day in the other.


_COMPARED = ("cost", "gpu_seconds", "prefill_tokens", "decode_tokens")

# of an owner by hour: whether it is known, and how much of it is compared; None for all of it
Share = tuple[list[bool], list[float]] | None


class Unit(NamedTuple):
    """A workload or a target, with what it serves."""

    fleet: tuple[str, ...]  # values of the identity labels
    is_workload: bool  # whether it is a workload
    name: str
    model_name: str  # "" where it is unknown
    role: str  # unified, prefill, decode or frontend


class Matched(Struct, frozen=True):
    """One week of the two, divided into what is compared and what is not."""

    usage: Usage  # only what is compared
    alone_usd: Mapping[Owner, float] = field(default_factory=dict)  # USD of what only this week had, by owner
    # USD of hours that the other week does not know, or this one knows in part, by owner
    left_out_usd: Mapping[Owner, float] = field(default_factory=dict)
    # targets that took the place of others under another name, or whose place others took: what all of them are called together
    replaced: Mapping[Unit, str] = field(default_factory=dict)


class Units(Struct, frozen=True):
    """What a target counts as in both weeks: its workload, where that is known, else the target itself."""

    workloads: Mapping[Place, frozenset[str]]  # by target: the workloads that it belonged to in either week
    identity: tuple[str, ...] = ()  # labels that tell fleets apart

    def unit_of(self, owner: Owner) -> Unit:
        """The workload, or the target where it has none or changed it, with its model and role."""
        fleet, target = owner.place(self.identity)
        known = self.workloads.get((fleet, target), frozenset())
        name = next(iter(known)) if len(known) == 1 else target
        return Unit(fleet, len(known) == 1, name, owner.model_name, owner.role)


def find_units(book: Book, book_before: Book, identity: Sequence[str]) -> Units:
    """Units by the workloads of both weeks."""
    found: dict[Place, set[str]] = {}
    for gauge in (*book.workloads, *book_before.workloads):
        name = "/".join(filter(None, (gauge.labels.get("namespace", ""), gauge.labels["workload"])))
        found.setdefault(gauge.place(identity), set()).add(name)
    return Units({place: frozenset(names) for place, names in found.items()}, tuple(identity))


def match_weeks(evidence: Evidence, before: Usage, after: Usage, units: Units) -> tuple[Matched, Matched]:
    """Both weeks, that before first. Usage is as it counts."""
    weeks, usages = (evidence.previous, evidence.week), (before, after)
    other = tuple(_map_hours(weeks[index], weeks[1 - index]) for index in (0, 1))
    unknown = tuple(
        _find_unknown_hours(week, usage, gaps, begins, units)
        for week, usage, gaps, begins in (
            (evidence.previous, before, evidence.gaps_before or (), evidence.begins_before),
            (evidence.week, after, evidence.gaps or (), evidence.begins),
        )
    )
    spans = tuple(find_spans(usage, units) for usage in usages)
    # a unit of which data begin with those of all may have been there before
    begins = evidence.begins_before
    first = {unit: 0 if hours[0] <= begins else hours[0] for unit, hours in spans[0].items()}
    last = {unit: hours[1] for unit, hours in spans[1].items()}
    replaced = _share_replaced(usages, units)
    found = []
    for index in (0, 1):

        @cache
        def share(owner: Owner, index: int = index) -> Share:
            unit, place, hours = units.unit_of(owner), owner.place(units.identity), other[index]
            seen = [
                not (unknown[index](place, hour) or (there is not None and unknown[1 - index](place, there)))
                for hour, there in enumerate(hours)
            ]
            edge = first.get(unit) if index else last.get(unit)
            if unit in replaced[index] or edge is None:
                part = [replaced[index].get(unit, 0.0)] * len(hours)
            else:
                part = [float(there is None or (there >= edge if index else there <= edge)) for there in hours]
            return None if all(seen) and all(of == 1 for of in part) else (seen, part)

        found.append(replace(_divide(usages[index], share), replaced=_name_replaced(replaced, index)))
    return found[0], found[1]


def _name_replaced(replaced: tuple[dict[Unit, float], dict[Unit, float]], index: int) -> dict[Unit, str]:
    """The targets of both weeks by one name: "2 targets in place of 3"."""
    counts: dict[Unit, list[int]] = {}
    for week in (0, 1):
        for unit in replaced[week]:
            counts.setdefault(_group(unit), [0, 0])[week] += 1
    return {
        unit: "{1} new target{2} in place of {0}".format(
            *counts[_group(unit)], "" if counts[_group(unit)][1] == 1 else "s"
        )
        for unit in replaced[index]
    }


def _divide(usage: Usage, share: Callable[[Owner], Share]) -> Matched:
    alone: list[tuple[Owner, float]] = []
    left_out: list[tuple[Owner, float]] = []
    kept: dict[str, tuple[Line, ...]] = {}
    for name in _COMPARED:
        lines = []
        for line in getattr(usage, name):
            found = share(line.owner)
            if found is None:
                lines.append(line)
                continue
            seen, part = found
            hours = tuple(
                None if value is None or not sees else value * of
                for value, sees, of in zip(line.hours, seen, part, strict=True)
            )
            lines.append(Line(line.owner, line.of, hours))
            hidden = fsum(value for value, sees in zip(line.hours, seen, strict=True) if value is not None and not sees)
            if name == "cost":
                left_out.append((line.owner, hidden))
                alone += [(line.owner, line.total), (line.owner, -hidden), (line.owner, -lines[-1].total)]
        kept[name] = tuple(lines)
    return Matched(
        Usage(kept["cost"], kept["gpu_seconds"], kept["prefill_tokens"], kept["decode_tokens"]),
        sum_by_key(alone),
        sum_by_key(left_out),
    )


def _map_hours(week: Week, other: Week) -> list[int | None]:
    """By hour of a week: the same hour of the other one; None where it has no such hour."""
    places: dict[tuple[int, int, int], int] = {}
    for index, key in enumerate(_list_clock(other)):
        places[key] = index
    return [places.get(key) for key in _list_clock(week)]


def _list_clock(week: Week) -> Iterable[tuple[int, int, int]]:
    """Day, hour of the clock, and which of that name: clocks that are put back show an hour twice."""
    seen: dict[tuple[int, int], int] = {}
    for hour in week.hours:
        number = seen.get((hour.day, hour.hour), 0)
        seen[hour.day, hour.hour] = number + 1
        yield hour.day, hour.hour, number


def _find_unknown_hours(
    week: Week, usage: Usage, gaps: Iterable[Gap], begins: int, units: Units
) -> Callable[[Place, int], bool]:
    hidden: set[tuple[Place, int]] = set()
    for gap in gaps:
        if gap.hides_use:
            hidden |= {
                (gap.place(units.identity), index)
                for index, hour in enumerate(week.hours)
                if gap.begin < hour.end and hour.begin < gap.end
            }
    for line in usage.gpu_seconds:
        if not line.of[1]:
            hidden |= {(line.owner.place(units.identity), index) for index, value in enumerate(line.hours) if value}
    return lambda place, hour: hour < begins or (place, hour) in hidden


def _find_hours(lines: Iterable[Line], name: Callable[[Owner], Unit]) -> dict[Unit, dict[str, set[int]]]:
    """By unit and target: the hours in which it was there."""
    found: dict[Unit, dict[str, set[int]]] = {}
    for line in lines:
        if there := {index for index, value in enumerate(line.hours) if value}:
            found.setdefault(name(line.owner), {}).setdefault(line.owner.target, set()).update(there)
    return found


def find_spans(usage: Usage, units: Units) -> dict[Unit, tuple[int, int]]:
    """The first and the last hour of each unit."""
    there = _find_hours((*usage.cost, *usage.gpu_seconds), units.unit_of)
    return {unit: (min(map(min, each.values())), max(map(max, each.values()))) for unit, each in there.items()}


def _share_replaced(usages: tuple[Usage, Usage], units: Units) -> tuple[dict[Unit, float], dict[Unit, float]]:
    """Of targets that only one of the weeks had: the share of each that took the place of others, or that others took the place of.

    A rollout gives every replica another name, and nothing but the model and role says that it is the same thing. Hours for which a
    target was there count, whatever its GPUs.
    """
    hours = tuple(_find_hours(usage.gpu_seconds, units.unit_of) for usage in usages)
    only = tuple(
        {
            unit: float(sum(map(len, each.values())))
            for unit, each in hours[index].items()
            if unit not in hours[1 - index]
        }
        for index in (0, 1)
    )
    found: tuple[dict[Unit, float], dict[Unit, float]] = ({}, {})
    sums = [sum_by_key((_group(unit), length) for unit, length in each.items()) for each in only]
    for index in (0, 1):
        for unit in only[index]:
            both = [each.get(_group(unit), 0.0) for each in sums]
            if min(both) > 0:
                found[index][unit] = min(both) / both[index]
    return found


def _group(unit: Unit) -> Unit:
    """Targets that can take each other's place: of one fleet, model and role. A workload is a place of its own."""
    return unit if unit.is_workload else unit._replace(name="")


# --- What came, went, was scaled and moved between two weeks, each with its USD. Pure.


# of its GPU-hours: less is a restart, not a decision
_LEAST_SCALED = 0.02
_LEAST_HOURS = 1.0
# less is nothing, in cents
_LEAST_USD = 0.005


class Kind(StrEnum):
    """What happened to a target or a workload."""

    CAME = "came"
    WENT = "went"
    SCALED = "scaled"
    MOVED = "moved"


class Movement(Struct, frozen=True):
    """What happened to one target or workload."""

    kind: Kind  # came, went, was scaled or moved
    name: str  # the workload with its namespace, or the target
    model_name: str  # what it serves; "" where that is unknown
    detail: str  # from when to when, or from what to what
    # what it changed: came and went are a part of the split; scaled is within volume, mix, idle and efficiency, moved within prices
    usd: float
    replicas: float = 0.0  # replicas that moved, as a mean over the time that they were there; 0 for other kinds


class Compared(Struct, frozen=True):
    """What movements are found in; of pairs the week before is first."""

    evidence: Evidence
    units: Units  # what a target counts as
    matched: tuple[Matched, Matched]  # both weeks, divided
    kinds: tuple[GpuKinds, GpuKinds]  # kinds of GPU in both weeks
    last: LastPrices  # prices of the week before

    def join_place(self, owner: Owner) -> Unit:
        """Targets that took each other's place under other names are one thing: "3 targets" of their model."""
        unit = self.units.unit_of(owner)
        count = self.matched[0].replaced.get(unit) or self.matched[1].replaced.get(unit)
        return unit if count is None else unit._replace(name=count)


def list_movements(compared: Compared) -> tuple[Movement, ...]:
    """All of them, the largest amount first."""
    found = [*_list_came_and_went(compared), *_list_changes(compared)]
    return tuple(sorted(found, key=lambda one: (-abs(one.usd), one.kind, one.name)))


def _list_came_and_went(compared: Compared) -> Iterable[Movement]:
    evidence = compared.evidence
    weeks = evidence.previous, evidence.week
    spans = [find_spans(usage, compared.units) for usage in (evidence.usage_before, evidence.usage)]
    for index, kind, since in ((1, Kind.CAME, "since"), (0, Kind.WENT, "until")):
        alone = compared.matched[index].alone_usd
        for unit, usd in sum_by_key((compared.units.unit_of(owner), usd) for owner, usd in alone.items()).items():
            if usd >= _LEAST_USD:
                # a unit of both weeks came in the one before, or went in this one
                at = 1 - index if unit in spans[1 - index] else index
                hour = _write_hour(weeks[at], spans[at][unit][1 - index], end=kind == Kind.WENT)
                yield Movement(kind, unit.name, unit.model_name, f"{since} {hour}", usd if index else -usd)


def _list_changes(compared: Compared) -> Iterable[Movement]:
    """Units of both weeks, and targets that took the place of others under another name."""
    old, new = (
        sum_bills(week.usage, of, compared.join_place)
        for week, of in zip(compared.matched, compared.kinds, strict=True)
    )
    nodes = tuple(
        _collect_nodes(book.nodes, week.usage, compared)
        for book, week in zip((compared.evidence.book_before, compared.evidence.book), compared.matched, strict=True)
    )
    replicas = _count_replicas(compared)
    for unit in sorted(old.keys() & new.keys()):
        was, now = old[unit], new[unit]
        mean = was.mean_price
        if mean is None or not now.all_hours:
            continue
        more = now.all_hours - was.all_hours
        if abs(more) > max(_LEAST_HOURS, _LEAST_SCALED * was.all_hours):
            detail = f"from {hours_text(was.all_hours)} to {hours_text(now.all_hours)} GPU-hours"
            yield Movement(Kind.SCALED, unit.name, unit.model_name, detail, more * mean)
        price = split_prices(was, now, compared.last)
        ways = []
        if "" in (*was.kinds(), *now.kinds()):
            pass
        elif not set(was.kinds()) & set(now.kinds()):
            ways.append(f"from {' and '.join(was.kinds())} to {' and '.join(now.kinds())}")
        elif was.kinds()[0] != now.kinds()[0]:
            ways.append(f"mostly from {was.kinds()[0]} to {now.kinds()[0]}")
        before, after = (one.get(unit, frozenset()) for one in nodes)
        if before and after and not before & after:
            ways.append(f"from {_name(before)} to {_name(after)}")
        workloads = compared.units.workloads.get((unit.fleet, unit.name), frozenset())
        if not unit.is_workload and len(workloads) > 1:
            ways.append(f"between workloads {_name(workloads)}")
        if ways:
            yield Movement(
                Kind.MOVED,
                unit.name,
                unit.model_name,
                ", ".join(ways),
                price.rate + price.hardware,
                replicas.get(unit, 0.0),
            )


def _count_replicas(compared: Compared) -> dict[Unit, float]:
    """Targets of each unit this week, as a mean over the time that any was there."""
    there = _find_hours(compared.matched[1].usage.gpu_seconds, compared.join_place)
    return {unit: sum(map(len, each.values())) / len(set().union(*each.values())) for unit, each in there.items()}


def _collect_nodes(gauges: Iterable[Gauge], usage: Usage, compared: Compared) -> Mapping[Unit, frozenset[str]]:
    """The nodes of each unit."""
    units = compared.units
    of_place = group_by_key((gauge.place(units.identity), gauge.label("node")) for gauge in gauges)
    found: dict[Unit, set[str]] = {}
    for line in usage.gpu_seconds:
        if line.total:
            unit = compared.join_place(line.owner)
            found.setdefault(unit, set()).update(of_place.get(line.owner.place(units.identity), ()))
    return {unit: frozenset(values) for unit, values in found.items()}


def _write_hour(week: Week, hour: int, *, end: bool = False) -> str:
    of = week.hours[hour]
    return f"{datetime.fromtimestamp(of.end if end else of.begin, ZoneInfo(week.zone)):%a %-d %b %H:%M}"


def _name(values: Iterable[str]) -> str:
    shown = sorted(values)
    return ", ".join(shown[:3]) + (f" and {len(shown) - 3} more" if len(shown) > 3 else "")
