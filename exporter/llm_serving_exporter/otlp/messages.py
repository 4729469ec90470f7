"""Series -> requests of OTLP, each of a bounded number of data points."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
)

from llm_serving_exporter import __version__
from llm_serving_exporter.otlp import gen_ai
from llm_serving_exporter.otlp.reading import Buckets, Form, Labels, Reading, Value
from llm_serving_exporter.otlp.units import find_unit

SCOPE = "llm-serving-exporter"
# 1 to 2 MB before compression, where receivers take 4 MB at least
MOST_POINTS = 5000
# attributes that are no text, as the semantic conventions have them
_WHOLE_NUMBERS = frozenset({"server.port"})


@dataclass(frozen=True, slots=True)
class Point:
    """One series of a metric at one moment."""

    labels: Labels  # its attributes
    value: Value  # of one that has ended the last, for its bounds
    start_nanos: int  # since when it counts; 0: it does not count
    ended: bool = False  # whether it is no longer there: said once


@dataclass(frozen=True, slots=True)
class Request:
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
        metric: Metric | None = None
        for point in found:
            if points == MOST_POINTS:
                yield Request(message.serialise(), points, tuple(completes))
                message, points, completes, metric = _Message(resource), 0, [], None
            if metric is None:
                metric = message.add_metric(reading)
            _add_point(metric, reading.form, point, now_nanos)
            points += 1
        completes.append(reading.name)
    if completes:
        yield Request(message.serialise(), points, tuple(completes))


class _Message:
    """One request while it is written. Metrics of the semantic conventions are a scope of their own, which says their version."""

    def __init__(self, resource: Iterable[tuple[str, str]]) -> None:
        self._message = ExportMetricsServiceRequest()
        self._of_resource = self._message.resource_metrics.add()
        self._of_resource.resource.attributes.extend(_attribute(*pair) for pair in resource)
        # by URL of their schema; "": names of our own
        self._scopes: dict[str, Any] = {}

    def add_metric(self, reading: Reading) -> Metric:
        """A metric without points."""
        schema = gen_ai.SCHEMA_URL if reading.name.startswith(gen_ai.PREFIX) else ""
        if schema not in self._scopes:
            of_scope = self._of_resource.scope_metrics.add(schema_url=schema)
            of_scope.scope.name, of_scope.scope.version = SCOPE, __version__
            self._scopes[schema] = of_scope.metrics
        added: Metric = self._scopes[schema].add(
            name=reading.name, description=reading.help, unit=find_unit(reading.name)
        )
        return added

    def serialise(self) -> bytes:
        """As it goes over the wire."""
        body: bytes = self._message.SerializeToString()
        return body


def _attribute(name: str, text: str) -> KeyValue:
    if name in _WHOLE_NUMBERS:
        return KeyValue(key=name, value=AnyValue(int_value=int(text)))
    return KeyValue(key=name, value=AnyValue(string_value=text))


def _add_point(metric: Metric, form: Form, point: Point, now_nanos: int) -> None:
    attributes = [_attribute(*pair) for pair in point.labels]
    flags = DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK if point.ended else 0
    if isinstance(point.value, Buckets):
        metric.histogram.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
        metric.histogram.data_points.append(_histogram(point, attributes, flags, now_nanos))
        return
    found = NumberDataPoint(
        attributes=attributes, start_time_unix_nano=point.start_nanos, time_unix_nano=now_nanos, flags=flags
    )
    if not point.ended:
        found.as_double = point.value
    if form is Form.SUM:
        metric.sum.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
        metric.sum.is_monotonic = True
        metric.sum.data_points.append(found)
    else:
        metric.gauge.data_points.append(found)


def _histogram(point: Point, attributes: list[KeyValue], flags: int, now_nanos: int) -> HistogramDataPoint:
    value = point.value
    assert isinstance(value, Buckets)
    bounds = sorted(value.cumulative)
    cumulative = [0.0, *(value.cumulative[bound] for bound in bounds), value.count]
    # OTLP counts in whole numbers, each bucket by itself
    counts = [0 if point.ended else max(0, round(upper) - round(lower)) for lower, upper in pairwise(cumulative)]
    found = HistogramDataPoint(
        attributes=attributes,
        start_time_unix_nano=point.start_nanos,
        time_unix_nano=now_nanos,
        count=sum(counts),
        bucket_counts=counts,
        explicit_bounds=bounds,
        flags=flags,
    )
    if value.sum is not None:
        found.sum = 0.0 if point.ended else value.sum
    return found
