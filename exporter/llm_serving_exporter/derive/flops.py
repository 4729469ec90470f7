"""Floating-point work of prefill and decode, by the precision it runs at (facts model-math B.10).

Left out: norms, softmax, activation functions, the scan of recurrent layers. INT8 operations count as FLOPs.
"""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.derive.reads import Roof, choose_rate
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.shape import AttentionLayers, Precision, Span


def token_flops(roof: Roof, context_tokens: float) -> dict[Precision, float]:
    """One decode token: 2 FLOPs for each matrix parameter it passes, lm_head included, attention over its context at BF16, indexers' at FP8
    where the GPU has it."""
    work = _matrices(roof, 1.0, sampled_tokens=1.0)
    _add(work, Precision.BF16, attention_flops(roof, context_tokens))
    if roof.index_flops:
        _add(work, choose_rate(roof.peaks, Precision.FP8), roof.index_flops * context_tokens)
    return work


def attention_flops(roof: Roof, context_tokens: float) -> float:
    """Of these, what attention takes, indexers apart."""
    looked = roof.cross_flops
    for each, most in roof.attention_terms:
        looked += each * (context_tokens if most is None else min(context_tokens, most))
    return looked


def prefill_flops(
    roof: Roof, new_tokens: float, prefix_tokens: float = 0.0, sampled_tokens: float = 1.0
) -> dict[Precision, float]:
    """One prompt: `new_tokens` computed behind `prefix_tokens` that are in the KV cache; `sampled_tokens` of them need logits."""
    work = _matrices(roof, new_tokens, sampled_tokens=sampled_tokens)
    contexts = _mutual if roof.model.geometry.bidirectional else _causal
    looked = roof.cross_flops * new_tokens + add_up(
        group.layers * group.prefill_flops / group.compress_ratio * contexts(group, new_tokens, prefix_tokens)
        for group in roof.model.geometry.attention
        if group.span is not Span.CROSS
    )
    _add(work, Precision.BF16, looked)
    if roof.index_flops:
        pairs = _pairs(prefix_tokens + new_tokens) - _pairs(prefix_tokens)
        _add(work, choose_rate(roof.peaks, Precision.FP8), roof.index_flops * pairs)
    return work


def matrix_flops(roof: Roof, tokens: float) -> dict[Precision, float]:
    """What the matrices alone take for prompt tokens that nothing is sampled from: at least what computing them takes."""
    return _matrices(roof, tokens, sampled_tokens=0.0)


def routed_flops(roof: Roof, tokens: float) -> dict[Precision, float]:
    """Of these, what the routed experts take."""
    work: dict[Precision, float] = {}
    per_token = roof.model.geometry.experts_per_token
    for (precision, _, _), group in zip(roof.matrix_terms, roof.model.groups, strict=True):
        if group.expert_parameters:
            work[precision] = work.get(precision, 0.0) + 2.0 * tokens * per_token * group.expert_parameters
    return work


def compute_seconds(roof: Roof, flops: Mapping[Precision, float], *, gpus: int | None = None) -> float | None:
    """Time that the work needs at the dense peak of all GPUs of the engine (one rank), or of `gpus` of them.

    None where a rate is not known."""
    seconds = 0.0
    for precision, amount in flops.items():
        peak = roof.peaks.flops.get(precision)
        if amount > 0:
            if not peak or peak <= 0:
                return None
            seconds += amount / peak
    return seconds / (gpus if gpus is not None else roof.parallel.rank_gpus)


def _matrices(roof: Roof, tokens: float, *, sampled_tokens: float) -> dict[Precision, float]:
    work: dict[Precision, float] = {}
    for precision, each, sampled in roof.matrix_terms:
        passed = tokens * each + sampled_tokens * sampled
        if passed > 0:
            work[precision] = work.get(precision, 0.0) + 2.0 * passed
    return work


def _add(work: dict[Precision, float], rate: Precision, flops: float) -> None:
    if flops > 0:
        work[rate] = work.get(rate, 0.0) + flops


def _mutual(group: AttentionLayers, new_tokens: float, prefix_tokens: float) -> float:
    """Bidirectional encoders: every token looks at all of them."""
    return new_tokens * group.tokens_read(prefix_tokens + new_tokens)


def _causal(group: AttentionLayers, new_tokens: float, prefix_tokens: float) -> float:
    """Sum over the new tokens of the context that each looks at, itself included: s P + s (s + 1) / 2 where no window cuts it."""
    return max(0.0, _triangle(group, prefix_tokens + new_tokens) - _triangle(group, prefix_tokens))


def _triangle(group: AttentionLayers, tokens: float) -> float:
    """The same sum over a prompt's first `tokens` tokens."""
    window = group.window_tokens if group.top_entries is None else _sparse_limit(group)
    if window is None or tokens <= window:
        return _pairs(tokens)
    full = window * (window + 1) / 2
    if group.span is Span.CHUNKED:
        chunks, rest = divmod(tokens, window)
        return chunks * full + rest * (rest + 1) / 2
    return full + (tokens - window) * window


def _pairs(tokens: float) -> float:
    return tokens * (tokens + 1) / 2


def _sparse_limit(group: AttentionLayers) -> float | None:
    """Tokens of context from which on a prompt's token costs no more: there, what is picked is as dear as all of it.

    Engines take the cheaper: prompts up to what is picked are computed densely with MLA's expanded heads (SGLang's "MHA_ONE_SHOT",
    vLLM's dense path), longer ones sparsely in the absorbed form, which is dearer a token.
    """
    most = group.most_tokens
    return None if most is None or not group.prefill_flops else most * group.decode_flops / group.prefill_flops
