"""What is known about a server beyond its metrics page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server's side endpoints said when it started. Every field is None where no endpoint says it.

    `context_limit_tokens` and `model_roots` (what was loaded: a path or a hub id) by model name. Parallel sizes as the server's own
    configuration has them; `experts_spread`: whether its data-parallel ranks share one set of routed experts. `quantization`
    is the engine's own word for the weights' format, "" where it says that there is none; dtypes as the engine writes them.
    `batched_tokens_limit`: most tokens of a step. `speculation`: whether it decodes speculatively.
    `model_names`: served, for a page that names none. `weight_bytes`: of all the weights as they are stored. `gpu_name`, `gpu_count`: its
    accelerators, of one engine.
    """

    version: str | None = None
    context_limit_tokens: Mapping[str, int] = field(default_factory=dict)
    batch_limit_requests: int | None = None
    tensor_parallel_size: int | None = None
    pipeline_parallel_size: int | None = None
    data_parallel_size: int | None = None
    experts_spread: bool | None = None
    model_roots: Mapping[str, str] = field(default_factory=dict)
    dtype: str | None = None
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    state_dtype: str | None = None
    batched_tokens_limit: int | None = None
    speculation: bool | None = None
    model_names: tuple[str, ...] = ()
    weight_bytes: int | None = None
    gpu_name: str | None = None
    gpu_count: int | None = None
