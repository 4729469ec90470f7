"""The side endpoints of Dynamo's frontend: JSON -> facts. Its workers' system port has none that says anything about a model."""

from __future__ import annotations

from dataclasses import replace

from llm_serving_exporter.model.facts import ServerFacts
from llm_serving_exporter.model.text import clean
from llm_serving_exporter.normalise.mapping import Endpoint

MAX_MODELS = 256


def read_models(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/v1/models`: data[].context_window by served name, 0 where the worker was started without one."""
    listed = answer.get("data") if isinstance(answer, dict) else None
    limits: dict[str, int] = {}
    names: list[str] = []
    for entry in (listed if isinstance(listed, list) else [])[:MAX_MODELS]:
        if not isinstance(entry, dict) or not isinstance(entry.get("id"), str):
            continue
        name, limit = clean(entry["id"]), entry.get("context_window")
        names.append(name)
        if isinstance(limit, int) and not isinstance(limit, bool) and limit > 0:
            limits[name] = limit
    return replace(
        facts,
        model_names=tuple(names) or facts.model_names,
        context_limit_tokens=limits or facts.context_limit_tokens,
    )


FRONTEND_ENDPOINTS = (Endpoint("/v1/models", read_models, "context_limit_tokens"),)
