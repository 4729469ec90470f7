"""Functions from a page's values to one field: made once for a layout, called for every page. None = the page says nothing.

Whether a number can be true is not judged here: everything that is read passes `engines.gate`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf, isnan, nan
from operator import itemgetter
from typing import Any

from llm_serving_exporter.model.histogram import Histogram
from llm_serving_exporter.model.numbers import add_up

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
        return lambda values: add_up([values[position] for position in positions])
    return lambda values: add_up([_largest([values[position] for position in group]) for group in groups])


def _largest(values: list[float]) -> float:
    """The largest; NaN where one is: `max` would pass over it, depending on its place."""
    found = max(values)
    return nan if any(map(isnan, values)) else found


def total_of(groups: Groups, scale: float) -> Reader:
    """The sum of the samples x scale."""
    if len(groups) == 1 and len(groups[0]) == 1 and scale == 1.0:
        return itemgetter(groups[0][0])
    total = _adder(groups)
    return lambda values: total(values) * scale


def largest_of(groups: Groups, scale: float) -> Reader:
    """The largest of the samples x scale."""
    positions = tuple(position for group in groups for position in group)
    return lambda values: _largest([values[position] for position in positions]) * scale


def same_of(groups: Groups, scale: float) -> Reader:
    """What all of the samples say x scale; None where they differ."""
    positions = tuple(group[0] for group in groups)

    def read(values: Values) -> float | None:
        first = values[positions[0]]
        return first * scale if all(values[position] == first for position in positions) else None

    return read


def compound(
    plus: Groups, minus: Groups, minus_factor: float, times: tuple[Groups, ...], over: Groups | None, scale: float
) -> Reader:
    """(plus - minus_factor x minus) x each of times / over x scale; None where `over` is 0, or `minus` is more than `plus`.

    The latter is no fault: one of two counters is booked before the other.
    """
    added, subtracted = _adder(plus), _adder(minus)
    factors = tuple(_adder(groups) for groups in times)
    divisor = _adder(over) if over is not None else None

    def read(values: Values) -> float | None:
        value = (added(values) - minus_factor * subtracted(values)) * scale
        if minus and -inf < value < 0:
            return None
        for factor in factors:
            value *= factor(values)
        if divisor is not None:
            below = divisor(values)
            if not below:
                return None
            value /= below
        return value

    return read


def agreeing(reader: Reader, groups: Groups) -> Reader:
    """What `reader` reads where another sample says the same, or is no number; None where they differ."""
    other = total_of(groups, 1.0)

    def read(values: Values) -> float | None:
        value, said = reader(values), other(values)
        return None if value is None or abs(value - said) > AGREEMENT else value + 0.0 * said

    return read


def unless_unset(reader: Reader) -> Reader:
    """What `reader` reads; None where it is 0 or -1, as engines print a limit that is not set."""

    def read(values: Values) -> float | None:
        value = reader(values)
        return None if value in (0.0, -1.0) else value

    return read


def keyed(groups: Mapping[str, Reader]) -> Reader:
    """A mapping of what each key's reader reads."""
    items = tuple(groups.items())

    return lambda values: {key: reader(values) for key, reader in items}


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

    def read(values: Values) -> Histogram:
        cumulative = (
            values[first:stop] if straight else tuple([add_up([values[p] for p in group]) for group in buckets])
        )
        count = values[total[0]] if one else add_up([values[p] for p in total])
        amount = None
        if sums is not None:
            amount = (values[sums[0]] if one else add_up([values[p] for p in sums])) * scale
        return Histogram(edges, cumulative, count, amount)

    return read


def constant(value: float | str) -> Reader:
    """Always the value: what stands in labels does not change while the layout stays."""
    return lambda _values: value
