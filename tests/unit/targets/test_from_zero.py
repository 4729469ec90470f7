"""Counters that alerts watch stand at 0 before their first event: an increase() over a counter that is born at 1 is 0."""

import json

import pytest

from llm_serving_exporter.derive.slo import server_errors
from llm_serving_exporter.model.derived import EngineDerived, ServerErrors, SloCount
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot
from tests.support.builders.golden_cases import vllm_says
from tests.support.builders.recordings import recording
from tests.support.servers.replica import Routes, readings

SGLANG = recording("sglang-0.5.23")


def sglang(number: int, version: str | None = "0.5.23") -> Routes:
    said = {} if version is None else {"/server_info": json.dumps({"version": version})}
    return {"/metrics": SGLANG.pages[number], **said}


def engine(reading: TargetReading) -> tuple[EngineSnapshot, EngineDerived]:
    (snapshot,), (derived,) = reading.page.snapshot.engines, reading.page.derived.engines
    return snapshot, derived


def test_an_idle_sglang_has_them_all_at_zero_where_its_version_is_known() -> None:
    """Its page has none of them before the first request; the recorded one has, with the edges that were supposed."""
    _, idle, busy = readings([sglang(0), sglang(0), sglang(78)])
    snapshot, derived = engine(idle)
    assert snapshot.requests_finished_total is None
    assert snapshot.preemptions_total == 0.0
    assert derived.slo == {"ttft": SloCount(0.0, 0.0, 2.5, 2.0), "errors": SloCount(0.0, 0.0)}
    assert derived.server_errors == ServerErrors(0.0, 0.0, 0.0, 0.0)
    assert idle.page.derived is not None
    for signal in ("slo_ttft", "slo_errors", "preemptions_total"):
        assert idle.page.derived.signals[signal] is Absence.AVAILABLE

    snapshot, derived = engine(busy)
    assert snapshot.preemptions_total > 0
    assert busy.server.restarts_total == 0
    assert (derived.slo["ttft"].counted_seconds, derived.slo["errors"].bad) == (2.0, 0.0)
    assert derived.slo["ttft"].bad > 0


@pytest.mark.parametrize("version", [None, "0.4.1"])
def test_what_a_version_may_not_have_is_absent_and_not_zero(version: str | None) -> None:
    snapshot, derived = engine(readings([sglang(0, version), sglang(0, version)])[-1])
    assert snapshot.preemptions_total is None
    assert "errors" not in derived.slo


def test_the_first_answer_of_a_vllm_is_counted_where_it_is_an_error() -> None:
    """The recorded page declares the HTTP counters and has no sample of them before the first answer."""
    run = recording("vllm-0.32")
    page = run.pages[0].decode()
    failed = f'{page}http_requests_total{{handler="/v1/completions",method="POST",status="5xx"}} 1.0\n'
    steps = [{**vllm_says(run, 0), "/metrics": text} for text in (page, page, failed)]
    found = [engine(reading)[1].server_errors for reading in readings(steps)]
    assert [one.uncovered_total for one in found if one is not None] == [0.0, 0.0, 1.0]


def test_the_first_request_of_a_server_is_counted_where_it_fails() -> None:
    """Text Embeddings Inference has no counter before its first event."""
    queue = "# TYPE te_queue_size gauge\nte_queue_size 0\n"
    failed = f'{queue}# TYPE te_request_failure counter\nte_request_failure{{err="inference"}} 1\n'
    found = readings([{"/metrics": queue}, {"/metrics": failed}], runtime="tei", model_name="m")
    assert [engine(reading)[1].slo["errors"] for reading in found] == [SloCount(0.0, 0.0), SloCount(0.0, 1.0)]


def test_answers_that_are_missing_for_a_page_are_not_counted_again() -> None:
    def reading(failed: float | None) -> list[EngineSnapshot]:
        return [EngineSnapshot("m", "0", http_responses_total=None if failed is None else {"5xx": failed})]

    found = server_errors(reading(None), None, awaited=True)
    for failed in (3.0, None, 3.0, 5.0):
        found = server_errors(reading(failed), found, awaited=failed is None)
    assert found.uncovered_total == 5.0
    assert server_errors(reading(None), None) is None


def test_restarts_stand_at_zero_before_the_first_page() -> None:
    (refused,) = readings([None])
    assert (refused.page.up, refused.server.restarts_total) == (False, 0)


def test_a_restart_of_an_engine_whose_preemptions_are_gone_with_it_is_one() -> None:
    """Its first page after the restart has none of the counters."""
    found = readings([sglang(0), sglang(78), sglang(0), sglang(78)])
    assert [reading.server.restarts_total for reading in found] == [0, 0, 1, 1]


def test_of_several_engines_only_what_each_has_itself_is_at_zero() -> None:
    """Whether a counter of the page's will stand under an engine, or under none, shows with its first event."""
    page = "".join(
        f'sglang:num_running_reqs{{dp_rank="{rank}",engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"}} 0\n'
        for rank in (0, 1)
    )
    steps = [{"/metrics": page, "/server_info": json.dumps({"version": "0.5.23"})}] * 2
    idle = readings(steps, runtime="sglang")[-1]
    assert [one.preemptions_total for one in idle.page.snapshot.engines] == [0.0, 0.0]
    assert [one.slo for one in idle.page.derived.engines] == [{}, {}]
