"""config.json -> Geometry, by its model_type. Unknown: refused with the reason, never a guess."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts.architectures import dense, embedder, encoder, flagships, hybrid, moe
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.model.geometry import Geometry
from llm_serving_exporter.model.snapshot import Absence

Builder = Callable[[Fields], Geometry]

# by model_type; a family's own module says which formulas hold
BUILDERS: Mapping[str, Builder] = {
    **dense.BUILDERS,
    **moe.BUILDERS,
    **hybrid.BUILDERS,
    **encoder.BUILDERS,
    **flagships.BUILDERS,
}
# keys under which multimodal configs keep the language part
_LANGUAGE_KEYS = ("text_config", "language_config", "llm_config", "thinker_config")
_MOST_LEVELS = 4  # two are usual: thinker_config.text_config


def geometry(config: Mapping[str, Any]) -> Geometry:
    """The geometry of a parsed config.json. Raises FactsError (architecture_unknown) that names the key and what is missing.

    `architectures` with a bare stack ("MistralModel") means an embedder: no lm_head, no decode.
    """
    fields = language(config)
    builder = BUILDERS.get(fields.model_type)
    if builder is None:
        known = fields.model_type or "missing"
        raise FactsError(
            Absence.ARCHITECTURE_UNKNOWN.value,
            f"config.json: model_type is {known!r}, which no formula here covers; without one no ceiling is shown",
        )
    built = builder(fields)
    return embedder.without_lm_head(built) if embedder.embeds(fields.architecture) else built


def language(config: Mapping[str, Any]) -> Fields:
    """The fields of the language part, wherever the config keeps it; what encloses it stays at hand, the nearer level first."""
    outer: dict[str, Any] = {}
    for _ in range(_MOST_LEVELS):
        inner = (config[key] for key in _LANGUAGE_KEYS if isinstance(config.get(key), Mapping) and config[key])
        nested = next(inner, None)
        if nested is None:
            return Fields(config, outer)
        outer, config = {**outer, **config}, nested
    raise Fields(config, outer).refused("text_config", f"lies deeper than {_MOST_LEVELS} levels")
