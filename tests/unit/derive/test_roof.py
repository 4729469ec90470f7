"""Ceilings, ridge and floors against figures of facts model-math; what holds of any roof; what fits; a whole replica."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.derive.planning import (
    Speculation,
    bound_decode,
    check_fit,
    fastest_rate,
    least_gpus,
    replica_ceiling,
    replicas,
    speculated_tokens,
    usd_per_million_tokens,
)
from llm_serving_exporter.derive.roof import (
    Bound,
    decode_ceiling,
    encoder_ceiling_tokens_per_second,
    lacks,
    prefill_floor_seconds,
    ridge_batch,
)
from llm_serving_exporter.derive.work import (
    Roof,
    compute_seconds,
    estimate_touched_experts,
    kv_read_bytes,
    prefill_flops,
    token_flops,
    weight_read_bytes,
)
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.shape import AttentionLayers, Part, Precision, RecurrentLayers, Span, WeightFormat
from llm_serving_exporter.model.snapshot import Absence
from tests.support.models.roofs import (
    A100,
    B200,
    BF16,
    DEEPSEEK_V3,
    FP8,
    GPT_OSS,
    H100,
    H200,
    INT4,
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

# --- Ceilings, ridge and floors against figures of facts model-math, and what is said where something is not known


@check_rows(("batch", "microseconds"), [(1, 5279), (8, 672), (32, 179), (64, 96), (100, 67), (128, 55), (256, 35)])
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


# --- What must hold of the roof for any model, GPU, batch and context


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


# --- What fits the GPUs, and how many sequences


def test_llama_8b_on_one_gpu() -> None:
    """80 GB x 0.9 - 2 GB - 16.06 GB = 53.94 GB; a sequence of 8,192 tokens takes 1 GiB."""
    found = check_fit(roof(served(LLAMA_8B)), 80e9, utilisation=0.9, overhead_bytes=2e9, context_tokens=8192)
    assert found.fits
    assert found.weight_bytes == 2 * 8_030_261_248
    assert found.free_kv_bytes == pytest.approx(53.94e9, rel=1e-4)
    assert found.kv_bytes_per_sequence == 2**30
    assert found.max_batch == 50
    assert found.shortfall_bytes == 0


def test_overhead_is_of_each_gpu() -> None:
    one = check_fit(roof(served(LLAMA_70B), tensor=4), 80e9, overhead_bytes=1e9, context_tokens=4096)
    assert one.free_kv_bytes == pytest.approx(4 * 79e9 - 141_107_412_992)


@pytest.mark.parametrize(("tensor", "pipeline"), [(8, 1), (1, 8), (2, 4)])
def test_weights_are_spread_over_all_gpus(tensor: int, pipeline: int) -> None:
    found = check_fit(roof(served(LLAMA_70B), tensor=tensor, pipeline=pipeline), 80e9, context_tokens=4096)
    assert found.free_kv_bytes == pytest.approx(8 * 80e9 - 141_107_412_992)


def test_a_model_that_does_not_fit_says_what_is_missing() -> None:
    found = check_fit(roof(served(LLAMA_70B)), 80e9, context_tokens=4096)
    assert not found.fits
    assert found.max_batch == 0
    assert found.free_kv_bytes == pytest.approx(-61.1e9, rel=1e-3)
    assert found.shortfall_bytes == pytest.approx(61.1e9 + 1.25 * 2**30, rel=1e-3)


def test_weights_without_room_for_one_sequence_do_not_fit() -> None:
    """As engines see it: they refuse to start when one request of the longest context has no room."""
    found = check_fit(roof(flat(39.9e9)), 80e9, context_tokens=4096)
    assert found.max_batch is None
    tight = check_fit(roof(flat(39.9e9, BF16, shape((AttentionLayers(80, 2048, 8, 0, 0),)))), 80e9, context_tokens=4096)
    assert tight.free_kv_bytes > 0
    assert (tight.fits, tight.max_batch) == (False, 0)
    assert tight.shortfall_bytes == 1.25 * 2**30 - tight.free_kv_bytes


def test_a_model_that_keeps_nothing_has_no_largest_batch() -> None:
    encoder = roof(flat(1e8, form=shape(encoder=True)))
    assert check_fit(encoder, 80e9, context_tokens=512).fits
    assert check_fit(encoder, 80e9, context_tokens=512).max_batch is None
    assert not check_fit(encoder, 1e8, context_tokens=512).fits
    assert check_fit(encoder, 1e8, context_tokens=512).max_batch == 0


def test_more_ranks_than_kv_heads_keep_copies() -> None:
    one, two = (check_fit(roof(served(LLAMA_8B), tensor=ranks), 80e9, context_tokens=4096) for ranks in (8, 16))
    assert two.kv_bytes_per_sequence == 2 * one.kv_bytes_per_sequence


def test_windows_are_what_sliding_layers_keep() -> None:
    form = shape((AttentionLayers(1, 1024, 8, 0, 0, Span.SLIDING, 1000),), (RecurrentLayers(2, 500, 0),))
    it = roof(flat(1e9, form=form))
    assert check_fit(it, 80e9, context_tokens=10_000).kv_bytes_per_sequence == 1000 * 2048 + 4000


def test_experts_of_several_engines() -> None:
    model = flat(10e9, FP8, shape(experts=64, per_token=4), expert_parameters=1e9)
    assert check_fit(roof(model), 80e9, context_tokens=1).free_kv_bytes == pytest.approx(6e9)
    assert check_fit(roof(model, sharing=8), 80e9, context_tokens=1).free_kv_bytes == pytest.approx(8 * 62e9)


@check_rows(("weights", "memory", "told"), [(1.0, 80e9, 1), (80e9, 80e9, 1), (80.1e9, 80e9, 2), (1.0, 0.0, None)])
def test_least_gpus(weights: float, memory: float, told: int | None) -> None:
    assert least_gpus(weights, memory) == told


@given(st.floats(1e9, 2e11), st.floats(0.1, 1), st.floats(1, 1e6))
def test_the_largest_batch_fits_and_one_more_does_not(memory: float, utilisation: float, context: float) -> None:
    found = check_fit(roof(served(LLAMA_8B)), memory, utilisation=utilisation, context_tokens=context)
    assert found.fits == (found.max_batch > 0)
    if found.fits:
        slack = 1e-6 * memory
        assert found.max_batch * found.kv_bytes_per_sequence <= found.free_kv_bytes + slack
        assert (found.max_batch + 1) * found.kv_bytes_per_sequence > found.free_kv_bytes - slack
    else:
        assert found.shortfall_bytes > 0


# --- The small formulas of planning, beyond the seeds' oracles (tests/truth/test_oracles.py)


def test_mean_length_of_speculation() -> None:
    """Facts D.4: acceptance 0.8 and 4 drafts give 3.3616 tokens a step."""
    assert speculated_tokens(0.8, 4) == pytest.approx(3.3616)
    assert speculated_tokens(0.0, 4) == 1
    assert speculated_tokens(1.0, 4) == 5
    assert speculated_tokens(0.5, 0) == 1


@check_rows(("acceptance", "drafts"), [(-0.1, 4), (1.1, 4), (math.nan, 4), (0.8, -1)])
def test_speculation_outside_of_its_range(acceptance: float, drafts: int) -> None:
    assert speculated_tokens(acceptance, drafts) is None


@given(st.floats(0, 1), st.integers(0, 32))
def test_mean_length_lies_between_one_and_all_drafts(acceptance: float, drafts: int) -> None:
    length = speculated_tokens(acceptance, drafts)
    assert 1 - 1e-9 <= length <= 1 + drafts + 1e-9


@pytest.mark.parametrize("tokens", [0.0, -5.0])
def test_no_throughput_has_no_price(tokens: float) -> None:
    assert usd_per_million_tokens(16, tokens) is None


@check_rows(("throughput", "share"), [(0, 0.7), (5000, 0), (-1, 0.7), (5000, math.nan)])
def test_replicas_that_do_nothing_are_never_enough(throughput: float, share: float) -> None:
    assert replicas(10, 500, 200, throughput, share) is None


def test_a_whole_number_of_replicas_is_not_rounded_up() -> None:
    """10 x 700 / (5000 x 0.7) = 2, but for the last digit."""
    found = replicas(10, 500, 200, 5000, 0.7)
    assert found.whole == 2
    none = replicas(0, 500, 200, 5000, 0.7)
    assert none.whole == 0


# --- A whole replica: the bytes of its layout by the formula of docs/internals-ceiling.md, and the bounds around what is expected


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
