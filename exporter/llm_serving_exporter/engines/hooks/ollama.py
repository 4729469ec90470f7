"""Ollama's list of loaded models, which is its page, and its version. Facts: server/routes.go and api/types.go of v0.33.0-rc2."""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.engines.json_answers import listed, mapping, number, reading, text
from llm_serving_exporter.engines.mapping import Endpoint, Hooks, Readings
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import ServerFacts

MAX_MODELS = 64
# field of an entry -> sample
_FIGURES = {"size_vram": "ollama:size_vram", "context_length": "ollama:context_length"}


def _loaded(answer: object) -> dict[str, Mapping[str, object]] | None:
    """Entries by model name; None where the JSON is not a list of loaded models."""
    models = mapping(answer).get("models")
    if not isinstance(models, list):
        return None
    entries = [mapping(entry) for entry in listed(models, MAX_MODELS)]
    named = [(text(entry.get("name")) or text(entry.get("model")), entry) for entry in entries]
    return {name: entry for name, entry in named if name is not None}


def read_page(answer: object) -> Readings | None:
    """`/api/ps` -> samples, `ollama:loaded_models` always; None where it is not Ollama's."""
    loaded = _loaded(answer)
    if loaded is None:
        return None
    samples = [reading("ollama:loaded_models", float(len(loaded)))]
    for name, entry in loaded.items():
        for field, sample in _FIGURES.items():
            value = number(entry.get(field))
            if value is not None and value >= 0:
                samples.append(reading(sample, value, model_name=name))
    return tuple(samples)


def read_version(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/api/version`: {"version": "0.33.0"}."""
    return replace(facts, version=text(mapping(answer).get("version"), 64) or facts.version)


def read_loaded(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/api/ps`: the quantisation where every loaded model has the same. No names: those are on the page, and with nothing loaded there
    are none."""
    loaded = _loaded(answer)
    if loaded is None:
        return facts
    levels = {text(mapping(entry.get("details")).get("quantization_level"), 64) for entry in loaded.values()}
    return replace(facts, quantization=levels.pop() if len(levels) == 1 else None)


HOOKS = Hooks(
    read_page=read_page,
    without_metrics=True,
    endpoints=(
        Endpoint("/api/version", read_version, ("version",)),
        Endpoint("/api/ps", read_loaded, ("quantization",)),
    ),
)
