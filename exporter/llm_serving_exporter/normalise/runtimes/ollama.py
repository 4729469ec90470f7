"""Ollama: it has no metrics page. Its list of loaded models says which are loaded, how much GPU memory each takes and how long a context it
has; throughput stands only in the answers that clients get. Facts: server/routes.go and api/types.go of v0.33.0-rc2."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite

from llm_serving_exporter.model.facts import ServerFacts
from llm_serving_exporter.model.text import clean
from llm_serving_exporter.normalise.mapping import Endpoint, PageKind, Readings, Row, Runtime
from llm_serving_exporter.normalise.polled import reading
from llm_serving_exporter.normalise.runtimes.gpu_only import nothing_but

_TYPES = "https://github.com/ollama/ollama/blob/main/api/types.go"

MAX_MODELS = 64
# field of an entry -> sample
_FIGURES = {"size_vram": "ollama:size_vram", "context_length": "ollama:context_length"}


def _loaded(answer: object) -> dict[str, dict[str, object]] | None:
    """Entries by model name; None where the JSON is not a list of loaded models."""
    listed = answer.get("models") if isinstance(answer, dict) else None
    if not isinstance(listed, list):
        return None
    found = {}
    for entry in listed[:MAX_MODELS]:
        name = (entry.get("name") or entry.get("model")) if isinstance(entry, dict) else None
        if isinstance(name, str) and name:
            found[clean(name)] = entry
    return found


def read_page(answer: object) -> Readings:
    """`/api/ps` -> samples, `ollama:loaded_models` always; () where it is not Ollama's."""
    loaded = _loaded(answer)
    if loaded is None:
        return ()
    samples = [reading("ollama:loaded_models", float(len(loaded)))]
    for name, entry in loaded.items():
        for field, sample in _FIGURES.items():
            value = entry.get(field)
            if isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value) and value >= 0:
                samples.append(reading(sample, float(value), model_name=name))
    return tuple(samples)


def read_version(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/api/version`: {"version": "0.33.0"}."""
    version = answer.get("version") if isinstance(answer, dict) else None
    return replace(facts, version=clean(version, 64)) if isinstance(version, str) else facts


def read_loaded(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/api/ps`: the quantisation where every loaded model has the same. No names: those are on the page, and with nothing loaded there
    are none."""
    loaded = _loaded(answer)
    if loaded is None:
        return facts
    details = [entry.get("details") for entry in loaded.values()]
    said = [one.get("quantization_level") if isinstance(one, dict) else None for one in details]
    level = said[0] if said and all(one == said[0] for one in said) else None
    return replace(facts, quantization=clean(level, 64) if isinstance(level, str) and level else None)


RUNTIME = Runtime(
    name="ollama",
    title="Ollama",
    rows=(
        Row(
            "model_gpu_memory_bytes",
            ("ollama:size_vram",),
            source=_TYPES,
            caveat="What Ollama plans for the model, its cache included; absent while it is not loaded.",
        ),
        Row("context_limit_tokens", ("ollama:context_length",), source=_TYPES, caveat="Of the loaded model."),
    ),
    model_labels=("model_name",),
    paths=("/api/ps",),
    kind=PageKind.JSON,
    without_metrics=True,
    read_page=read_page,
    endpoints=(
        Endpoint("/api/version", read_version, "version"),
        Endpoint("/api/ps", read_loaded, "quantization"),
    ),
    missing=nothing_but("model_gpu_memory_bytes", "context_limit_tokens"),
    versions="<=0.33",
)
