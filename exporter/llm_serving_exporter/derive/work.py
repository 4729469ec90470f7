"""Bytes that a step moves and FLOPs that it computes, all GPUs of one engine together (facts model-math B, C, D)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from llm_serving_exporter.model.derived import Range
from llm_serving_exporter.model.hardware import GpuPeaks, Parallel
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.shape import AttentionLayers, ModelFacts, Part, Precision, Span

# --- How many distinct routed experts the tokens of a step touch (facts model-math C).


# a figure with what it may lie between: experts, bytes
Band = Range

_NONE = Band(0.0, 0.0, 0.0)


def estimate_touched_experts(experts: int, per_token: int, tokens: float) -> Band:
    """Distinct experts of one layer that `tokens` tokens touch, each passing `per_token` of `experts`; zeros for a dense model.

    Lower: all tokens agree. Expected: independent, uniform routing, E (1 - (1 - k/E)^T), since one token misses an expert with probability
    1 - k/E; real routing is skewed and correlated and lies between lower and expected. Upper: no two tokens agree, min(T k, E).
    Below one token (a mean over steps some of which have none) all three are the token's share, T k.
    """
    if experts <= 0 or per_token <= 0 or not tokens > 0:
        return _NONE
    k = min(per_token, experts)
    if tokens <= 1:
        return Band(tokens * k, tokens * k, tokens * k)
    upper = min(tokens * k, float(experts))
    missed = tokens * math.log1p(-k / experts) if k < experts else -math.inf
    # the bounds hold by arithmetic; min and max only take back the last digit of rounding
    return Band(float(k), max(float(k), min(-experts * math.expm1(missed), upper)), upper)


# --- Bytes that a step moves from and to HBM, all GPUs of one engine (a data-parallel rank) together (facts model-math B.9, D.2, D.3).


# engines compute in 16 bits whatever the weights are stored in
ACTIVATION_ELEMENT_BYTES = 2


@dataclass(frozen=True, slots=True)
class Roof:
    """What one engine works with: a data-parallel rank of a replica, or the whole replica where it has one rank.

    Where ranks share routed experts, all of them count as equally busy: figures of the rank times `parallel.data` are the replica's.
    """

    model: ModelFacts  # the model that it serves
    peaks: GpuPeaks  # of one of its GPUs, which are all alike
    parallel: Parallel  # how the GPUs of the replica share the work
    # weights that each tensor-parallel rank keeps whole: 0 for vLLM, the lm_head for engines that do not shard it
    replicated_bytes: float = 0.0
    # what follows from these alone and is asked for dozens of times a tick: bytes of the weights that each step reads, the lm_head included
    read_whole_bytes: float = field(init=False, repr=False, compare=False)
    unsampled_bytes: float = field(init=False, repr=False, compare=False)  # the same without the lm_head
    # bytes of one routed expert in each layer, of those that this engine has
    routed_bytes: float = field(init=False, repr=False, compare=False)
    # KV bytes that a step reads of a token over all ranks, and the tokens of context from which on it reads no more, None without such
    kv_terms: tuple[tuple[float, int | None], ...] = field(init=False, repr=False, compare=False)
    # the same where a step reads every token of context once and nothing else of a sequence, so that the tokens in use tell it all; None:
    # windows, indexers or state make it another sum
    token_read_bytes: float | None = field(init=False, repr=False, compare=False)
    # what a computed token moves beside weights and KV read, by `estimate_activation_bytes`
    activation_bytes: Band = field(init=False, repr=False, compare=False)
    # what a token adds to the KV cache over all ranks
    token_kept_bytes: float = field(init=False, repr=False, compare=False)
    # what a step reads of a sequence whatever its context: recurrent state, which it writes too, and an encoder's tokens
    state_moved_bytes: float = field(init=False, repr=False, compare=False)
    # of each format of weights: the rate that its matrices run at, parameters that a token passes, those of the lm_head
    matrix_terms: tuple[tuple[Precision, int, int], ...] = field(init=False, repr=False, compare=False)
    # FLOPs of a decode token's attention for each token of context, and the tokens from which on it looks at no more, None without such
    attention_terms: tuple[tuple[float, int | None], ...] = field(init=False, repr=False, compare=False)
    index_flops: float = field(init=False, repr=False, compare=False)  # the same of indexers, which look at all of it
    cross_flops: float = field(init=False, repr=False, compare=False)  # of cross attention, whatever the context

    # by tokens of a step, the ridge without context: the last one that was asked for
    weights_ridge: dict[float, float | None] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        groups, ranks = self.model.groups, (self.parallel.tensor - 1) * self.replicated_bytes
        terms, state = _read_terms(self.model, self.parallel), self.model.state_bytes_per_sequence()
        moved = 2 * state + encoder_kept_bytes(self.model, self.parallel)
        linear = len(terms) == 1 and terms[0][1] is None and not moved
        values = {
            "read_whole_bytes": add_up(group.fixed_bytes + group.lm_head_bytes for group in groups) + ranks,
            "unsampled_bytes": add_up(group.fixed_bytes for group in groups) + ranks,
            "routed_bytes": add_up(group.expert_bytes for group in groups) / self.parallel.sharing_ranks,
            "kv_terms": terms,
            "token_read_bytes": terms[0][0] if linear else None,
            "activation_bytes": estimate_activation_bytes(self.model),
            "token_kept_bytes": kept_token_bytes(self.model, self.parallel),
            "state_moved_bytes": moved,
            "matrix_terms": tuple(
                (
                    choose_rate(self.peaks, group.format.multiplied),
                    group.fixed_parameters + self.model.geometry.experts_per_token * group.expert_parameters,
                    group.lm_head_parameters,
                )
                for group in groups
            ),
            "attention_terms": _merge_terms(
                (group.layers * group.decode_flops / group.compress_ratio, group.most_tokens)
                for group in self.model.geometry.attention
                if group.span is not Span.CROSS
            ),
            "index_flops": add_up(group.index_flops() for group in self.model.geometry.attention),
            "cross_flops": add_up(
                group.layers * group.decode_flops * (group.encoder_tokens or 0)
                for group in self.model.geometry.attention
            ),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)


def choose_rate(peaks: GpuPeaks, multiplied: Precision) -> Precision:
    """The rate that matrices of a format run at on a GPU: without a native path they are dequantised to BF16.

    FP32 stays what it is: a GPU of which that rate is not known is not faster for it.
    """
    if multiplied in peaks.flops or multiplied is Precision.FP32:
        return multiplied
    return Precision.BF16


def weight_read_bytes(roof: Roof, tokens: float, *, sampled: bool = True) -> Band:
    """Weights that a step of `tokens` tokens reads: everything once, of routed experts those touched, of the input embedding nothing.

    `sampled`: some token of the step needs logits, so that the lm_head is read. Where experts are spread over several engines, their tokens
    all route here: the engine reads its part of the experts that all tokens together touch, engines taken as equally busy.
    """
    whole = roof.read_whole_bytes if sampled else roof.unsampled_bytes
    distinct = experts_touched(roof, tokens)
    if distinct is None:
        return Band(whole, whole, whole)
    routed = roof.routed_bytes
    return Band(whole + distinct.lower * routed, whole + distinct.expected * routed, whole + distinct.upper * routed)


def experts_touched(roof: Roof, tokens: float) -> Band | None:
    """Distinct experts of a layer that a step of `tokens` tokens touches, with the tokens of the engines that share the experts; None for a
    dense model."""
    geometry = roof.model.geometry
    if not geometry.experts:
        return None
    return estimate_touched_experts(geometry.experts, geometry.experts_per_token, tokens * roof.parallel.token_ranks)


def weight_held_bytes(roof: Roof) -> float:
    """Weights in the memory of the engine's GPUs, input embedding included."""
    elsewhere = experts_elsewhere_bytes(roof.model, roof.parallel)
    return roof.model.weight_bytes - elsewhere + (roof.parallel.tensor - 1) * roof.replicated_bytes


def experts_elsewhere_bytes(model: ModelFacts, parallel: Parallel) -> float:
    """Routed experts that other engines keep; 0 where each engine has all of its own."""
    routed = add_up(group.expert_bytes for group in model.groups) * model.geometry.experts
    return routed * (1 - 1 / parallel.sharing_ranks)


def estimate_activation_bytes(model: ModelFacts) -> Band:
    """Bytes that one computed token moves beside the weights of its step and the KV that is read: activations, its own KV, what large
    matrix products read again.

    Fitted to GPM in 29 steady phases of Llama-3.1-8B and Qwen3-30B-A3B on one H100 with vLLM 0.25.1 and SGLang 0.5.17
    (tests/truth/test_h100.py). Two forms fit them alike and differ for other models (110 and 180 MB for a dense 70B): they are the bounds,
    and their mean is the figure.
    """
    geometry = model.geometry
    hidden, layers = geometry.hidden_size, geometry.layers
    mlps = [module for module in geometry.modules if module.part in (Part.FFN, Part.EXPERT)]
    routed = {layer for module in mlps if module.part is Part.EXPERT for layer in module.layers}
    elements = 12.0 * hidden * layers
    for group in geometry.attention:
        queries = group.prefill_flops / 4
        projected = queries + group.kv_elements
        elements += group.layers * (3 * projected + 3 * queries)
        elements += 2 * projected * group.layers * len(routed) / layers
    # gate, up and down together are 6 x the intermediate width
    elements += add_up(2 * module.matrix * module.per_token * module.places for module in mlps) / hidden
    elements += 3 * geometry.experts_per_token * hidden * len(routed)
    active = add_up(
        group.fixed_bytes + group.lm_head_bytes + geometry.experts_per_token * group.expert_bytes
        for group in model.groups
    )
    by_width = 84 * ACTIVATION_ELEMENT_BYTES * layers * hidden
    by_matrices = 0.65 * ACTIVATION_ELEMENT_BYTES * elements + active / 950
    lower, upper = sorted((float(by_width), by_matrices))
    return Band(lower, (lower + upper) / 2, upper)


def kv_read_bytes(roof: Roof, context_tokens: float) -> float:
    """What one sequence's decode step reads of its KV cache, windows, chunks and what indexers pick respected, of the indexers' keys all,
    and what it reads and writes of recurrent state."""
    kv = 0.0
    for token_bytes, most in roof.kv_terms:
        kv += token_bytes * (context_tokens if most is None else min(context_tokens, most))
    return kv + roof.state_moved_bytes


def kv_token_bytes(roof: Roof) -> float:
    """What one token adds to the KV cache, every attention layer that keeps it and every rank's copy counted."""
    return roof.token_kept_bytes


def kept_token_bytes(model: ModelFacts, parallel: Parallel) -> float:
    """The same where no peak is known, and so no roof."""
    groups = model.geometry.attention
    entries = add_up(group_token_bytes(model, parallel, group) for group in groups if group.kept)
    return entries + add_up(_index_bytes(parallel, group) for group in groups)


def encoder_kept_bytes(model: ModelFacts, parallel: Parallel) -> float:
    """What cross attention keeps of a sequence's encoder, as far as its tokens are known."""
    return add_up(
        group.encoder_tokens
        * group.layers
        * group.kv_elements
        * model.kv_bytes_per_element
        * parallel.count_kv_copies(group.kv_heads)
        for group in model.geometry.attention
        if group.encoder_tokens
    )


def kv_stored_bytes(roof: Roof, context_tokens: float) -> float:
    """What one sequence of that context keeps in the engine's memory, recurrent state included.

    Sliding and chunked layers keep at most their window.
    """
    kv = encoder_kept_bytes(roof.model, roof.parallel)
    for group in roof.model.geometry.attention:
        kv += _index_bytes(roof.parallel, group) * context_tokens
        if group.kept:
            window = context_tokens if group.window_tokens is None else group.window_tokens
            kv += group_token_bytes(roof.model, roof.parallel, group) * min(context_tokens, window)
    return kv + roof.model.state_bytes_per_sequence()


def group_token_bytes(model: ModelFacts, parallel: Parallel, group: AttentionLayers) -> float:
    """Of a token, over all tensor-parallel GPUs, copies included."""
    copies = parallel.count_kv_copies(group.kv_heads)
    return group.layers * group.token_elements * model.kv_bytes_per_element * copies


def _index_bytes(parallel: Parallel, group: AttentionLayers) -> float:
    """The same of an indexer's keys, of which there is one for all heads: every GPU picks for itself."""
    return group.index_bytes() * parallel.count_kv_copies(1)


def _read_terms(model: ModelFacts, parallel: Parallel) -> tuple[tuple[float, int | None], ...]:
    groups = model.geometry.attention
    kv = [(group_token_bytes(model, parallel, group), group.most_tokens) for group in groups]
    return _merge_terms([*kv, *((_index_bytes(parallel, group), None) for group in groups)])


def _merge_terms(terms: Iterable[tuple[float, int | None]]) -> tuple[tuple[float, int | None], ...]:
    """One term for all that stop at the same number of tokens; none for nothing."""
    by_most: dict[int | None, float] = {}
    for each, most in terms:
        if each:
            by_most[most] = by_most.get(most, 0.0) + each
    return tuple((each, most) for most, each in by_most.items())


# --- Floating-point work of prefill and decode, by the precision it runs at (facts model-math B.10).
#
# Left out: norms, softmax, activation functions, the scan of recurrent layers. INT8 operations count as FLOPs.


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
