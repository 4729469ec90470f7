"""A receiver of OTLP over HTTP that reads what it is sent with OpenTelemetry's own messages, and says it as a Prometheus page would."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK,
)

from tests.support.servers.http_server import QuietHandler, serve

Labels = frozenset[tuple[str, str]]


@dataclass
class Received:
    """What came with one or more requests."""

    # sample name (with _bucket, _count, _sum) and labels -> value
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)
    # metric name and labels -> start time in Unix seconds, of what counts
    starts: dict[tuple[str, Labels], float] = field(default_factory=dict)
    # metric name and labels of series that were ended
    ended: set[tuple[str, Labels]] = field(default_factory=set)
    resource: dict[str, str] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    times: set[int] = field(default_factory=set)
    # metric name -> URL of the schema that its scope says
    schemas: dict[str, str] = field(default_factory=dict)
    # attribute -> which kinds of value it had
    kinds: dict[str, set[str]] = field(default_factory=dict)

    def add(self, body: bytes) -> None:
        message = ExportMetricsServiceRequest.FromString(body)
        for of_resource in message.resource_metrics:
            self.resource.update({one.key: one.value.string_value for one in of_resource.resource.attributes})
            for of_scope in of_resource.scope_metrics:
                for metric in of_scope.metrics:
                    self.schemas[metric.name] = of_scope.schema_url
                    self._add_metric(metric)

    def _add_metric(self, metric: object) -> None:
        name, kind = metric.name, metric.WhichOneof("data")
        self.units[name] = metric.unit
        data = getattr(metric, kind)
        if kind != "gauge":
            assert data.aggregation_temporality == AGGREGATION_TEMPORALITY_CUMULATIVE
        if kind == "sum":
            assert data.is_monotonic
        for point in data.data_points:
            labels = frozenset(self._read_attribute(one) for one in point.attributes)
            self.times.add(point.time_unix_nano)
            if point.flags & DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK:
                self.ended.add((name, labels))
                continue
            if kind != "gauge":
                assert 0 < point.start_time_unix_nano <= point.time_unix_nano
                self.starts[name, labels] = point.start_time_unix_nano / 1e9
            if kind == "histogram":
                self._add_histogram(name, labels, point)
            else:
                assert (name, labels) not in self.samples
                self.samples[name, labels] = point.as_double

    def _read_attribute(self, attribute: object) -> tuple[str, str]:
        name, value = attribute.key, attribute.value
        kind = value.WhichOneof("value")
        self.kinds.setdefault(name, set()).add(kind)
        return name, str(getattr(value, kind))

    def _add_histogram(self, name: str, labels: Labels, point: object) -> None:
        total = 0
        bounds = [*point.explicit_bounds, float("inf")]
        for bound, count in zip(bounds, point.bucket_counts, strict=True):
            total += count
            self.samples[f"{name}_bucket", labels | {("le", str(bound))}] = total
        assert total == point.count
        if point.HasField("sum"):
            self.samples[f"{name}_count", labels] = point.count
            self.samples[f"{name}_sum", labels] = point.sum


class Receiver:
    """What it got: `all` since the last `take`. `status` and `answer` are what it says next; `held`: it answers when this is set."""

    def __init__(self) -> None:
        self.url = ""
        self.status, self.answer = 200, b""
        self.requests: list[dict[str, str]] = []
        self.bodies: list[bytes] = []
        self.held = threading.Event()
        self.held.set()

    def take(self) -> Received:
        """What was received since it was last asked."""
        bodies, self.bodies = self.bodies, []
        found = Received()
        for body in bodies:
            found.add(body)
        return found


@contextmanager
def receive() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.read_body()
            assert self.headers["Content-Encoding"] == "gzip"
            receiver.requests.append({"path": self.path, **{name.lower(): text for name, text in self.headers.items()}})
            receiver.held.wait(30)
            if receiver.status == 200:
                receiver.bodies.append(gzip.decompress(body))
            self.answer(receiver.status, receiver.answer, "application/x-protobuf")

    with serve(Handler) as url:
        receiver.url = url
        try:
            yield receiver
        finally:
            receiver.held.set()
