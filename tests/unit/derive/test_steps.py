"""Steps and what stands for them, worked out by hand."""

import pytest

from llm_serving_exporter.derive.steps import (
    Steps,
    average_running,
    busy_ratio,
    count_prompts,
    count_sequence_steps,
    count_steps,
    drafts_per_sequence_step,
    tokens_per_sequence_step,
)
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.window import EngineWindow
from tests.support.builders.windows import MINUTE, all_of, engine, window


def test_steps_as_the_engine_counts_them() -> None:
    assert count_steps(window(decoded=600, steps=60)) == Steps(60, counted=True)
    assert count_sequence_steps(window(decoded=600, steps=60)) == 600


def test_without_a_count_busy_time_over_the_mean_latency() -> None:
    """60 s at 20 ms a token; half of the readings have nothing running."""
    done = window(decoded=6000, steps=None, seconds_per_token=0.02)
    found = count_steps(done)
    assert isinstance(found, Steps)
    assert not found.counted
    assert found.count == pytest.approx(60 / 0.02)
    idle = engine(decoded=6000, steps=None, requests_running=0.0)
    half = count_steps(EngineWindow((done.first, idle), 60.0))
    assert isinstance(half, Steps)
    assert half.count == pytest.approx(30 / 0.02)


def test_no_more_steps_than_tokens() -> None:
    """At 1 ms a token a minute has room for 60,000 steps; 50 tokens are 50 at most."""
    found = count_steps(window(decoded=50, steps=None, seconds_per_token=0.001))
    assert found == Steps(50, counted=False)


def test_without_a_count_and_without_decode_one_step_a_prompt() -> None:
    assert count_steps(window(steps=None, prompts=12, prefill=12_000)) == Steps(12, counted=False)
    assert count_steps(window(steps=None)) is Absence.IDLE


def test_what_is_missing_is_said() -> None:
    bare = window(steps=None, inter_token_latency_seconds=None, decode_tokens_total=None)
    assert count_steps(bare) is count_sequence_steps(bare) is Absence.INPUT_MISSING
    first_page = EngineWindow((engine(decoded=10, steps=10),), 0.0)
    assert count_steps(first_page) is count_sequence_steps(first_page) is Absence.WARMING_UP
    uncounted = EngineWindow((engine(decoded=10, steps=None),), 0.0)
    assert count_steps(uncounted) is Absence.WARMING_UP


def test_prompts_by_first_tokens_else_by_finished_requests() -> None:
    assert count_prompts(window(prompts=7, finished=5, prompt=10)) == 7
    assert count_prompts(window(time_to_first_token_seconds=None, finished=5, prompt=10)) == 5
    assert count_prompts(window()) == 0.0


def test_running_requests_while_there_are_any() -> None:
    readings = tuple(engine(requests_running=value) for value in (0.0, 4.0, 8.0))
    assert average_running(EngineWindow(readings, 10.0)) == 6.0
    assert busy_ratio(EngineWindow(readings, 10.0)) == pytest.approx(2 / 3)
    unsaid = EngineWindow((engine(requests_running=None),) * 2, 5.0)
    assert average_running(unsaid) is busy_ratio(unsaid) is None


def test_speculation_yields_more_than_one_token_a_step() -> None:
    """E.3.1: 100 first tokens; 1,000 sequence-steps made 2,500 tokens, verifying 4 drafts each."""
    told = {"decoded": 1000, "steps": 100, "prompts": 100, "decode_tokens_total": 2600.0}
    done = window(**told, speculative_draft_tokens_total=4000.0)
    assert tokens_per_sequence_step(done) == 2.5
    assert drafts_per_sequence_step(done) == 4.0
    plain = window(decoded=1000, steps=100, prompts=100)
    assert tokens_per_sequence_step(plain) == 1.0
    assert drafts_per_sequence_step(plain) == 0.0


def test_nothing_decoded_has_no_tokens_per_step() -> None:
    assert tokens_per_sequence_step(window(prompts=5, prefill=500, steps=5)) is None
    assert drafts_per_sequence_step(window(speculative_draft_tokens_total=4.0)) == 0.0


def test_a_histogram_that_was_just_born_is_no_reading() -> None:
    """With one end missing nothing is said."""
    young = EngineWindow((engine(inter_token_latency_seconds=None), engine(decoded=5, steps=5)), 5.0)
    assert count_sequence_steps(young) is Absence.WARMING_UP
    assert all_of(0.5, 3).mean() == 0.5


def test_requests_shorter_than_the_interval_are_not_missed() -> None:
    """30 steps a second of 5 ms each are work, though no reading caught a running request (the recorded light load reads like this)."""
    quiet = {"requests_running": 0.0}
    light = EngineWindow(
        (replace(engine(decoded=0.0, steps=0.0, seconds_per_token=0.005), **quiet),
         replace(engine(decoded=600.0, steps=600.0, seconds_per_token=0.005), **quiet)), 20.0,
    )  # fmt: skip
    assert busy_ratio(light) == pytest.approx(0.15)
    assert busy_ratio(replace(light, elapsed_seconds=1.0)) == 1.0
    assert busy_ratio(EngineWindow(light.readings[:1], 0.0)) == 0.0


def test_without_inter_token_events_tokens_less_first_ones_are_the_sequence_steps() -> None:
    """TGI, TensorRT-LLM and llama.cpp count tokens but no inter-token events."""
    tokens = window(decoded=600, steps=100, prompts=12, inter_token_latency_seconds=None)
    assert count_sequence_steps(tokens) == 600


def test_under_speculation_tokens_say_nothing_about_steps() -> None:
    drafted = window(
        decoded=600, steps=100, prompts=12, inter_token_latency_seconds=None, speculative_draft_tokens_total=300.0
    )
    assert count_sequence_steps(drafted) is Absence.INPUT_MISSING
    counted = replace(drafted.last, speculative_accepted_tokens_total=150.0)
    known = EngineWindow(
        (replace(drafted.first, speculative_accepted_tokens_total=0.0), counted), drafted.elapsed_seconds
    )
    assert count_sequence_steps(known) == 450


def test_events_that_are_one_a_token_are_divided_by_what_a_step_yields() -> None:
    """SGLang observes the gap of an output as often as it has tokens (facts runtimes-vllm-sglang 2.4)."""
    assert count_sequence_steps(window(decoded=600, steps=100, accepted_tokens_per_step=2.5)) == 240
    # without speculation the gauge stands at 0
    assert count_sequence_steps(window(decoded=600, steps=100, accepted_tokens_per_step=0.0)) == 600


def test_an_encoder_makes_a_step_a_prompt_where_nothing_counts_them() -> None:
    """Text Embeddings Inference has no step count and no inter-token latency."""
    bare = window(steps=None, prompts=12, prefill=12_000, inter_token_latency_seconds=None)
    assert count_steps(bare) is Absence.INPUT_MISSING
    assert count_steps(bare, encoder=True) == Steps(12, counted=False)


# 200 prompts; of 19,800 tokens after the first only a tenth was streamed and observed as inter-token events
PARTLY_STREAMED = {
    "decoded": 1980,
    "prompts": 20,
    "decode_tokens_total": 20_000.0,
    "inter_token_latency_seconds": all_of(0.02, 1980),
}


def counted_apart(**more: float | None) -> EngineWindow:
    done = window(**{"steps": 400.0, **PARTLY_STREAMED, **more})
    return EngineWindow(
        (replace(done.first, decode_pass_tokens=0.0), replace(done.last, decode_pass_tokens=19_800.0)), MINUTE
    )


def test_tokens_of_decode_passes_count_where_not_every_answer_is_streamed() -> None:
    """SGLang from 0.5.7 on, mistral.rs: inter-token events are those of streams (facts runtimes-vllm-sglang 2.4, runtimes-others 15)."""
    done = counted_apart()
    assert count_sequence_steps(done) == 19_800
    assert count_prompts(done) == 200
    assert tokens_per_sequence_step(done) == 1.0


def test_under_speculation_they_are_divided_by_what_a_step_yields() -> None:
    done = counted_apart(accepted_tokens_per_step=3.0)
    assert count_sequence_steps(done) == 6600
    assert tokens_per_sequence_step(done) == 3.0


def test_a_mean_of_few_events_does_not_bound_the_steps_of_all_answers() -> None:
    # a minute of steps of 20 ms
    assert count_steps(counted_apart(steps=None)) == Steps(3000, counted=False)


def test_without_events_too_tokens_are_divided_by_what_a_step_yields() -> None:
    """SGLang's data-parallel ranks: inter-token events have no rank (facts runtimes-vllm-sglang 2.1)."""
    tokens = window(decoded=600, steps=100, inter_token_latency_seconds=None, accepted_tokens_per_step=3.0)
    assert count_sequence_steps(tokens) == 200
