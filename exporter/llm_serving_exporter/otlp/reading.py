"""A family of the page -> its series, as OTLP counts them: one number, or one histogram, for each set of labels."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field
from enum import Enum

from prometheus_client.metrics_core import Metric as Family

# names and values, by name; a label whose value is "" is none, as in Prometheus
Labels = tuple[tuple[str, str], ...]


class Form(Enum):
    """What a family is to OTLP."""

    SUM = "sum"  # monotonic and cumulative
    GAUGE = "gauge"
    HISTOGRAM = "histogram"  # cumulative, with explicit bounds


@dataclass(slots=True)
class Buckets:
    """One histogram."""

    cumulative: dict[float, float] = field(default_factory=dict)  # events at or below each finite bound
    count: float = 0.0  # all events
    sum: float | None = None  # None: the engine's is not of what was observed


Value = float | Buckets


@dataclass(frozen=True, slots=True)
class Reading:
    """One family at one moment."""

    name: str  # as on the page, a counter's with `_total`, an info's with `_info`
    help: str  # of the catalogue
    form: Form  # which kind of metric it becomes
    values: dict[Labels, Value]  # of a gauge or sum a number, of a histogram Buckets


def read_family(family: Family) -> Reading:
    """The series of a family of prometheus_client. Those of `_created` are left out: a data point has a start time."""
    if family.type == "histogram":
        return Reading(family.name, family.documentation, Form.HISTOGRAM, _read_histograms(family))
    form, suffix = (Form.SUM, "_total") if family.type == "counter" else (Form.GAUGE, "")
    name = family.name + (suffix or ("_info" if family.type == "info" else ""))
    values: dict[Labels, Value] = {
        _sort_labels(sample.labels): float(sample.value) for sample in family.samples if sample.name == name
    }
    return Reading(name, family.documentation, form, values)


def _read_histograms(family: Family) -> dict[Labels, Value]:
    found: dict[Labels, Value] = {}
    for sample in family.samples:
        labels, part = dict(sample.labels), sample.name.removeprefix(family.name)
        edge = labels.pop("le", "")
        one = found.setdefault(_sort_labels(labels), Buckets())
        assert isinstance(one, Buckets)
        if part == "_sum":
            one.sum = float(sample.value)
        elif part == "_count" or edge == "+Inf":
            one.count = float(sample.value)
        elif part == "_bucket":
            one.cumulative[float(edge)] = float(sample.value)
    return found


def _sort_labels(labels: dict[str, str]) -> Labels:
    return tuple(sorted((name, text) for name, text in labels.items() if text))


def pack_values(values: dict[Labels, Value]) -> bytes:
    """The series of a family in little memory: some twentieth of their text."""
    rows = [
        (labels, [list(value.cumulative.items()), value.count, value.sum] if isinstance(value, Buckets) else value)
        for labels, value in values.items()
    ]
    return zlib.compress(json.dumps(rows, separators=(",", ":")).encode(), 1)


def unpack_values(packed: bytes) -> dict[Labels, Value]:
    """What `pack_values` was given."""
    found: dict[Labels, Value] = {}
    for labels, value in json.loads(zlib.decompress(packed)):
        key = tuple((name, text) for name, text in labels)
        found[key] = Buckets(dict(map(tuple, value[0])), value[1], value[2]) if isinstance(value, list) else value
    return found
