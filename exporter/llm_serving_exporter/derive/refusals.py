"""What engines refuse to start: layouts that heads do not divide into, contexts beyond the model's, formats that a card lacks.

vLLM's checks, which SGLang and TensorRT-LLM share in substance (vllm/config/model.py verify_with_parallel_config and
_verify_and_get_max_model_len; vllm/v1/worker/gpu_worker.py _check_if_gpu_supports_dtype; read at 0.20 to 0.33).
"""

from __future__ import annotations

from collections.abc import Iterator

from llm_serving_exporter.model.hardware import GpuPeaks, Parallel
from llm_serving_exporter.model.shape import ModelFacts

# the first compute capability that multiplies bf16; older cards have fp16 alone
_FIRST_WITH_BF16 = (8, 0)


def list_refusals(model: ModelFacts, peaks: GpuPeaks, parallel: Parallel, context_tokens: float) -> tuple[str, ...]:
    """Sentences that say what is refused, with what to do; () where engines start."""
    return tuple(_refusals(model, peaks, parallel, context_tokens))


def _refusals(model: ModelFacts, peaks: GpuPeaks, parallel: Parallel, context_tokens: float) -> Iterator[str]:
    yield from _heads(model, parallel)
    limit = model.context_limit_tokens
    if limit is not None and context_tokens > limit:
        yield (
            f"engines refuse {context_tokens:g} tokens of context: {model.name} is made for {limit} by its config; longer ones "
            "need RoPE scaling that the config states, or the engine's own override"
        )
    capability = peaks.compute_capability
    in_bf16 = any(group.format.name == "bf16" and group.fixed_parameters for group in model.groups)
    if in_bf16 and capability is not None and capability < _FIRST_WITH_BF16:
        yield (
            f"engines refuse bf16 on {peaks.name}: it needs compute capability 8.0, this has {capability[0]}.{capability[1]}; "
            "--dtype fp16 is what it can do"
        )


def _heads(model: ModelFacts, parallel: Parallel) -> Iterator[str]:
    tensor, geometry = parallel.tensor, model.geometry
    heads = {group.heads for group in geometry.attention if group.heads}
    odd = sorted(count for count in heads if count % tensor)
    if odd:
        yield f"engines refuse tensor parallelism of {tensor}: {model.name} has {odd[0]} attention heads, which {tensor} does not divide"
        return
    kv_heads = {group.kv_heads for group in geometry.attention if group.kv_elements}
    uneven = sorted(count for count in kv_heads if tensor % count and count % tensor)
    if uneven:
        yield f"{uneven[0]} KV heads do not spread evenly over {tensor} tensor-parallel ranks; engines refuse that"
        return
    if parallel.context > 1 and not geometry.mla:
        most = min((tensor // count for count in kv_heads), default=0)
        if parallel.context > most:
            yield (
                f"vLLM refuses decode context parallelism of {parallel.context}: {tensor} tensor-parallel ranks keep "
                f"{max(kv_heads, default=0)} KV heads {max(most, 1)} times, and it can be no more than that"
            )
