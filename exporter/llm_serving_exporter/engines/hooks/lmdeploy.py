"""LMDeploy's side endpoints: JSON -> facts. Read at start and when the server restarts, never each tick."""

from __future__ import annotations

import json

from llm_serving_exporter.engines.json_answers import listed, mapping, text, whole
from llm_serving_exporter.engines.mapping import Endpoint, Hooks
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import ServerFacts

MAX_MODELS = 256  # adapters are listed as models too
LONGEST_TEXT = 4096


def read_models(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/v1/models`: data[].id. `root` is the same name again, not what was loaded."""
    entries = listed(mapping(answer).get("data"), MAX_MODELS)
    names = tuple(name for entry in entries if (name := text(mapping(entry).get("id"))))
    return replace(facts, model_names=names or facts.model_names)


def read_engine_info(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/distserve/engine_info`: {"tp_size": 2, …}, which LMDeploy sends as a JSON string that holds the JSON.

    With data parallelism its tp (or ep) is the size of the whole group, of which attention takes a share
    (https://github.com/InternLM/lmdeploy/blob/v0.16.0/lmdeploy/pytorch/config.py, DistConfig). Counts of blocks are those that were
    asked for, not those that there are.
    """
    if isinstance(answer, str) and len(answer) <= LONGEST_TEXT:
        try:
            answer = json.loads(answer)
        except (ValueError, RecursionError):
            return facts
    sizes = mapping(answer)
    tensor, ranks, experts = (whole(sizes.get(name)) for name in ("tp_size", "dp_size", "ep_size"))
    if tensor is not None and ranks is not None and ranks > 1:
        group = experts if experts is not None and experts > 1 else tensor
        tensor = group // ranks if group % ranks == 0 else None
    return replace(
        facts,
        tensor_parallel_size=tensor or facts.tensor_parallel_size,
        pipeline_parallel_size=whole(sizes.get("pp_size")) or facts.pipeline_parallel_size,
        data_parallel_size=ranks or facts.data_parallel_size,
        experts_spread=True if (experts or 1) > 1 and (ranks or 1) > 1 else facts.experts_spread,
    )


HOOKS = Hooks(
    endpoints=(
        Endpoint("/v1/models", read_models, ("model_names",)),
        Endpoint(
            "/distserve/engine_info",
            read_engine_info,
            ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "experts_spread"),
        ),
    ),
)
