"""Bytes that a step moves from and to HBM, all GPUs of one engine together (facts model-math B.9, D.2, D.3).

Activations are left out: for decode-sized batches they stay in the GPUs' caches.
"""

from __future__ import annotations

from dataclasses import dataclass

from llm_serving_exporter.derive.experts import Band, estimate_touched_experts
from llm_serving_exporter.model.geometry import AttentionLayers
from llm_serving_exporter.model.hardware import GpuPeaks, Parallel
from llm_serving_exporter.model.weights import ModelFacts


@dataclass(frozen=True, slots=True)
class Roof:
    """What one engine works with."""

    # the model that it serves
    model: ModelFacts
    # of one of its GPUs, which are all alike
    peaks: GpuPeaks
    # how they share the work
    parallel: Parallel
    # weights that each tensor-parallel rank keeps whole: 0 for vLLM, the lm_head for engines that do not shard it
    replicated_bytes: float = 0.0


def weight_read_bytes(roof: Roof, tokens: float, *, sampled: bool = True) -> Band:
    """Weights that a step of `tokens` tokens reads: everything once, of routed experts those touched, of the input embedding nothing.

    `sampled`: some token of the step needs logits, so that the lm_head is read. Where experts are spread over several engines, their tokens
    all route here: the engine reads its part of the experts that all tokens together touch, engines taken as equally busy.
    """
    groups = roof.model.groups
    whole = sum(group.fixed_bytes + (group.lm_head_bytes if sampled else 0.0) for group in groups)
    whole += (roof.parallel.tensor - 1) * roof.replicated_bytes
    distinct = experts_touched(roof, tokens)
    if distinct is None:
        return Band(whole, whole, whole)
    routed = sum(group.expert_bytes for group in groups) / roof.parallel.expert_engines
    return Band(
        whole + distinct.lower * routed,
        whole + distinct.expected * routed,
        whole + distinct.upper * routed,
    )


def experts_touched(roof: Roof, tokens: float) -> Band | None:
    """Distinct experts of a layer that a step of `tokens` tokens touches, with the tokens of the engines that share the experts; None for a
    dense model."""
    geometry = roof.model.geometry
    if not geometry.experts:
        return None
    return estimate_touched_experts(geometry.experts, geometry.experts_per_token, tokens * roof.parallel.expert_engines)


def weight_held_bytes(roof: Roof) -> float:
    """Weights in the memory of the engine's GPUs, input embedding included."""
    elsewhere = experts_elsewhere_bytes(roof.model, roof.parallel)
    return roof.model.weight_bytes - elsewhere + (roof.parallel.tensor - 1) * roof.replicated_bytes


def experts_elsewhere_bytes(model: ModelFacts, parallel: Parallel) -> float:
    """Routed experts that other engines keep; 0 where each engine has all of its own."""
    routed = sum(group.expert_bytes for group in model.groups) * model.geometry.experts
    return routed * (1 - 1 / parallel.expert_engines)


def kv_read_bytes(roof: Roof, context_tokens: float) -> float:
    """What one sequence's decode step reads of its KV cache, windows and chunks respected, and reads and writes of recurrent state."""
    kv = sum(
        _of_group(roof.model, roof.parallel, group) * group.tokens_read(context_tokens)
        for group in roof.model.geometry.attention
    )
    return kv + 2 * roof.model.state_bytes_per_sequence()


def kv_token_bytes(roof: Roof) -> float:
    """What one token adds to the KV cache, every attention layer and every rank's copy counted."""
    return kept_token_bytes(roof.model, roof.parallel)


def kept_token_bytes(model: ModelFacts, parallel: Parallel) -> float:
    """The same where no peak is known, and so no roof."""
    return sum(_of_group(model, parallel, group) for group in model.geometry.attention)


def kv_stored_bytes(roof: Roof, context_tokens: float, *, all_full: bool = False) -> float:
    """What one sequence of that context keeps in the engine's memory, recurrent state included.

    Sliding and chunked layers keep at most their window; `all_full`: the engine's hybrid KV manager is off, and they keep everything.
    """
    kv = 0.0
    for group in roof.model.geometry.attention:
        window = context_tokens if all_full or group.window_tokens is None else group.window_tokens
        kv += _of_group(roof.model, roof.parallel, group) * min(context_tokens, window)
    return kv + roof.model.state_bytes_per_sequence()


def _of_group(model: ModelFacts, parallel: Parallel, group: AttentionLayers) -> float:
    """Of a token, over all tensor-parallel ranks: where there are more of them than KV heads, several keep the same head (B.9)."""
    copies = parallel.tensor / min(parallel.tensor, max(1, group.kv_heads))
    return group.layers * group.kv_elements * model.kv_bytes_per_element * copies
