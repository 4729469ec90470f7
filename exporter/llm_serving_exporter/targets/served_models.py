"""Models that targets serve: looked up once each, at the rim, and what one target knows of its own."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping

from llm_serving_exporter.engines.mapping import Runtime, parse_version, satisfies
from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.model.shape import ModelFacts
from llm_serving_exporter.model.snapshot import Absence, ServerFacts, Snapshot
from llm_serving_exporter.model.target import ModelSettings, ServedModel, Target

# (what is configured about the model, what the server says of it) -> what is known about it, or why nothing is; never raises
FindModel = Callable[[ModelSettings, ServedModel], ModelFacts | FactsError]

log = logging.getLogger("llm_serving_exporter.facts")
_target_log = logging.getLogger("llm_serving_exporter.target")

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
        found = self._known.get(key)
        if found is None:
            found = self._look_up(settings, served)
            self._known[key] = found
            while len(self._known) > MOST_KEPT:
                self._known.popitem(last=False)
        return found

    def _look_up(self, settings: ModelSettings, served: ServedModel) -> ModelFacts | FactsError:
        # the catalogue is read when a model is looked up, not when the daemon starts
        from llm_serving_exporter.facts import loader

        try:
            return loader.model_facts(settings, served, self._hf_cache, self._own_models)
        except FactsError as error:
            # made again: the one that was raised holds the frames that it came through, and with them whatever file they had read
            return FactsError(error.reason, error.what, error.fix)
        except Exception as error:
            log.exception("looking up model %s failed; this is a bug, please report it", served.name)
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
        known: dict[str, tuple[ServedModel, ModelFacts | FactsError]] = {}
        for engine in snapshot.engines:
            if not (engine.is_engine or snapshot.rests) or engine.model_name in known or len(known) >= MOST_MODELS:
                continue
            served = served_model(engine.model_name, facts, engine.kv_cache_dtype, runtime, engine.state_dtype)
            before = self._known.get(engine.model_name)
            if before is not None and before[0] == served:
                known[engine.model_name] = before
                continue
            found = self._find(self._target.model, served)
            known[engine.model_name] = served, found
            _log_finding(self._target.name, engine.model_name, found)
        if known != self._known:
            self._keep(known)

    def _keep(self, known: dict[str, tuple[ServedModel, ModelFacts | FactsError]]) -> None:
        self._known = known
        self.found = {name: found for name, (_, found) in known.items()}
        self.facts_or_absence = {
            name: Absence(found.reason) if isinstance(found, FactsError) else found
            for name, found in self.found.items()
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
        _target_log.warning("target=%s: no roofline for model %s: %s", target, model or "?", found)
        return
    _target_log.info("target=%s: model %s, %s", target, model or "?", found.origin)
    for note in found.notes:
        _target_log.warning("target=%s: model %s: %s", target, model or "?", note)
