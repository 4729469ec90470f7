"""Busy time by phase: where each tick's seconds go."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.derive.busy import (
    LONGEST_PENDING_SECONDS,
    REFERENCE_BATCH,
    REFERENCE_CONTEXT_TOKENS,
    REFERENCE_PROMPT_TOKENS,
    Weights,
    advance_busy_seconds,
    compute_reference_seconds,
    split_busy_time,
    was_busy,
    weigh_work,
)
from llm_serving_exporter.derive.roof import decode_ceiling
from llm_serving_exporter.derive.traffic import Work, measure_work
from llm_serving_exporter.model.derived import BusySeconds
from llm_serving_exporter.model.window import EngineWindow
from tests.support.builders.windows import engine, window
from tests.support.models.roofs import LLAMA_8B, flat, gpu, roof, served, shape

LLAMA = roof(served(LLAMA_8B))
THREE_TO_ONE = Weights(3.0, 1.0)


def tick(seconds: float = 5.0, *, running: float = 1.0, decoded: float = 0.0) -> EngineWindow:
    readings = engine(requests_running=running), engine(decoded=decoded, steps=decoded, requests_running=running)
    return EngineWindow(readings, seconds)


def test_a_ticks_seconds_are_split_by_what_each_phase_needs() -> None:
    assert advance_busy_seconds(None, tick(decoded=10), THREE_TO_ONE) == BusySeconds(3.75, 1.25, 0.0, 0.0)


def test_an_idle_tick_counts_nothing() -> None:
    before = BusySeconds(1.0, 2.0, 3.0, 4.0)
    assert advance_busy_seconds(before, tick(running=0.0), THREE_TO_ONE) == before
    assert advance_busy_seconds(before, EngineWindow((engine(decoded=5),), 0.0), THREE_TO_ONE) == before


def test_seconds_without_a_token_wait_for_the_tick_that_books_them() -> None:
    waiting = advance_busy_seconds(None, tick(), None)
    assert waiting == BusySeconds(pending_seconds=5.0)
    waiting = advance_busy_seconds(waiting, tick(), Weights(0.0, 0.0))
    assert waiting.pending_seconds == 10.0
    assert advance_busy_seconds(waiting, tick(decoded=10), THREE_TO_ONE) == BusySeconds(11.25, 3.75, 0.0, 0.0)


def test_what_waits_too_long_is_unattributed() -> None:
    counted = BusySeconds(1.0, 1.0)
    for _ in range(int(LONGEST_PENDING_SECONDS / 5)):
        counted = advance_busy_seconds(counted, tick(), None)
    assert (counted.pending_seconds, counted.unattributed) == (LONGEST_PENDING_SECONDS, 0.0)
    counted = advance_busy_seconds(counted, tick(), None)
    assert counted == BusySeconds(1.0, 1.0, LONGEST_PENDING_SECONDS + 5.0, 0.0)


def test_a_request_that_came_and_went_between_two_readings_made_it_busy() -> None:
    assert was_busy(tick(running=0.0, decoded=10))
    assert was_busy(tick(running=1.0))
    assert not was_busy(tick(running=0.0))


@given(
    st.lists(
        st.tuples(
            st.floats(0.0, 400.0), st.booleans(), st.floats(0, 1e3) | st.none(), st.floats(0, 1e3)
        ), max_size=40,
    )
)  # fmt: skip
def test_the_counters_never_fall_and_sum_to_the_busy_time(ticks: list[tuple[float, bool, float | None, float]]) -> None:
    counted, busy = BusySeconds(), 0.0
    for seconds, running, prefill, decode in ticks:
        shares = None if prefill is None else Weights(prefill, decode)
        after = advance_busy_seconds(counted, tick(seconds, running=float(running)), shares)
        busy += seconds if running else 0.0
        for name in ("prefill", "decode", "unattributed"):
            assert getattr(after, name) >= getattr(counted, name)
        assert 0 <= after.pending_seconds <= LONGEST_PENDING_SECONDS
        counted = after
    total = counted.prefill + counted.decode + counted.unattributed + counted.pending_seconds
    assert total == pytest.approx(busy, abs=1e-6)


def done(**told: float) -> Work:
    made = measure_work(window(**told))
    assert isinstance(made, Work)
    return made


def test_seconds_that_each_phase_needs() -> None:
    """Facts G.7: a prefill token 2 N / peak; decode its step at the ceiling of the batch."""
    made = done(decoded=6400, steps=100, prompts=64, prefill=64_000)
    found = weigh_work(LLAMA, made, 1000.0)
    assert found.prefill == pytest.approx(64_000 * 2 * 7.5e9 / 989.4e12, rel=0.1)
    assert found.decode == pytest.approx(100 * (7_504_924_672 * 2 + 64 * 1000 * 131_072) / 3.35e12)
    ratio = split_busy_time(found)
    assert sum(ratio.values()) == pytest.approx(1.0)


def test_micro_batches_do_not_make_decode_look_slower() -> None:
    """Two stages: 100 micro-steps of 32 of the 64 sequences take as long as each stage's half of the weights, in turn."""
    staged = roof(served(LLAMA_8B), pipeline=2)
    found = weigh_work(staged, done(decoded=3200, steps=100, requests_running=64.0), 1000.0)
    assert found.decode == pytest.approx(3200 / 64 * (7_504_924_672 * 2 + 32 * 1000 * 131_072) / 3.35e12)


def test_prefill_alone_and_encoders_have_no_decode() -> None:
    only = weigh_work(LLAMA, done(steps=20, prompts=20, prefill=20_000), 0.0)
    assert only is not None
    assert split_busy_time(only) == {"prefill": 1.0, "decode": 0.0}
    encoder = roof(flat(1e9, form=shape(encoder=True)))
    assert split_busy_time(weigh_work(encoder, done(steps=20, prompts=20, prefill=20_000), 0.0))["prefill"] == 1.0


def test_without_a_rate_nothing_is_split() -> None:
    unknown = roof(served(LLAMA_8B), gpu("?", 3.35))
    assert weigh_work(unknown, done(decoded=10, steps=10, prefill=100, prompts=1), 100.0) is None
    assert split_busy_time(None) == split_busy_time(Weights(0.0, 0.0)) == {}


def test_reference_seconds_are_the_ceilings_at_a_fixed_point() -> None:
    found = compute_reference_seconds(LLAMA)
    ceiling = decode_ceiling(LLAMA, REFERENCE_BATCH, REFERENCE_CONTEXT_TOKENS)
    assert found["decode"] == 1 / ceiling.tokens_per_second
    assert found["prefill"] == pytest.approx(2 * 7.5e9 / 989.4e12, rel=0.1)
    assert REFERENCE_PROMPT_TOKENS == 1024


def test_reference_of_an_encoder_is_prefills_alone() -> None:
    assert compute_reference_seconds(roof(flat(1e9, form=shape(encoder=True)))).keys() == {"prefill"}
    assert compute_reference_seconds(roof(served(LLAMA_8B), gpu("?", 3.35))) == {}
