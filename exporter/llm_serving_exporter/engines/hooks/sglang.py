"""SGLang's side endpoints: JSON -> facts. Read at start and when the server restarts, never each tick.

`/server_info` holds every server argument, keys included: only what is named here is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from llm_serving_exporter.engines.json_answers import is_owned_by, listed, mapping, text, whole
from llm_serving_exporter.engines.mapping import Endpoint, Hooks
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import ServerFacts

MAX_MODELS = 256  # LoRA adapters are listed as models too
MAX_RANKS = 1024
MAX_PATH = 4096


def _objects(value: object, most: int) -> list[Mapping[str, object]]:
    return [found for one in listed(value, most) if (found := mapping(one))]


def read_server_info(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/server_info` (0.5.6+; `/get_server_info` 0.4.2+): server arguments, and those that the scheduler resolved in internal_states[].

    Under data-parallel attention the tensor-parallel group is split among the data-parallel ranks, which share the experts
    (srt/runtime_context.py:79-91); plain data parallelism starts whole copies.
    """
    if not isinstance(answer, dict):
        return facts
    states = _objects(answer.get("internal_states"), MAX_RANKS)
    resolved = states[0] if states else {}

    def argument(name: str) -> object:
        value = resolved.get(name)
        return answer.get(name) if value is None else value

    ranks, tensor = whole(argument("dp_size")), whole(argument("tp_size"))
    spread = argument("enable_dp_attention")
    spread = spread if isinstance(spread, bool) else None
    shares = ranks if spread and ranks else 1
    if tensor is not None:
        tensor = tensor // shares if tensor % shares == 0 else None
    path = text(argument("model_path"), MAX_PATH)
    name = text(argument("served_model_name")) or text(path)
    roots = {name: path} if name and path else {}
    context = whole(argument("context_length"))
    algorithm = argument("speculative_algorithm")
    knows = "model_path" in answer or bool(resolved)
    return replace(
        facts,
        version=text(answer.get("version"), 64) or facts.version,
        model_roots={**facts.model_roots, **roots},
        context_limit_tokens={name: context, **facts.context_limit_tokens}
        if name and context
        else facts.context_limit_tokens,
        dtype=text(argument("dtype"), 64) or facts.dtype,
        quantization=text(argument("quantization"), 64) or ("" if knows else facts.quantization),
        kv_cache_dtype=text(argument("kv_cache_dtype"), 64) or facts.kv_cache_dtype,
        state_dtype=text(argument("mamba_ssm_dtype"), 64) or facts.state_dtype,
        batched_tokens_limit=_step_limit(argument) or facts.batched_tokens_limit,
        speculation=_speculates(algorithm) if knows else facts.speculation,
        experts_spread=spread if spread is not None else facts.experts_spread,
        batch_limit_requests=_batch_limit(states, answer, shares) or facts.batch_limit_requests,
        tensor_parallel_size=tensor or facts.tensor_parallel_size,
        pipeline_parallel_size=whole(argument("pp_size")) or facts.pipeline_parallel_size,
        data_parallel_size=ranks or facts.data_parallel_size,
        decode_context_parallel_size=whole(argument("dcp_size")) or facts.decode_context_parallel_size,
        # one server speaks for all of them, on whichever nodes they are
        all_ranks_shown=True,
    )


def _speculates(algorithm: object) -> bool:
    return isinstance(algorithm, str) and algorithm.upper() not in ("", "NONE")


def _step_limit(argument: Callable[[str], object]) -> int | None:
    """Prompt tokens of a step: both a chunk and all prompts of a step are bounded; a chunk of -1 is no bound."""
    found = [limit for name in ("chunked_prefill_size", "max_prefill_tokens") if (limit := whole(argument(name)))]
    return min(found, default=None)


def _batch_limit(states: list[Mapping[str, object]], answer: Mapping[str, object], shares: int) -> int | None:
    """Of one data-parallel rank: the scheduler's own word (0.5.8+), else the argument, which data-parallel attention divides."""
    own = [limit for state in states if (limit := whole(state.get("effective_max_running_requests_per_dp")))]
    if own:
        return min(own)
    configured = whole(answer.get("max_running_requests"))
    return (configured // shares or None) if configured else None


def read_models(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/v1/models`: data[].id but for adapters, and max_model_len by served name. Its root repeats the name, and is not what was loaded."""
    entries = _objects(mapping(answer).get("data"), MAX_MODELS)
    names = tuple(name for entry in entries if entry.get("parent") is None and (name := text(entry.get("id"))))
    limits = {
        name: limit
        for entry in entries
        if (name := text(entry.get("id"))) and (limit := whole(entry.get("max_model_len")))
    }
    return replace(
        facts,
        model_names=names or facts.model_names,
        context_limit_tokens={**facts.context_limit_tokens, **limits},
    )


def read_loads(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/v1/loads` (0.5.8+): max_running_requests of each data-parallel rank; accelerators of one rank (0.5.17+)."""
    if not isinstance(answer, dict):
        return facts
    ranks = _objects(answer.get("loads"), MAX_RANKS)
    limits = [limit for rank in ranks if (limit := whole(rank.get("max_running_requests")))]
    return replace(
        facts,
        version=text(answer.get("version"), 64) or facts.version,
        batch_limit_requests=min(limits, default=None) or facts.batch_limit_requests,
        gpu_name=text(answer.get("accelerator"), 64) or facts.gpu_name,
        gpu_count=whole(answer.get("num_accelerators")) or facts.gpu_count,
    )


_ARGUMENTS = (
    "version",
    "batch_limit_requests",
    "context_limit_tokens",
    "batched_tokens_limit",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "decode_context_parallel_size",
    "experts_spread",
    "speculation",
    "model_roots",
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "state_dtype",
    "all_ranks_shown",
)


def is_sglang(answer: object) -> bool:
    """Whether a model list is SGLang's (`ModelCard` of its protocol.py)."""
    return is_owned_by(answer, "sglang")


HOOKS = Hooks(
    shows=(("/v1/models", is_sglang),),
    endpoints=(
        Endpoint("/get_server_info", read_server_info, _ARGUMENTS),
        Endpoint("/server_info", read_server_info, _ARGUMENTS),
        Endpoint("/v1/models", read_models, ("context_limit_tokens", "model_names")),
        Endpoint("/v1/loads", read_loads, ("version", "batch_limit_requests", "gpu_name", "gpu_count")),
    ),
)
