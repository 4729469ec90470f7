"""Layout -> Plan: which samples feed which field of which engine, and why a field is not there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import isfinite

from llm_serving_exporter.model.facts import ServerFacts
from llm_serving_exporter.model.samples import Layout, SeriesKey
from llm_serving_exporter.model.snapshot import Absence, Quality
from llm_serving_exporter.model.text import clean
from llm_serving_exporter.normalise.mapping import Aggregate, Reads, Row, Runtime
from llm_serving_exporter.normalise.readers import (
    Reader,
    constant,
    difference,
    finite_max,
    finite_sum,
    histogram,
    keyed,
)
from llm_serving_exporter.normalise.version import Version, parse_version, within

# A page's labels come from outside; these caps keep the series that we export bounded whatever it holds.
MAX_ENGINES = 1024  # identities (model_name, engine) of one page; the largest data-parallel layouts known have hundreds
MAX_LABEL_VALUES = 32  # distinct reasons or code classes a field


@dataclass(frozen=True, slots=True, order=True)
class Identity:
    """One engine of one model. A label that a family lacks is the page's sole value of it, else ""."""

    model_name: str
    engine: str


@dataclass(frozen=True, slots=True)
class Plan:
    """`engines`: identity -> field -> function of the page's values, None for an invalid value."""

    engines: Mapping[Identity, Mapping[str, Reader]]
    absent: Mapping[str, Absence]
    quality: Mapping[str, Quality]
    start_index: int | None
    unmapped: tuple[str, ...]
    may_fall: frozenset[str]
    names_models: bool


_SUFFIXES = {Reads.HISTOGRAM: ("_bucket", "_sum", "_count")}


def _spellings(name: str) -> tuple[str, ...]:
    """The wire forms of a name: as written, and as an OpenMetrics scrape without UTF-8 names writes it."""
    return (name, name.replace(":", "_")) if ":" in name else (name,)


def _row_names(row: Row) -> Iterable[str]:
    suffixes = _SUFFIXES.get(row.reads, ("",))
    for name in (*row.samples, *row.minus, *((row.times_label[0],) if row.times_label else ())):
        for spelling in _spellings(name):
            yield from (spelling + suffix for suffix in suffixes)
    for condition in (row.proof, row.when, row.unless):
        if condition:
            yield from _spellings(condition[0])


def on_the_wire(runtime: Runtime) -> frozenset[str]:
    """Every sample name that the runtime's table reads, in every spelling."""
    names = {name for row in runtime.rows for name in _row_names(row)}
    return frozenset(names | ({runtime.start_sample} if runtime.start_sample else set()))


class _Index:
    """Samples of a layout by name, with identities resolved."""

    def __init__(self, runtime: Runtime, layout: Layout) -> None:
        self.by_name: dict[str, list[int]] = {}
        for position, key in enumerate(layout.keys):
            self.by_name.setdefault(key.name, []).append(position)
        self.keys = layout.keys
        self.duplicates = {key for key, times in Counter(layout.keys).items() if times > 1}
        self._model_label, self._engine_label = runtime.model_label, runtime.engine_label
        self._models = self._values_of(self._model_label)
        self._engines = self._values_of(self._engine_label) if self._engine_label else {"0"}

    def _values_of(self, label: str) -> set[str]:
        return {value for key in self.keys if (value := key.label(label)) is not None}

    def identity(self, key: SeriesKey) -> Identity:
        model = key.label(self._model_label)
        if model is None:
            model = next(iter(self._models)) if len(self._models) == 1 else ""
        engine = key.label(self._engine_label) if self._engine_label else None
        if engine is None:
            # an engine without data parallelism may leave the label out altogether: then it is engine 0
            engine = next(iter(self._engines)) if len(self._engines) == 1 else ("" if self._engines else "0")
        return Identity(clean(model), clean(engine))

    def positions(self, name: str, suffix: str = "") -> list[int]:
        for spelling in _spellings(name):
            if found := self.by_name.get(spelling + suffix):
                return found
        return []

    @property
    def names_models(self) -> bool:
        """Whether any series says which model it is about."""
        return bool(self._models)

    def engine_count(self) -> int:
        return max(1, len(self._engines))


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None and "_" not in text else None
    except ValueError:
        return None
    return value if value is not None and isfinite(value) and value > 0 else None


def _select(row: Row, index: _Index, name: str, suffix: str = "") -> list[int]:
    return [
        position
        for position in index.positions(name, suffix)
        if all(index.keys[position].label(label) in allowed for label, allowed in row.where.items())
    ]


def _by_identity(index: _Index, positions: Iterable[int]) -> dict[Identity, list[int]]:
    grouped: dict[Identity, list[int]] = {}
    for position in positions:
        grouped.setdefault(index.identity(index.keys[position]), []).append(position)
    return grouped


def _label_factor(row: Row, index: _Index, identity: Identity) -> float | None:
    """The numeric label that a row is multiplied by (a block size), from this engine's info series or the page's only one."""
    assert row.times_label is not None
    name, label = row.times_label
    series = index.positions(name)
    own = [p for p in series if index.identity(index.keys[p]) == identity]
    numbers = {_number(index.keys[p].label(label)) for p in own or series}
    return numbers.pop() if len(numbers) == 1 else None


def _value_readers(row: Row, index: _Index) -> dict[Identity, Reader] | Absence:
    plus = [p for name in row.samples for p in _select(row, index, name)]
    if not _select(row, index, row.samples[0]):
        return Absence.NOT_EXPORTED
    minus = [p for name in row.minus for p in index.positions(name)]
    if row.minus and not minus:
        return Absence.NOT_EXPORTED
    if any(index.keys[p] in index.duplicates for p in (*plus, *minus)):
        return Absence.DUPLICATE
    subtracted = _by_identity(index, minus)
    readers: dict[Identity, Reader] = {}
    for identity, positions in _by_identity(index, plus).items():
        factor = row.scale
        if row.times_label:
            label = _label_factor(row, index, identity)
            if label is None:
                return Absence.INPUT_MISSING
            factor *= label
        if row.by:
            groups: dict[str, list[int]] = {}
            for position in positions:
                raw = index.keys[position].label(row.by) or ""
                key = clean(row.rename.get(raw, raw))
                if key in groups or len(groups) < MAX_LABEL_VALUES:
                    groups.setdefault(key, []).append(position)
            readers[identity] = keyed({key: finite_sum(tuple(found), factor) for key, found in groups.items()})
        elif row.minus:
            readers[identity] = difference(tuple(positions), tuple(subtracted.get(identity, ())), factor)
        elif row.aggregate is Aggregate.MAX:
            readers[identity] = finite_max(tuple(positions), factor)
        elif row.aggregate is Aggregate.ONE and len(positions) > 1:
            return Absence.DUPLICATE
        else:
            readers[identity] = finite_sum(tuple(positions), factor)
    return readers


def _histogram_readers(row: Row, index: _Index) -> dict[Identity, Reader] | Absence:
    name = row.samples[0]
    buckets = _by_identity(index, _select(row, index, name, "_bucket"))
    sums = _by_identity(index, _select(row, index, name, "_sum"))
    counts = _by_identity(index, _select(row, index, name, "_count"))
    if not counts:
        return Absence.NOT_EXPORTED
    readers: dict[Identity, Reader] = {}
    for identity, totals in counts.items():
        found = buckets.get(identity, [])
        if any(index.keys[p] in index.duplicates for p in (*totals, *found, *sums.get(identity, ()))):
            return Absence.DUPLICATE
        by_edge: dict[float, list[int]] = {}
        for position in found:
            edge = _edge(index.keys[position].label("le"))
            if edge is not None and isfinite(edge):
                by_edge.setdefault(edge, []).append(position)
        edges = tuple(sorted(by_edge))
        if not edges or any(len(by_edge[edge]) != len(totals) for edge in edges) or identity not in sums:
            return Absence.INVALID
        readers[identity] = histogram(
            edges, tuple(tuple(by_edge[edge]) for edge in edges), tuple(totals), tuple(sums[identity])
        )
    return readers


def _edge(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None


def _label_readers(row: Row, index: _Index) -> dict[Identity, Reader] | Absence:
    series = _select(row, index, row.samples[0])
    if not series:
        return Absence.NOT_EXPORTED
    readers: dict[Identity, Reader] = {}
    for identity, positions in _by_identity(index, series).items():
        product: float = row.scale / (index.engine_count() if row.shared_by_engines else 1)
        for label in row.labels:
            number = _number(index.keys[positions[0]].label(label))
            if number is None:
                return Absence.NOT_EXPORTED
            product *= number
        readers[identity] = constant(product)
    return readers


def _text_readers(row: Row, index: _Index) -> dict[Identity, Reader] | Absence:
    readers: dict[Identity, Reader] = {}
    for identity, positions in _by_identity(index, _select(row, index, row.samples[0])).items():
        text = index.keys[positions[0]].label(row.labels[0])
        if text:
            readers[identity] = constant(clean(text))
    return readers or Absence.NOT_EXPORTED


_READERS = {
    Reads.VALUE: _value_readers,
    Reads.HISTOGRAM: _histogram_readers,
    Reads.LABELS: _label_readers,
    Reads.TEXT: _text_readers,
}


def _shown(condition: tuple[str, str, str], index: _Index) -> bool:
    name, label, value = condition
    return any(index.keys[p].label(label) == value for p in index.positions(name))


def _applies(row: Row, index: _Index, version: Version | None) -> Absence | None:
    """None where the row may be used, else why not."""
    if row.when is not None and not _shown(row.when, index):
        return Absence.NOT_EXPORTED
    if row.unless is not None and _shown(row.unless, index):
        return Absence.NOT_CONFIGURED
    if not row.guarded or (row.proof is not None and _shown(row.proof, index)):
        return None
    if version is None:
        return Absence.VERSION_UNKNOWN if index.positions(row.samples[0]) else Absence.NOT_EXPORTED
    return None if within(version, row.versions) else Absence.NOT_EXPORTED


def make_plan(runtime: Runtime, layout: Layout, facts: ServerFacts) -> Plan:
    """Works out how a page of this layout is read.

    A field that several rows could fill takes the first that can; where none can, the last reason other than
    "not exported" is kept, because it says more.
    """
    index = _Index(runtime, layout)
    version = parse_version(facts.version)
    engines: dict[Identity, dict[str, Reader]] = {}
    absent: dict[str, Absence] = {}
    quality: dict[str, Quality] = {}
    may_fall: set[str] = set()
    own: set[Identity] = set()
    multiprocess = not index.by_name.get(runtime.start_sample or "")
    done: set[str] = set()
    for row in runtime.rows:
        if row.field in done:
            continue
        refused = _applies(row, index, version)
        outcome = refused or _READERS[row.reads](row, index)
        if isinstance(outcome, Absence):
            if outcome is Absence.NOT_EXPORTED and not refused and _declared(row, layout):
                outcome = Absence.IDLE
            if absent.get(row.field, Absence.NOT_EXPORTED) is Absence.NOT_EXPORTED:
                absent[row.field] = outcome
            continue
        done.add(row.field)
        absent.pop(row.field, None)
        how = (row.multiprocess_quality or row.quality) if multiprocess else row.quality
        if how is not Quality.LIVE:
            quality[row.field] = how
        if row.may_fall:
            may_fall.add(row.field)
        if row.samples[0].startswith(runtime.prefixes):
            own.update(outcome)
        for identity, reader in outcome.items():
            if identity in engines or len(engines) < MAX_ENGINES:
                engines.setdefault(identity, {})[row.field] = reader
    start = index.by_name.get(runtime.start_sample or "")
    return Plan(
        # a page with nothing of the runtime's own is not its page, whatever generic families it has
        engines={identity: engines[identity] for identity in sorted(engines)} if own else {},
        absent=absent,
        quality=quality,
        start_index=start[0] if start else None,
        unmapped=_unmapped(runtime, layout),
        may_fall=frozenset(may_fall),
        names_models=index.names_models,
    )


def _declared(row: Row, layout: Layout) -> bool:
    """Whether the page has the families' TYPE lines: a family without samples waits for its first event."""
    if row.reads in (Reads.LABELS, Reads.TEXT):
        return False
    return all(
        any(
            spelling in layout.types or spelling.removesuffix("_total") in layout.types for spelling in _spellings(name)
        )
        for name in (row.samples[0], *row.minus[:1])
    )


def _unmapped(runtime: Runtime, layout: Layout) -> tuple[str, ...]:
    """Families with this runtime's prefix that no row reads and no list knows: what a new version brought."""
    read = {spelling for row in runtime.rows for name in (*row.samples, *row.minus) for spelling in _spellings(name)}
    prefixes = tuple(spelling for prefix in runtime.prefixes for spelling in _spellings(prefix))
    unknown = []
    for family in layout.types:
        if (
            not family.startswith(prefixes)
            or family in read
            or f"{family}_total" in read
            or family.endswith("_created")
        ):
            continue
        if any(f"{family}{suffix}" in read for suffix in ("_count", "_sum", "_bucket")):
            continue
        patterns = (spelling for pattern in runtime.ignored for spelling in _spellings(pattern))
        if not any(fnmatchcase(family, pattern) or fnmatchcase(f"{family}_total", pattern) for pattern in patterns):
            unknown.append(family)
    return tuple(sorted(unknown)[:MAX_LABEL_VALUES])
