"""vLLM's side endpoints: JSON -> facts. Read at start and when the server restarts, never each tick."""

from __future__ import annotations

from dataclasses import replace

from llm_serving_exporter.model.facts import ServerFacts
from llm_serving_exporter.model.text import clean
from llm_serving_exporter.normalise.mapping import Endpoint

MAX_MODELS = 256  # LoRA adapters are listed as models too
MAX_PATH = 4096


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _text(value: object) -> str | None:
    return clean(value, 64) if isinstance(value, str) and value else None


def read_version(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/version`: {"version": "0.32.0"}."""
    version = answer.get("version") if isinstance(answer, dict) else None
    return replace(facts, version=clean(version, 64)) if isinstance(version, str) else facts


def read_models(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/v1/models`: data[].max_model_len and root (the path or hub id that was loaded) by served name; adapters have no length."""
    listed = answer.get("data") if isinstance(answer, dict) else None
    entries = [
        entry
        for entry in (listed if isinstance(listed, list) else [])[:MAX_MODELS]
        if isinstance(entry, dict) and isinstance(entry.get("id"), str)
    ]
    limits = {
        clean(entry["id"]): limit for entry in entries if (limit := _whole(entry.get("max_model_len"))) is not None
    }
    roots = {
        clean(entry["id"]): clean(root, MAX_PATH) for entry in entries if isinstance(root := entry.get("root"), str)
    }
    return replace(
        facts,
        context_limit_tokens=limits or facts.context_limit_tokens,
        model_roots={**facts.model_roots, **{name: root for name, root in roots.items() if name in limits}},
    )


def read_server_info(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/server_info?config_format=json` (VLLM_SERVER_DEV_MODE=1, 0.11+): the scheduler's and the parallel configuration."""
    config = answer.get("vllm_config") if isinstance(answer, dict) else None
    if not isinstance(config, dict):
        return facts

    def section(name: str) -> dict[str, object]:
        value = config.get(name)
        return value if isinstance(value, dict) else {}

    parallel, model, cache = section("parallel_config"), section("model_config"), section("cache_config")
    served, path = model.get("served_model_name"), model.get("model")
    name = served if isinstance(served, str) else path
    roots = {clean(name): clean(path, MAX_PATH)} if isinstance(name, str) and isinstance(path, str) else {}
    # vLLM's data-parallel ranks share the experts of a mixture-of-experts model, with and without expert parallelism
    # (https://docs.vllm.ai/en/latest/serving/data_parallel_deployment.html)
    moe = parallel.get("is_moe_model")
    return replace(
        facts,
        model_roots={**facts.model_roots, **roots},
        dtype=_text(model.get("dtype")),
        quantization=_text(model.get("quantization")) or ("" if "quantization" in model else None),
        kv_cache_dtype=_text(cache.get("cache_dtype")),
        state_dtype=_text(cache.get("mamba_ssm_cache_dtype")),
        batched_tokens_limit=_whole(section("scheduler_config").get("max_num_batched_tokens")),
        experts_spread=moe if isinstance(moe, bool) else None,
        speculation=bool(config["speculative_config"]) if "speculative_config" in config else None,
        batch_limit_requests=_whole(section("scheduler_config").get("max_num_seqs")),
        tensor_parallel_size=_whole(parallel.get("tensor_parallel_size")),
        pipeline_parallel_size=_whole(parallel.get("pipeline_parallel_size")),
        data_parallel_size=_whole(parallel.get("data_parallel_size")),
    )


ENDPOINTS = (
    Endpoint("/version", read_version, "version"),
    Endpoint("/v1/models", read_models, "context_limit_tokens"),
    Endpoint("/server_info?config_format=json", read_server_info, "batch_limit_requests"),
)
