"""vLLM's side endpoints: JSON -> facts. Read at start and when the server restarts, never each tick."""

from __future__ import annotations

from functools import partial

from llm_serving_exporter.engines.json_answers import (
    LONGEST_PATH,
    add_facts,
    find_unread_sizes,
    is_owned_by,
    list_models,
    mapping,
    read_version,
    text,
    whole,
)
from llm_serving_exporter.engines.mapping import Endpoint, Hooks
from llm_serving_exporter.model.snapshot import ServerFacts


def read_models(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/v1/models`: data[].max_model_len and root (the path or hub id that was loaded) by served name; adapters have no length."""
    limits: dict[str, int] = {}
    roots: dict[str, str] = {}
    for entry in list_models(answer):
        name, limit = text(entry.get("id")), whole(entry.get("max_model_len"))
        if name is None or limit is None:
            continue
        limits[name] = limit
        if (root := text(entry.get("root"), LONGEST_PATH)) is not None:
            roots[name] = root
    return add_facts(facts, context_limit_tokens=limits, model_roots={**facts.model_roots, **roots})


# sizes of the parallel configuration that are read, and those that are a part or a product of others
_READ_SIZES = frozenset(
    {
        "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "data_parallel_size_local",
        "decode_context_parallel_size", "prefill_context_parallel_size", "expert_parallel_size", "world_size",
        "world_size_across_dp", "local_world_size",
    }
)  # fmt: skip


def read_server_info(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/server_info?config_format=json` (VLLM_SERVER_DEV_MODE=1, 0.11+): the scheduler's and the parallel configuration."""
    config = mapping(mapping(answer).get("vllm_config"))
    parallel, model, cache, scheduler = (
        mapping(config.get(name)) for name in ("parallel_config", "model_config", "cache_config", "scheduler_config")
    )
    path = text(model.get("model"), LONGEST_PATH)
    name = text(model.get("served_model_name")) or text(path)
    # vLLM's data-parallel ranks share the experts of a mixture-of-experts model, with and without expert parallelism
    # (https://docs.vllm.ai/en/latest/serving/data_parallel_deployment.html)
    moe = parallel.get("is_moe_model")
    return add_facts(
        facts,
        model_roots={**facts.model_roots, **({name: path} if name and path else {})},
        dtype=text(model.get("dtype"), 64),
        quantization=text(model.get("quantization"), 64) or ("" if "quantization" in model else None),
        kv_cache_dtype=text(cache.get("cache_dtype"), 64),
        state_dtype=text(cache.get("mamba_ssm_cache_dtype"), 64),
        batched_tokens_limit=whole(scheduler.get("max_num_batched_tokens")),
        experts_spread=moe if isinstance(moe, bool) else None,
        speculation=bool(config["speculative_config"]) if "speculative_config" in config else None,
        batch_limit_requests=whole(scheduler.get("max_num_seqs")),
        tensor_parallel_size=whole(parallel.get("tensor_parallel_size")),
        pipeline_parallel_size=whole(parallel.get("pipeline_parallel_size")),
        data_parallel_size=whole(parallel.get("data_parallel_size")),
        decode_context_parallel_size=whole(parallel.get("decode_context_parallel_size")),
        prefill_context_parallel_size=whole(parallel.get("prefill_context_parallel_size")),
        unread_parallel_sizes=find_unread_sizes(parallel, _READ_SIZES),
    )


_CONFIGURED = (
    "batch_limit_requests", "batched_tokens_limit", "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size",
    "decode_context_parallel_size", "prefill_context_parallel_size", "experts_spread", "speculation", "model_roots", "dtype",
    "quantization", "kv_cache_dtype", "state_dtype",
)  # fmt: skip

VLLM = Hooks(
    shows=(("/v1/models", partial(is_owned_by, owner="vllm")),),
    endpoints=(
        Endpoint("/version", read_version, ("version",)),
        Endpoint("/v1/models", read_models, ("context_limit_tokens", "model_roots")),
        Endpoint("/server_info?config_format=json", read_server_info, _CONFIGURED),
    ),
)
