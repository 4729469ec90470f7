"""Counters that are born above 0: what they count began at 0, where the page before proves it."""

import logging
import re

import pytest

from llm_serving_exporter.model.reading import TargetReading
from tests.support.builders.recordings import page as recorded_page
from tests.support.rows import check_rows
from tests.support.servers.replica import UNIX_START, readings

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
    return reading.page.derived.engines[engine].phase_tokens_per_second.get("decode")


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


# of the server's own clock; the third of the pages is read at 10 s
CREATED = f"vllm:generation_tokens_created{{{L}}} "


@check_rows(
    ("created", "a_second"),
    [
        (UNIX_START - 3600.0, None),  # the pages before lacked what was there: they were cut, or another worker's
        (UNIX_START + 8.0, 50.0),
        (UNIX_START + 3600.0, 50.0),  # a clock that runs ahead: the page before decides
        (0.0, None),
    ],
)
def test_the_time_that_the_page_says_decides(created: float, a_second: float | None) -> None:
    found = play(page(), page(), page(TOKENS + "500", f"{CREATED}{created}"))
    assert decoded(found[-1]) == a_second


def test_a_label_that_is_new_is_born_though_its_name_is_old() -> None:
    """The youngest series of a name decides: one of another engine may be an hour old."""
    other = CREATED.replace('engine="0"', 'engine="1"')
    lines = (TOKENS + "500", f"{CREATED}{UNIX_START + 8.0}", f"{other}{UNIX_START - 3600.0}")
    assert decoded(play(page(), page(), page(*lines))[-1]) == 50.0


def test_a_real_page_that_lost_a_counter_invents_no_events() -> None:
    """The recording's own times say that the counter is as old as the engine."""
    whole = [recorded_page("vllm-0.32-mfu", number).decode() for number in (40, 45, 50)]
    cut = [re.sub(r"(?m)^vllm:generation_tokens_total.*\n", "", text) for text in whole[:2]]
    found = play(*({"/metrics": text} for text in (*cut, whole[2])))
    assert "vllm:generation_tokens_created" in whole[0]
    assert decoded(found[-1]) is None
