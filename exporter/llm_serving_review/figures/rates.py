"""What GPUs cost: by kind of GPU and rate, commitments and how far they were used, and what steady load could save. Pure.

Targets, rates and commitments belong together only within a fleet, so identity labels are part of every key.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from math import ceil, fsum
from types import MappingProxyType
from typing import TypeVar

from llm_serving_exporter.model.cost import RateKind
from llm_serving_exporter.model.record import Struct, field
from llm_serving_review.evidence.usage import (
    Book,
    Gap,
    Gauge,
    Line,
    Owner,
    Usage,
    Where,
    drop_unknown,
    find_fleet,
    sum_by_hour,
)
from llm_serving_review.evidence.week import Week
from llm_serving_review.figures.split import Split
from llm_serving_review.tables.sums import group_by_key, sum_by_key

# of a GPU, in the hour of a restart or of a missed scrape
_LOST_AT_EDGES = 0.05
# of a GPU: what adding up a week of hours leaves behind the point
_ROUNDING = 1e-6


def find_cash_rates(book: Book) -> frozenset[str]:
    """Rates that are paid by the hour: a GPU that is given back is paid for no more. A rate of unknown kind is not one of them."""
    return find_rates_of_kind(book, RateKind.ON_DEMAND, RateKind.SPOT)


def find_rates_of_kind(book: Book, *kinds: RateKind) -> frozenset[str]:
    """Names of the rates of these kinds."""
    return frozenset(rate for rate, kind in book.rates.items() if kind in kinds)


def find_gpu_kinds(book: Book, identity: Sequence[str]) -> dict[tuple[Where, str, str], set[str]]:
    """Kinds of GPU by fleet, target and rate."""
    return {key: {gauge.label("gpu_name") for gauge in each} for key, each in book.index_prices(identity).items()}


def average_rate_price(usage: Usage, book: Book, rate: str, identity: Sequence[str], fleet: Where) -> float | None:
    """Mean USD per GPU-hour of a fleet's rate, weighted by the GPU time at it; None where the rate was in force on no target."""
    seconds = group_by_key((line.owner.place(identity), line) for line in usage.gpu_seconds if line.of[1] == rate)
    weighted = [
        (value, weight or 0.0)
        for (*place, of), gauges in book.index_prices(identity).items()
        if (place[0], of) == (fleet, rate)
        for gauge in gauges
        for value, weight in zip(
            gauge.hours, sum_by_hour(seconds.get(gauge.place(identity), ()), len(gauge.hours)), strict=True
        )
        if value is not None
    ]
    if not any(weight for _, weight in weighted):
        # in force, but nothing was counted at it
        weighted = [(value, 1.0) for value, _ in weighted]
    all_ = fsum(weight for _, weight in weighted)
    return fsum(value * weight for value, weight in weighted) / all_ if all_ else None


def _find_last_price(book: Book, rate: str, gpu_name: str) -> float | None:
    """The price of a rate for a kind of GPU as it stood last, as the price file has it; of several the lowest. None where it was in
    force on no target."""
    found: list[tuple[int, float]] = []
    for gauge in book.prices:
        if gauge.labels.get("rate") == rate and gauge.labels.get("gpu_name") == gpu_name:
            known = [(-hour, value) for hour, value in enumerate(gauge.hours) if value is not None]
            found += known[-1:]
    return min(found)[1] if found else None


class Commitment(Struct, frozen=True):
    """GPU-hours of a rate that are paid for whether they are used or not."""

    rate: str
    committed_gpu_hours: float  # in the hours that are known
    used_gpu_hours: float  # in the same hours
    unused_gpu_hours: float  # hour by hour; use beyond the commitment in one hour does not fill another
    usd_per_gpu_hour: float | None  # mean price of the rate; None where it was in force on no target
    fleet: Where = ()  # values of the identity labels
    known_share: float = 1.0  # share of the committed GPU-hours in which no gap hides who used them
    movable_gpu_hours: float = 0.0  # of GPUs of the same kind that ran on demand while as many of it stood unused
    movable_usd: float = 0.0  # what these cost on demand
    # the same GPU-hours by hour of the week and kind of GPU
    movable_by_hour: Mapping[tuple[int, str], float] = field(default_factory=dict)

    @property
    def unused_usd(self) -> float | None:
        """What was paid for nothing."""
        return None if self.usd_per_gpu_hour is None else self.unused_gpu_hours * self.usd_per_gpu_hour

    @property
    def immovable_usd(self) -> float:
        """What was paid for nothing and no on-demand load would have used."""
        return max(0.0, self.unused_gpu_hours - self.movable_gpu_hours) * (self.usd_per_gpu_hour or 0.0)

    @property
    def name(self) -> str:
        """The rate, and whose."""
        return " / ".join((self.rate, *filter(None, self.fleet)))


def sum_unused_usd(found: Iterable[Commitment]) -> float:
    """USD of unused commitments whose price is known."""
    return fsum(one.unused_usd or 0.0 for one in found)


def sum_unused_usd_seen(found: Iterable[Commitment], seen_share: float) -> float:
    """USD of unused commitments in the part of the week that is seen; hours in gaps are taken to be like the others."""
    return fsum((one.unused_usd or 0.0) / one.known_share for one in found) * seen_share


class _OnDemandLoad:
    """GPU time that is paid on demand, hour by hour, for commitments that stand unused."""

    def __init__(self, usage: Usage, book: Book, hours: int, identity: Sequence[str]) -> None:
        self._kinds = find_gpu_kinds(book, identity)
        rates = find_rates_of_kind(book, RateKind.ON_DEMAND)

        def sum_kinds(lines: Iterable[Line], unit: float) -> dict[tuple[Where, frozenset[str]], list[float]]:
            by_kind = group_by_key(
                ((fleet, frozenset(self._kinds.get((fleet, line.owner.target, line.of[1]), ()))), line)
                for line in lines
                if line.of[1] in rates
                for fleet in (line.owner.fleet(identity),)
            )
            return {
                key: [(value or 0.0) / unit for value in sum_by_hour(each, hours)]
                for key, each in by_kind.items()
                if key[1]
            }

        # by fleet and kind of GPU: hours left, and USD of each
        left, usd = sum_kinds(usage.gpu_seconds, 3600.0), sum_kinds(usage.cost, 1.0)
        self._left = {key: (left.get(key, [0.0] * hours), usd.get(key, [0.0] * hours)) for key in {**left, **usd}}

    def take_over(
        self, fleet: Where, rate: str, free: Sequence[float]
    ) -> tuple[float, float, Mapping[tuple[int, str], float]]:
        """GPU-hours that fit onto `free` GPUs of a rate by the hour, what they cost, and the same GPU-hours by hour of the week and kind of
        GPU. They are not there for another commitment."""
        own = {kind for (at, _, of), kinds in self._kinds.items() if (at, of) == (fleet, rate) for kind in kinds}
        usd: list[float] = []
        taken_by_hour: list[tuple[tuple[int, str], float]] = []
        left = list(free)
        for (at, kinds), (seconds, cost) in self._left.items():
            if at != fleet or not kinds <= own:
                continue
            kind = " + ".join(sorted(kinds))
            for index, most in enumerate(left):
                taken = min(most, seconds[index])
                if taken > 0:
                    left[index] -= taken
                    taken_by_hour.append(((index, kind), taken))
                    part = taken / seconds[index]
                    usd.append(cost[index] * part)
                    seconds[index] -= taken
                    cost[index] *= 1 - part
        return fsum(taken for _, taken in taken_by_hour), fsum(usd), sum_by_key(taken_by_hour)


def measure_commitments(
    usage: Usage, book: Book, week: Week, identity: Sequence[str] = (), gaps: Iterable[Gap] = ()
) -> tuple[Commitment, ...]:
    """By fleet and rate, hour by hour: GPUs left over at night do not make up for noon. Leaves out hours in which the commitment is
    unknown, and hours in which data of a target at that rate are missing."""
    count = len(week.hours)
    committed = group_by_key(
        ((find_fleet(gauge.labels, identity), gauge.label("rate")), gauge.hours) for gauge in book.committed
    )
    load = _OnDemandLoad(usage, book, count, identity)
    holes = [gap for gap in gaps if gap.hides_use]
    found = []
    for (fleet, rate), stated in sorted(committed.items()):
        gpus = [max(drop_unknown(values), default=None) for values in zip(*stated, strict=True)]
        lines = [line for line in usage.gpu_seconds if line.of[1] == rate and line.owner.fleet(identity) == fleet]
        places = {line.owner.place(identity) for line in lines if line.total}
        unknown = [gap for gap in holes if gap.place(identity) in places]
        used = sum_by_hour(lines, count)
        hidden = []
        known: list[tuple[float, float]] = []
        free = [0.0] * count
        for index, (hour, committed_gpus) in enumerate(zip(week.hours, gpus, strict=True)):
            if committed_gpus is None:
                continue
            if any(gap.begin < hour.end and hour.begin < gap.end for gap in unknown):
                hidden.append(committed_gpus)
                continue
            known.append((committed_gpus, (used[index] or 0.0) / 3600))
            free[index] = max(0.0, known[-1][0] - known[-1][1])
        bought = fsum(gpus for gpus, _ in known)
        if bought:
            taken, share = fsum(of for _, of in known), bought / (bought + fsum(hidden))
            price = average_rate_price(usage, book, rate, identity, fleet)
            moved = load.take_over(fleet, rate, free)
            found.append(Commitment(rate, bought, taken, fsum(free), price, fleet, share, *moved))
    return tuple(found)


class Steady(Struct, frozen=True):
    """GPUs that ran on demand in every known hour, and the cheapest reserved rate for their kind."""

    gpu_name: str  # the kind of GPU
    gpus: float  # whole GPUs, beyond commitments that stand unused
    usd_per_gpu_hour: float  # the on-demand price
    rate: str
    reserved_usd_per_gpu_hour: float  # its price
    usd: float  # what the difference comes to in the week


def find_steady_load(
    usage: Usage,
    book: Book,
    hours: int,
    unused: Iterable[Commitment] = (),
    identity: Sequence[str] = (),
    promised: Mapping[str, float] = MappingProxyType({}),
) -> tuple[Steady, ...]:
    """By kind of GPU, beyond unused commitments. `promised`: GPU-hours by kind that fit onto pools which stand unused.

    A reserved rate is known only while a target runs at it, because prices are exported as they are in force.
    """
    of = find_gpu_kinds(book, identity)
    reserved, on_demand = find_rates_of_kind(book, RateKind.RESERVED), find_rates_of_kind(book, RateKind.ON_DEMAND)
    # an hour of which nothing at all is known says nothing about what is steady
    known = [index for index, value in enumerate(sum_by_hour(usage.gpu_seconds, hours)) if value is not None]
    idle = sum_by_key((one.rate, one.unused_gpu_hours) for one in unused)
    found = []
    for kind in sorted({kind for each in of.values() for kind in each}):
        lines = [
            line
            for line in usage.gpu_seconds
            if line.of[1] in on_demand and of.get((*line.owner.place(identity), line.of[1])) == {kind}
        ]
        seconds = sum_by_hour(lines, hours)
        floor = min(((seconds[index] or 0.0) / 3600 for index in known), default=0.0)
        offers = [(price, rate) for rate in reserved if (price := _find_last_price(book, rate, kind)) is not None]
        current = [price for rate in on_demand if (price := _find_last_price(book, rate, kind)) is not None]
        gpus = float(int(floor + _LOST_AT_EDGES))
        if offers and known:
            # what is committed already and stands unused comes first
            taken = idle.get(min(offers)[1], 0.0) + promised.get(kind, 0.0)
            gpus -= ceil(taken / len(known) - _ROUNDING)
        if offers and current and gpus >= 1 and min(offers)[0] < min(current):
            price, rate = min(offers)
            usd = gpus * (min(current) - price) * len(known)
            found.append(Steady(kind, gpus, min(current), rate, price, usd))
    return tuple(found)


# --- GPU-hours and USD by kind of GPU and rate, of both weeks -> what list prices, rates and hardware changed. Pure.


K = TypeVar("K", bound=Hashable)
# kind of GPU, rate
Priced = tuple[str, str]


class Bill(Struct):
    """GPU-hours that have a price, and their cost, by kind of GPU and rate."""

    hours: dict[Priced, float] = field(default_factory=dict)  # by kind and rate
    usd: dict[Priced, float] = field(default_factory=dict)  # the same in USD

    @property
    def all_hours(self) -> float:
        """Of all kinds and rates."""
        return fsum(self.hours.values())

    @property
    def all_usd(self) -> float:
        """Of all kinds and rates."""
        return fsum(self.usd.values())

    def price(self, key: Priced) -> float | None:
        """Mean USD per GPU-hour; None without GPU-hours."""
        return self.usd.get(key, 0.0) / self.hours[key] if self.hours.get(key) else None

    @property
    def mean_price(self) -> float | None:
        """Over all kinds and rates; None without GPU-hours or cost."""
        return self.all_usd / self.all_hours if self.all_hours and self.all_usd else None

    def forget_kinds(self) -> Bill:
        """The same by rate alone."""
        return Bill(
            *(sum_by_key((("", rate), value) for (_, rate), value in of.items()) for of in (self.hours, self.usd))
        )

    def kinds(self) -> list[str]:
        """Kinds of GPU, those with most hours first."""
        hours = sum_by_key((kind, value) for (kind, _), value in self.hours.items())
        return sorted((kind for kind in hours if hours[kind]), key=lambda kind: (-hours[kind], kind))


class GpuKinds:
    """Which kind of GPU a target had in an hour at a rate."""

    def __init__(self, book: Book, identity: Sequence[str]) -> None:
        self._identity = identity
        self._prices = book.index_prices(identity)
        self._had = group_by_key((gauge.place(identity), gauge.label("gpu_name")) for gauge in book.gpus)

    def find_prices(self, owner: Owner, rate: str) -> Sequence[Gauge]:
        """What the target's GPUs cost at a rate, a gauge for each kind."""
        return self._prices.get((*owner.place(self._identity), rate), ())

    def find_all_kinds(self, owner: Owner, rate: str) -> str:
        """Those that it ever had at the rate, else at all, joined with " + "; "" where they are unknown."""
        priced = {gauge.label("gpu_name") for gauge in self.find_prices(owner, rate)}
        return " + ".join(sorted(priced or {*self._had.get(owner.place(self._identity), ())}))

    def find_kinds(self, owner: Owner, rate: str) -> str | Callable[[int], str]:
        """The kind, by hour where it changed; several joined with " + ", "" where it is unknown."""
        gauges, ever = self.find_prices(owner, rate), self.find_all_kinds(owner, rate)
        if len(gauges) < 2:
            return ever

        def kind(hour: int) -> str:
            there = {gauge.label("gpu_name") for gauge in gauges if gauge.hours[hour] is not None}
            return " + ".join(sorted(there)) or ever

        return kind


def sum_bills(usage: Usage, kinds: GpuKinds, key: Callable[[Owner], K]) -> dict[K, Bill]:
    """The bill of each key."""

    def list_parts(lines: Iterable[Line], unit: float) -> Iterator[tuple[K, tuple[Priced, float]]]:
        for line in lines:
            if rate := line.of[1]:
                kind = kinds.find_kinds(line.owner, rate)
                values = (
                    [(kind, line.total)]
                    if isinstance(kind, str)
                    else [(kind(hour), value) for hour, value in enumerate(line.hours) if value]
                )
                yield from ((key(line.owner), ((name, rate), value / unit)) for name, value in values)

    hours, usd = (
        {
            of: {key: value for key, value in sum_by_key(parts).items() if value}
            for of, parts in group_by_key(list_parts(lines, unit)).items()
        }
        for lines, unit in ((usage.gpu_seconds, 3600), (usage.cost, 1))
    )
    return {of: Bill(hours.get(of, {}), usd.get(of, {})) for of in {**hours, **usd}}


class LastPrices(Struct, frozen=True):
    """Last week's USD per GPU-hour by kind and rate."""

    ran: Bill  # over everything that ran last week
    # what the price file said then, where nothing ran; by kind and rate
    said: Mapping[Priced, float] = field(default_factory=dict)

    def find(self, key: Priced, own: Bill | None = None) -> float | None:
        """What it cost last week: the same model first, then any. None where nothing says it."""
        for price in (own.price(key) if own is not None else None, self.ran.price(key), self.said.get(key)):
            if price is not None:
                return price
        return None


def read_said_prices(gauges: Iterable[Gauge]) -> dict[Priced, float]:
    """Mean price by kind and rate, as it was in force."""
    found: dict[Priced, list[float]] = {}
    for gauge in gauges:
        known = [value for value in gauge.hours if value is not None]
        found.setdefault((gauge.labels.get("gpu_name", ""), gauge.labels.get("rate", "")), []).extend(known)
    return {key: fsum(values) / len(values) for key, values in found.items() if values}


def split_prices(before: Bill, after: Bill, last: LastPrices) -> Split:
    """What this week's GPU-hours cost more than at last week's mean price: list price, then rate, then hardware.

    `before` must have a mean price. Where the kind of a GPU is not known in one of the weeks, all kinds are taken to be the same.
    Last week's price of a kind and rate that nothing knows is taken to be this week's. Where the price of a kind at last week's
    rates is not known, a move to that kind is hardware alone.
    """
    mean = before.mean_price
    assert mean is not None
    if "" in (*before.kinds(), *after.kinds()):
        before, after = before.forget_kinds(), after.forget_kinds()
    at_last_prices = sum_by_key(
        (key[0], after.usd.get(key, 0.0) if (price := last.find(key, before)) is None else value * price)
        for key, value in after.hours.items()
    )
    hours = sum_by_key((key[0], value) for key, value in after.hours.items())
    list_price = after.all_usd - fsum(at_last_prices.values())
    at_last_rates = fsum(
        at_last_prices[kind] if (price := _price_at_last_rates(kind, before, last)) is None else value * price
        for kind, value in hours.items()
    )
    rate = fsum(at_last_prices.values()) - at_last_rates
    return Split(list_price=list_price, rate=rate, hardware=at_last_rates - after.all_hours * mean)


def _price_at_last_rates(kind: str, before: Bill, last: LastPrices) -> float | None:
    """Last week's price of a kind of GPU at last week's rates: those of that kind, else those of all kinds. None where it is not known."""
    weights = {rate: hours for (of, rate), hours in before.hours.items() if of == kind and hours}
    if not weights:
        weights = sum_by_key((rate, hours) for (_, rate), hours in before.hours.items())
    prices = {rate: last.find((kind, rate), before) for rate, hours in weights.items() if hours}
    known = {rate: price for rate, price in prices.items() if price is not None}
    if not known or len(known) < len(prices):
        return None
    return fsum(weights[rate] * price for rate, price in known.items()) / fsum(weights[rate] for rate in known)
