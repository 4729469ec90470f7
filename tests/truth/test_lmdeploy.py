"""What the exporter reads from LMDeploy's own collector against what the simulation that drove it counted (client/truth.json).

The pages are those at which nothing was under way, so that each stretch between two of them has a truth of its own.
"""

from __future__ import annotations

from collections import Counter

import pytest

from llm_serving_exporter.expose.sentences import why_absent
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot
from llm_serving_exporter.store import TargetReading
from tests.recordings import page, recording
from tests.replica import readings

RUN = recording("lmdeploy-0.18.0")
# the phases that lie between two quiet pages (captures README; an aborted request may outlive its phase)
STRETCHES = {
    (0, 60): ("light", "saturated", "drain_1"),
    (60, 104): ("kv_pressure", "drain_2"),
    (104, 116): ("prefill_heavy",),
    (116, 160): ("decode_heavy", "aborts", "idle_after"),
}
QUIET = (0, 60, 104, 116, 160)
# cached tokens of requests that were aborted: the simulation counts them at the first token, LMDeploy never
CACHED_OF_ABORTED = 416


def truth(*phases: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    for phase in phases or RUN.json("client/truth.json")["truth"]:
        counts.update(RUN.json("client/truth.json")["truth"][phase])
    return counts


def read(*pages: int) -> list[TargetReading]:
    return readings([{"/metrics": RUN.pages[number]} for number in pages])


@pytest.fixture(scope="module")
def quiet() -> dict[int, EngineSnapshot]:
    found = {}
    for number, one in zip(QUIET, read(*QUIET), strict=True):
        assert one.snapshot is not None, one.problem
        (found[number],) = one.snapshot.engines
    return found


@pytest.mark.parametrize(("first", "last"), STRETCHES)
def test_each_stretch_between_quiet_pages_is_exact(quiet: dict[int, EngineSnapshot], first: int, last: int) -> None:
    before, after = quiet[first], quiet[last]
    expected = truth(*STRETCHES[first, last])

    def increase(field: str) -> float:
        return getattr(after, field) - getattr(before, field)

    lost = CACHED_OF_ABORTED if expected["aborted"] else 0
    assert increase("prompt_tokens_total") == expected["prompt_tokens"]
    assert increase("decode_tokens_total") == expected["gen_tokens"]
    assert increase("cached_prompt_tokens_total") == expected["cached_tokens"] - lost
    assert increase("prefill_tokens_total") == expected["prompt_tokens"] - expected["cached_tokens"] + lost
    assert before.requests_finished_total is not None
    assert after.requests_finished_total is not None
    finished = {
        reason: value - before.requests_finished_total[reason]
        for reason, value in after.requests_finished_total.items()
    }
    assert finished == {"success": expected["finished"], "failed": expected["aborted"], "error": 0, "abort": 0}


def test_the_whole_run(quiet: dict[int, EngineSnapshot]) -> None:
    expected, last = truth(), quiet[160]
    assert (last.prompt_tokens_total, last.decode_tokens_total) == (530972, 96284)
    assert (expected["prompt_tokens"], expected["gen_tokens"]) == (530972, 96284)
    assert last.requests_finished_total is not None
    assert sum(last.requests_finished_total.values()) == expected["arrived"] == 592
    assert last.time_to_first_token_seconds is not None
    assert last.time_to_first_token_seconds.count == expected["scheduled"]  # aborted ones had a first token
    for field in ("e2e_request_latency_seconds", "request_queue_time_seconds", "request_prompt_tokens"):
        assert getattr(last, field).count == expected["finished"]
    # an event is an output after the first: 39608 outputs with 96284 - 592 tokens
    assert last.inter_token_latency_seconds is not None
    assert last.inter_token_latency_seconds.count == 39608


def test_prefix_hits_and_looked_up_tokens_are_of_the_same_requests(quiet: dict[int, EngineSnapshot]) -> None:
    last = quiet[160]
    assert last.request_prompt_tokens is not None
    assert last.prefix_cache_query_tokens_total == last.request_prompt_tokens.sum == 526539
    assert last.prefix_cache_hit_tokens_total == 131264


def test_in_the_middle_of_the_load_prefill_never_falls_and_ends_at_most_by_what_is_under_way_too_high() -> None:
    """Page 58 has prompts whose hits are not booked yet: the difference falls by 1392 until page 60."""
    pages = (0, 34, 46, 48, 58, 60)
    found = [one.snapshot.engines[0].prefill_tokens_total for one in read(*pages) if one.snapshot is not None]
    assert found == sorted(found)
    expected = truth("light", "saturated", "drain_1")
    assert found[-1] == expected["prompt_tokens"] - expected["cached_tokens"] + 1392


def test_errors_that_cannot_be_told_apart_make_no_service_level() -> None:
    """570 of 592 were fine; how many of the 22 others were errors is not on the page: 100 % good would be a lie."""
    found = readings([{"/metrics": page("lmdeploy-0.18.0", 160)}] * 2)[-1]
    assert found.derived is not None
    assert found.derived.signals["slo_errors"] is Absence.NOT_EXPORTED
    assert "errors" not in found.derived.engines[0].slo
    assert "one number" in why_absent("slo_errors", Absence.NOT_EXPORTED, found.missing)
