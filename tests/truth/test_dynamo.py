"""What is read of Dynamo's pages against what the load client counted for itself, on the recorded run of 1.6.1.

One client, one frontend, one worker (Dynamo's mocker), recorded side by side; pages are thinned out, and phases follow one another
without a pause, so totals are compared where nothing was under way: page 60 (phases 1 to 4 over) and page 120 (before the worker is
killed), and at the end, page 144.
"""

from collections import Counter
from functools import cache
from itertools import pairwise

import pytest

from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.snapshot import EngineSnapshot
from tests.support.builders.recordings import recording
from tests.support.builders.snapshots import engine_of
from tests.support.servers.replica import readings

FRONTEND, WORKER = "dynamo-1.6.1-frontend", "dynamo-1.6.1-worker"
RUNTIME = {FRONTEND: RUNTIMES["dynamo-frontend"], WORKER: RUNTIMES["dynamo-worker"]}

FINISHED_ONLY = ("p0_idle", "p1_stream6", "p2_longprompt", "p3_sharedprefix", "p4_overload")
BEFORE_THE_KILL = (*FINISHED_ONLY, "p5_kvpressure", "p6_aborts", "p7_errors", "p8_idle")
EVERYTHING = (*BEFORE_THE_KILL, "p9_restart")

# of cancelled requests the client knows no usage: 321687 prompt tokens on page 120, 318908 of requests that completed
PROMPT_TOKENS_OF_CANCELLED = 2779


def truth(phases: tuple[str, ...]) -> Counter[str]:
    """What the client counted in these phases."""
    recorded = recording(FRONTEND).json("groundtruth.json")
    total: Counter[str] = Counter()
    for phase in phases:
        total.update(recorded[phase]["truth"])
    return total


@cache
def at(run: str, number: int) -> EngineSnapshot:
    return engine_of(recording(run).pages[number].decode(), None, runtime=RUNTIME[run])


def test_tokens_of_requests_that_finished_are_the_clients() -> None:
    client, engine = truth(FINISHED_ONLY), at(FRONTEND, 60)
    assert engine.prompt_tokens_total == client["prompt_tokens"] == 295983
    assert engine.cached_prompt_tokens_total == client["cached_tokens"] == 82416
    assert engine.prefill_tokens_total == client["prompt_tokens"] - client["cached_tokens"] == 213567
    lengths = engine.request_generation_tokens
    assert lengths.sum == client["completion_tokens"] == 28061


def test_the_counter_that_runs_while_streaming_ends_0_2_percent_low() -> None:
    # 28007 of 28061: it counts a little less than the lengths that are booked at the end, which are exact
    client, counted = truth(FINISHED_ONLY)["completion_tokens"], at(FRONTEND, 60).decode_tokens_total
    assert 0.997 * client < counted < client


def test_cancelled_requests_are_in_the_tokens_and_aborted() -> None:
    client, engine = truth(BEFORE_THE_KILL), at(FRONTEND, 120)
    assert engine.requests_finished_total == {"success": client["completed"], "abort": client["aborted"]}
    assert engine.prompt_tokens_total == client["prompt_tokens"] + PROMPT_TOKENS_OF_CANCELLED
    # the client saw 2461 chunks of the cancelled before it left; some more were on their way
    lengths = engine.request_generation_tokens
    assert 0 <= lengths.sum - client["completion_tokens"] - client["aborted_chunks_seen"] <= client["aborted"]


def test_every_failed_answer_is_counted_by_its_status() -> None:
    client, responses = truth(EVERYTHING), at(FRONTEND, 144).http_responses_total
    assert responses["4xx"] == client["http_400"] + client["http_404"] == 9
    # two streams that the kill cut short had begun as HTTP 200 and are failures all the same
    assert responses["5xx"] == client["http_503"] + client["completed_without_usage"] == 105
    assert responses["2xx"] == client["completed"] - client["completed_without_usage"] == 881


def test_first_tokens_are_as_many_as_the_client_saw() -> None:
    client, found = truth(BEFORE_THE_KILL), at(FRONTEND, 120).time_to_first_token_seconds
    assert found.count == client["completed"] + client["aborted"]
    between = at(FRONTEND, 120).inter_token_latency_seconds
    assert between.count == (at(FRONTEND, 120).decode_tokens_total or 0) - found.count


def test_the_worker_saw_the_same_requests() -> None:
    client, engine = truth(BEFORE_THE_KILL), at(WORKER, 120)
    assert engine.requests_finished_total == {"success": client["completed"], "abort": client["aborted"]}
    first = engine.time_to_first_token_seconds
    assert first.count == client["completed"] + client["aborted"]
    # recorded: 16 of 16 slots in use and 32 of the 48 streams waiting; four preemptions under KV pressure
    assert (at(WORKER, 56).requests_running, at(WORKER, 56).requests_waiting) == (16, 32)
    assert engine.preemptions_total == 4


def walk(run: str) -> list[TargetReading]:
    """The pipeline over every page, seconds apart as they were recorded; a second in which nobody answered is a 503."""
    recorded = recording(run)
    kept = sorted(set(recorded.pages) | {number for number in recorded.failed if number % 2 == 0})
    steps = [{"/metrics": recorded.pages.get(number, (503, "text/plain", b""))} for number in kept]
    return readings(steps, seconds=2.0)


def test_the_workers_restart_is_seen_once_and_its_rates_start_anew() -> None:
    found = walk(WORKER)
    assert [reading.server.restarts_total for reading in found][-1] == 1
    assert [reading.page.up for reading in found].count(False) == 3
    after = found[-1]
    assert after.page.snapshot.engines[0].requests_finished_total == {"success": 79, "abort": 0}
    # its page counts no tokens; four preemptions in the first life, none in the second
    rates = [
        reading.page.derived.engines[0].preemptions_per_second
        for reading in found
        if reading.page.up and reading.page.derived
    ]
    assert max(rate for rate in rates[:-5] if rate is not None) > 0
    assert rates[-5:] == [None, 0, 0, 0, 0]


def test_the_frontend_lives_through_its_workers_restart() -> None:
    found = walk(FRONTEND)
    assert {reading.server.restarts_total for reading in found} == {0}
    assert all(reading.page.up for reading in found)
    for phase, field in (("prefill", "prefill_tokens_total"), ("decode", "decode_tokens_total")):
        counts = [getattr(at(FRONTEND, number), field) or 0.0 for number in sorted(recording(FRONTEND).pages)]
        rates = [
            reading.page.derived.engines[0].phase_tokens_per_second[phase]
            for reading in found[1:]
            if reading.page.derived
        ]
        assert len(rates) == len(counts) - 1
        # no window is faster than the fastest two seconds of the page itself
        assert 0 < max(rates) <= max(after - before for before, after in pairwise(counts)) / 2
    # counted on from 0 since it was first seen, and never falling, although the recorded difference dips
    prefill = [
        engine.prefill_tokens_total
        for reading in found
        if reading.page.snapshot
        for engine in reading.page.snapshot.engines
    ]
    counted = [value for value in prefill if value is not None]
    assert counted == sorted(counted)


@pytest.mark.parametrize(
    ("field", "clients", "ranks"),
    [
        # half of the first tokens are not compared: of answers that were not streamed the client saw none, and the frontend did
        ("time_to_first_token_seconds", "ttft", (0.9, 0.99)),
        ("e2e_request_latency_seconds", "e2e", (0.5, 0.9, 0.99)),
    ],
)
def test_the_front_doors_latencies_are_in_the_clients_buckets(
    field: str, clients: str, ranks: tuple[float, ...]
) -> None:
    recorded = recording(FRONTEND).json("groundtruth.json")
    seen = sorted(seconds for phase in BEFORE_THE_KILL for seconds in recorded[phase][clients])
    histogram = getattr(at(FRONTEND, 120), field)
    for rank in ranks:
        upper = next(
            edge
            for edge, count in zip(histogram.edges, histogram.cumulative, strict=True)
            if count >= rank * histogram.count
        )
        lower = max((edge for edge in histogram.edges if edge < upper), default=0.0)
        assert lower < seen[int(rank * len(seen))] <= upper
