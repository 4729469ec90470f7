"""What is known of a target's server beside its page: its side endpoints, its command line, the models that it serves, what it is doing."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence

from llm_serving_exporter.engines.apply import Normaliser, Overrides, Plans
from llm_serving_exporter.engines.arguments import find_batch_limit, read_arguments
from llm_serving_exporter.engines.mapping import Runtime, parse_version, satisfies
from llm_serving_exporter.engines.plan import is_silent
from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.fetch.http import Connect
from llm_serving_exporter.model.later import Retry
from llm_serving_exporter.model.reading import State
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.sample import FailureReason, Layout, Refusal
from llm_serving_exporter.model.shape import ModelFacts
from llm_serving_exporter.model.snapshot import Absence, LimitSource, ServerFacts, Snapshot
from llm_serving_exporter.model.target import ModelSettings, PodFault, PodState, Role, ServedModel, Target
from llm_serving_exporter.targets.page_source import SHORTEST_TIMEOUT_SECONDS, PageSource, is_for_good, place_beside

log = logging.getLogger("llm_serving_exporter.target")
log_of_facts = logging.getLogger("llm_serving_exporter.facts")

# what failed for a passing reason is asked again after this long, twice as long each time
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 30.0, 600.0


# --- Models that targets serve: looked up once each, at the rim, and what one target knows of its own.


# (what is configured about the model, what the server says of it) -> what is known about it, or why nothing is; never raises
FindModel = Callable[[ModelSettings, ServedModel], ModelFacts | FactsError]


# a server may say anything of itself, again and again: what was looked up is kept for this many
MOST_KEPT = 256
# models of one page that are looked up
MOST_MODELS = 32


class ModelBook:
    """`find` may be called from several threads. `hf_cache`: a Hugging Face cache to look into; `own_models`: file or folder of the
    user's own; None = none."""

    def __init__(self, hf_cache: str | None, own_models: str | None = None) -> None:
        self._hf_cache, self._own_models = hf_cache, own_models
        self._known: OrderedDict[tuple[ModelSettings, ServedModel], ModelFacts | FactsError] = OrderedDict()

    def find(self, settings: ModelSettings, served: ServedModel) -> ModelFacts | FactsError:
        """What is known about a model, or why nothing is. Never raises."""
        key = settings, served
        facts = self._known.get(key)
        if facts is None:
            facts = self._look_up(settings, served)
            self._known[key] = facts
            while len(self._known) > MOST_KEPT:
                self._known.popitem(last=False)
        return facts

    def _look_up(self, settings: ModelSettings, served: ServedModel) -> ModelFacts | FactsError:
        # the catalogue is read when a model is looked up, not when the daemon starts
        from llm_serving_exporter.facts import loader

        try:
            return loader.model_facts(settings, served, self._hf_cache, self._own_models)
        except FactsError as error:
            # made again: the one that was raised holds the frames that it came through, and with them whatever file they had read
            return FactsError(error.reason, error.what, error.fix)
        except Exception as error:
            log_of_facts.exception("looking up model %s failed; this is a bug, please report it", served.name)
            return FactsError(
                Absence.MODEL_UNKNOWN.value, f"looking it up failed ({type(error).__name__}), see the log"
            )


class TargetModels:
    """The models that one target serves. `refresh` is called by one thread at a time; `look_again` may be called from another.

    `find` None: none is ever known.
    """

    def __init__(self, target: Target, find: FindModel | None) -> None:
        self._target, self._find = target, find
        # by served name: what the server says of the model, and what was found under that
        self._known: dict[str, tuple[ServedModel, ModelFacts | FactsError]] = {}
        self._look_again = False
        # by served name, what is known about the model, or why nothing is; replaced whole
        self.found: Mapping[str, ModelFacts | FactsError] = {}
        # the same for derive, which needs of a reason no more than its code
        self.facts_or_absence: Mapping[str, ModelFacts | Absence] = {}

    def look_again(self) -> None:
        """Has every model looked up again at the next `refresh`."""
        self._look_again = True

    def refresh(self, snapshot: Snapshot | None, facts: ServerFacts, runtime: Runtime | None = None) -> None:
        """Looks up the models of a page that have not been looked up under what the server says of them now; forgets those not on it.

        `snapshot` None: there is no page yet, or its server runs no model itself. `runtime`: of the page.
        """
        if self._look_again:
            self._look_again = False
            self._keep({})
        if snapshot is None or self._find is None:
            return
        looked_up: dict[str, tuple[ServedModel, ModelFacts | FactsError]] = {}
        for engine in snapshot.engines:
            if (
                not (engine.is_engine or snapshot.shows_no_engine_yet)
                or engine.model_name in looked_up
                or len(looked_up) >= MOST_MODELS
            ):
                continue
            served = served_model(engine.model_name, facts, engine.kv_cache_dtype, runtime, engine.state_dtype)
            before = self._known.get(engine.model_name)
            if before is not None and before[0] == served:
                looked_up[engine.model_name] = before
                continue
            found = self._find(self._target.model, served)
            looked_up[engine.model_name] = served, found
            _log_finding(self._target.name, engine.model_name, found)
        if looked_up != self._known:
            self._keep(looked_up)

    def _keep(self, known: dict[str, tuple[ServedModel, ModelFacts | FactsError]]) -> None:
        self._known = known
        self.found = {name: facts for name, (_, facts) in known.items()}
        self.facts_or_absence = {
            name: Absence(facts.reason) if isinstance(facts, FactsError) else facts
            for name, facts in self.found.items()
        }


def served_model(
    name: str,
    facts: ServerFacts,
    kv_cache_dtype: str | None,
    runtime: Runtime | None = None,
    state_dtype: str | None = None,
) -> ServedModel:
    """What the server says of a model that it serves, its page before its side endpoints. `kv_cache_dtype`, `runtime` and `state_dtype`: of
    the page. A server that does not say its version is taken for one of today."""
    version = parse_version(facts.version)
    calibrated = runtime.kv_as_calibrated.items() if runtime is not None else ()
    return ServedModel(
        name,
        root=facts.model_roots.get(name),
        dtype=facts.dtype,
        quantization=facts.quantization,
        kv_cache_dtype=kv_cache_dtype or facts.kv_cache_dtype,
        state_dtype=state_dtype or facts.state_dtype,
        weight_bytes=facts.weight_bytes,
        kv_as_calibrated=frozenset(
            method for method, versions in calibrated if version is None or satisfies(version, versions)
        ),
    )


def _log_finding(target: str, model: str, found: ModelFacts | FactsError) -> None:
    if isinstance(found, FactsError):
        log.warning("target=%s: no roofline for model %s: %s", target, model or "?", found)
        return
    log.info("target=%s: model %s, %s", target, model or "?", found.origin)
    for note in found.notes:
        log.warning("target=%s: model %s: %s", target, model or "?", note)


# --- The server.


class _Rounds:
    """When a server is asked: at once, after a round that may be answered better later and later, and no more once all is said."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._wanted, self._retry = True, Retry(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)

    @property
    def is_due(self) -> bool:
        """Whether the next round may be made now."""
        return self._wanted and self._retry.is_due(self._monotonic())

    def ask_again(self) -> None:
        """Has the next round made at once: the server may be another one now."""
        self._wanted = True
        self._retry.reset()

    def note(self, *, again: bool) -> None:
        """A round was made; `again`: another may be answered better."""
        self._wanted = again
        if again:
            self._retry.note_failure(self._monotonic())


class TargetServer:
    """What one target's server says of itself beside its page, as it was asked at start and when something changed, never each tick.

    Used by one thread at a time; `models.look_again` may be called from another. `commands`: the command lines of its processes as words,
    the surest first; those of none where they are not on this host, or cannot be seen. `find_model`: as of `TargetModels`.
    """

    def __init__(
        self,
        target: Target,
        *,
        commands: Callable[[], Sequence[Collection[Sequence[str]]]],
        find_model: FindModel | None,
        monotonic: Callable[[], float],
        wall: Callable[[], float],
        connect: Connect,
    ) -> None:
        self._target, self._commands = target, commands
        self._monotonic, self._wall, self._connect = monotonic, wall, connect
        # what its side endpoints (/version, /v1/models …) said last
        self.facts = ServerFacts()
        self._endpoints = _Rounds(monotonic)
        # most requests that it runs at once, by its command line; None: that does not say so
        self._batch_limit: int | None = None
        self._processes = _Rounds(monotonic)
        self.models = TargetModels(target, find_model)

    def forget(self) -> None:
        """Nothing that was said before is true of another engine."""
        self.facts, self._batch_limit = ServerFacts(), None
        self.ask_again()

    def ask_again(self) -> None:
        """Has the next `refresh` ask: it may be another engine now."""
        self._endpoints.ask_again()
        self._processes.ask_again()

    def make_normaliser(self, runtime: Runtime, plans: Plans) -> Normaliser:
        """A reader of its pages by what it has said so far."""
        target = self._target
        overrides = Overrides(
            target.model_name,
            target.batch_limit_requests,
            target.context_limit_tokens,
            target.decode_context_parallel_size,
            find_batch_limit(runtime, target.arguments),
            self._batch_limit,
        )
        return Normaliser(runtime, self.facts, overrides, plans)

    async def ask_for_name(self, source: PageSource, layout: Layout) -> None:
        """Asks a server that is new here and whose page names no model, before that is read: else its series would have one name for a tick
        and another afterwards. `source`: of the page, which has this layout."""
        silent = not source.whose.model_labels or is_silent(layout)
        if silent and self._target.model_name is None and not self.facts.model_names:
            await self._ask_endpoints(source)

    async def refresh(self, source: PageSource, snapshot: Snapshot | None) -> bool:
        """Asks what is due; whether something else was said than before. `snapshot`: of the last page. Never raises."""
        changed = await self._ask_endpoints(source)
        return self._read_command_line(source.whose, snapshot) or changed

    async def _ask_endpoints(self, source: PageSource) -> bool:
        if not self._endpoints.is_due:
            return False
        before, again = self.facts, True
        try:
            again = await self._ask_each(source)
        except Exception:
            log.exception("target=%s: side endpoints failed; this is a bug, please report it", self._target.name)
        self._endpoints.note(again=again)
        return self.facts != before

    async def _ask_each(self, source: PageSource) -> bool:
        """One round; whether another may be answered better.

        Each endpoint may take what the interval leaves beside the metrics page; at the first that takes longer the round ends, so that no
        page comes late.
        """
        runtime, http = source.whose, self._target.http
        timeout = max(SHORTEST_TIMEOUT_SECONDS, self._target.interval_seconds - http.timeout_seconds)
        settings = replace(http, timeout_seconds=min(timeout, http.timeout_seconds))
        client = self._connect(source.base_url, settings, monotonic=self._monotonic, wall=self._wall)
        again = False
        try:
            for endpoint in runtime.endpoints:
                answer = await client.get_json(place_beside(runtime, source.path or "", endpoint.path))
                if not isinstance(answer, Refusal):
                    self.facts = endpoint.read(answer.value, self.facts)
                    continue
                log.debug(
                    "target=%s: %s does not say %s: %s",
                    self._target.name, endpoint.path, endpoint.summary, answer.detail,
                )  # fmt: skip
                again = again or not is_for_good(answer)
                if answer.reason in (FailureReason.TIMEOUT, FailureReason.UNREACHABLE):
                    break
        finally:
            client.close()
        return again

    def _read_command_line(self, runtime: Runtime, snapshot: Snapshot | None) -> bool:
        """Where nothing surer says the batch limit: whether the processes' command line says something else than before."""
        if not self._processes.is_due or snapshot is None or not _lacks_limit(snapshot):
            return False
        before, seen = self._batch_limit, self._commands()
        limits = (_find_limit(runtime, commands) for commands in seen)
        self._batch_limit = next((limit for limit in limits if limit is not None), None)
        # the driver may not have been asked yet, and an engine that has just started may not be on its list
        self._processes.note(again=not any(seen))
        return self._batch_limit != before


def _find_limit(runtime: Runtime, commands: Collection[Sequence[str]]) -> int | None:
    """What all of these say; None where they differ: nobody knows which of them is the target's."""
    limits = {find_batch_limit(runtime, read_arguments(words, (runtime,))) for words in commands}
    return limits.pop() if len(limits) == 1 else None


def _lacks_limit(snapshot: Snapshot) -> bool:
    weaker = (LimitSource.COMMAND_LINE, LimitSource.OBSERVED)
    return any(
        engine.requests_running is not None
        and (engine.batch_limit_requests is None or engine.batch_limit_source in weaker)
        for engine in snapshot.engines
    )


# --- What a target is doing and who it is, by its last attempt and page, and by what Kubernetes says of its pod.


_ANSWERED = frozenset(
    {
        FailureReason.UNAUTHORIZED, FailureReason.REDIRECT, FailureReason.CONTENT_TYPE, FailureReason.ENCODING, FailureReason.TOO_LARGE,
        FailureReason.EMPTY, FailureReason.CREDENTIALS, FailureReason.MALFORMED, FailureReason.TRUNCATED, FailureReason.TOO_MANY_SERIES,
        FailureReason.UNKNOWN_RUNTIME, FailureReason.NOT_AN_ENGINE, FailureReason.SEVERAL_SERVERS, FailureReason.INTERNAL,
        FailureReason.SPEAKS_TLS, FailureReason.PAGE_FAILS,
    }
)  # fmt: skip


def choose_good_state(snapshot: Snapshot, pod: PodState | None) -> State:
    """The state of a target whose page could be read. `pod`: None where it has none that is known."""
    if pod is not None and pod.fault is PodFault.WORKER_LOST:
        # the leader still answers, and no request gets through all of the layers
        return State.DOWN
    return State.SLEEPING if snapshot.sleeping else State.READY


def choose_failed_state(reason: FailureReason, status: int | None, pod: PodState | None, now_seconds: float) -> State:
    """The state of a target whose page could not be read. `status`: of HTTP, None without an answer. `now_seconds`: monotonic."""
    # an answer that cannot be used says nothing about the engine: missing data is not down
    is_answered = reason in _ANSWERED or (
        reason is FailureReason.STATUS and status is not None and (status < 500 or status == 501)
    )
    if pod is None:
        if reason is FailureReason.LOADING:
            return State.LOADING
        return State.UNKNOWN if is_answered else State.DOWN
    if pod.fault is None and is_answered:
        return State.UNKNOWN
    return State.LOADING if pod.may_load(now_seconds) else State.DOWN


def list_identities(snapshot: Snapshot | None) -> tuple[tuple[str, str], ...]:
    """Model name and label of each engine; () without a page."""
    return tuple((engine.model_name, engine.engine) for engine in snapshot.engines) if snapshot else ()


def find_page_role(snapshot: Snapshot) -> Role | None:
    """The role that the page says, where all its engines have the same."""
    roles = {engine.role for engine in snapshot.engines if engine.role in set(Role)}
    return Role(roles.pop() or "") if len(roles) == 1 else None


def choose_model_name(snapshot: Snapshot, role: Role, configured: str, before: str) -> str:
    """The model that a target is known by: the page's, else as configured, else that of the page before; "" where none is known.

    Of several models an engine is known by the first. A front door is known by none of them: it is not that model's more than another's.
    """
    names = sorted({engine.model_name for engine in snapshot.engines if engine.model_name})
    if len(names) > 1 and role is Role.FRONTEND:
        return configured
    return names[0] if names else configured or before


def find_engine_start(snapshot: Snapshot, before: float | None, *, restarted: bool) -> float:
    """When the engine started, in Unix seconds: as the page says it, else when it was first seen. `before`: so far."""
    if snapshot.process_start_unix_seconds is not None:
        return snapshot.process_start_unix_seconds
    return snapshot.unix_seconds if restarted or before is None else before
