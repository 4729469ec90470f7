"""Latencies in words: what buckets and the number of events bear, and no more."""

from __future__ import annotations

from collections.abc import Sequence

from llm_serving_exporter.derive.slo import measure_latency
from llm_serving_exporter.model.derived import Latency
from llm_serving_exporter.model.numbers import Histogram
from llm_serving_exporter.model.snapshot import EngineSnapshot
from llm_serving_exporter.model.window import EngineWindow
from llm_serving_exporter.render.numbers import describe_latency, write_quantile
from tests.support.rows import check_rows

EDGES = (0.3, 0.5, 1.0, 60.0)


def measured(each: Sequence[int], mean: float | None) -> Latency:
    """Of so many events up to each edge, and above the last."""
    counts = [sum(each[: place + 1]) for place in range(len(EDGES))]
    later = Histogram(EDGES, tuple(map(float, counts)), float(sum(each)), None if mean is None else mean * sum(each))
    first = Histogram(EDGES, (0.0,) * len(EDGES), 0.0, None if mean is None else 0.0)
    readings = tuple(EngineSnapshot("m", "0", request_queue_time_seconds=one) for one in (first, later))
    found = measure_latency(EngineWindow(readings, 60.0), "request_queue_time_seconds")
    assert isinstance(found, Latency)
    return found


@check_rows(
    ("each", "mean", "said"),
    [
        # all below the first edge: the mean says all
        ([1203, 0, 0, 0, 0], 14.2e-6, "mean 14.2 µs, p50 to p99 at most 300 ms (1203 events)"),
        # one event; three; a p90 takes ten, a p95 twenty, a p99 a hundred
        ([0, 0, 1, 0, 0], 0.748, "mean 748 ms (1 event)"),
        ([1, 1, 1, 0, 0], 0.4, "mean 400 ms (3 events)"),
        ([4, 3, 2, 0, 0], 0.4, "mean 400 ms (9 events)"),
        ([4, 4, 2, 0, 0], 0.4, "p50 350 ms, p90 750 ms (mean 400 ms, 10 events)"),
        ([8, 8, 3, 0, 0], 0.4, "p50 338 ms, p90 683 ms (mean 400 ms, 19 events)"),
        ([40, 40, 19, 0, 0], 0.4, "p50 348 ms, p90 739 ms, p95 870 ms (mean 400 ms, 99 events)"),
        ([40, 40, 20, 0, 0], 0.4, "p50 350 ms, p90 750 ms, p95 875 ms, p99 975 ms (mean 400 ms, 100 events)"),
        # all in one bucket, above the top edge
        ([0, 0, 100, 0, 0], 0.8, "mean 800 ms, p50 to p99 between 500 ms and 1 s (100 events)"),
        ([0, 0, 50, 0, 0], 0.8, "mean 800 ms, p50 to p95 between 500 ms and 1 s (50 events)"),
        # the one above lies beyond what fifty events tell
        ([0, 0, 49, 1, 0], 0.9, "mean 900 ms, p50 to p95 between 500 ms and 1 s (50 events)"),
        ([0, 0, 0, 0, 100], 70.0, "mean 70 s, p50 to p99 at least 60 s (100 events)"),
        # some: below the first edge the highest, above the last the lowest
        ([94, 3, 3, 0, 0], 0.1, "p90 at most 300 ms, p95 367 ms, p99 833 ms (mean 100 ms, 100 events)"),
        ([96, 0, 0, 4, 0], 0.1, "p95 at most 300 ms, p99 45.2 s (mean 100 ms, 100 events)"),
        ([0, 80, 0, 0, 20], 20.0, "p50 425 ms, p90 at least 60 s (mean 20 s, 100 events)"),
        ([80, 0, 0, 0, 20], 20.0, "p50 at most 300 ms, p90 at least 60 s (mean 20 s, 100 events)"),
        # the sum is of no use
        ([0, 0, 100, 0, 0], None, "mean –, p50 to p99 between 500 ms and 1 s (100 events)"),
    ],
)  # fmt: skip
def test_a_latency_in_words(each: Sequence[int], mean: float | None, said: str) -> None:
    assert describe_latency(measured(each, mean)) == said


def test_one_quantile() -> None:
    assert write_quantile(None, 0.5) == describe_latency(None) == "–"
    assert write_quantile(measured([0, 0, 100, 0, 0], 0.8), 0.99) == "500 ms to 1 s"
    found = measured([94, 3, 0, 0, 3], 0.1)
    assert [write_quantile(found, q) for q in (0.5, 0.95, 0.99)] == ["at most 300 ms", "367 ms", "at least 60 s"]
    assert [write_quantile(measured([40, 0, 40, 0, 0], 0.1), q) for q in (0.95, 0.99)] == ["950 ms", "–"]


def test_an_engine_without_buckets_has_a_mean() -> None:
    assert describe_latency(Latency(500, 0.2, {})) == "mean 200 ms (500 events)"
