"""vLLM's side endpoints: JSON -> facts. Read at start and when the server restarts, never each tick."""

from __future__ import annotations

from dataclasses import replace

from llm_serving_exporter.model.facts import ServerFacts
from llm_serving_exporter.model.text import clean
from llm_serving_exporter.normalise.mapping import Endpoint

MAX_MODELS = 256  # LoRA adapters are listed as models too


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def read_version(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/version`: {"version": "0.32.0"}."""
    version = answer.get("version") if isinstance(answer, dict) else None
    return replace(facts, version=clean(version, 64)) if isinstance(version, str) else facts


def read_models(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/v1/models`: data[].max_model_len by served name (adapters have none)."""
    entries = answer.get("data") if isinstance(answer, dict) else None
    limits = {
        clean(entry["id"]): limit
        for entry in (entries if isinstance(entries, list) else [])[:MAX_MODELS]
        if isinstance(entry, dict) and isinstance(entry.get("id"), str)
        if (limit := _whole(entry.get("max_model_len"))) is not None
    }
    return replace(facts, context_limit_tokens=limits) if limits else facts


def read_server_info(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/server_info?config_format=json` (VLLM_SERVER_DEV_MODE=1, 0.11+): the scheduler's and the parallel configuration."""
    config = answer.get("vllm_config") if isinstance(answer, dict) else None
    if not isinstance(config, dict):
        return facts

    def section(name: str) -> dict[str, object]:
        value = config.get(name)
        return value if isinstance(value, dict) else {}

    parallel = section("parallel_config")
    return replace(
        facts,
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
