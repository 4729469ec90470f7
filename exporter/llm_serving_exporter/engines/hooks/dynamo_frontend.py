"""The side endpoints of Dynamo's frontend: JSON -> facts. Its workers' system port has none that says anything about a model."""

from __future__ import annotations

from llm_serving_exporter.engines.json_answers import listed, mapping, text, whole
from llm_serving_exporter.engines.mapping import Endpoint, Hooks
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import ServerFacts

MAX_MODELS = 256


def read_models(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/v1/models`: data[].context_window by served name, 0 where the worker was started without one."""
    limits: dict[str, int] = {}
    names: list[str] = []
    for entry in map(mapping, listed(mapping(answer).get("data"), MAX_MODELS)):
        name, limit = text(entry.get("id")), whole(entry.get("context_window"))
        if name is None:
            continue
        names.append(name)
        if limit is not None:
            limits[name] = limit
    return replace(
        facts,
        model_names=tuple(names) or facts.model_names,
        context_limit_tokens=limits or facts.context_limit_tokens,
    )


HOOKS = Hooks(endpoints=(Endpoint("/v1/models", read_models, ("context_limit_tokens", "model_names")),))
