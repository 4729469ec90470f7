"""Series -> requests of OTLP, each of a bounded number of data points."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK,
)

from llm_serving_exporter import __version__
from llm_serving_exporter.catalogue import PUBLISHED
from llm_serving_exporter.catalogue.spec import Unit
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.otlp.reading import (
    GEN_AI_PREFIX,
    GEN_AI_UNIT,
    SCHEMA_URL,
    Buckets,
    Form,
    Labels,
    Reading,
    Value,
)

# --- The unit of a metric in UCUM, such that a receiver which writes units into names leaves ours as they are.


# UCUM, and how the name ends then (prometheus/otlptranslator 1.0.0, units.go): a receiver adds that where it is missing. What stands in
# braces is a note to people and is never added. A ratio is not "1", for which gauges are renamed to end in _ratio
_UCUM: dict[Unit, tuple[str, str]] = {
    Unit.SECONDS: ("s", "_seconds"),
    Unit.TIMESTAMP: ("s", "_seconds"),
    Unit.BYTES: ("By", "_bytes"),
    Unit.JOULES: ("J", "_joules"),
    Unit.GRAMS: ("g", "_grams"),
    Unit.WATTS: ("W", "_watts"),
    Unit.CELSIUS: ("Cel", "_celsius"),
    Unit.HERTZ: ("Hz", "_hertz"),
    # its default strategy looks for the word "per_second" among words that it has split, and adds a second one
    Unit.BYTES_PER_SECOND: ("{By/s}", ""),
    Unit.TOKENS_PER_SECOND: ("{token/s}", ""),
    Unit.PER_SECOND: ("{event/s}", ""),
    Unit.FLOPS_PER_SECOND: ("{flop/s}", ""),
    Unit.FLOPS_PER_BYTE: ("{flop/By}", ""),
    Unit.TOKENS: ("{token}", ""),
    Unit.RATIO: ("{ratio}", ""),
    Unit.USD: ("{USD}", ""),
}


def find_unit(name: str) -> str:
    """The unit of a metric by its name on the page; "" where it has none, or where the receiver would rename it for one.

    Those of the semantic conventions have theirs, whatever becomes of their names.
    """
    if name.startswith(GEN_AI_PREFIX):
        return GEN_AI_UNIT
    metric = PUBLISHED.get(name)
    if metric is None:
        return ""
    unit, ending = _UCUM.get(metric.unit, ("", ""))
    return unit if name.removesuffix("_total").endswith(ending) else ""


# --- Data points in protobuf's wire format: to make a message of each with the library takes several times as long.
#
# Facts: protobuf.dev/programming-guides/encoding, and opentelemetry/proto/metrics/v1/metrics.proto 1.x, whose numbers of fields stand
# below. The library reads what is written here: into the message that is sent, and in the tests.


# attributes that are no text, as the semantic conventions have them
_WHOLE_NUMBERS = frozenset({"server.port"})
# (number of the field << 3) | how it is written: 1 for 8 bytes, 2 for a length and so many bytes, 0 for a varint
_DATA_POINTS = b"\x0a"  # 1 of Gauge, Sum and Histogram
_NUMBER_ATTRIBUTES, _HISTOGRAM_ATTRIBUTES = b"\x3a", b"\x4a"  # 7 and 9
_NUMBER_FLAGS, _HISTOGRAM_FLAGS = b"\x40", b"\x50"  # 8 and 10
_TIMES = struct.Struct("<cQcQ")  # 2 and 3 of both
_DOUBLE = struct.Struct("<cd")
_COUNT = struct.Struct("<cQ")
_START, _TIME, _AS_DOUBLE, _EVENTS, _SUM = b"\x11", b"\x19", b"\x21", b"\x21", b"\x29"
_BUCKET_COUNTS, _EXPLICIT_BOUNDS = b"\x32", b"\x3a"  # 6 and 7 of a histogram, packed
_ENDED = bytes([DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK])


def write_number(labels: Labels, start_nanos: int, now_nanos: int, value: float | None) -> bytes:
    """A point of a gauge or a sum, as a field of it. `start_nanos`: 0 for none; `value`: None where the series has ended."""
    return _delimit(
        _DATA_POINTS,
        write_attributes(_NUMBER_ATTRIBUTES, labels)
        + _TIMES.pack(_START, start_nanos, _TIME, now_nanos)
        + (_NUMBER_FLAGS + _ENDED if value is None else _DOUBLE.pack(_AS_DOUBLE, value)),
    )


def write_histogram(
    labels: Labels,
    start_nanos: int,
    now_nanos: int,
    bounds: Sequence[float],
    counts: Sequence[int],
    total: float | None,
    *,
    ended: bool,
) -> bytes:
    """A point of a histogram, as a field of it. `counts`: of each bucket by itself, one more than `bounds`; `total`: None for no sum."""
    return _delimit(
        _DATA_POINTS,
        write_attributes(_HISTOGRAM_ATTRIBUTES, labels)
        + _TIMES.pack(_START, start_nanos, _TIME, now_nanos)
        + _COUNT.pack(_EVENTS, add_up(counts))
        + (b"" if total is None else _DOUBLE.pack(_SUM, total))
        + _delimit(_BUCKET_COUNTS, struct.pack(f"<{len(counts)}Q", *counts))
        + _delimit(_EXPLICIT_BOUNDS, struct.pack(f"<{len(bounds)}d", *bounds))
        + (_HISTOGRAM_FLAGS + _ENDED if ended else b""),
    )


@lru_cache(maxsize=4096)
def write_attributes(tag: bytes, labels: Labels) -> bytes:
    """Attributes, each as a field with this tag. Most series of a target share them."""
    return b"".join([tag + _write_attribute(pair) for pair in labels])


@lru_cache(maxsize=4096)
def _write_attribute(pair: tuple[str, str]) -> bytes:
    """With its length before it."""
    return _delimit(b"", make_attribute(*pair).SerializeToString())


def make_attribute(name: str, text: str) -> KeyValue:
    """One attribute, as the library has it."""
    value = AnyValue(int_value=int(text)) if name in _WHOLE_NUMBERS else AnyValue(string_value=text)
    return KeyValue(key=name, value=value)


def _delimit(tag: bytes, content: bytes) -> bytes:
    return tag + _write_length(len(content)) + content


@lru_cache(maxsize=4096)
def _write_length(length: int) -> bytes:
    written = bytearray()
    while length > 0x7F:
        written.append(length & 0x7F | 0x80)
        length >>= 7
    written.append(length)
    return bytes(written)


# --- Requests


SCOPE = "llm-serving-exporter"
# 1 to 2 MB before compression, where receivers take 4 MB at least
MOST_POINTS = 5000


class Point(Struct, frozen=True):
    """One series of a metric at one moment."""

    labels: Labels  # its attributes
    value: Value  # of one that has ended the last, for its bounds
    start_nanos: int  # since when it counts; 0: it does not count
    ended: bool = False  # whether it is no longer there: said once


class Request(Struct, frozen=True):
    """One message, and what is known to have been received once it was taken."""

    body: bytes  # serialised
    points: int  # how many it has
    completes: tuple[str, ...]  # names of the metrics whose last points are in it


def write_requests(
    metrics: Iterable[tuple[Reading, Iterable[Point]]], resource: Iterable[tuple[str, str]], now_nanos: int
) -> Iterator[Request]:
    """All points, in as few requests as `MOST_POINTS` allows. `now_nanos`: their time, nanoseconds of the Unix time."""
    message = _Message(resource)
    points, completes = 0, list[str]()
    for reading, found in metrics:
        written: list[bytes] = []
        of_histogram = reading.form is Form.HISTOGRAM
        for point in found:
            if points == MOST_POINTS:
                message.add_points(reading, written, of_histogram=of_histogram)
                yield Request(message.serialise(), points, tuple(completes))
                message, points, completes, written = _Message(resource), 0, [], []
            of_histogram = isinstance(point.value, Buckets)
            written.append(_write_point(point, now_nanos))
            points += 1
        message.add_points(reading, written, of_histogram=of_histogram)
        completes.append(reading.name)
    if completes:
        yield Request(message.serialise(), points, tuple(completes))


class _Message:
    """One request while it is written. Metrics of the semantic conventions are a scope of their own, which says their version."""

    def __init__(self, resource: Iterable[tuple[str, str]]) -> None:
        self._message = ExportMetricsServiceRequest()
        self._of_resource = self._message.resource_metrics.add()
        self._of_resource.resource.attributes.extend(make_attribute(*pair) for pair in resource)
        # by URL of their schema; "": names of our own
        self._scopes: dict[str, Any] = {}

    def add_points(self, reading: Reading, points: list[bytes], *, of_histogram: bool) -> None:
        """A metric with its points; nothing where there are none."""
        if not points:
            return
        schema = SCHEMA_URL if reading.name.startswith(GEN_AI_PREFIX) else ""
        if schema not in self._scopes:
            of_scope = self._of_resource.scope_metrics.add(schema_url=schema)
            of_scope.scope.name, of_scope.scope.version = SCOPE, __version__
            self._scopes[schema] = of_scope.metrics
        metric = self._scopes[schema].add(name=reading.name, description=reading.help, unit=find_unit(reading.name))
        if of_histogram:
            form = metric.histogram
        elif reading.form is Form.SUM:
            form = metric.sum
            form.is_monotonic = True
        else:
            form = metric.gauge
        if form is not metric.gauge:
            form.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
        form.MergeFromString(b"".join(points))

    def serialise(self) -> bytes:
        """As it goes over the wire."""
        body: bytes = self._message.SerializeToString()
        return body


def _write_point(point: Point, now_nanos: int) -> bytes:
    value = point.value
    if not isinstance(value, Buckets):
        return write_number(point.labels, point.start_nanos, now_nanos, None if point.ended else value)
    bounds = sorted(value.cumulative)
    cumulative = [0.0, *[value.cumulative[bound] for bound in bounds], value.count]
    # OTLP counts in whole numbers, each bucket by itself
    counts = [0 if point.ended else max(0, round(upper) - round(lower)) for lower, upper in pairwise(cumulative)]
    total = 0.0 if point.ended and value.sum is not None else value.sum
    return write_histogram(point.labels, point.start_nanos, now_nanos, bounds, counts, total, ended=point.ended)
