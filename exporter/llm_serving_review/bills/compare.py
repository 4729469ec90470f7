"""A bill against what was metered: sums, by model, by machine, by reason. Every amount is in whole cents, and they add up. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import fsum

from llm_serving_exporter.model.record import Struct
from llm_serving_review.bills.charge import Fault
from llm_serving_review.bills.instances import count_gpus_of_type
from llm_serving_review.bills.join import Unit, join_units
from llm_serving_review.bills.ledger import Commitment, Ledger, Sum
from llm_serving_review.bills.mapping import Found
from llm_serving_review.bills.period import Period
from llm_serving_review.bills.reasons import Compared, Reasons, compare_unit, find_type, measure_used_gpus
from llm_serving_review.bills.scope import Scope
from llm_serving_review.figures.metered_hours import MeteredHour
from llm_serving_review.figures.split import round_parts
from llm_serving_review.tables.sums import sum_by_key

NOT_METERED, UNUSED = "(billed, not metered)", "(unused commitments)"

# a difference below either stands in its section alone
_LEAST_USD, _LEAST_SHARE = 1.0, 0.02


class Pair(Struct, frozen=True):
    """Both sides of a comparison, USD in whole cents."""

    metered_usd: float  # after commitments
    billed_usd: float  # amortised

    @property
    def difference_usd(self) -> float:
        """What the bill has more."""
        return round(self.billed_usd - self.metered_usd, 2)

    @property
    def difference_ratio(self) -> float | None:
        """The same by what was metered; None where nothing was."""
        return self.difference_usd / self.metered_usd if self.metered_usd else None


class MachineRow(Struct, frozen=True):
    """A unit: machines and what was metered on them."""

    name: str  # of the bill; the nodes' names where nothing is billed
    targets: tuple[str, ...]  # that were metered there
    instance_type: str  # "" where it is unknown
    account: str  # "" where it is unknown
    metered_gpu_hours: float
    billed_hours: float | None  # of instances; None where the bill does not say
    pair: Pair  # both sides
    reasons: Reasons  # USD by reason


class Comparison(Struct, frozen=True):
    """A bill against what was metered."""

    total: Pair  # both sides, with unused commitments
    invoiced_usd: float  # USD of the same lines as invoiced
    reasons: Reasons  # why both differ, in whole cents that add up to the difference
    models: tuple[tuple[str, Pair], ...]  # by model, the largest bill first
    machines: tuple[MachineRow, ...]  # by machine, the largest difference first
    period: Period  # what is compared
    # unused commitments of which nobody knows what for, because they say no type of instance and covered nothing: in no sum
    unassigned: Sum
    other_unused: Sum  # unused commitments for what is not compared: in no sum
    other_time: Sum  # usage of machines that are compared, outside of the time that is: in no sum
    uncounted_types: tuple[
        str, ...
    ] = ()  # types of machines on both sides of which nobody says how many GPUs they have


def compare(
    ledger: Ledger,
    metered: Sequence[MeteredHour],
    period: Period,
    scope: Scope,
    *,
    metered_unused_usd: float = 0.0,
    mapping: Mapping[str, tuple[Found, ...]] | None = None,
    tags: Mapping[str, str] | None = None,
    workloads: Mapping[str, str] | None = None,
    gpus_per_instance: Mapping[str, int] | None = None,
) -> Comparison:
    """Compares both within the period. `metered_unused_usd`: USD of unused commitments within the period, as the review has them."""
    units = join_units(ledger, metered, mapping or {}, tags or {}, workloads or {})
    counts = _count_gpus(units, period, gpus_per_instance or {})
    rows = [
        compare_unit(unit, period.of_clouds(unit.clouds).fold, lambda kind: counts.get(kind.lower())) for unit in units
    ]
    unused, unassigned, other = _sum_unused(ledger.commitments, period, scope)
    reasons = Reasons(unused_commitments=unused - metered_unused_usd)
    for row in rows:
        reasons.add(row.reasons)
    metered_usd = fsum(row.metered_usd for row in rows) + metered_unused_usd
    billed_usd = fsum(row.billed_usd for row in rows) + unused
    total = Pair(_in_cents(metered_usd) / 100, _in_cents(billed_usd) / 100)
    machines = sorted(
        (
            _make_row(row)
            for row in rows
            if row.metered_usd or row.billed_usd or row.metered_gpu_hours or row.billed_hours
        ),
        key=lambda row: (-abs(row.pair.difference_usd), -row.pair.billed_usd, row.name),
    )
    return Comparison(
        total,
        _in_cents(fsum(row.invoiced_usd for row in rows)) / 100,
        _round_reasons(reasons, total),
        _sum_by_model(rows, period, total, Pair(metered_unused_usd, unused)),
        tuple(machines),
        period,
        unassigned,
        other,
        _sum_other_time(rows),
        tuple(sorted(set(_list_uncounted_types(rows, gpus_per_instance or {})))),
    )


def _in_cents(usd: float) -> int:
    return round(100 * usd)


def _round_reasons(reasons: Reasons, pair: Pair) -> Reasons:
    """In whole cents that add up to the pair's difference."""
    parts = reasons.parts()
    cents = round_parts(list(parts.values()), _in_cents(pair.difference_usd))
    return Reasons(**{name: value / 100 for name, value in zip(parts, cents, strict=True)})


def _count_gpus(units: Iterable[Unit], period: Period, stated: Mapping[str, int]) -> dict[str, float]:
    """GPUs of an instance by its type: stated, else as its cloud publishes it, else the most that any machine of that type had in use."""
    found: dict[str, float] = {}
    for unit in units:
        kind = find_type(unit)
        if not kind:
            continue
        found.setdefault(kind.lower(), count_gpus_of_type(kind) or 0.0)
        of_machines = [one for machine in unit.machines if (one := machine.read_hours()) is not None]
        if count_gpus_of_type(kind) is not None or not of_machines or len(of_machines) < len(unit.machines):
            continue
        fold = period.of_clouds(unit.clouds).fold
        time = fold([fsum(values) for values in zip(*(one.gpu_hours for one in unit.metered.values()), strict=True)])
        hours = fold([fsum(values) for values in zip(*of_machines, strict=True)])
        found[kind.lower()] = max(found[kind.lower()], measure_used_gpus(time, hours) or 0.0)
    found.update({kind.lower(): float(count) for kind, count in stated.items()})
    return {kind: count for kind, count in found.items() if count}


def _sum_unused(commitments: Mapping[str, Commitment], period: Period, scope: Scope) -> tuple[float, Sum, Sum]:
    """What nothing used: USD of commitments for what is compared, those of which nobody knows what for, and those for something else.

    One for any type of instance counts by what of it went to lines that are compared.
    """
    ours, unknown, other = 0.0, Sum(), Sum()
    for one in commitments.values():
        usd = fsum(period.fold(one.unused))
        if one.instance_type:
            share = float(scope.cover_type(one.instance_type))
        elif one.covered_usd > 0:
            share = min(1.0, one.in_scope_usd / one.covered_usd)
        else:
            unknown.add(usd, 0.0, one.lines)
            continue
        ours += usd * share
        if share < 1:
            other.add(usd * (1 - share), 0.0, one.lines)
    return ours, unknown, other


def _sum_other_time(rows: Iterable[Compared]) -> Sum:
    found = Sum()
    for row in rows:
        machines = row.unit.machines
        found.add(
            fsum(fsum(machine.effective) for machine in machines) - row.billed_usd,
            fsum(fsum(machine.billed) for machine in machines) - row.invoiced_usd,
            0,
        )
    return found


def _list_uncounted_types(rows: Iterable[Compared], stated: Mapping[str, int]) -> Iterator[str]:
    """Types of machines on both sides whose GPUs neither bill, settings nor their cloud's pages count."""
    known = {kind.lower() for kind in stated}
    for row in rows:
        unit = row.unit
        if unit.machines and row.metered_gpu_hours and not any(machine.gpus for machine in unit.machines):
            kind = find_type(unit)
            if kind and kind.lower() not in known and count_gpus_of_type(kind) is None:
                yield kind


def _make_row(row: Compared) -> MachineRow:
    unit = row.unit
    first = unit.machines[0] if unit.machines else None
    names = [machine.name for machine in unit.machines] or sorted(unit.nodes) or sorted(unit.targets)
    pair = Pair(_in_cents(row.metered_usd) / 100, _in_cents(row.billed_usd) / 100)
    return MachineRow(
        ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else ""),
        tuple(sorted(unit.targets)),
        find_type(unit),
        first.account if first is not None else "",
        row.metered_gpu_hours,
        row.billed_hours,
        pair,
        _round_reasons(row.reasons, pair),
    )


def _sum_by_model(rows: Iterable[Compared], period: Period, total: Pair, unused: Pair) -> tuple[tuple[str, Pair], ...]:
    """What a machine is billed goes to its models by their GPU-hours there."""
    ours: list[tuple[str, float]] = []
    theirs: list[tuple[str, float]] = []
    for row in rows:
        fold = period.of_clouds(row.unit.clouds).fold
        time = {model: fsum(fold(one.gpu_hours)) for model, one in row.unit.metered.items()}
        usd = {model: fsum(fold(one.usd)) for model, one in row.unit.metered.items()}
        all_time = fsum(time.values())
        if not all_time:
            theirs.append((NOT_METERED, row.billed_usd))
        ours += usd.items()
        theirs += [(model, row.billed_usd * hours / all_time) for model, hours in time.items() if all_time]
    metered, billed = sum_by_key(ours), sum_by_key(theirs)
    if unused.metered_usd or unused.billed_usd:
        metered[UNUSED], billed[UNUSED] = unused.metered_usd, unused.billed_usd
    names = sorted(metered.keys() | {name for name, usd in billed.items() if usd})
    columns = (
        round_parts([column.get(name, 0.0) for name in names], _in_cents(sums))
        for column, sums in ((metered, total.metered_usd), (billed, total.billed_usd))
    )
    found = [(name, Pair(one / 100, other / 100)) for name, one, other in zip(names, *columns, strict=True)]
    return tuple(sorted(found, key=lambda item: (-item[1].billed_usd, item[0])))


class BillReview(Struct, frozen=True):
    """What the review shows of bills."""

    comparison: Comparison | None  # None where nothing could be compared
    refused: str = ""  # why not; "" where it could
    notes: tuple[str, ...] = ()  # what a reader must know, in sentences
    faults: tuple[Fault, ...] = ()  # the first lines that could not be used
    fault_count: int = 0  # all of them
    beside: tuple[tuple[str, Sum], ...] = ()  # what is no usage, by what it is about; usage out of scope
    files: int = 0
    lines: int = 0
    formats: tuple[str, ...] = ()  # FOCUS, AWS CUR
    preliminary: bool = False  # whether lines may still be added or changed
    refused_because: str = ""  # what stands behind `refused`: why that is so and what to do; "" for nothing

    @property
    def whole_refusal(self) -> str:
        """Why nothing is compared, at length, without a full stop."""
        return f"{self.refused}: {self.refused_because}" if self.refused_because else self.refused

    @property
    def differs(self) -> bool:
        """Whether the bill is further from what was metered than a reader would let pass."""
        if self.comparison is None:
            return False
        total = self.comparison.total
        return abs(total.difference_usd) >= max(_LEAST_USD, _LEAST_SHARE * max(total.metered_usd, total.billed_usd))
