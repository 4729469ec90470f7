"""Which machines of a bill and which metered GPU time belong together. Pure.

A machine finds what was metered on it by its provider id in that hour, else by the mapping file, else by its tags. What shares a machine
or a target becomes one unit: several targets on one machine, one target over several machines.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping

from llm_serving_exporter.model.record import Struct, field
from llm_serving_review.bills.ledger import REST, Ledger, Machine
from llm_serving_review.bills.mapping import LABELS, Found
from llm_serving_review.bills.resources import find_cloud, normalise_resource
from llm_serving_review.evidence.week import HOUR_SECONDS
from llm_serving_review.figures.metered_hours import MeteredHour

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
    ledger: Ledger,
    metered: Iterable[MeteredHour],
    mapping: Mapping[str, tuple[Found, ...]],
    tags: Mapping[str, str],
    workloads: Mapping[str, str],
) -> list[Unit]:
    """All units, in the order of the bill, then of what was metered. `workloads`: by target."""
    pieces = tuple(metered)
    ids = {normalise_resource(piece.provider_id) for piece in pieces if piece.provider_id}
    groups = _Groups()
    for key, machine in ledger.machines.items():
        own = (_MACHINE, key)
        groups.find(own)
        if key not in ids and key != REST:
            for found in mapping.get(key) or _read_tags(machine, tags):
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


def _find_key(piece: MeteredHour, ledger: Ledger, groups: _Groups, workloads: Mapping[str, str]) -> _Key:
    machine = normalise_resource(piece.provider_id)
    if machine and machine in ledger.machines:
        return groups.find((_MACHINE, machine))
    values = (piece.target, piece.node, workloads.get(piece.target, ""), piece.model_name)
    for key in zip(LABELS, values, strict=True):
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
