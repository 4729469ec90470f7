"""Bytes and FLOPs of a window by the arithmetic of facts model-math D.2, D.3, E.3; context, achieved bandwidth, memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.derive.bandwidth import (
    choose_ratio,
    differ,
    explain_ratio,
    measure_bandwidth,
    read_runtime_estimate,
)
from llm_serving_exporter.derive.kv import split_memory
from llm_serving_exporter.derive.steps import (
    DECODING,
    FINISHED,
    FINISHED_BEFORE,
    HELD,
    Steps,
    estimate_context,
    holds_every_token,
    second_moment,
)
from llm_serving_exporter.derive.traffic import (
    Work,
    add_flops,
    average_per_step,
    decode_flops,
    estimate_traffic,
    measure_work,
    prefill_flops,
)
from llm_serving_exporter.derive.work import experts_touched, weight_read_bytes
from llm_serving_exporter.model.derived import BandwidthSource, Cause, Range
from llm_serving_exporter.model.hardware import GpuPeaks, Parallel
from llm_serving_exporter.model.numbers import Histogram
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.shape import AttentionLayers, ModelFacts, Precision, RecurrentLayers, Span
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.window import DeviceSample, EngineWindow
from tests.support.builders.windows import engine, held, window
from tests.support.models.roofs import DEEPSEEK_V3, GPT_OSS, H100, LLAMA_8B, MISTRAL, flat, roof, served, shape
from tests.support.models.roofs import LLAMA_70B as SHAPE_70B
from tests.support.models.shapes import shape_of
from tests.support.rows import check_rows

# --- Bytes and FLOPs of a window, each figure beside the arithmetic of facts model-math D.2, D.3, E.3


LLAMA = roof(served(LLAMA_8B))
LLAMA_70B = roof(served(SHAPE_70B))
QWEN = roof(served(shape_of("Qwen3-30B-A3B")))
KV, READ = 131_072, 7_504_924_672 * 2
THOUSAND = Range(1000.0, 1000.0, 1000.0)


def done(**told: float) -> Work:
    made = measure_work(window(**told))
    assert isinstance(made, Work)
    return made


def test_counts_of_a_window() -> None:
    made = done(decoded=6400, steps=100, prompts=20, prefill=20_000, cached=4000, requests_running=70.0)
    assert (made.batch, made.prompts, made.prefill_tokens, made.cached_tokens) == (64, 20, 20_000, 4000)
    assert made.tokens == 26_400
    assert made.running == 70


def test_what_is_missing_is_said() -> None:
    assert measure_work(window(decoded=10, steps=0)) is Absence.IDLE
    assert measure_work(window(steps=0)) is Absence.IDLE
    assert measure_work(window(decoded=10, steps=10, prefill_tokens_total=None)) is Absence.INPUT_MISSING
    bare = window(decoded=10, steps=10, inter_token_latency_seconds=None, decode_tokens_total=None)
    assert measure_work(bare) is Absence.INPUT_MISSING
    assert measure_work(EngineWindow((engine(decoded=10, steps=10),), 0.0)) is Absence.WARMING_UP


def test_micro_batches_of_pipeline_stages_run_at_the_same_time() -> None:
    """Engines count each micro-batch as a step: two stages with 32 each have 64 sequences, one request alone is one."""
    full = done(decoded=3200, steps=100, requests_running=64.0)
    assert (full.batch, full.decoding(1), full.decoding(2)) == (32, 32, 64)
    alone = done(decoded=100, steps=100, requests_running=1.0)
    assert alone.decoding(2) == 1
    unsaid = done(decoded=3200, steps=100, requests_running=None)
    assert unsaid.decoding(2) == 64


def test_decode_reads_weights_once_a_step_and_context_once_a_sequence() -> None:
    moved = estimate_traffic(LLAMA, done(decoded=6400, steps=100), THOUSAND)
    assert moved.weights.expected == 100 * READ
    assert moved.kv_read.expected == 6400 * 1000 * KV
    assert moved.kv_written == 6400 * KV
    assert moved.activations.expected == 6400 * LLAMA.activation_bytes.expected - moved.kv_written
    assert moved.total.expected == (
        moved.weights.expected + moved.kv_read.expected + moved.kv_written + moved.activations.expected
    )


def test_what_a_token_moves_lies_between_two_fits() -> None:
    """For Llama-3.1-8B 22.0 MB by the width and 22.7 MB by its matrices, for a 70B 110 and 180."""
    for it, lower, upper in ((LLAMA, 22.0e6, 22.7e6), (LLAMA_70B, 110.1e6, 180.2e6), (QWEN, 15.7e6, 16.5e6)):
        found = it.activation_bytes
        assert (found.lower, found.upper) == pytest.approx((lower, upper), rel=0.005)
        assert found.expected == (found.lower + found.upper) / 2


def test_the_kv_in_use_is_read_by_each_step_that_decodes() -> None:
    """40,000 tokens held at 100 steps: once a step, whatever the sequences attend to; if each read its own prefix, 64 x 1,000 at most."""
    made = done(decoded=6400, steps=100, **held(625, 64))
    moved = estimate_traffic(LLAMA, made, THOUSAND)
    assert moved.kv_read == Range(100 * 40_000 * KV, 100 * 40_000 * KV, 6400 * 1000 * KV)


def test_half_of_a_prefix_that_outgrows_the_chips_cache_is_read_again() -> None:
    """16 sequences with 49,152 tokens in common: 201 MB a layer, of which 50 stay on the chip. One of 4,096 stays there whole."""
    for prefix, again in ((49_152, 0.5 * (1 - 50e6 / (49_152 * 4096))), (4096, 0.0)):
        held_tokens = prefix + 16 * 300.0
        gauges = {"requests_running": 16.0, "kv_used_tokens": held_tokens}
        made = done(decoded=1600, steps=100, cached=1000, **gauges)
        context = Range(*(prefix + 300.0,) * 3)
        read = estimate_traffic(LLAMA, made, context).kv_read
        assert read.lower == 100 * held_tokens * KV
        assert read.expected == pytest.approx(100 * (held_tokens + again * prefix) * KV, rel=1e-9)
        assert read.upper == 1600 * (prefix + 300) * KV


def test_between_two_readings_the_kv_in_use_lies_between_them() -> None:
    """1,000 tokens, then 3,000 after 90 steps, then 5,000 after 10 more."""
    readings = tuple(
        engine(steps=steps, decoded=steps * 10.0, requests_running=10.0, kv_used_tokens=tokens)
        for steps, tokens in ((0, 1000.0), (90, 3000.0), (100, 5000.0))
    )
    made = measure_work(EngineWindow(readings, 15.0))
    assert isinstance(made, Work)
    assert made.kv_token_steps == Range(90 * 1000 + 10 * 3000, 90 * 2000 + 10 * 4000, 90 * 3000 + 10 * 5000)


def test_passes_of_prompts_alone_read_no_kv_of_sequences() -> None:
    """SGLang: 20 of 100 passes compute prompts, so that 80 read the 40,000 tokens that are held, 80 sequences each."""
    made = done(decoded=6400, steps=100, decode_steps_total=80.0, **held(625, 64))
    assert made.batch == 80
    assert estimate_traffic(LLAMA, made, THOUSAND).kv_read.expected == 80 * 40_000 * KV


def test_pipeline_stages_read_the_kv_of_their_own_micro_batch() -> None:
    """Two stages with 32 of 64 sequences each: half of the KV in use a step."""
    staged = replace(LLAMA, parallel=Parallel(pipeline=2))
    made = done(decoded=3200, steps=100, **held(625, 64))
    assert estimate_traffic(staged, made, THOUSAND).kv_read.expected == 100 * 20_000 * KV


def test_the_band_of_the_context_is_a_band_of_the_reads() -> None:
    moved = estimate_traffic(LLAMA, done(decoded=6400, steps=100), Range(100.0, 1000.0, 2000.0))
    assert moved.kv_read == Range(6400 * 100 * KV, 6400 * 1000 * KV, 6400 * 2000 * KV)
    assert moved.total.lower < moved.total.expected < moved.total.upper


def test_prefill_alone_reads_weights_and_writes_its_kv() -> None:
    moved = estimate_traffic(LLAMA, done(steps=20, prompts=20, prefill=20_000), Range(0.0, 0.0, 0.0))
    assert (moved.weights.expected, moved.kv_read.expected) == (20 * READ, 0.0)
    assert moved.kv_written == 20_000 * KV


def test_a_cached_prefix_is_read_once_a_prompt_and_no_further_than_the_window() -> None:
    whole = estimate_traffic(LLAMA, done(steps=20, prompts=20, prefill=2000, cached=20_000), THOUSAND)
    assert whole.kv_read.expected == 20_000 * KV
    sliding = shape((AttentionLayers(1, 1, 1, 0, 0, Span.SLIDING, 100),), (RecurrentLayers(1, 50, 0),))
    moved = estimate_traffic(
        roof(flat(1e9, form=sliding)), done(steps=20, prompts=20, prefill=2000, cached=20_000), THOUSAND
    )
    assert moved.kv_read.expected == 20 * 100 * 2


def test_verified_drafts_are_computed_and_written_but_context_is_read_once() -> None:
    plain, drafted = (
        done(decoded=1000, steps=100, **more) for more in ({}, {"speculative_draft_tokens_total": 4000.0})
    )
    assert drafted.tokens == 5000
    one, five = estimate_traffic(LLAMA, plain, THOUSAND), estimate_traffic(LLAMA, drafted, THOUSAND)
    assert five.kv_read == one.kv_read
    assert five.kv_written == 5 * one.kv_written
    assert (
        decode_flops(LLAMA, drafted, THOUSAND)[Precision.BF16]
        == 5 * decode_flops(LLAMA, plain, THOUSAND)[Precision.BF16]
    )


def test_prefill_comes_in_few_steps_and_touches_experts_in_those() -> None:
    """990 steps of 8 tokens and 10 of 2,008 touch 52.4 of 128 experts in the mean; the mean step of 28 tokens would 106."""
    made = done(decoded=8000, steps=1000, prompts=10, prefill=20_000)
    touched = average_per_step(made, lambda tokens: experts_touched(QWEN, tokens) or Range(0, 0, 0))
    assert touched.expected == pytest.approx(0.99 * 128 * (1 - (1 - 8 / 128) ** 8) + 0.01 * 128, rel=1e-6)
    assert touched.upper == min(28 * 8, 128)
    assert touched.lower == 8
    moved = estimate_traffic(QWEN, made, THOUSAND)
    assert moved.weights.expected == pytest.approx(
        990 * weight_read_bytes(QWEN, 8).expected + 10 * weight_read_bytes(QWEN, 2008).expected
    )


def test_prompt_lengths() -> None:
    """20 prompts of 1,000 tokens: 2 x matrices x tokens, lm_head for one each, 4 q d s (s + 1) / 2 of attention a layer."""
    made = done(steps=20, prompts=20, prefill=20_000)
    matrices = sum(group.fixed_parameters for group in LLAMA.model.groups)
    head = sum(group.lm_head_parameters for group in LLAMA.model.groups)
    attention = 32 * 4 * 32 * 128 * 1000 * 1001 / 2
    assert prefill_flops(LLAMA, made)[Precision.BF16] == pytest.approx(20 * (2 * (1000 * matrices + head) + attention))


def test_no_prompt_is_longer_than_the_engine_takes() -> None:
    """20,000 tokens without a count of prompts would be one prompt of quadratic cost."""
    bare = {"steps": 20, "prefill": 20_000, "time_to_first_token_seconds": None}
    assert done(**bare).prompts == 1
    assert done(**bare, context_limit_tokens=2000.0).prompts == 10
    assert done(**bare, finished=40, prompt=500).prompts == 40
    assert done(decoded=10, steps=10).prompts == 0
    assert prefill_flops(LLAMA, done(decoded=10, steps=10)) == {}


def test_sums_by_precision() -> None:
    assert add_flops({Precision.FP8: 1.0}, {Precision.BF16: 2.0, Precision.FP8: 3.0}) == {
        Precision.FP8: 4.0,
        Precision.BF16: 2.0,
    }


@given(
    st.floats(1, 1e6), st.floats(0, 1e7), st.floats(0, 1e4), st.floats(0, 1e7), st.floats(0, 8), st.floats(0, 1e6),
)  # fmt: skip
def test_bounds_stand_in_order(
    count: float, decoded: float, prompts: float, prefill: float, drafts: float, tokens: float
) -> None:
    made = Work(60.0, Steps(count, counted=True), decoded, prompts, prefill, 0.0, drafts)
    for it in (LLAMA, QWEN):
        moved = estimate_traffic(it, made, Range(tokens / 2, tokens, tokens * 2))
        rounding = 1e-9 * moved.total.upper
        assert 0 <= moved.total.lower <= moved.total.expected + rounding
        assert moved.total.expected <= moved.total.upper + rounding


# --- Mean context: the two estimators of facts model-math E.3.6 and the band between them


def found(done: EngineWindow, form=LLAMA_8B) -> tuple[Range, str]:
    told = estimate_context(done, form)
    assert not isinstance(told, Absence)
    return told


def test_finished_requests_read_their_prompt_and_half_of_their_answer() -> None:
    """20 requests of 1,000 + 200 tokens: E[p] + E[o^2] / (2 E[o]) = 1,100 where all are alike."""
    tokens, origin = found(window(finished=20, prompt=1000, output=200))
    assert origin == FINISHED
    assert tokens.expected == pytest.approx(1100, rel=1e-4)


def test_long_answers_weigh_more_than_their_number() -> None:
    """8 answers of 10 tokens and 8 of 1,000: E[o^2] / (2 E[o]) = 495, not 252."""
    answers = Histogram((9, 11, 999, 1001), (0.0, 8.0, 8.0, 16.0), 16.0, 8 * 10 + 8 * 1000.0)
    done = EngineWindow(
        (
            engine(request_generation_tokens=Histogram(answers.edges, (0.0,) * 4, 0.0, 0.0)),
            engine(finished=16, prompt=0, request_generation_tokens=answers),
        ),
        60.0,
    )
    tokens, _ = found(done)
    assert tokens.expected == pytest.approx((8 * 100 + 8 * 1e6) / (2 * (80 + 8000)), rel=1e-3)


def test_a_shared_prefix_makes_a_band() -> None:
    """KV in use counts it once: 400 tokens a request, where each reads 1,100."""
    tokens, origin = found(window(finished=20, prompt=1000, output=200, **held(400, 10)))
    assert origin == FINISHED
    assert (tokens.lower, tokens.expected, tokens.upper) == pytest.approx((400, 1100, 1100), rel=1e-4)


def test_those_that_run_may_be_longer_than_those_that_finished() -> None:
    tokens, _ = found(window(finished=20, prompt=1000, output=200, **held(5000, 10)))
    assert (tokens.lower, tokens.expected, tokens.upper) == pytest.approx((1100, 1100, 5000), rel=1e-4)


def test_too_few_finished_leave_the_kv_in_use_less_half_a_block() -> None:
    tokens, origin = found(window(finished=7, prompt=1000, output=200, kv_block_tokens=32.0, **held(400, 10)))
    assert origin == HELD
    assert (tokens.lower, tokens.expected, tokens.upper) == (384.5, 384.5, 384.5)


def test_a_context_is_never_below_one_token() -> None:
    tokens, _ = found(window(kv_block_tokens=32.0, **held(3, 10)))
    assert tokens.expected == 1.0


def test_where_layers_forget_the_kv_in_use_is_no_count_of_tokens() -> None:
    """E.3.6: sliding windows and recurrent state. All requests since the engine's start stand in."""
    hybrid = shape(recurrent=(RecurrentLayers(4, 100, 0),))
    for form in (shape(GPT_OSS), shape(MISTRAL), hybrid):
        assert not holds_every_token(form)
        assert estimate_context(window(**held(400, 10)), form) is Absence.WARMING_UP
        before = EngineWindow((engine(finished=50, prompt=300, output=100, **held(400, 10)),) * 2, 60.0)
        tokens, origin = found(before, form)
        assert origin == FINISHED_BEFORE
        assert tokens.expected == pytest.approx(350, rel=1e-3)
        banded, _ = found(window(finished=20, prompt=1000, output=200, **held(400, 10)), form)
        assert banded.lower == banded.expected == banded.upper
    assert holds_every_token(LLAMA_8B)
    assert holds_every_token(shape(DEEPSEEK_V3))


def test_idle_or_unsaid() -> None:
    assert estimate_context(window(**held(400, 10) | {"requests_running": 0.0}), LLAMA_8B) is Absence.IDLE
    assert estimate_context(window(), LLAMA_8B) is Absence.INPUT_MISSING


EDGES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)


@given(st.lists(st.integers(1, 1500), min_size=1, max_size=60))
def test_the_second_moment_is_near_that_of_the_values(values: list[int]) -> None:
    """vLLM's buckets, 1 2 5: never below the square of the mean less a bucket's width, never beyond twice the truth."""
    counts = tuple(float(sum(value <= edge for value in values)) for edge in EDGES)
    made = Histogram(EDGES, counts, float(len(values)), float(sum(values)))
    truth = sum(value * value for value in values) / len(values)
    assert 0.5 * truth <= second_moment(made) <= 2.5 * truth


def test_a_histogram_without_edges_or_with_a_sum_of_nothing() -> None:
    assert second_moment(Histogram((), (), 4.0, 40.0)) == 0.0
    assert second_moment(Histogram((10.0,), (4.0,), 4.0, 0.0)) == 0.0


def test_what_the_engine_says_of_its_decoding_sequences_comes_first() -> None:
    """SGLang's decode_sum_seq_lens: 40 sequences of 1,500 tokens each, whatever the finished ones were like."""
    found = estimate_context(
        window(
            decoded=100,
            steps=10,
            finished=20,
            prompt=100,
            output=10,
            decode_context_tokens=60_000.0,
            requests_running=40.0,
        ),
        LLAMA_8B,
    )
    assert found == (Range(1500.0, 1500.0, 1500.0), DECODING)


# --- Achieved bandwidth by source: sums by hand, and the rules of facts model-math E.5


SAMPLES = (DeviceSample(0.0, 4, gpm_ratio=0.4, dcgm_ratio=0.3), DeviceSample(5.0, 4, gpm_ratio=0.6))
SOUND = replace(served(LLAMA_8B), estimate_sound=True)


def test_measured_is_the_mean_ratio_of_the_peak_of_the_engines_gpus() -> None:
    """Two engines on four GPUs: each has two GPUs' share of what all four did."""
    assert measure_bandwidth(BandwidthSource.GPM, SAMPLES, H100, 2.0) == pytest.approx(0.5 * 3.35e12 * 2)
    assert measure_bandwidth(BandwidthSource.DCGM, SAMPLES, H100, 4.0) == pytest.approx(0.3 * 3.35e12 * 4)


def test_measured_says_what_it_lacks() -> None:
    assert measure_bandwidth(BandwidthSource.GPM, (), H100, 2.0) is Absence.GPUS_UNKNOWN
    assert measure_bandwidth(BandwidthSource.GPM, SAMPLES, Absence.GPUS_UNKNOWN, 2.0) is Absence.GPUS_UNKNOWN
    assert measure_bandwidth(BandwidthSource.GPM, SAMPLES, GpuPeaks("?", None, ""), 2.0) is Absence.PEAK_UNKNOWN
    assert measure_bandwidth(BandwidthSource.GPM, SAMPLES, H100, None) is Absence.GPUS_UNKNOWN


def estimated(total: float | None = 6e13, **more: object) -> EngineWindow:
    return window(decoded=100, steps=10, estimated_read_bytes_per_gpu=total, **more)


def test_the_engines_own_estimate_is_of_one_gpu() -> None:
    assert read_runtime_estimate(estimated(), SOUND, (0, 32), 2.0) == pytest.approx(6e13 * 2 / 60)


def test_the_estimate_says_what_it_lacks() -> None:
    assert read_runtime_estimate(estimated(None), SOUND, (0, 32), 2.0) is Absence.NOT_EXPORTED
    assert read_runtime_estimate(estimated(0.0), SOUND, (0, 32), 2.0) is Absence.NOT_CONFIGURED
    assert read_runtime_estimate(estimated(), Absence.MODEL_UNKNOWN, (0, 32), 2.0) is Absence.MODEL_UNKNOWN
    assert read_runtime_estimate(estimated(), SOUND, (0, 32), None) is Absence.GPUS_UNKNOWN
    fresh = EngineWindow((engine(estimated_read_bytes_per_gpu=1.0),), 0.0)
    assert read_runtime_estimate(fresh, SOUND, (0, 32), 2.0) is Absence.WARMING_UP


CHUNKED = shape((AttentionLayers(1, 2, 1, 0, 0, Span.CHUNKED, 8192),))
MLA = replace(LLAMA_8B, mla=True)


@check_rows(
    ("form", "version", "sound"),
    [
        (LLAMA_8B, None, True),
        (shape(GPT_OSS), (0, 29), False), (shape(GPT_OSS), (0, 30), True), (shape(GPT_OSS), None, False),
        (MLA, (0, 23), False), (MLA, (0, 24), True), (MLA, (1, 0), True),
        (CHUNKED, (0, 33), False),
        (shape(recurrent=(RecurrentLayers(1, 1, 1),)), (0, 33), False),
    ],
)  # fmt: skip
def test_the_estimate_is_shown_where_the_release_knows_the_layers(form, version, sound) -> None:
    model = replace(flat(1e9, form=form), estimate_sound=True)
    found = read_runtime_estimate(estimated(), model, version, 1.0)
    assert isinstance(found, float) is sound
    assert sound or found is Absence.NOT_SOUND


def test_the_estimate_is_not_shown_for_formats_that_it_miscounts_or_with_speculation() -> None:
    unsound: ModelFacts = replace(SOUND, estimate_sound=False)
    assert read_runtime_estimate(estimated(), unsound, (0, 32), 1.0) is Absence.NOT_SOUND
    assert (
        read_runtime_estimate(estimated(speculative_draft_tokens_total=5.0), SOUND, (0, 32), 1.0) is Absence.NOT_SOUND
    )


def test_measured_is_believed_before_worked_out_and_nothing_above_one() -> None:
    assert choose_ratio({"gpm": 0.4, "dcgm": 0.3, "model": 0.5, "runtime": 0.2}) == 0.4
    assert choose_ratio({"model": 0.5, "dcgm": 0.3}) == 0.3
    assert choose_ratio({"gpm": 1.01, "model": 0.5}) == 0.5
    assert choose_ratio({"model": 1.2, "runtime": 0.6}) is None
    assert choose_ratio({"runtime": 0.6}) is None


@check_rows(
    ("gpus", "formats", "told"),
    [(True, True, Cause.GPU_COUNT), (False, True, Cause.WEIGHT_FORMAT), (False, False, Cause.INPUTS)],
)
def test_the_likely_cause_of_an_impossible_ratio(gpus, formats, told) -> None:
    assert explain_ratio(assumed_gpus=gpus, assumed_formats=formats) is told


@check_rows(
    ("measured", "by_model", "told"),
    [
        (0.40, 0.51, True),
        (0.40, 0.49, False),
        (0.40, 0.31, False),
        (0.40, 0.29, True),
        (0.01, 0.05, False),
        (0.00, 0.20, True),
    ],
)
def test_two_sources_differ_by_a_quarter_of_what_is_measured(measured, by_model, told) -> None:
    assert differ(measured, by_model) is told


# --- What takes up GPU memory


LLAMA_MODEL = served(LLAMA_8B)
DEEPSEEK = served(shape_of("DeepSeek-V3"))
POOL = window(kv_cache_capacity_tokens=100_000.0)


def parts(
    model: ModelFacts, parallel: Parallel | None = None, used: float | Absence = Absence.GPUS_UNKNOWN
) -> dict[str, float]:
    found = split_memory(POOL, model, parallel or Parallel(), used)
    assert not isinstance(found, Absence)
    return found


def test_weights_the_whole_pool_and_the_rest() -> None:
    found = parts(LLAMA_MODEL, used=40e9)
    assert found["weights"] == 8_030_261_248 * 2
    assert found["kv"] == 100_000 * 131_072
    assert found["other"] == 40e9 - found["weights"] - found["kv"]


def test_less_in_use_than_weights_and_pool_leaves_the_rest_out() -> None:
    """Another GPU than the engine's, or not yet loaded."""
    assert parts(LLAMA_MODEL, used=1e9).keys() == {"weights", "kv"}
    assert parts(LLAMA_MODEL).keys() == {"weights", "kv"}


@pytest.mark.parametrize(("tensor", "copies"), [(1, 1), (8, 1), (16, 2)])
def test_ranks_beyond_the_kv_heads_keep_copies(tensor: int, copies: int) -> None:
    assert parts(LLAMA_MODEL, Parallel(tensor))["kv"] == 100_000 * 131_072 * copies


def test_each_rank_keeps_the_latent() -> None:
    assert parts(DEEPSEEK, Parallel(8))["kv"] == 100_000 * 70_272 * 8


def test_experts_spread_over_engines_are_held_in_part() -> None:
    """V3: 58 layers of 256 experts of 3 x 7168 x 2048; each of 8 engines holds 32."""
    routed = 58 * 256 * 3 * 7168 * 2048 * 2
    assert parts(DEEPSEEK)["weights"] - parts(DEEPSEEK, Parallel(1, 1, 8, 8))["weights"] == pytest.approx(
        routed * 7 / 8
    )


def test_layers_that_forget_have_no_kv_part_and_so_no_rest() -> None:
    for form in (shape(GPT_OSS), shape(recurrent=(RecurrentLayers(1, 1, 1),))):
        assert parts(flat(1e9, form=form), used=40e9).keys() == {"weights"}


def test_an_encoder_has_no_kv_and_its_rest_is_known() -> None:
    found = parts(flat(1e9, form=shape(encoder=True)), used=5e9)
    assert found == {"weights": 2e9, "other": 3e9}


def test_an_unknown_pool_leaves_the_rest_out() -> None:
    found = split_memory(window(), LLAMA_MODEL, Parallel(), 40e9)
    assert isinstance(found, dict)
    assert found.keys() == {"weights"}


def test_the_checkpoints_own_size_where_it_is_what_is_served() -> None:
    near, twice = LLAMA_MODEL.weight_bytes * 1.02, LLAMA_MODEL.weight_bytes * 2
    assert parts(replace(LLAMA_MODEL, checkpoint_bytes=int(near)))["weights"] == int(near)
    # quantised while it was loaded
    assert parts(replace(LLAMA_MODEL, checkpoint_bytes=int(twice)))["weights"] == LLAMA_MODEL.weight_bytes


def test_memory_that_is_missing_is_said() -> None:
    assert split_memory(POOL, Absence.MODEL_UNKNOWN, Parallel(), 1.0) is Absence.MODEL_UNKNOWN
    assert split_memory(POOL, LLAMA_MODEL, None, 1.0) is Absence.GPUS_UNKNOWN
