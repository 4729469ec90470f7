"""TensorRT-LLM's side endpoints: JSON -> facts. They name a model that the released versions' page calls "undefined"."""

from __future__ import annotations

from dataclasses import replace

from llm_serving_exporter.model.facts import ServerFacts
from llm_serving_exporter.model.text import clean
from llm_serving_exporter.normalise.mapping import Endpoint

MAX_MODELS = 32


def read_version(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/version`: {"version": "1.3.0"}."""
    version = answer.get("version") if isinstance(answer, dict) else None
    return replace(facts, version=clean(version, 64)) if isinstance(version, str) and version else facts


def read_models(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/v1/models`: data[].id; of a model that was loaded from a directory only the directory's last part."""
    listed = answer.get("data") if isinstance(answer, dict) else None
    names = [
        clean(entry["id"])
        for entry in (listed if isinstance(listed, list) else [])[:MAX_MODELS]
        if isinstance(entry, dict) and isinstance(entry.get("id"), str) and entry["id"]
    ]
    return replace(facts, model_names=tuple(names)) if names else facts


ENDPOINTS = (
    Endpoint("/version", read_version, "version"),
    Endpoint("/v1/models", read_models, "model_name"),
)
