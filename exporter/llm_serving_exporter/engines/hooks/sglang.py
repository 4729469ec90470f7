"""SGLang's side endpoints: JSON -> facts. Read at start and when the server restarts, never each tick.

`/server_info` holds every server argument, keys included: only what is named here is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from llm_serving_exporter.engines.json_answers import (
    LONGEST_PATH,
    add_facts,
    is_owned_by,
    list_models,
    list_objects,
    mapping,
    text,
    whole,
)
from llm_serving_exporter.engines.mapping import Endpoint, Hooks
from llm_serving_exporter.model.snapshot import ServerFacts

MAX_RANKS = 1024


def read_server_info(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/server_info` (0.5.6+; `/get_server_info` 0.4.2+): server arguments, and those that the scheduler resolved in internal_states[].

    Under data-parallel attention the tensor-parallel group is split among the data-parallel ranks, which share the experts
    (srt/runtime_context.py:79-91); plain data parallelism starts whole copies.
    """
    if not isinstance(answer, dict):
        return facts
    states = list_objects(answer.get("internal_states"), MAX_RANKS)
    resolved = states[0] if states else {}

    def argument(name: str) -> object:
        value = resolved.get(name)
        return answer.get(name) if value is None else value

    ranks, tensor = whole(argument("dp_size")), whole(argument("tp_size"))
    spread = argument("enable_dp_attention")
    shares = ranks if spread is True and ranks else 1
    path = text(argument("model_path"), LONGEST_PATH)
    name = text(argument("served_model_name")) or text(path)
    context = whole(argument("context_length"))
    algorithm = argument("speculative_algorithm")
    speculates = isinstance(algorithm, str) and algorithm.upper() not in ("", "NONE")
    names_model = "model_path" in answer or bool(resolved)
    return add_facts(
        facts,
        version=text(answer.get("version"), 64),
        model_roots={**facts.model_roots, **({name: path} if name and path else {})},
        context_limit_tokens={name: context, **facts.context_limit_tokens} if name and context else None,
        dtype=text(argument("dtype"), 64),
        quantization=text(argument("quantization"), 64) or ("" if names_model else None),
        kv_cache_dtype=text(argument("kv_cache_dtype"), 64),
        state_dtype=text(argument("mamba_ssm_dtype"), 64),
        batched_tokens_limit=_find_step_limit(argument),
        speculation=speculates if names_model else None,
        experts_spread=spread if isinstance(spread, bool) else None,
        batch_limit_requests=_find_batch_limit(states, answer, shares),
        tensor_parallel_size=tensor // shares if tensor is not None and tensor % shares == 0 else None,
        pipeline_parallel_size=whole(argument("pp_size")),
        data_parallel_size=ranks,
        decode_context_parallel_size=whole(argument("dcp_size")),
        # one server speaks for all of them, on whichever nodes they are
        all_ranks_shown=True,
    )


def _find_step_limit(argument: Callable[[str], object]) -> int | None:
    """Prompt tokens of a step: both a chunk and all prompts of a step are bounded; a chunk of -1 is no bound."""
    limits = [limit for name in ("chunked_prefill_size", "max_prefill_tokens") if (limit := whole(argument(name)))]
    return min(limits, default=None)


def _find_batch_limit(states: list[Mapping[str, object]], answer: Mapping[str, object], shares: int) -> int | None:
    """Of one data-parallel rank: the scheduler's own word (0.5.8+), else the argument, which data-parallel attention divides."""
    resolved = [limit for state in states if (limit := whole(state.get("effective_max_running_requests_per_dp")))]
    if resolved:
        return min(resolved)
    configured = whole(answer.get("max_running_requests"))
    return (configured // shares or None) if configured else None


def read_models(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/v1/models`: data[].id but for adapters, and max_model_len by served name. Its root repeats the name, and is not what was loaded."""
    named = [(name, entry) for entry in list_models(answer) if (name := text(entry.get("id")))]
    limits = {name: limit for name, entry in named if (limit := whole(entry.get("max_model_len")))}
    return add_facts(
        facts,
        model_names=tuple(name for name, entry in named if entry.get("parent") is None),
        context_limit_tokens={**facts.context_limit_tokens, **limits},
    )


def read_loads(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/v1/loads` (0.5.8+): max_running_requests of each data-parallel rank; accelerators of one rank (0.5.17+)."""
    loads = mapping(answer)
    ranks = list_objects(loads.get("loads"), MAX_RANKS)
    limits = [limit for rank in ranks if (limit := whole(rank.get("max_running_requests")))]
    return add_facts(
        facts,
        version=text(loads.get("version"), 64),
        batch_limit_requests=min(limits, default=None),
        gpu_name=text(loads.get("accelerator"), 64),
        gpu_count=whole(loads.get("num_accelerators")),
    )


_ARGUMENTS = (
    "version", "batch_limit_requests", "context_limit_tokens", "batched_tokens_limit", "tensor_parallel_size",
    "pipeline_parallel_size", "data_parallel_size", "decode_context_parallel_size", "experts_spread", "speculation",
    "model_roots", "dtype", "quantization", "kv_cache_dtype", "state_dtype", "all_ranks_shown",
)  # fmt: skip

SGLANG = Hooks(
    shows=(("/v1/models", partial(is_owned_by, owner="sglang")),),
    endpoints=(
        Endpoint("/get_server_info", read_server_info, _ARGUMENTS),
        Endpoint("/server_info", read_server_info, _ARGUMENTS),
        Endpoint("/v1/models", read_models, ("context_limit_tokens", "model_names")),
        Endpoint("/v1/loads", read_loads, ("version", "batch_limit_requests", "gpu_name", "gpu_count")),
    ),
)
