"""What the shipped arithmetic says of a point: the expected rate, and what nothing real is above. The one place that asks for it."""

from __future__ import annotations

from dataclasses import dataclass

from llm_serving_exporter.derive.planning import bound_decode
from llm_serving_exporter.derive.work import (
    compute_seconds,
    kv_read_bytes,
    kv_token_bytes,
    prefill_flops,
    weight_read_bytes,
)
from llm_serving_exporter.errors import FactsError
from tests.support.models.points import Phase, Point


@dataclass(frozen=True)
class Bounds:
    """Tokens/s of the replica."""

    # `tokens_per_second` of `ceiling`, or the prompts' tokens over the least time of their FLOPs and bytes
    expected: float
    # the same with the luckiest routing, or at the fastest rate that the GPU has
    upper: float


def ask_bounds(point: Point) -> Bounds | None:
    """None where a catalogue does not know the model or the GPU. Prompts count as evenly spread over the ranks."""
    try:
        roof = point.roof
    except FactsError:
        return None
    if point.phase is Phase.DECODE:
        found = bound_decode(roof, point.batch, point.context)
        assert found is not None, f"{point}: no ceiling"
        return Bounds(found.expected.tokens_per_second, found.upper_tokens_per_second)
    new, ranks = point.prompt - point.prefix, point.dp
    # prompts of one rank; a replica that has fewer than ranks leaves some idle
    each = max(1.0, point.batch / ranks)
    flops = prefill_flops(roof, new, point.prefix)
    computing = compute_seconds(roof, flops, gpus=point.tp)
    assert computing, f"{point}: no rate"
    bandwidth = (roof.peaks.bandwidth_bytes_per_second or 0.0) * point.tp
    read = weight_read_bytes(roof, each * new)
    kept = each * (new * kv_token_bytes(roof) + (kv_read_bytes(roof, point.prefix) if point.prefix else 0.0))
    expected = max(each * computing, (read.expected + kept) / bandwidth)
    rates = {**roof.peaks.flops, **roof.peaks.flops_upper}
    fastest = max(each * sum(flops.values()) / max(rates.values()) / point.tp, (read.lower + kept) / bandwidth)
    tokens = min(point.batch, each * ranks) * new
    return Bounds(tokens / expected, tokens / fastest)
