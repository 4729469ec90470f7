"""Bytes and FLOPs of a window, each figure beside the arithmetic of facts model-math D.2, D.3, E.3."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.derive.steps import Steps
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
from llm_serving_exporter.model.derived import Range
from llm_serving_exporter.model.hardware import Parallel
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.shape import AttentionLayers, Precision, RecurrentLayers, Span
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.window import EngineWindow
from tests.support.builders.windows import engine, held, window
from tests.support.models.roofs import LLAMA_8B, flat, roof, served, shape
from tests.support.models.roofs import LLAMA_70B as SHAPE_70B
from tests.support.models.shapes import shape_of

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
