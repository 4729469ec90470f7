"""One target, tick by tick: scrape -> parse -> normalise -> window -> derive -> reading.

The stages are pure; what a target needs to remember between ticks (connection, layout, window, facts) stands here. A tick
never raises: every failure is an Attempt.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from llm_serving_exporter.derive.derive import Settings, derive
from llm_serving_exporter.derive.held import Held, hold
from llm_serving_exporter.derive.ring import START_TOLERANCE_SECONDS, advance, restarted
from llm_serving_exporter.errors import ExpositionError, FactsError
from llm_serving_exporter.model.attempt import Attempt, FailureReason, Stage
from llm_serving_exporter.model.derived import Derived
from llm_serving_exporter.model.facts import ServerFacts
from llm_serving_exporter.model.model_settings import ModelSettings, ServedModel
from llm_serving_exporter.model.page import Page, Refusal
from llm_serving_exporter.model.samples import Layout, Samples
from llm_serving_exporter.model.snapshot import Absence, Snapshot
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.model.weights import ModelFacts
from llm_serving_exporter.model.window import Window
from llm_serving_exporter.normalise.apply import Normaliser, Overrides, wanted_by
from llm_serving_exporter.normalise.detect import RUNTIMES, Detection, detect
from llm_serving_exporter.normalise.mapping import Runtime
from llm_serving_exporter.parse.page import PageParser
from llm_serving_exporter.scrape.http import HttpClient
from llm_serving_exporter.side_endpoints import SideEndpoints
from llm_serving_exporter.store import RECENT_FAILURES, State, TargetReading

log = logging.getLogger("llm_serving_exporter.target")

# where metrics pages are known to be, tried in this order until one is an engine's
METRICS_PATHS = ("/metrics", *sorted({path for runtime in RUNTIMES.values() for path in runtime.paths} - {"/metrics"}))
# a process start that goes back is another server; this many within so many intervals are several behind one address
SEVERAL_SERVERS, SEVERAL_SERVERS_INTERVALS = 2, 20

# models of one page that are looked up
MOST_MODELS = 32

_ANSWERED = frozenset(
    {
        FailureReason.UNAUTHORIZED, FailureReason.REDIRECT, FailureReason.CONTENT_TYPE, FailureReason.ENCODING, FailureReason.TOO_LARGE,
        FailureReason.EMPTY, FailureReason.CREDENTIALS, FailureReason.MALFORMED, FailureReason.TRUNCATED, FailureReason.TOO_MANY_SERIES,
        FailureReason.UNKNOWN_RUNTIME, FailureReason.NOT_AN_ENGINE, FailureReason.SEVERAL_SERVERS, FailureReason.INTERNAL,
    }
)  # fmt: skip
_WRONG_PATH = frozenset({FailureReason.CONTENT_TYPE, FailureReason.UNKNOWN_RUNTIME, FailureReason.EMPTY})


class _FailedError(Exception):
    """Carries a failed attempt out of a tick's stages; never leaves the pipeline."""

    def __init__(
        self, stage: Stage, reason: FailureReason, detail: str, status: int | None = None, page: Page | None = None
    ) -> None:
        super().__init__(detail)
        self.stage, self.reason, self.detail, self.status, self.page = stage, reason, detail, status, page


class TargetPipeline:
    """Reads one target. `tick` and `refresh_facts` are called by one thread at a time; `close` ends the connection.

    `settings` is asked at each tick for what derive needs (thresholds, GPUs of the target; given what the server said of itself and how
    many engines it has), so that a reload or a GPU that is found takes effect without losing the window. `models` finds
    out about a served model; without it none is known.
    """

    def __init__(
        self,
        target: Target,
        settings: Callable[[ServerFacts, int], Settings],
        window_seconds: float,
        *,
        models: Callable[[ModelSettings, ServedModel], ModelFacts | FactsError] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.target = target
        self._settings = settings
        self._window_seconds = window_seconds
        self._monotonic, self._wall = monotonic, wall
        self._client = HttpClient(target.url, target.http, monotonic=monotonic, wall=wall)
        self._path: str | None = target.metrics_path
        self._runtime: Runtime | None = RUNTIMES.get(target.runtime) if target.runtime else None
        self._side = SideEndpoints(target, monotonic, wall)
        self._went_back: tuple[float, ...] = ()
        self._last_start: float | None = None
        self._reading = TargetReading(target)
        self._window: Window | None = None
        self._held: Held = {}
        self._derived: Derived | None = None
        self._find_model = models
        self._models: dict[str, tuple[ServedModel, ModelFacts | FactsError]] = {}
        self._look_again = False
        self._use(self._runtime)

    def close(self) -> None:
        """Ends the connection."""
        self._client.close()

    def look_again(self) -> None:
        """Has the models looked up anew, as after a reload: files may have changed. May be called from another thread."""
        self._look_again = True

    def tick(self) -> TargetReading:
        """One attempt; the reading after it. Never raises."""
        started = self._monotonic()
        try:
            page, samples = self._page()
            reading = self._succeeded(page, samples, started)
        except _FailedError as failure:
            reading = self._failed(failure, started)
        except Exception as error:
            log.exception("target=%s: a tick failed; this is a bug, please report it", self.target.name)
            detail = f"internal error ({type(error).__name__}); the log has the traceback"
            reading = self._failed(_FailedError(Stage.SCRAPE, FailureReason.INTERNAL, detail), started)
        self._reading = reading
        return reading

    # --- one page -----------------------------------------------------------------------------------------------

    def _paths(self) -> Iterator[str]:
        yield from (self._path,) if self._path is not None else METRICS_PATHS

    def _page(self) -> tuple[Page, Samples]:
        first: _FailedError | None = None
        for path in self._paths():
            try:
                found = self._read(path)
            except _FailedError as failure:
                first = first or failure
                if failure.status == 404 or failure.reason in _WRONG_PATH:
                    continue
                raise
            self._path = path
            return found
        assert first is not None
        raise first

    def _read(self, path: str) -> tuple[Page, Samples]:
        page = self._client.get_metrics(path)
        if isinstance(page, Refusal):
            raise _FailedError(Stage.SCRAPE, page.reason, page.detail, page.status)
        samples = self._parse(page)
        if self._runtime is None:
            self._use(self._detected(detect(samples.layout), path, page))
            samples = self._parse(page)
        return page, samples

    def _parse(self, page: Page) -> Samples:
        try:
            return self._parser.parse(page)
        except ExpositionError as error:
            raise _FailedError(Stage.PARSE, FailureReason(error.reason), str(error), page.status, page) from None

    def _detected(self, found: Detection, path: str, page: Page) -> Runtime:
        if found.runtime is not None:
            return found.runtime
        if found.router is not None:
            detail = f"{path} is the page of {found.router}, not of an engine; point url at the engines behind it"
            raise _FailedError(Stage.NORMALISE, FailureReason.NOT_AN_ENGINE, detail, page.status, page)
        if found.other is not None:
            detail = f"{path} looks like {found.other}, which this version cannot read"
        else:
            seen = ", ".join(found.families) or "only python_* and process_* families"
            detail = f"no known runtime on {path} (seen: {seen}); a vLLM server shows none with --disable-log-stats"
        raise _FailedError(Stage.NORMALISE, FailureReason.UNKNOWN_RUNTIME, detail, page.status, page)

    def _use(self, runtime: Runtime | None) -> None:
        self._runtime = runtime
        # until the runtime is known only names are needed, and the page is read again once it is
        self._parser = PageParser(wanted_by(runtime) if runtime else (lambda _name: False), self.target.max_series)
        self._normaliser = self._new_normaliser() if runtime else None

    def _new_normaliser(self) -> Normaliser:
        assert self._runtime is not None
        target = self.target
        overrides = Overrides(target.model_name, target.batch_limit_requests, target.context_limit_tokens)
        return Normaliser(self._runtime, self._side.facts, overrides)

    # --- what follows from it -----------------------------------------------------------------------------------

    def _succeeded(self, page: Page, samples: Samples, started: float) -> TargetReading:
        assert self._runtime is not None
        assert self._normaliser is not None
        snapshot = self._normaliser.apply(samples, page)
        if not snapshot.engines:
            self._gone(samples.layout, page)
        self._refuse_several_servers(snapshot, page)
        before = self._reading
        again = self._window is not None and restarted(self._window.later, snapshot)
        if again:
            self._window, self._derived, self._held = None, None, {}
            self._side.forget()
            self._normaliser = self._new_normaliser()
            snapshot = self._normaliser.apply(samples, page)
            log.info("target=%s: the engine restarted; its window starts anew", self.target.name)
        if before.up is False or _identities(before.snapshot) != _identities(snapshot):
            self._side.due()  # after an outage or a rename too: a restart may have left no other trace
        snapshot, self._held = hold(self._held, snapshot)
        engines = sum(engine.is_engine for engine in snapshot.engines)
        settings = replace(self._settings(self._side.facts, engines), models=self._known_models())
        self._window = advance(self._window, snapshot, self._window_seconds, settings.device)
        self._derived = derive(self._window, settings, self._derived)
        attempt = Attempt(
            Stage.SCRAPE, None, "", page.received_unix_seconds, self._monotonic() - started, page.status, len(page.body)
        )
        if before.up is not True:
            log.info(
                "target=%s: up, %s on %s",
                self.target.name,
                f"{self._runtime.title} {self._side.facts.version or ''}".rstrip(),
                self._url(),
            )
        return replace(
            before,
            state=State.SLEEPING if snapshot.sleeping else State.READY,
            metrics_url=self._url(),
            runtime=self._runtime.name,
            facts=self._side.facts,
            model_name=_model_name(snapshot) or self.target.model_name or before.model_name,
            up=True,
            last=attempt,
            attempts_total=before.attempts_total + 1,
            restarts_total=before.restarts_total + again,
            snapshot=snapshot,
            derived=self._derived,
            models={name: found for name, (_, found) in self._models.items()},
            start_unix_seconds=_start(snapshot, before, restarted=again),
            problem="",
        )

    def _refuse_several_servers(self, snapshot: Snapshot, page: Page) -> None:
        """An address that answers for several replicas in turn gives counters that are nobody's: no series is better."""
        start, last = snapshot.process_start_unix_seconds, self._last_start
        self._last_start = start if start is not None else last
        now = snapshot.monotonic_seconds
        if start is not None and last is not None and start < last - START_TOLERANCE_SECONDS:
            self._went_back = (*self._went_back, now)[-SEVERAL_SERVERS:]
        recent = [at for at in self._went_back if now - at < SEVERAL_SERVERS_INTERVALS * self.target.interval_seconds]
        if len(recent) >= SEVERAL_SERVERS:
            detail = "several servers answer here in turn (a Service or load balancer?); list each replica as a target of its own"
            raise _FailedError(Stage.NORMALISE, FailureReason.SEVERAL_SERVERS, detail, page.status, page)

    def _gone(self, layout: Layout, page: Page) -> None:
        """The runtime's series are not on the page: another server may have taken the address."""
        if self.target.runtime is None:
            self._use(None)
        self._detected(replace(detect(layout), runtime=None), self._path or "", page)

    def refresh_facts(self) -> None:
        """Asks the side endpoints where that is due, and looks up models that are new. Never raises.

        Apart from `tick`, so that a page is shown whatever they do; the next tick uses what they said.
        """
        if self._runtime is not None and self._reading.up and self._side.refresh(self._runtime, self._path or ""):
            self._normaliser = self._new_normaliser()
        if self._look_again:
            self._look_again, self._models = False, {}
        if self._reading.snapshot is not None and self._find_model is not None:
            self._find_models(self._reading.snapshot, self._find_model)

    def _known_models(self) -> dict[str, ModelFacts | Absence]:
        return {
            name: Absence(found.reason) if isinstance(found, FactsError) else found
            for name, (_, found) in self._models.items()
        }

    def _find_models(
        self, snapshot: Snapshot, find: Callable[[ModelSettings, ServedModel], ModelFacts | FactsError]
    ) -> None:
        """Looks up what has not been looked up under what the server says of it now."""
        known: dict[str, tuple[ServedModel, ModelFacts | FactsError]] = {}
        for engine in snapshot.engines:
            if not engine.is_engine or engine.model_name in known or len(known) >= MOST_MODELS:
                continue
            served = served_model(engine.model_name, self._side.facts, engine.kv_cache_dtype)
            before = self._models.get(engine.model_name)
            if before is not None and before[0] == served:
                known[engine.model_name] = before
                continue
            found = find(self.target.model, served)
            known[engine.model_name] = served, found
            if isinstance(found, FactsError):
                log.warning(
                    "target=%s: no roofline for model %s: %s", self.target.name, engine.model_name or "?", found
                )
            else:
                log.info("target=%s: model %s, %s", self.target.name, engine.model_name or "?", found.origin)
                for note in found.notes:
                    log.warning("target=%s: model %s: %s", self.target.name, engine.model_name or "?", note)
        self._models = known

    def _failed(self, failure: _FailedError, started: float) -> TargetReading:
        before = self._reading
        page = failure.page
        attempt = Attempt(
            failure.stage, failure.reason, failure.detail, self._wall(), self._monotonic() - started, failure.status,
            len(page.body) if page else None,
        )  # fmt: skip
        changed = before.last is None or before.last.reason is not failure.reason
        log.log(
            logging.WARNING if changed else logging.DEBUG,
            "target=%s: %s failed, reason=%s: %s",
            self.target.name, failure.stage.value, failure.reason.value, failure.detail,
        )  # fmt: skip
        key = (failure.stage, failure.reason)
        return replace(
            before,
            state=_state_after(failure.reason, failure.status),
            metrics_url=self._url(),
            up=False,
            last=attempt,
            recent_failures=(*before.recent_failures, attempt)[-RECENT_FAILURES:],
            attempts_total=before.attempts_total + 1,
            failures_total={**before.failures_total, key: before.failures_total.get(key, 0) + 1},
            problem=failure.detail,
        )

    def _url(self) -> str:
        return self.target.url + (self._path or METRICS_PATHS[0])


def served_model(name: str, facts: ServerFacts, kv_cache_dtype: str | None) -> ServedModel:
    """What the server says of a model that it serves, its page before its side endpoints."""
    return ServedModel(
        name,
        root=facts.model_roots.get(name),
        dtype=facts.dtype,
        quantization=facts.quantization,
        kv_cache_dtype=kv_cache_dtype or facts.kv_cache_dtype,
        state_dtype=facts.state_dtype,
    )


def _identities(snapshot: Snapshot | None) -> tuple[tuple[str, str], ...]:
    return tuple((engine.model_name, engine.engine) for engine in snapshot.engines) if snapshot else ()


def _state_after(reason: FailureReason, status: int | None) -> State:
    if reason is FailureReason.LOADING:
        return State.LOADING
    # an answer that cannot be used says nothing about the engine: missing data is not down
    if reason in _ANSWERED or (reason is FailureReason.STATUS and status is not None and status < 500):
        return State.UNKNOWN
    return State.DOWN


def _model_name(snapshot: Snapshot) -> str:
    names = sorted({engine.model_name for engine in snapshot.engines if engine.model_name})
    return names[0] if names else ""


def _start(snapshot: Snapshot, before: TargetReading, *, restarted: bool) -> float:
    if snapshot.process_start_unix_seconds is not None:
        return snapshot.process_start_unix_seconds
    if restarted or before.start_unix_seconds is None:
        return snapshot.unix_seconds
    return before.start_unix_seconds
