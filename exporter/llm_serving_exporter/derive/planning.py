"""What a replica could do: whether it starts, what fits, bounds around its ceiling, and small formulas of capacity and cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from llm_serving_exporter.derive.roof import Ceiling, decode_ceiling, decode_ceiling_at
from llm_serving_exporter.derive.work import (
    Roof,
    attention_flops,
    experts_touched,
    group_token_bytes,
    kv_read_bytes,
    kv_stored_bytes,
    weight_held_bytes,
)
from llm_serving_exporter.model.hardware import GpuPeaks, Parallel
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct, replace
from llm_serving_exporter.model.shape import AttentionLayers, ModelFacts, Precision, Span

# --- Small formulas of capacity and cost planning. None where a divisor is not above 0: no answer is better than a wrong one.


_MILLION = 1_000_000
_SECONDS_PER_HOUR = 3600
# a quotient that is whole but for rounding must not cost one more replica
_ROUNDING = 1e-9


class Replicas(Struct, frozen=True):
    """Replicas that a load needs."""

    needed: float  # as the formula gives it
    whole: int  # rounded up


def usd_per_million_tokens(usd_per_hour: float, tokens_per_second: float) -> float | None:
    """Price of a million tokens from the price of all GPUs and their throughput."""
    if tokens_per_second <= 0:
        return None
    return usd_per_hour / (tokens_per_second * _SECONDS_PER_HOUR) * _MILLION


def replicas(
    peak_requests_per_second: float, input_tokens: float, output_tokens: float, tokens_per_second_per_replica: float,
    target_utilisation: float, redundancy: float = 1.0,
) -> Replicas | None:  # fmt: skip
    """Replicas for a peak load. `tokens_per_second_per_replica` counts the same tokens as the load: prompt and output together."""
    usable = tokens_per_second_per_replica * target_utilisation
    if not usable > 0:
        return None
    needed = peak_requests_per_second * (input_tokens + output_tokens) / usable * redundancy
    if not math.isfinite(needed):
        return None
    return Replicas(needed, max(0, math.ceil(needed - _ROUNDING)))


def speculated_tokens(acceptance: float, drafts: int) -> float | None:
    """Mean tokens of a sequence-step with `drafts` drafted tokens, each accepted with probability `acceptance` if those before it were
    (Leviathan et al. 2023, arXiv 2211.17192): 1 + a + a^2 + ... + a^g. None outside of 0 to 1 and for a negative number of drafts."""
    if not 0 <= acceptance <= 1 or drafts < 0:
        return None
    if acceptance == 1:
        return 1.0 + drafts
    return (1 - acceptance ** (drafts + 1)) / (1 - acceptance)


# --- What one replica could do, over all of its data-parallel ranks: the expected ceiling, and what lies around it (design section 6).
#
# Expected: independent uniform routing, the peaks that are believed, each format at the rate that engines multiply it at. Upper, which
# nothing real is above: the luckiest routing, the highest published peaks, the fastest rate that the hardware has for what is stored, and
# dense matrices spread over the ranks too. Lower: no two tokens agree on an expert. Neither knows of a prefix that sequences share and
# read once (cascade attention): each sequence has a context of its own.


# stored bits, scales included, up to which a weight can be an operand of a rate: 8-bit formats have up to 8.5, 4-bit ones up to 5
_MOST_BITS: Mapping[Precision, float] = {
    Precision.FP4: 5.0,
    Precision.FP8: 9.0,
    Precision.INT8: 9.0,
    Precision.BF16: 64.0,
}


class Speculation(Struct, frozen=True):
    """Drafted tokens of each sequence and step."""

    drafts: int = 0  # tokens that each step checks besides its own
    # probability that a draft is accepted if those before it were; None: not known, counted as if none were
    acceptance: float | None = None

    @property
    def computed(self) -> int:
        """Tokens that a step computes for each sequence."""
        return 1 + self.drafts

    @property
    def yielded(self) -> float:
        """Tokens that a sequence gets out of a step on average."""
        return 1.0 if self.acceptance is None else speculated_tokens(self.acceptance, self.drafts) or 1.0


NO_SPECULATION = Speculation()


class DecodeBounds(Struct, frozen=True):
    """Decode of one replica, all ranks together. Rates count tokens, those of accepted drafts included."""

    expected: Ceiling  # its arms and its step; `tokens_per_second` is what plans rest on
    upper_tokens_per_second: float  # nothing real is above
    lower_tokens_per_second: float | None  # None where it is the expected one


def bound_decode(
    roof: Roof, batch: float, context_tokens: float, speculation: Speculation = NO_SPECULATION
) -> DecodeBounds | None:
    """Of `batch` sequences over all ranks, `context_tokens` each. None as for `roof.decode_ceiling`."""
    ranks = roof.parallel.data
    rank_batch, computed = batch / ranks, float(speculation.computed)
    ceiling = decode_ceiling(roof, rank_batch, context_tokens, tokens_per_step=computed)
    if ceiling is None:
        return None
    factor = ranks * speculation.yielded
    lower = _bound_slowest(roof, rank_batch, context_tokens, computed)
    upper = _fastest_rank(roof, rank_batch, context_tokens, computed) * ranks * computed
    return DecodeBounds(
        _scale_ceiling(ceiling, factor),
        upper,
        lower * factor if lower is not None and lower < ceiling.tokens_per_second else None,
    )


def replica_ceiling(roof: Roof, batch: float, context_tokens: float) -> Ceiling | None:
    """The expected ceiling alone, one token a sequence and step."""
    ranks = roof.parallel.data
    ceiling = decode_ceiling(roof, batch / ranks, context_tokens)
    return None if ceiling is None else _scale_ceiling(ceiling, ranks)


def fastest_rate(peaks: GpuPeaks, stored_bits: float) -> float | None:
    """FLOP/s of the fastest rate that weights of so many bits can be multiplied at, by the highest peaks published; None: not known."""
    rates = {**peaks.flops, **peaks.flops_upper}
    return max(
        (rates[kind] for kind, most in _MOST_BITS.items() if kind in rates and stored_bits <= most), default=None
    )


def _scale_ceiling(one: Ceiling, factor: float) -> Ceiling:
    compute = one.compute_tokens_per_second
    return replace(
        one,
        tokens_per_second=one.tokens_per_second * factor,
        bandwidth_tokens_per_second=one.bandwidth_tokens_per_second * factor,
        compute_tokens_per_second=None if compute is None else compute * factor,
    )


def _micro(roof: Roof, rank_batch: float) -> float:
    return max(rank_batch / roof.parallel.pipeline, 1.0 / roof.parallel.data)


def _bound_slowest(roof: Roof, rank_batch: float, context_tokens: float, computed: float) -> float | None:
    touched = experts_touched(roof, _micro(roof, rank_batch) * computed)
    if touched is None:
        return None
    ceiling = decode_ceiling_at(roof, rank_batch, context_tokens, touched.upper, tokens_per_step=computed)
    return None if ceiling is None else ceiling.tokens_per_second


def _fastest_rank(roof: Roof, rank_batch: float, context_tokens: float, computed: float) -> float:
    """Sequence-steps/s of one rank that nothing real is above."""
    micro, gpus = _micro(roof, rank_batch), roof.parallel.tensor
    moved = _least_weight_bytes(roof, micro * computed) + micro * _least_kv_bytes(roof, context_tokens)
    peaks = roof.peaks
    bandwidth = max(peaks.bandwidth_upper_bytes_per_second or 0.0, peaks.bandwidth_bytes_per_second or 0.0)
    seconds = moved / (bandwidth * gpus)
    computing = _least_compute_seconds(roof, context_tokens)
    if computing is not None:
        seconds = max(seconds, micro * computed * computing / gpus)
    return rank_batch / seconds


def _least_weight_bytes(roof: Roof, tokens: float) -> float:
    groups, ranks = roof.model.groups, roof.parallel.data
    spread = add_up(group.ffn_bytes + group.lm_head_bytes for group in groups)
    touched = experts_touched(roof, tokens)
    routed = touched.lower * roof.routed_bytes if touched is not None else 0.0
    return roof.read_whole_bytes - spread * (1 - 1 / ranks) + routed


def _least_kv_bytes(roof: Roof, context_tokens: float) -> float:
    unread = add_up(
        group_token_bytes(roof.model, roof.parallel, group) * skipped
        for group, skipped in _list_new_chunks(roof, context_tokens)
    )
    return kv_read_bytes(roof, context_tokens) - unread


def _least_compute_seconds(roof: Roof, context_tokens: float) -> float | None:
    """Of one token on one GPU; None where no rate for what is stored is known. Attention at the fastest rate of all: there are kernels
    that quantise it (SageAttention, FlashAttention-3)."""
    seconds, per_token = 0.0, roof.model.geometry.experts_per_token
    for group in roof.model.groups:
        passed = group.fixed_parameters + group.lm_head_parameters + per_token * group.expert_parameters
        rate = fastest_rate(roof.peaks, group.format.bits)
        if passed and not rate:
            return None
        seconds += 2 * passed / rate if rate else 0.0
    fastest = fastest_rate(roof.peaks, 0.0)
    if not fastest:
        return seconds
    looked = attention_flops(roof, context_tokens) + roof.index_flops * context_tokens
    unlooked = add_up(
        alike.layers * alike.decode_flops * skipped for alike, skipped in _list_new_chunks(roof, context_tokens)
    )
    return seconds + (looked - unlooked) / fastest


def _list_new_chunks(roof: Roof, context_tokens: float) -> Iterator[tuple[AttentionLayers, float]]:
    """Chunked layers whose chunk may just have begun, with the tokens that they then do not look at: all but one."""
    for group in roof.model.geometry.attention:
        if group.span is Span.CHUNKED and context_tokens > (group.window_tokens or 0):
            yield group, group.tokens_read(context_tokens) - 1.0


# --- What engines refuse to start: layouts that heads do not divide into, contexts beyond the model's, formats that a card lacks.
#
# vLLM's checks, which SGLang and TensorRT-LLM share in substance (vllm/config/model.py verify_with_parallel_config and
# _verify_and_get_max_model_len; vllm/v1/worker/gpu_worker.py _check_if_gpu_supports_dtype; read at 0.20 to 0.33).


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


# --- Whether a model fits its GPUs, and how many sequences then do.


class Fit(Struct, frozen=True):
    """Bytes over all GPUs of one replica."""

    fits: bool  # whether the weights and one sequence of the context asked for do
    free_kv_bytes: float  # what the weights and the overhead leave; negative: that much is missing
    max_batch: int | None  # sequences of that context that fit at once; None for a model that keeps nothing of them
    weight_bytes: float  # of all the weights
    kv_bytes_per_sequence: float  # of one such sequence
    ranks: int = 1  # data-parallel ranks
    unreserved_bytes: float = 0.0  # of `free_kv_bytes`, and what of recurrent state is taken before a sequence runs

    @property
    def shortfall_bytes(self) -> float:
        """What is missing for the weights and one sequence of each rank; 0 where they fit."""
        return max(0.0, self.ranks * self.kv_bytes_per_sequence - self.free_kv_bytes)


def check_fit(
    roof: Roof,
    memory_bytes_per_gpu: float,
    *,
    utilisation: float = 1.0,
    overhead_bytes: float = 0.0,
    context_tokens: float,
    reserved: int = 0,
) -> Fit:
    """What is left for KV when each GPU gives `utilisation` of its memory, less `overhead_bytes` a GPU (activations, CUDA graphs,
    buffers). Weights and KV count as evenly spread over the GPUs of a data-parallel rank; a sequence stays within its rank.
    `reserved`: sequences of all ranks whose recurrent state is taken before one runs."""
    ranks = roof.parallel.data
    weights = ranks * weight_held_bytes(roof)
    unreserved = roof.parallel.gpus * (memory_bytes_per_gpu * utilisation - overhead_bytes) - weights
    sequence = kv_stored_bytes(roof, context_tokens)
    free = unreserved - reserved * roof.model.state_bytes_per_sequence()
    if sequence <= 0:
        return Fit(free >= 0, free, None if free >= 0 else 0, weights, 0.0, ranks, unreserved)
    batch = count_sequences(roof, free, sequence, reserved)
    return Fit(batch > 0, free, batch, weights, sequence, ranks, unreserved)


def count_sequences(roof: Roof, free_bytes: float, sequence_bytes: float, reserved: int = 0) -> int:
    """Sequences of all ranks that what is free of all GPUs holds. `sequence_bytes`: of one, recurrent state included; `free_bytes`: without
    the state of the `reserved` ones."""
    ranks = roof.parallel.data
    each = sequence_bytes - (roof.model.state_bytes_per_sequence() if reserved else 0.0)
    if each <= 0:
        return reserved if free_bytes >= 0 else 0
    return ranks * max(0, math.floor(free_bytes / ranks / each))


def least_gpus(weight_bytes: float, memory_bytes_per_gpu: float) -> int | None:
    """GPUs whose memory the weights alone need; None without memory."""
    if memory_bytes_per_gpu <= 0:
        return None
    return max(1, math.ceil(weight_bytes / memory_bytes_per_gpu))
