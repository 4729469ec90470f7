"""Servers of which a list or two is asked: LMDeploy, Infinity, LightLLM and mistral.rs, the last two made from their source."""

from __future__ import annotations

import json
from collections.abc import Mapping

from llm_serving_exporter.engines.json_answers import (
    LONGEST_PATH,
    MAX_MODELS,
    add_facts,
    is_owned_by,
    list_models,
    listed,
    mapping,
    number,
    read_model_names,
    reading,
    text,
    whole,
)
from llm_serving_exporter.engines.mapping import Endpoint, Hooks, Poll, Readings
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.snapshot import ServerFacts


def read_lmdeploy_info(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/distserve/engine_info`: {"tp_size": 2, …}, which LMDeploy sends as a JSON string that holds the JSON.

    With data parallelism its tp (or ep) is the size of the whole group, of which attention takes a share
    (https://github.com/InternLM/lmdeploy/blob/v0.16.0/lmdeploy/pytorch/config.py, DistConfig). Counts of blocks are those that were
    asked for, not those that there are.
    """
    if isinstance(answer, str) and len(answer) <= LONGEST_PATH:
        try:
            answer = json.loads(answer)
        except (ValueError, RecursionError):
            return facts
    sizes = mapping(answer)
    tensor, ranks, experts = (whole(sizes.get(name)) for name in ("tp_size", "dp_size", "ep_size"))
    if tensor is not None and ranks is not None and ranks > 1:
        group = experts if experts is not None and experts > 1 else tensor
        tensor = group // ranks if group % ranks == 0 else None
    return add_facts(
        facts,
        tensor_parallel_size=tensor or None,
        pipeline_parallel_size=whole(sizes.get("pp_size")),
        data_parallel_size=ranks,
        experts_spread=True if (experts or 1) > 1 and (ranks or 1) > 1 else None,
    )


LMDEPLOY = Hooks(
    endpoints=(
        # its `root` is the same name again, not what was loaded; adapters are listed as models too
        Endpoint("/v1/models", read_model_names, ("model_names",)),
        Endpoint(
            "/distserve/engine_info",
            read_lmdeploy_info,
            ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "experts_spread"),
        ),
    ),
)

# infinity-emb 0.0.78
MAX_INFINITYS = 64
_INFINITY_STATS = ("queue_absolute", "queue_fraction", "results_pending", "batch_size")


def _list_infinitys(answer: object) -> dict[str, Mapping[str, object]]:
    """The stats of each model of `/models` by its name; {} for any other JSON."""
    named = [(text(entry.get("id")), mapping(entry.get("stats"))) for entry in list_models(answer, MAX_INFINITYS)]
    return {name: stats for name, stats in named if name is not None and "queue_absolute" in stats}


def is_infinity(answer: object) -> bool:
    """Whether a model list is Infinity's: no other server puts its queue into it."""
    return bool(_list_infinitys(answer))


def read_infinity_queue(answer: object) -> Readings:
    """`/models`: the stats of each model as `infinity:<name>{model_name}`."""
    return tuple(
        reading(f"infinity:{key}", value, model_name=name)
        for name, stats in _list_infinitys(answer).items()
        for key in _INFINITY_STATS
        if (value := number(stats.get(key))) is not None
    )


def read_infinity_models(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/models`: what it serves."""
    return add_facts(facts, model_names=tuple(_list_infinitys(answer)))


# with --url-prefix /v1 (INFINITY_URL_PREFIX) everything but /metrics and /health stands below it
_INFINITY_LISTS = ("/models", "/v1/models")
INFINITY = Hooks(
    endpoints=tuple(Endpoint(path, read_infinity_models, ("model_names",)) for path in _INFINITY_LISTS),
    polls=tuple(Poll(path, read_infinity_queue, "the queue") for path in _INFINITY_LISTS),
    shows=tuple((path, is_infinity) for path in _INFINITY_LISTS),
)

MAX_LIGHTLLM_RANKS = 1024


def read_lightllm_model(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/get_model_name`: {"model_name": "…"}."""
    name = text(mapping(answer).get("model_name"))
    return add_facts(facts, model_names=(name,) if name else None)


def read_lightllm_load(answer: object) -> Readings:
    """`/token_load`: {"current_load": 0.4, …}, under data parallelism a list with one entry a rank: then their mean."""
    load = mapping(answer).get("current_load")
    ranks = listed(load, MAX_LIGHTLLM_RANKS) or [load]
    loads = [share for rank in ranks if (share := number(rank)) is not None and 0 <= share <= 1]
    return (reading("lightllm_polled_token_load", add_up(loads) / len(loads)),) if loads else ()


LIGHTLLM = Hooks(
    endpoints=(Endpoint("/get_model_name", read_lightllm_model, ("model_names",)),),
    polls=(Poll("/token_load", read_lightllm_load, "kv_cache_usage_ratio"),),
)


def read_mistralrs_models(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/v1/models`: data[].id; the first, "default", is another name of one of the others."""
    ids = [text(entry.get("id")) for entry in list_models(answer) if entry.get("parent") is None]
    names = [name for name in dict.fromkeys(ids) if name not in (None, "default")]
    return add_facts(facts, model_names=tuple(names), model_roots={name: name for name in names})


def is_mistralrs(answer: object) -> bool:
    """Whether a model list is mistral.rs's: it alone lists a model "default" first, and owns all locally."""
    first = list_models(answer)[:1]
    return bool(first) and first[0].get("id") == "default" and is_owned_by(answer, "local", MAX_MODELS)


MISTRALRS = Hooks(
    endpoints=(Endpoint("/v1/models", read_mistralrs_models, ("model_names", "model_roots")),),
    shows=(("/v1/models", is_mistralrs),),
)
