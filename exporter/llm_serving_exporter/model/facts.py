"""What is known about a server beyond its metrics page."""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.model.record import Struct, field


class ServerFacts(Struct, frozen=True):
    """What a server's side endpoints said when it started. None or empty: no endpoint says it."""

    version: str | None = None  # of the engine, as it writes it
    # model name -> longest context that the server accepts
    context_limit_tokens: Mapping[str, int] = field(default_factory=dict)
    batch_limit_requests: int | None = None  # most requests that the engine runs at once
    tensor_parallel_size: int | None = None  # GPUs that share each layer
    pipeline_parallel_size: int | None = None  # stages that the layers are split into
    data_parallel_size: int | None = None  # engines (ranks) of the server
    decode_context_parallel_size: int | None = None  # parts that a sequence's KV is cut into among those GPUs
    prefill_context_parallel_size: int | None = (
        None  # parts that prompts, and with them their KV, are cut into beside those
    )
    # sizes above one of ways to spread work that nothing here reads: what depends on the layout is not known
    unread_parallel_sizes: tuple[str, ...] = ()
    all_ranks_shown: bool = False  # whether its one page has all of these ranks, also those that have not worked yet
    experts_spread: bool | None = None  # whether the data-parallel ranks share one set of routed experts
    model_roots: Mapping[str, str] = field(default_factory=dict)  # model name -> what was loaded, a path or a hub id
    # of activations and of weights that are not quantised, as the engine writes it ("auto": the checkpoint's)
    dtype: str | None = None
    quantization: str | None = None  # the engine's own word for the weights' format; "": it says that there is none
    kv_cache_dtype: str | None = None  # as the engine writes it ("auto": the model's)
    state_dtype: str | None = None  # of recurrent state (Mamba, gated DeltaNet), as the engine writes it
    batched_tokens_limit: int | None = None  # most tokens of a step, of all its sequences together
    speculation: bool | None = None  # whether it decodes speculatively
    model_names: tuple[str, ...] = ()  # that are served, for a page that names none
    weight_bytes: int | None = None  # of all the weights as they are stored
    gpu_name: str | None = None  # of the accelerators of one engine
    gpu_count: int | None = None  # how many accelerators one engine has
