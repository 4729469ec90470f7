"""mistral.rs' model list: what names its model. Made from its source."""

from __future__ import annotations

from llm_serving_exporter.engines.json_answers import is_owned_by, listed, mapping
from llm_serving_exporter.engines.mapping import Endpoint, Hooks
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import ServerFacts
from llm_serving_exporter.model.text import clean

MAX_MODELS = 256


def read_models(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/v1/models`: data[].id; the first, "default", is another name of one of the others."""
    names = [
        clean(entry["id"])
        for entry in listed(mapping(answer).get("data"), MAX_MODELS)
        if isinstance(entry, dict) and isinstance(entry.get("id"), str) and entry.get("parent") is None
    ]
    names = [name for name in dict.fromkeys(names) if name not in ("", "default")]
    return replace(facts, model_names=tuple(names), model_roots={name: name for name in names}) if names else facts


def is_mistralrs(answer: object) -> bool:
    """Whether a model list is mistral.rs's: it alone lists a model "default" first, and owns all locally."""
    first = next(iter(listed(mapping(answer).get("data"), 1)), None)
    return mapping(first).get("id") == "default" and is_owned_by(answer, "local", MAX_MODELS)


HOOKS = Hooks(
    endpoints=(Endpoint("/v1/models", read_models, ("model_names", "model_roots")),),
    shows=(("/v1/models", is_mistralrs),),
)
