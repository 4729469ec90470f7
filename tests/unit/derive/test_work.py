"""Bytes and FLOPs of a step against facts model-math B.8 to C and D.3: KV and weights that are read, distinct experts, odd attention."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.derive.bandwidth import make_roof
from llm_serving_exporter.derive.planning import check_fit
from llm_serving_exporter.derive.roof import decode_ceiling, lacks, prefill_floor_seconds, ridge_batch
from llm_serving_exporter.derive.work import (
    Roof,
    compute_seconds,
    estimate_touched_experts,
    experts_touched,
    kv_read_bytes,
    kv_stored_bytes,
    kv_token_bytes,
    prefill_flops,
    token_flops,
    weight_held_bytes,
    weight_read_bytes,
)
from llm_serving_exporter.model.hardware import Hardware, Parallel
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.shape import (
    AttentionLayers,
    Indexer,
    ModelFacts,
    Part,
    Precision,
    RecurrentLayers,
    Span,
    WeightGroup,
)
from llm_serving_exporter.model.snapshot import Absence
from tests.support.models.roofs import (
    A100,
    B200,
    BF16,
    DEEPSEEK_V3,
    FP8,
    GEMMA_3_27B,
    GPT_OSS,
    H100,
    INT4,
    INT8,
    INT8_WEIGHT_ONLY,
    LLAMA_8B,
    LLAMA_70B,
    MISTRAL,
    MXFP4,
    NVFP4,
    flat,
    mixed,
    roof,
    served,
    shape,
)
from tests.support.models.shapes import shape_of
from tests.support.rows import check_rows

# --- Bytes of a step and of a sequence against facts model-math B.9, D.3


@pytest.mark.parametrize(
    ("attention", "told"),
    [(GPT_OSS, (42.5, 306.7, 1212.7, 4836.6)), (GEMMA_3_27B, (520.1, 1107.3, 3120.6, 11173.6)),
     (MISTRAL, (134.2, 536.9, 536.9, 536.9))],
    ids=["gpt-oss-120b", "Gemma-3-27B", "Mistral-7B-v0.1"],
)  # fmt: skip
def test_kv_read_with_windows(attention: tuple[AttentionLayers, ...], told: tuple[float, ...]) -> None:
    """Facts B.9, in MB at 1, 8, 32 and 128 Ki tokens; what is stored is the same."""
    it = roof(flat(0, form=shape(attention)))
    for context, megabytes in zip((1024, 8192, 32768, 131072), told, strict=True):
        assert kv_read_bytes(it, context) / 1e6 == pytest.approx(megabytes, abs=0.06)
        assert kv_stored_bytes(it, context) == kv_read_bytes(it, context)


def test_chunked_layers_store_and_read_at_most_a_chunk() -> None:
    it = roof(flat(0, form=shape((AttentionLayers(36, 2048, 8, 0, 0, Span.CHUNKED, 8192),))))
    assert kv_stored_bytes(it, 100_000) == 36 * 2048 * 2 * 8192
    assert kv_read_bytes(it, 100_000) == 36 * 2048 * 2 * 8192
    assert kv_read_bytes(it, 1000) == 36 * 2048 * 2 * 1000


@check_rows(("tensor", "copies"), [(1, 1), (4, 1), (8, 1), (16, 2), (32, 4)])
def test_ranks_beyond_the_kv_heads_hold_copies(tensor: int, copies: int) -> None:
    it = roof(served(LLAMA_70B), tensor=tensor)
    assert kv_read_bytes(it, 1000) == copies * 1000 * 327_680
    assert kv_stored_bytes(it, 1000) == copies * 1000 * 327_680


def test_every_rank_holds_the_latent_of_mla() -> None:
    """70,272 bytes a token (B.8), on each of 8 ranks."""
    assert kv_token_bytes(roof(flat(0, form=shape(DEEPSEEK_V3)))) == 70_272
    assert kv_token_bytes(roof(flat(0, form=shape(DEEPSEEK_V3)), tensor=8)) == 8 * 70_272


@pytest.mark.parametrize(
    ("state", "state_bytes", "told"),
    [(RecurrentLayers(23, 524_288, 18_432), 4.0, 49.1), (RecurrentLayers(36, 524_288, 8192 * 3), 4.0, 77.3),
     (RecurrentLayers(36, 524_288, 8192 * 3), 2.0, 39.5)],
    ids=["Nemotron-3-Nano", "Qwen3-Next", "Qwen3-Next, state in bf16"],
)  # fmt: skip
def test_recurrent_state_is_stored_once_and_read_and_written(
    state: RecurrentLayers, state_bytes: float, told: float
) -> None:
    """Facts B.9: MB a sequence, whatever the context."""
    it = roof(replace(flat(0, form=shape((), (state,))), state_bytes_per_element=state_bytes))
    assert kv_stored_bytes(it, 0) / 1e6 == pytest.approx(told, abs=0.06)
    assert kv_read_bytes(it, 100_000) == 2 * kv_stored_bytes(it, 100_000)


@pytest.mark.parametrize(("tensor", "told"), [(1, 139.006), (4, 145.3), (8, 153.7)])
def test_replicated_lm_head_as_gpt_fast_has_it(tensor: int, told: float) -> None:
    """Facts D.3: Llama-3.1-70B bf16 reads its lm_head of 2.101 GB on each rank; F row 6: 36.33 and 19.22 GB a GPU."""
    it = roof(served(LLAMA_70B), A100, tensor, replicated_bytes=128_256 * 8192 * 2)
    assert weight_read_bytes(it, 1).expected / 1e9 == pytest.approx(told, abs=0.06)
    assert weight_held_bytes(it) == LLAMA_70B.parameters_total * 2 + (tensor - 1) * 128_256 * 8192 * 2


def test_a_step_without_tokens_to_sample_leaves_the_lm_head_alone() -> None:
    it = roof(served(LLAMA_70B))
    whole, partly = weight_read_bytes(it, 512), weight_read_bytes(it, 512, sampled=False)
    assert whole.expected - partly.expected == 128_256 * 8192 * 2
    assert whole.lower == whole.upper


def test_experts_held_by_an_engine_are_its_part() -> None:
    model = flat(1e9, FP8, shape(experts=256, per_token=8), expert_parameters=1e6)
    assert weight_held_bytes(roof(model)) == 1e9 + 256e6
    assert weight_held_bytes(roof(model, sharing=8)) == 1e9 + 32e6


# --- Floating-point work against facts model-math B.10, and against plain counts


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


# --- Distinct experts: facts model-math C, every cell of both tables, and what must hold for any input


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


# --- Bytes and FLOPs of attention that picks, compresses, shares or crosses: against plain counts and what DeepSeek publishes of its own


MILLION = 1_000_000
# fp8_ds_mla: bytes a token and layer that vLLM stores (models/deepseek_v2.py and deepseek_v4/attention.py) over elements
V3_2_BYTES, V4_BYTES = 656 / 576, 584 / 512
SPARSE = AttentionLayers(
    3, 20, 1, 12, 4, Span.SPARSE, top_entries=10, compress_ratio=2, indexer=Indexer(2, 7, 5), heads=1
)


def sparse(**changes: object) -> Roof:
    return roof(flat(0, FP8, form=shape((replace(SPARSE, **changes),))))


@check_rows(("context", "entries"), [(0, 0.0), (8, 4.0), (20, 10.0), (21, 10.0), (4000, 10.0)])
def test_reads_stop_at_what_is_picked_but_for_the_index(context: int, entries: float) -> None:
    """A third layer takes what the second picked; an entry stands for two tokens; KV at 2 bytes an element."""
    it = sparse()
    assert kv_read_bytes(it, context) == 3 * 20 * 2 * entries + 2 * 7 * context / 2
    # what is not picked stays
    assert kv_stored_bytes(it, context) == (3 * 20 * 2 + 2 * 7) * context / 2
    assert kv_token_bytes(it) == (3 * 20 * 2 + 2 * 7) / 2
    assert token_flops(it, context).get(Precision.BF16, 0.0) == 3 * 12 * entries
    assert token_flops(it, context).get(Precision.FP8, 0.0) == 2 * 5 * context / 2


def test_an_index_is_scored_at_bf16_where_there_is_no_fp8() -> None:
    it = roof(flat(0, FP8, form=shape((SPARSE,))), A100)
    assert token_flops(it, 100) == {Precision.BF16: 3 * 12 * 10 + 2 * 5 * 50}


@check_rows(("new", "prefix"), [(1, 0), (40, 0), (100, 0), (40, 25), (3, 200)])
def test_a_prompts_token_is_computed_the_cheaper_way(new: int, prefix: int) -> None:
    """Token by token: all entries at 4 FLOPs, or the 10 that are picked at 12; the index scores all."""
    looked = scored = 0.0
    for place in range(prefix + 1, prefix + new + 1):
        looked += min(4 * place / 2, 12 * 10)
        scored += 5 * place / 2
    found = prefill_flops(sparse(), new, prefix, 0)
    assert found[Precision.BF16] == pytest.approx(3 * looked)
    assert found[Precision.FP8] == pytest.approx(2 * scored)


def test_every_rank_keeps_the_keys_of_the_index() -> None:
    one, eight = roof(flat(0, form=shape((SPARSE,)))), roof(flat(0, form=shape((SPARSE,))), tensor=8)
    assert kv_read_bytes(eight, 4000) == 8 * kv_read_bytes(one, 4000)
    grouped = replace(SPARSE, kv_heads=4)
    with_heads = roof(flat(0, form=shape((grouped,))), tensor=4)
    # four KV heads are divided among four ranks, the one key of the index is not
    assert kv_token_bytes(with_heads) == (3 * 20 * 2 + 4 * 2 * 7) / 2


def facts(name: str, kv_bytes: float) -> Roof:
    return roof(served(shape_of(name), FP8, kv_bytes))


@pytest.mark.parametrize(
    ("name", "kv_share", "flops_share"), [("DeepSeek-V4-Pro", 0.10, 0.27), ("DeepSeek-V4-Flash", 0.07, 0.10)]
)
def test_deepseek_v4_against_v3_2_at_a_million_tokens(name: str, kv_share: float, flops_share: float) -> None:
    """Its report (arXiv 2606.19348): V4-Pro needs 27 % of the FLOPs of a token and 10 % of the KV cache of V3.2, V4-Flash 10 % and 7 %.

    Its own index is in FP4, which halves the bytes of a key and the cost of scoring it; vLLM keeps it in FP8 unless told otherwise.
    """
    ours, theirs = facts(name, V4_BYTES), facts("DeepSeek-V3.2", V3_2_BYTES)
    kept = kv_stored_bytes(ours, MILLION) / kv_stored_bytes(theirs, MILLION)
    assert kv_share < kept < kv_share * 1.2
    work = sum(token_flops(ours, MILLION).values()) / sum(token_flops(theirs, MILLION).values())
    assert flops_share - 0.01 < work < flops_share + 0.03


def test_deepseek_v3_2_reads_little_of_a_long_context_but_its_index() -> None:
    it = facts("DeepSeek-V3.2", V3_2_BYTES)
    assert kv_read_bytes(it, 128_000) == pytest.approx(61 * (656 * 2048 + 132 * 128_000))
    assert kv_stored_bytes(it, 128_000) == pytest.approx(61 * (656 + 132) * 128_000)


def test_shared_kv_is_read_by_each_layer_and_kept_once() -> None:
    it = roof(served(shape_of("Gemma-3n-E4B")))
    token = 2 * 2 * 256 * 2
    assert kv_read_bytes(it, 100) == 35 * token * 100
    assert kv_stored_bytes(it, 100) == 20 * token * 100
    assert kv_token_bytes(it) == 20 * token
    # a window is one for both
    assert kv_read_bytes(it, 4096) == token * (7 * 4096 + 28 * 512)


def test_cross_attention_reads_an_encoder_whatever_the_context() -> None:
    unknown = roof(served(shape_of("Llama-3.2-11B-Vision")))
    own, cross = unknown.model.geometry.attention
    known = roof(flat(0, form=shape((own, replace(cross, encoder_tokens=1600)))))
    image = 8 * 2 * 8 * 128 * 2 * 1600
    for context in (0, 5000):
        assert kv_read_bytes(known, context) - kv_read_bytes(unknown, context) == image
        assert kv_stored_bytes(known, context) - kv_stored_bytes(unknown, context) == image
    assert kv_token_bytes(known) == kv_token_bytes(unknown)
    assert token_flops(known, 0)[Precision.BF16] == 8 * 4 * 32 * 128 * 1600
    assert prefill_flops(known, 7, 0, 0)[Precision.BF16] == 7 * 8 * 4 * 32 * 128 * 1600 + 32 * 4 * 32 * 128 * 28


def test_what_a_step_reads_unknown_leaves_weights_and_fit() -> None:
    form = replace(shape_of("DeepSeek-V3.2"), reads_unknown="no formula says what its attention reads")
    it = roof(served(form, FP8))
    assert decode_ceiling(it, 1, 1000) is None
    assert ridge_batch(it, 1000) is None
    assert prefill_floor_seconds(it, 1000) is None
    (lack,) = lacks(it)
    assert lack.reason is Absence.ARCHITECTURE_UNKNOWN
    assert "no formula says what its attention reads" in lack.sentence
    fit = check_fit(roof(served(form, FP8), tensor=8), 141e9, context_tokens=1000)
    assert fit.fits
    assert fit.weight_bytes == pytest.approx(form.parameters_total)
    assert make_roof(it.model, Hardware(peaks=H100, parallel=Parallel())) is Absence.ARCHITECTURE_UNKNOWN
