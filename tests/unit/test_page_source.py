"""Where a page is looked for, what is never asked twice, and which failure is told."""

from __future__ import annotations

from llm_serving_exporter.model.attempt import FailureReason
from tests.recordings import page
from tests.replica import Replica, readings

VLLM = page("vllm-0.32", 60)
FORBIDDEN = (401, "application/json", b'{"error":"unauthorized"}')
LIST = (200, "application/json", b'[{"iter": 1, "iterLatencyMS": 3.5}]')


def test_a_page_at_its_usual_place_is_found_and_asked_for_there_ever_after() -> None:
    with Replica() as server:
        found = readings([{"/metrics": VLLM}] * 3, replica=server)
    assert [one.up for one in found] == [True] * 3
    assert server.asked.count("/prometheus/metrics") == 1
    assert server.asked.count("/metrics") == 3


def test_a_server_that_guards_unknown_paths_is_read_all_the_same() -> None:
    (found,) = readings([{"/metrics": VLLM, "/prometheus/metrics": FORBIDDEN}])
    assert (found.up, found.runtime) == (True, "vllm")


def test_a_guarded_page_is_told_before_one_that_is_not_there() -> None:
    (found,) = readings([{"/v1/metrics": FORBIDDEN}])
    assert found.last is not None
    assert found.last.reason is FailureReason.UNAUTHORIZED
    assert "/v1/metrics" in found.problem


def test_nothing_anywhere_is_told_of_the_usual_place() -> None:
    (found,) = readings([{}])
    assert found.last is not None
    assert (found.last.reason, found.last.status) == (FailureReason.STATUS, 404)
    assert "/metrics" in found.problem
    assert "/prometheus" not in found.problem


def test_json_that_is_emptied_by_reading_is_asked_for_once_at_most() -> None:
    """TensorRT-LLM without return_perf_metrics has only its JSON; a second reader would take the iterations away from the first."""
    with Replica() as server:
        found = readings([{"/metrics": LIST}] * 4, replica=server)
    assert all(one.last is not None and one.last.reason is FailureReason.CONTENT_TYPE for one in found)
    assert server.asked.count("/metrics") == 1


def test_tensorrt_llms_page_is_found_without_touching_its_json() -> None:
    with Replica() as server:
        (found,) = readings([{"/prometheus/metrics": page("trtllm-050f80de", 160), "/metrics": LIST}], replica=server)
    assert (found.up, found.runtime) == (True, "trtllm")
    assert "/metrics" not in server.asked
