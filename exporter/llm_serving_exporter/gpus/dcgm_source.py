"""dcgm-exporter, scrape by scrape: page -> readings by GPU."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from llm_serving_exporter.clock import elapsed_seconds
from llm_serving_exporter.gpus.dcgm import PROFILING_NEEDS, is_dcgm_page, is_wanted_dcgm_name, read_gpus
from llm_serving_exporter.gpus.exporter_source import DevicePage
from llm_serving_exporter.model.gpu import DcgmReadings
from llm_serving_exporter.model.sample import Attempt, FailureReason, Stage
from llm_serving_exporter.model.text import count_nouns
from llm_serving_exporter.settings.config import DcgmConfig

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
        self._monotonic = monotonic
        self._page = DevicePage(config, is_wanted_dcgm_name, monotonic, wall)
        self._said: tuple[FailureReason | None, bool] | None = None

    def read(self) -> DcgmReadings:
        """One scrape. Never raises: what went wrong is in `attempt`, and then no reading of before is left."""
        started = self._monotonic()
        try:
            readings = self._read(started)
        except Exception as error:
            log.exception("reading dcgm-exporter failed; this is a bug, please report it")
            readings = DcgmReadings(self._page.fail_for_fault(started, error), self._monotonic())
        self._log_change(readings)
        return readings

    def close(self) -> None:
        """Ends the connection; may be called twice."""
        self._page.close()

    def _read(self, started: float) -> DcgmReadings:
        found = self._page.scrape(started)
        if isinstance(found, Attempt):
            return DcgmReadings(found, self._monotonic())
        page = found.page
        if not is_dcgm_page(found.names):
            detail = f"{self._page.config.metrics_path} has no series DCGM_…: what answers is not dcgm-exporter"
            reason, size = FailureReason.UNKNOWN_RUNTIME, len(page.body)
            failed = self._page.fail(started, Stage.NORMALISE, reason, detail, page.status, size)
            return DcgmReadings(failed, self._monotonic())
        gpus = read_gpus(found.samples)
        return DcgmReadings(self._page.succeed(started, page), page.received_monotonic_seconds, gpus)

    def _log_change(self, readings: DcgmReadings) -> None:
        """Logs what changed since the last scrape."""
        attempt = readings.attempt
        bandwidth = any(gpu.dram_bandwidth_ratio is not None for gpu in readings.gpus)
        said, self._said = self._said, (attempt.reason, bandwidth)
        if said == self._said:
            return
        where = self._page.place
        if attempt.reason is not None:
            log.warning(
                "dcgm-exporter %s: %s failed, reason=%s: %s",
                where,
                attempt.stage.value,
                attempt.reason.value,
                attempt.detail,
            )
        elif bandwidth:
            log.info(
                "dcgm-exporter %s: up, %s",
                where,
                count_nouns(len(readings.gpus), "GPU or MIG instance", "GPUs or MIG instances"),
            )
        else:
            log.warning("dcgm-exporter %s: up, without memory bandwidth: %s", where, PROFILING_NEEDS)
