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
from llm_serving_exporter.derive.derive import Settings, Tick
from llm_serving_exporter.derive.history import (
    History,
    Reading,
    Restarted,
    add_to_window,
    advance,
    begin_life,
    follow_page,
)
from llm_serving_exporter.engines.apply import Normaliser, Overrides, find_created
from llm_serving_exporter.engines.arguments import find_batch_limit
from llm_serving_exporter.engines.mapping import Runtime
from llm_serving_exporter.engines.plan import is_silent
from llm_serving_exporter.fetch.http import Connect, HttpClient
from llm_serving_exporter.fetch.waits import drive
from llm_serving_exporter.model.derived import Derivation
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.reading import RECENT_FAILURES, TargetReading
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.sample import Attempt, FailureReason, Layout, Page, Samples, Stage
from llm_serving_exporter.model.snapshot import LeftOut, ServerFacts, Snapshot
from llm_serving_exporter.model.target import PodState, Role, Target
from llm_serving_exporter.render.sentences import place_remedy
from llm_serving_exporter.targets.command_line import CommandLine
from llm_serving_exporter.targets.page_book import PageBook
from llm_serving_exporter.targets.page_source import FailedTickError, PageSource
from llm_serving_exporter.targets.served_models import FindModel, TargetModels
from llm_serving_exporter.targets.several_servers import SeveralServers
from llm_serving_exporter.targets.side_endpoints import SideEndpoints
from llm_serving_exporter.targets.states import (
    choose_failed_state,
    choose_good_state,
    choose_model_name,
    find_engine_start,
    find_page_role,
    list_identities,
)
from llm_serving_exporter.targets.tenant_names import TenantNames
from llm_serving_exporter.targets.tenants import Tenants

log = logging.getLogger("llm_serving_exporter.target")


class TargetPipeline:
    """Reads one target. `advance` and `refresh`, or `tick` and `refresh_facts`, run one at a time; `close` ends the connection.

    `settings` is asked at each tick for what derive needs (thresholds, GPUs of the target; given what the server said of itself and how
    many engines it has), so that a reload or a GPU that is found takes effect without losing the window. `models` finds
    out about a served model; without it none is known. `book`: what is known of pages, which targets may share. `connect` makes what
    reads the server. `pod_state`: what Kubernetes says of the target's pod now. `tenant_names`: how tenants are called, None: they are not
    counted. `commands`: the command lines of the target's processes on this host, the surest first.
    """

    def __init__(
        self,
        target: Target,
        settings: Callable[[ServerFacts, int], Settings],
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
    ) -> None:
        # may be replaced between ticks, also from another thread, where only labels change: see `model.target.is_relabelled`
        self.target = target
        self._settings, self._pod_state = settings, pod_state
        self._window_seconds = window_seconds
        self._monotonic, self._wall = monotonic, wall
        self._book = PageBook() if book is None else book
        self._source = PageSource(target, self._book, monotonic, wall, connect)
        # None before the first page that is recognised
        self._normaliser: Normaliser | None = None
        self._side = SideEndpoints(target, monotonic, wall, connect)
        self._command_line = CommandLine(commands, monotonic)
        self._several_servers = SeveralServers(target.interval_seconds)
        self._tenants = Tenants(tenant_names, target.interval_seconds)
        self._history = History()
        # after the last attempt; whoever adds to it puts it back, so that it need not be added again
        self.reading = TargetReading(target)
        # (model_name, engine, name) of what pages of this engine life had that cannot be true
        self._left_out: frozenset[tuple[str, str, str]] = frozenset()
        self._derivation: Derivation | None = None
        # two pages that are made side by side may ask for the rest of it
        self._asking = threading.Lock()
        self._models = TargetModels(target, models)
        self._closed = False

    def close(self) -> None:
        """Ends the connection; a tick under way in another thread ends its own when it is done."""
        self._closed = True
        self._source.close()

    @property
    def runtime(self) -> Runtime | None:
        """Whose page the target's is, None as long as that is not known."""
        return self._source.runtime

    def look_again(self) -> None:
        """Has the models looked up again, as after a reload: files may have changed. May be called from another thread."""
        self._models.look_again()

    def tick(self) -> TargetReading:
        """As `advance`; the caller's thread waits for the server."""
        return drive(self.advance())

    async def advance(self) -> TargetReading:
        """One attempt; the reading after it. Never raises."""
        started = self._monotonic()
        try:
            page, samples = await self._source.read(started)
            reading = await self._derive_reading(page, samples, started)
        except FailedTickError as failure:
            reading = self._record_failure(failure, started)
        except Exception as error:
            log.exception("target=%s: a tick failed; this is a bug, please report it", self.target.name)
            detail = f"internal error ({type(error).__name__}); the log has the traceback"
            reading = self._record_failure(FailedTickError(Stage.SCRAPE, FailureReason.INTERNAL, detail), started)
        if reading.target is not self.target:  # it was relabelled meanwhile
            reading = replace(reading, target=self.target)
        self.reading = reading
        if self._closed:
            self._source.close()
        return reading

    def _make_normaliser(self, runtime: Runtime) -> Normaliser:
        target = self.target
        overrides = Overrides(
            target.model_name,
            target.batch_limit_requests,
            target.context_limit_tokens,
            target.decode_context_parallel_size,
            find_batch_limit(runtime, target.arguments),
            self._command_line.batch_limit,
        )
        return Normaliser(runtime, self._side.facts, overrides, self._book.plans)

    async def _make_named_normaliser(self, runtime: Runtime, layout: Layout) -> Normaliser:
        """A normaliser for a server that is new here.

        Where its page names no model, its endpoints are asked first: else its series would have one name for a tick and another afterwards.
        """
        silent = not runtime.model_labels or is_silent(layout)
        if silent and self.target.model_name is None and not self._side.facts.model_names:
            await self._side.refresh(runtime, self._source.path or "")
        return self._make_normaliser(runtime)

    def _begin_life(self, history: History) -> None:
        """Forgets what is not true of another engine. `history`: what is."""
        self._history, self._derivation, self._left_out = history, None, frozenset()
        self._command_line.forget()
        self._side.forget()

    # --- what follows from it -----------------------------------------------------------------------------------

    async def _derive_reading(self, page: Page, samples: Samples, started: float) -> TargetReading:
        runtime = self._source.runtime
        assert runtime is not None
        self._side.base_url = self._source.base_url
        other = self._normaliser is not None and self._normaliser.runtime is not runtime
        if other:  # another kind of server took the address: nothing of the old one is true of it
            self._begin_life(History())
            self._tenants.forget_pages()
        if self._normaliser is None or other:
            self._normaliser = await self._make_named_normaliser(runtime, samples.layout)
        snapshot = self._normaliser.apply(samples, page)
        if not snapshot.engines:
            raise self._source.explain_foreign_page(samples.layout, page)
        self._several_servers.check_start(snapshot, page, runtime.several_workers)
        before, pod = self.reading, self._pod_state()
        answered_before = bool(before.up)
        self._history, how = follow_page(self._history, snapshot, answered_before=answered_before)
        again = isinstance(how, Restarted)
        if again:
            self._several_servers.check_fall(snapshot, page, runtime.several_workers, answered_before=answered_before)
            self._begin_life(begin_life(self._history))
            self._normaliser = await self._make_named_normaliser(runtime, samples.layout)
            samples = await self._source.ask_restarted(samples, started)
            snapshot = self._normaliser.apply(samples, page)
            self._history, how = follow_page(self._history, snapshot, answered_before=answered_before)
            log.info("target=%s: the engine restarted; its window starts again", self.target.name)
        assert not isinstance(how, Restarted)
        if before.up is False or list_identities(before.snapshot) != list_identities(snapshot):
            self._side.ask_again()  # after an outage or a rename too: a restart may have left no other trace
            self._command_line.ask_again()
        interval = self.target.interval_seconds
        advanced = advance(
            self._history,
            how,
            snapshot,
            Reading(self._normaliser, samples.layout, bool(runtime.several_workers)),
            interval,
            restarted=again,
            find_created=partial(find_created, page.body, runtime, snapshot.sources),
        )
        snapshot = advanced.snapshot
        if advanced.late:
            log.info(
                "target=%s: %s: first seen after a gap, with their engine, or older than the page before; "
                "what they had counted by now is in no increase",
                self.target.name, ", ".join(sorted(advanced.late)),
            )  # fmt: skip
        page_role = find_page_role(snapshot) or runtime.role
        settings = self._settings_of(runtime, snapshot, page_role, advanced.history)
        self._history, window = add_to_window(
            advanced.history, snapshot, self._window_seconds, settings.device, interval
        )
        if self._derivation is not None:
            self._log_left_out(self._derivation.asked_left_out)
        self._derivation = Tick(window, settings, self._derivation, self._asking)
        left_out = (*snapshot.left_out, *self._derivation.kept_left_out)
        self._log_left_out(left_out)
        attempt = Attempt(
            Stage.SCRAPE, None, "", page.received_unix_seconds, self._monotonic() - started, page.status, len(page.body)
        )
        if before.up is not True:
            log.info(
                "target=%s: up, %s on %s",
                self.target.name,
                f"{runtime.title} {self._side.facts.version or ''}".rstrip(),
                self._source.url,
            )
        return replace(
            before,
            state=choose_good_state(snapshot, pod),
            pod=pod,
            metrics_url=self._source.url,
            runtime=runtime.name,
            facts=self._side.facts,
            page_role=page_role,
            missing=_say_missing(runtime, snapshot),
            model_name=choose_model_name(snapshot, settings.role, self.target.model_name or "", before.model_name),
            up=True,
            last=attempt,
            attempts_total=before.attempts_total + 1,
            restarts_total=before.restarts_total + (again or other),
            snapshot=snapshot,
            tenants=self._tenants.count(runtime, samples, snapshot),
            derivation=self._derivation,
            models=self._models.found,
            implausible_total=_count_left_out(before.implausible_total, left_out),
            start_unix_seconds=find_engine_start(snapshot, before, restarted=again or other),
            problem="",
        )

    def _settings_of(self, runtime: Runtime, snapshot: Snapshot, page_role: Role | None, history: History) -> Settings:
        """What derive needs beside the window."""
        known = self._settings(self._side.facts, add_up([engine.is_engine for engine in snapshot.engines]))
        return Settings(  # `replace` would look at every field
            slo_seconds=known.slo_seconds,
            slo_errors=known.slo_errors,
            hardware=known.hardware,
            device=known.device,
            models=self._models.facts_or_absence,
            significant_digits=snapshot.significant_digits,
            errors_counted=snapshot.errors_counted,
            role=self.target.role or page_role or Role.UNIFIED,
            first_token_is_clients=runtime.role is not Role.FRONTEND
            or (runtime.first_token is not None and runtime.first_token.is_clients),
            lengths=history.lengths,
            default_edges=runtime.default_edges,
            stalled_after_seconds=known.stalled_after_seconds,
            siblings=known.siblings,
        )

    def _log_left_out(self, left_out: tuple[LeftOut, ...]) -> None:
        """One line for each series whose value cannot be true, at its first time in an engine's life."""
        for one in left_out:
            if one[:3] not in self._left_out:
                log.warning("target=%s: %s is left out, it cannot be true: %s", self.target.name, one.name, one.what)
                self._left_out |= {one[:3]}

    def refresh_facts(self) -> None:
        """As `refresh`; the caller's thread waits for the server."""
        drive(self.refresh())

    async def refresh(self) -> None:
        """Asks the side endpoints where that is due, and looks up models that are new. Never raises.

        Apart from `tick`, so that a page is shown whatever they do; the next tick uses what they said.
        """
        runtime = self._source.runtime
        if runtime is not None and self.reading.up:
            told = await self._side.refresh(runtime, self._source.path or "")
            if self._command_line.refresh(runtime, self.reading.snapshot) or told:
                self._normaliser = self._make_normaliser(runtime)
        front = self.reading.role is Role.FRONTEND  # it runs no model itself
        self._models.refresh(self.reading.snapshot if not front else None, self._side.facts, runtime)

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
        changed = before.last is None or before.last.reason is not failure.reason
        log.log(
            logging.WARNING if changed else logging.DEBUG,
            "target=%s: %s failed, reason=%s: %s",
            self.target.name, failure.stage.value, failure.reason.value, detail,
        )  # fmt: skip
        key = (failure.stage, failure.reason)
        return replace(
            before,
            state=choose_failed_state(failure.reason, failure.status, pod, self._monotonic()),
            pod=pod,
            metrics_url=self._source.url,
            up=False,
            last=attempt,
            recent_failures=(*before.recent_failures, attempt)[-RECENT_FAILURES:],
            attempts_total=before.attempts_total + 1,
            failures_total={**before.failures_total, key: before.failures_total.get(key, 0) + 1},
            problem=detail,
        )


def _count_left_out(before: Mapping[str, int], left_out: tuple[LeftOut, ...]) -> Mapping[str, int]:
    """The counts by field with those of one more page."""
    return Counter(before) + Counter(one.name for one in left_out) if left_out else before


def _say_missing(runtime: Runtime, snapshot: Snapshot) -> Mapping[str, str]:
    """Field -> why the page does not say it, in words: what its runtime never says, and what stands there several times."""
    if not snapshot.foreign_labels:
        return runtime.missing
    split = {
        field: f"its series differ in the label {label}, which names nothing that is known here"
        for field, label in snapshot.foreign_labels.items()
    }
    return {**runtime.missing, **split}
