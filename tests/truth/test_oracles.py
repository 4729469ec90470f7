"""Every figure of the seeds that is arithmetically right, as facts model-math A.1 lists them, but for O35 to O37, O39 and O40, whose
formulas nothing here needs; its scripts, its errors.

The test's name holds the oracle, the seed (S0 to S4) and its line. Where a seed rounds a bandwidth, that is the input; where it
contradicts itself or the arithmetic, the right value stands here with its number in table A.2 (e1 to e28).
"""

import math

import pytest

from llm_serving_exporter.derive.planning import check_fit, least_gpus, replicas, usd_per_million_tokens
from llm_serving_exporter.derive.roof import Ceiling, decode_ceiling, ridge_batch
from llm_serving_exporter.derive.work import (
    Roof,
    kv_read_bytes,
    kv_stored_bytes,
    kv_token_bytes,
    token_flops,
    weight_held_bytes,
    weight_read_bytes,
)
from llm_serving_exporter.model.hardware import GpuPeaks
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.shape import AttentionLayers, Geometry, ModelFacts, Precision
from tests.support.models.roofs import (
    A100,
    A100_ROUNDED,
    B200,
    BF16,
    FP8,
    H100,
    H100_PCIE,
    H200,
    INT4,
    INT8,
    L40S,
    LLAMA_8B,
    LLAMA_70B,
    LLAMA_405B,
    catalogue_row,
    flat,
    llama,
    roof,
    served,
    shape,
)
from tests.support.rows import check_rows

GIB = 2**30


def ceiling(it: Roof, batch: float = 1, context: float = 0) -> Ceiling:
    found = decode_ceiling(it, batch, context)
    assert found is not None
    return found


def budget(weight_bytes: float, sequence_bytes: float, tensor: int = 1) -> Roof:
    """A model as the seeds' memory budgets have it: so many bytes of weights, so many a sequence of 4,096 tokens."""
    form = shape((AttentionLayers(1, 1, 8, 0, 0),))
    return roof(flat(weight_bytes / 2, BF16, form, kv_bytes=sequence_bytes / 4096), tensor=tensor)


# --- bandwidth ceilings -------------------------------------------------------------------------------------------------


def test_O1_S0_34_to_36_70_gb_on_h100() -> None:
    found = ceiling(roof(flat(70e9, FP8), H100))
    assert found.step_seconds * 1e3 == pytest.approx(20.896, abs=5e-4)
    assert found.tokens_per_second == pytest.approx(47.857, abs=5e-4)
    assert round(found.step_seconds * 1e3) == 21
    assert round(found.tokens_per_second) == 48


def test_O2_S0_38_to_40_70_gb_on_h200() -> None:
    """e5: the seed's 70 tokens/s are 68.57."""
    found = ceiling(roof(flat(70e9, FP8), H200))
    assert found.step_seconds * 1e3 == pytest.approx(14.583, abs=5e-4)
    assert found.tokens_per_second == pytest.approx(68.571, abs=5e-4)
    assert found.tokens_per_second == pytest.approx(70, rel=0.025)


def test_O3_S0_48_70_gb_on_h100_pcie() -> None:
    """A ceiling, where the seed says floor (e6)."""
    assert ceiling(roof(flat(70e9, FP8), H100_PCIE)).tokens_per_second == pytest.approx(28.571, abs=5e-4)


@pytest.mark.parametrize(("name", "peaks"), [("H100 SXM 80GB", H100), ("H200 SXM 141GB", H200), ("B200 180GB", B200)])
def test_O4_S0_28_to_30_bandwidths_in_the_catalogue(name: str, peaks: GpuPeaks) -> None:
    seed = {"H100 SXM 80GB": 3.35, "H200 SXM 141GB": 4.8, "B200 180GB": 8.0}[name]
    assert catalogue_row(name)["bandwidth_gb_per_second"] == 1000 * seed
    assert peaks.bandwidth_bytes_per_second == seed * 1e12


def test_O5_S0_142_nv_embed_v2() -> None:
    """Mistral-7B without lm_head and the latent attention block of facts B.7."""
    model = flat(7_110_660_096 + 740_331_520)
    assert model.weight_bytes == 15_701_983_232
    assert round(model.weight_bytes / 1e9, 1) == 15.7


# --- ridge and intensity ------------------------------------------------------------------------------------------------


def test_O6_S1_71_to_75_S2_228_ridge_of_h100() -> None:
    """With the seeds' rounded 989 TFLOP/s 295.22, with the data sheet's 989.4 (e28) 295.34."""
    rounded = replace(H100, flops={Precision.BF16: 989e12})
    assert ceiling(roof(flat(1e9), rounded)).ridge_flops_per_byte == pytest.approx(295.22, abs=5e-3)
    assert ceiling(roof(flat(1e9), H100)).ridge_flops_per_byte == pytest.approx(295.34, abs=5e-3)


def test_O7_S1_614_S2_228_ridge_of_a100() -> None:
    assert ceiling(roof(flat(1e9), A100_ROUNDED)).ridge_flops_per_byte == pytest.approx(156.0)
    assert ceiling(roof(flat(1e9), A100)).ridge_flops_per_byte == pytest.approx(153.0, abs=0.02)


@pytest.mark.parametrize("columns", [4096, 8192, 28672])
def test_O8_S1_92_to_96_one_row_has_intensity_1(columns: int) -> None:
    """Exactly 2KN / (2 (K + KN + N)); ours leaves the activations K + N out, and is at most that much above."""
    exact = 2 * 8192 * columns / (2 * (8192 + 8192 * columns + columns))
    ours = ceiling(roof(flat(8192 * columns))).intensity_flops_per_byte
    assert ours == 1.0
    assert exact <= ours <= exact * (1 + (8192 + columns) / (8192 * columns) + 1e-12)


def test_O9_S1_132_to_138_intensity_is_the_batch() -> None:
    for batch in (1, 8, 64, 295):
        assert ceiling(roof(flat(8192 * 28672)), batch).intensity_flops_per_byte == pytest.approx(batch)
    assert ridge_batch(roof(flat(8192 * 28672), H100), 0) == pytest.approx(295.3, abs=0.05)


def test_O10_S1_596_one_matrix_of_8192_by_28672() -> None:
    it = roof(flat(8192 * 28672))
    assert token_flops(it, 0) == {Precision.BF16: 469_762_048}
    assert weight_read_bytes(it, 1).expected == 469_762_048


def test_O11_S1_96_S1_596_share_of_compute_at_intensity_1() -> None:
    found = ceiling(roof(flat(1e9), H100))
    assert found.intensity_flops_per_byte / found.ridge_flops_per_byte == pytest.approx(0.00339, abs=5e-6)


@pytest.mark.parametrize(("batch", "share"), [(1, 0.0034), (64, 0.217)])
def test_O12_S1_589_share_of_compute_by_batch(batch: int, share: float) -> None:
    found = ceiling(roof(served(LLAMA_70B), H100, 2), batch)
    assert found.tokens_per_second / found.compute_tokens_per_second == pytest.approx(share, abs=6e-4)


def test_O13_S1_146_70b_at_fp16() -> None:
    assert weight_held_bytes(roof(flat(70e9))) == 140e9


@check_rows(
    ("name", "rounded", "usd", "told"),
    [("H100 SXM 80GB", 3350, 30_000, 0.112), ("A100 SXM 80GB", 2000, 10_000, 0.200), ("L40S", 864, 8_000, 0.108),
     ("RTX 4090", 1000, 1_600, 0.625)],
)  # fmt: skip
def test_O14_S1_167_to_170_bandwidth_for_the_money(name: str, rounded: float, usd: float, told: float) -> None:
    """Least $/h for the same bandwidth-bound tokens: an L40S is 3 % dearer than an H100, not cheaper as S1:32 says (e10)."""
    tokens = ceiling(roof(flat(0.5e9), replace(H100, bandwidth_bytes_per_second=rounded * 1e9))).tokens_per_second
    assert round(tokens / usd, 3) == told
    assert catalogue_row(name)["bandwidth_gb_per_second"] == pytest.approx(rounded, rel=0.02)


def test_O15_S1_612_13b_at_fp16() -> None:
    it = roof(flat(13e9), A100)
    assert weight_held_bytes(it) == 26e9
    assert check_fit(it, 80e9, context_tokens=1).fits


def test_O16_S1_616_to_618_h100_against_a100() -> None:
    """1.675 times the tokens at 2.7 times the price: not "nearly identical" (e9, S1:583)."""
    h100, a100 = (ceiling(roof(flat(13e9), peaks), 16).tokens_per_second for peaks in (H100, A100_ROUNDED))
    assert h100 / a100 == pytest.approx(1.675)
    dear, cheap = usd_per_million_tokens(2.7, h100), usd_per_million_tokens(1.0, a100)
    assert dear / cheap == pytest.approx(1.612, abs=5e-4)


def test_O17_S1_626_nvlink_against_pcie() -> None:
    """64 GB/s is PCIe 4.0 x16, both directions summed, as the catalogue's NVLink figures are."""
    assert catalogue_row("H100 SXM 80GB")["nvlink_gb_per_second"] / 64 == pytest.approx(14.06, abs=5e-3)


def test_O18_S1_120_to_124_decode_of_500_tokens() -> None:
    step = ceiling(roof(flat(0.5 * 0.010 * 3.35e12), H100)).step_seconds
    assert 500 * step == pytest.approx(5.0)


# --- memory -------------------------------------------------------------------------------------------------------------

SIZES = {
    84: (LLAMA_8B, 8_030_261_248, 16.1, 8.0, 4.0, 1),
    85: (LLAMA_70B, 70_553_706_496, 141.2, 70.6, 35.3, 2),
    86: (LLAMA_405B, 405_853_388_800, 810.2, 405.1, 202.6, 11),
}


@pytest.mark.parametrize("line", SIZES)
def test_O19_S2_84_to_86_weights_of_llama_3(line: int) -> None:
    """405B has 405,853,388,800 parameters, 811.7 GB: the seed's 405.1 is 0.2 % low (e14)."""
    form, parameters, *gigabytes, gpus = SIZES[line]
    assert form.parameters_total == parameters
    held = [weight_held_bytes(roof(served(form, kept))) / 1e9 for kept in (BF16, INT8, INT4)]
    assert held == pytest.approx(gigabytes, rel=5e-3)
    assert least_gpus(held[0] * 1e9, 80e9) == gpus


# KV bytes a token; GiB of one sequence of 4,096 tokens, printed as GB; share of the FP16 weights in %
CACHES = {
    100: (LLAMA_8B, 131_072, 0.125, 0.5, 3.1),
    101: (LLAMA_70B, 327_680, 0.3125, 1.25, 0.9),
    102: (LLAMA_405B, 516_096, 0.49, 1.96, 0.2),
}


@pytest.mark.parametrize("line", CACHES)
def test_O20_S2_99_to_102_kv_of_a_token(line: int) -> None:
    """MiB, where the seed prints MB (e15). With 8 KV heads: S1:555 and S4:658 count query heads, 8 times as much (e1, e2)."""
    form, exact, mib, *_ = CACHES[line]
    assert kv_stored_bytes(roof(served(form)), 1) == exact
    assert exact / 2**20 == pytest.approx(mib, abs=0.0025)


@pytest.mark.parametrize("line", CACHES)
def test_O21_S2_99_to_102_kv_of_a_request(line: int) -> None:
    form, _, _, gib, percent = CACHES[line]
    model = served(form)
    stored = kv_stored_bytes(roof(model), 4096)
    assert stored / GIB == pytest.approx(gib, rel=0.005)
    # the seed divides GiB by GB (e15); in one unit it is 3.3, 1.0 and 0.26 %
    assert 100 * stored / GIB / (model.weight_bytes / 1e9) == pytest.approx(percent, abs=0.05)


@pytest.mark.parametrize(
    ("line", "form", "told"),
    [(107, LLAMA_8B, (0.5, 16, 64, 128)), (108, LLAMA_70B, (1.25, 40, 160, 320)),
     (109, LLAMA_405B, (1.96875, 63.0, 252.0, 504.0))],
)  # fmt: skip
def test_O22_S2_107_to_109_kv_of_a_batch(line: int, form: Geometry, told: tuple[float, ...]) -> None:
    """GiB. Line 109 prints 1.96, 62.7, 250.9, 501.8: multiples of its rounded 0.49 MB, 0.4 % low."""
    one = kv_stored_bytes(roof(served(form)), 4096) / GIB
    assert [batch * one for batch in (1, 32, 128, 256)] == pytest.approx(told)


@check_rows(
    ("line", "batch", "gib"),
    [(146, 1, 0.25), (147, 4, 1), (148, 16, 4), (149, 32, 8), (150, 64, 16), (151, 128, 32), (152, 256, 64)],
)
def test_O23_S2_146_to_152_kv_column(line: int, batch: int, gib: float) -> None:
    assert batch * kv_stored_bytes(roof(served(LLAMA_8B)), 2048) == gib * GIB


@pytest.mark.parametrize(("weights_gb", "batch", "told"), [(141.2, 32, 189), (70.6, 32, 119), (141.2, 16, 169)])
def test_O24_S2_120_to_125_memory_budget(weights_gb: float, batch: int, told: float) -> None:
    """8 GB of overhead (6 in O25: e19, so it is an input). Only INT8 fits 160 GB; at FP16 29 GB are missing."""
    it = budget(weights_gb * 1e9, 1.25e9, tensor=2)
    found = check_fit(it, 80e9, overhead_bytes=4e9, context_tokens=4096)
    missing = batch * found.kv_bytes_per_sequence - found.free_kv_bytes
    assert round(160 + missing / 1e9) == told
    assert (found.max_batch >= batch) == (told <= 160)


@pytest.mark.parametrize(("weights_gb", "told"), [(141.2, 10), (70.6, 66)])
def test_O25_S2_161_to_163_largest_batch_of_70b(weights_gb: float, told: int) -> None:
    """Both hold for an overhead of 5.65 to 6.3 GB only (e19): 3 GB a GPU, as in O26. e18: not the 32 of the same table's rows."""
    assert (
        check_fit(budget(weights_gb * 1e9, 1.25e9, 2), 80e9, overhead_bytes=3e9, context_tokens=4096).max_batch == told
    )


def test_O26_S2_241_largest_batch_of_8b() -> None:
    """About 120 in the seed's mixed units (e15); with a sequence's 0.5 GiB in bytes it is 113."""
    assert check_fit(budget(16.1e9, 0.5e9), 80e9, overhead_bytes=3e9, context_tokens=4096).max_batch == 121
    assert check_fit(roof(served(LLAMA_8B)), 80e9, overhead_bytes=3e9, context_tokens=4096).max_batch == 113


def test_O27_S2_164_what_int4_frees() -> None:
    freed = weight_held_bytes(roof(served(LLAMA_70B, BF16))) - weight_held_bytes(roof(served(LLAMA_70B, INT4)))
    assert freed / 1e9 == pytest.approx(105.9, rel=1e-3)
    assert freed / 1e9 / 1.25 == pytest.approx(84.7, rel=1e-3)


def test_O28_S2_223_to_230_h100_against_a100_in_the_catalogue() -> None:
    """Bandwidth is 1.643 with A100's 2.039 TB/s; the seed's 1.67 rounds that to 2.0, and its ridge of 1.89 likewise."""
    h100, a100 = catalogue_row("H100 SXM 80GB"), catalogue_row("A100 SXM 80GB")
    assert h100["bandwidth_gb_per_second"] / 2000 == pytest.approx(1.675)
    for rate in ("bf16", "int8"):
        assert h100["tflops"][rate] / a100["tflops"][rate] == pytest.approx(3.17, abs=0.005)
    assert "fp8" not in a100["tflops"]
    assert h100["nvlink_gb_per_second"] / a100["nvlink_gb_per_second"] == 1.5
    assert h100["tdp_watts"] / a100["tdp_watts"] == 1.75
    ridges = [ceiling(roof(flat(1e9), peaks)).ridge_flops_per_byte for peaks in (H100, A100_ROUNDED)]
    assert ridges[0] / ridges[1] == pytest.approx(1.893, abs=5e-4)


# --- cost and planning --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tokens", "told"), [(286, 15.540), (7200, 0.6173)], ids=["O29-S2:312", "O30-S2:313"])
def test_O29_O30_S2_312_to_313_dollars_of_a_million_tokens(tokens: float, told: float) -> None:
    """The formula is right, the tokens/s are not possible (e20, next test)."""
    assert usd_per_million_tokens(16, tokens) == pytest.approx(told, abs=5e-4)


def test_O30_S2_314_ratio_of_batching() -> None:
    one, many = usd_per_million_tokens(16, 286), usd_per_million_tokens(16, 7200)
    assert one / many == pytest.approx(25.17, abs=5e-3)


@pytest.mark.parametrize(("batch", "context", "told"), [(1, 0, 23.1), (32, 4608, 0.97)])
def test_e20_S2_312_to_313_what_the_ceiling_allows(batch: int, context: float, told: float) -> None:
    best = ceiling(roof(served(LLAMA_70B, FP8, 1.0), H100, 4), batch, context).tokens_per_second
    assert usd_per_million_tokens(16, best) == pytest.approx(told, rel=3e-3)


def test_O31_S3_15_bytes_of_a_token_at_batch_32() -> None:
    found = ceiling(roof(flat(70e9), H100), 32)
    assert 3.35e12 / found.tokens_per_second == pytest.approx(4.375e9)


def test_O32_S4_658_70b_at_fp16() -> None:
    """For one H100's bandwidth; 140 GB do not fit its memory (e4), and two of them are twice as fast."""
    it = roof(flat(70e9), H100)
    assert ceiling(it).tokens_per_second == pytest.approx(23.929, abs=5e-4)
    assert not check_fit(it, 80e9, context_tokens=1).fits
    assert ceiling(roof(flat(70e9), H100, 2)).tokens_per_second == pytest.approx(47.857, abs=5e-4)


def test_O33_S4_658_the_same_at_batch_32() -> None:
    assert ceiling(roof(flat(70e9), H100), 32).tokens_per_second == pytest.approx(765.7, abs=0.05)
    assert ceiling(roof(flat(70e9), H100), 32).tokens_per_second == pytest.approx(768, rel=0.005)


def test_O34_S4_811_to_816_dollars_of_a_million_tokens() -> None:
    assert usd_per_million_tokens(3, 5000) == pytest.approx(1 / 6)


def test_O38_S4_1273_replicas() -> None:
    found = replicas(10, 500, 200, 5000, 0.7, 1.3)
    assert found.needed == pytest.approx(2.6)
    assert found.whole == 3


# --- errors of the seeds (facts model-math A.2) that no oracle touches ---


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


# --- what the two scripts of the first seed (S1) print when they are run ---


def script_ceiling(it: Roof, batch: float) -> Ceiling:
    found = decode_ceiling(it, batch, 0)
    assert found is not None
    return found


# its model: 4 d x d attention and 2 FFN matrices a layer; Llama-3-70B has 3 FFN matrices and 8 KV heads, so 60.1 B is 15 % low (e7)
MATRICES = 80 * (4 * 8192**2 + 2 * 8192 * 28672)


def scripted() -> ModelFacts:
    return flat(MATRICES)


def test_S1_214_to_224_size_of_the_script_s_model() -> None:
    """e7."""
    with_table = MATRICES + 128_256 * 8192
    assert round(with_table / 1e9, 1) == 60.1
    assert with_table / LLAMA_70B.parameters_total == pytest.approx(1 - 0.148, abs=5e-4)


@pytest.mark.parametrize(
    ("peaks", "ridge", "milliseconds", "percent", "tokens"),
    [(H100, 295.34, 35.26, (0.3, 2.7, 10.8, 43.3), (28.4, 226.9, 907.6, 3630.5)),
     (A100_ROUNDED, 156.0, 59.06, (0.6, 5.1, 20.5, 82.1), (16.9, 135.5, 541.9, 2167.4)),
     (L40S, 418.98, 136.7, (0.2, 1.9, 7.6, 30.6), (7.3, 58.5, 234.1, 936.3))],
    ids=["H100", "A100", "L40S"],
)  # fmt: skip
def test_S1_181_to_350_script_of_arithmetic_intensity(
    peaks: GpuPeaks, ridge: float, milliseconds: float, percent: tuple[float, ...], tokens: tuple[float, ...]
) -> None:
    found = [script_ceiling(roof(scripted(), peaks), batch) for batch in (1, 8, 32, 128)]
    assert [one.intensity_flops_per_byte for one in found] == pytest.approx([1, 8, 32, 128])
    assert [one.ridge_flops_per_byte for one in found] == pytest.approx([ridge] * 4, abs=5e-3)
    assert [one.step_seconds * 1e3 for one in found] == pytest.approx([milliseconds] * 4, abs=0.05)
    assert [
        100 * one.intensity_flops_per_byte / (one.ridge_flops_per_byte or math.nan) for one in found
    ] == pytest.approx(percent, abs=0.05)
    assert [one.tokens_per_second for one in found] == pytest.approx(tokens, abs=0.051)


@check_rows(
    ("terabytes", "price", "gpus", "tokens", "usd", "hourly"),
    [(3.35, 8.00, 2, 1072.0, 4.15, 16.00), (2.00, 3.50, 2, 640.0, 3.04, 7.00), (0.864, 2.20, 4, 553.0, 4.42, 8.80),
     (0.600, 1.50, 8, 768.0, 4.34, 12.00)],
    ids=["H100", "A100", "L40S", "A10G"],
)  # fmt: skip
def test_S1_423_to_509_script_of_cost(
    terabytes: float, price: float, gpus: int, tokens: float, usd: float, hourly: float
) -> None:
    """70 B FP16 at batch 32 and 0.7 of the bandwidth. The bandwidth of all GPUs counts, whatever the script's comment says (e11)."""
    reached = replace(H100, bandwidth_bytes_per_second=0.7 * terabytes * 1e12)
    found = script_ceiling(roof(flat(70e9), reached, gpus), 32).tokens_per_second
    assert found == pytest.approx(tokens, abs=0.05)
    assert gpus * price == hourly
    assert usd_per_million_tokens(gpus * price, found) == pytest.approx(usd, abs=0.005)
