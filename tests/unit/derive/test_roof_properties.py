"""What must hold of the roof for any model, GPU, batch and context."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.derive.planning import Speculation, bound_decode
from llm_serving_exporter.derive.roof import Bound, decode_ceiling, prefill_floor_seconds, ridge_batch
from llm_serving_exporter.derive.work import Roof, kv_read_bytes, prefill_flops, weight_read_bytes
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.shape import AttentionLayers, RecurrentLayers, Span
from tests.support.models.roofs import (
    A100,
    B200,
    BF16,
    FP8,
    H100,
    INT4,
    NVFP4,
    flat,
    gpu,
    roof,
    shape,
)


@st.composite
def attentions(draw: st.DrawFn) -> AttentionLayers:
    heads = draw(st.integers(1, 16))
    queries = heads * draw(st.integers(1, 16))
    window = draw(st.none() | st.integers(1, 8192))
    span = draw(st.sampled_from((Span.SLIDING, Span.CHUNKED))) if window is not None else Span.FULL
    return AttentionLayers(draw(st.integers(1, 64)), 256 * heads, heads, 512 * queries, 512 * queries, span, window)


@st.composite
def roofs(draw: st.DrawFn, *, dense: bool = False, known: bool = True) -> Roof:
    experts = 0 if dense else draw(st.sampled_from((0, 0, 8, 128)))
    states = draw(
        st.lists(st.builds(RecurrentLayers, st.integers(1, 40), st.integers(0, 10**6), st.just(0)), max_size=1)
    )
    form = shape(
        tuple(draw(st.lists(attentions(), max_size=2))), tuple(states),
        experts=experts, per_token=draw(st.integers(1, 8)) if experts else 0,
    )  # fmt: skip
    weights = draw(st.sampled_from((BF16, FP8, INT4, NVFP4)))
    model = flat(
        draw(st.floats(1e6, 1e12)), weights, form, expert_parameters=draw(st.floats(0, 1e10)) if experts else 0
    )
    peaks = draw(st.sampled_from((A100, H100, B200)))
    if not known:
        peaks = draw(st.sampled_from((peaks, gpu("?", 1.0), gpu("?", None, bf16=1))))
    return roof(
        model, peaks, draw(st.sampled_from((1, 2, 8))), draw(st.sampled_from((1, 2, 4))),
        sharing=draw(st.sampled_from((1, 8))) if experts else 1,
    )  # fmt: skip


batches = st.floats(0.01, 1e5)
contexts = st.floats(0, 1e6)
drafts = st.sampled_from((1.0, 1.5, 4.0))


@given(roofs(known=False), batches, contexts, drafts)
def test_every_figure_is_finite_and_not_negative(it: Roof, batch: float, context: float, drafted: float) -> None:
    expected = decode_ceiling(it, batch, context, tokens_per_step=drafted)
    bounds = bound_decode(it, batch, context, Speculation(round(drafted) - 1))
    assert (expected is None) == (bounds is None) == (it.peaks.bandwidth_bytes_per_second is None)
    for found in () if bounds is None or expected is None else (bounds.expected, expected):
        figures = [
            found.tokens_per_second, found.bandwidth_tokens_per_second, found.compute_tokens_per_second or 0.0,
            found.step_seconds, found.intensity_flops_per_byte, found.ridge_flops_per_byte or 0.0,
        ]  # fmt: skip
        assert all(math.isfinite(figure) and figure >= 0 for figure in figures)
        assert found.tokens_per_second == pytest.approx(
            min(found.bandwidth_tokens_per_second, found.compute_tokens_per_second or math.inf)
        )
    if bounds is not None:
        middle = bounds.expected.tokens_per_second
        assert (bounds.lower_tokens_per_second or 0.0) <= middle <= bounds.upper_tokens_per_second * (1 + 1e-12)
    ridge = ridge_batch(it, context, tokens_per_step=drafted)
    assert ridge is None or ridge >= 1
    floor = prefill_floor_seconds(it, context)
    assert floor is None or 0 < floor < math.inf


def tokens(it: Roof, batch: float, context: float, drafted: float = 1.0) -> float:
    found = decode_ceiling(it, batch, context, tokens_per_step=drafted)
    return found.tokens_per_second


@given(roofs(), batches, contexts, contexts, drafts)
def test_it_never_rises_with_context(it: Roof, batch: float, context: float, more: float, drafted: float) -> None:
    assert tokens(it, batch, context + more, drafted) <= tokens(it, batch, context, drafted) * (1 + 1e-12)


@given(roofs(), batches, contexts, st.floats(1, 10))
def test_it_never_falls_with_bandwidth(it: Roof, batch: float, context: float, factor: float) -> None:
    faster = replace(it.peaks, bandwidth_bytes_per_second=factor * it.peaks.bandwidth_bytes_per_second)
    assert tokens(replace(it, peaks=faster), batch, context) >= tokens(it, batch, context) * (1 - 1e-12)


@given(roofs(), batches, st.floats(1, 10), contexts)
def test_it_never_falls_with_the_batch(it: Roof, batch: float, factor: float, context: float) -> None:
    """Dense or not: an expert more for a token more never costs more than the first one did."""
    assert tokens(it, factor * batch, context) >= tokens(it, batch, context) * (1 - 1e-9)


@given(roofs(), contexts)
def test_one_sequence_reads_the_weights_and_its_own_cache(it: Roof, context: float) -> None:
    found = decode_ceiling(it, 1, context)
    # of a replica with several ranks each has one: eight over four stages
    micro = max(1 / it.parallel.pipeline, 1 / it.parallel.data)
    moved = weight_read_bytes(it, micro).expected + micro * kv_read_bytes(it, context)
    told = it.parallel.tensor * it.peaks.bandwidth_bytes_per_second / moved
    assert found.bandwidth_tokens_per_second == pytest.approx(told)


@given(roofs(), contexts, drafts)
def test_the_ridge_parts_the_bounds(it: Roof, context: float, drafted: float) -> None:
    ridge = ridge_batch(it, context, tokens_per_step=drafted)
    for batch, bound in ((0.9 * ridge, Bound.BANDWIDTH), (1.1 * ridge, Bound.COMPUTE)):
        if ridge > it.parallel.pipeline * 1.2 and batch < math.inf:
            found = decode_ceiling(it, batch, context, tokens_per_step=drafted)
            assert found.bound is bound


@given(roofs(dense=True), st.integers(1, 4096), st.integers(0, 4096), st.integers(1, 4096))
def test_prefill_in_chunks_is_the_same_work(it: Roof, first: int, prefix: int, second: int) -> None:
    """But for the logits, which only the last chunk computes."""
    whole = prefill_flops(it, first + second, prefix, 0)
    chunks = [prefill_flops(it, first, prefix, 0), prefill_flops(it, second, prefix + first, 0)]
    for precision, amount in whole.items():
        assert amount == pytest.approx(sum(chunk[precision] for chunk in chunks), rel=1e-9)
