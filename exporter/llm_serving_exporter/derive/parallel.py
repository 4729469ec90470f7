"""How an engine's work is spread over GPUs: what is configured, what the server says, else what the number of GPUs suggests."""

from __future__ import annotations

from llm_serving_exporter.model.hardware import Parallel
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.snapshot import ServerFacts
from llm_serving_exporter.model.target import Target


class Spread(Struct, frozen=True):
    """How a target's GPUs are shared among its engines. None: nothing says it."""

    # how the work of one engine is spread
    parallel: Parallel | None
    # the engine's share of the target's GPUs, which need not be whole; never fewer than `parallel` has
    gpus_per_engine: float | None
    # whether it is a guess that an engine's GPUs are one tensor-parallel group
    assumed: bool = False
    # whether the server has a size above one of a way to spread work that these figures do not know
    unread: bool = False


def spread_engines(target: Target, facts: ServerFacts, gpus: int | None, engines: int) -> Spread:
    """For one engine of a target whose page shows `engines` of them on `gpus` GPUs (None: not known).

    Configuration over the server's own word; without either, all GPUs of an engine are taken for one tensor-parallel group, which
    is how engines start by default and what one GPU can only be. An engine that spans nodes has more GPUs than are seen
    here. Data-parallel ranks share one set of routed experts unless somebody says that they do not: vLLM's do with and without
    expert parallelism, those of SGLang, TensorRT-LLM and LMDeploy under data-parallel attention.
    """
    engines = count_engines(facts, engines)
    tensor = target.tensor_parallel_size or facts.tensor_parallel_size
    pipeline = target.pipeline_parallel_size or facts.pipeline_parallel_size
    ranks = target.data_parallel_size or facts.data_parallel_size or engines
    shared = shares_experts(target, facts)
    context = target.decode_context_parallel_size or facts.decode_context_parallel_size or 1
    said = facts.gpu_count * engines if facts.gpu_count else None
    count = gpus if gpus is not None else target.gpu_count or said
    per_engine = count / engines if count else None
    if facts.unread_parallel_sizes or (facts.prefill_context_parallel_size or 1) > 1:
        return Spread(None, per_engine, unread=True)
    assumed = False
    stages = pipeline or 1
    if tensor is None and per_engine is not None and per_engine % stages == 0:
        tensor, assumed = int(per_engine) // stages, per_engine > stages
    if tensor is None:
        return Spread(None, per_engine)
    experts = tensor * ranks if shared and ranks > 1 else 1
    parallel = Parallel(tensor, stages, ranks, experts, context if tensor % context == 0 else 1)
    return Spread(parallel, max(float(parallel.rank_gpus), per_engine or 0.0), assumed)


def count_engines(facts: ServerFacts, shown: int) -> int:
    """Engines of a target whose page shows so many: of a server that speaks for all of its ranks, also those that have not worked yet."""
    return max(1, shown, (facts.data_parallel_size or 1) if facts.all_ranks_shown else 1)


def shares_experts(target: Target, facts: ServerFacts) -> bool:
    """Whether the data-parallel ranks of a mixture-of-experts model share one set of routed experts: as configured, else as the server
    says, else true."""
    return facts.experts_spread is not False if target.experts_shared is None else target.experts_shared
