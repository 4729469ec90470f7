"""TensorRT-LLM's side endpoints: JSON -> facts. They name a model that the released versions' page calls "undefined"."""

from __future__ import annotations

from llm_serving_exporter.engines.json_answers import is_owned_by, listed, mapping, text
from llm_serving_exporter.engines.mapping import Endpoint, Hooks
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import ServerFacts

MAX_MODELS = 32


def read_version(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/version`: {"version": "1.3.0"}."""
    return replace(facts, version=text(mapping(answer).get("version"), 64) or facts.version)


def read_models(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/v1/models`: data[].id; of a model that was loaded from a directory only the directory's last part."""
    entries = listed(mapping(answer).get("data"), MAX_MODELS)
    names = tuple(name for entry in entries if (name := text(mapping(entry).get("id"))))
    return replace(facts, model_names=names or facts.model_names)


def is_trtllm(answer: object) -> bool:
    """Whether a model list is TensorRT-LLM's (`ModelCard` of its openai_protocol.py)."""
    return is_owned_by(answer, "tensorrt_llm")


ENDPOINTS = (
    Endpoint("/version", read_version, ("version",)),
    Endpoint("/v1/models", read_models, ("model_names",)),
)
HOOKS = Hooks(endpoints=ENDPOINTS, shows=(("/v1/models", is_trtllm),))
