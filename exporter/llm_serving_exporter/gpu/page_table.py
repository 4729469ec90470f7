"""How the page of a device exporter is read: by a table of its samples, as the pages of runtimes are. Pure.

One table an exporter (dcgm.py, amd.py, gaudi.py): which samples feed which field, in which unit, and what each of its values that are
no reading looks like. What is said here of a field holds for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from math import inf, isfinite, isnan

from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.model.sample import Samples, SeriesKey
from llm_serving_exporter.model.snapshot import Absence

# a node has at most 16 GPUs of 8 parts; a page with more is a federation, of which this many are kept
MOST_GPUS = 4096


class Join(StrEnum):
    """What becomes of several series of one field of one GPU."""

    # equal values are one, different ones are none: several pods that share the GPU, or two names of one release
    ONE = "one"
    # one each part of the chip: the highest
    HIGHEST = "highest"
    # one each link: all together
    SUM = "sum"


class PageField(Struct, frozen=True):
    """How a field of a reading stands on a page."""

    # the metric's names in the exporter's releases
    names: tuple[str, ...]
    # the values of its type that mean "no value"
    blanks: Mapping[float, Absence] = field(default_factory=dict)
    # page's unit -> base unit
    factor: float = 1.0
    # in the page's unit; a value above it is invalid
    highest: float = inf
    # values of labels that a series must have
    where: Mapping[str, str] = field(default_factory=dict)
    # what becomes of several series
    join: Join = Join.ONE
    # whether the names are sources of their own, the best first, and not spellings of one
    ranked: bool = False
    # whether the exporter writes 0 for what the card does not tell
    zero_is_unset: bool = False


class DeviceTable(Struct, frozen=True):
    """A device exporter: how its page is known, whose GPUs its series are of, and what they say."""

    # as the label `source` of gpu_info has it
    name: str
    # as people call it
    title: str
    # samples of which one says that the page is this exporter's
    fingerprints: tuple[str, ...]
    # by field of GpuReading; "temperature_celsius.gpu" for a member of a mapping
    fields: Mapping[str, PageField]
    # of the labels that say which GPU it is, the first that is there
    uuid_labels: tuple[str, ...]
    # the GPU's number on its node
    index_label: str
    # the product's name, or the PCI device id as 0x…; the first that is there
    name_labels: tuple[str, ...] = ()
    # products by their memory in bytes, for an exporter that names none
    products: Mapping[str, float] = field(default_factory=dict)
    # the serial number that all parts of one card have; "": cards have no parts
    card_label: str = ""
    # which part of the card it is
    part_label: str = ""
    # how the card is partitioned, and the values of it that mean: not at all
    partition_label: str = ""
    unpartitioned: frozenset[str] = frozenset()  # in lower case
    # the others -> into how many parts, whether the page shows them all or not
    parts_of_mode: Mapping[str, int] = field(default_factory=dict)
    # the same of products that are cut otherwise, by a word of their name
    parts_of_product: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    # of its PCI vendor
    pci_vendor: int = 0
    # fields that the exporter has of the whole card alone, on its first part
    of_whole_card: frozenset[str] = frozenset()
    # where it says so
    source: str = ""


def names_of(fields: Mapping[str, PageField]) -> dict[str, list[str]]:
    """By name of a metric: the fields that it feeds."""
    found: dict[str, list[str]] = {}
    for name, spec in fields.items():
        for metric in spec.names:
            found.setdefault(metric, []).append(name)
    return found


def collect_values(
    samples: Samples,
    fields: Mapping[str, PageField],
    read_key: Callable[[SeriesKey], object],
) -> Iterator[tuple[object, SeriesKey, dict[str, float], dict[str, Absence]]]:
    """By GPU, in the order of their first series: its key, that series, its values in base units, and why others are not there.

    `read_key`: which GPU a series is of; None: none.
    """
    feeds = names_of(fields)
    first: dict[object, SeriesKey] = {}
    found: dict[object, dict[str, dict[str, list[float | None]]]] = {}
    for series, value in zip(samples.layout.keys, samples.values, strict=True):
        fed = feeds.get(series.name)
        key = read_key(series) if fed else None
        if not fed or key is None or (key not in found and len(found) >= MOST_GPUS):
            continue
        first.setdefault(key, series)
        for name in fed:
            if all((series.label(label) or "").lower() == wanted for label, wanted in fields[name].where.items()):
                # NaN differs from itself; as None it is one value
                each = found.setdefault(key, {}).setdefault(name, {})
                each.setdefault(series.name, []).append(None if isnan(value) else value)
    for key, by_field in found.items():
        judged = {name: judge_values(by_field.get(name), spec) for name, spec in fields.items()}
        values = {name: one for name, one in judged.items() if not isinstance(one, Absence)}
        yield key, first[key], values, {name: one for name, one in judged.items() if isinstance(one, Absence)}


def judge_values(found: Mapping[str, list[float | None]] | None, spec: PageField) -> float | Absence:
    """The one value of a field in base units out of those by metric, or why there is none."""
    if not found:
        return Absence.NOT_EXPORTED
    if not spec.ranked:
        return _judge([value for values in found.values() for value in values], spec)
    answer: float | Absence = Absence.NOT_EXPORTED
    for name in spec.names:
        if name in found:
            answer = _judge(found[name], spec)
            if not isinstance(answer, Absence):
                return answer
    return answer


def _judge(values: Iterable[float | None], spec: PageField) -> float | Absence:
    distinct = set(values)
    if spec.join is Join.ONE and len(distinct) > 1:
        return Absence.DUPLICATE
    judged = [_judge_one(value, spec) for value in (distinct if spec.join is not Join.SUM else values)]
    known = [one for one in judged if not isinstance(one, Absence)]
    if not known or (spec.join is not Join.HIGHEST and len(known) < len(judged)):
        return next(one for one in judged if isinstance(one, Absence))
    return add_up(known) if spec.join is Join.SUM else max(known)


def _judge_one(value: float | None, spec: PageField) -> float | Absence:
    if value is None:
        return Absence.INVALID
    blank = spec.blanks.get(value)
    if blank is not None:
        return blank
    if spec.zero_is_unset and value == 0:
        return Absence.NOT_EXPORTED
    # percentages, infinities and the ratios above 1 that DCGM gives for some MIG layouts (DCGM issue 152)
    scaled = value * spec.factor
    return scaled if 0 <= value <= spec.highest and isfinite(scaled) else Absence.INVALID
