"""Models that targets serve, looked up once each, at the rim."""

from __future__ import annotations

import logging
from collections import OrderedDict

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.model.model_settings import ModelSettings, ServedModel
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.weights import ModelFacts

log = logging.getLogger("llm_serving_exporter.facts")

# a server may say anything of itself, again and again: what was looked up is kept for this many
MOST_KEPT = 256


class ModelBook:
    """`find` may be called from several threads. `hf_cache`: a Hugging Face cache to look into, None = none."""

    def __init__(self, hf_cache: str | None) -> None:
        self._hf_cache = hf_cache
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
            return loader.model_facts(settings, served, self._hf_cache)
        except FactsError as error:
            # made anew: the one that was raised holds the frames that it came through, and with them whatever file they had read
            return FactsError(error.reason, error.what, error.fix)
        except Exception as error:
            log.exception("looking up model %s failed; this is a bug, please report it", served.name)
            return FactsError(
                Absence.MODEL_UNKNOWN.value, f"looking it up failed ({type(error).__name__}), see the log"
            )
