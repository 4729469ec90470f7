"""Distinct experts: facts model-math C, every cell of both tables, and what must hold for any input."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.derive.work import estimate_touched_experts, experts_touched, weight_read_bytes
from llm_serving_exporter.model.shape import ModelFacts, WeightGroup
from tests.support.models.roofs import BF16, FP8, MXFP4, flat, roof, shape
from tests.support.rows import check_rows

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
# C: expected experts by batch, and vLLM's own min(B k, E) at batch 8 and 64
EXPECTED = {
    ("Mixtral", 8, 2): ((2, 3.5, 5.47, 7.20, 7.92, 8.00, 8, 8, 8), (8, 8)),
    ("gpt-oss-20b", 32, 4): ((4, 7.5, 13.24, 21.00, 28.22, 31.55, 31.99, 32, 32), (32, 32)),
    ("gpt-oss-120b", 128, 4): ((4, 7.88, 15.27, 28.71, 50.98, 81.66, 111.22, 125.80, 127.96), (32, 128)),
    ("Qwen3", 128, 8): ((8, 15.5, 29.12, 51.62, 82.42, 111.77, 125.94, 127.97, 128), (64, 128)),
    ("Llama-4-Maverick", 128, 1): ((1, 1.99, 3.95, 7.78, 15.10, 28.41, 50.52, 81.10, 110.81), (8, 64)),
    ("DeepSeek-V3", 256, 8): ((8, 15.75, 30.53, 57.42, 101.96, 163.31, 222.44, 251.60, 255.92), (64, 256)),
    ("Kimi-K2", 384, 8): ((8, 15.83, 31.01, 59.52, 109.82, 188.23, 284.19, 358.06, 382.25), (64, 384)),
    ("Qwen3-Next", 512, 10): ((10, 19.8, 38.84, 74.74, 138.57, 239.64, 367.11, 471.00, 508.72), (80, 512)),
}


@check_rows("batch", BATCHES)
@check_rows(("model", "experts", "per_token"), EXPECTED)
def test_expected_experts_by_batch(model: str, experts: int, per_token: int, batch: int) -> None:
    told = EXPECTED[model, experts, per_token][0][BATCHES.index(batch)]
    assert estimate_touched_experts(experts, per_token, batch).expected == pytest.approx(told, abs=0.0051)


@check_rows(("model", "experts", "per_token"), EXPECTED)
def test_upper_bound_is_what_vllm_assumes(model: str, experts: int, per_token: int) -> None:
    assert (
        estimate_touched_experts(experts, per_token, 8).upper,
        estimate_touched_experts(experts, per_token, 64).upper,
    ) == EXPECTED[model, experts, per_token][1]


# C, second table: parameters (B.8), experts, format of experts and of the rest, GB a step at batch 1, 8, 64, 256 and with all experts
BYTES = {
    "Mixtral-8x7B": (46_702_792_704, 12_879_925_248, 12_748_853_248, 8, 2, BF16, BF16, (25.5, 84.1, 93.1, 93.1, 93.1)),
    "Qwen3-30B-A3B": (30_532_122_624, 3_353_032_704, 3_041_867_776, 128, 8, BF16, BF16, (6.08, 25.8, 59.5, 60.4, 60.4)),
    "Qwen3-235B-A22B": (235_093_634_560, 22_190_763_520, 21_568_433_664, 128, 8, FP8, FP8, (21.6, 99.0, 230.8, 234.5, 234.5)),
    "DeepSeek-V3": (671_026_404_352, 37_552_282_624, 36_625_603_584, 256, 8, FP8, FP8, (36.6, 162.9, 584.4, 669.9, 670.1)),
    "gpt-oss-120b": (116_829_156_672, 5_711_982_912, 5_132_849_472, 128, 4, MXFP4, BF16, (5.00, 16.8, 56.0, 64.0, 64.0)),
    "gpt-oss-20b": (20_914_757_184, 4_187_440_704, 3_608_307_264, 32, 4, MXFP4, BF16, (3.71, 9.10, 12.6, 12.6, 12.6)),
}  # fmt: skip


@check_rows("model", BYTES)
def test_weight_bytes_of_a_step(model: str) -> None:
    """One expert's parameters are (all - active) / (E - k); what is left of the active ones every step reads."""
    total, active, read, experts, per_token, expert_format, rest, told = BYTES[model]
    one = (total - active) / (experts - per_token)
    groups = (
        WeightGroup(rest, fixed_bytes=(read - per_token * one) * rest.bytes),
        WeightGroup(expert_format, expert_bytes=one * expert_format.bytes),
    )
    it = roof(ModelFacts("", "", shape(experts=experts, per_token=per_token), groups, 2.0, ""))
    got = [weight_read_bytes(it, batch).expected / 1e9 for batch in (1, 8, 64, 256, math.inf)]
    # the table has three or four digits
    assert got == pytest.approx(list(told), rel=2.5e-3)


def test_active_parameters_as_weights_understate_deepseek_18_fold_at_a_large_batch() -> None:
    """C, consequence 2."""
    total, active, read, experts, per_token, *_ = BYTES["DeepSeek-V3"]
    one = (total - active) / (experts - per_token)
    it = roof(flat(read - per_token * one, FP8, shape(experts=256, per_token=8), expert_parameters=one))
    assert weight_read_bytes(it, 10_000).expected / weight_read_bytes(it, 1).expected == pytest.approx(18.3, abs=0.05)


def test_experts_spread_over_engines_see_the_tokens_of_all() -> None:
    """Two ranks of 8 tokens: the 16 tokens' distinct experts, of which each rank holds half."""
    model = flat(0.0, FP8, shape(experts=256, per_token=8), expert_parameters=1e6)
    spread = weight_read_bytes(roof(model, sharing=2), 8)
    assert spread.expected == pytest.approx(estimate_touched_experts(256, 8, 16).expected / 2 * 1e6)
    assert experts_touched(roof(model, sharing=2), 8) == estimate_touched_experts(256, 8, 16)


def test_a_dense_model_touches_none() -> None:
    assert estimate_touched_experts(0, 0, 32).upper == 0
    assert experts_touched(roof(flat(1e9)), 32) is None


@pytest.mark.parametrize("tokens", [0.0, -1.0, math.nan])
def test_no_tokens_touch_nothing(tokens: float) -> None:
    assert estimate_touched_experts(8, 2, tokens).upper == 0


def test_more_experts_a_token_than_there_are_is_all_of_them() -> None:
    assert estimate_touched_experts(4, 9, 3) == estimate_touched_experts(4, 4, 1)


counts = st.integers(1, 4096)
amounts = st.floats(0, 1e6)


@given(counts, counts, amounts)
def test_bounds_enclose_the_expected(experts: int, per_token: int, tokens: float) -> None:
    band = estimate_touched_experts(experts, per_token, tokens)
    assert 0 <= band.lower <= band.expected <= band.upper <= experts


@given(counts, counts, amounts, st.floats(0, 1e-3))
def test_it_is_continuous_and_never_falls(experts: int, per_token: int, tokens: float, more: float) -> None:
    """No token more than `per_token` experts: also between 0 and 1, and across 1."""
    before, after = (
        estimate_touched_experts(experts, per_token, tokens),
        estimate_touched_experts(experts, per_token, tokens + more),
    )
    slack = 1e-9 * experts
    for one, other in ((before.lower, after.lower), (before.expected, after.expected), (before.upper, after.upper)):
        assert -slack <= other - one <= min(per_token, experts) * (tokens + more - tokens) + slack
