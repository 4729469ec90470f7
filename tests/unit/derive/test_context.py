"""Mean context: the two estimators of facts model-math E.3.6 and the band between them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.derive.steps import (
    DECODING,
    FINISHED,
    FINISHED_BEFORE,
    HELD,
    estimate_context,
    holds_every_token,
    second_moment,
)
from llm_serving_exporter.model.derived import Range
from llm_serving_exporter.model.numbers import Histogram
from llm_serving_exporter.model.shape import RecurrentLayers
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.window import EngineWindow
from tests.support.builders.windows import engine, held, window
from tests.support.models.roofs import DEEPSEEK_V3, GPT_OSS, LLAMA_8B, MISTRAL, shape


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
