"""trtllm-serve's traps, its page's and its JSON's, and Triton's with TensorRT-LLM, with vLLM's and with a back end that reports nothing."""

import json
from typing import Any

import pytest

from llm_serving_exporter.engines.detect import detect
from llm_serving_exporter.engines.hooks.trtllm import MAX_COUNT, read_iterations
from llm_serving_exporter.engines.json_answers import (
    MAX_MODELS,
    MAX_TOTALS,
    Totals,
    read_model_names,
    read_version,
    reading,
)
from llm_serving_exporter.engines.mapping import ERRORS, Runtime
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.fetch.page import PageParser
from llm_serving_exporter.model.reading import State
from llm_serving_exporter.model.sample import FailureReason
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot, Quality, ServerFacts, Snapshot
from tests.support.builders.recordings import page
from tests.support.builders.snapshots import page_of, snapshot_of
from tests.support.paths import TESTS
from tests.support.rows import check_rows
from tests.support.servers.replica import Answer, Replica, Routes, readings

RUNTIME = RUNTIMES["trtllm"]

L = 'engine_type="trtllm",model_name="m"'
PATH = "/prometheus/metrics"
OLD = (TESTS / "made" / "trtllm-1.1.prom").read_text()


def detected(text: str) -> list[str]:
    return [runtime.name for runtime in detect(PageParser(lambda name: True).parse(page_of(text)).layout).runtimes]


def test_a_dynamo_worker_is_not_it() -> None:
    worker = f"trtllm_request_success_total{{{L}}} 1\ndynamo_component_requests_total 1\n"
    assert "trtllm" not in detected(worker)
    # names that any application may have
    assert detected("time_to_first_token_seconds_count 1\nrequest_success_total 1\n") == []


def test_the_json_that_reading_empties_is_never_asked() -> None:
    with Replica() as server:
        (reading,) = readings([{PATH: page("trtllm-050f80de", 46), "/metrics": "[]"}], replica=server)
        assert reading.server.runtime == "trtllm"
        assert "/metrics" not in server.asked
    with Replica() as server:
        (reading,) = readings([{"/metrics": "[]"}], replica=server, runtime="trtllm")
        assert not reading.page.up
        assert server.asked == [PATH]


def test_a_model_called_undefined_has_no_name_until_the_server_says_one() -> None:
    (engine,) = snapshot_of(OLD, runtime=RUNTIME).engines
    assert engine.model_name == ""
    named = snapshot_of(OLD, facts=ServerFacts(model_names=("Qwen/Qwen3-8B",)), runtime=RUNTIME)
    assert named.engines[0].model_name == "Qwen/Qwen3-8B"
    listed = '{"object": "list", "data": [{"id": "Qwen/Qwen3-8B", "object": "model"}]}'
    found = readings([{PATH: OLD, "/v1/models": listed}] * 2)
    snapshot = found[-1].page.snapshot
    assert [engine.model_name for engine in snapshot.engines] == ["Qwen/Qwen3-8B"]


def test_the_five_families_of_1_1_and_1_2_are_read_without_prefix() -> None:
    (engine,) = snapshot_of(OLD, runtime=RUNTIME).engines
    assert engine.requests_finished_total == {"stop": 30, "length": 10}
    for name, count in (
        ("time_to_first_token_seconds", 40),
        ("time_per_output_token_seconds", 40),
        ("e2e_request_latency_seconds", 40),
        # a queue time of 0 was left out there
        ("request_queue_time_seconds", 30),
    ):
        assert getattr(engine, name).count == count
    assert engine.decode_tokens_total is None


def test_errors_are_counted_from_1_3_on() -> None:
    assert not snapshot_of(OLD, runtime=RUNTIME).errors_counted
    assert snapshot_of(page("trtllm-050f80de", 46).decode(), runtime=RUNTIME).errors_counted


def test_gauges_are_slow_and_freeze_while_limits_do_not() -> None:
    snapshot = snapshot_of(page("trtllm-050f80de", 46).decode(), runtime=RUNTIME)
    assert snapshot.freezes == {"requests_running", "requests_waiting", "kv_cache_usage_ratio"}
    assert {snapshot.quality[field] for field in snapshot.freezes} == {Quality.SLOW}
    (engine,) = snapshot.engines
    # "running" is admitted requests, so their limit is the one that belongs to it
    assert (engine.requests_running, engine.batch_limit_requests) == (31, 32)
    assert engine.kv_block_tokens == 32


def test_prefill_is_what_iterations_computed_else_prompts_less_cached_tokens() -> None:
    tokens = f"trtllm_prompt_tokens_total{{{L}}} 1000\ntrtllm_prompt_cached_tokens_total{{{L}}} 400\n"
    without = snapshot_of(tokens, runtime=RUNTIME)
    assert without.engines[0].prefill_tokens_total == 600
    # the two are not booked at one instant
    assert "prefill_tokens_total" in without.may_fall
    statistics = f"trtllm_prefill_batch_tokens_sum{{{L}}} 640\ntrtllm_prefill_batch_tokens_count{{{L}}} 3\n"
    counted = snapshot_of(tokens + statistics, runtime=RUNTIME)
    assert counted.engines[0].prefill_tokens_total == 640
    assert "prefill_tokens_total" not in counted.may_fall
    # iterations with context tokens are not all iterations
    assert counted.engines[0].engine_steps_total is None
    assert "engine_steps_total" in RUNTIME.missing


def test_the_mean_of_a_request_is_not_taken_for_the_gap_between_tokens() -> None:
    (engine,) = snapshot_of(page("trtllm-050f80de", 46).decode(), runtime=RUNTIME).engines
    assert engine.time_per_output_token_seconds is not None
    assert engine.inter_token_latency_seconds is None


def test_side_endpoints() -> None:
    assert read_version({"version": "1.3.0rc9"}, ServerFacts()).version == "1.3.0rc9"
    many = {"data": [{"id": f"m{number}"} for number in range(MAX_MODELS + 5)]}
    assert len(read_model_names(many, ServerFacts()).model_names) == MAX_MODELS


# --- trtllm-serve's JSON of iterations, which reading empties ---


JSON_RUNTIME = RUNTIMES["trtllm-json"]


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
    return [one.page.snapshot for one in readings(steps, runtime="trtllm-json", **target)]


def values(answer: object) -> dict[str, float]:
    return {key.name: value for key, value in read_iterations(answer) or ()}


def numbered(first: int, *records: dict[str, Any]) -> list[dict[str, Any]]:
    """With the engine's numbers of its iterations, as it gives them: py_executor.py starts at 0."""
    return [{**one, "iter": first + place} for place, one in enumerate(records)]


def test_it_is_read_only_where_the_setting_says_so() -> None:
    assert JSON_RUNTIME.fingerprints == ()
    with Replica() as server:
        (found,) = readings([{"/metrics": json.dumps([record(context=100)])}], replica=server)
        assert found.page.snapshot is None
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
    assert ERRORS in JSON_RUNTIME.missing  # well or not is not said
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
    assert [(one.page.up, one.server.state, one.server.restarts_total) for one in found] == [(True, State.READY, 0)] * 3
    first = found[0].page.snapshot
    assert [(engine.model_name, engine.engine) for engine in first.engines] == [("", "0")]
    assert first.absent == {row.field: Absence.IDLE for row in JSON_RUNTIME.rows}
    assert found[0].page.derived.signals["requests_running"] is Absence.IDLE
    assert found[1].page.snapshot.engines[0].requests_running == 1


@check_rows("answer", ['{"error":"no"}', "[3]", "[{}]", "5", "null", '"[]"', "{}"])
def test_other_json_is_not_an_engine_at_rest(answer: str) -> None:
    (found,) = readings([{"/metrics": (200, "application/json", answer.encode())}], runtime="trtllm-json")
    assert (found.page.up, found.server.state) == (False, State.UNKNOWN)
    assert found.page.last.reason is FailureReason.UNKNOWN_RUNTIME
    assert "other JSON" in found.page.problem


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
    assert [one.server.restarts_total for one in found] == [0, 0, 0, 1, 1, 1]
    # what the exporter adds up goes on; what the new server said last holds over its empty answers
    engines = [one.page.snapshot.engines[0] for one in found if one.page.snapshot is not None]
    assert [engine.engine_steps_total for engine in engines[-3:]] == [2, 2, 3]
    assert [engine.decode_tokens_total for engine in engines[-3:]] == [8, 8, 9]
    assert engines[-2].kv_cache_capacity_tokens == 32_000


def test_a_restart_without_an_outage_between_two_answers_is_seen_too() -> None:
    steps = [{"/metrics": json.dumps(numbered(first, record(generating=1)))} for first in (500, 501, 0, 1)]
    assert [one.server.restarts_total for one in readings(steps, runtime="trtllm-json")] == [0, 0, 1, 1]


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
    assert len(totals.add_up(JSON_RUNTIME, endless)) == MAX_TOTALS
    # those that are counted are counted on
    assert max(value for _, value in totals.add_up(JSON_RUNTIME, endless)) == 2


def test_series_that_come_and_go_never_keep_out_those_that_are_there() -> None:
    totals = Totals()
    stays = reading("numCtxTokens", 1.0, attentionDpRank="stays")
    for start in range(0, 3 * MAX_TOTALS, 1000):
        passing = [reading("numCtxTokens", 1.0, attentionDpRank=str(start + number)) for number in range(1000)]
        found = dict(totals.add_up(JSON_RUNTIME, (stays, *passing)))
        assert {key for key, _ in passing} <= set(found)
        assert len(found) <= MAX_TOTALS
        assert found[stays[0]] == start / 1000 + 1


def test_more_records_than_a_side_endpoint_may_have_are_read() -> None:
    # 1.2 MB: a busy engine at a long interval; refused, its iterations would be lost
    many = numbered(0, *[record(generating=1) for _ in range(2500)])
    assert len(json.dumps(many)) > 1024 * 1024
    (snapshot,) = ticks(many)
    assert snapshot.engines[0].engine_steps_total == 2500


# --- triton's traps, with the TensorRT-LLM back end, with vLLM's, and with one that reports nothing ---


TRITON = RUNTIMES["triton"]
TRTLLM = RUNTIMES["triton-trtllm"]
VLLM = RUNTIMES["triton-vllm"]

MADE = TESTS / "made"
PAGES = {
    "triton-trtllm": (MADE / "triton_trtllm.prom").read_text(),
    "triton-vllm": (MADE / "triton_vllm.prom").read_text(),
    "triton": (MADE / "triton.prom").read_text(),
}
BACK_ENDS = {"triton-trtllm": TRTLLM, "triton-vllm": VLLM, "triton": TRITON}

MODEL_LABELS = 'model="m",version="1"'
ALIVE = f'nv_trt_llm_request_metrics{{{MODEL_LABELS},request_type="scheduled"}} 3\n'


def blocks(**values: float) -> str:
    return ALIVE + "".join(
        f'nv_trt_llm_kv_cache_block_metrics{{{MODEL_LABELS},kv_cache_block_type="{kind}"}} {value}\n'
        for kind, value in values.items()
    )


def only(name: str) -> EngineSnapshot:
    (engine,) = snapshot_of(PAGES[name], runtime=BACK_ENDS[name]).engines
    return engine


def test_only_the_engine_of_an_ensemble_is_one() -> None:
    # the ensemble itself, pre- and post-processing stand on the page with requests of their own
    engine = only("triton-trtllm")
    assert (engine.model_name, engine.engine) == ("tensorrt_llm", "1")
    assert engine.requests_finished_total == {"success": 200, "abort": 5, "error": 1, "other": 0}
    assert engine.requests_rejected_total == {"rejected": 3}


@pytest.mark.parametrize("runtime", BACK_ENDS.values(), ids=BACK_ENDS)
def test_counters_without_total_in_microseconds_are_seconds(runtime: Runtime) -> None:
    engine = only(runtime.name)
    # 2 s and 0.5 ms a request; a histogram of vLLM's is preferred where there is one
    e2e, queue = engine.e2e_request_latency_seconds, engine.request_queue_time_seconds
    assert queue.count == 200
    assert queue.sum == pytest.approx(0.1)
    assert queue.edges == ()
    assert (e2e.count, e2e.sum) == (200, pytest.approx(400 if runtime is not TRITON else 0.2 * 2000))


def test_the_first_response_is_in_milliseconds_and_switched_off_by_default() -> None:
    engine = only("triton-trtllm")
    ttft = engine.time_to_first_token_seconds
    assert (ttft.edges, ttft.count, ttft.sum) == ((0.1, 0.5, 2.0, 5.0), 200, pytest.approx(64))
    without = snapshot_of(ALIVE, runtime=TRTLLM)
    assert without.absent["time_to_first_token_seconds"] is Absence.NOT_EXPORTED


def test_lengths_are_token_counters_booked_at_the_end_and_bound_prefill() -> None:
    snapshot = snapshot_of(PAGES["triton-trtllm"], runtime=TRTLLM)
    (engine,) = snapshot.engines
    assert (engine.prompt_tokens_total, engine.decode_tokens_total) == (90_000, 50_000)
    assert snapshot.quality["decode_tokens_total"] is Quality.LAGGING
    # at most: reused blocks are in it
    assert engine.prefill_tokens_total == 90_000
    assert snapshot.quality["prefill_tokens_total"] is Quality.APPROXIMATE
    assert engine.request_prompt_tokens.edges == (10, 50, 100, 500, 1000)


def test_gauges_are_read_by_their_label_not_by_their_place() -> None:
    engine = only("triton-trtllm")
    assert (engine.requests_running, engine.batch_limit_requests) == (48, 64)
    # the engine's queue and Triton's before it
    assert engine.requests_waiting == 6 + 2
    assert (engine.kv_cache_usage_ratio, engine.kv_cache_capacity_tokens) == (0.5, 6144 * 64)
    assert engine.engine_steps_total == 5000


def test_gauges_of_the_last_iteration_fade_when_nothing_moves() -> None:
    page = {"/metrics": PAGES["triton-trtllm"]}
    # iterations are counted: while they move, gauges are fresh although no request ends
    steps = [page, *({"/metrics": PAGES["triton-trtllm"].replace("} 5000\n", f"}} {5000 + n}\n")} for n in range(1, 6))]
    found = readings([*steps, steps[-1], steps[-1], steps[-1], steps[-1]], runtime="triton-trtllm")
    running = [one.page.snapshot.engines[0].requests_running for one in found if one.page.snapshot is not None]
    assert running == [None, 48, 48, 48, 48, 48, 48, 48, 48, None]


def versions(*numbers: int, tokens: int) -> str:
    return "".join(
        f"""nv_inference_request_success{{model="m",version="{number}"}} {tokens}
vllm:prompt_tokens_total{{model="m",version="{number}"}} {tokens}
vllm:generation_tokens_total{{model="m",version="{number}"}} {tokens}
"""
        for number in numbers
    )


def test_versions_of_one_model_are_engines_of_their_own() -> None:
    text = ALIVE + 'nv_trt_llm_request_metrics{model="m",version="2",request_type="scheduled"} 4\n'
    found = snapshot_of(text, runtime=TRTLLM).engines
    assert [(one.model_name, one.engine, one.requests_running) for one in found] == [("m", "1", 3), ("m", "2", 4)]


def test_a_version_that_is_unloaded_is_no_restart() -> None:
    pages = [versions(1, 2, tokens=100), versions(1, 2, tokens=110), versions(2, tokens=120), versions(2, tokens=130)]
    found = readings([{"/metrics": text} for text in pages])
    assert [(one.server.runtime, one.server.restarts_total) for one in found] == [("triton-vllm", 0)] * 4


def test_vllms_name_for_the_gap_between_tokens_is_read_as_that() -> None:
    engine = only("triton-vllm")
    assert engine.model_name == "llama-3.1-8b"
    assert engine.inter_token_latency_seconds.count == 50_000
    assert engine.time_per_output_token_seconds is None
    assert engine.e2e_request_latency_seconds.edges[0] == 1
    # the back end shows neither batch nor KV cache
    assert (engine.requests_running, engine.kv_cache_usage_ratio, engine.requests_waiting) == (None, None, 2)
    assert engine.is_engine


def test_a_back_end_that_reports_nothing_leaves_requests_and_means() -> None:
    snapshot = snapshot_of(PAGES["triton"], runtime=TRITON)
    (engine,) = snapshot.engines
    assert engine.requests_finished_total == {"success": 200, "abort": 5, "error": 1, "other": 0}
    assert engine.decode_tokens_total is None
    assert TRITON.missing["decode_tokens_total"]
