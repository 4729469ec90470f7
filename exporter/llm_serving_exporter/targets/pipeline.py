"""One target, tick by tick: scrape -> parse -> normalise -> window -> derive -> reading.

The stages are pure; what a target needs to remember between ticks (connection, layout, window, facts) stands here. A tick
never raises: every failure is an Attempt.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from llm_serving_exporter.clock import elapsed_seconds
from llm_serving_exporter.derive.derive import DeriveSettings, Tick
from llm_serving_exporter.derive.history import (
    Continued,
    History,
    PageOrigin,
    Reset,
    Restarted,
    add_to_window,
    advance,
    begin_life,
    follow_page,
)
from llm_serving_exporter.engines.apply import Normaliser, find_created
from llm_serving_exporter.engines.mapping import Runtime
from llm_serving_exporter.fetch.http import Connect, HttpClient
from llm_serving_exporter.fetch.waits import drive
from llm_serving_exporter.model.derived import Derivation
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.reading import RECENT_FAILURES, PageReading, ServerReading, TargetReading
from llm_serving_exporter.model.record import Struct, replace
from llm_serving_exporter.model.sample import Attempt, FailureReason, Layout, Page, Samples, Stage
from llm_serving_exporter.model.snapshot import LeftOut, ServerFacts, Snapshot
from llm_serving_exporter.model.target import PodState, Role, Target
from llm_serving_exporter.render.sentences import place_remedy
from llm_serving_exporter.targets.page_source import FailedTickError, PageBook, PageSource
from llm_serving_exporter.targets.server import (
    FindModel,
    TargetServer,
    choose_failed_state,
    choose_good_state,
    choose_model_name,
    find_engine_start,
    find_page_role,
    list_identities,
)
from llm_serving_exporter.targets.several_servers import SeveralServers
from llm_serving_exporter.targets.tenants import TenantNames, Tenants

log = logging.getLogger("llm_serving_exporter.target")


class _Normalised(Struct, frozen=True):
    normaliser: Normaliser
    samples: Samples
    snapshot: Snapshot
    how: Reset | Continued
    new_life: bool  # of an engine that has restarted, or of another server


class TargetPipeline:
    """Reads one target. `advance` and `refresh`, or `tick` and `refresh_facts`, run one at a time; `close` ends the connection.

    `settings` is asked at each tick for what derive needs (thresholds, GPUs of the target; given what the server said of itself and how
    many engines it has), so that a reload or a GPU that is found takes effect without losing the window. `models` finds
    out about a served model; without it none is known. `book`: what is known of pages, which targets may share. `connect` makes what
    reads the server. `pod_state`: what Kubernetes says of the target's pod now. `tenant_names`: how tenants are called, None: they are not
    counted. `commands`: the command lines of the target's processes on this host, the surest first. `finish` adds to each reading, given
    the one before it, what others know.
    """

    def __init__(
        self,
        target: Target,
        settings: Callable[[ServerFacts, int], DeriveSettings],
        window_seconds: float,
        *,
        models: FindModel | None = None,
        book: PageBook | None = None,
        monotonic: Callable[[], float] = elapsed_seconds,
        wall: Callable[[], float] = time.time,
        connect: Connect = HttpClient,
        pod_state: Callable[[], PodState | None] = lambda: None,
        tenant_names: Callable[[], TenantNames | None] = lambda: None,
        commands: Callable[[], Sequence[Collection[Sequence[str]]]] = tuple,
        finish: Callable[[TargetReading, TargetReading], TargetReading] = lambda before, now: now,
    ) -> None:
        # as configured or discovered, with the labels that it has now
        self.target = target
        self._settings, self._pod_state, self._finish = settings, pod_state, finish
        self._window_seconds = window_seconds
        self._monotonic, self._wall = monotonic, wall
        self._book = PageBook() if book is None else book
        self._source = PageSource(target, self._book, monotonic, wall, connect)
        # None before the first page that is recognised
        self._normaliser: Normaliser | None = None
        self._server = TargetServer(
            target, commands=commands, find_model=models, monotonic=monotonic, wall=wall, connect=connect
        )
        self._several_servers = SeveralServers(target.interval_seconds)
        self._tenants = Tenants(tenant_names, target.interval_seconds)
        self._history = History()
        # after the last attempt, finished
        self.reading = TargetReading(target)
        # (model_name, engine, name) of what pages of this engine life had that cannot be true
        self._left_out: frozenset[tuple[str, str, str]] = frozenset()
        self._derivation: Derivation | None = None
        # two pages that are made side by side may ask for the rest of it
        self._asking = threading.Lock()
        self._closed = False

    def close(self) -> None:
        """Ends the connection; a tick under way in another thread ends its own when it is done."""
        self._closed = True
        self._source.close()

    def relabel(self, target: Target) -> None:
        """Gives the target other labels; everything that is remembered of it stays. May be called from another thread.

        `target`: one that `model.target.is_relabelled` says is the same.
        """
        self.target = target

    @property
    def runtime(self) -> Runtime | None:
        """Whose page the target's is, None as long as that is not known."""
        return self._source.runtime

    def look_again(self) -> None:
        """Has the models looked up again, as after a reload: files may have changed. May be called from another thread."""
        self._server.models.look_again()

    def tick(self) -> TargetReading:
        """As `advance`; the caller's thread waits for the server."""
        return drive(self.advance())

    async def advance(self) -> TargetReading:
        """One attempt; the whole reading after it. Never raises for what a server does."""
        started = self._monotonic()
        try:
            reading = await self._read(started)
        except FailedTickError as failure:
            reading = self._record_failure(failure, started)
        except Exception as error:
            log.exception("target=%s: a tick failed; this is a bug, please report it", self.target.name)
            detail = f"internal error ({type(error).__name__}); the log has the traceback"
            reading = self._record_failure(FailedTickError(Stage.SCRAPE, FailureReason.INTERNAL, detail), started)
        finally:
            if self._closed:
                self._source.close()
        if reading.target is not self.target:  # it was relabelled meanwhile
            reading = replace(reading, target=self.target)
        self.reading = self._finish(self.reading, reading)
        return self.reading

    def refresh_facts(self) -> None:
        """As `refresh`; the caller's thread waits for the server."""
        drive(self.refresh())

    async def refresh(self) -> None:
        """Asks the side endpoints where that is due, and looks up models that are new. Never raises.

        Apart from `tick`, so that a page is shown whatever they do; the next tick uses what they said.
        """
        runtime, snapshot = self._source.runtime, self.reading.page.snapshot
        if runtime is not None and self.reading.page.up and await self._server.refresh(self._source, snapshot):
            self._normaliser = self._server.make_normaliser(runtime, self._book.plans)
        front = self.reading.role is Role.FRONTEND  # it runs no model itself
        self._server.models.refresh(None if front else snapshot, self._server.facts, runtime)

    # --- the stages ---------------------------------------------------------------------------------------------------

    async def _read(self, started: float) -> TargetReading:
        """Fetch, parse, normalise, advance the history, derive. `started`: when the tick began. Raises FailedTickError."""
        page, samples = await self._source.read(started)
        normalised = await self._normalise(page, samples, started)
        runtime, normaliser, interval = self._source.whose, normalised.normaliser, self.target.interval_seconds
        advanced = advance(
            self._history,
            normalised.how,
            normalised.snapshot,
            PageOrigin(normaliser, normalised.samples.layout, bool(runtime.several_workers)),
            interval,
            restarted=normalised.new_life,
            find_created=partial(find_created, page.body, runtime, normalised.snapshot.sources),
        )
        snapshot = advanced.snapshot
        self._log_late(advanced.late)
        page_role = find_page_role(snapshot) or runtime.role
        settings = self._settings_of(runtime, snapshot, page_role, advanced.history)
        self._history, window = add_to_window(
            advanced.history, snapshot, self._window_seconds, settings.device, interval
        )
        if self._derivation is not None:
            self._log_left_out(self._derivation.asked_left_out)
        self._derivation = Tick(window, settings, self._derivation, self._asking)
        read = self._describe_page(page, normalised.samples, snapshot, self._derivation, started)
        server = self._describe_server(runtime, snapshot, page_role, new_life=normalised.new_life)
        return replace(self.reading, server=server, page=read)

    async def _normalise(self, page: Page, samples: Samples, started: float) -> _Normalised:
        """The page in an engine's terms, and how it goes on from those before it; of an engine that has restarted, its page read again."""
        runtime, answered_before = self._source.whose, bool(self.reading.page.up)
        new_life = self._normaliser is not None and self._normaliser.runtime is not runtime
        if new_life:  # another kind of server took the address: nothing of the old one is true of it
            self._begin_life(History())
            self._tenants.forget_pages()
        if self._normaliser is None:
            self._normaliser = await self._make_normaliser(runtime, samples.layout)
        snapshot = self._normaliser.apply(samples, page)
        if not snapshot.engines:
            raise self._source.explain_foreign_page(samples.layout, page)
        self._several_servers.check_start(snapshot, page, runtime.several_workers)
        self._history, how = follow_page(self._history, snapshot, answered_before=answered_before)
        if isinstance(how, Restarted):
            self._several_servers.check_fall(snapshot, page, runtime.several_workers, answered_before=answered_before)
            self._begin_life(begin_life(self._history))
            self._normaliser = await self._make_normaliser(runtime, samples.layout)
            samples, new_life = await self._source.ask_restarted(samples, started), True
            snapshot = self._normaliser.apply(samples, page)
            self._history, how = follow_page(self._history, snapshot, answered_before=answered_before)
            log.info("target=%s: the engine restarted; its window starts again", self.target.name)
        assert not isinstance(how, Restarted)
        if self.reading.page.up is False or list_identities(self.reading.page.snapshot) != list_identities(snapshot):
            self._server.ask_again()  # after an outage or a rename too: a restart may have left no other trace
        return _Normalised(self._normaliser, samples, snapshot, how, new_life)

    async def _make_normaliser(self, runtime: Runtime, layout: Layout) -> Normaliser:
        await self._server.ask_for_name(self._source, layout)
        return self._server.make_normaliser(runtime, self._book.plans)

    def _begin_life(self, history: History) -> None:
        """Forgets what is not true of another engine. `history`: what is."""
        self._history, self._normaliser, self._derivation, self._left_out = history, None, None, frozenset()
        self._server.forget()

    def _settings_of(
        self, runtime: Runtime, snapshot: Snapshot, page_role: Role | None, history: History
    ) -> DeriveSettings:
        stated = self._settings(self._server.facts, add_up([engine.is_engine for engine in snapshot.engines]))
        return replace(
            stated,
            models=self._server.models.facts_or_absence,
            significant_digits=snapshot.significant_digits,
            errors_counted=snapshot.errors_counted,
            role=self.target.role or page_role or Role.UNIFIED,
            first_token_is_clients=runtime.role is not Role.FRONTEND
            or (runtime.first_token is not None and runtime.first_token.is_clients),
            lengths=history.lengths,
            default_edges=runtime.default_edges,
        )

    # --- the reading --------------------------------------------------------------------------------------------------

    def _describe_page(
        self, page: Page, samples: Samples, snapshot: Snapshot, derivation: Derivation, started: float
    ) -> PageReading:
        before, left_out = self.reading.page, (*snapshot.left_out, *derivation.tick_left_out)
        self._log_left_out(left_out)
        seconds = self._monotonic() - started
        return replace(
            before,
            up=True,
            problem="",
            last=Attempt(Stage.SCRAPE, None, "", page.received_unix_seconds, seconds, page.status, len(page.body)),
            attempts_total=before.attempts_total + 1,
            implausible_total=_count_left_out(before.implausible_total, left_out),
            snapshot=snapshot,
            derivation=derivation,
            tenants=self._tenants.count(self._source.whose, samples, snapshot),
        )

    def _describe_server(
        self, runtime: Runtime, snapshot: Snapshot, page_role: Role | None, *, new_life: bool
    ) -> ServerReading:
        if self.reading.page.up is not True:
            name = f"{runtime.title} {self._server.facts.version or ''}".rstrip()
            log.info("target=%s: up, %s on %s", self.target.name, name, self._source.url)
        before, pod = self.reading.server, self._pod_state()
        role, configured = self.target.role or page_role or Role.UNIFIED, self.target.model_name or ""
        return replace(
            before,
            state=choose_good_state(snapshot, pod),
            pod=pod,
            metrics_url=self._source.url,
            runtime=runtime.name,
            missing=_say_missing(runtime, snapshot),
            facts=self._server.facts,
            model_name=choose_model_name(snapshot, role, configured, before.model_name),
            models=self._server.models.found,
            page_role=page_role,
            start_unix_seconds=find_engine_start(snapshot, before.start_unix_seconds, restarted=new_life),
            restarts_total=before.restarts_total + new_life,
        )

    def _log_late(self, late: frozenset[str]) -> None:
        if late:
            log.info(
                "target=%s: %s: first seen after a gap, with their engine, or older than the page before; "
                "what they had counted by now is in no increase",
                self.target.name, ", ".join(sorted(late)),
            )  # fmt: skip

    def _log_left_out(self, left_out: tuple[LeftOut, ...]) -> None:
        """One line for each series whose value cannot be true, at its first time in an engine's life."""
        for value in left_out:
            if value[:3] not in self._left_out:
                log.warning(
                    "target=%s: %s is left out, it cannot be true: %s", self.target.name, value.name, value.what
                )
                self._left_out |= {value[:3]}

    def _record_failure(self, failure: FailedTickError, started: float) -> TargetReading:
        before, pod = self.reading, self._pod_state()
        page = failure.page
        if failure.reason is FailureReason.SEVERAL_SERVERS:
            self._tenants.forget_pages()
        detail = place_remedy(failure.detail, self.target)
        attempt = Attempt(
            failure.stage, failure.reason, detail, self._wall(), self._monotonic() - started, failure.status,
            len(page.body) if page else None,
        )  # fmt: skip
        changed = before.page.last is None or before.page.last.reason is not failure.reason
        log.log(
            logging.WARNING if changed else logging.DEBUG,
            "target=%s: %s failed, reason=%s: %s",
            self.target.name, failure.stage.value, failure.reason.value, detail,
        )  # fmt: skip
        key = (failure.stage, failure.reason)
        server = replace(
            before.server,
            state=choose_failed_state(failure.reason, failure.status, pod, self._monotonic()),
            pod=pod,
            metrics_url=self._source.url,
        )
        failed = replace(
            before.page,
            up=False,
            problem=detail,
            last=attempt,
            recent_failures=(*before.page.recent_failures, attempt)[-RECENT_FAILURES:],
            attempts_total=before.page.attempts_total + 1,
            failures_total={**before.page.failures_total, key: before.page.failures_total.get(key, 0) + 1},
        )
        return replace(before, server=server, page=failed)


def _count_left_out(before: Mapping[str, int], left_out: tuple[LeftOut, ...]) -> Mapping[str, int]:
    return Counter(before) + Counter(value.name for value in left_out) if left_out else before


def _say_missing(runtime: Runtime, snapshot: Snapshot) -> Mapping[str, str]:
    """Field -> why the page does not say it, in words: what its runtime never says, and what stands there several times."""
    if not snapshot.foreign_labels:
        return runtime.missing
    split = {
        field: f"its series differ in the label {label}, which names nothing that is known here"
        for field, label in snapshot.foreign_labels.items()
    }
    return {**runtime.missing, **split}
