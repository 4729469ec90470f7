"""GPU-hours and USD by kind of GPU and rate, of both weeks -> what list prices, rates and hardware changed. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from math import fsum
from typing import TypeVar

from llm_serving_exporter.model.record import Struct, field
from llm_serving_review.evidence.usage import Book, Gauge, Line, Owner, Usage
from llm_serving_review.figures.rates import Where, fleet_of_gauge, fleet_of_owner
from llm_serving_review.figures.split import Split
from llm_serving_review.tables.sums import group_by_key, sum_by_key

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
        self._priced: dict[tuple[Where, str, str], list[Gauge]] = {}
        self._had: dict[tuple[Where, str], set[str]] = {}
        for gauge in book.prices:
            key = fleet_of_gauge(gauge.labels, identity), gauge.labels.get("target", ""), gauge.labels.get("rate", "")
            self._priced.setdefault(key, []).append(gauge)
        for gauge in book.gpus:
            place = fleet_of_gauge(gauge.labels, identity), gauge.labels.get("target", "")
            self._had.setdefault(place, set()).add(gauge.labels.get("gpu_name", ""))

    def find_kinds(self, owner: Owner, rate: str) -> str | Callable[[int], str]:
        """The kind, by hour where it changed; several joined with " + ", "" where it is unknown."""
        place = fleet_of_owner(owner, self._identity), owner.target
        gauges = self._priced.get((*place, rate), [])
        ever = " + ".join(sorted({gauge.labels.get("gpu_name", "") for gauge in gauges} or self._had.get(place, set())))
        if len(gauges) < 2:
            return ever

        def kind(hour: int) -> str:
            there = {gauge.labels.get("gpu_name", "") for gauge in gauges if gauge.hours[hour] is not None}
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

    hours, usd = (group_by_key(list_parts(lines, unit)) for lines, unit in ((usage.gpu_seconds, 3600), (usage.cost, 1)))
    return {
        of: Bill(*(_drop_nothing(sum_by_key(parts.get(of, ()))) for parts in (hours, usd))) for of in {**hours, **usd}
    }


def _drop_nothing(sums: Mapping[Priced, float]) -> dict[Priced, float]:
    return {key: value for key, value in sums.items() if value}


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
