"""What one engine could do of each phase alone: by hand, by the ceilings of facts model-math A.3, and over recorded pages."""

from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from llm_serving_exporter.derive.roof import encoder_ceiling_tokens_per_second, prefill_floor_seconds
from llm_serving_exporter.model.hardware import Hardware, Parallel
from llm_serving_exporter.model.shape import ModelFacts
from llm_serving_exporter.model.snapshot import Absence
from tests.support.builders.engine_roofline import Outcome, roofline
from tests.support.builders.windows import all_of, window
from tests.support.models.roofs import FP8, GPT_OSS, H100, LLAMA_8B, LLAMA_70B, flat, gpu, roof, served, shape
from tests.support.paths import TESTS
from tests.support.rows import check_rows

PREFILL, DECODE = (f"phase_ceiling_tokens_per_second_{phase}" for phase in ("prefill", "decode"))
ONE, FOUR = Hardware(H100, Parallel(), 1.0), Hardware(H100, Parallel(4), 4.0)
LLAMA = served(LLAMA_8B)
# 8B: matrices of the layers, lm_head (128,256 x 4,096), KV bytes of a token, attention FLOPs of a token and token of context
LAYERS, LM_HEAD, KV, ATTENTION = 6_979_321_856, 525_336_576, 131_072, 4 * 32 * 32 * 128
BF16_FLOPS, BANDWIDTH = 989.4e12, 3.35e12
GOLDENS = sorted((TESTS / "golden").glob("*.prom"))


def of(model: ModelFacts | Absence = LLAMA, hardware: Hardware = ONE, **done: Any) -> Outcome:
    return roofline(window(**done), (), model, hardware)


def gauges(context: float, running: float, capacity: float) -> dict[str, float]:
    """Gauges of an engine whose `running` requests hold that much context each."""
    usage = context * running / capacity
    return {"requests_running": running, "kv_cache_usage_ratio": usage, "kv_cache_capacity_tokens": capacity}


def decoding(batch: float, context: float, capacity: float, **more: Any) -> dict[str, Any]:
    return {"decoded": 1000 * batch, "steps": 1000.0, **gauges(context, batch, capacity), **more}


@check_rows(
    ("limit", "facts"),
    [(None, 6244), (1024.0, 6244), (64.0, 6244), (32.0, 4345)],
    ids=["the KV cache alone", "the KV cache before the limit", "both", "the limit before the KV cache"],
)
def test_decode_of_llama_8b_on_one_h100_at_the_largest_batch(limit: float | None, facts: float) -> None:
    """Facts A.3, rows :239 and :240 of H100 FP16: 2,304 tokens of context; 64 sequences of them fit. One decodes now, at 218.8 tokens/s."""
    outcome = of(**decoding(1, 2304, 64 * 2304, batch_limit_requests=limit))
    assert outcome.roofline.phase_ceiling["decode"] == pytest.approx(facts, abs=0.5)
    assert outcome.roofline.decode_ceiling == pytest.approx(218.8, abs=0.05)
    assert outcome.signals[DECODE] is Absence.AVAILABLE


def test_decode_of_llama_70b_fp8_on_four_h100_at_the_largest_batch() -> None:
    """Facts A.3, row :254 with 8-bit KV: 4,608 tokens of context, 190.7 tokens/s at batch 1 and 4,578 at 32."""
    model = served(LLAMA_70B, FP8, 1.0)
    found = of(model, FOUR, **decoding(1, 4608, 100 * 4608, batch_limit_requests=32.0)).roofline
    assert found.decode_ceiling == pytest.approx(190.7, abs=0.5)
    assert found.phase_ceiling == {"decode": pytest.approx(4578, abs=1)}


def test_prefill_of_llama_8b_by_hand() -> None:
    """60 prompts of 1,000 tokens, logits for the last of each; one GPU, and four as four ranks or as two stages of two."""
    prompt = 2 * LAYERS * 1000 + 2 * LM_HEAD + ATTENTION * 1000 * 1001 / 2
    done = {"steps": 60.0, "prompts": 60.0, "prefill": 60_000.0}
    outcome = of(**done)
    assert outcome.roofline.phase_ceiling == {"prefill": pytest.approx(1000 * BF16_FLOPS / prompt)}
    assert outcome.signals[PREFILL] is Absence.AVAILABLE
    for parallel in (Parallel(4), Parallel(2, 2)):
        found = of(hardware=Hardware(H100, parallel, 4.0), **done).roofline.phase_ceiling
        assert found == {"prefill": pytest.approx(4 * 1000 * BF16_FLOPS / prompt)}
    # one prompt alone passes the two stages one after the other, and is no faster for the second
    alone = prefill_floor_seconds(roof(LLAMA, H100, 2, 2), 1000)
    assert alone == pytest.approx(prompt / BF16_FLOPS / 2)


def test_prefill_behind_a_long_prefix_is_bound_by_reading_it() -> None:
    """10 tokens computed behind 30,000 that are in the cache: 1.17 ms to read them, 0.30 to compute."""
    done = {"steps": 60.0, "prompts": 60.0, "prefill": 600.0, "cached": 60 * 30_000.0}
    flops = 2 * LAYERS * 10 + 2 * LM_HEAD + ATTENTION * (10 * 30_000 + 55)
    reading = (30_000 + 10) * KV / BANDWIDTH
    assert reading > flops / BF16_FLOPS
    assert of(**done).roofline.phase_ceiling["prefill"] == pytest.approx(10 / reading)
    for parallel in (Parallel(4), Parallel(2, 2)):  # each rank and each stage reads its own part
        found = of(hardware=Hardware(H100, parallel, 4.0), **done).roofline.phase_ceiling["prefill"]
        assert found == pytest.approx(4 * 10 / reading)


def test_short_prompts_share_the_weights_of_a_step() -> None:
    """One prompt of 8 tokens takes as long as reading the weights; a thousand of them do not take a thousand times that."""
    found = of(steps=1.0, prompts=1000.0, prefill=8000.0).roofline.phase_ceiling["prefill"]
    assert found == pytest.approx(8 * BF16_FLOPS / (2 * LAYERS * 8 + 2 * LM_HEAD + ATTENTION * 36))


def test_what_decodes_now_fits_whatever_the_lengths_say() -> None:
    """Sixteen sequences share a prefix of 30,000 tokens in a cache of 100,000: by their lengths three would fit."""
    lengths = {"finished": 20.0, "prompt": 30_000.0, "output": 100.0}
    found = of(**{**decoding(16, 2500, 100_000), **lengths, "batch_limit_requests": 64.0}).roofline
    assert found.context.expected > 30_000
    assert found.phase_ceiling["decode"] == found.decode_ceiling


WINDOWED = flat(8e9, form=shape(GPT_OSS))


@check_rows("model", [WINDOWED, LLAMA], ids=["no count of tokens", "not said"])
@check_rows(("limit", "most"), [(None, 32), (20.0, 20)])
def test_without_a_capacity_in_tokens_as_many_fit_as_fill_it_as_those_of_now_do(
    model: ModelFacts, limit: float | None, most: float
) -> None:
    """Eight requests take a quarter of the cache: 32 fit."""
    capacity = 1e6 if model is WINDOWED else None
    lengths = {"finished": 20.0, "prompt": 1000.0, "output": 100.0}
    now = {"requests_running": 8.0, "kv_cache_usage_ratio": 0.25, "kv_cache_capacity_tokens": capacity}
    work = {"decoded": 8000.0, "steps": 1000.0, **lengths, **now, "batch_limit_requests": limit}
    # the same lengths at that batch, decoding now
    full = {**work, "decoded": 1000.0 * most, "requests_running": most, "kv_cache_usage_ratio": most / 32}
    assert of(model, **work).roofline.phase_ceiling["decode"] == pytest.approx(
        of(model, **full).roofline.decode_ceiling
    )


def test_a_batch_limit_alone_says_nothing_about_memory() -> None:
    lengths = {"finished": 20.0, "prompt": 1000.0, "output": 100.0}
    outcome = of(decoded=8000.0, steps=1000.0, **lengths, batch_limit_requests=256.0)
    assert outcome.roofline.decode_ceiling is not None
    assert outcome.roofline.phase_ceiling == {}
    assert outcome.signals[DECODE] is Absence.INPUT_MISSING


def test_speculation_counts_in_tokens_and_its_drafts_in_the_step() -> None:
    """Three drafts a sequence-step, one and a half of them accepted: 2.5 tokens a step, for the FLOPs of four."""
    spec = {"speculative_draft_tokens_total": 48_000.0, "speculative_accepted_tokens_total": 24_000.0}
    events = {"decode_tokens_total": 40_010.0, "time_to_first_token_seconds": all_of(1.0, 10)}
    now = decoding(16, 100, 1600, batch_limit_requests=16.0)
    found = of(**now, **spec, **events).roofline
    assert found.tokens_per_sequence_step == pytest.approx(2.5)
    assert found.phase_ceiling["decode"] == pytest.approx(2.5 * found.decode_ceiling)
    # an engine that says how many tokens a step yields, and observes an event for each
    said = of(**{**now, "decoded": 32_000.0, "prompts": 10.0, "prefill": 1000.0}, accepted_tokens_per_step=2.0).roofline
    assert said.phase_ceiling["decode"] == pytest.approx(2 * said.decode_ceiling)
    # several tokens in one event without speculation are several steps, not a better one
    batched = of(**now, **events).roofline
    assert batched.tokens_per_sequence_step == pytest.approx(2.5)
    assert batched.phase_ceiling["decode"] == batched.decode_ceiling


@check_rows(
    ("done", "prefill", "decode"),
    [
        ({}, Absence.IDLE, Absence.IDLE),
        ({"steps": 60.0, "prompts": 60.0, "prefill": 60_000.0}, Absence.AVAILABLE, Absence.IDLE),
        (decoding(4, 1000, 100_000), Absence.IDLE, Absence.AVAILABLE),
        ({"decoded": 4000.0, "steps": 1000.0, "prompts": 9.0, "prefill": 9000.0}, Absence.AVAILABLE, Absence.INPUT_MISSING),
    ],
    ids=["idle", "prefill only", "decode only", "context unknown"],
)  # fmt: skip
def test_a_phase_without_work_has_no_ceiling_and_says_why(
    done: dict[str, Any], prefill: Absence, decode: Absence
) -> None:
    outcome = of(**done)
    assert (outcome.signals[PREFILL], outcome.signals[DECODE]) == (prefill, decode)
    there = {phase for phase, why in (("prefill", prefill), ("decode", decode)) if not why}
    assert set(outcome.roofline.phase_ceiling) == there


@pytest.mark.parametrize(
    ("model", "hardware", "why"),
    [
        (Absence.MODEL_UNKNOWN, ONE, Absence.MODEL_UNKNOWN),
        (LLAMA, Hardware(), Absence.GPUS_UNKNOWN),
        # its bandwidth is known, by NVML's clocks, and its FLOP/s are not
        (LLAMA, Hardware(gpu("Unheard of", 3.35), Parallel(), 1.0), Absence.PEAK_UNKNOWN),
    ],
)
def test_what_is_not_known_is_no_capacity(model: ModelFacts | Absence, hardware: Hardware, why: Absence) -> None:
    outcome = of(model, hardware, **decoding(4, 1000, 100_000, prompts=10.0, prefill=10_000.0))
    assert outcome.roofline.phase_ceiling == {}
    assert (outcome.signals[PREFILL], outcome.signals[DECODE]) == (why, why)


def test_an_encoder_has_prefill_only() -> None:
    encoder = flat(1e9, form=shape(encoder=True))
    outcome = of(encoder, steps=20.0, prompts=20.0, prefill=40_000.0)
    expected = encoder_ceiling_tokens_per_second(roof(encoder), 2000)
    assert outcome.roofline.phase_ceiling == {"prefill": pytest.approx(expected)}
    assert outcome.signals[DECODE] is Absence.NO_DECODE


@check_rows("golden", GOLDENS, ids=lambda path: path.stem)
def test_over_recorded_pages_no_rate_is_above_what_the_engine_could_do(golden: Path) -> None:
    """And the largest batch never does less than the batch of now, nor more than in proportion."""
    found: dict[tuple[str, str, str], float] = {
        (
            sample.name.removeprefix("llm_serving_"),
            sample.labels["engine"],
            sample.labels.get("phase", ""),
        ): sample.value
        for family in text_string_to_metric_families(golden.read_text())
        for sample in family.samples
        if "engine" in sample.labels
    }
    at_most = {key[1:]: value for key, value in found.items() if key[0] == "phase_ceiling_tokens_per_second"}
    for (engine, phase), most in at_most.items():
        assert most >= found["phase_tokens_per_second", engine, phase]
        if phase == "prefill":
            continue
        now, steps = found["decode_ceiling_tokens_per_second", engine, ""], most
        if golden.stem == "vllm-0.32-spec":
            steps /= found["decode_tokens_per_sequence_step", engine, ""]
        assert steps >= now * (1 - 1e-9)
        limit, batch = (found.get((name, engine, "")) for name in ("batch_limit_requests", "batch_size_mean"))
        if limit and batch:
            assert steps <= now * max(1.0, limit / batch) * (1 + 1e-9)


def test_recorded_pages_have_both_phases() -> None:
    """What the test before this one looks at is there."""
    found = [
        sample.labels["phase"]
        for path in GOLDENS
        if path.stem.startswith("vllm-0.32")
        for family in text_string_to_metric_families(path.read_text())
        for sample in family.samples
        if sample.name == "llm_serving_phase_ceiling_tokens_per_second"
    ]
    for phase in ("prefill", "decode"):
        assert found.count(phase) >= 6
