"""What is made of samples and series."""

from __future__ import annotations

import pytest

from llm_serving_drill import names
from llm_serving_drill.course import Forecast, Reading
from llm_serving_drill.verdict import compare_forecast, find_extremes, find_longest_span, make_baseline, make_reading
from llm_serving_exporter.model.record import replace
from tests.support.builders.drills import MINUTE, START, course, reading


def sample(name: str, value: float, **labels: str) -> tuple[dict[str, str], float]:
    return {"__name__": name, "model_name": "m", "role": "unified", **labels}, value


def test_a_reading_takes_each_record_and_leaves_what_is_absent() -> None:
    found = make_reading(
        7.0,
        [
            sample(names.READY, 3),
            sample(names.SUFFICIENT, 0),
            sample(names.TTFT, 0.4, rank="p50"),
            sample(names.TTFT, 1.9, rank="p99"),
            sample(names.ABOVE_TOP, 0.011),
            sample(names.SLO_BAD, 0.2, slo="ttft"),
            sample(names.SLO_BAD, 0.01, slo="errors"),
            sample(names.TOKENS, 900, phase="decode"),
            sample(names.WORK, 1.5),
            sample(names.KV_TOKENS, 5000),
            sample(names.N1_LOAD, 0.7, resource="kv"),
        ],
        alive=3.0,
    )
    assert found == Reading(
        7.0, ready=3, alive=3.0, n1_sufficient=False, p99_ttft_seconds=1.9, above_top_edge_ratio=0.011, errors_ratio=0.01,
        tokens_per_second={"decode": 900}, n1_load={"kv": 0.7}, now={"decode": 900, "work": 1.5, "kv": 5000},
    )  # fmt: skip
    assert found.ttft_at_least


def test_two_fleets_of_one_model_are_refused() -> None:
    twice = [sample(names.READY, 3, cluster="a"), sample(names.READY, 4, cluster="b")]
    with pytest.raises(ValueError, match=r"model:llm_serving_ready_replicas:sum is there several times"):
        make_reading(0.0, twice, None)


def test_the_baseline_is_the_median_p99_and_the_longest_queue() -> None:
    def series(name: str, *values: float, **labels: str) -> tuple[dict[str, str], list[tuple[float, float]]]:
        return sample(name, 0, **labels)[0], [(float(at), value) for at, value in enumerate(values)]

    found = make_baseline(
        600.0,
        [
            series(names.TTFT, 0.4, 0.5, 9.0, rank="p99"),
            series(names.TTFT, 0.1, 0.1, 0.1, rank="p50"),
            series(names.WAITING, 0, 2, 7),
            series(names.READY, 4, 3, 4),
            series(names.TOKENS, 100, 200, phase="decode"),
            series(names.KV_USAGE),
        ],
        rejected=None,
    )
    assert (found.p99_ttft_seconds, found.p99_at_least) == (0.5, False)
    assert (found.waiting_mean, found.waiting_max, found.ready_min) == (3.0, 7, 3)
    assert found.tokens_per_second == {"decode": 150.0}
    assert found.kv_usage_ratio is None
    assert found.rejected is None


def test_the_worst_p99_keeps_that_it_is_a_lower_bound() -> None:
    clipped = replace(reading(2, ready=3, p99_ttft_seconds=10.0), above_top_edge_ratio=0.3)
    exact = reading(3, ready=3, p99_ttft_seconds=10.0, above_top_edge_ratio=0.0)
    found = find_extremes(course(reading(1, ready=3), clipped, exact, reading(4, ready=2)))
    assert (found.p99_ttft_seconds, found.p99_at_least, found.ready_min) == (10.0, True, 2)
    # what was before the loss is not the loss's
    assert find_extremes(course(reading(0.5, p99_ttft_seconds=99.0), exact)).p99_ttft_seconds == 10.0


def test_survivors_are_compared_once_the_lost_ones_have_left_the_rates() -> None:
    # lost at minute 1: a 5m rate is the survivors' own from minute 6 on
    readings = [
        reading(minute, ready=3 if minute < 9 else 4, now={"prefill": rate})
        for minute, rate in ((1, 9000.0), (5, 9000.0), (6, 5000.0), (8, 6000.0), (9, 9500.0))
    ]
    before = reading(
        -1, n1_load={"prefill": 0.8, "kv": 0.5}, n1_capacity={"prefill": 10_000.0}, demand={"prefill": 8000.0}
    )
    found = {row.resource: row for row in compare_forecast(course(*readings, forecast=Forecast(before)))}
    assert found["prefill"].reached == 0.6
    assert (found["prefill"].demand, found["prefill"].forecast) == (8000.0, 0.8)
    assert (found["kv"].capacity, found["kv"].reached) == (None, None)


def test_the_longest_stretch_has_no_gap() -> None:
    readings = [reading(minute, ready=ready) for minute, ready in enumerate((3, 3, 4, 3, 3, 3, None, 3))]
    found = find_longest_span(readings, lambda one: one.ready == 3)
    assert found == (START + 3 * MINUTE, START + 5 * MINUTE)
    assert find_longest_span(readings, lambda one: one.ready == 1) is None
