"""All series over OTLP at an interval, from a thread of its own: it holds nothing up, and keeps nothing to be sent later."""

from __future__ import annotations

import gzip
import json
import logging
import threading
import time
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from prometheus_client.metrics_core import Metric as Family

from llm_serving_exporter.catalogue import PUBLISHED
from llm_serving_exporter.catalogue.spec import Group
from llm_serving_exporter.fetch.http import HttpClient
from llm_serving_exporter.fetch.waits import drive
from llm_serving_exporter.model.reading import OtlpReport, TargetReading
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.sample import Page, Refusal
from llm_serving_exporter.model.text import on_one_line
from llm_serving_exporter.otlp.messages import Point, Request, write_requests
from llm_serving_exporter.otlp.reading import (
    GEN_AI_PREFIX,
    Buckets,
    Form,
    Labels,
    Reading,
    Value,
    read_family,
    read_server_metrics,
)
from llm_serving_exporter.settings.config import OtlpConfig

# --- Since when a counter counts, which a data point of OTLP says: nanoseconds of the Unix time.


_FROM_ENGINE = (Group.COUNTERS, Group.HISTOGRAMS)
_FROM_EXPORTER = (Group.HEALTH, Group.EXPORTER)


class Starts:
    """Start times of series. One that counts since its engine's start has that of its target; one of the exporter's own, the exporter's.

    Of others (cost that goes on after a restart, a GPU's energy) the start is not known: theirs is the first time that they are sent, as
    OpenTelemetry's data model has it ("cumulative streams: handling unknown start time"). After a fall a series starts at the point before.
    """

    def __init__(self, process_start_nanos: int) -> None:
        self._process = process_start_nanos
        # by metric and labels: what no rule knows
        self._own: dict[tuple[str, Labels], int] = {}
        # by target
        self._targets: dict[str, int] = {}
        # of targets whose start is not known: the first sending
        self._first_sent: dict[str, int] = {}

    def note_targets(self, targets: Iterable[TargetReading], now_nanos: int) -> None:
        """Takes the start times of targets that are sent now. One that was seen first while it ran counts from a time that nobody knows."""
        known = {one.target.name: find_known_start(one) for one in targets}
        self._first_sent = {
            name: self._first_sent.get(name, now_nanos) for name, start in known.items() if start is None
        }
        self._targets = self._first_sent | {
            name: int(start * 1e9) for name, start in known.items() if start is not None
        }

    def find_start(
        self, name: str, labels: Labels, count: float, earlier: float | None, now_nanos: int, before_nanos: int
    ) -> int:
        """Of one series, at most `now_nanos`. `count`: how far it is, of a histogram its events.

        `earlier`: how far it was when it was sent last, at `before_nanos`; None: it was not.
        """
        key = name, labels
        metric = PUBLISHED.get(name)
        group = metric.group if metric is not None else Group.EXPORTER
        known: int | None = None
        if group in _FROM_ENGINE or name.startswith(GEN_AI_PREFIX):
            known = self._targets.get(dict(labels).get("target", ""))
        elif group in _FROM_EXPORTER:
            known = self._process
        if earlier is not None and count < earlier and (known is None or known <= before_nanos):
            self._own[key] = before_nanos
        elif known is None:
            self._own.setdefault(key, now_nanos)
        return min(now_nanos, max(known or 0, self._own.get(key, 0)))

    def forget(self, name: str, labels: Labels) -> None:
        """Forgets a series that has ended."""
        self._own.pop((name, labels), None)

    def forget_all(self) -> None:
        """Forgets every series: all have ended."""
        self._own.clear()
        self._first_sent.clear()


def find_known_start(reading: TargetReading) -> float | None:
    """When a target's engine started, in Unix seconds, as its page says it or as its counters fell; None: it ran when it was seen first."""
    says = reading.page.snapshot is not None and reading.page.snapshot.process_start_unix_seconds is not None
    return reading.server.start_unix_seconds if says or reading.server.restarts_total > 0 else None


# --- What is kept of a metric between two sendings, in little memory: which series a receiver has, and how far their counters were.


class Kept(Struct, frozen=True):
    """One metric as it was received. While its series stay the same, only `counts` is new."""

    layout: int  # hash of its series in their order, and of their bounds
    packed: bytes  # these series and bounds, compressed
    counts: array[float]  # for each of them: the number, of a histogram its events
    sent_nanos: int  # when it was sent, Unix time

    @property
    def size_bytes(self) -> int:
        """How much memory it takes, but for the object itself."""
        return len(self.packed) + self.counts.itemsize * len(self.counts)


def keep_values(values: Mapping[Labels, Value], earlier: Kept | None, now_nanos: int) -> Kept:
    """What has to be known of `values` at the next sending. `earlier`: as it was kept at the last one; None: it was not."""
    layout = hash_layout(values)
    packed = earlier.packed if earlier is not None and earlier.layout == layout else _pack(values)
    return Kept(layout, packed, array("d", map(count_events, values.values())), now_nanos)


def hash_layout(values: Mapping[Labels, Value]) -> int:
    """The same for the same series in the same order, with the same bounds."""
    return hash(
        tuple(
            [(labels, *value.cumulative) if isinstance(value, Buckets) else labels for labels, value in values.items()]
        )
    )


def unpack_kept(kept: Kept) -> dict[Labels, tuple[Value, float]]:
    """By series: a value that has its bounds, if it has any, and nothing else; and how far it was."""
    found: dict[Labels, tuple[Value, float]] = {}
    for (labels, bounds, has_sum), count in zip(json.loads(zlib.decompress(kept.packed)), kept.counts, strict=True):
        value: Value = 0.0
        if bounds is not None:
            value = Buckets(dict.fromkeys(bounds, 0.0), 0.0, 0.0 if has_sum else None)
        found[tuple([(name, text) for name, text in labels])] = value, count
    return found


def count_events(value: Value) -> float:
    """What of a counter only rises: the number, of a histogram its events."""
    return value.count if isinstance(value, Buckets) else value


def _pack(values: Mapping[Labels, Value]) -> bytes:
    rows = [
        (labels, list(value.cumulative), value.sum is not None) if isinstance(value, Buckets) else (labels, None, False)
        for labels, value in values.items()
    ]
    return zlib.compress(json.dumps(rows, separators=(",", ":")).encode(), 1)


# --- The sender


log = logging.getLogger("llm_serving_exporter.otlp")

# how long `close` waits for a request under way and for the ends of all series; whoever sends SIGTERM waits for it too
_CLOSE_SECONDS = 1.0
_LONGEST_MESSAGE = 300
_HEADERS = ("Content-Type: application/x-protobuf", "Content-Encoding: gzip", "Accept: application/x-protobuf")


class Sender:
    """Sends what `collect` yields, at each interval, until `close`. Each sending is the page of its moment; a failed one is not repeated.

    `resource`: attributes of the resource, which those of the configuration replace. `targets`: whose last pages may be shown, for
    start times and the metrics of OpenTelemetry's conventions. `wall`: Unix seconds. Series that have gone since they
    were last received are ended, and all of them where it closes or turns to another receiver. Raises ConfigError where the receiver's
    settings contradict each other.
    """

    def __init__(
        self,
        config: OtlpConfig,
        collect: Callable[[], Iterable[Family]],
        resource: Iterable[tuple[str, str]],
        *,
        targets: Callable[[], Iterable[TargetReading]] = tuple,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._collect, self._wall, self._own_resource = collect, wall, dict(resource)
        self._targets = targets
        # metrics of the semantic conventions that are not sent, by metric and target: why, so that each is said once
        self._left_out: dict[tuple[str, str], str] = {}
        self._set_receiver(config, HttpClient(config.url, config.http))
        # what a reload says, for the thread that sends
        self._next: tuple[OtlpConfig, HttpClient] | None = None
        self._starts = Starts(int(wall() * 1e9))
        # by metric: what was received last
        self._received: dict[str, Kept] = {}
        self._exports = {"sent": 0, "failed": 0}
        self._rejected = 0
        self._last_success: float | None = None
        # what was said of the last sending; "": it went well
        self._problem = ""
        self._stopping, self._awake = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)

    def start(self) -> None:
        """Begins to send, the first time after an interval, when targets have been read."""
        self._thread.start()

    def close(self) -> None:
        """Ends it, and with it all series; a receiver that does not answer is left behind after a second."""
        self._stopping.set()
        self._awake.set()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_SECONDS)
        if not self._thread.is_alive():
            self._client.close()

    def change(self, config: OtlpConfig) -> None:
        """Goes on with other settings as soon as a request under way has ended.

        Where series would be others, because they go elsewhere or say otherwise whose they are, the earlier end. Raises ConfigError for
        settings that contradict each other, and then goes on with the present ones.
        """
        self._next = config, HttpClient(config.url, config.http)
        self._awake.set()

    def report(self) -> OtlpReport:
        """How it goes."""
        return OtlpReport(dict(self._exports), self._rejected, self._last_success)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                if not self._awake.wait(self._config.interval_seconds):
                    self.send()
                elif not self._stopping.is_set():
                    self._awake.clear()
                    self._turn()
            except Exception:
                self._exports["failed"] += 1
                log.exception("series could not be sent over OTLP; this is a bug, please report it")
        self._end_all()

    def _set_receiver(self, config: OtlpConfig, client: HttpClient) -> None:
        self._config, self._client = config, client
        self._resource = tuple(sorted({**self._own_resource, **dict(config.resource)}.items()))
        self._where = f"otlp.url {config.url}{config.path}"

    def _turn(self) -> None:
        """To the settings that `change` was given last."""
        following, self._next = self._next, None
        if following is None:
            return
        if _identify_series(following[0]) != _identify_series(self._config):
            self._end_all()
            self._problem = ""
        self._client.close()
        self._set_receiver(*following)

    def _end_all(self) -> None:
        """Ends every series that was received. One try: whether it succeeds or not, they are forgotten."""
        now = int(self._wall() * 1e9)
        earlier, self._received = self._received, {}
        self._starts.forget_all()
        ends = (
            (
                _describe_gone(name),
                [Point(labels, value, 0, ended=True) for labels, (value, _) in unpack_kept(kept).items()],
            )
            for name, kept in earlier.items()
        )
        for request in write_requests(ends, self._resource, now):
            if isinstance(self._post(request), Refusal):
                return

    def send(self) -> bool:
        """Sends all series once; whether they were received. What goes wrong is logged, once for each thing that does."""
        now = int(self._wall() * 1e9)
        found: dict[str, Kept | None] = {}
        problem, taken = "", True
        for request in write_requests(self._list_points(now, found), self._resource, now):
            if self._stopping.is_set():
                return False
            answer = self._post(request)
            if isinstance(answer, Refusal):
                problem, taken = answer.detail, False
                break
            problem = self._read_rejection(answer) or problem
            self._note_received(request, found)
        self._exports["sent" if taken else "failed"] += 1
        if taken:
            self._last_success = now / 1e9
        self._say(problem)
        return taken

    def _post(self, request: Request) -> Page | Refusal:
        return drive(self._client.post(self._config.path, compress_request(request), *_HEADERS))

    def _list_points(self, now: int, found: dict[str, Kept | None]) -> Iterator[tuple[Reading, Iterable[Point]]]:
        """Every metric of the page and those that have gone from it. `found`: gets what is to be kept of each once it was received."""
        targets = list(self._targets())
        self._starts.note_targets(targets, now)
        for reading in (*map(read_family, self._collect()), *self._read_conventions(targets)):
            found[reading.name] = keep_values(reading.values, self._received.get(reading.name), now)
            yield reading, self._follow(reading, now)
        for name in self._received.keys() - found.keys():
            found[name] = None
            gone = _describe_gone(name)
            yield gone, self._follow(gone, now)

    def _read_conventions(self, targets: Iterable[TargetReading]) -> tuple[Reading, ...]:
        """`gen_ai.server.*`, where it is asked for. What is left out of it is logged, once for each reason."""
        if self._config.gen_ai_operation is None:
            return ()
        found = read_server_metrics(targets, self._config.gen_ai_operation)
        for (metric, target), why in sorted(found.left_out.items()):
            if self._left_out.get((metric, target)) != why:
                log.warning("target=%s: %s is not sent over OTLP: %s", target, metric, why)
        self._left_out = found.left_out
        return found.readings

    def _follow(self, reading: Reading, now: int) -> Iterator[Point]:
        """The points of a metric, and the ends of its series that have gone."""
        kept = self._received.get(reading.name)
        before = now if kept is None else kept.sent_nanos
        gone: dict[Labels, tuple[Value, float]] = {}
        earlier: Iterable[float | None]
        if kept is not None and kept.layout == hash_layout(reading.values):
            earlier = kept.counts
        else:
            gone = {} if kept is None else unpack_kept(kept)
            earlier = [gone.pop(labels, (0.0, None))[1] for labels in reading.values]
        for (labels, value), count in zip(reading.values.items(), earlier, strict=True):
            start = 0
            if reading.form is not Form.GAUGE:
                start = self._starts.find_start(reading.name, labels, count_events(value), count, now, before)
            yield Point(labels, value, start)
        for labels, (value, _) in gone.items():
            self._starts.forget(reading.name, labels)
            yield Point(labels, value, 0, ended=True)

    def _note_received(self, request: Request, found: dict[str, Kept | None]) -> None:
        for name in request.completes:
            kept = found[name]
            if kept is None:
                self._received.pop(name, None)
            else:
                self._received[name] = kept

    def _read_rejection(self, answer: Page) -> str:
        """What the receiver says that it did not take, which is counted; "" where it took everything."""
        response = ExportMetricsServiceResponse()
        if answer.content_type.partition(";")[0].strip() != "application/x-protobuf":
            return ""
        try:
            response.ParseFromString(answer.body)
        except DecodeError:
            return ""
        rejected = response.partial_success.rejected_data_points
        if rejected <= 0:
            return ""
        self._rejected += rejected
        said = on_one_line(response.partial_success.error_message)[:_LONGEST_MESSAGE]
        return f"the receiver did not take some data points: {said or 'it does not say why'}; look into its log"

    def _say(self, problem: str) -> None:
        if problem and problem != self._problem:
            log.error("%s: %s. All series are sent again in %g s.", self._where, problem, self._config.interval_seconds)
        elif self._problem and not problem:
            log.info("%s: series are received again", self._where)
        self._problem = problem


def compress_request(request: Request) -> bytes:
    """The body of a request as it goes over the wire."""
    return gzip.compress(request.body, 5)


def _describe_gone(name: str) -> Reading:
    """A metric of which nothing is left but its name; of a histogram each point says that it is one."""
    return Reading(name, "", Form.SUM if name.endswith("_total") else Form.GAUGE, {})


def _identify_series(config: OtlpConfig) -> tuple[object, ...]:
    """What makes series of one receiver other series: a header may name the tenant."""
    return config.url, config.path, config.resource, config.http.headers
