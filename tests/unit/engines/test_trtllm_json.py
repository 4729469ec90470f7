"""trtllm-serve's JSON of iterations, which reading empties: what is added up, and what an empty answer means."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llm_serving_exporter.engines.hooks.trtllm import MAX_COUNT, read_iterations
from llm_serving_exporter.engines.json_answers import MAX_TOTALS, Totals, reading
from llm_serving_exporter.engines.mapping import ERRORS
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.model.reading import State
from llm_serving_exporter.model.sample import FailureReason
from llm_serving_exporter.model.snapshot import Absence, Quality, Snapshot
from tests.support.rows import check_rows
from tests.support.servers.replica import Answer, Replica, Routes, readings

RUNTIME = RUNTIMES["trtllm-json"]


def record(
    *, context: int = 0, generating: int = 0, new: int = 0, completed: int = 0, active: int | None = None, **more: Any
) -> dict[str, Any]:
    """One iteration, with the names of facts runtimes-others 5.2; the PyTorch back end leaves avgNumDecodedTokensPerIter at 0."""
    prefilling = 1 if context else 0
    return {
        "iter": 1,
        "iterLatencyMS": 20.5,
        "numNewActiveRequests": new,
        "numActiveRequests": generating + prefilling if active is None else active,
        "numQueuedRequests": 0,
        "numCompletedRequests": completed,
        "maxNumActiveRequests": 64,
        "kvCacheStats": {
            "maxNumBlocks": 1000,
            "usedNumBlocks": 250,
            "tokensPerBlock": 32,
            "reusedBlocks": 30,
            "missedBlocks": 70,
        },
        "inflightBatchingStats": {
            "numScheduledRequests": generating + prefilling,
            "numContextRequests": prefilling,
            "numGenRequests": generating,
            "numPausedRequests": 0,
            "numCtxTokens": context,
            "avgNumDecodedTokensPerIter": 0.0,
            "numGenKvTokens": 500 * generating,
        },
        **more,
    }


def ticks(*answers: Answer | list[dict[str, Any]], **target: Any) -> list[Snapshot | None]:
    steps = [{"/metrics": json.dumps(answer) if isinstance(answer, list) else answer} for answer in answers]
    return [one.snapshot for one in readings(steps, runtime="trtllm-json", **target)]


def values(answer: object) -> dict[str, float]:
    return {key.name: value for key, value in read_iterations(answer) or ()}


def numbered(first: int, *records: dict[str, Any]) -> list[dict[str, Any]]:
    """With the engine's numbers of its iterations, as it gives them: py_executor.py starts at 0."""
    return [{**one, "iter": first + place} for place, one in enumerate(records)]


def test_it_is_read_only_where_the_setting_says_so() -> None:
    assert RUNTIME.fingerprints == ()
    with Replica() as server:
        (found,) = readings([{"/metrics": json.dumps([record(context=100)])}], replica=server)
        assert found.snapshot is None
        # once while looking for a page, and never again: what it answers is lost
        readings(
            [{"/metrics": json.dumps([record(context=100)])}] * 3, replica=server, metrics_path="/prometheus/metrics"
        )
        assert server.asked.count("/metrics") == 1


def test_what_the_records_of_all_answers_count_is_added_up() -> None:
    first = numbered(0, record(context=900, new=1), record(generating=1), record(generating=1))
    second = numbered(3, record(context=100, generating=1, new=1), record(generating=2, completed=1))
    one, two = ticks(first, second)
    (engine,) = one.engines
    # two of a generating request, and the first token of the new one
    assert (engine.prefill_tokens_total, engine.decode_tokens_total, engine.engine_steps_total) == (900, 3, 3)
    (engine,) = two.engines
    assert (engine.prefill_tokens_total, engine.decode_tokens_total, engine.engine_steps_total) == (1000, 7, 5)
    assert engine.requests_finished_total == {"completed": 1}
    assert ERRORS in RUNTIME.missing  # well or not is not said
    assert two.quality["decode_tokens_total"] is Quality.APPROXIMATE


def test_gauges_are_the_newest_records() -> None:
    (snapshot,) = ticks([record(generating=9), record(generating=4)])
    (engine,) = snapshot.engines
    assert (engine.requests_running, engine.requests_waiting, engine.batch_limit_requests) == (4, 0, 64)
    assert (engine.kv_cache_usage_ratio, engine.kv_cache_capacity_tokens, engine.kv_block_tokens) == (0.25, 32_000, 32)
    assert (engine.prefix_cache_hits, engine.prefix_cache_queries) == (30, 100)
    assert engine.decode_context_tokens == 2000
    assert engine.engine == "0"


def test_an_empty_answer_is_idle_only_where_the_last_iteration_left_nothing() -> None:
    done, empty = [record(generating=2, completed=2)], json.dumps([])
    _, idle = ticks(done, empty)
    assert (idle.engines[0].requests_running, idle.engines[0].requests_waiting) == (0, 0)
    # totals and limits hold on, what was in use does not
    assert idle.engines[0].engine_steps_total == 2
    assert idle.engines[0].kv_cache_capacity_tokens == 32_000
    assert idle.engines[0].kv_cache_usage_ratio is None
    # two requests are left: they run still, or were cancelled, or the engine hangs
    _, unknown = ticks([record(generating=2)], empty)
    assert unknown.engines[0].requests_running is None
    assert unknown.engines[0].decode_tokens_total == 2


def test_an_empty_answer_is_an_engine_at_rest_also_before_any_record() -> None:
    found = readings(
        [{"/metrics": "[]"}, {"/metrics": json.dumps(numbered(0, record(generating=1)))}, {"/metrics": "[]"}],
        runtime="trtllm-json",
    )
    assert [(one.up, one.state, one.restarts_total) for one in found] == [(True, State.READY, 0)] * 3
    first = found[0].snapshot
    assert [(engine.model_name, engine.engine) for engine in first.engines] == [("", "0")]
    assert first.absent == {row.field: Absence.IDLE for row in RUNTIME.rows}
    assert found[0].derived.signals["requests_running"] is Absence.IDLE
    assert found[1].snapshot.engines[0].requests_running == 1


@check_rows("answer", ['{"error":"no"}', "[3]", "[{}]", "5", "null", '"[]"', "{}"])
def test_other_json_is_not_an_engine_at_rest(answer: str) -> None:
    (found,) = readings([{"/metrics": (200, "application/json", answer.encode())}], runtime="trtllm-json")
    assert (found.up, found.state) == (False, State.UNKNOWN)
    assert found.last.reason is FailureReason.UNKNOWN_RUNTIME
    assert "other JSON" in found.problem


def test_an_engine_that_left_requests_in_its_queue_is_not_at_rest() -> None:
    _, last = ticks([record(generating=2, completed=2, numQueuedRequests=4)], "[]")
    assert (last.engines[0].requests_running, last.engines[0].requests_waiting) == (None, None)


@pytest.mark.parametrize("answer", [(503, "text/plain", b"down"), '{"error":"no"}'])
def test_what_held_on_is_let_go_when_the_server_does_not_answer_as_itself(answer: Answer) -> None:
    found = ticks([record(generating=1, completed=1)], answer, "[]")
    last = found[-1]
    assert last.engines[0].decode_tokens_total == 1
    assert last.engines[0].engine_steps_total is None
    assert last.engines[0].kv_cache_capacity_tokens is None
    assert last.engines[0].requests_running is None


def test_a_restart_is_seen_once_by_the_engines_own_count_of_iterations() -> None:
    old, new = (numbered(first, record(generating=2), record(generating=2, completed=2)) for first in (500, 0))
    steps: list[Routes | None] = [
        {"/metrics": json.dumps(answer)} for answer in (old, [], new, [], numbered(2, record(generating=1)))
    ]
    found = readings([*steps[:2], None, *steps[2:]], runtime="trtllm-json")
    assert [one.restarts_total for one in found] == [0, 0, 0, 1, 1, 1]
    # what the exporter adds up goes on; what the new server said last holds over its empty answers
    engines = [one.snapshot.engines[0] for one in found if one.snapshot is not None]
    assert [engine.engine_steps_total for engine in engines[-3:]] == [2, 2, 3]
    assert [engine.decode_tokens_total for engine in engines[-3:]] == [8, 8, 9]
    assert engines[-2].kv_cache_capacity_tokens == 32_000


def test_a_restart_without_an_outage_between_two_answers_is_seen_too() -> None:
    steps = [{"/metrics": json.dumps(numbered(first, record(generating=1)))} for first in (500, 501, 0, 1)]
    assert [one.restarts_total for one in readings(steps, runtime="trtllm-json")] == [0, 0, 1, 1]


def test_accepted_drafts_are_tokens_and_a_mean_that_is_given_includes_them() -> None:
    drafts = {"numDraftTokens": 12, "numAcceptedTokens": 8}
    assert values([record(generating=4, specDecodingStats=drafts)])["decodedTokens"] == 4 + 8
    given = record(generating=4, specDecodingStats=drafts)
    given["inflightBatchingStats"]["avgNumDecodedTokensPerIter"] = 3.0
    assert values([given])["decodedTokens"] == 12
    assert values([given])["numDraftTokens"] == 12
    assert values([given])["numAcceptedTokens"] == 8


def test_ranks_of_attention_data_parallelism_are_engines_and_nothing_is_counted_twice() -> None:
    # every rank repeats the first one's figures for all but its own scheduling
    ranks = [
        record(generating=2 + rank, new=3 if rank == 0 else 0, completed=1, attentionDpRank=rank) for rank in (0, 1)
    ]
    (snapshot,) = ticks(ranks)
    first, second = snapshot.engines
    assert (first.engine, second.engine) == ("0", "1")
    assert (first.decode_tokens_total, second.decode_tokens_total) == (2 + 3, 3)
    assert (first.engine_steps_total, second.engine_steps_total) == (2, 2)
    assert (first.requests_running, second.requests_running) == (2, 3)
    assert (first.requests_waiting, second.requests_waiting) == (0, None)
    assert (first.kv_cache_capacity_tokens, second.kv_cache_capacity_tokens) == (32_000, None)
    assert (first.requests_finished_total, second.requests_finished_total) == ({"completed": 1}, None)


@check_rows(
    "answer",
    [
        None, 3, "x", {}, {"error": "no"}, [None], [[]], ["x"], [3], [{}], [{"iter": 3}], [[record()]],
    ],
)  # fmt: skip
def test_an_answer_without_records_is_not_its_and_an_empty_one_is(answer: object) -> None:
    assert read_iterations(answer) is None
    assert read_iterations([]) == ()


@check_rows("odd", [10**400, -1, True, "7", None, [], {}, 1e308, float("nan"), float("inf"), MAX_COUNT + 1])
def test_odd_numbers_are_left_out_one_by_one(odd: object) -> None:
    hostile = record(generating=1)
    hostile["inflightBatchingStats"]["numCtxTokens"] = odd
    hostile["kvCacheStats"]["usedNumBlocks"] = odd
    hostile["numCompletedRequests"] = odd
    hostile["attentionDpRank"] = odd
    found = values([hostile])
    assert not {"numCtxTokens", "usedNumBlocks", "numCompletedRequests", "requestsLeft"} & found.keys()
    assert (found["iterations"], found["decodedTokens"]) == (2, 1)
    assert "iterations" not in values([{**record(generating=1), "iter": odd}])


@check_rows("name", ["inflightBatchingStats", "kvCacheStats", "specDecodingStats"])
@check_rows("odd", [None, 3, [], "x"])
def test_a_section_of_another_kind_is_left_out(name: str, odd: object) -> None:
    assert values([{**record(generating=1), name: odd}])["iterations"] == 2


def test_ranks_without_end_and_series_without_end_are_bounded() -> None:
    many = [record(generating=1, attentionDpRank=rank) for rank in range(5000)]
    series = {key for key, _ in read_iterations(many) or ()}
    # a rank beyond the bound is none: 1024 ranks and one without
    assert len({key.label("attentionDpRank") for key in series}) == 1025
    endless = tuple(reading("numCtxTokens", 1.0, attentionDpRank=str(number)) for number in range(MAX_TOTALS + 10))
    totals = Totals()
    assert len(totals.add_up(RUNTIME, endless)) == MAX_TOTALS
    # those that are counted are counted on
    assert max(value for _, value in totals.add_up(RUNTIME, endless)) == 2


def test_series_that_come_and_go_never_keep_out_those_that_are_there() -> None:
    totals = Totals()
    stays = reading("numCtxTokens", 1.0, attentionDpRank="stays")
    for start in range(0, 3 * MAX_TOTALS, 1000):
        passing = [reading("numCtxTokens", 1.0, attentionDpRank=str(start + number)) for number in range(1000)]
        found = dict(totals.add_up(RUNTIME, (stays, *passing)))
        assert {key for key, _ in passing} <= set(found)
        assert len(found) <= MAX_TOTALS
        assert found[stays[0]] == start / 1000 + 1


def test_more_records_than_a_side_endpoint_may_have_are_read() -> None:
    # 1.2 MB: a busy engine at a long interval; refused, its iterations would be lost
    many = numbered(0, *[record(generating=1) for _ in range(2500)])
    assert len(json.dumps(many)) > 1024 * 1024
    (snapshot,) = ticks(many)
    assert snapshot.engines[0].engine_steps_total == 2500
