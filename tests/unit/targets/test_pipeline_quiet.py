"""Quiet times: a server that has had no request since it restarted, and a night without any. No signal goes for a reason that would be a
fault, and each figure has the reason of what it lacks."""

from typing import Any

import pytest

from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.snapshot import Absence
from tests.support.builders.recordings import recording
from tests.support.rows import check_rows
from tests.support.servers.replica import readings

# what quiet alone may bring
HARMLESS = {Absence.AVAILABLE, Absence.IDLE, Absence.WARMING_UP, Absence.NOT_CONFIGURED, Absence.STALE}
PATHS = {"trtllm-050f80de": "/prometheus/metrics"}
GPUS: dict[str, Any] = {"gpu_count": 2, "gpu_model": "H100 SXM"}


def read(run: str, *numbers: int) -> list[TargetReading]:
    pages = recording(run).pages
    return readings([{PATHS.get(run, "/metrics"): pages[number]} for number in numbers], **GPUS)


def signals(reading: TargetReading) -> dict[str, Absence]:
    return dict(reading.page.derived.signals)


def lost(found: list[TargetReading]) -> dict[str, Absence]:
    """Signals that were there at some page, and at the last are not, for a reason that may be a fault."""
    there = {signal for reading in found for signal, why in signals(reading).items() if not why}
    return {signal: why for signal, why in signals(found[-1]).items() if signal in there and why not in HARMLESS}


@check_rows(
    ("run", "busy"),
    [
        ("sglang-0.5.23", (36, 46)),
        ("trtllm-050f80de", (34, 46)),
        ("dynamo-1.6.1-worker", (52, 56)),
        ("lmdeploy-0.18.0", (34, 46)),
    ],
)
def test_a_server_that_restarted_and_has_had_no_request_since_has_lost_nothing(run: str, busy: tuple[int, int]) -> None:
    found = read(run, *busy, 0, 0)
    assert lost(found) == {}
    # it goes on as any other
    again = read(run, *busy, 0, 0, *busy)
    assert not signals(again[-1])["decode_tokens_total" if run != "dynamo-1.6.1-worker" else "requests_finished_total"]


@pytest.mark.parametrize(("run", "busy", "last"), [("sglang-0.5.23", (36, 46), 46), ("trtllm-050f80de", (34, 46), 160)])
def test_a_night_without_requests_takes_nothing_but_what_is_stale(run: str, busy: tuple[int, int], last: int) -> None:
    assert lost(read(run, *busy, *[last] * 20)) == {}


def test_the_limiter_goes_with_the_requests_that_run() -> None:
    """TensorRT-LLM's gauges are of the last request; that its page has no steps to count is another matter."""
    night = signals(read("trtllm-050f80de", 34, 46, *[160] * 20)[-1])
    assert night["requests_running"] is Absence.STALE
    assert night["bandwidth_ceiling_ratio_model"] is not Absence.STALE
    assert night["limiter"] is Absence.STALE
    rest = signals(read("trtllm-050f80de", 0, 0)[-1])
    assert rest["limiter"] is Absence.IDLE
