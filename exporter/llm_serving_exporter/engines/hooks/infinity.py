"""Infinity's model list: what it serves, and its queue. Facts: infinity-emb 0.0.78."""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.engines.json_answers import listed, mapping, number, reading, text
from llm_serving_exporter.engines.mapping import Endpoint, Hooks, Poll, Readings
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import ServerFacts

MAX_MODELS = 64
_STATS = ("queue_absolute", "queue_fraction", "results_pending", "batch_size")


def _entries(answer: object) -> dict[str, Mapping[str, object]]:
    """The stats of each model of `/models` by its name; {} for any other JSON."""
    found = {}
    for entry in map(mapping, listed(mapping(answer).get("data"), MAX_MODELS)):
        name, stats = text(entry.get("id")), mapping(entry.get("stats"))
        if name is not None and "queue_absolute" in stats:
            found[name] = stats
    return found


def is_infinity(answer: object) -> bool:
    """Whether a model list is Infinity's: no other server puts its queue into it."""
    return bool(_entries(answer))


def read_stats(answer: object) -> Readings:
    """`/models`: the stats of each model as `infinity:<name>{model_name}`."""
    found = []
    for name, stats in _entries(answer).items():
        for key in _STATS:
            value = number(stats.get(key))
            if value is not None:
                found.append(reading(f"infinity:{key}", value, model_name=name))
    return tuple(found)


def read_models(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/models`: what it serves."""
    names = tuple(_entries(answer))
    return replace(facts, model_names=names) if names else facts


# with --url-prefix /v1 (INFINITY_URL_PREFIX) everything but /metrics and /health stands below it
_LISTS = ("/models", "/v1/models")

HOOKS = Hooks(
    endpoints=tuple(Endpoint(path, read_models, ("model_names",)) for path in _LISTS),
    polls=tuple(Poll(path, read_stats, "the queue") for path in _LISTS),
    shows=tuple((path, is_infinity) for path in _LISTS),
)
