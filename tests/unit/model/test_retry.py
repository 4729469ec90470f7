"""Pauses between tries."""

from __future__ import annotations

from llm_serving_exporter.model.later import Retry


def test_pauses_double_up_to_the_longest() -> None:
    retry = Retry(1.0, 5.0)
    assert retry.is_due(0.0)
    pauses = []
    now = 100.0
    for _ in range(5):
        retry.note_failure(now)
        pause = next(seconds for seconds in (1.0, 2.0, 4.0, 5.0, 8.0) if retry.is_due(now + seconds))
        assert not retry.is_due(now + pause - 0.01)
        pauses.append(pause)
        now += pause
    assert pauses == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_after_a_success_the_pauses_start_again() -> None:
    retry = Retry(1.0, 4.0)
    retry.note_failure(0.0)
    retry.note_failure(1.0)
    assert not retry.is_due(2.5)
    retry.reset()
    assert retry.is_due(2.5)
    retry.note_failure(2.5)
    assert retry.is_due(3.5)
