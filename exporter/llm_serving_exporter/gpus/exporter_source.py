"""Device exporters, scrape by scrape: dcgm-exporter beside NVML; AMD's or Intel Gaudi's, whose page says which it is, instead of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Generic, TypeVar

from llm_serving_exporter.clock import elapsed_seconds
from llm_serving_exporter.errors import ExpositionError
from llm_serving_exporter.facts import loader
from llm_serving_exporter.facts.gpus import match
from llm_serving_exporter.fetch.http import HttpClient
from llm_serving_exporter.fetch.page import PageParser
from llm_serving_exporter.fetch.waits import drive
from llm_serving_exporter.gpus import dcgm, device_page
from llm_serving_exporter.gpus.dcgm import PROFILING_NEEDS, is_dcgm_page, read_gpus
from llm_serving_exporter.gpus.device_page import TABLES, read_devices, recognise
from llm_serving_exporter.model.gpu import DcgmReading, DcgmReadings, GpuIdentity, GpuReading, GpuReadings
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.sample import Attempt, FailureReason, Refusal, Samples, Stage
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.text import count_nouns
from llm_serving_exporter.settings.config import DcgmConfig
from llm_serving_exporter.settings.problems import listed

G = TypeVar("G")
R = TypeVar("R", DcgmReadings, GpuReadings)


class _ExporterSource(Generic[R, G]):
    """Reads one device exporter, from one thread at a time, over a connection that is kept between reads.

    Raises ConfigError when it is made with a URL or settings that cannot be used.
    """

    _title: str
    _log: logging.Logger
    _wanted: frozenset[str]  # names of samples

    def __init__(
        self,
        config: DcgmConfig,
        *,
        monotonic: Callable[[], float] = elapsed_seconds,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._path, self._place = config.metrics_path, config.url + config.metrics_path
        self._monotonic, self._wall = monotonic, wall
        self._client = HttpClient(config.url, config.http, monotonic=monotonic, wall=wall)
        self._parser = PageParser(self._wanted.__contains__, config.max_series)
        # what the log has of the last scrape
        self._said: object = None

    def read(self) -> R:
        """One scrape. Never raises: what went wrong is in `attempt`, and then no reading of before is left."""
        started = self._monotonic()
        try:
            readings = self._scrape(started)
        except Exception as error:  # noqa: BLE001  # the daemon must go on; logged with its traceback
            self._log.exception("reading %s failed; this is a bug, please report it", self._title)
            detail = f"internal error ({type(error).__name__}); the log has the traceback"
            readings = self._fail(started, Stage.GPU, FailureReason.INTERNAL, detail)
        attempt = readings.attempt
        if attempt.reason is None:
            change, level, text = self._describe(readings)
        else:
            change, level = attempt.reason, logging.WARNING
            text = f"{attempt.stage.value} failed, reason={attempt.reason.value}: {attempt.detail}"
        if change != self._said:
            self._log.log(level, "%s %s: %s", self._title.removeprefix("the "), self._place, text)
        self._said = change
        return readings

    def close(self) -> None:
        """Ends the connection; may be called twice."""
        self._client.close()

    def _scrape(self, started: float) -> R:
        page = drive(self._client.get_metrics(self._path))
        if isinstance(page, Refusal):
            return self._fail(started, Stage.SCRAPE, page.reason, page.detail, page.status)
        size = len(page.body)
        try:
            samples = self._parser.parse(page)
        except ExpositionError as error:
            return self._fail(started, Stage.PARSE, FailureReason(error.reason), str(error), page.status, size)
        gpus = self._read_page(samples)
        if isinstance(gpus, str):
            return self._fail(started, Stage.NORMALISE, FailureReason.UNKNOWN_RUNTIME, gpus, page.status, size)
        taken = self._monotonic() - started
        attempt = Attempt(Stage.GPU, None, "", page.received_unix_seconds, taken, page.status, size)
        return self._make_readings(attempt, page.received_monotonic_seconds, gpus)

    def _fail(
        self,
        started: float,
        stage: Stage,
        reason: FailureReason,
        detail: str,
        status: int | None = None,
        size: int | None = None,
    ) -> R:
        taken = self._monotonic() - started
        attempt = Attempt(stage, reason, detail, self._wall(), taken, status, size)
        return self._make_readings(attempt, self._monotonic(), ())

    def _read_page(self, samples: Samples) -> Iterable[G] | str:
        """The GPUs of a page, or why it is not this exporter's."""
        raise NotImplementedError

    def _make_readings(self, attempt: Attempt, monotonic_seconds: float, gpus: Iterable[G]) -> R:
        raise NotImplementedError

    def _describe(self, readings: R) -> tuple[object, int, str]:
        """Of a scrape that went well: what is logged again where it changes, the level and the text."""
        raise NotImplementedError


class DcgmSource(_ExporterSource[DcgmReadings, DcgmReading]):
    """Reads one dcgm-exporter."""

    _title, _log = "dcgm-exporter", logging.getLogger("llm_serving_exporter.dcgm")
    _wanted = dcgm.WANTED

    def _read_page(self, samples: Samples) -> Iterable[DcgmReading] | str:
        if not is_dcgm_page(samples.layout.names):
            return f"{self._path} has no series DCGM_…: what answers is not dcgm-exporter"
        return read_gpus(samples)

    def _make_readings(self, attempt: Attempt, monotonic_seconds: float, gpus: Iterable[DcgmReading]) -> DcgmReadings:
        return DcgmReadings(attempt, monotonic_seconds, tuple(gpus))

    def _describe(self, readings: DcgmReadings) -> tuple[object, int, str]:
        if all(isinstance(gpu.dram_bandwidth_ratio, Absence) for gpu in readings.gpus):
            return False, logging.WARNING, f"up, without memory bandwidth: {PROFILING_NEEDS}"
        gpus = count_nouns(len(readings.gpus), "GPU or MIG instance", "GPUs or MIG instances")
        return True, logging.INFO, f"up, {gpus}"


# the source of readings of which no page was recognised yet
UNKNOWN = "device_exporter"
# of cards whose name the page does not say; a page of lies must not grow them
MOST_PRODUCTS = 64


class DeviceExporterSource(_ExporterSource[GpuReadings, GpuReading]):
    """Reads one device exporter of another vendor than NVIDIA: a source of GPU readings."""

    _title, _log = "the device exporter", logging.getLogger("llm_serving_exporter.gpu")
    _wanted = device_page.WANTED
    _name = UNKNOWN

    def _read_page(self, samples: Samples) -> Iterable[GpuReading] | str:
        table = recognise(samples.layout.names)
        if table is not None:
            self._name = table.name
            return map(self._name_product, read_devices(samples, table))
        if is_dcgm_page(samples.layout.names):
            return f"{self._path} is dcgm-exporter's: its address belongs to dcgm.url, beside NVML"
        return f"{self._path} is the page of none of {listed((table.title for table in TABLES), 'and')}"

    def _make_readings(self, attempt: Attempt, monotonic_seconds: float, gpus: Iterable[GpuReading]) -> GpuReadings:
        return GpuReadings(attempt, self._name, monotonic_seconds, tuple(gpus))

    def _describe(self, readings: GpuReadings) -> tuple[object, int, str]:
        title = next(table.title for table in TABLES if table.name == readings.source)
        count = len(readings.gpus)
        return (readings.source, count), logging.INFO, f"{title}, {count_nouns(count, 'GPU')}"

    @staticmethod
    def _name_product(gpu: GpuReading) -> GpuReading:
        """With the product's name, where the page has its PCI device id alone and the catalogue knows that."""
        identity = gpu.identity
        if not identity.name.startswith("0x"):
            return gpu
        parts, memory = identity.partitions, identity.memory_total_bytes
        whole = None if memory is None else memory * parts
        card = replace(identity, uuid="", index=0, partitions=1, memory_total_bytes=whole)
        return replace(gpu, identity=replace(identity, name=_find_product(card)))


@lru_cache(MOST_PRODUCTS)
def _find_product(card: GpuIdentity) -> str:
    spec = match(card, loader.gpu_catalogue())
    return card.name if spec is None else spec.name
