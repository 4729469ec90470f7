"""One row of a table over a layout's index -> a reader for each engine, or why there is none.

A reader is a function from a page's values to one field: made once for a layout, called for every page. None = the page says nothing.
Whether a number can be true is not judged here: everything that is read passes `engines.apply`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import inf, isfinite, isnan, nan
from operator import itemgetter
from typing import Any

from llm_serving_exporter.engines.index import EngineIdentity, Index, parse_number
from llm_serving_exporter.engines.mapping import NOT_ADDITIVE, Aggregate, Reads, Row
from llm_serving_exporter.model.numbers import Histogram, add_up
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.text import clean

# --- readers ---

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
    return nan if any(map(isnan, values)) else max(values)


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
        value, share = reader(values), other(values)
        return None if value is None or abs(value - share) > AGREEMENT else value + 0.0 * share

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
    single = len(total) == 1 and (sums is None or len(sums) == 1)

    def read(values: Values) -> Histogram:
        cumulative = (
            values[first:stop] if straight else tuple([add_up([values[p] for p in group]) for group in buckets])
        )
        count = values[total[0]] if single else add_up([values[p] for p in total])
        amount = None
        if sums is not None:
            amount = (values[sums[0]] if single else add_up([values[p] for p in sums])) * scale
        return Histogram(edges, cumulative, count, amount)

    return read


def constant(value: float | str) -> Reader:
    """Always the value: what stands in labels does not change while the layout stays."""
    return lambda _values: value


# --- rows ---

# of fields whose keys are a closed set: what is none of it ("None", where nobody was answered) is not counted
_KEYS = {"http_responses_total": re.compile(r"[1-5]xx")}
MAX_LABEL_VALUES = 32  # distinct reasons or code classes a field: a page's labels come from outside

Outcome = dict[EngineIdentity, Reader] | Absence


def read_row(row: Row, index: Index) -> Outcome:
    """What the row makes of the page, by identity; an Absence where it makes nothing."""
    outcome = _READERS[row.reads](row, index)
    if row.zero_is_unset and not isinstance(outcome, Absence):
        return {identity: unless_unset(reader) for identity, reader in outcome.items()}
    return outcome


def _label_factor(row: Row, index: Index, identity: EngineIdentity) -> float | None:
    """The numeric label that a row is multiplied by (a block size), from this engine's info series or the page's only one; 1 where it is
    multiplied by none."""
    if row.times_label is None:
        return 1.0
    name, label = row.times_label
    series = index.positions(name)
    of_engine = [p for p in series if index.identity(index.keys[p]) == identity]
    numbers = {parse_number(index.keys[p].label(label)) for p in of_engine or series}
    return numbers.pop() if len(numbers) == 1 else None


class _Parts:
    """The samples that a row's value is worked out from, by identity; a part that names no engine is everybody's."""

    def __init__(self, row: Row, index: Index) -> None:
        self._index = index
        self.minus = self._grouped(*row.minus)
        self.times = tuple(self._grouped(text) for text in row.times)
        self.over = self._grouped(*row.over)
        self.agrees = self._grouped(*((row.agrees,) if row.agrees else ()))
        self.positions = [p for text in (*row.minus, *row.times, *row.over) for p in index.select(text)]

    def list_positions(self, identity: EngineIdentity) -> list[int]:
        """Positions of the parts that are this identity's, or the page's only ones."""
        parts = (self.minus, *self.times, self.over)
        return [position for part in parts for group in _own(part, identity) or () for position in group]

    def _grouped(self, *texts: str) -> dict[EngineIdentity, Groups]:
        grouped = self._index.by_identity(p for text in texts for p in self._index.select(text))
        return {identity: self._index.groups(positions) for identity, positions in grouped.items()}

    def complete(self, row: Row) -> bool:
        """Whether everything that the row names is on the page; of `minus` something suffices."""
        over = [bool(self._index.select(text)) for text in row.over]
        return all((*self.times, *over, *((self.minus,) if row.minus else ())))


def _own(groups: dict[EngineIdentity, Groups], identity: EngineIdentity) -> Groups | None:
    """An identity's part, or the page's only one."""
    part = groups.get(identity)
    return part if part is not None else next(iter(groups.values())) if len(groups) == 1 else None


def _value_readers(row: Row, index: Index) -> Outcome:
    plus = [p for text in row.samples for p in index.select(text, row)]
    if not plus or (not row.named and not index.select(row.samples[0], row)):
        return Absence.NOT_EXPORTED
    parts = _Parts(row, index)
    if not parts.complete(row):
        return Absence.NOT_EXPORTED
    if index.repeated((*plus, *parts.positions)):
        return Absence.DUPLICATE
    readers: dict[EngineIdentity, Reader] = {}
    for identity, positions in index.by_identity(plus).items():
        factor = _label_factor(row, index, identity)
        if factor is None:
            return Absence.INPUT_MISSING
        groups = index.groups(positions)
        aggregate = row.aggregate or (Aggregate.SAME if row.field in NOT_ADDITIVE else Aggregate.SUM)
        foreign = (
            index.find_foreign(row, (*positions, *parts.list_positions(identity)))
            if aggregate is Aggregate.SAME
            else []
        )
        if foreign:
            index.foreign[row.field] = foreign[0]
        if row.by or row.named:
            if (by_key := _keyed(row, index, groups, row.scale * factor)) is not None:
                readers[identity] = by_key
        elif row.minus or row.times or row.over:
            if foreign:
                return Absence.INCONSISTENT
            worked = _compound(row, parts, identity, groups, factor)
            if worked is None:
                return Absence.INPUT_MISSING
            readers[identity] = worked
        elif aggregate is Aggregate.MAX:
            readers[identity] = largest_of(groups, row.scale * factor)
        elif aggregate is Aggregate.ONE and len(groups) > 1:
            return Absence.DUPLICATE
        elif foreign:
            readers[identity] = same_of(groups, row.scale * factor)
        else:
            readers[identity] = total_of(groups, row.scale * factor)
    # nothing but what is left out has happened yet
    return readers or Absence.IDLE


def _compound(row: Row, parts: _Parts, identity: EngineIdentity, plus: Groups, factor: float) -> Reader | None:
    times = tuple(_own(part, identity) for part in parts.times)
    over = _own(parts.over, identity) if row.over else None
    if any(part is None for part in times) or (row.over and over is None):
        return None
    minus = parts.minus.get(identity, ())
    reader = compound(
        plus,
        minus,
        factor if row.minus else 1.0,
        tuple(part for part in times if part is not None),
        over,
        row.scale if row.minus else row.scale * factor,
    )
    if row.agrees is None:
        return reader
    other = _own(parts.agrees, identity)
    return agreeing(reader, other) if other is not None else reader


def _keyed(row: Row, index: Index, groups: Groups, factor: float) -> Reader | None:
    by_key: dict[str, list[tuple[int, ...]]] = {}
    keys = _KEYS.get(row.field)
    for group in groups:
        sample = index.keys[group[0]]
        # a sample is named as the table names it, whatever its spelling on the page
        named = next((key for text, key in row.named.items() if group[0] in index.select(text)), None)
        raw = named if named is not None else (sample.label(row.by) or "") if row.by else ""
        renamed = row.rename_value(raw) if named is None else None
        key = raw if named is not None else clean(raw if renamed is None else renamed)
        if named is None and (renamed == "" or (keys is not None and not keys.fullmatch(key))):
            continue
        if key in by_key or len(by_key) < MAX_LABEL_VALUES:
            by_key.setdefault(key, []).append(group)
    return keyed({key: total_of(tuple(of_key), factor) for key, of_key in by_key.items()}) if by_key else None


def _histogram_readers(row: Row, index: Index) -> Outcome:
    counts = index.by_identity(p for text in row.samples for p in index.select(text, row, "_count"))
    buckets = index.by_identity(p for text in row.samples for p in index.select(text, row, "_bucket"))
    sums = index.by_identity(p for text in row.samples for p in index.select(text, row, "_sum"))
    if not counts:
        return Absence.NOT_EXPORTED
    readers: dict[EngineIdentity, Reader] = {}
    for identity, totals in counts.items():
        counted, amounts = buckets.get(identity, []), sums.get(identity, [])
        if index.repeated((*totals, *counted, *amounts)):
            return Absence.DUPLICATE
        total = tuple(group[0] for group in index.groups(totals))
        by_edge: dict[float, list[int]] = {}
        for group in index.groups(counted):
            edge = _edge(index.keys[group[0]].label("le"))
            if isfinite(edge):
                by_edge.setdefault(edge, []).append(group[0])
        edges = tuple(sorted(by_edge))
        if not edges or any(len(by_edge[edge]) != len(total) for edge in edges) or not amounts:
            return Absence.INVALID
        readers[identity] = histogram(
            edges if row.scale == 1.0 else tuple(float(f"{edge * row.scale:.12g}") for edge in edges),
            tuple(tuple(by_edge[edge]) for edge in edges),
            total,
            tuple(group[0] for group in index.groups(amounts)) if row.sum_is_sound else None,
            row.scale,
        )
    return readers


def _edge(text: str | None) -> float:
    """The upper bound of a bucket; NaN where it is none."""
    try:
        return float(text or "")
    except ValueError:
        return nan


def _mean_readers(row: Row, index: Index) -> Outcome:
    sums, counts = (index.by_identity(index.select(text, row)) for text in row.samples)
    if not sums or not counts:
        return Absence.NOT_EXPORTED
    if index.repeated(p for positions in (*sums.values(), *counts.values()) for p in positions):
        return Absence.DUPLICATE
    readers: dict[EngineIdentity, Reader] = {}
    for identity, totals in counts.items():
        if identity in sums:
            total, amount = (tuple(g[0] for g in index.groups(positions)) for positions in (totals, sums[identity]))
            readers[identity] = histogram((), (), total, amount, row.scale)
    return readers or Absence.NOT_EXPORTED


def _label_readers(row: Row, index: Index) -> Outcome:
    series = index.select(row.samples[0], row)
    if not series:
        return Absence.NOT_EXPORTED
    readers: dict[EngineIdentity, Reader] = {}
    for identity, positions in index.by_identity(series).items():
        products = set()
        for position in positions:
            product: float = row.scale / (index.engine_count() if row.shared_by_engines else 1)
            for label in row.labels:
                value = parse_number(index.keys[position].label(label))
                if value is None:
                    return Absence.NOT_EXPORTED
                product *= value
            products.add(product)
        if len(products) > 1:
            foreign = set(index.find_foreign(row, positions)) - set(row.labels)
            index.foreign[row.field] = min(foreign) if foreign else row.labels[0]
            return Absence.INCONSISTENT
        readers[identity] = constant(products.pop())
    return readers


def _text_readers(row: Row, index: Index) -> Outcome:
    readers: dict[EngineIdentity, Reader] = {}
    for identity, positions in index.by_identity(index.select(row.samples[0], row)).items():
        text = index.keys[positions[0]].label(row.labels[0])
        text = row.rename.get(text, text) if text else None
        if text:
            readers[identity] = constant(clean(text))
    return readers or Absence.NOT_EXPORTED


def _presence_readers(row: Row, index: Index) -> Outcome:
    positions = [*index.select(row.samples[0], row), *index.select(row.samples[0], row, "_count")]
    return {identity: constant(1.0) for identity in index.by_identity(positions)} or Absence.NOT_EXPORTED


_READERS: dict[Reads, Callable[[Row, Index], Outcome]] = {
    Reads.VALUE: _value_readers,
    Reads.HISTOGRAM: _histogram_readers,
    Reads.MEAN: _mean_readers,
    Reads.LABELS: _label_readers,
    Reads.TEXT: _text_readers,
    Reads.PRESENCE: _presence_readers,
}
