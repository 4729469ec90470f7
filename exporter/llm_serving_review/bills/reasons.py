"""Why a unit's bill is another sum than what was metered: an exact split by reason. Pure.

In each hour (or day, where the bill has days) with B hours of instances billed, G GPUs of an instance, g of them in use, m GPU-hours
metered and p their metered price:

    hours        (B g − m) p            the machine was billed for longer, or shorter, than its GPUs were metered
    unused GPUs  B (G − g) p            GPUs of the machine that no target uses
    price        bill − B G p           the same GPU-hours at another price

Where only one side has that hour, its amount is a difference of hours. A bill that does not count in hours of instances has those for
which it bills a single machine by the hour; where it says neither, what both sides have is not divided.
A unit with one side alone is billed and not metered, or metered and not billed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import fsum

from llm_serving_exporter.model.record import Struct, name_fields
from llm_serving_review.bills.join import Unit

Fold = Callable[[Sequence[float]], list[float]]
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
    gpus: float | None  # GPUs of one instance; None where that is unknown
    reasons: Reasons


def compare_unit(unit: Unit, fold: Fold, gpus: Callable[[str], float | None]) -> Compared:
    """Compares a unit in the slots that `fold` makes of those of the week. `gpus`: of an instance of a type, None where nobody knows."""
    bill = _sum(fold, [machine.effective for machine in unit.machines])
    invoiced = _sum(fold, [machine.billed for machine in unit.machines])
    of_machines = [one for machine in unit.machines if (one := machine.read_hours()) is not None]
    counts = bool(unit.machines) and len(of_machines) == len(unit.machines)
    hours = _sum(fold, of_machines)
    time = _sum(fold, [one.gpu_hours for one in unit.metered.values()])
    usd = _sum(fold, [one.usd for one in unit.metered.values()])
    billed_usd, metered_usd = fsum(bill), fsum(usd)
    reasons, of_instance = Reasons(), None
    if not any(map(abs, bill)) and not any(hours):
        reasons.not_billed = billed_usd - metered_usd
    elif not any(time) and not any(usd):
        reasons.not_metered = billed_usd - metered_usd
    else:
        used = measure_used_gpus(time, hours) if counts else None
        of_instance = _count_gpus(unit, gpus)
        if used is not None:
            used = min(used, of_instance) if of_instance is not None else used
        _split(reasons, list(zip(bill, hours, time, usd, strict=True)), used, of_instance)
    return Compared(
        unit,
        fsum(time),
        metered_usd,
        fsum(hours) if counts else None,
        billed_usd,
        fsum(invoiced),
        of_instance,
        reasons,
    )


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


def find_type(unit: Unit) -> str:
    """The type of its machines as the bill says it, else of the metered nodes; "" where neither does."""
    return next((machine.instance_type for machine in unit.machines if machine.instance_type), unit.instance_type)


def _count_gpus(unit: Unit, gpus: Callable[[str], float | None]) -> float | None:
    said = [machine.gpus for machine in unit.machines if machine.gpus]
    if said:
        return max(said)
    kind = find_type(unit)
    return gpus(kind) if kind else None


def _sum(fold: Fold, columns: Sequence[Sequence[float]]) -> list[float]:
    if not columns:
        return fold([])
    return fold(columns[0]) if len(columns) == 1 else fold([fsum(values) for values in zip(*columns, strict=True)])
