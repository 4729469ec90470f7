"""LightLLM's side endpoints: what names its model, and how full its KV cache is. Made from its source."""

from __future__ import annotations

from llm_serving_exporter.engines.json_answers import listed, mapping, number, reading
from llm_serving_exporter.engines.mapping import Endpoint, Hooks, Poll, Readings
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import ServerFacts
from llm_serving_exporter.model.text import clean

_LOADED = "lightllm_polled_token_load"
MAX_RANKS = 1024


def read_model_name(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/get_model_name`: {"model_name": "…"}."""
    name = answer.get("model_name") if isinstance(answer, dict) else None
    return replace(facts, model_names=(clean(name),)) if isinstance(name, str) and name else facts


def read_token_load(answer: object) -> Readings:
    """`/token_load`: {"current_load": 0.4, …}, under data parallelism a list with one entry a rank: then their mean."""
    load = mapping(answer).get("current_load")
    ranks = listed(load, MAX_RANKS) or [load]
    loads = [found for one in ranks if (found := number(one)) is not None and 0 <= found <= 1]
    return (reading(_LOADED, add_up(loads) / len(loads)),) if loads else ()


HOOKS = Hooks(
    endpoints=(Endpoint("/get_model_name", read_model_name, ("model_names",)),),
    polls=(Poll("/token_load", read_token_load, "kv_cache_usage_ratio"),),
)
