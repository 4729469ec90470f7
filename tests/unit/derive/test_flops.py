"""Floating-point work against facts model-math B.10, and against plain counts."""

import pytest

from llm_serving_exporter.derive.work import compute_seconds, kv_read_bytes, prefill_flops, token_flops
from llm_serving_exporter.model.shape import AttentionLayers, Part, Precision, Span
from tests.support.models.roofs import (
    A100,
    B200,
    BF16,
    DEEPSEEK_V3,
    FP8,
    H100,
    INT4,
    INT8,
    INT8_WEIGHT_ONLY,
    LLAMA_8B,
    LLAMA_70B,
    NVFP4,
    flat,
    mixed,
    roof,
    served,
    shape,
)
from tests.support.rows import check_rows


def test_a_decode_token_passes_its_experts_and_the_lm_head_once() -> None:
    """Facts B.10: 2 FLOPs a matrix parameter, 4 q d a token of context and layer at BF16."""
    assert token_flops(roof(served(LLAMA_8B)), 1000)[Precision.BF16] == pytest.approx(
        2 * LLAMA_8B.decode_read_parameters + 4 * 32 * 32 * 128 * 1000, rel=1e-4
    )
    model = flat(1e9, FP8, shape(experts=256, per_token=8), expert_parameters=1e6)
    assert token_flops(roof(model), 0) == {Precision.FP8: 2 * (1e9 + 8e6)}


def test_formats_of_one_rate_add_up() -> None:
    """4-bit weights and a bf16 lm_head are both multiplied in bf16."""
    it = roof(mixed(LLAMA_70B, {Part.LM_HEAD: BF16}, INT4))
    assert token_flops(it, 0) == token_flops(roof(served(LLAMA_70B)), 0)


def test_mla_decodes_in_the_absorbed_form() -> None:
    """278,528 FLOPs for 1,152 bytes a layer and token of context (B.10)."""
    it = roof(flat(0, form=shape(DEEPSEEK_V3)))
    assert token_flops(it, 10)[Precision.BF16] == 61 * 10 * 278_528
    assert token_flops(it, 10)[Precision.BF16] / kv_read_bytes(it, 10) == pytest.approx(242, abs=0.5)


@check_rows(("new", "prefix"), [(1, 0), (1, 99), (7, 3), (40, 0), (40, 25), (3, 64)])
@check_rows("span", [Span.FULL, Span.SLIDING, Span.CHUNKED])
def test_prefill_sums_the_context_of_each_token(span: Span, new: int, prefix: int) -> None:
    """Against a plain count, token by token; window of 16."""
    window = None if span is Span.FULL else 16
    it = roof(flat(0, form=shape((AttentionLayers(2, 1, 1, 0, 3, span, window),))))
    looked = 0
    for place in range(prefix, prefix + new):
        looked += {Span.FULL: place + 1, Span.SLIDING: min(place + 1, 16), Span.CHUNKED: place % 16 + 1}[span]
    assert prefill_flops(it, new, prefix, 0) == {Precision.BF16: 2 * 3 * looked}


def test_prefill_computes_logits_for_sampled_tokens_only() -> None:
    it = roof(served(LLAMA_8B))
    head = 2 * 128_256 * 4096
    bare = prefill_flops(it, 100, 0, 0)[Precision.BF16]
    assert prefill_flops(it, 100)[Precision.BF16] == bare + head
    assert prefill_flops(it, 100, 0, 100)[Precision.BF16] == bare + 100 * head


def test_a_gpu_without_the_native_rate_multiplies_in_bf16() -> None:
    """fp8 and nvfp4 on A100, nvfp4 on H100: dequantised. int8 runs natively on A100, on a GPU without it at BF16's rate."""
    for weights, peaks, rate in (
        (FP8, A100, "bf16"), (NVFP4, A100, "bf16"), (NVFP4, H100, "bf16"), (NVFP4, B200, "fp4"), (FP8, H100, "fp8"),
        (INT8, A100, "int8"), (INT8, B200, "bf16"), (INT8_WEIGHT_ONLY, H100, "bf16"), (BF16, B200, "bf16"),
    ):  # fmt: skip
        assert list(token_flops(roof(flat(1e9, weights), peaks), 0)) == [Precision(rate)]


def test_time_is_that_of_each_precision_at_its_own_rate() -> None:
    it = roof(mixed(LLAMA_70B, {Part.LM_HEAD: BF16}, FP8), H100, 2, 3)
    flops = {Precision.BF16: 989.4e12, Precision.FP8: 2 * 1978.9e12}
    assert compute_seconds(it, flops) == pytest.approx(3 / 6)
    assert compute_seconds(it, flops, gpus=1) == pytest.approx(3)
    assert compute_seconds(it, {Precision.FP4: 1.0}) is None
    assert compute_seconds(it, {Precision.FP4: 0.0}) == 0
