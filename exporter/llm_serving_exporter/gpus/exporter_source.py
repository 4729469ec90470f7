"""A device exporter as the source of GPU readings, where NVML is not: AMD's, Intel Gaudi's. Its page says which it is."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection

from llm_serving_exporter.clock import elapsed_seconds
from llm_serving_exporter.errors import ExpositionError
from llm_serving_exporter.facts import loader
from llm_serving_exporter.facts.gpus import match
from llm_serving_exporter.fetch.http import HttpClient
from llm_serving_exporter.fetch.page import PageParser
from llm_serving_exporter.fetch.waits import drive
from llm_serving_exporter.gpus.dcgm import is_dcgm_page
from llm_serving_exporter.gpus.device_page import TABLES, is_wanted_name, read_devices, recognise
from llm_serving_exporter.model.gpu import GpuReading, GpuReadings
from llm_serving_exporter.model.record import Struct, replace
from llm_serving_exporter.model.sample import Attempt, FailureReason, Page, Refusal, Samples, Stage
from llm_serving_exporter.model.text import count_nouns
from llm_serving_exporter.settings.config import DcgmConfig
from llm_serving_exporter.settings.problems import listed

# --- A page of a device exporter, scrape by scrape: over a connection that is kept, each way to fail with its reason.


class Scraped(Struct, frozen=True):
    """A page that was read."""

    page: Page  # as it came
    samples: Samples  # those that are wanted
    names: Collection[str]  # of all samples, unwanted ones too


class DevicePage:
    """Reads one page, from one thread at a time. Raises ConfigError when it is made with a URL or settings that cannot be used."""

    def __init__(
        self,
        config: DcgmConfig,
        is_wanted: Callable[[str], bool],
        monotonic: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self.config = config
        self._monotonic, self._wall = monotonic, wall
        self._client = HttpClient(config.url, config.http, monotonic=monotonic, wall=wall)
        self._parser = PageParser(is_wanted, config.max_series)

    @property
    def place(self) -> str:
        """Where the page is, for messages."""
        return self.config.url + self.config.metrics_path

    def scrape(self, started: float) -> Scraped | Attempt:
        """The page, or the attempt that failed to read it. `started`: when the attempt began."""
        page = drive(self._client.get_metrics(self.config.metrics_path))
        if isinstance(page, Refusal):
            return self.fail(started, Stage.SCRAPE, page.reason, page.detail, page.status)
        try:
            samples = self._parser.parse(page)
        except ExpositionError as error:
            size = len(page.body)
            return self.fail(started, Stage.PARSE, FailureReason(error.reason), str(error), page.status, size)
        return Scraped(page, samples, samples.layout.names)

    def succeed(self, started: float, page: Page) -> Attempt:
        """The attempt that read a page."""
        taken = self._monotonic() - started
        return Attempt(Stage.GPU, None, "", page.received_unix_seconds, taken, page.status, len(page.body))

    def fail(
        self,
        started: float,
        stage: Stage,
        reason: FailureReason,
        detail: str,
        status: int | None = None,
        page_bytes: int | None = None,
    ) -> Attempt:
        """The attempt that ends now, for a reason."""
        return Attempt(stage, reason, detail, self._wall(), self._monotonic() - started, status, page_bytes)

    def fail_for_fault(self, started: float, error: Exception) -> Attempt:
        """The attempt that a fault of the exporter's own ended. Its traceback is for the caller to log."""
        detail = f"internal error ({type(error).__name__}); the log has the traceback"
        return self.fail(started, Stage.GPU, FailureReason.INTERNAL, detail)

    def close(self) -> None:
        """Ends the connection; may be called twice."""
        self._client.close()


# --- The source of readings.


log = logging.getLogger("llm_serving_exporter.gpu")

# the source of readings of which no page was recognised yet
UNKNOWN = "device_exporter"
# of cards whose name the page does not say; a page of lies must not grow them
MOST_PRODUCTS = 64
SOURCES = frozenset({UNKNOWN, *(table.name for table in TABLES)})


class DeviceExporterSource:
    """Reads one device exporter, from one thread at a time: a `gpus.source.GpuSource`.

    Raises ConfigError when it is made with a URL or settings that cannot be used.
    """

    def __init__(
        self,
        config: DcgmConfig,
        *,
        monotonic: Callable[[], float] = elapsed_seconds,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._monotonic = monotonic
        self._page = DevicePage(config, is_wanted_name, monotonic, wall)
        self._name = UNKNOWN
        # by PCI device id and the card's memory
        self._products: dict[tuple[int | None, int | None], str] = {}
        self._said: tuple[str, FailureReason | None, int] | None = None

    def read(self) -> GpuReadings:
        """One scrape. Never raises: what went wrong is in `attempt`."""
        started = self._monotonic()
        try:
            readings = self._read(started)
        except Exception as error:
            log.exception("reading the device exporter failed; this is a bug, please report it")
            readings = self._fail(self._page.fail_for_fault(started, error))
        self._log_change(readings)
        return readings

    def close(self) -> None:
        """Ends the connection; may be called twice."""
        self._page.close()

    def _read(self, started: float) -> GpuReadings:
        found = self._page.scrape(started)
        if isinstance(found, Attempt):
            return self._fail(found)
        table = recognise(found.names)
        if table is None:
            detail = f"{self._page.config.metrics_path} is the page of none of {listed((one.title for one in TABLES), 'and')}"
            if is_dcgm_page(found.names):
                detail = (
                    f"{self._page.config.metrics_path} is dcgm-exporter's: its address belongs to dcgm.url, beside NVML"
                )
            reason, page = FailureReason.UNKNOWN_RUNTIME, found.page
            return self._fail(self._page.fail(started, Stage.NORMALISE, reason, detail, page.status, len(page.body)))
        self._name = table.name
        gpus = tuple(map(self._name_product, read_devices(found.samples, table)))
        attempt = self._page.succeed(started, found.page)
        return GpuReadings(attempt, table.name, found.page.received_monotonic_seconds, gpus)

    def _name_product(self, gpu: GpuReading) -> GpuReading:
        """With the product's name, where the page has its PCI device id alone and the catalogue knows that."""
        identity = gpu.identity
        if not identity.name.startswith("0x"):
            return gpu
        parts, memory = identity.partitions, identity.memory_total_bytes
        told = identity.pci_device_id, None if memory is None else memory * parts
        if told not in self._products:
            spec = match(replace(identity, partitions=1, memory_total_bytes=told[1]), loader.gpu_catalogue())
            self._products[told] = identity.name if spec is None else spec.name
            while len(self._products) > MOST_PRODUCTS:
                self._products.pop(next(iter(self._products)))
        return replace(gpu, identity=replace(identity, name=self._products[told]))

    def _fail(self, attempt: Attempt) -> GpuReadings:
        return GpuReadings(attempt, self._name, self._monotonic())

    def _log_change(self, readings: GpuReadings) -> None:
        """Logs what changed since the last scrape."""
        attempt = readings.attempt
        said, self._said = self._said, (readings.source, attempt.reason, len(readings.gpus))
        if said == self._said:
            return
        if attempt.reason is not None:
            stage, why = attempt.stage.value, attempt.reason.value
            log.warning("device exporter %s: %s failed, reason=%s: %s", self._page.place, stage, why, attempt.detail)
        else:
            title = next(table.title for table in TABLES if table.name == readings.source)
            log.info("device exporter %s: %s, %s", self._page.place, title, count_nouns(len(readings.gpus), "GPU"))
