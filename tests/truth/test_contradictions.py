"""Errors of the seeds (facts model-math A.2) that no oracle touches: the right value, and that the seed's is off."""

from __future__ import annotations

import math

import pytest

from llm_serving_exporter.derive.planning import check_fit
from llm_serving_exporter.derive.roof import decode_ceiling, ridge_batch
from llm_serving_exporter.derive.work import kv_read_bytes, kv_token_bytes, token_flops
from llm_serving_exporter.model.shape import Geometry, Precision
from tests.support.models.roofs import A100, BF16, FP8, H100, LLAMA_8B, LLAMA_70B, LLAMA_405B, flat, llama, roof, served


def test_e1_S1_550_to_556_kv_is_kept_for_kv_heads_not_query_heads() -> None:
    """The seed's 2.5 MB a token are the multi-head figure; its batch of 32 x 2048 takes 20 GiB, not 160 GB."""
    ours = kv_token_bytes(roof(served(LLAMA_70B)))
    assert ours == 327_680
    assert 32 * 2048 * ours == 20 * 2**30
    assert kv_token_bytes(roof(served(llama(8192, 80, 64, 64, 28672)))) == 2_621_440 == 8 * ours


def test_e2_S4_658_kv_of_a_token_and_of_4096() -> None:
    """80 layers x 64 heads x 128 at FP16 are 2.62 MB, not 1.6; with the model's 8 heads 4,096 tokens take 1.25 GiB, not 6.5 GB."""
    assert 4096 * kv_token_bytes(roof(served(LLAMA_70B))) == 1.25 * 2**30


def test_e3_S4_658_590_flop_a_byte_is_the_ridge_of_fp8() -> None:
    at_bf16, at_fp8 = decode_ceiling(roof(flat(1e9, BF16)), 1, 0), decode_ceiling(roof(flat(1e9, FP8)), 1, 0)
    assert at_bf16.ridge_flops_per_byte == pytest.approx(295.3, abs=0.05)
    assert at_fp8.ridge_flops_per_byte == pytest.approx(590.7, abs=0.05)


def test_e8_S1_90_intensity_of_a_large_batch_has_no_limit_in_the_weights() -> None:
    """The seed's limit of K/2 is KN / (K + N), and comes from activations, which a decode-sized batch keeps in cache."""
    found = decode_ceiling(roof(flat(8192 * 28672)), 1e6, 0)
    assert found.intensity_flops_per_byte == pytest.approx(1e6)


def test_e13_S0_46_fifty_users_on_one_h100() -> None:
    """9.4 GB are left beside 70.6 GB of FP8 weights: 28.7 thousand tokens, 574 a user; they add 13 % to the bytes of a step."""
    it = roof(served(LLAMA_70B, FP8))
    found = check_fit(it, 80e9, context_tokens=574)
    assert found.free_kv_bytes / kv_token_bytes(it) == pytest.approx(28_700, rel=5e-3)
    assert found.max_batch == 50
    assert 50 * kv_read_bytes(it, 574) / LLAMA_70B.parameters_total == pytest.approx(0.133, abs=5e-4)


@pytest.mark.parametrize(("form", "told"), [(LLAMA_8B, 4), (LLAMA_70B, 8), (LLAMA_405B, 16)])
def test_e17_S2_136_S2_318_attention_over_the_cache_never_gets_denser(form: Geometry, told: float) -> None:
    """Query heads / KV heads FLOPs a byte at any batch: at 2K of context no batch reaches the ridge of 153 or 295."""
    it = roof(served(form))
    attention = token_flops(it, 1000)[Precision.BF16] - token_flops(it, 0)[Precision.BF16]
    assert attention / kv_read_bytes(it, 1000) == pytest.approx(told)
    for peaks in (A100, H100):
        assert ridge_batch(roof(served(form), peaks), 0) is not math.inf
    assert ridge_batch(roof(served(LLAMA_8B), A100), 2048) == math.inf
    assert ridge_batch(roof(served(LLAMA_8B), H100), 2048) == math.inf


def test_e22_S4_120_half_the_bits_are_twice_the_speed_for_the_weights_alone() -> None:
    """A bound, not a factor: at batch 32 and 2K of context the KV cache is most of what a step reads."""
    gains = []
    for batch, context in ((1, 0), (32, 2048)):
        slow, fast = (decode_ceiling(roof(served(LLAMA_8B, kept)), batch, context) for kept in (BF16, FP8))
        gains.append(fast.tokens_per_second / slow.tokens_per_second)
    assert gains[0] == pytest.approx(2.0)
    assert gains[1] < 1.5
