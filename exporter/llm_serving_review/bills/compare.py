"""A bill against what was metered: sums, by model, by machine, by reason. Every amount is in whole cents, and they add up. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import fsum

from llm_serving_exporter.model.record import Struct, field, name_fields
from llm_serving_review.bills.charge import Fault, count_gpus_of_type, find_cloud, normalise_resource
from llm_serving_review.bills.files import LABELS, Found
from llm_serving_review.bills.ledger import REST, Commitment, Ledger, Machine, Period, Scope, Sum
from llm_serving_review.evidence.week import HOUR_SECONDS
from llm_serving_review.figures.metered_hours import MeteredHour
from llm_serving_review.figures.split import round_parts
from llm_serving_review.settings.settings import BillSettings
from llm_serving_review.tables.sums import sum_by_key

# --- Which machines of a bill and which metered GPU time belong together. Pure.
#
# A machine finds what was metered on it by its provider id in that hour, else by the mapping file, else by its tags. What shares a machine
# or a target becomes one unit: several targets on one machine, one target over several machines.


_Key = tuple[str, str]
_MACHINE = "machine"


class Metered(Struct):
    """GPU time of one model, by slot."""

    gpu_hours: array[float]  # GPU-hours
    usd: array[float]  # USD, after commitments


class Unit(Struct):
    """Machines and metered GPU time that belong together; either may be missing."""

    machines: list[Machine] = field(default_factory=list)
    metered: dict[str, Metered] = field(default_factory=dict)  # by model
    # where it was metered: targets, in the order of their names once it is complete
    targets: set[str] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)  # where it was metered: nodes that have a name
    instance_type: str = ""  # of the metered nodes; "" where it is unknown
    node_clouds: set[str] = field(default_factory=set)  # of the metered nodes, as far as their names say it

    @property
    def clouds(self) -> set[str]:
        """On whose bill its machines are; without any, whose nodes it was metered on."""
        return {machine.cloud for machine in self.machines} or self.node_clouds

    def find_type(self) -> str:
        """The type of its machines as the bill says it, else of the metered nodes; "" where neither does."""
        return next((machine.instance_type for machine in self.machines if machine.instance_type), self.instance_type)

    def read_hours(self) -> list[array[float]] | None:
        """Hours of an instance of each machine, by slot; None without machines, or where the bill does not say it of one of them."""
        hours = [one for machine in self.machines if (one := machine.read_hours()) is not None]
        return hours if hours and len(hours) == len(self.machines) else None


class _Groups:
    """Sets of keys that are joined two at a time."""

    def __init__(self) -> None:
        self._above: dict[_Key, _Key] = {}

    def __contains__(self, key: _Key) -> bool:
        return key in self._above

    def find(self, key: _Key) -> _Key:
        """One key that stands for all that are joined with this one."""
        self._above.setdefault(key, key)
        while (above := self._above[key]) != key:
            self._above[key] = key = self._above[above]
        return key

    def join(self, one: _Key, other: _Key) -> None:
        self._above[self.find(one)] = self.find(other)


def join_units(
    ledger: Ledger, metered: Iterable[MeteredHour], settings: BillSettings, workloads: Mapping[str, str]
) -> list[Unit]:
    """All units, in the order of the bill, then of what was metered. `workloads`: by target."""
    pieces = tuple(metered)
    ids = {normalise_resource(piece.provider_id) for piece in pieces if piece.provider_id}
    groups = _Groups()
    for key, machine in ledger.machines.items():
        own = (_MACHINE, key)
        groups.find(own)
        if key not in ids and key != REST:
            for found in settings.mapping.get(key) or _read_tags(machine, settings.tags):
                groups.join((found.label, found.value), own)
    units: dict[_Key, Unit] = {}
    for key, machine in ledger.machines.items():
        units.setdefault(groups.find((_MACHINE, key)), Unit()).machines.append(machine)
    for piece in pieces:
        slot = round(piece.utc_begin / HOUR_SECONDS) - ledger.first_hour
        if 0 <= slot < ledger.slots:
            unit = units.setdefault(_find_key(piece, ledger, groups, workloads), Unit())
            _add_piece(unit, piece, slot, ledger.slots)
    return list(units.values())


def _read_tags(machine: Machine, labels: Mapping[str, str]) -> tuple[Found, ...]:
    """What the most telling tag says."""
    found = [Found(labels[tag], value) for tag, value in machine.tags.items() if tag in labels]
    return tuple(sorted(found, key=lambda one: LABELS.index(one.label))[:1])


def name_labels(piece: MeteredHour, workloads: Mapping[str, str]) -> Iterable[_Key]:
    """What a machine can be mapped to, in the order of LABELS, as it was metered."""
    return zip(LABELS, (piece.target, piece.node, workloads.get(piece.target, ""), piece.model_name), strict=True)


def _find_key(piece: MeteredHour, ledger: Ledger, groups: _Groups, workloads: Mapping[str, str]) -> _Key:
    machine = normalise_resource(piece.provider_id)
    if machine and machine in ledger.machines:
        return groups.find((_MACHINE, machine))
    for key in name_labels(piece, workloads):
        if key[1] and key in groups:
            return groups.find(key)
    return "target", f"{piece.target}\n{piece.node}\n{machine}"


def _add_piece(unit: Unit, piece: MeteredHour, slot: int, slots: int) -> None:
    into = unit.metered.get(piece.model_name)
    if into is None:
        into = unit.metered[piece.model_name] = Metered(array("d", bytes(8 * slots)), array("d", bytes(8 * slots)))
    into.gpu_hours[slot] += piece.gpu_hours
    into.usd[slot] += piece.paid_usd
    unit.targets.add(piece.target)
    if piece.node:
        unit.nodes.add(piece.node)
    if cloud := find_cloud(normalise_resource(piece.provider_id)):
        unit.node_clouds.add(cloud)
    unit.instance_type = unit.instance_type or piece.instance_type


# --- Why a unit's bill is another sum than what was metered: an exact split by reason. Pure.
#
# In each hour (or day, where the bill has days) with B hours of instances billed, G GPUs of an instance, g of them in use, m GPU-hours
# metered and p their metered price:
#
# hours (B g − m) p the machine was billed for longer, or shorter, than its GPUs were metered unused GPUs B (G − g) p GPUs of the machine
# that no target uses price bill − B G p the same GPU-hours at another price
#
# Where only one side has that hour, its amount is a difference of hours. A bill that does not count in hours of instances has those for
# which it bills a single machine by the hour; where it says neither, what both sides have is not divided. A unit with one side alone is
# billed and not metered, or metered and not billed.


# of the most instance-hours that a slot has: less is a part of an hour, which says nothing of how many GPUs are in use
_WHOLE = 0.999
_LEAST_HOURS = 1e-6


class Reasons(Struct):
    """USD by reason: what the bill has more than what was metered."""

    not_metered: float = 0.0  # machines on which nothing was metered
    not_billed: float = 0.0  # metered GPUs of which no machine is billed; negative
    hours: float = 0.0  # other hours of machines that are on both sides
    unused_gpus: float = 0.0  # GPUs of such machines that no target uses
    price: float = 0.0  # the same GPU-hours at another price
    undivided: float = 0.0  # hours, unused GPUs and price of machines of which the bill counts no hours
    unused_commitments: float = 0.0  # commitments that nothing used: billed less metered

    def parts(self) -> dict[str, float]:
        """By name, in this order."""
        return {name: getattr(self, name) for name in name_fields(self)}

    @property
    def total(self) -> float:
        """Their sum."""
        return fsum(self.parts().values())

    def add(self, other: Reasons) -> None:
        """Adds another's."""
        for name, value in other.parts().items():
            setattr(self, name, getattr(self, name) + value)


class Compared(Struct, frozen=True):
    """A unit within the period that is compared."""

    unit: Unit  # the machines and what was metered on them
    metered_gpu_hours: float
    metered_usd: float  # USD that was metered, after commitments
    billed_hours: float | None  # hours of instances that are billed; None where the bill does not say
    billed_usd: float  # USD, amortised
    invoiced_usd: float  # USD, as invoiced
    reasons: Reasons


def compare_unit(unit: Unit, period: Period, counts: Mapping[str, float]) -> Compared:
    """Compares a unit within the period. `counts`: GPUs of an instance by its type in lower case, without those that nobody knows."""
    fold = period.of_clouds(unit.clouds).fold
    bill = fold(*(machine.effective for machine in unit.machines))
    invoiced = fold(*(machine.billed for machine in unit.machines))
    of_machines = unit.read_hours()
    hours = fold(*(one for machine in unit.machines if (one := machine.read_hours()) is not None))
    time = fold(*(one.gpu_hours for one in unit.metered.values()))
    usd = fold(*(one.usd for one in unit.metered.values()))
    billed_usd, metered_usd = fsum(bill), fsum(usd)
    reasons = Reasons()
    if not any(map(abs, bill)) and not any(hours):
        reasons.not_billed = billed_usd - metered_usd
    elif not any(time) and not any(usd):
        reasons.not_metered = billed_usd - metered_usd
    else:
        used = measure_used_gpus(time, hours) if of_machines else None
        of_instance = max((machine.gpus for machine in unit.machines if machine.gpus), default=None)
        if of_instance is None:
            of_instance = counts.get(unit.find_type().lower())
        if used is not None and of_instance is not None:
            used = min(used, of_instance)
        _split(reasons, list(zip(bill, hours, time, usd, strict=True)), used, of_instance)
    billed_hours = fsum(hours) if of_machines else None
    return Compared(unit, fsum(time), metered_usd, billed_hours, billed_usd, fsum(invoiced), reasons)


def _split(
    reasons: Reasons, slots: Sequence[tuple[float, float, float, float]], used: float | None, gpus: float | None
) -> None:
    for billed, hours, time, usd in slots:
        if time < _LEAST_HOURS or (not billed and hours < _LEAST_HOURS):
            reasons.hours += billed - usd
            continue
        price = usd / time
        if used is None:
            reasons.undivided += billed - usd
            continue
        whole = max(gpus if gpus is not None else used, used)
        reasons.hours += (hours * used - time) * price
        reasons.unused_gpus += hours * (whole - used) * price
        reasons.price += billed - hours * whole * price


def measure_used_gpus(time: Sequence[float], hours: Sequence[float]) -> float | None:
    """The most GPUs of an instance that were metered at once, over slots with whole instance-hours; None without any."""
    most = max(hours, default=0.0)
    found = [of / billed for of, billed in zip(time, hours, strict=True) if billed >= _WHOLE * most > 0]
    largest = max(found, default=0.0)
    return largest or None


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
    # types of machines on both sides of which nobody says how many GPUs they have
    uncounted_types: tuple[str, ...] = ()


def compare(
    ledger: Ledger,
    metered: Sequence[MeteredHour],
    period: Period,
    scope: Scope,
    settings: BillSettings,
    *,
    metered_unused_usd: float = 0.0,
    workloads: Mapping[str, str] | None = None,
) -> Comparison:
    """Compares both within the period. `metered_unused_usd`: USD of unused commitments within the period, as the review has them.
    `workloads`: by target."""
    units = join_units(ledger, metered, settings, workloads or {})
    counts = _count_gpus_by_type(units, period, settings.gpus_per_instance)
    rows = [compare_unit(unit, period, counts) for unit in units]
    unused, unassigned, other = _sum_unused(ledger.commitments, period, scope)
    reasons = Reasons(unused_commitments=unused - metered_unused_usd)
    for row in rows:
        reasons.add(row.reasons)
    metered_usd = fsum(row.metered_usd for row in rows) + metered_unused_usd
    billed_usd = fsum(row.billed_usd for row in rows) + unused
    total = Pair(_in_cents(metered_usd) / 100, _in_cents(billed_usd) / 100)
    some = [row for row in rows if row.metered_usd or row.billed_usd or row.metered_gpu_hours or row.billed_hours]
    machines = sorted(
        map(_make_row, some), key=lambda row: (-abs(row.pair.difference_usd), -row.pair.billed_usd, row.name)
    )
    return Comparison(
        total, _in_cents(fsum(row.invoiced_usd for row in rows)) / 100, _round_reasons(reasons, total),
        _sum_by_model(rows, period, total, Pair(metered_unused_usd, unused)), tuple(machines), period, unassigned, other,
        _sum_other_time(rows), tuple(sorted(set(_list_uncounted_types(rows, settings.gpus_per_instance)))),
    )  # fmt: skip


def _in_cents(usd: float) -> int:
    return round(100 * usd)


def _round_reasons(reasons: Reasons, pair: Pair) -> Reasons:
    """In whole cents that add up to the pair's difference."""
    parts = reasons.parts()
    cents = round_parts(list(parts.values()), _in_cents(pair.difference_usd))
    return Reasons(**{name: value / 100 for name, value in zip(parts, cents, strict=True)})


def _count_gpus_by_type(units: Iterable[Unit], period: Period, stated: Mapping[str, int]) -> dict[str, float]:
    """GPUs of an instance by its type: stated, else as its cloud publishes it, else the most that any machine of that type had in use."""
    found: dict[str, float] = {}
    for unit in units:
        kind, of_machines = unit.find_type(), unit.read_hours()
        if not kind:
            continue
        count = found.setdefault(kind.lower(), count_gpus_of_type(kind) or 0.0)
        if count_gpus_of_type(kind) is None and of_machines is not None:
            fold = period.of_clouds(unit.clouds).fold
            time = fold(*(one.gpu_hours for one in unit.metered.values()))
            found[kind.lower()] = max(count, measure_used_gpus(time, fold(*of_machines)) or 0.0)
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
        effective = fsum(fsum(machine.effective) for machine in row.unit.machines)
        billed = fsum(fsum(machine.billed) for machine in row.unit.machines)
        found.add(effective - row.billed_usd, billed - row.invoiced_usd, 0)
    return found


def _list_uncounted_types(rows: Iterable[Compared], stated: Mapping[str, int]) -> Iterator[str]:
    """Types of machines on both sides whose GPUs neither bill, settings nor their cloud's pages count."""
    known = {kind.lower() for kind in stated}
    for row in rows:
        unit = row.unit
        if unit.machines and row.metered_gpu_hours and not any(machine.gpus for machine in unit.machines):
            kind = unit.find_type()
            if kind and kind.lower() not in known and count_gpus_of_type(kind) is None:
                yield kind


def _make_row(row: Compared) -> MachineRow:
    unit = row.unit
    first = unit.machines[0] if unit.machines else None
    names = [machine.name for machine in unit.machines] or sorted(unit.nodes) or sorted(unit.targets)
    pair = Pair(_in_cents(row.metered_usd) / 100, _in_cents(row.billed_usd) / 100)
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return MachineRow(
        f"{', '.join(names[:3])}{more}", tuple(sorted(unit.targets)), unit.find_type(), first.account if first is not None else "",
        row.metered_gpu_hours, row.billed_hours, pair, _round_reasons(row.reasons, pair),
    )  # fmt: skip


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
