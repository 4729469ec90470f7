"""What one replica could do, over all of its data-parallel ranks: the expected ceiling, and what lies around it (design section 6).

Expected: independent uniform routing, the peaks that are believed, each format at the rate that engines multiply it at. Upper, which
nothing real is above: the luckiest routing, the highest published peaks, the fastest rate that the hardware has for what is stored,
and dense matrices spread over the ranks too. Lower: no two tokens agree on an expert. Neither knows of a prefix that
sequences share and read once (cascade attention): each sequence has a context of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from llm_serving_exporter.derive.flops import attention_flops
from llm_serving_exporter.derive.planning import speculated_tokens
from llm_serving_exporter.derive.reads import experts_touched, group_token_bytes, kv_read_bytes
from llm_serving_exporter.derive.roof import Ceiling, Roof, decode_ceiling, decode_ceiling_at
from llm_serving_exporter.model.hardware import GpuPeaks
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct, replace
from llm_serving_exporter.model.shape import AttentionLayers, Precision, Span

# stored bits, scales included, up to which a weight can be an operand of a rate: 8-bit formats have up to 8.5, 4-bit ones up to 5
_MOST_BITS: Mapping[Precision, float] = {
    Precision.FP4: 5.0,
    Precision.FP8: 9.0,
    Precision.INT8: 9.0,
    Precision.BF16: 64.0,
}


class Speculation(Struct, frozen=True):
    """Drafted tokens of each sequence and step."""

    # tokens that each step checks besides its own
    drafts: int = 0
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


class Bounds(Struct, frozen=True):
    """Decode of one replica, all ranks together. Rates count tokens, those of accepted drafts included."""

    # its arms and its step; `tokens_per_second` is what plans rest on
    expected: Ceiling
    # nothing real is above
    upper_tokens_per_second: float
    # None where it is the expected one
    lower_tokens_per_second: float | None


def bound_decode(
    roof: Roof, batch: float, context_tokens: float, speculation: Speculation = NO_SPECULATION
) -> Bounds | None:
    """Of `batch` sequences over all ranks, `context_tokens` each. None as for `roof.decode_ceiling`."""
    ranks = roof.parallel.data
    rank_batch, computed = batch / ranks, float(speculation.computed)
    one = decode_ceiling(roof, rank_batch, context_tokens, tokens_per_step=computed)
    if one is None:
        return None
    factor = ranks * speculation.yielded
    lower = _slowest(roof, rank_batch, context_tokens, computed)
    upper = _fastest_rank(roof, rank_batch, context_tokens, computed) * ranks * computed
    return Bounds(
        _scale(one, factor),
        upper,
        lower * factor if lower is not None and lower < one.tokens_per_second else None,
    )


def replica_ceiling(roof: Roof, batch: float, context_tokens: float) -> Ceiling | None:
    """The expected ceiling alone, one token a sequence and step."""
    ranks = roof.parallel.data
    one = decode_ceiling(roof, batch / ranks, context_tokens)
    return None if one is None else _scale(one, ranks)


def fastest_rate(peaks: GpuPeaks, stored_bits: float) -> float | None:
    """FLOP/s of the fastest rate that weights of so many bits can be multiplied at, by the highest peaks published; None: not known."""
    rates = {**peaks.flops, **peaks.flops_upper}
    return max(
        (rates[kind] for kind, most in _MOST_BITS.items() if kind in rates and stored_bits <= most), default=None
    )


def _scale(one: Ceiling, factor: float) -> Ceiling:
    compute = one.compute_tokens_per_second
    return replace(
        one,
        tokens_per_second=one.tokens_per_second * factor,
        bandwidth_tokens_per_second=one.bandwidth_tokens_per_second * factor,
        compute_tokens_per_second=None if compute is None else compute * factor,
    )


def _micro(roof: Roof, rank_batch: float) -> float:
    return max(rank_batch / roof.parallel.pipeline, 1.0 / roof.parallel.data)


def _slowest(roof: Roof, rank_batch: float, context_tokens: float, computed: float) -> float | None:
    touched = experts_touched(roof, _micro(roof, rank_batch) * computed)
    if touched is None:
        return None
    found = decode_ceiling_at(roof, rank_batch, context_tokens, touched.upper, tokens_per_step=computed)
    return None if found is None else found.tokens_per_second


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
        group_token_bytes(roof.model, roof.parallel, group) * skipped for group, skipped in _begun(roof, context_tokens)
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
    unlooked = add_up(alike.layers * alike.decode_flops * skipped for alike, skipped in _begun(roof, context_tokens))
    return seconds + (looked - unlooked) / fastest


def _begun(roof: Roof, context_tokens: float) -> Iterator[tuple[AttentionLayers, float]]:
    """Chunked layers whose chunk may just have begun, with the tokens that they then do not look at: all but one."""
    for group in roof.model.geometry.attention:
        if group.span is Span.CHUNKED and context_tokens > (group.window_tokens or 0):
            yield group, group.tokens_read(context_tokens) - 1.0
