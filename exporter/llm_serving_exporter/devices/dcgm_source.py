"""dcgm-exporter, scrape by scrape: page -> readings by GPU."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from llm_serving_exporter.clock import elapsed_seconds
from llm_serving_exporter.config.types import DcgmConfig
from llm_serving_exporter.errors import ExpositionError
from llm_serving_exporter.gpu.dcgm import PROFILING_NEEDS, is_dcgm_page, is_wanted_name, read_gpus
from llm_serving_exporter.model.attempt import Attempt, FailureReason, Stage
from llm_serving_exporter.model.dcgm import DcgmReadings
from llm_serving_exporter.model.page import Refusal
from llm_serving_exporter.parse.page import PageParser
from llm_serving_exporter.scrape.http import HttpClient
from llm_serving_exporter.scrape.waits import drive

log = logging.getLogger("llm_serving_exporter.dcgm")


class DcgmSource:
    """Reads one dcgm-exporter, from one thread at a time, over a connection that is kept between reads.

    Raises ConfigError when it is made with a URL or settings that cannot be used.
    """

    def __init__(
        self,
        config: DcgmConfig,
        *,
        monotonic: Callable[[], float] = elapsed_seconds,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._config = config
        self._monotonic, self._wall = monotonic, wall
        self._client = HttpClient(config.url, config.http, monotonic=monotonic, wall=wall)
        self._parser = PageParser(is_wanted_name, config.max_series)
        self._said: tuple[FailureReason | None, bool] | None = None

    def read(self) -> DcgmReadings:
        """One scrape. Never raises: what went wrong is in `attempt`, and then no reading of before is left."""
        started = self._monotonic()
        try:
            readings = self._read(started)
        except Exception as error:
            log.exception("reading dcgm-exporter failed; this is a bug, please report it")
            detail = f"internal error ({type(error).__name__}); the log has the traceback"
            readings = self._failed(started, Stage.GPU, FailureReason.INTERNAL, detail)
        self._log_change(readings)
        return readings

    def close(self) -> None:
        """Ends the connection; may be called twice."""
        self._client.close()

    def _read(self, started: float) -> DcgmReadings:
        page = drive(self._client.get_metrics(self._config.metrics_path))
        if isinstance(page, Refusal):
            return self._failed(started, Stage.SCRAPE, page.reason, page.detail, page.status)
        size = len(page.body)
        try:
            samples = self._parser.parse(page)
        except ExpositionError as error:
            return self._failed(started, Stage.PARSE, FailureReason(error.reason), str(error), page.status, size)
        if not is_dcgm_page(samples.layout.names):
            detail = f"{self._config.metrics_path} has no series DCGM_…: what answers is not dcgm-exporter"
            return self._failed(started, Stage.NORMALISE, FailureReason.UNKNOWN_RUNTIME, detail, page.status, size)
        gpus = read_gpus(samples)
        taken = self._monotonic() - started
        attempt = Attempt(Stage.GPU, None, "", page.received_unix_seconds, taken, page.status, size)
        return DcgmReadings(attempt, page.received_monotonic_seconds, gpus)

    def _failed(
        self,
        started: float,
        stage: Stage,
        reason: FailureReason,
        detail: str,
        status: int | None = None,
        page_bytes: int | None = None,
    ) -> DcgmReadings:
        now = self._monotonic()
        return DcgmReadings(Attempt(stage, reason, detail, self._wall(), now - started, status, page_bytes), now)

    def _log_change(self, readings: DcgmReadings) -> None:
        """Logs what changed since the last scrape."""
        attempt = readings.attempt
        bandwidth = any(gpu.dram_bandwidth_ratio is not None for gpu in readings.gpus)
        said, self._said = self._said, (attempt.reason, bandwidth)
        if said == self._said:
            return
        where = self._config.url + self._config.metrics_path
        if attempt.reason is not None:
            log.warning(
                "dcgm-exporter %s: %s failed, reason=%s: %s",
                where,
                attempt.stage.value,
                attempt.reason.value,
                attempt.detail,
            )
        elif bandwidth:
            log.info("dcgm-exporter %s: up, %d GPUs or MIG instances", where, len(readings.gpus))
        else:
            log.warning("dcgm-exporter %s: up, without memory bandwidth: %s", where, PROFILING_NEEDS)
