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

from llm_serving_exporter.clock import elapsed_seconds
from llm_serving_exporter.derive.born import find_born, leave_out_older, list_counters, mark_unborn
from llm_serving_exporter.derive.derive import Settings, Tick
from llm_serving_exporter.derive.falls import (
    NO_FALLS,
    Counts,
    find_falls,
    forget_fallen,
    forget_lengths,
    leave_out_fallen,
    read_counts,
)
from llm_serving_exporter.derive.held import Held, hold_counters
from llm_serving_exporter.derive.lengths import Histories, follow_lengths
from llm_serving_exporter.derive.plateau import Plateaus, add_observed_limits, follow_plateaus
from llm_serving_exporter.derive.ring import (
    advance_window,
    has_gap,
    has_restarted,
    keep_unborn,
    merge_counts,
    reads_otherwise,
    shows_nothing_any_more,
)
from llm_serving_exporter.derive.span import find_spans
from llm_serving_exporter.derive.stale import FROZEN_AFTER_SECONDS, drop_frozen, drop_undecoded, has_moved
from llm_serving_exporter.engines.apply import Normaliser, Overrides, find_created
from llm_serving_exporter.engines.arguments import find_batch_limit
from llm_serving_exporter.engines.mapping import Runtime
from llm_serving_exporter.engines.plan import is_silent
from llm_serving_exporter.model.derived import Derivation
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.reading import RECENT_FAILURES, TargetReading
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.sample import Attempt, FailureReason, Layout, Page, Samples, Stage
from llm_serving_exporter.model.snapshot import CounterKey, LeftOut, ServerFacts, Snapshot
from llm_serving_exporter.model.target import PodState, Role, Target
from llm_serving_exporter.model.window import Window
from llm_serving_exporter.render.remedies import place_remedy
from llm_serving_exporter.scrape.http import Connect, HttpClient
from llm_serving_exporter.scrape.waits import drive
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


# so many pages in a row without any counter of work, of a server that has worked: it restarted. One may be a page with a gap
PAGES_OF_A_RESTART = 2


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
        # monotonic seconds of the last page that showed the engine at work; None before one
        self._moved_at: float | None = None
        self._side = SideEndpoints(target, monotonic, wall, connect)
        self._command_line = CommandLine(commands, monotonic)
        self._several_servers = SeveralServers(target.interval_seconds)
        self._tenants = Tenants(tenant_names, target.interval_seconds)
        # the counters of this engine life, for the detection of the next one
        self._counts: Counts = {}
        # fields that pages of this engine life had
        self._born: frozenset[str] = frozenset()
        # what the last page was read by, and how it was laid out: a counter that comes with another reading is not new
        self._read_by: tuple[Normaliser | None, Layout | None] = (None, None)
        # counters that pages of this engine life had
        self._shown: frozenset[CounterKey] = frozenset()
        # pages in a row that lack every counter of work that this engine life had
        self._bare_pages = 0
        # after the last attempt; whoever adds to it puts it back, so that it need not be added again
        self.reading = TargetReading(target)
        self._window: Window | None = None
        # first and highest values of counters that may be missing for a moment, or step back
        self._held: Held = {}
        # levels of running requests at which others wait
        self._plateaus: Plateaus = {}
        # lengths of requests, over engine lives
        self._lengths: Histories = {}
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

    def _forget_life(self) -> None:
        """Forgets what cannot be compared across a restart of the engine. Lengths of requests can be."""
        self._window, self._derivation, self._held, self._moved_at, self._counts = None, None, {}, None, {}
        self._bare_pages, self._born, self._left_out = 0, frozenset(), frozenset()
        self._shown = frozenset()
        self._plateaus = {}
        self._command_line.forget()

    # --- what follows from it -----------------------------------------------------------------------------------

    async def _derive_reading(self, page: Page, samples: Samples, started: float) -> TargetReading:
        runtime = self._source.runtime
        assert runtime is not None
        self._side.base_url = self._source.base_url
        other = self._normaliser is not None and self._normaliser.runtime is not runtime
        if other:  # another kind of server took the address: nothing of the old one is true of it
            self._forget_life()
            self._lengths = {}
            self._side.forget()
            self._tenants.forget_pages()
        if self._normaliser is None or other:
            self._normaliser = await self._make_named_normaliser(runtime, samples.layout)
        snapshot = self._normaliser.apply(samples, page)
        if not snapshot.engines:
            raise self._source.explain_foreign_page(samples.layout, page)
        self._several_servers.check_start(snapshot, page, runtime.several_workers)
        before, pod = self.reading, self._pod_state()
        now = read_counts(snapshot)
        self._bare_pages = self._bare_pages + 1 if shows_nothing_any_more(snapshot, self._counts) else 0
        fallen = find_falls(self._window.later, snapshot, self._counts, now) if self._window is not None else NO_FALLS
        again = self._window is not None and (
            self._bare_pages >= PAGES_OF_A_RESTART
            or has_restarted(
                self._window.later, snapshot, self._counts, now, fallen=fallen, answered_before=bool(before.up)
            )
        )
        if again:
            self._several_servers.check_fall(snapshot, page, runtime.several_workers, answered_before=bool(before.up))
            self._forget_life()
            self._side.forget()
            self._normaliser = await self._make_named_normaliser(runtime, samples.layout)
            samples = await self._source.ask_restarted(samples, started)
            snapshot = self._normaliser.apply(samples, page)
            now = read_counts(snapshot)
            log.info("target=%s: the engine restarted; its window starts again", self.target.name)
        elif self._window is not None and reads_otherwise(self._window.later, snapshot):
            self._window, self._held, self._counts, self._lengths, self._plateaus = None, {}, {}, {}, {}
        elif fallen and self._window is not None:
            snapshot = leave_out_fallen(snapshot, fallen, self._counts)
            self._window = forget_fallen(self._window, fallen)
            self._lengths = forget_lengths(self._lengths, fallen)
            self._counts = {key: count for key, count in self._counts.items() if key not in fallen}
            now = {key: count for key, count in now.items() if key not in fallen}
        snapshot = keep_unborn(snapshot, self._born)
        if snapshot.sources is not (self._window.later.sources if self._window else None):
            self._born |= snapshot.sources.keys()
            other_reading = self._read_by[0] is not self._normaliser or self._read_by[1] is samples.layout
            self._note_born(snapshot, page, runtime, certain=not other_reading and not runtime.several_workers)
        self._read_by = self._normaliser, samples.layout
        self._counts = merge_counts(self._counts, now)
        if before.up is False or list_identities(before.snapshot) != list_identities(snapshot):
            self._side.ask_again()  # after an outage or a rename too: a restart may have left no other trace
            self._command_line.ask_again()
        snapshot = self._drop_frozen_gauges(snapshot)
        snapshot, self._held = hold_counters(self._held, snapshot, self._window.later if self._window else None)
        self._plateaus = follow_plateaus(self._plateaus, snapshot, self.target.interval_seconds)
        snapshot = add_observed_limits(snapshot, self._plateaus)
        self._lengths = follow_lengths(self._lengths, snapshot, new_life=again)
        engines = add_up([engine.is_engine for engine in snapshot.engines])
        page_role = find_page_role(snapshot) or runtime.role
        known = self._settings(self._side.facts, engines)
        settings = Settings(  # `replace` would look at every field
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
            lengths=self._lengths,
            default_edges=runtime.default_edges,
            stalled_after_seconds=known.stalled_after_seconds,
            siblings=known.siblings,
        )
        spans = find_spans(self._window_seconds, snapshot)
        goes_on = self._window is not None and not has_gap(self._window.later, snapshot, self.target.interval_seconds)
        self._window = advance_window(self._window if goes_on else None, snapshot, spans, settings.device)
        if self._derivation is not None:
            self._log_left_out(self._derivation.asked_left_out)
        self._derivation = Tick(self._window, settings, self._derivation, self._asking)
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

    def _log_left_out(self, left_out: tuple[LeftOut, ...]) -> None:
        """One line for each series whose value cannot be true, at its first time in an engine's life."""
        for one in left_out:
            if one[:3] not in self._left_out:
                log.warning("target=%s: %s is left out, it cannot be true: %s", self.target.name, one.name, one.what)
                self._left_out |= {one[:3]}

    def _note_born(self, snapshot: Snapshot, page: Page, runtime: Runtime, *, certain: bool) -> None:
        """Has increases count from 0 for counters that this page is the first to show, where the page before proves that they stood there.

        `certain`: whether that page was of the same process and was read the same way.
        """
        if self._window is not None and certain:
            interval = self.target.interval_seconds
            born = find_born(self._window.later, snapshot, self._shown, interval)
            created = find_created(page.body, runtime, snapshot.sources, {key[2] for key in born})
            born = leave_out_older(born, created, self._window.later, interval)
            self._window = mark_unborn(self._window, born)
            late = {key[2] for key in list_counters(snapshot) - self._shown - born}
            if late:
                log.info(
                    "target=%s: %s: first seen after a gap, with their engine, or older than the page before; "
                    "what they had counted by now is in no increase",
                    self.target.name, ", ".join(sorted(late)),
                )  # fmt: skip
        self._shown |= list_counters(snapshot)

    def _drop_frozen_gauges(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot without gauges that the engine has not brought up to date for too long, or for an unknown time."""
        earlier = self._window.later if self._window is not None else None
        snapshot = drop_undecoded(earlier, snapshot)
        if not snapshot.freezes:
            return snapshot
        now = snapshot.monotonic_seconds
        if has_moved(earlier, snapshot):
            self._moved_at = now
        if self._moved_at is not None and now - self._moved_at <= FROZEN_AFTER_SECONDS:
            return snapshot
        return drop_frozen(snapshot)

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
