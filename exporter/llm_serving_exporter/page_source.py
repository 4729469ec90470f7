"""Where a target's page is, whose it is, and its samples: the pipeline's front half, with the state that looking for it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from llm_serving_exporter.errors import ExpositionError
from llm_serving_exporter.model.attempt import FailureReason, Stage
from llm_serving_exporter.model.page import Page, Refusal
from llm_serving_exporter.model.samples import Layout, Samples
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.normalise.apply import wanted_by
from llm_serving_exporter.normalise.detect import Detection, detect, labels_needed
from llm_serving_exporter.normalise.mapping import PageKind, Runtime
from llm_serving_exporter.normalise.polled import EMPTY, Joiner, Totals
from llm_serving_exporter.parse.page import PageParser
from llm_serving_exporter.polls import Polls
from llm_serving_exporter.scrape.http import HttpClient
from llm_serving_exporter.side_endpoints import beside

# where metrics pages are, tried in this order until one is an engine's. TensorRT-LLM's first: its /metrics is another thing, JSON that is
# emptied by reading it
METRICS_PATHS = ("/prometheus/metrics", "/metrics", "/v1/metrics")
_WRONG_PATH = frozenset(
    {FailureReason.CONTENT_TYPE, FailureReason.UNKNOWN_RUNTIME, FailureReason.EMPTY, FailureReason.UNAUTHORIZED}
)


class FailedTickError(Exception):
    """Carries a failed attempt out of a tick's stages; never leaves the pipeline."""

    def __init__(
        self, stage: Stage, reason: FailureReason, detail: str, status: int | None = None, page: Page | None = None
    ) -> None:
        super().__init__(detail)
        self.stage, self.reason, self.detail, self.status, self.page = stage, reason, detail, status, page


class PageSource:
    """Reads one target's page. Used by one thread at a time.

    `runtime`: whose page it is, None until it was recognised; `path`: where it is, None until it was found. `runtimes`: those that
    have a table.
    """

    def __init__(
        self,
        target: Target,
        runtimes: Mapping[str, Runtime],
        monotonic: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._target, self._runtimes = target, runtimes
        self._monotonic, self._wall = monotonic, wall
        self._client = HttpClient(target.url, target.http, monotonic=monotonic, wall=wall)
        self._polls = Polls(target, self._client, monotonic)
        self._joiner, self._totals = Joiner(), Totals()
        self._refused: dict[str, FailedTickError] = {}
        self.path: str | None = target.metrics_path
        self.runtime: Runtime | None = None
        self._use(runtimes.get(target.runtime) if target.runtime else None)

    def close(self) -> None:
        """Ends the connection."""
        self._client.close()

    def forget(self) -> None:
        """A restarted server may answer what the old one did not."""
        self._polls.forget()
        self._totals.let_go()

    @property
    def url(self) -> str:
        """The page's URL, as far as it is known."""
        return self._target.url + (self.path or ("/metrics" if self.runtime is None else self.runtime.paths[0]))

    def _paths(self) -> tuple[str, ...]:
        if self.path is not None:
            return (self.path,)
        return self.runtime.paths if self.runtime is not None else METRICS_PATHS

    def read(self, started: float) -> tuple[Page, Samples]:
        """The page and its samples, polled ones included; `started`: when the tick began. Raises FailedTickError."""
        failures: dict[str, FailedTickError] = {}
        for path in self._paths():
            try:
                found = self._read(path, started)
            except FailedTickError as failure:
                failures[path] = failure
                if failure.status == 404 or failure.reason in _WRONG_PATH:
                    continue
                self._refused.clear()  # nobody answers: who comes back may be another server
                raise
            self.path = path
            return found
        raise _telling(failures)

    def _read(self, path: str, started: float) -> tuple[Page, Samples]:
        if self.runtime is not None and self.runtime.kind is not PageKind.METRICS:
            return self._read_other(self.runtime, path)
        if path in self._refused:
            raise self._refused[path]
        page = self._client.get_metrics(path)
        if isinstance(page, Refusal):
            failed = FailedTickError(Stage.SCRAPE, page.reason, page.detail, page.status)
            if self.path is None and page.reason is FailureReason.CONTENT_TYPE:
                # never again while looking for the page: TensorRT-LLM's JSON loses what is read of it
                self._refused[path] = failed
            raise failed
        samples = self._parse(page)
        if self.runtime is None:
            self._use(self._detected(detect(samples.layout, self._runtimes), path, page))
            samples = self._parse(page)
        assert self.runtime is not None
        polled = self._polls.ask(self.runtime, path, samples, started + self._target.http.timeout_seconds)
        return page, self._joiner.join(samples, polled)

    def _read_other(self, runtime: Runtime, path: str) -> tuple[Page, Samples]:
        """A server whose page is JSON, or that has none."""
        if runtime.read_page is None:
            page = self._client.get_any(path)
            if isinstance(page, Refusal):
                raise FailedTickError(Stage.SCRAPE, page.reason, page.detail, page.status)
            return page, Samples(EMPTY, ())
        started = self._monotonic()
        answer = self._client.get_json(path, self._target.http.max_body_bytes)
        if isinstance(answer, Refusal):
            self._totals.let_go()
            raise FailedTickError(Stage.SCRAPE, answer.reason, answer.detail, answer.status)
        received = self._monotonic()
        page = Page(b"", "application/json", self._wall(), received, received - started, 0)
        readings = self._totals.of(runtime, runtime.read_page(answer.value))
        return page, self._joiner.join(Samples(EMPTY, ()), readings)

    def _parse(self, page: Page) -> Samples:
        try:
            return self._parser.parse(page)
        except ExpositionError as error:
            raise FailedTickError(Stage.PARSE, FailureReason(error.reason), str(error), page.status, page) from None

    def _detected(self, found: Detection, path: str, page: Page) -> Runtime:
        if found.runtime is not None:
            return found.runtime
        if found.router is not None:
            detail = f"{path} is the page of {found.router.title}, not of an engine; {found.router.instead}"
            raise FailedTickError(Stage.NORMALISE, FailureReason.NOT_AN_ENGINE, detail, page.status, page)
        if found.runtimes:
            titles = " and ".join(runtime.title for runtime in found.runtimes)
            detail = f"{path} has families of {titles}; set runtime for the target to the one that is meant"
        elif (shown := self._shown_elsewhere(path)) is not None:
            return shown
        else:
            seen = ", ".join(found.families) or "only python_* and process_* families"
            detail = f"no known runtime on {path} (seen: {seen}); a vLLM server shows none with --disable-log-stats"
        raise FailedTickError(Stage.NORMALISE, FailureReason.UNKNOWN_RUNTIME, detail, page.status, page)

    def _shown_elsewhere(self, path: str) -> Runtime | None:
        """A runtime whose page has nothing of its own, by an endpoint that it alone has."""
        for runtime in self._runtimes.values():
            for endpoint, is_its in runtime.shows:
                answer = self._client.get_json(beside(runtime, path, endpoint))
                if not isinstance(answer, Refusal) and is_its(answer.value):
                    return runtime
        return None

    def _use(self, runtime: Runtime | None) -> None:
        self.runtime = runtime
        # until the runtime is known only names are needed, and the page is read again once it is
        wanted = wanted_by(runtime) if runtime else labels_needed(self._runtimes)
        self._parser = PageParser(wanted, self._target.max_series)

    def not_its(self, layout: Layout, page: Page) -> FailedTickError:
        """Why a page that has nothing of the runtime's is not its: another server may have taken the address, or the setting is wrong."""
        assert self.runtime is not None
        path = self.path or self._paths()[0]
        found = detect(layout, self._runtimes)
        if self.runtime in found.runtimes:
            detail = f"{path} is the page of {self.runtime.title}, with no series of any model yet: it has served nothing, or loaded none"
            return FailedTickError(Stage.SCRAPE, FailureReason.EMPTY, detail, page.status, page)
        if self._target.runtime is not None and found.router is None:
            nothing = "other JSON" if self.runtime.kind is PageKind.JSON else "only python_* and process_* families"
            seen = ", ".join(found.families) or nothing
            detail = f"{path} has nothing of {self.runtime.title} (seen: {seen}); check runtime and metrics_path of the target"
            return FailedTickError(Stage.NORMALISE, FailureReason.UNKNOWN_RUNTIME, detail, page.status, page)
        if self._target.runtime is None:
            self._use(None)
        if found.runtime is not None:
            detail = f"another server, {found.runtime.title}, answers on {path} now"
            return FailedTickError(Stage.NORMALISE, FailureReason.UNKNOWN_RUNTIME, detail, page.status, page)
        try:
            self._detected(found, path, page)
        except FailedTickError as failure:
            return failure
        detail = f"another kind of server answers on {path} now"
        return FailedTickError(Stage.NORMALISE, FailureReason.UNKNOWN_RUNTIME, detail, page.status, page)


def _telling(failures: Mapping[str, FailedTickError]) -> FailedTickError:
    """The failure that says most: not a page that is just not there, and of those /metrics."""
    there = {path: failure for path, failure in failures.items() if failure.status != 404}
    asked = {path: failure for path, failure in there.items() if path != METRICS_PATHS[0]} or there or failures
    return asked.get("/metrics") or next(iter(asked.values()))
