"""Series -> requests of OTLP, each of a bounded number of data points."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE

from llm_serving_exporter import __version__
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.otlp.gen_ai import GEN_AI_PREFIX, SCHEMA_URL
from llm_serving_exporter.otlp.reading import Buckets, Form, Labels, Reading, Value
from llm_serving_exporter.otlp.units import find_unit
from llm_serving_exporter.otlp.wire import make_attribute, write_histogram, write_number

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
