"""What the shipped arithmetic says of a point: the expected rate, and what nothing real is above. The one place that asks for it."""

from __future__ import annotations

from dataclasses import dataclass

from llm_serving_exporter.derive.roof import (
    compute_seconds,
    decode_ceiling_band,
    kv_token_bytes,
    prefill_floor_seconds,
    prefill_flops,
    weight_read_bytes,
)
from llm_serving_exporter.errors import FactsError
from tests.support.models.points import Phase, Point


@dataclass(frozen=True)
class Bounds:
    """Tokens/s of the replica."""

    # `tokens_per_second` of `ceiling`, or the prompts' tokens over the floor of their time
    expected: float
    # the same with the luckiest routing, or at the fastest rate that the GPU has
    upper: float


def ask_bounds(point: Point) -> Bounds | None:
    """None where a catalogue does not know the model or the GPU, and for layouts that cannot be asked for."""
    if point.dp > 1:
        return None
    try:
        roof = point.roof
    except FactsError:
        return None
    if point.phase is Phase.DECODE:
        band = decode_ceiling_band(roof, point.batch, point.context)
        assert band is not None, f"{point}: no ceiling"
        return Bounds(band.expected.tokens_per_second, band.upper.tokens_per_second)
    floor = prefill_floor_seconds(roof, point.prompt, point.prefix)
    new = point.prompt - point.prefix
    flops = prefill_flops(roof, new, point.prefix)
    assert floor is not None, f"{point}: no floor"
    assert compute_seconds(roof, flops), f"{point}: no rate"
    bandwidth = (roof.peaks.bandwidth_bytes_per_second or 0.0) * point.tp
    moving = (weight_read_bytes(roof, new).lower + new * kv_token_bytes(roof)) / bandwidth
    fastest = max(sum(flops.values()) / max(roof.peaks.flops.values()) / point.tp, moving)
    return Bounds(new / floor, new / fastest)
