"""Our bytes and FLOPs against the engine's own arithmetic, on a real run of vLLM 0.32 with --enable-mfu-metrics (facts model-math E.5).

The engine adds up what each step it schedules reads; we have its counters alone. It counts activations as reads, which on a GPU stay
in cache for decode-sized batches: ours leaves them out, and the difference is what they come to.
"""

import json
from functools import cache
from pathlib import Path

import pytest

from llm_serving_exporter.derive.bandwidth import read_runtime_estimate
from llm_serving_exporter.derive.steps import FINISHED, estimate_context
from llm_serving_exporter.derive.traffic import Work, decode_flops, estimate_traffic, measure_work, prefill_flops
from llm_serving_exporter.derive.work import Roof
from llm_serving_exporter.facts import formats
from llm_serving_exporter.facts.architectures import geometry
from llm_serving_exporter.facts.quantisation import assign, estimate_sound, weigh
from llm_serving_exporter.model.derived import Range
from llm_serving_exporter.model.hardware import GpuPeaks, Parallel
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.shape import ModelFacts, Span, WeightFormat
from llm_serving_exporter.model.snapshot import Absence, Snapshot
from llm_serving_exporter.model.window import EngineWindow, Window
from llm_serving_simulator.replay import demo_model_config
from tests.support.builders.recordings import page, recording
from tests.support.builders.snapshots import snapshot_of
from tests.support.rows import check_rows
from tests.truth.test_counts import MAIN, MFU, SPEC, nearest, truth

PHASES = tuple(phase for phase in MFU if phase != "errors_aborts")
CONFIG = json.loads(Path(demo_model_config()).read_text())
# reads of one computed token and layer beside the weights, in multiples of the hidden size (facts E.5), at 2 bytes
ACTIVATIONS = 14.4
BATCHED_TOKENS_LIMIT = 1024


def model(weights: WeightFormat | None = None) -> ModelFacts:
    shape = geometry(CONFIG)
    made = assign(CONFIG, None, shape, override=weights)
    sound = estimate_sound(shape, made)
    return ModelFacts("tiny-llama", "its config.json", shape, weigh(shape, made), 2.0, "bf16", estimate_sound=sound)


MODEL = model()
# the run was on CPU: no peak is needed
ROOF = Roof(MODEL, GpuPeaks("", None, ""), Parallel())


@cache
def snapshot(run: str, number: int) -> Snapshot:
    number = nearest(recording(run), number)
    return snapshot_of(page(run, number).decode(), at=recording(run).timestamps[number])


def window(phase: str, run: str = "vllm-0.32-mfu", cuts: dict[str, tuple[int, int]] = MFU) -> EngineWindow:
    """From the phase's first page to its last, with all that lie between: gauges of the KV in use are read on each."""
    first, last = cuts[phase]
    inside = tuple(snapshot(run, number) for number in recording(run).pages if first < number < last)
    (found,) = Window((snapshot(run, first), *inside, snapshot(run, last))).engines()
    return found


def done_in(phase: str) -> Work:
    done = measure_work(window(phase))
    assert isinstance(done, Work)
    assert done.steps.counted
    return done


def ours(phase: str) -> Range:
    """Context that a step reads, by the product's estimator: mean prompt + E[o^2] / (2 E[o])."""
    found = estimate_context(window(phase), MODEL.geometry)
    assert not isinstance(found, Absence)
    assert found[1] == FINISHED
    return found[0]


def halfway(phase: str) -> Range:
    """By the estimator of facts E.5: mean prompt and half of the mean answer, as if all answers were alike."""
    prompts, answers = (window(phase).gained(name) for name in ("request_prompt_tokens", "request_generation_tokens"))
    tokens = prompts.sum / prompts.count + answers.sum / answers.count / 2
    return Range(tokens, tokens, tokens)


def activation_bytes(tokens: float) -> float:
    return ACTIVATIONS * CONFIG["hidden_size"] * 2 * CONFIG["num_hidden_layers"] * tokens


def read_bytes(done: Work, tokens: Range) -> float:
    moved = estimate_traffic(ROOF, done, tokens)
    return moved.weights.expected + moved.kv_read.expected


def off(phase: str, counted: float, field: str = "estimated_read_bytes_per_gpu") -> float:
    """Per cent that we lie above the engine's figure."""
    own = window(phase).increase(field)
    assert own
    return 100 * (counted / own - 1)


# --- bytes --------------------------------------------------------------------------------------------------------------


@check_rows(
    ("phase", "told", "with_activations"),
    [
        ("light", -2.5, -1.7), ("saturated", -8.5, 0.0), ("kv_pressure", -3.8, -0.5), ("prefill_heavy", -55, -1.2),
        ("decode_heavy", -2.4, -0.3),
    ],
)  # fmt: skip
def test_bytes_read_lie_off_as_the_facts_state(phase: str, told: float, with_activations: float) -> None:
    """E.5's own arithmetic: half of the mean answer, prefix-cache hits not read. Norms, which it may have left out, are 0.03 %."""
    done = replace(done_in(phase), cached_tokens=0.0, kv_token_steps=None)
    counted = read_bytes(done, halfway(phase))
    assert off(phase, counted) == pytest.approx(told, abs=0.5 if told == -55 else 0.1)
    assert off(phase, counted + activation_bytes(done.tokens)) == pytest.approx(with_activations, abs=0.05)


@check_rows(
    ("phase", "expected", "with_activations"),
    [
        ("light", -2.9, -2.2), ("saturated", -8.6, -0.1), ("kv_pressure", -4.2, -0.9), ("prefill_heavy", -56.3, -2.1),
        ("decode_heavy", -2.3, -0.3),
    ],
)  # fmt: skip
def test_bytes_read_by_the_product(phase: str, expected: float, with_activations: float) -> None:
    """The product reads the KV in use at each step that decodes, by the gauge of a page a second."""
    done, tokens = done_in(phase), ours(phase)
    counted = read_bytes(done, tokens)
    with_reads = off(phase, counted + activation_bytes(done.tokens))
    assert off(phase, counted) == pytest.approx(expected, abs=0.05)
    assert with_reads == pytest.approx(with_activations, abs=0.05)
    assert abs(with_reads) < 2.3
    by_length = read_bytes(replace(done, kv_token_steps=None), halfway(phase))
    assert abs(off(phase, counted) - off(phase, by_length)) < 2.3


def test_prompts_that_were_aborted_before_their_first_token_are_in_no_counter() -> None:
    """The errors-and-aborts phase: the engine's estimate has the steps of 4,500 prompt tokens that its counters never book."""
    done = done_in("errors_aborts")
    counted = read_bytes(done, ours("errors_aborts")) + activation_bytes(done.tokens)
    assert off("errors_aborts", counted) == pytest.approx(-5.3, abs=0.05)
    client = truth("vllm-0.32-mfu")["errors_aborts"]
    prompts = client["outcome_abort"] - client["aborted_after_first_token"]
    tokens = client["prompt_tokens_aborted"] - client["prompt_tokens_aborted_after_first_token"]
    assert (prompts, tokens) == (3, 4500)
    # each is more than one step's worth of tokens and less than two
    steps = 2 * prompts
    assert BATCHED_TOKENS_LIMIT < tokens / prompts < 2 * BATCHED_TOKENS_LIMIT
    weights = estimate_traffic(ROOF, done, ours("errors_aborts")).weights.expected / done.steps.count
    unbooked = steps * weights + activation_bytes(tokens)
    assert abs(off("errors_aborts", counted + unbooked)) < 2


# --- FLOPs --------------------------------------------------------------------------------------------------------------


def flops(done: Work, tokens: Range) -> float:
    return sum(prefill_flops(ROOF, done).values()) + sum(decode_flops(ROOF, done, tokens).values())


def prefill_attention(done: Work) -> float:
    """What a causal prompt's attention costs by our arithmetic: half of the square that the engine counts."""
    alone = replace(done, sequence_steps=0.0)
    blind = Roof(replace(MODEL, geometry=replace(MODEL.geometry, attention=())), ROOF.peaks, ROOF.parallel)
    return sum(prefill_flops(ROOF, alone).values()) - sum(prefill_flops(blind, alone).values())


@pytest.mark.parametrize(
    ("phase", "expected", "squared"), [("light", -1.4, -0.3), ("saturated", -2.0, -0.4), ("decode_heavy", 0.4, 0.5)]
)
def test_flops_agree_where_they_can_be_compared(phase: str, expected: float, squared: float) -> None:
    """Within 2 % as they are, within 0.5 % with the engine's square for prefill attention."""
    done = done_in(phase)
    counted = flops(done, ours(phase))
    field = "estimated_flops_per_gpu"
    assert off(phase, counted, field) == pytest.approx(expected, abs=0.05)
    assert off(phase, counted + prefill_attention(done), field) == pytest.approx(squared, abs=0.05)


def test_flops_of_long_prompts_lie_between_half_and_all_of_the_square() -> None:
    """The engine multiplies each chunk by the whole context so far: more than causal, less than the prompt squared."""
    done = done_in("prefill_heavy")
    counted = flops(done, ours("prefill_heavy"))
    assert off("prefill_heavy", counted, "estimated_flops_per_gpu") == pytest.approx(-7.9, abs=0.05)
    assert off("prefill_heavy", counted + prefill_attention(done), "estimated_flops_per_gpu") > 0


def test_what_preempted_sequences_compute_again_is_in_no_counter() -> None:
    """17 preemptions of sequences that hold some 620 tokens: the engine bills their second prefill, its counters do not book it."""
    done, tokens = done_in("kv_pressure"), ours("kv_pressure")
    counted = flops(done, tokens)
    assert off("kv_pressure", counted, "estimated_flops_per_gpu") == pytest.approx(-20.8, abs=0.05)
    preemptions = window("kv_pressure").increase("preemptions_total")
    assert preemptions == 17
    again = flops(replace(done, sequence_steps=0.0, prefill_tokens=preemptions * tokens.expected), tokens)
    assert 0 < off("kv_pressure", counted + again, "estimated_flops_per_gpu") < 15


# --- the engine's estimate as a source ----------------------------------------------------------------------------------


@check_rows("phase", MFU)
def test_the_engines_estimate_is_shown_for_a_dense_bf16_model(phase: str) -> None:
    assert MODEL.estimate_sound
    pages = [snapshot("vllm-0.32-mfu", number) for number in MFU[phase]]
    before, after = (shot.engines[0].estimated_read_bytes_per_gpu for shot in pages)
    seconds = pages[1].monotonic_seconds - pages[0].monotonic_seconds
    found = read_runtime_estimate(window(phase), MODEL, (0, 32), gpus=1)
    assert found == pytest.approx((after - before) / seconds)
    assert read_runtime_estimate(window(phase), MODEL, (0, 32), gpus=4) == pytest.approx(4 * (after - before) / seconds)


@pytest.mark.parametrize("run", ["vllm-0.32", "vllm-0.32-spec"])
def test_a_server_without_the_flag_has_the_families_at_zero(run: str) -> None:
    text = page(run, max(recording(run).pages)).decode()
    assert 'vllm:estimated_read_bytes_per_gpu_total{engine="0",model_name="tiny-llama"} 0.0' in text
    found = window("saturated", run, SPEC if run.endswith("spec") else MAIN)
    assert read_runtime_estimate(found, MODEL, (0, 32), gpus=1) is Absence.NOT_CONFIGURED


def test_under_speculation_the_estimate_is_not_sound() -> None:
    """No run has both, so that the draft counters of the speculating server stand on the estimating one's pages."""
    drafts = [line for line in page("vllm-0.32-spec", 44).decode().splitlines() if line.startswith("vllm:spec_decode_")]
    assert any(line.startswith("vllm:spec_decode_num_draft_tokens_total{") for line in drafts)
    first, last = MFU["saturated"]
    shots = [
        snapshot_of(page("vllm-0.32-mfu", number).decode() + "\n".join([*drafts, ""]), at=float(number))
        for number in (first, last)
    ]
    (found,) = Window(tuple(shots)).engines()
    assert found.last.speculative_draft_tokens_total
    assert read_runtime_estimate(found, MODEL, (0, 32), gpus=1) is Absence.NOT_SOUND


@check_rows("weights", [formats.named("awq"), formats.INT8, formats.NVFP4, formats.MXFP4], ids=str)
def test_formats_that_the_estimate_miscounts(weights: WeightFormat) -> None:
    assert read_runtime_estimate(window("light"), model(weights), (0, 32), gpus=1) is Absence.NOT_SOUND


def test_fp8_weights_are_counted_right() -> None:
    assert not isinstance(read_runtime_estimate(window("light"), model(formats.FP8), (0, 32), gpus=1), Absence)


@pytest.mark.parametrize(("version", "known"), [((0, 29), False), ((0, 30), True), (None, False)])
def test_sliding_windows_are_known_from_0_30(version: tuple[int, int] | None, known: bool) -> None:
    (layers,) = MODEL.geometry.attention
    sliding = replace(layers, span=Span.SLIDING, window_tokens=128)
    windowed = replace(MODEL, geometry=replace(MODEL.geometry, attention=(sliding,)))
    found = read_runtime_estimate(window("light"), windowed, version, gpus=1)
    assert (found is not Absence.NOT_SOUND) == known
