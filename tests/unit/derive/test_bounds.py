"""A whole replica: the bytes of its layout by the formula of docs/internals-ceiling.md, and the bounds around what is expected."""

import pytest

from llm_serving_exporter.derive.planning import Speculation, bound_decode, fastest_rate, replica_ceiling
from llm_serving_exporter.derive.work import estimate_touched_experts
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.shape import AttentionLayers, Precision, Span, WeightFormat
from tests.support.models.roofs import (
    A100,
    B200,
    BF16,
    DEEPSEEK_V3,
    FP8,
    H200,
    LLAMA_70B,
    NVFP4,
    flat,
    roof,
    served,
    shape,
)
from tests.support.rows import check_rows

# bytes of DeepSeek-V3's matrices that every token passes, and of one routed expert in all layers, near enough
WHOLE, EXPERT, KV = 17e9, 2.5e9, 61 * 576.0
MLA = flat(WHOLE, FP8, shape(DEEPSEEK_V3, experts=256, per_token=8), kv_bytes=1.0, expert_parameters=EXPERT)
GQA = flat(70e9, FP8, shape((AttentionLayers(80, 2048, 8, 0, 0),)), kv_bytes=2.0)


def step_bytes(
    batch: float, context: float, *, tp: int, pp: int, dp: int, shared: bool, kv: float, copies: float, experts: bool
) -> float:
    """The issue's sentence, written down again: dp W + the experts that T = B/pp tokens meet, once or per rank + max(B/pp, 1) K c."""
    tokens = max(batch / pp, 1.0)
    routed = 0.0
    if experts:
        one, ranks = (tokens, 1) if shared else (tokens / dp, dp)
        routed = ranks * estimate_touched_experts(256, 8, one).expected * EXPERT
    return dp * (WHOLE if experts else 70e9) + routed + tokens * context * kv * copies


@check_rows("batch", [1, 8, 100, 1000])
@check_rows(
    ("tp", "pp", "dp", "ep", "dcp", "copies"),
    [
        (8, 1, 1, 1, 1, 8),
        (8, 1, 1, 8, 4, 2),
        (1, 1, 8, 8, 1, 1),
        (1, 1, 8, 1, 1, 1),
        (4, 2, 2, 8, 1, 4),
        (2, 4, 4, 8, 2, 1),
    ],
)
def test_bytes_of_mla_and_experts_in_every_layout(
    batch: int, tp: int, pp: int, dp: int, ep: int, dcp: int, copies: int
) -> None:
    found = replica_ceiling(roof(MLA, H200, tp, pp, data=dp, expert=ep, context=dcp), batch, 8000)
    told = step_bytes(batch, 8000, tp=tp, pp=pp, dp=dp, shared=ep == tp * dp, kv=KV, copies=copies, experts=True)
    assert found.bandwidth_tokens_per_second == pytest.approx(batch * tp * dp * 4.8e12 / told)


@check_rows(("tp", "dp", "dcp", "copies"), [(4, 1, 1, 1), (16, 1, 1, 2), (16, 1, 2, 1), (4, 2, 1, 1)])
def test_bytes_of_heads_that_are_kept_several_times(tp: int, dp: int, dcp: int, copies: int) -> None:
    """Dense data parallelism is whole copies; decode context parallelism cuts what ranks beyond the KV heads would keep again."""
    found = replica_ceiling(roof(GQA, H200, tp, data=dp, context=dcp), 64, 4000)
    told = step_bytes(64, 4000, tp=tp, pp=1, dp=dp, shared=False, kv=80 * 2048 * 2.0, copies=copies, experts=False)
    assert found.bandwidth_tokens_per_second == pytest.approx(64 * tp * dp * 4.8e12 / told)


def test_dense_ranks_do_as_many_times_what_one_does() -> None:
    one, two = replica_ceiling(roof(GQA, H200, 4), 32, 4000), replica_ceiling(roof(GQA, H200, 4, data=2), 64, 4000)
    assert two.tokens_per_second == pytest.approx(2 * one.tokens_per_second)
    assert two.step_seconds == one.step_seconds


def test_routing_makes_the_bounds_of_bandwidth() -> None:
    """DeepSeek-V3 at batch 64: all tokens agree on 8 experts, no two agree on any."""
    it = roof(flat(1e9, FP8, shape(experts=256, per_token=8), expert_parameters=2.5e9), H200, 8)
    found = bound_decode(it, 64, 0)
    rates = (found.lower_tokens_per_second, found.expected.tokens_per_second, found.upper_tokens_per_second)
    for rate, experts in zip(rates, (256, 222.44, 8), strict=True):
        assert rate == pytest.approx(64 * 8 * 4.8e12 / (1e9 + experts * 2.5e9), rel=5e-5)


def test_a_dense_model_of_16_bits_has_one_bound() -> None:
    found = bound_decode(roof(served(LLAMA_70B, BF16), A100, 8), 16, 0)
    assert found.lower_tokens_per_second is None
    assert found.upper_tokens_per_second == pytest.approx(found.expected.tokens_per_second)


def test_the_highest_published_peaks_bound_it() -> None:
    peaks = replace(B200, flops_upper={Precision.FP4: 18e15}, bandwidth_upper_bytes_per_second=8.2e12)
    model = served(LLAMA_70B, NVFP4)
    light = bound_decode(roof(model, peaks), 1, 0)
    assert light.upper_tokens_per_second == pytest.approx(light.expected.tokens_per_second * 8.2 / 8.0)
    busy = bound_decode(roof(model, peaks), 1e6, 0)
    assert busy.upper_tokens_per_second == pytest.approx(2 * busy.expected.tokens_per_second)


@check_rows(
    ("bits", "rate"),
    [(16.0, 2250e12), (8.5, 4500e12), (4.5, 9000e12), (5.6, 4500e12)],
    ids=["bf16", "q8_0", "nvfp4", "q5_k"],
)
def test_a_format_is_multiplied_at_the_fastest_rate_that_takes_its_bits(bits: float, rate: float) -> None:
    assert fastest_rate(B200, bits) == rate


def test_weight_only_formats_may_be_multiplied_faster_than_is_expected() -> None:
    """W4A16 is expected at BF16's rate; kernels that quantise activations to 8 bits beat that."""
    int4 = WeightFormat("int4", 4.0, Precision.BF16)
    found = bound_decode(roof(served(LLAMA_70B, int4), H200), 1e6, 0)
    assert found.upper_tokens_per_second == pytest.approx(2 * found.expected.tokens_per_second, rel=1e-3)


def test_a_chunk_that_has_just_begun_is_next_to_nothing() -> None:
    form = shape((AttentionLayers(10, 2048, 8, 0, 0, Span.CHUNKED, 8192),))
    found = bound_decode(roof(flat(1e9, form=form), H200), 1000, 10_000)
    assert found.upper_tokens_per_second > 20 * found.expected.tokens_per_second


def test_dense_matrices_that_ranks_share_are_faster_than_expected() -> None:
    """SGLang spreads dense MLPs over all GPUs under data-parallel attention unless --moe-dense-tp-size 1."""
    (group,) = MLA.groups
    model = replace(MLA, groups=(replace(group, ffn_bytes=5e9),))
    it = roof(model, H200, 1, data=8, expert=8)
    found, plain = bound_decode(it, 8, 0), bound_decode(roof(MLA, H200, 1, data=8, expert=8), 8, 0)
    assert found.expected == plain.expected
    assert found.upper_tokens_per_second == pytest.approx(8 * 8 * 4.8e12 / (8 * 12e9 + 5e9 + 8 * 8 * EXPERT / 8))
    assert found.upper_tokens_per_second > plain.upper_tokens_per_second


def test_speculation_yields_what_is_accepted() -> None:
    it = roof(GQA, H200, 4)
    plain = bound_decode(it, 1, 0)
    assert plain is not None
    for acceptance, tokens in ((None, 1.0), (0.0, 1.0), (0.5, 1.875), (1.0, 4.0)):
        found = bound_decode(it, 1, 0, Speculation(3, acceptance))
        assert found.expected.tokens_per_second == pytest.approx(tokens * plain.expected.tokens_per_second)
        assert found.upper_tokens_per_second == pytest.approx(4 * plain.upper_tokens_per_second)


def test_without_a_bandwidth_there_are_none() -> None:
    assert bound_decode(roof(GQA, replace(H200, bandwidth_bytes_per_second=None)), 1, 0) is None
