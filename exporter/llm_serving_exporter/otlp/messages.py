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
from llm_serving_exporter.otlp.reading import Buckets, Form, Labels, Reading, Value
from llm_serving_exporter.otlp.units import find_unit

SCOPE = "llm-serving-exporter"
# 1 to 2 MB before compression, where receivers take 4 MB at least
MOST_POINTS = 5000


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
    attributes = tuple(resource)
    message, metric_list = _begin(attributes)
    points, completes = 0, list[str]()
    for reading, found in metrics:
        metric: Metric | None = None
        for point in found:
            if points == MOST_POINTS:
                yield Request(message.SerializeToString(), points, tuple(completes))
                message, metric_list = _begin(attributes)
                points, completes, metric = 0, [], None
            if metric is None:
                metric = metric_list.add(name=reading.name, description=reading.help, unit=find_unit(reading.name))
            _add_point(metric, reading.form, point, now_nanos)
            points += 1
        completes.append(reading.name)
    if completes:
        yield Request(message.SerializeToString(), points, tuple(completes))


def _begin(resource: tuple[tuple[str, str], ...]) -> tuple[ExportMetricsServiceRequest, Any]:
    message = ExportMetricsServiceRequest()
    of_resource = message.resource_metrics.add()
    of_resource.resource.attributes.extend(_attribute(*pair) for pair in resource)
    of_scope = of_resource.scope_metrics.add()
    of_scope.scope.name, of_scope.scope.version = SCOPE, __version__
    return message, of_scope.metrics


def _attribute(name: str, text: str) -> KeyValue:
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
