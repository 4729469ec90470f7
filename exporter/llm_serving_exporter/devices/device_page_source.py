"""A page of a device exporter, scrape by scrape: over a connection that is kept, each way to fail with its reason."""

from __future__ import annotations

from collections.abc import Callable, Collection

from llm_serving_exporter.errors import ExpositionError
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.sample import Attempt, FailureReason, Page, Refusal, Samples, Stage
from llm_serving_exporter.parse.page import PageParser
from llm_serving_exporter.scrape.http import HttpClient
from llm_serving_exporter.scrape.waits import drive
from llm_serving_exporter.settings.config import DcgmConfig


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
