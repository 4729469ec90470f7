"""All series over OTLP at an interval, from a thread of its own: it holds nothing up, and keeps nothing to be sent later."""

from __future__ import annotations

import gzip
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from prometheus_client.metrics_core import Metric as Family

from llm_serving_exporter.config.types import OtlpConfig
from llm_serving_exporter.model.otlp import OtlpReport
from llm_serving_exporter.model.page import Page, Refusal
from llm_serving_exporter.model.text import on_one_line
from llm_serving_exporter.otlp.messages import Point, Request, write_requests
from llm_serving_exporter.otlp.reading import Form, Reading, pack_values, read_family, unpack_values
from llm_serving_exporter.otlp.starts import START_TIME, Starts
from llm_serving_exporter.scrape.http import HttpClient
from llm_serving_exporter.scrape.waits import drive

log = logging.getLogger("llm_serving_exporter.otlp")

# how long `close` waits for a request under way; whoever sends SIGTERM waits for it too
_CLOSE_SECONDS = 1.0
_LONGEST_MESSAGE = 300
_HEADERS = ("Content-Type: application/x-protobuf", "Content-Encoding: gzip", "Accept: application/x-protobuf")


class Sender:
    """Sends what `collect` yields, at each interval, until `close`. Each sending is the page of its moment; a failed one is not repeated.

    `resource`: attributes of the resource, which those of the configuration replace. `wall`: Unix seconds. Series that have gone since they
    were last received are ended. Raises ConfigError where the receiver's settings contradict each other.
    """

    def __init__(
        self,
        config: OtlpConfig,
        collect: Callable[[], Iterable[Family]],
        resource: Iterable[tuple[str, str]],
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._config, self._collect, self._wall = config, collect, wall
        self._resource = tuple(sorted({**dict(resource), **dict(config.resource)}.items()))
        self._client = HttpClient(config.url, config.http)
        self._where = f"otlp.url {config.url}{config.path}"
        self._starts = Starts(int(wall() * 1e9))
        # by metric: what was received last, packed, and when it was sent
        self._received: dict[str, tuple[bytes, int]] = {}
        self._exports = {"sent": 0, "failed": 0}
        self._rejected = 0
        self._last_success: float | None = None
        # what was said of the last sending; "": it went well
        self._problem = ""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)

    def start(self) -> None:
        """Begins to send, the first time after an interval, when targets have been read."""
        self._thread.start()

    def close(self) -> None:
        """Ends it; a request under way is left behind after a second."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_SECONDS)
        if not self._thread.is_alive():
            self._client.close()

    def report(self) -> OtlpReport:
        """How it goes."""
        return OtlpReport(dict(self._exports), self._rejected, self._last_success)

    def _run(self) -> None:
        while not self._stopping.wait(self._config.interval_seconds):
            try:
                self.send()
            except Exception:
                self._exports["failed"] += 1
                log.exception("series could not be sent over OTLP; this is a bug, please report it")

    def send(self) -> bool:
        """Sends all series once; whether they were received. What goes wrong is logged, once for each thing that does."""
        now = int(self._wall() * 1e9)
        packed: dict[str, bytes] = {}
        problem, taken = "", True
        for request in write_requests(self._list_points(now, packed), self._resource, now):
            if self._stopping.is_set():
                return False
            answer = drive(self._client.post(self._config.path, gzip.compress(request.body, 5), *_HEADERS))
            if isinstance(answer, Refusal):
                problem, taken = answer.detail, False
                break
            problem = self._read_rejection(answer) or problem
            self._note_received(request, packed, now)
        self._exports["sent" if taken else "failed"] += 1
        if taken:
            self._last_success = now / 1e9
        self._say(problem)
        return taken

    def _list_points(self, now: int, packed: dict[str, bytes]) -> Iterator[tuple[Reading, Iterable[Point]]]:
        """Every metric of the page and those that have gone from it. `packed`: gets what each has, for when it was received."""
        families = list(self._collect())
        for family in families:
            if family.name == START_TIME:
                self._starts.note_targets(read_family(family))
        seen = set()
        for family in families:
            reading = read_family(family)
            seen.add(reading.name)
            packed[reading.name] = pack_values(reading.values)
            yield reading, self._follow(reading, now)
        for name in self._received.keys() - seen:
            # of a histogram each point says that it is one
            gone = Reading(name, "", Form.SUM if name.endswith("_total") else Form.GAUGE, {})
            packed[name] = b""
            yield gone, self._follow(gone, now)

    def _follow(self, reading: Reading, now: int) -> Iterator[Point]:
        """The points of a metric, and the ends of its series that have gone."""
        found = self._received.get(reading.name)
        earlier, before = ({}, now) if found is None else (unpack_values(found[0]), found[1])
        for labels, value in reading.values.items():
            start = 0
            if reading.form is not Form.GAUGE:
                start = self._starts.find_start(reading.name, labels, value, earlier.get(labels), now, before)
            yield Point(labels, value, start)
        for labels in earlier.keys() - reading.values.keys():
            self._starts.forget(reading.name, labels)
            yield Point(labels, earlier[labels], 0, ended=True)

    def _note_received(self, request: Request, packed: dict[str, bytes], now: int) -> None:
        for name in request.completes:
            if packed[name]:
                self._received[name] = packed[name], now
            else:
                self._received.pop(name, None)

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
