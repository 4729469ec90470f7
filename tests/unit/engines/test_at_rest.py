"""A page of a server that has worked on nothing yet: what is not there comes with its first event. And one at work: what is not there is
not exported. Recorded pages, whole or without some of their families."""

from __future__ import annotations

import re

import pytest

from llm_serving_exporter.engines.mapping import Runtime
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.model.snapshot import Absence, Snapshot
from tests.support.builders.recordings import page
from tests.support.builders.snapshots import snapshot_of
from tests.support.rows import check_rows

DYNAMO = RUNTIMES["dynamo-worker"]
SGLANG = RUNTIMES["sglang"]
TRTLLM = RUNTIMES["trtllm"]

RUNS = {"sglang-0.5.23": SGLANG, "trtllm-050f80de": TRTLLM, "dynamo-1.6.1-worker": DYNAMO}
WORK = (
    "prompt_tokens_total",
    "prefill_tokens_total",
    "decode_tokens_total",
    "requests_finished_total",
    "e2e_request_latency_seconds",
)
GAUGES = ("requests_running", "requests_waiting", "kv_cache_usage_ratio")


def read(run: str, number: int, version: str | None = None, *, without: str = "", more: str = "") -> Snapshot:
    """The recorded page, without the lines of families that match, with more at its end."""
    lines = page(run, number).decode().splitlines(keepends=True)
    kept = [line for line in lines if not (without and re.match(rf"(# \w+ )?({without})", line))]
    return snapshot_of("".join(kept) + more, version, runtime=RUNS[run])


def reasons(snapshot: Snapshot, *fields: str) -> set[Absence | None]:
    return {snapshot.absent.get(field) for field in fields}


@pytest.mark.parametrize("run", RUNS)
def test_all_that_comes_with_work_is_waited_for(run: str) -> None:
    assert reasons(read(run, 0), *WORK) == {Absence.IDLE}


@pytest.mark.parametrize("version", [None, "0.5.23"])
def test_counters_of_the_prefix_cache_that_stand_at_0_from_the_start_are_no_work(version: str | None) -> None:
    sglang = read("sglang-0.5.23", 0, version)
    (engine,) = sglang.engines
    assert (engine.prefix_cache_query_tokens_total, engine.prefix_cache_hit_tokens_total) == (0, 0)
    assert reasons(sglang, *WORK, "engine_steps_total", "inter_token_latency_seconds") == {Absence.IDLE}
    (engine,) = read("trtllm-050f80de", 0).engines
    assert engine.cached_prompt_tokens_total == 0


def test_http_answers_are_no_work() -> None:
    """The first request was refused as a mistake of the client's."""
    mistake = 'sglang:http_responses_total{endpoint="/generate",method="POST",status_code="400"} 1.0\n'
    snapshot = read("sglang-0.5.23", 0, more=mistake)
    assert snapshot.engines[0].http_responses_total == {"4xx": 1}
    assert reasons(snapshot, *WORK) == {Absence.IDLE}


@pytest.mark.parametrize(
    "first",
    [
        'sglang:realtime_tokens_total{model_name="m",mode="prefill_compute"} 5\n',
        'sglang:num_requests_total{model_name="m"} 1\n',
        'sglang:queue_time_seconds_count{model_name="m"} 1\n',
    ],
)
def test_with_the_first_work_what_is_missing_is_not_waited_for_any_more(first: str) -> None:
    snapshot = read("sglang-0.5.23", 0, more=first)
    assert reasons(snapshot, "prompt_tokens_total", "e2e_request_latency_seconds") == {Absence.NOT_EXPORTED}


@check_rows(
    ("run", "number", "families", "field"),
    [
        ("sglang-0.5.23", 46, "sglang:request_time_per_output_token", "time_per_output_token_seconds"),
        ("sglang-0.5.23", 46, "sglang:cuda_graph_passes", "engine_steps_total"),
        ("sglang-0.5.23", 46, "sglang:num_running_reqs", "requests_running"),
        ("trtllm-050f80de", 46, "trtllm_request_prefill_time", "request_prefill_time_seconds"),
        ("trtllm-050f80de", 160, "trtllm_num_requests_running", "requests_running"),
        ("trtllm-050f80de", 160, "trtllm_kv_cache_max_blocks", "kv_cache_capacity_tokens"),
    ],
)
def test_what_a_server_at_work_lacks_it_does_not_export(run: str, number: int, families: str, field: str) -> None:
    assert getattr(read(run, number).engines[0], field) is not None
    assert read(run, number, without=families).absent[field] is Absence.NOT_EXPORTED


def test_what_its_version_lacks_is_not_waited_for() -> None:
    snapshot = read("sglang-0.5.23", 0, "0.5.10")
    assert snapshot.absent["time_per_output_token_seconds"] is Absence.NOT_EXPORTED
    assert reasons(snapshot, *WORK) == {Absence.IDLE}
    # nor what no row reads, whatever the version
    assert (
        read("sglang-0.5.23", 0).absent.get("request_decode_time_seconds", Absence.NOT_EXPORTED) is Absence.NOT_EXPORTED
    )


def test_a_counter_that_is_there_and_cannot_be_read_keeps_its_reason_and_says_that_there_was_work() -> None:
    twice = 'sglang:num_requests_total{model_name="m"} 1\n' * 2
    snapshot = read("sglang-0.5.23", 0, more=twice)
    assert snapshot.absent["requests_finished_total"] is Absence.DUPLICATE
    assert snapshot.absent["e2e_request_latency_seconds"] is Absence.NOT_EXPORTED


def test_gauges_that_are_born_with_the_first_request_are_waited_for_too() -> None:
    snapshot = read("trtllm-050f80de", 0)
    assert reasons(snapshot, *GAUGES, "batch_limit_requests", "kv_cache_capacity_tokens") == {Absence.IDLE}
    # a label of a series that is there from the start: it is not set, and no request sets it
    assert snapshot.absent["context_limit_tokens"] is Absence.NOT_EXPORTED
    # SGLang's where they are set with the first batch
    assert reasons(read("sglang-0.5.23", 0, without="sglang:(num_|token_usage|full_token_usage|pending)"), *GAUGES) == {
        Absence.IDLE
    }
    # five families were all that 1.1 had
    assert reasons(read("trtllm-050f80de", 0, "1.1.0"), *GAUGES) == {Absence.NOT_EXPORTED}


def test_errors_may_be_told_apart_by_what_is_waited_for() -> None:
    assert read("trtllm-050f80de", 0).errors_counted
    assert not read("trtllm-050f80de", 0, "1.1.0").errors_counted


def test_a_table_that_counts_no_work_is_at_rest_while_it_has_counted_nothing() -> None:
    rows = tuple(
        row for row in TRTLLM.rows if row.field in ("http_responses_total", "cached_prompt_tokens_total", *GAUGES)
    )
    table = Runtime("made-up", "Made Up", rows, ("trtllm_",), born_at_first_event=True)
    info = 'trtllm_num_requests_waiting{model_name="m"} 0\n'
    assert snapshot_of(info, None, runtime=table).absent["http_responses_total"] is Absence.IDLE
    counted = f"{info}trtllm_prompt_cached_tokens_total 0\n"
    assert snapshot_of(counted, None, runtime=table).absent["http_responses_total"] is Absence.NOT_EXPORTED
