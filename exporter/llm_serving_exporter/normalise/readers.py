"""Functions from a page's values to one field: made once for a layout, called for every page. None = not a possible value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

from llm_serving_exporter.model.histogram import Histogram

Values = tuple[float, ...]
Reader = Callable[[Values], Any]


def finite_sum(positions: tuple[int, ...], scale: float) -> Reader:
    """The sum of the samples x scale; None where it is negative, NaN or infinite."""
    if len(positions) == 1 and scale == 1.0:
        only = positions[0]

        def read_one(values: Values) -> float | None:
            value = values[only]
            return value if isfinite(value) and value >= 0 else None

        return read_one

    def read(values: Values) -> float | None:
        value = sum([values[position] for position in positions]) * scale
        return value if isfinite(value) and value >= 0 else None

    return read


def finite_max(positions: tuple[int, ...], scale: float) -> Reader:
    """The largest of the samples x scale; None as for a sum."""

    def read(values: Values) -> float | None:
        value = max([values[position] for position in positions]) * scale
        return value if isfinite(value) and value >= 0 else None

    return read


def difference(plus: tuple[int, ...], minus: tuple[int, ...], factor: float) -> Reader:
    """The sum of `plus` less factor x the sum of `minus`; None as for a sum."""

    def read(values: Values) -> float | None:
        value = sum([values[p] for p in plus]) - factor * sum([values[p] for p in minus])
        return value if isfinite(value) and value >= 0 else None

    return read


def keyed(groups: Mapping[str, Reader]) -> Reader:
    """A mapping of what each key's reader reads; a key without a value is left out, None where none has one."""
    items = tuple(groups.items())

    def read(values: Values) -> dict[str, float] | None:
        found = {key: value for key, reader in items if (value := reader(values)) is not None}
        return found or None

    return read


def histogram(
    edges: tuple[float, ...], buckets: tuple[tuple[int, ...], ...], total: tuple[int, ...], sums: tuple[int, ...]
) -> Reader:
    """A histogram summed over its series; `buckets[i]` feed `edges[i]`. One series with adjacent buckets is a slice."""
    first = buckets[0][0] if buckets else 0
    straight = all(len(group) == 1 and group[0] == first + place for place, group in enumerate(buckets))
    stop = first + len(buckets)
    one = len(total) == 1 and len(sums) == 1

    def read(values: Values) -> Histogram | None:
        cumulative = values[first:stop] if straight else tuple([sum([values[p] for p in group]) for group in buckets])
        count = values[total[0]] if one else sum([values[p] for p in total])
        amount = values[sums[0]] if one else sum([values[p] for p in sums])
        # ascending and bounded by the count: anything else is not a histogram (NaN fails every comparison)
        below = 0.0
        for value in cumulative:
            if not value >= below:
                return None
            below = value
        if not (isfinite(count) and count >= below and isfinite(amount)):
            return None
        return Histogram(edges, cumulative, count, amount)

    return read


def constant(value: float | str) -> Reader:
    """Always the value: what stands in labels does not change while the layout stays."""
    return lambda _values: value
