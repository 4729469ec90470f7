"""Counters that are born above 0: what they count began at 0, where the page before proves it."""

from __future__ import annotations

import logging

import pytest

from llm_serving_exporter.model.reading import TargetReading
from tests.support.servers.replica import readings

L = 'engine="0",model_name="m"'
TOKENS = f"vllm:generation_tokens_total{{{L}}} "
OTHER = (
    'vllm:num_requests_running{engine="1",model_name="m"} 1\nvllm:generation_tokens_total{engine="1",model_name="m"} 90'
)


def page(*counters: str) -> dict[str, str]:
    running, prompt = f"vllm:num_requests_running{{{L}}} 1", f"vllm:prompt_tokens_total{{{L}}} 100"
    return {"/metrics": "\n".join((running, prompt, *counters, ""))}


def decoded(reading: TargetReading, engine: int = 0) -> float | None:
    """Generated tokens a second over the window."""
    assert reading.derived is not None
    return reading.derived.engines[engine].phase_tokens_per_second.get("decode")


def play(*pages: dict[str, str] | None) -> list[TargetReading]:
    return readings(pages, seconds=5.0, runtime="vllm")


def test_what_a_new_counter_has_counted_is_an_increase() -> None:
    found = play(page(), page(), page(TOKENS + "500"), page(TOKENS + "520"))
    assert [decoded(reading) for reading in found] == [None, None, 50.0, pytest.approx(520 / 15)]


def test_the_first_page_is_a_baseline() -> None:
    assert decoded(play(page(TOKENS + "500"), page(TOKENS + "500"))[-1]) == 0.0


def test_after_a_gap_it_is_a_baseline_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    found = play(page(), None, None, page(TOKENS + "500"), page(TOKENS + "510"))
    # over the window before it the counter is not known
    assert decoded(found[-1]) in (None, 2.0)
    assert "decode_tokens_total: first seen after a gap" in caplog.text


def test_a_cut_page_invents_no_events() -> None:
    """A page without the counter between two that have it."""
    found = play(page(TOKENS + "500"), page(), page(TOKENS + "510"))
    assert decoded(found[-1]) == 1.0


def test_an_engine_that_comes_with_its_counters_is_a_baseline() -> None:
    found = play(page(TOKENS + "500"), page(TOKENS + "500", OTHER), page(TOKENS + "500", OTHER))
    assert decoded(found[-1], 1) == 0.0
