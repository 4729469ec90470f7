"""A family of the page -> its series, as OTLP counts them: one number, or one histogram, for each set of labels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from functools import lru_cache
from typing import Protocol, runtime_checkable

from prometheus_client.metrics_core import Metric as Family

from llm_serving_exporter.model.record import Struct, field

_PAIR = r'\w+="(?:[^"\\]|\\.)*"'
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")
# labels before `le`, that, labels behind it
_CUT = re.compile(rf'((?:{_PAIR},)*)le="([^"]*)"(.*)')

# names and values, by name; a label whose value is "" is none, as in Prometheus
Labels = tuple[tuple[str, str], ...]


class Form(Enum):
    """What a family is to OTLP."""

    SUM = "sum"  # monotonic and cumulative
    GAUGE = "gauge"
    HISTOGRAM = "histogram"  # cumulative, with explicit bounds


class Buckets(Struct):
    """One histogram."""

    cumulative: dict[float, float] = field(default_factory=dict)  # events at or below each finite bound
    count: float = 0.0  # all events
    sum: float | None = None  # None: the engine's is not of what was observed


Value = float | Buckets


class Reading(Struct, frozen=True):
    """One family at one moment."""

    name: str  # as on the page, a counter's with `_total`, an info's with `_info`
    help: str  # of the catalogue
    form: Form  # which kind of metric it becomes
    values: dict[Labels, Value]  # of a gauge or sum a number, of a histogram Buckets


@runtime_checkable
class Written(Protocol):
    """A family that is text already: lines of NAME{LABELS} NUMBER, each of them whole, labels in order."""

    def read_text(self) -> str:
        """All its lines."""
        ...


def read_family(family: Family) -> Reading:
    """The series of a family of prometheus_client. Those of `_created` are left out: a data point has a start time."""
    if family.type == "histogram":
        return Reading(family.name, family.documentation, Form.HISTOGRAM, _read_histograms(family))
    form, suffix = (Form.SUM, "_total") if family.type == "counter" else (Form.GAUGE, "")
    name = family.name + (suffix or ("_info" if family.type == "info" else ""))
    values: dict[Labels, Value] = {
        labels: number for sample, labels, _, number in _list_samples(family) if sample == name
    }
    return Reading(name, family.documentation, form, values)


def _read_histograms(family: Family) -> dict[Labels, Value]:
    found: dict[Labels, Value] = {}
    buckets, total, count = f"{family.name}_bucket", f"{family.name}_sum", f"{family.name}_count"
    for name, labels, edge, number in _list_samples(family):
        one = found.get(labels)
        if one is None:
            one = found[labels] = Buckets()
        assert isinstance(one, Buckets)
        if name == total:
            one.sum = number
        elif name == count or edge == "+Inf":
            one.count = number
        elif name == buckets:
            one.cumulative[float(edge)] = number
    return found


def _list_samples(family: Family) -> Iterator[tuple[str, Labels, str, float]]:
    """Name, labels but `le`, that label ("": none), and value of each sample. Of text no object is made for each of them."""
    if not isinstance(family, Written):
        for sample in family.samples:
            edge = sample.labels.get("le", "")
            labels = tuple(sorted((name, text) for name, text in sample.labels.items() if text and name != "le"))
            yield sample.name, labels, edge, float(sample.value)
        return
    has_edges = family.type == "histogram"
    before, behind, bucket, shared = "\0", "", "", _read_labels("")
    for line in family.read_text().split("\n")[:-1]:
        # the buckets of one histogram differ in their edge alone
        if line.startswith(before):
            edge, _, rest = line[len(before) :].partition('"')
            if rest.startswith(behind):
                yield bucket, shared, edge, float(rest[len(behind) :])
                continue
        start, _, number = line.rpartition(" ")
        name, _, text = start.partition("{")
        if not has_edges or (cut := _CUT.match(text)) is None:
            yield name, _read_labels(text), "", float(number)
            continue
        before, behind = f'{name}{{{cut[1]}le="', f"{cut[3]} "
        bucket, shared = name, _read_labels(cut[1] + cut[3].removeprefix(","))
        yield bucket, shared, cut[2], float(number)


@lru_cache(maxsize=4096)
def _read_labels(text: str) -> Labels:
    """Of what follows the brace. Most series of a target share their labels."""
    found = _LABEL.findall(text)
    if "\\" in text:
        found = [(name, _ESCAPE.sub(_unescape, label)) for name, label in found]
    return tuple([pair for pair in found if pair[1]])


def _unescape(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]
