"""What the exporter reads from LMDeploy's own collector against what the simulation that drove it counted (client/truth.json).

The pages are those at which nothing was under way, so that each stretch between two of them has a truth of its own.
"""

from __future__ import annotations

from collections import Counter

import pytest

from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot
from llm_serving_exporter.render.sentences import why_absent
from tests.support.builders.recordings import page, recording
from tests.support.rows import check_rows
from tests.support.servers.replica import readings

RUN = recording("lmdeploy-0.18.0")
# the phases that lie between two quiet pages (captures README; an aborted request may outlive its phase)
STRETCHES = {
    (0, 60): ("light", "saturated", "drain_1"),
    (60, 104): ("kv_pressure", "drain_2"),
    (104, 116): ("prefill_heavy",),
    (116, 160): ("decode_heavy", "aborts", "idle_after"),
}
QUIET = (0, 60, 104, 116, 160)


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


@check_rows(("first", "last"), STRETCHES, shared=["quiet"])
def test_each_stretch_between_quiet_pages_is_exact(quiet: dict[int, EngineSnapshot], first: int, last: int) -> None:
    before, after = quiet[first], quiet[last]
    expected = truth(*STRETCHES[first, last])

    def increase(field: str) -> float:
        return getattr(after, field) - getattr(before, field)

    assert increase("prompt_tokens_total") == expected["prompt_tokens"]
    assert increase("decode_tokens_total") == expected["gen_tokens"]
    # hits of aborted requests: the simulation counts them at the first token, LMDeploy never. How many those were truth.json does not say;
    # they ran within the stretch, whose first page is a quiet one
    lost = expected["cached_tokens"] - increase("cached_prompt_tokens_total")
    assert 0 < lost <= expected["cached_tokens"] if expected["aborted"] else lost == 0
    assert increase("prefill_tokens_total") == expected["prompt_tokens"] - expected["cached_tokens"] + lost
    finished = {
        reason: value - before.requests_finished_total[reason]
        for reason, value in after.requests_finished_total.items()
    }
    assert finished == {"success": expected["finished"], "failed": expected["aborted"]}


def test_the_whole_run(quiet: dict[int, EngineSnapshot]) -> None:
    expected, last = truth(), quiet[160]
    assert (last.prompt_tokens_total, last.decode_tokens_total) == (expected["prompt_tokens"], expected["gen_tokens"])
    assert sum(last.requests_finished_total.values()) == expected["arrived"]
    assert last.time_to_first_token_seconds.count == expected["scheduled"]  # aborted ones had a first token
    for field in ("e2e_request_latency_seconds", "request_queue_time_seconds", "request_prompt_tokens"):
        assert getattr(last, field).count == expected["finished"]
    # an event is an output with tokens after the first; LMDeploy counts outputs once more in iteration_tokens_total, where each request has
    # a first one, and one that only says that it has finished
    outputs = value(160, "lmdeploy:iteration_tokens_total_count")
    assert last.inter_token_latency_seconds.count == outputs - expected["scheduled"] - expected["finished"]


def value(number: int, sample: str) -> float:
    """A sample with one series, as the page's line says it."""
    (line,) = (line for line in RUN.pages[number].decode().splitlines() if line.startswith(f"{sample}{{"))
    return float(line.split()[-1])


def test_prefix_hits_and_looked_up_tokens_are_of_the_same_requests(quiet: dict[int, EngineSnapshot]) -> None:
    last, aborting = quiet[160], truth(*STRETCHES[116, 160])
    looked_up, found = last.prefix_cache_query_tokens_total, last.prefix_cache_hit_tokens_total
    assert looked_up == last.request_prompt_tokens.sum
    # of finished requests both: short by what the aborted ones had, which is in the last stretch
    assert looked_up is not None
    assert found is not None
    assert 0 < truth()["prompt_tokens"] - looked_up <= aborting["prompt_tokens"]
    assert 0 < truth()["cached_tokens"] - found <= aborting["cached_tokens"]


def test_in_the_middle_of_the_load_prefill_never_falls_and_ends_at_most_by_what_is_under_way_too_high() -> None:
    """Page 58 has every prompt of page 60, and hits that are not booked yet: the difference falls by them."""
    pages = (0, 34, 46, 48, 58, 60)
    found = [one.snapshot.engines[0].prefill_tokens_total for one in read(*pages) if one.snapshot is not None]
    assert found == sorted(found)
    expected = truth("light", "saturated", "drain_1")
    assert value(58, "lmdeploy:prompt_tokens_total") == expected["prompt_tokens"]
    under_way = expected["cached_tokens"] - value(58, "lmdeploy:cached_tokens_total")
    assert under_way > 0
    assert found[-1] == expected["prompt_tokens"] - expected["cached_tokens"] + under_way


def test_errors_that_cannot_be_told_apart_make_no_service_level() -> None:
    """Some of the requests did not finish well; how many of them were errors is not on the page: 100 % good would be a lie."""
    found = readings([{"/metrics": page("lmdeploy-0.18.0", 160)}] * 2)[-1]
    assert found.derived.signals["slo_errors"] is Absence.NOT_EXPORTED
    assert "errors" not in found.derived.engines[0].slo
    assert "one number" in why_absent("slo_errors", Absence.NOT_EXPORTED, found.missing)
