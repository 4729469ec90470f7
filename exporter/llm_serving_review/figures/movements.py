"""What came, went, was scaled and moved between two weeks, each with its USD. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from zoneinfo import ZoneInfo

from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.render.numbers import hours as hours_text
from llm_serving_review.evidence.usage import Evidence, Gauge, Usage
from llm_serving_review.evidence.week import Week
from llm_serving_review.figures.gpu_prices import GpuKinds, LastPrices, split_prices, sum_bills
from llm_serving_review.figures.matching import Matched, Place, Unit, Units, find_spans
from llm_serving_review.figures.rates import fleet_of_gauge
from llm_serving_review.tables.sums import sum_by_key

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


def list_movements(compared: Compared) -> tuple[Movement, ...]:
    """All of them, the largest amount first."""
    found = [*_list_came_and_went(compared), *_list_changes(compared)]
    return tuple(sorted(found, key=lambda one: (-abs(one.usd), one.kind, one.name)))


def _list_came_and_went(compared: Compared) -> Iterable[Movement]:
    evidence = compared.evidence
    for week, of, matched, kind in (
        (evidence.week, evidence.usage, compared.matched[1], Kind.CAME),
        (evidence.previous, evidence.usage_before, compared.matched[0], Kind.WENT),
    ):
        sums = sum_by_key((compared.units.unit_of(owner), usd) for owner, usd in matched.alone_usd.items())
        other = evidence.usage_before if kind == Kind.CAME else evidence.usage
        there = find_spans(other, compared.units)
        own = find_spans(of, compared.units)
        for unit, usd in sums.items():
            if usd < _LEAST_USD:
                continue
            if kind == Kind.CAME:
                first = there.get(unit, own[unit])[0]
                detail = f"since {_write_hour(evidence.week if unit not in there else evidence.previous, first)}"
            else:
                last = there.get(unit, own[unit])[1]
                detail = f"until {_write_hour(evidence.week if unit in there else week, last, end=True)}"
            yield Movement(kind, unit.name, unit.model_name, detail, usd if kind == Kind.CAME else -usd)


def _list_changes(compared: Compared) -> Iterable[Movement]:
    """Units of both weeks, and targets that took the place of others under another name."""
    old, new = (
        sum_bills(week.usage, of, lambda owner: _join_place(compared.units.unit_of(owner), compared))
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


def _join_place(unit: Unit, compared: Compared) -> Unit:
    """Targets that took each other's place under other names are one thing: "3 targets" of their model."""
    count = compared.matched[0].replaced.get(unit) or compared.matched[1].replaced.get(unit)
    return unit if count is None else unit._replace(name=count)


def _count_replicas(compared: Compared) -> dict[Unit, float]:
    """Targets of each unit this week, as a mean over the time that any was there."""
    hours: dict[Unit, dict[str, set[int]]] = {}
    for line in compared.matched[1].usage.gpu_seconds:
        unit = _join_place(compared.units.unit_of(line.owner), compared)
        seen = {index for index, value in enumerate(line.hours) if value}
        hours.setdefault(unit, {}).setdefault(line.owner.target, set()).update(seen)
    return {
        unit: sum(map(len, each.values())) / len(set().union(*each.values()))
        for unit, each in hours.items()
        if any(each.values())
    }


def _collect_nodes(gauges: Iterable[Gauge], usage: Usage, compared: Compared) -> Mapping[Unit, frozenset[str]]:
    """The nodes of each unit."""
    units = compared.units
    of_place: dict[Place, set[str]] = {}
    for gauge in gauges:
        place = fleet_of_gauge(gauge.labels, units.identity), gauge.labels.get("target", "")
        of_place.setdefault(place, set()).add(gauge.labels.get("node", ""))
    found: dict[Unit, set[str]] = {}
    for line in usage.gpu_seconds:
        if line.total:
            unit = _join_place(units.unit_of(line.owner), compared)
            found.setdefault(unit, set()).update(of_place.get(units.place(line.owner), ()))
    return {unit: frozenset(values) for unit, values in found.items()}


def _write_hour(week: Week, hour: int, *, end: bool = False) -> str:
    of = week.hours[hour]
    return f"{datetime.fromtimestamp(of.end if end else of.begin, ZoneInfo(week.zone)):%a %-d %b %H:%M}"


def _name(values: Iterable[str]) -> str:
    shown = sorted(values)
    return ", ".join(shown[:3]) + (f" and {len(shown) - 3} more" if len(shown) > 3 else "")
