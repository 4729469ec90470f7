"""Ceilings, ridge and floors against figures of facts model-math, and what is said where something is not known."""

import math

import pytest

from llm_serving_exporter.derive.roof import (
    Bound,
    decode_ceiling,
    encoder_ceiling_tokens_per_second,
    lacks,
    prefill_floor_seconds,
    ridge_batch,
)
from llm_serving_exporter.derive.work import compute_seconds, prefill_flops, token_flops
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.shape import AttentionLayers, Part, Precision, WeightFormat
from llm_serving_exporter.model.snapshot import Absence
from tests.support.models.roofs import (
    A100,
    B200,
    BF16,
    FP8,
    GPT_OSS,
    H100,
    H200,
    INT8,
    INT8_WEIGHT_ONLY,
    LLAMA_8B,
    LLAMA_70B,
    LLAMA_405B,
    NVFP4,
    flat,
    gpu,
    mixed,
    roof,
    served,
    shape,
)
from tests.support.rows import check_rows


@check_rows(
    ("batch", "microseconds"),
    [(1, 5279), (8, 672), (32, 179), (64, 96), (100, 67), (128, 55), (256, 35)],
)
def test_decode_of_llama_70b_fp8_on_four_h100(batch: int, microseconds: float) -> None:
    """Facts G.7: us a token at 1,150 tokens of context; lm_head in bf16, KV cache in fp8."""
    it = roof(mixed(LLAMA_70B, {Part.LM_HEAD: BF16}, FP8, 1.0), H100, 4)
    found = decode_ceiling(it, batch, 1150)
    assert 1e6 / found.tokens_per_second == pytest.approx(microseconds, abs=0.5)
    prefill = compute_seconds(it, prefill_flops(it, 1, 0, 0))
    assert prefill * 1e6 == pytest.approx(17.3, abs=0.05)


def test_model_bandwidth_utilisation_as_databricks_defines_it() -> None:
    """Facts D.1: 7B at 16 bits and 14 ms a token on 2 TB/s is at 50 %, 1 TB/s."""
    found = decode_ceiling(roof(flat(7e9), replace(A100, bandwidth_bytes_per_second=2e12)), 1, 0)
    assert found.step_seconds / 0.014 == pytest.approx(0.5)


def test_pipeline_stages_add_no_bandwidth_to_the_weights_and_spread_the_kv() -> None:
    """Facts D.3: B n BW / (W + B/p K); fewer sequences than stages leave stages idle."""
    model, context = served(LLAMA_405B, FP8, 1.0), 2304
    weights, kv = LLAMA_405B.decode_read_parameters, 258_048 * context
    for batch, micro in ((1, 1), (2, 1), (4, 2), (16, 8), (64, 32)):
        found = decode_ceiling(roof(model, H100, 8, 2), batch, context)
        assert found.tokens_per_second == pytest.approx(batch * 8 * 3.35e12 / (weights + micro * kv))
        assert found.step_seconds == pytest.approx(batch / found.tokens_per_second)


def test_speculation_changes_no_byte_of_a_dense_step_and_costs_compute() -> None:
    plain = decode_ceiling(roof(served(LLAMA_8B)), 8, 1000)
    drafted = decode_ceiling(roof(served(LLAMA_8B)), 8, 1000, tokens_per_step=4)
    assert drafted.bandwidth_tokens_per_second == plain.bandwidth_tokens_per_second
    assert plain.compute_tokens_per_second == pytest.approx(4 * (drafted.compute_tokens_per_second or 0))
    assert drafted.intensity_flops_per_byte == pytest.approx(4 * plain.intensity_flops_per_byte)


def test_speculation_touches_the_experts_of_its_drafts() -> None:
    """Facts D.4: T = B (1 + g)."""
    it = roof(flat(1e9, FP8, shape(experts=256, per_token=8), expert_parameters=1e7))
    drafted, more = decode_ceiling(it, 8, 0, tokens_per_step=4), decode_ceiling(it, 32, 0)
    assert drafted.step_seconds == more.step_seconds


@check_rows(
    ("weights", "peaks", "told"),
    [(BF16, H100, 295.3), (FP8, H100, 295.3), (INT8_WEIGHT_ONLY, H100, 147.7), (BF16, A100, 153.0),
     (BF16, H200, 206.1), (BF16, B200, 281.3), (FP8, B200, 281.3), (NVFP4, B200, 316.4),
     (WeightFormat("int4_g128_zp", 4.15625, Precision.BF16), H100, 76.7)],
    ids=lambda value: getattr(value, "name", None),
)  # fmt: skip
def test_ridge_of_the_weights_alone(weights: WeightFormat, peaks: object, told: float) -> None:
    """Facts D.3: peak / bandwidth x bytes a weight / 2, whatever the model's size and the number of GPUs."""
    for tensor in (1, 8):
        assert ridge_batch(roof(flat(7e9, weights), peaks, tensor), 0) == pytest.approx(told, rel=2e-3)


def test_ridge_of_experts_comes_e_over_k_times_later() -> None:
    """Each expert sees T k / E tokens; by then all are read."""
    it = roof(flat(0, BF16, shape(experts=128, per_token=8), expert_parameters=1e8), H100)
    assert ridge_batch(it, 0) == pytest.approx(295.34 * 16, rel=1e-4)


def test_ridge_of_a_pipeline_is_that_of_its_micro_batches() -> None:
    one, four = (
        ridge_batch(roof(served(LLAMA_70B), H100, 4), 100),
        ridge_batch(roof(served(LLAMA_70B), H100, 4, 4), 100),
    )
    assert four == pytest.approx(4 * one)


def test_the_ridge_is_never_below_one_sequence() -> None:
    """A model on a GPU that computes 0.5 FLOPs a byte is compute-bound from the first sequence on."""
    assert ridge_batch(roof(flat(1e9), gpu("slow", 1.0, bf16=0.5)), 0) == 1.0


def test_an_infinite_ridge_is_not_an_unknown_one() -> None:
    assert ridge_batch(roof(served(LLAMA_8B), H100), 8192) == math.inf
    assert ridge_batch(roof(served(LLAMA_8B), gpu("?", 3.35)), 8192) is None
    assert ridge_batch(roof(served(LLAMA_8B), gpu("?", None, bf16=989.4)), 8192) is None


def test_at_the_ridge_both_arms_are_equal() -> None:
    it = roof(flat(7e9, FP8, shape(GPT_OSS, experts=128, per_token=4), expert_parameters=8e8), H100, 2)
    batch = ridge_batch(it, 200)
    below, at = decode_ceiling(it, 0.99 * batch, 200), decode_ceiling(it, batch * (1 + 1e-9), 200)
    assert below.bound is Bound.BANDWIDTH
    assert at.bound is Bound.COMPUTE
    assert at.bandwidth_tokens_per_second == pytest.approx(at.compute_tokens_per_second)
    assert at.intensity_flops_per_byte == pytest.approx(at.ridge_flops_per_byte)


def test_a_prompt_alone_takes_pipeline_stages_in_turn() -> None:
    """Facts A.3: 405B on 16 GPUs, 333 ms rather than 166.5 where the stages are serial; ours keeps attention at BF16."""
    serial = prefill_floor_seconds(roof(served(LLAMA_405B, INT8), A100, 8, 2), 2048)
    one_stage = prefill_floor_seconds(roof(served(LLAMA_405B, INT8), A100, 8), 2048)
    assert serial == one_stage
    assert serial == pytest.approx(0.333, rel=0.02)


def test_a_short_prompt_is_bound_by_the_weights() -> None:
    floor = prefill_floor_seconds(roof(served(LLAMA_8B)), 16)
    assert floor == pytest.approx(LLAMA_8B.decode_read_parameters * 2 / 3.35e12, rel=1e-3)


def test_what_is_cached_is_not_computed() -> None:
    it = roof(served(LLAMA_8B))
    whole, rest = prefill_floor_seconds(it, 8192), prefill_floor_seconds(it, 8192, 6144)
    alone = prefill_floor_seconds(it, 2048)
    assert whole is not None
    assert alone < rest < whole
    assert prefill_floor_seconds(it, 8192, 8192) == prefill_floor_seconds(it, 8192, 8191)


def test_one_new_token_reads_what_is_cached_and_writes_itself() -> None:
    moved = LLAMA_8B.decode_read_parameters * 2 + (8191 + 1) * 131_072
    assert prefill_floor_seconds(roof(served(LLAMA_8B)), 8192, 8191) == pytest.approx(moved / 3.35e12, rel=1e-12)


def test_encoder_ceiling_of_bert_base() -> None:
    """Facts B.7: peak / (2 N_mat + 4 L h s): 12 layers of 768, 12 heads, 85.05 M matrix parameters."""
    layers = AttentionLayers(12, 0, 12, 0, 4 * 768)
    it = roof(flat(12 * (4 * 768**2 + 2 * 768 * 3072), form=shape((layers,), encoder=True)), A100)
    told = 312e12 / (2 * 84_934_656 + 4 * 12 * 768 * 256)
    assert encoder_ceiling_tokens_per_second(it, 256) == pytest.approx(told)
    assert decode_ceiling(it, 1, 256) is None
    assert ridge_batch(it, 256) is None
    assert encoder_ceiling_tokens_per_second(it, 0) is None


def test_nothing_is_lacking() -> None:
    assert lacks(roof(served(LLAMA_8B))) == ()


def test_without_a_bandwidth_there_is_no_ceiling() -> None:
    it = roof(served(LLAMA_8B), gpu("Mystery", None, bf16=100))
    assert decode_ceiling(it, 1, 1000) is None
    assert prefill_floor_seconds(it, 1000) is None
    assert [(lack.reason, "Mystery" in lack.sentence, "bandwidth" in lack.sentence) for lack in lacks(it)] == [
        (Absence.PEAK_UNKNOWN, True, True)
    ]


def test_without_a_rate_only_the_bandwidth_ceiling_is_known() -> None:
    it = roof(served(LLAMA_8B), gpu("Mystery", 1.0))
    found = decode_ceiling(it, 4096, 10)
    assert found.compute_tokens_per_second is None
    assert found.ridge_flops_per_byte is None
    assert found.tokens_per_second == found.bandwidth_tokens_per_second
    assert encoder_ceiling_tokens_per_second(it, 100) is None
    assert [(lack.reason, "bf16" in lack.sentence) for lack in lacks(it)] == [(Absence.PEAK_UNKNOWN, True)]


def test_fp32_weights_are_not_taken_for_bf16() -> None:
    fp32 = flat(1e9, WeightFormat("fp32", 32, Precision.FP32))
    assert compute_seconds(roof(fp32, H100), token_flops(roof(fp32, H100), 0)) is None
    assert compute_seconds(roof(fp32, gpu("x", 1, bf16=1, fp32=1)), {Precision.FP32: 1e12}) == 1


def test_an_encoder_does_not_decode() -> None:
    it = roof(flat(1e8, form=shape(encoder=True)))
    assert [lack.reason for lack in lacks(it)] == [Absence.NO_DECODE]


@check_rows("batch", [0.0, -1.0, math.nan, math.inf])
def test_a_batch_that_is_none_has_no_ceiling(batch: float) -> None:
    assert decode_ceiling(roof(served(LLAMA_8B)), batch, 1000) is None
    assert decode_ceiling(roof(served(LLAMA_8B)), 1, 1000, tokens_per_step=batch) is None
