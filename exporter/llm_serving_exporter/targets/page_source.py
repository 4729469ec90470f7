"""Where a target's page is, whose it is, and its samples: the pipeline's front half, with the state that looking for it needs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from threading import Lock

from llm_serving_exporter.engines.apply import Plans, wanted_by
from llm_serving_exporter.engines.detect import detect, labels_needed
from llm_serving_exporter.engines.index import spellings
from llm_serving_exporter.engines.json_answers import EMPTY, Joiner, Totals
from llm_serving_exporter.engines.mapping import USUAL_HEALTH, PageKind, Readings, Runtime
from llm_serving_exporter.engines.plan import is_silent, may_be_silent
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.errors import ExpositionError
from llm_serving_exporter.fetch.http import Client, Connect, HttpClient
from llm_serving_exporter.fetch.page import KnownPages, PageParser, outline_page
from llm_serving_exporter.model.later import Retry
from llm_serving_exporter.model.record import Struct, replace
from llm_serving_exporter.model.sample import FailureReason, Layout, Page, Refusal, Samples, Stage
from llm_serving_exporter.model.target import Target

log = logging.getLogger("llm_serving_exporter.target")


# --- What one process knows about pages: made once for all targets whose pages are alike, so that each keeps only what is its own.


# outlines of pages whose runtime is remembered: a number each
MOST_RECOGNISED = 4096


class PageBook:
    """Threads may share it. `runtimes`: those that have a table."""

    def __init__(self, runtimes: Mapping[str, Runtime] = RUNTIMES) -> None:
        self.runtimes = runtimes
        # how pages of each layout are read
        self.plans = Plans()
        self._lock = Lock()
        # by the runtime's name, None before it is known: the samples that are wanted, and the pages that are known
        self._wanted: dict[str | None, tuple[Callable[[str], bool], KnownPages]] = {}
        # by outline
        self._recognised: dict[int, Runtime] = {}

    def make_parser(self, runtime: Runtime | None, max_series: int) -> PageParser:
        """A parser of pages of a runtime; None: of pages whose runtime is to be recognised."""
        name = runtime.name if runtime is not None else None
        with self._lock:
            if name not in self._wanted:
                wanted = wanted_by(runtime) if runtime is not None else labels_needed(self.runtimes)
                self._wanted[name] = wanted, KnownPages()
            wanted, pages = self._wanted[name]
        return PageParser(wanted, max_series, pages)

    def recall_runtime(self, page: Page) -> Runtime | None:
        """Whose page one was recognised as that differed from this one in nothing but values; None where there was none."""
        return self._recognised.get(outline_page(page.body))

    def note_runtime(self, page: Page, runtime: Runtime) -> None:
        """Remembers whose page it was recognised as."""
        with self._lock:
            if len(self._recognised) >= MOST_RECOGNISED:
                self._recognised.clear()
            self._recognised[outline_page(page.body)] = runtime


# --- Endpoints beside a page.

# less time than this is not worth a question
SHORTEST_TIMEOUT_SECONDS = 0.25


def place_beside(runtime: Runtime, metrics_path: str, path: str) -> str:
    """The path of an endpoint that stands beside a metrics page: below the same prefix, with the same query ("?model=…" of a router)."""
    page, _, query = metrics_path.partition("?")
    own_path = max((own_path for own_path in runtime.paths if page.endswith(own_path)), key=len, default=page)
    prefix = page.removesuffix(own_path)
    joint = "&" if "?" in path else "?"
    return f"{prefix}{path}{joint}{query}" if query else prefix + path


def is_for_good(answer: Refusal) -> bool:
    """Whether asking again would be answered the same: the server does not have the endpoint, or not for us."""
    if answer.reason is FailureReason.STATUS:
        # 408 and 429 are the server's load; 501: what the endpoint needs is switched off (llama.cpp without --metrics, with --no-slots)
        return (
            answer.status is not None
            and answer.status not in (408, 429)
            and (answer.status < 500 or answer.status == 501)
        )
    return answer.reason in (FailureReason.CONTENT_TYPE, FailureReason.UNAUTHORIZED, FailureReason.REDIRECT)


# --- A runtime's JSON endpoints that are asked at each tick, and JSON that is a page itself.


# a path that was refused for good is asked again after this long, twice as long each time: it may be switched on
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 60.0, 600.0


class Polls:
    """Asks one server. Used by one thread at a time; never raises."""

    def __init__(self, target: Target, client: Client, monotonic: Callable[[], float]) -> None:
        self._target, self._client, self._monotonic = target, client, monotonic
        # paths that were refused for good, and when they are asked again
        self._silent: dict[str, Retry] = {}
        # by path, what it said last
        self._last: dict[str, Readings] = {}

    def forget(self) -> None:
        """A restarted server may answer what the old one did not."""
        self._silent.clear()
        self._last.clear()

    async def ask(self, runtime: Runtime, metrics_path: str, page: Samples, deadline: float) -> Readings:
        """The samples of every endpoint that answers before `deadline` (monotonic seconds); those that were refused for good are asked
        again now and then.

        `page`: the metrics page just read, which says whether the server is at rest.
        """
        readings: list[Readings] = []
        for poll in runtime.polls:
            now = self._monotonic()
            left = deadline - now
            silent = self._silent.get(poll.path)
            if (silent is not None and not silent.is_due(now)) or left < SHORTEST_TIMEOUT_SECONDS:
                continue
            if poll.busy is not None and not (working := _working(page, poll.busy, runtime)):
                if poll.at_rest is not None and working is not None and silent is None:
                    readings.append(poll.at_rest(self._last.get(poll.path, ())))
                continue
            answer = await self._client.get_json(place_beside(runtime, metrics_path, poll.path), timeout_seconds=left)
            if isinstance(answer, Refusal):
                log.debug("target=%s: %s does not say %s: %s", self._target.name, poll.path, poll.says, answer.detail)
                if is_for_good(answer):
                    self._fall_silent(poll.path)
                continue
            try:
                self._last[poll.path] = poll.read(answer.value)
                readings.append(self._last[poll.path])
                self._silent.pop(poll.path, None)
            except Exception:
                log.exception("target=%s: %s failed; this is a bug, please report it", self._target.name, poll.path)
                self._fall_silent(poll.path)
        return tuple(sample for samples in readings for sample in samples)

    def _fall_silent(self, path: str) -> None:
        retry = self._silent.setdefault(path, Retry(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS))
        retry.note_failure(self._monotonic())


def _working(page: Samples, name: str, runtime: Runtime) -> bool | None:
    """Whether a sample of the page is above 0; None where the page does not have it."""
    forms = spellings(name, runtime.respelt)
    values = [value for key, value in zip(page.layout.keys, page.values, strict=True) if key.name in forms]
    return any(value > 0 for value in values) if values else None


# --- Whose page it is where the page does not say: endpoints that only one runtime answers so are asked, seldom.


# asked again after this long, twice as long each time, while the families of the page stay the same
FIRST_ASKING_SECONDS, LONGEST_ASKING_SECONDS = 60.0, 600.0
# a page that shows other families is asked about at once, so often; after that, as often as one that does not change
MOST_FRESH_ROUNDS = 6


class _Asked(Struct):
    families: frozenset[str]  # that the page had then
    retry: Retry  # when to ask again
    runtime: Runtime | None = None  # whose it is, as an endpoint said; None: none did


class Recognition:
    """Asks one server what it is. Used by one thread at a time; never raises. It remembers a verdict for each path that was asked about."""

    def __init__(self, runtimes: Mapping[str, Runtime], client: Client, monotonic: Callable[[], float]) -> None:
        self._runtimes, self._client, self._monotonic = runtimes, client, monotonic
        self._asked: dict[str, _Asked] = {}
        # rounds that found nothing
        self._rounds = 0

    async def ask(self, layout: Layout, path: str, deadline: float) -> Runtime | None:
        """The runtime that an endpoint beside the page at `path` shows; None where none does, or none did a short while ago.

        Each endpoint is asked once a round, until `deadline` (monotonic seconds). A verdict stands while the page's families are the same.
        """
        families = frozenset(layout.types) | layout.names
        asked = self._asked.get(path)
        if asked is None or asked.families != families:
            often = asked is not None and self._rounds >= MOST_FRESH_ROUNDS
            retry = asked.retry if asked and often else Retry(FIRST_ASKING_SECONDS, LONGEST_ASKING_SECONDS)
            asked = self._asked[path] = _Asked(families, retry)
        if asked.runtime is None and asked.retry.is_due(self._monotonic()):
            asked.runtime = await self._ask_all(path, deadline)
            if asked.runtime is None:
                asked.retry.note_failure(self._monotonic())
                self._rounds += 1
        return asked.runtime

    async def _ask_all(self, path: str, deadline: float) -> Runtime | None:
        answers: dict[str, object] = {}
        for runtime in self._runtimes.values():
            for endpoint, is_its in runtime.shows:
                place = place_beside(runtime, path, endpoint)
                if place not in answers:
                    left = deadline - self._monotonic()
                    if left < SHORTEST_TIMEOUT_SECONDS:
                        return None
                    answer = await self._client.get_json(place, timeout_seconds=left)
                    if isinstance(answer, Refusal) and answer.reason in (
                        FailureReason.TIMEOUT,
                        FailureReason.UNREACHABLE,
                    ):
                        return None
                    answers[place] = None if isinstance(answer, Refusal) else answer.value
                if answers[place] is not None and is_its(answers[place]):
                    return runtime
        return None


# --- One target's page.


# where metrics pages are, tried in this order until one is an engine's. TensorRT-LLM's first: its /metrics is another thing, JSON that is
# emptied by reading it
METRICS_PATHS = ("/prometheus/metrics", "/metrics", "/v1/metrics")
TENSORRT_LLMS, EMPTIED_BY_READING = METRICS_PATHS[:2]
_ELSEWHERE = frozenset({FailureReason.CONTENT_TYPE, FailureReason.UNAUTHORIZED})
_NOBODYS = frozenset({FailureReason.UNKNOWN_RUNTIME, FailureReason.EMPTY})
_WRONG_PATH = _ELSEWHERE | _NOBODYS
# JSON on /metrics costs its reader what is read: it is left alone this long, over outages too, twice as long each time
FIRST_JSON_RETRY_SECONDS, LONGEST_JSON_RETRY_SECONDS = 600.0, 3600.0

# what a server answers that fails at its page: 501 says that it has none
_FAULTS = frozenset(range(500, 600)) - {501}
_HUNG = frozenset({FailureReason.CLOSED, FailureReason.TIMEOUT})

_OF_ANY_PROCESS = "only python_* and process_* families"
_NOTHING_YET = f"the page {TENSORRT_LLMS} is empty: set runtime, or metrics_path to where the page is"
_JSON = (
    f"{EMPTIED_BY_READING} answered with JSON, not with a metrics page. If that is TensorRT-LLM: set `return_perf_metrics: true` in "
    f"it, which puts a page on {TENSORRT_LLMS}; or `runtime: trtllm-json` for the target, to have the JSON read, and emptied, on purpose"
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

    `runtime`: whose page it is, None until it was recognised; `path`: where it is, None until it was found. `book`: what is known of pages.
    """

    def __init__(
        self,
        target: Target,
        book: PageBook,
        monotonic: Callable[[], float],
        wall: Callable[[], float],
        connect: Connect = HttpClient,
    ) -> None:
        self._target, self._book, self._runtimes = target, book, book.runtimes
        self._monotonic, self._wall = monotonic, wall
        self._connect = connect
        # the target's, or the same with https
        self.base_url = target.url
        self._ask_at(target.url)
        self._joiner, self._totals = Joiner(), Totals()
        # JSON that its reader empties: the refusal that it was read as, and when it is read again
        self._json_refused: tuple[Refusal, Retry] | None = None
        # the path of the last page of metrics, and its samples without polled ones
        self._page: tuple[str, Samples] | None = None
        self.path: str | None = target.metrics_path
        self.runtime: Runtime | None = None
        self._set_runtime(book.runtimes.get(target.runtime) if target.runtime else None)

    def _ask_at(self, base_url: str) -> None:
        self.base_url = base_url
        self._client = self._connect(base_url, self._target.http, monotonic=self._monotonic, wall=self._wall)
        self._polls = Polls(self._target, self._client, self._monotonic)
        self._recognition = Recognition(self._runtimes, self._client, self._monotonic)

    def close(self) -> None:
        """Ends the connection."""
        self._client.close()

    async def ask_restarted(self, samples: Samples, started: float) -> Samples:
        """`samples`, just read, of a server that has restarted, with what its polled endpoints say now.

        What they said before is forgotten. Totals of a JSON page stay: the page itself showed the restart.
        """
        self._polls.forget()
        deadline = started + self._target.http.timeout_seconds
        return samples if self._page is None else await self._join_polled(self._page, deadline)

    @property
    def whose(self) -> Runtime:
        """The runtime of a page that was read."""
        assert self.runtime is not None
        return self.runtime

    @property
    def url(self) -> str:
        """The page's URL, as far as it is known."""
        return self.base_url + (self.path or ("/metrics" if self.runtime is None else self.runtime.paths[0]))

    def _list_paths(self) -> tuple[str, ...]:
        if self.path is not None:
            return (self.path,)
        return self.runtime.paths if self.runtime is not None else METRICS_PATHS

    async def read(self, started: float) -> tuple[Page, Samples]:
        """The page and its samples, polled ones included; `started`: when the tick began. Raises FailedTickError.

        Where the target's http is a guess, a server that shows that it speaks TLS is asked by TLS, until that fails.
        """
        try:
            return await self._read_anywhere(started)
        except FailedTickError as failure:
            if failure.reason is FailureReason.SPEAKS_TLS and self._target.may_speak_tls:
                self._client.close()
                self._ask_at(self._target.url.replace("http://", "https://", 1))
                log.info("target=%s: it speaks TLS, and is asked at %s", self._target.name, self.base_url)
                return await self._read_anywhere(started)
            if self.base_url != self._target.url and failure.reason in (FailureReason.TLS, FailureReason.CLOSED):
                self._client.close()
                self._ask_at(self._target.url)
            raise await self._ask_whether_healthy(failure, started) from None

    async def _ask_whether_healthy(self, failure: FailedTickError, started: float) -> FailedTickError:
        """The failure; where the server fails at the page and says at its health path that it is well, that it is the page's alone."""
        fails = failure.reason is FailureReason.STATUS and failure.status in _FAULTS
        http, interval = self._target.http, self._target.interval_seconds
        # a page that hung took all of its time; the question has what is left until the next tick
        left = max(started + http.timeout_seconds - self._monotonic(), interval - http.timeout_seconds)
        if not (fails or failure.reason in _HUNG) or left < SHORTEST_TIMEOUT_SECONDS:
            return failure
        runtime = self.runtime
        path = place_beside(runtime, self.path or "", runtime.health) if runtime is not None else USUAL_HEALTH
        settings = replace(http, timeout_seconds=min(left, http.timeout_seconds))
        client = self._connect(self.base_url, settings, monotonic=self._monotonic, wall=self._wall)
        try:
            if isinstance(await client.get_any(path), Refusal):
                return failure
        finally:
            client.close()
        detail = f"{failure.detail}; {path} says that the server is well: its page alone fails"
        return FailedTickError(failure.stage, FailureReason.PAGE_FAILS, detail, failure.status, failure.page)

    async def _read_anywhere(self, started: float) -> tuple[Page, Samples]:
        failures: dict[str, FailedTickError] = {}
        deadline = started + self._target.http.timeout_seconds
        for path in self._list_paths():
            try:
                answer = await self._read(path, deadline)
            except FailedTickError as failure:
                failures[path] = failure
                # a page of TensorRT-LLM's that shows nothing yet is its page all the same: going on would read the JSON
                goes_on = _ELSEWHERE if self._searching and path == TENSORRT_LLMS else _WRONG_PATH
                if failure.status == 404 or failure.reason in goes_on:
                    continue
                if failure.reason in _NOBODYS:
                    break
                raise
            self.path = path
            return answer
        if self._searching:
            for path, failed in failures.items():
                silent = await self._read_silent_page(failed, path, deadline) if failed.reason in _NOBODYS else None
                if silent is not None:
                    return silent
        if self.path is not None:
            self._search_again()
        raise _choose_failure(failures)

    async def _read_silent_page(
        self, failure: FailedTickError, path: str, deadline: float
    ) -> tuple[Page, Samples] | None:
        """A page that does not say whose it is, as the page of the runtime that an endpoint beside it shows; None where none does.

        Of a runtime whose page would say it, `failure` is told that.
        """
        page = failure.page
        if page is None:
            return None
        layout = self._parse(page).layout
        runtime = await self._recognition.ask(layout, path, deadline)
        if runtime is None:
            return None
        if runtime.prefixes and not (may_be_silent(runtime) and is_silent(layout) and path in runtime.paths):
            failure.detail = (
                f"{runtime.title} answers beside {path}, and the page has nothing of its own; its metrics are switched off "
                "(vLLM: --disable-log-stats), or elsewhere: set metrics_path"
            )
            return None
        self.path = path
        self._set_runtime(runtime)
        self._page = path, self._parse(page)
        return page, await self._join_polled(self._page, deadline)

    def _search_again(self) -> None:
        """Looks for the page again: it is no longer where it was found, and another server at the address may have its own elsewhere."""
        if self._target.metrics_path is None:
            self.path = None
            if self._target.runtime is None:
                self._set_runtime(None)

    @property
    def _searching(self) -> bool:
        return self.path is None and self.runtime is None

    async def _read(self, path: str, deadline: float) -> tuple[Page, Samples]:
        if self.runtime is not None and self.runtime.kind is not PageKind.METRICS:
            return await self._read_without_metrics(self.runtime, path)
        page = await self._fetch_while_searching(path) if self._searching else await self._client.get_metrics(path)
        if isinstance(page, Refusal):
            empty = self._make_empty_page(page) if page.reason is FailureReason.EMPTY else None
            if empty is None or self.runtime is None or not may_be_silent(self.runtime):
                raise FailedTickError(Stage.SCRAPE, page.reason, page.detail, page.status, empty)
            page = empty
        if self.runtime is None:
            self._set_runtime(self._recognise(page, path))
        samples = self._parse(page)
        if self._target.runtime is not None and is_silent(samples.layout):
            await self._check_setting(samples.layout, path, page, deadline)
        self._page = path, samples
        return page, await self._join_polled(self._page, deadline)

    def _make_empty_page(self, refusal: Refusal) -> Page:
        return Page(b"", "text/plain", refusal.at_unix_seconds, self._monotonic())

    async def _check_setting(self, layout: Layout, path: str, page: Page, deadline: float) -> None:
        """Raises FailedTickError where the page does not say whose it is, and an endpoint shows another runtime than is set."""
        assert self.runtime is not None
        if not self.runtime.shows or self.runtime.name not in RUNTIMES:
            return
        shown = await self._recognition.ask(layout, path, deadline)
        if shown is not None and shown is not self.runtime:
            raise self._explain_foreign_page(self.runtime, path, f"beside it, {shown.title}", page)

    async def _join_polled(self, page: tuple[str, Samples], deadline: float) -> Samples:
        path, samples = page
        assert self.runtime is not None
        polled = await self._polls.ask(self.runtime, path, samples, deadline)
        return self._joiner.join(samples, polled)

    async def _fetch_while_searching(self, path: str) -> Page | Refusal:
        """What is on a path while no page has been found. A refusal says what to do; JSON that its reader empties is seldom asked for."""
        if path != EMPTIED_BY_READING:
            page = await self._client.get_metrics(path)
            if isinstance(page, Refusal) and page.reason is FailureReason.EMPTY and path == TENSORRT_LLMS:
                return replace(page, detail=_NOTHING_YET)
            return page
        if self._json_refused is not None and not self._json_refused[1].is_due(self._monotonic()):
            return self._json_refused[0]
        page = await self._client.get_metrics(path)
        # the detail has the content type
        if isinstance(page, Refusal) and page.reason is FailureReason.CONTENT_TYPE and "json" in page.detail.lower():
            page = replace(page, detail=_JSON)
            first, longest = FIRST_JSON_RETRY_SECONDS, LONGEST_JSON_RETRY_SECONDS
            retry = self._json_refused[1] if self._json_refused else Retry(first, longest)
            retry.note_failure(self._monotonic())
            self._json_refused = page, retry
        elif not isinstance(page, Refusal):
            self._json_refused = None
        return page

    async def _read_without_metrics(self, runtime: Runtime, path: str) -> tuple[Page, Samples]:
        """The page of a server that has JSON instead of metrics, or neither."""
        self._page = None
        if runtime.read_page is None:
            page = await self._client.get_any(path)
            if isinstance(page, Refusal):
                raise FailedTickError(Stage.SCRAPE, page.reason, page.detail, page.status)
            return page, Samples(EMPTY, ())
        answer = await self._client.get_json(path, self._target.http.max_body_bytes)
        if isinstance(answer, Refusal):
            self._totals.let_go()
            raise FailedTickError(Stage.SCRAPE, answer.reason, answer.detail, answer.status)
        page = Page(b"", "application/json", self._wall(), self._monotonic())
        readings = runtime.read_page(answer.value)
        if readings is None:
            self._totals.let_go()
            raise self._explain_foreign_page(runtime, path, "other JSON", page)
        return page, self._joiner.join(Samples(EMPTY, ()), self._totals.add_up(runtime, readings))

    def _explain_foreign_page(self, runtime: Runtime, path: str, seen: str, page: Page) -> FailedTickError:
        detail = f"{path} has nothing of {runtime.title} (seen: {seen}); check runtime and metrics_path of the target"
        return FailedTickError(Stage.NORMALISE, FailureReason.UNKNOWN_RUNTIME, detail, page.status, page)

    def _recognise(self, page: Page, path: str) -> Runtime:
        runtime = self._book.recall_runtime(page)
        if runtime is None:
            runtime = self._detect_runtime(self._parse(page).layout, path, page)
            self._book.note_runtime(page, runtime)
        return runtime

    def _parse(self, page: Page) -> Samples:
        if not page.body:
            return Samples(EMPTY, ())
        try:
            return self._parser.parse(page)
        except ExpositionError as error:
            raise FailedTickError(Stage.PARSE, FailureReason(error.reason), str(error), page.status, page) from None

    def _detect_runtime(self, layout: Layout, path: str, page: Page) -> Runtime:
        detected = detect(layout, self._runtimes)
        if detected.runtime is not None:
            return detected.runtime
        if detected.router is not None:
            detail = f"{path} is the page of {detected.router.title}, not of an engine; {detected.router.instead}"
            raise FailedTickError(Stage.NORMALISE, FailureReason.NOT_AN_ENGINE, detail, page.status, page)
        if detected.runtimes:
            titles = " and ".join(runtime.title for runtime in detected.runtimes)
            detail = f"{path} has families of {titles}; set runtime for the target to the one that is meant"
        else:
            seen = ", ".join(detected.families) or _OF_ANY_PROCESS
            detail = (
                f"no known runtime on {path} (seen: {seen}); a vLLM server shows none with --disable-log-stats; "
                "another runtime can be given a mapping of its own (runtimes: in the configuration)"
            )
        raise FailedTickError(Stage.NORMALISE, FailureReason.UNKNOWN_RUNTIME, detail, page.status, page)

    def _set_runtime(self, runtime: Runtime | None) -> None:
        self.runtime = runtime
        # until the runtime is known only names are needed, and the page is read again once it is
        self._parser = self._book.make_parser(runtime, self._target.max_series)

    def explain_foreign_page(self, layout: Layout, page: Page) -> FailedTickError:
        """The failure for a page without any series of the runtime: another server took the address, or the setting is wrong."""
        assert self.runtime is not None
        path = self.path or self._list_paths()[0]
        detected = detect(layout, self._runtimes)
        if self.runtime in detected.runtimes:
            detail = f"{path} is the page of {self.runtime.title}, with no series of any model yet: it has served nothing, or loaded none"
            return FailedTickError(Stage.SCRAPE, FailureReason.EMPTY, detail, page.status, page)
        # a table of the configuration's own is believed against what else its names may mean
        if self._target.runtime is not None and (detected.router is None or self.runtime.name not in RUNTIMES):
            seen = " or ".join(runtime.title for runtime in detected.runtimes)
            looks = f"a page of {seen}" if seen else ", ".join(detected.families) or _OF_ANY_PROCESS
            return self._explain_foreign_page(self.runtime, path, looks, page)
        self._search_again()
        if detected.runtime is not None:
            detail = f"another server, {detected.runtime.title}, answers on {path} now"
            return FailedTickError(Stage.NORMALISE, FailureReason.UNKNOWN_RUNTIME, detail, page.status, page)
        try:
            self._detect_runtime(layout, path, page)
        except FailedTickError as failure:
            return failure
        detail = f"another kind of server answers on {path} now"
        return FailedTickError(Stage.NORMALISE, FailureReason.UNKNOWN_RUNTIME, detail, page.status, page)


def _choose_failure(failures: Mapping[str, FailedTickError]) -> FailedTickError:
    """The failure that says most: one that is not a 404, of /metrics where there are several."""
    there = {path: failure for path, failure in failures.items() if failure.status != 404}
    asked = {path: failure for path, failure in there.items() if path != METRICS_PATHS[0]} or there or failures
    return asked.get("/metrics") or next(iter(asked.values()))
