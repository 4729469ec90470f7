"""Functions from a page's values to one field: made once for a layout, called for every page. None = not a possible value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

from llm_serving_exporter.model.histogram import Histogram

Values = tuple[float, ...]
Reader = Callable[[Values], Any]
# positions that tell one value several times together (ranks of one engine)
Groups = tuple[tuple[int, ...], ...]

# how far two samples that say the same share may differ: one of them is a rounded or a slightly older reading
AGREEMENT = 0.02


def _adder(groups: Groups) -> Callable[[Values], float]:
    """The sum over groups of each group's largest."""
    if all(len(group) == 1 for group in groups):
        positions = tuple(group[0] for group in groups)
        return lambda values: sum([values[position] for position in positions])
    return lambda values: sum([max([values[position] for position in group]) for group in groups])


def finite_sum(groups: Groups, scale: float) -> Reader:
    """The sum of the samples x scale; None where it is negative, NaN or infinite."""
    if len(groups) == 1 and len(groups[0]) == 1 and scale == 1.0:
        only = groups[0][0]

        def read_one(values: Values) -> float | None:
            value = values[only]
            return value if isfinite(value) and value >= 0 else None

        return read_one
    total = _adder(groups)

    def read(values: Values) -> float | None:
        value = total(values) * scale
        return value if isfinite(value) and value >= 0 else None

    return read


def finite_max(groups: Groups, scale: float) -> Reader:
    """The largest of the samples x scale; None as for a sum."""
    positions = tuple(position for group in groups for position in group)

    def read(values: Values) -> float | None:
        value = max([values[position] for position in positions]) * scale
        return value if isfinite(value) and value >= 0 else None

    return read


def compound(
    plus: Groups, minus: Groups, minus_factor: float, times: tuple[Groups, ...], over: Groups | None, scale: float
) -> Reader:
    """(plus - minus_factor x minus) x each of times / over x scale; None as for a sum, and where `over` is 0."""
    added, subtracted = _adder(plus), _adder(minus)
    factors = tuple(_adder(groups) for groups in times)
    divisor = _adder(over) if over is not None else None

    def read(values: Values) -> float | None:
        value = (added(values) - minus_factor * subtracted(values)) * scale
        for factor in factors:
            value *= factor(values)
        if divisor is not None:
            below = divisor(values)
            if not below:
                return None
            value /= below
        return value if isfinite(value) and value >= 0 else None

    return read


def agreeing(reader: Reader, groups: Groups) -> Reader:
    """What `reader` reads where another sample says the same; None where they differ."""
    other = finite_sum(groups, 1.0)

    def read(values: Values) -> float | None:
        value, said = reader(values), other(values)
        return value if value is not None and said is not None and abs(value - said) <= AGREEMENT else None

    return read


def unless_zero(reader: Reader) -> Reader:
    """What `reader` reads; None where it is 0."""
    return lambda values: reader(values) or None


def keyed(groups: Mapping[str, Reader]) -> Reader:
    """A mapping of what each key's reader reads; a key without a value is left out, None where none has one."""
    items = tuple(groups.items())

    def read(values: Values) -> dict[str, float] | None:
        found = {key: value for key, reader in items if (value := reader(values)) is not None}
        return found or None

    return read


def histogram(
    edges: tuple[float, ...],
    buckets: tuple[tuple[int, ...], ...],
    total: tuple[int, ...],
    sums: tuple[int, ...] | None,
    scale: float = 1.0,
) -> Reader:
    """A histogram summed over its series; `buckets[i]` feed `edges[i]`. One series with adjacent buckets is a slice.

    `edges` are scaled already, `scale` multiplies the sum; without `sums` there is none.
    """
    first = buckets[0][0] if buckets else 0
    straight = all(len(group) == 1 and group[0] == first + place for place, group in enumerate(buckets))
    stop = first + len(buckets)
    one = len(total) == 1 and (sums is None or len(sums) == 1)

    def read(values: Values) -> Histogram | None:
        cumulative = values[first:stop] if straight else tuple([sum([values[p] for p in group]) for group in buckets])
        count = values[total[0]] if one else sum([values[p] for p in total])
        amount = None
        if sums is not None:
            amount = (values[sums[0]] if one else sum([values[p] for p in sums])) * scale
        # ascending and bounded by the count: anything else is not a histogram (NaN fails every comparison)
        below = 0.0
        for value in cumulative:
            if not value >= below:
                return None
            below = value
        if not (isfinite(count) and count >= below and (amount is None or isfinite(amount))):
            return None
        return Histogram(edges, cumulative, count, amount)

    return read


def constant(value: float | str) -> Reader:
    """Always the value: what stands in labels does not change while the layout stays."""
    return lambda _values: value
