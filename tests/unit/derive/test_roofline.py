"""One engine's roofline from its counters, how its work is spread, and what engines refuse to start."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.derive.bandwidth import make_roof
from llm_serving_exporter.derive.planning import list_refusals
from llm_serving_exporter.facts.architectures import geometry
from llm_serving_exporter.gpus.attribution import Spread, spread_engines
from llm_serving_exporter.model.derived import Cause, EngineDerived, Range
from llm_serving_exporter.model.hardware import GpuPeaks, Hardware, Parallel
from llm_serving_exporter.model.record import name_fields, replace
from llm_serving_exporter.model.shape import ModelFacts
from llm_serving_exporter.model.snapshot import Absence, ServerFacts
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.model.window import DeviceSample, EngineWindow
from tests.support.builders.engine_roofline import Outcome, roofline
from tests.support.builders.windows import all_of, engine, held, window
from tests.support.models.roofs import (
    BF16,
    DEEPSEEK_V3,
    FP8,
    H100,
    H200,
    INT4,
    LLAMA_8B,
    LLAMA_70B,
    flat,
    gpu,
    roof,
    served,
    shape,
)
from tests.support.models.shapes import shape_of
from tests.support.rows import check_rows

# --- One engine's roofline from its counters: each figure by hand, each absence with its reason


ONE = Hardware(H100, Parallel(), 1.0)
LLAMA = served(LLAMA_8B)
QWEN = served(shape_of("Qwen3-30B-A3B"))
ENCODER = flat(1e9, form=shape(encoder=True))
READ, KV, FLOPS = 7_504_924_672 * 2, 131_072, 989.4e12
# a computed token's, its own KV left out
MOVED = roof(LLAMA).activation_bytes.expected - KV
DECODE = {"decoded": 64_000.0, "steps": 1000.0, **held(1000, 64)}
SHORT = held(100, 64)
GPM = (DeviceSample(60.0, 1, gpm_ratio=0.5),)


def of(
    done: EngineWindow,
    model: ModelFacts | Absence = LLAMA,
    hardware: Hardware = ONE,
    devices: tuple[DeviceSample, ...] = (),
    **more: Any,
) -> Outcome:
    return roofline(done, devices, model, hardware, **more)


def test_decode_by_hand() -> None:
    """1,000 steps of 64 sequences with 1,000 tokens in 60 s on an H100."""
    found = of(window(**DECODE)).roofline
    step = READ + 64 * 1000 * KV
    assert found.bandwidth_ceiling == 3.35e12
    assert found.achieved["model"] == pytest.approx((1000 * step + 64_000 * (KV + MOVED)) / 60)
    assert found.ratio["model"] == pytest.approx(found.achieved["model"] / 3.35e12)
    assert found.batch == 64
    assert found.steps_per_second == pytest.approx(1000 / 60)
    assert found.step_floor_seconds == pytest.approx(step / 3.35e12)
    assert found.decode_ceiling == pytest.approx(64 / (step / 3.35e12))
    assert found.decode_ratio == pytest.approx(64_000 / 60 / found.decode_ceiling)
    assert found.step_bytes == pytest.approx(
        {"weights": READ, "kv_read": 64_000 * KV, "kv_written": 64 * KV, "activations": 64 * MOVED}
    )
    assert found.ridge_flops_per_byte == pytest.approx(FLOPS / 3.35e12)
    token = 2 * 7_504_658_432 + 32 * 4 * 32 * 128 * 1000
    assert found.compute_ratio == pytest.approx(64_000 * token / FLOPS / 60, rel=1e-4)
    assert found.intensity_flops_per_byte == pytest.approx(found.compute_ratio * FLOPS / found.achieved["model"])
    assert found.context == Range(1000, 1000, 1000)
    assert found.steps_counted
    assert found.experts is None
    assert set(found.phase_busy_ratio) == {"prefill", "decode"}
    assert not found.causes


def test_everything_that_is_there_says_so() -> None:
    signals = of(window(**DECODE), devices=GPM).signals
    for name in (
        "bandwidth_ceiling_bytes_per_second", "bandwidth_ceiling_ratio_model", "bandwidth_ceiling_ratio_gpm", "decode_ceiling_ratio",
        "decode_ceiling_tokens_per_second", "compute_ceiling_ratio", "phase_busy_ratio",
    ):  # fmt: skip
        assert signals[name] is Absence.AVAILABLE, name
    assert of(window(**{**DECODE, **SHORT})).signals["batch_ridge_size"] is Absence.AVAILABLE


def test_at_a_long_context_no_batch_is_compute_bound() -> None:
    """Each sequence's KV reads take longer than its FLOPs: 39 us for 1,000 x 131 kB at 3.35 TB/s against 16 for 2 N at 989 T."""
    outcome = of(window(**DECODE))
    assert outcome.signals["batch_ridge_size"] is Absence.NO_RIDGE
    assert outcome.roofline.batch_ridge is None
    assert outcome.roofline.decode_ceiling is not None


def test_where_recurrent_state_takes_longer_than_computing_the_weights_have_no_ridge_either() -> None:
    """Qwen3-Next on four H100: 155 MB of state that a sequence reads and writes each step, against 7 GFLOP, with no context at all."""
    hybrid = served(shape_of("Qwen3-Next-80B-A3B"))
    lengths = {"request_prompt_tokens": all_of(50, 64), "request_generation_tokens": all_of(100, 64)}
    found = of(window(**DECODE, **lengths), hybrid, Hardware(H100, Parallel(4), 4.0)).roofline
    assert found.decode_ceiling is not None
    assert found.weights_ridge is found.batch_ridge is None


def test_without_a_step_count_the_steps_are_worked_out_and_it_is_said() -> None:
    """20 ms a token while busy: 3,000 steps of 64 in a minute."""
    found = of(window(**{**DECODE, "decoded": 192_000.0, "steps": None}, seconds_per_token=0.02)).roofline
    assert not found.steps_counted
    assert found.steps_per_second == pytest.approx(50)
    assert found.batch == pytest.approx(64)
    assert found.ratio["model"] > 0


def test_a_prefill_replica_has_bytes_and_flops_and_no_decode() -> None:
    outcome = of(window(steps=20, prompts=20, prefill=40_000))
    found = outcome.roofline
    assert found.achieved["model"] == pytest.approx((20 * READ + 40_000 * (KV + MOVED)) / 60)
    assert found.compute_ratio > 0
    assert found.phase_busy_ratio == {"prefill": 1.0, "decode": 0.0}
    assert found.context is None
    assert found.decode_ceiling is found.decode_ratio is found.tokens_per_sequence_step is None
    assert outcome.signals["decode_ceiling_ratio"] is Absence.IDLE


def test_an_encoder_computes_and_does_not_decode() -> None:
    """vLLM's page of an embedding server has the latency histogram, with 0 events."""
    outcome = of(window(steps=20, prompts=20, prefill=40_000), ENCODER)
    assert outcome.roofline.compute_ratio == pytest.approx(40_000 * 2e9 / FLOPS / 60)
    moved = 40_000 * roof(ENCODER).activation_bytes.expected
    assert outcome.roofline.ratio["model"] == pytest.approx((20 * 2e9 + moved) / 60 / 3.35e12)
    for name in ("decode_ceiling_tokens_per_second", "decode_ceiling_ratio", "batch_ridge_size"):
        assert outcome.signals[name] is Absence.NO_DECODE
        assert of(window(), ENCODER).signals[name] is Absence.NO_DECODE
    assert of(window(), ENCODER).signals["compute_ceiling_ratio"] is Absence.IDLE


def test_measured_bandwidth_needs_no_model() -> None:
    outcome = of(window(**DECODE), Absence.MODEL_UNKNOWN, devices=GPM)
    assert outcome.roofline.ratio == {"gpm": 0.5}
    assert outcome.roofline.bandwidth_ceiling == 3.35e12
    assert outcome.signals["bandwidth_ceiling_ratio_gpm"] is Absence.AVAILABLE
    for name in ("bandwidth_ceiling_ratio_model", "decode_ceiling_ratio", "compute_ceiling_ratio", "phase_busy_ratio"):
        assert outcome.signals[name] is Absence.MODEL_UNKNOWN
    assert outcome.roofline.batch == 64


def test_the_share_of_several_engines() -> None:
    """Two engines on four GPUs: each ceiling is two GPUs' and so is what was measured."""
    devices = (DeviceSample(60.0, 4, gpm_ratio=0.5),)
    found = of(window(**DECODE), hardware=Hardware(H100, Parallel(2), 2.0), devices=devices).roofline
    assert found.bandwidth_ceiling == 2 * 3.35e12
    assert found.ratio["gpm"] == 0.5


def test_an_idle_gpu_beside_the_engines_own_does_not_halve_its_share() -> None:
    """Two GPUs allotted, one used at 60 %: 30 % in the mean."""
    devices = (DeviceSample(60.0, 2, gpm_ratio=0.3),)
    found = of(window(**DECODE), hardware=Hardware(H100, Parallel(1), 2.0), devices=devices).roofline
    assert found.bandwidth_ceiling == 3.35e12
    assert found.ratio["gpm"] == pytest.approx(0.6)


def test_tensor_and_pipeline_gpus_are_all_in_the_ceiling() -> None:
    found = of(window(**DECODE), hardware=Hardware(H100, Parallel(2, 2))).roofline
    assert found.bandwidth_ceiling == 4 * 3.35e12
    # micro-batches of 64 in both stages, but only 64 run
    assert found.batch == 64
    assert found.decode_ceiling == pytest.approx(64 / ((READ + 32 * 1000 * KV) / (2 * 3.35e12)))


@check_rows(
    ("hardware", "why"),
    [
        (Hardware(Absence.PEAK_UNKNOWN, Parallel(), 1.0), Absence.PEAK_UNKNOWN),
        (Hardware(GpuPeaks("?", None, ""), Parallel(), 1.0), Absence.PEAK_UNKNOWN),
        (Hardware(GpuPeaks("?", 0.0, ""), Parallel(), 1.0), Absence.PEAK_UNKNOWN),
        (Hardware(H100), Absence.GPUS_UNKNOWN),
        (Hardware(), Absence.GPUS_UNKNOWN),
    ],
)
def test_unknown_hardware_is_the_reason_of_everything_that_needs_it(hardware: Hardware, why: Absence) -> None:
    outcome = of(window(**DECODE), hardware=hardware, devices=GPM)
    assert make_roof(LLAMA, hardware) is why
    assert outcome.roofline.ratio == {}
    assert outcome.roofline.batch == 64
    assert {outcome.signals[name] for name in outcome.signals if name != "bandwidth_ceiling_ratio_runtime"} - {
        Absence.NOT_EXPORTED
    } == {why}


def test_gpus_that_do_not_divide_still_have_their_bandwidth_measured() -> None:
    """Two engines on three GPUs: no roof, but 1.5 GPUs' bandwidth each."""
    outcome = of(window(**DECODE), hardware=Hardware(H100, None, 1.5), devices=GPM)
    assert outcome.roofline.ratio == {"gpm": 0.5}
    assert outcome.roofline.bandwidth_ceiling == 1.5 * 3.35e12
    assert outcome.signals["decode_ceiling_ratio"] is Absence.GPUS_UNKNOWN


def test_without_a_compute_rate_bandwidth_is_known() -> None:
    outcome = of(window(**DECODE), hardware=Hardware(gpu("?", 3.35), Parallel(), 1.0))
    found = outcome.roofline
    assert found.ratio["model"] > 0
    assert found.decode_ceiling is not None
    assert found.compute_ratio is found.batch_ridge is found.ridge_flops_per_byte is None
    assert found.phase_busy_ratio == {}
    for name in ("compute_ceiling_ratio", "batch_ridge_size", "phase_busy_ratio"):
        assert outcome.signals[name] is Absence.PEAK_UNKNOWN


@check_rows(
    ("done", "why"),
    [
        (EngineWindow((engine(decoded=5, steps=5),), 0.0), Absence.WARMING_UP),
        (window(), Absence.IDLE),
        (window(decoded=5, steps=5, prefill_tokens_total=None), Absence.INPUT_MISSING),
        (window(decoded=5, steps=5), Absence.INPUT_MISSING),  # no length of context
    ],
)
def test_a_window_without_work_says_why(done: EngineWindow, why: Absence) -> None:
    outcome = of(done)
    for name in ("bandwidth_ceiling_ratio_model", "decode_ceiling_ratio", "compute_ceiling_ratio", "phase_busy_ratio"):
        assert outcome.signals[name] is why
    assert outcome.roofline.ratio == {}


def test_drafts_move_the_ridge_and_the_floor() -> None:
    """Four drafts a token: five times the FLOPs a step at the same bytes."""
    plain = of(window(**{**DECODE, **SHORT})).roofline
    drafted = of(window(**{**DECODE, **SHORT}, speculative_draft_tokens_total=256_000.0)).roofline
    token, kv = 2 * 7.5e9 / FLOPS, 100 * KV / 3.35e12
    assert drafted.batch_ridge / plain.batch_ridge == pytest.approx((token - kv) / (5 * token - kv), rel=0.01)
    # at batch 64 just beyond the ridge of 62: the floor is compute's
    assert drafted.step_floor_seconds == pytest.approx(64 * 5 * token, rel=0.01)
    assert drafted.compute_ratio == pytest.approx(5 * (plain.compute_ratio or 0))


def test_experts_touched_with_the_tokens_of_the_engines_that_share_them() -> None:
    alone = of(window(decoded=8000, steps=1000, **held(1000, 8)), QWEN).roofline.experts
    shared = of(
        window(decoded=8000, steps=1000, **held(1000, 8)), QWEN, replace(ONE, parallel=Parallel(1, 1, 4, 4))
    ).roofline.experts
    assert alone.expected == pytest.approx(128 * (1 - (1 - 8 / 128) ** 8))
    assert shared.expected == pytest.approx(128 * (1 - (1 - 8 / 128) ** 32))
    assert (alone.lower, alone.upper) == (8, 64)


# --- above 1 ----------------------------------------------------------------------------------------------------------------


def test_above_one_is_shown_as_it_is_with_its_cause() -> None:
    """Eight times the steps that an H100 can do."""
    outcome = of(window(**{**DECODE, "decoded": 64e5, "steps": 1e5}))
    assert outcome.roofline.ratio["model"] > 1
    assert outcome.roofline.decode_ratio > 1
    assert outcome.roofline.causes["bandwidth_ceiling_ratio_model"] is Cause.INPUTS
    assert outcome.roofline.causes["decode_ceiling_ratio"] is Cause.INPUTS
    assert outcome.roofline.causes["compute_ceiling_ratio"] is Cause.INPUTS
    assert outcome.signals["bandwidth_ceiling_ratio_model"] is Absence.AVAILABLE


def test_an_assumed_number_of_gpus_is_the_first_suspicion() -> None:
    causes = of(
        window(**{**DECODE, "decoded": 64e5, "steps": 1e5}), hardware=replace(ONE, assumed_gpus=True)
    ).roofline.causes
    assert set(causes.values()) == {Cause.GPU_COUNT}


def test_a_prefix_that_sequences_share_is_read_once_and_at_most_once_for_each() -> None:
    """64 sequences look at 100,000 tokens each, of which only 400 are held: more than the peak if memory gave each of them all."""
    done = window(**{**DECODE, **held(400, 64), "cached": 6_000_000}, finished=64, prompt=100_000, output=10)
    found = of(done).roofline
    assert found.model_ratio_range.expected == pytest.approx(found.ratio["model"])
    assert found.ratio["model"] < 0.2
    assert found.model_ratio_range.upper == 1.0
    assert found.attended_kv_ratio == pytest.approx(100_005 / 400, rel=1e-3)
    assert not found.causes


def test_what_sequences_share_lowers_the_expected_ceiling_and_not_the_upper_one() -> None:
    """64 sequences of 1,000 tokens that hold 400 each: memory gives the weights and 400, the chip's cache the other 600 at 5.5 TB/s."""
    done = window(**{**DECODE, **held(400, 64), "cached": 30_000}, finished=64, prompt=995, output=10)
    found = of(done).roofline
    once = (READ + 64 * 400 * KV) / 3.35e12
    assert found.decode_ceiling_upper == pytest.approx(64 / once, rel=1e-3)
    assert found.decode_ceiling == pytest.approx(64 / (once + 64 * 600 * KV / 5.5e12), rel=1e-3)
    assert found.context.expected == pytest.approx(1000, rel=1e-3)


def test_two_sources_that_differ_for_five_minutes_are_both_suspect() -> None:
    """GPM says 40 %, our arithmetic 7 %: one of them is wrong, and which is not known."""
    before: EngineDerived | None = None
    for second in (0.0, 60.0, 299.0, 300.0):
        outcome = of(window(**DECODE), devices=GPM, at=second, earlier=before)
        before = outcome.engine
        told = Cause.SOURCES_DIFFER if second >= 300 else None
        assert outcome.roofline.causes.get("bandwidth_ceiling_ratio_gpm") is told
        assert outcome.roofline.causes.get("bandwidth_ceiling_ratio_model") is told
    assert "bandwidth_ceiling_ratio_runtime" not in outcome.roofline.causes


# --- for any window -----------------------------------------------------------------------------------------------------------

COUNTS = st.integers(0, 10**9).map(float)


@st.composite
def windows(draw: st.DrawFn) -> EngineWindow:
    told = {name: draw(COUNTS) for name in ("decoded", "prompts", "prefill", "cached", "finished")}
    gauges = held(draw(st.floats(0, 1e6)), draw(st.floats(0, 1e4)))
    drafts = draw(st.none() | COUNTS)
    more = {} if drafts is None else {"speculative_draft_tokens_total": drafts}
    return window(
        draw(st.floats(1e-3, 1e4)), steps=draw(st.none() | COUNTS), prompt=draw(st.floats(0, 1e6)), output=draw(st.floats(0, 1e6)),
        seconds_per_token=draw(st.floats(0, 100)), **told, **gauges, **more,
    )  # fmt: skip


@given(windows(), st.sampled_from((LLAMA, QWEN, ENCODER)), st.sampled_from((1, 2, 8)), st.sampled_from((1, 2)))
def test_whatever_is_counted_figures_are_finite_and_not_negative(
    done: EngineWindow, model: ModelFacts, tensor: int, pipeline: int
) -> None:
    found = of(done, model, Hardware(H100, Parallel(tensor, pipeline)), GPM).roofline
    figures = [value for value in (getattr(found, name) for name in name_fields(found)) if isinstance(value, float)]
    for mapping in (found.achieved, found.ratio, found.step_bytes, found.phase_busy_ratio):
        figures += list(mapping.values())
    for band in (found.context, found.experts, found.model_ratio_range):
        if band is not None:
            figures += [band.lower, band.expected, band.upper]
            assert band.lower <= band.expected * (1 + 1e-9)
            assert band.expected <= band.upper * (1 + 1e-9)
    assert all(math.isfinite(figure) and figure >= 0 for figure in figures), found
    # suspect is what nothing known explains: above 1 at the lower bound, or above what could be if shared KV cost nothing
    ratios = {**found.ratio, "model": found.model_ratio_range.lower} if found.model_ratio_range else found.ratio
    suspects = {f"bandwidth_ceiling_ratio_{source}" for source, ratio in ratios.items() if ratio > 1}
    suspects |= {"compute_ceiling_ratio"} if (found.compute_ratio or 0) > 1 else set()
    if found.decode_ratio and found.decode_ceiling and found.decode_ceiling_upper:
        suspects |= (
            {"decode_ceiling_ratio"}
            if found.decode_ratio * (found.decode_ceiling / found.decode_ceiling_upper) > 1
            else set()
        )
    assert set(found.causes) == suspects


@given(windows(), st.floats(1.01, 100))
def test_the_share_of_a_higher_peak_is_lower(done: EngineWindow, times: float) -> None:
    faster = replace(H100, bandwidth_bytes_per_second=3.35e12 * times)
    slow = of(done).roofline.ratio.get("model")
    fast = of(done, hardware=replace(ONE, peaks=faster)).roofline.ratio.get("model")
    assert (slow is None) == (fast is None)
    if slow and fast:
        assert fast == pytest.approx(slow / times)


@given(windows(), st.floats(1, 1e5), st.floats(1, 1e5))
def test_the_ceiling_never_rises_with_context(done: EngineWindow, one: float, other: float) -> None:
    def ceiling(tokens: float) -> float | None:
        gauges = held(tokens, 64)
        readings = tuple(replace(reading, **gauges, request_generation_tokens=None) for reading in done.readings)
        return of(EngineWindow(readings, done.elapsed_seconds)).roofline.decode_ceiling

    short, long = ceiling(min(one, other)), ceiling(max(one, other))
    assert (short is None) == (long is None)
    if short is not None and long is not None:
        assert long <= short * (1 + 1e-9)


# --- How an engine's work is spread: who is believed, and what is a guess


NOTHING = ServerFacts()


def target(**settings: object) -> Target:
    return Target("t", "http://t:8000", **settings)


def test_configuration_wins_over_the_servers_word() -> None:
    said = ServerFacts(tensor_parallel_size=2, pipeline_parallel_size=1, data_parallel_size=1)
    assert spread_engines(target(), said, 2, 1) == Spread(Parallel(2), 2.0)
    told = spread_engines(target(tensor_parallel_size=4, pipeline_parallel_size=2), said, 8, 1)
    assert told == Spread(Parallel(4, 2), 8.0)


def test_without_a_word_all_gpus_of_an_engine_are_one_group_and_that_is_a_guess() -> None:
    assert spread_engines(target(), NOTHING, 4, 1) == Spread(Parallel(4), 4.0, assumed=True)
    assert spread_engines(target(gpu_count=4), NOTHING, None, 1) == Spread(Parallel(4), 4.0, assumed=True)
    assert spread_engines(target(pipeline_parallel_size=2), NOTHING, 8, 1) == Spread(Parallel(4, 2), 8.0, assumed=True)


@pytest.mark.parametrize(("gpus", "stages"), [(1, None), (2, 2)])
def test_one_gpu_a_stage_is_no_guess(gpus: int, stages: int | None) -> None:
    assert not spread_engines(target(pipeline_parallel_size=stages), NOTHING, gpus, 1).assumed


def test_each_of_several_engines_has_its_share() -> None:
    """Their experts are shared: with and without expert parallelism each engine holds its part."""
    assert spread_engines(target(), NOTHING, 8, 4) == Spread(Parallel(2, 1, 4, 8), 2.0, assumed=True)
    assert spread_engines(target(experts_shared=False), NOTHING, 4, 4) == Spread(Parallel(1, 1, 4), 1.0)
    assert spread_engines(target(), ServerFacts(experts_spread=False), 4, 4).parallel == Parallel(1, 1, 4)


def test_ranks_beyond_those_on_the_page() -> None:
    """A page that shows one rank of eight: the experts are spread over all of them."""
    assert spread_engines(
        target(), ServerFacts(tensor_parallel_size=1, data_parallel_size=8), 1, 1
    ).parallel == Parallel(1, 1, 8, 8)


def test_decode_context_parallelism_by_the_server_or_the_configuration() -> None:
    said = ServerFacts(tensor_parallel_size=8, decode_context_parallel_size=4)
    assert spread_engines(target(), said, 8, 1).parallel == Parallel(8, context=4)
    assert spread_engines(target(decode_context_parallel_size=2), said, 8, 1).parallel == Parallel(8, context=2)
    odd = spread_engines(target(decode_context_parallel_size=3), said, 8, 1)
    assert odd.parallel == Parallel(8), "no engine starts like this"


def test_an_engine_that_spans_nodes_has_more_gpus_than_are_seen_here() -> None:
    told = spread_engines(target(), ServerFacts(tensor_parallel_size=8, pipeline_parallel_size=2), 8, 1)
    assert told == Spread(Parallel(8, 2), 16.0)


def test_gpus_that_the_server_leaves_idle_are_the_engines_all_the_same() -> None:
    assert spread_engines(target(gpu_count=2), ServerFacts(tensor_parallel_size=1), None, 1) == Spread(Parallel(1), 2.0)


def test_what_cannot_be_divided_is_not_known() -> None:
    assert spread_engines(target(), NOTHING, 3, 2) == Spread(None, 1.5)
    assert spread_engines(target(pipeline_parallel_size=3), NOTHING, 8, 1) == Spread(None, 8.0)
    assert spread_engines(target(), NOTHING, None, 1) == Spread(None, None)
    assert spread_engines(target(), NOTHING, 0, 0) == Spread(None, None)


def test_the_servers_word_needs_no_gpus() -> None:
    assert spread_engines(target(), ServerFacts(tensor_parallel_size=4), None, 1) == Spread(Parallel(4), 4.0)


def test_the_servers_own_count_of_accelerators_stands_where_no_gpu_is_seen() -> None:
    """SGLang's /v1/loads says how many an engine has; NVML and the configuration win."""
    said = ServerFacts(gpu_count=4)
    assert spread_engines(target(), said, None, 2) == Spread(Parallel(4, 1, 2, 8), 4.0, assumed=True)
    assert spread_engines(target(gpu_count=2), said, None, 1) == Spread(Parallel(2), 2.0, assumed=True)
    assert spread_engines(target(), said, 8, 1) == Spread(Parallel(8), 8.0, assumed=True)


# --- What engines refuse to start, as their sources have it


T4 = replace(H100, name="T4", compute_capability=(7, 5))
SMALL_LLAMA = replace(served(LLAMA_70B, FP8), context_limit_tokens=131_072)
# 40 heads, 10 KV heads
PHI_4 = served(
    geometry(
        {
            "model_type": "phi3", "hidden_size": 5120, "num_hidden_layers": 40, "num_attention_heads": 40, "num_key_value_heads": 10,
            "intermediate_size": 17920, "vocab_size": 100352, "tie_word_embeddings": False,
        }
    ),
    FP8,
)  # fmt: skip
MLA = flat(1e9, FP8, replace(shape(DEEPSEEK_V3), mla=True))


@check_rows("tensor", [1, 2, 4, 8, 16, 32, 64])
def test_sixty_four_heads_spread_over_any_power_of_two(tensor: int) -> None:
    assert list_refusals(SMALL_LLAMA, H100, Parallel(tensor), 4096) == ()


@check_rows("tensor", [3, 6, 7, 128])
def test_heads_that_do_not_divide(tensor: int) -> None:
    (said,) = list_refusals(SMALL_LLAMA, H100, Parallel(tensor), 4096)
    assert f"{tensor} does not divide" in said
    assert "64 attention heads" in said


def test_kv_heads_that_spread_unevenly() -> None:
    assert list_refusals(PHI_4, H100, Parallel(2), 4096) == ()
    (said,) = list_refusals(PHI_4, H100, Parallel(4), 4096)
    assert said.startswith("10 KV heads do not spread evenly over 4")


def test_decode_context_parallelism_only_cuts_what_is_kept_several_times() -> None:
    """vLLM: the tensor-parallel size over the KV heads at most; MLA keeps one latent, so that any is right."""
    assert list_refusals(SMALL_LLAMA, H100, Parallel(16, context=2), 4096) == ()
    assert "no more than that" in list_refusals(SMALL_LLAMA, H100, Parallel(16, context=4), 4096)[0]
    assert "refuses decode context" in list_refusals(SMALL_LLAMA, H100, Parallel(8, context=2), 4096)[0]
    assert list_refusals(MLA, H200, Parallel(8, context=8), 4096) == ()


def test_a_context_beyond_the_models() -> None:
    assert list_refusals(SMALL_LLAMA, H100, Parallel(8), 131_072) == ()
    (said,) = list_refusals(SMALL_LLAMA, H100, Parallel(8), 131_073)
    assert "131072" in said


def test_bf16_on_a_card_without_it() -> None:
    (said,) = list_refusals(served(LLAMA_70B, BF16), T4, Parallel(8), 4096)
    assert "--dtype fp16" in said
    assert list_refusals(served(LLAMA_70B, INT4), T4, Parallel(8), 4096) == ()
    assert list_refusals(served(LLAMA_70B, BF16), H100, Parallel(8), 4096) == (), "no capability is known of it"
