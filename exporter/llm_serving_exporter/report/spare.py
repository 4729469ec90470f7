"""What ran beyond what was required, what the reserve for a lost node held, what steady load and commitments could save."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil

from llm_serving_exporter.report.nouns import Book, Fleet, Gauge, Hours, Usage, by_hour

RESERVED, ON_DEMAND = "reserved", "on_demand"
# of a GPU, in the hour of a restart or of a missed scrape
_LOST_AT_EDGES = 0.05


@dataclass(frozen=True, slots=True)
class Spare:
    """Replica-hours and what they cost. `excess`: beyond the demand and its reserve; `reserve`: held against the loss of a node.

    `…_by_hour`: replicas in each hour of the week, None where one of the figures is not known. `usd` None: no hour has both
    replicas and a cost.
    """

    excess_hours: float
    excess_usd: float | None
    reserve_hours: float
    reserve_usd: float | None
    excess_by_hour: Hours
    reserve_by_hour: Hours


def spare(usage: Usage, fleet: Fleet, hours: int) -> Spare | None:
    """Over all models; None without the rule pack's records of replicas."""
    present = {_of(gauge): gauge.hours for gauge in fleet.present}
    required = {(_of(gauge), gauge.labels.get("reserve", "")): gauge.hours for gauge in fleet.required}
    excess: list[float | None] = [None] * hours
    reserve: list[float | None] = [None] * hours
    excess_usd: float | None = None
    reserve_usd: float | None = None
    for who, running in present.items():
        bare, whole = required.get((who, "none")), required.get((who, "nodes"))
        cost = by_hour(
            (line for line in usage.cost if _is(line.owner.extra, line.owner.model_name, line.owner.role, who)), hours
        )
        for index, there in enumerate(running):
            without = bare[index] if bare else None
            with_reserve = whole[index] if whole else None
            if there is None or with_reserve is None:
                continue
            over = max(0.0, there - with_reserve)
            held = max(0.0, min(there, with_reserve) - min(there, without)) if without is not None else 0.0
            excess[index] = (excess[index] or 0.0) + over
            reserve[index] = (reserve[index] or 0.0) + held
            usd = cost[index]
            if usd is not None and there > 0:
                excess_usd = (excess_usd or 0.0) + over * usd / there
                reserve_usd = (reserve_usd or 0.0) + held * usd / there
    if all(value is None for value in excess):
        return None
    return Spare(_sum(excess), excess_usd, _sum(reserve), reserve_usd, tuple(excess), tuple(reserve))


@dataclass(frozen=True, slots=True)
class Commitment:
    """GPU-hours of a rate that are paid whether used or not. `unused_usd` None: the rate's price was not in force on any target."""

    rate: str
    committed_gpu_hours: float
    used_gpu_hours: float
    unused_gpu_hours: float
    usd_per_gpu_hour: float | None

    @property
    def unused_usd(self) -> float | None:
        """What was paid for nothing."""
        return None if self.usd_per_gpu_hour is None else self.unused_gpu_hours * self.usd_per_gpu_hour


def commitments(usage: Usage, book: Book, hours: int) -> tuple[Commitment, ...]:
    """By rate, hour by hour: what is left over at night does not make up for noon. Hours in which nobody says what
    is committed are left out."""
    committed: dict[str, list[float | None]] = {}
    for gauge in book.committed:
        # fleets with one price file say the same thing
        line = committed.setdefault(gauge.labels.get("rate", ""), [None] * hours)
        for index, value in enumerate(gauge.hours):
            if value is not None:
                line[index] = max(value, line[index] or 0.0)
    found = []
    for rate, gpus in sorted(committed.items()):
        used = by_hour((line for line in usage.gpu_seconds if line.of[1] == rate), hours)
        bought = taken = idle = 0.0
        for index, count in enumerate(gpus):
            if count is not None:
                hour_used = (used[index] or 0.0) / 3600
                bought += count
                taken += hour_used
                idle += max(0.0, count - hour_used)
        if bought:
            found.append(Commitment(rate, bought, taken, idle, rate_price(book, rate)))
    return tuple(found)


def rate_price(book: Book, rate: str, gpu_name: str | None = None) -> float | None:
    """USD per GPU-hour of a rate, mean over targets and hours; None where it was in force on none."""
    values = [
        value
        for gauge in book.prices
        if gauge.labels.get("rate") == rate and gpu_name in (None, gauge.labels.get("gpu_name"))
        for value in gauge.hours
        if value is not None
    ]
    return sum(values) / len(values) if values else None


@dataclass(frozen=True, slots=True)
class Steady:
    """GPUs that ran at an on-demand rate in every hour of the week, and the cheapest reserved rate of the same book for their kind."""

    gpu_name: str
    gpus: float
    usd_per_gpu_hour: float
    rate: str
    reserved_usd_per_gpu_hour: float
    usd: float


def steady(usage: Usage, book: Book, hours: int) -> tuple[Steady, ...]:
    """By kind of GPU, beyond commitments that stand unused. A reserved rate is known only while some target runs at it: prices are exported
    as they are in force."""
    kinds = _kind_of(book)
    reserved = {rate.name for rate in book.rates.values() if rate.kind == RESERVED}
    on_demand = {rate.name for rate in book.rates.values() if rate.kind == ON_DEMAND}
    known_hours = by_hour(usage.gpu_seconds, hours)
    found = []
    for kind in sorted(set(kinds.values())):
        lines = [
            line
            for line in usage.gpu_seconds
            if line.of[1] in on_demand and kinds.get((line.owner.target, line.of[1])) == kind
        ]
        # an hour of which nothing at all is known says nothing about what is steady
        seconds = [
            value
            for value, any_at_all in zip(by_hour(lines, hours), known_hours, strict=True)
            if any_at_all is not None
        ]
        floor = min(((value or 0.0) / 3600 for value in seconds), default=0.0)
        offers = [(price, rate) for rate in reserved if (price := rate_price(book, rate, kind)) is not None]
        current = [price for rate in on_demand if (price := rate_price(book, rate, kind)) is not None]
        gpus = float(int(floor + _LOST_AT_EDGES))
        if offers:
            # what is committed already and stands unused comes first
            gpus -= ceil(
                sum(one.unused_gpu_hours for one in commitments(usage, book, hours) if one.rate == min(offers)[1])
                / hours
            )
        if offers and current and gpus >= 1 and min(offers)[0] < min(current):
            price, rate = min(offers)
            found.append(Steady(kind, gpus, min(current), rate, price, gpus * (min(current) - price) * hours))
    return tuple(found)


def _kind_of(book: Book) -> Mapping[tuple[str, str], str]:
    """The kind of GPU by target and rate."""
    return {
        (gauge.labels.get("target", ""), gauge.labels.get("rate", "")): gauge.labels.get("gpu_name", "")
        for gauge in book.prices
    }


def _of(gauge: Gauge) -> tuple[tuple[str, str], ...]:
    """Identity labels, model and role."""
    return tuple(sorted((name, value) for name, value in gauge.labels.items() if name not in ("reserve", "__name__")))


def _is(extra: Iterable[tuple[str, str]], model_name: str, role: str, who: Iterable[tuple[str, str]]) -> bool:
    own = {**dict(extra), "model_name": model_name, "role": role}
    return all(own.get(name, "") == value for name, value in who)


def _sum(values: Iterable[float | None]) -> float:
    return sum(value for value in values if value is not None)
