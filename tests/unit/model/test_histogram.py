"""Differences, means and quantiles of cumulative histograms."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.model.numbers import FEWEST_EVENTS, Histogram, has_enough_events
from tests.support.rows import check_rows

# 10 events: 2 up to 1 s, 6 up to 2 s, 9 up to 4 s, one beyond
TEN = Histogram((1.0, 2.0, 4.0), (2.0, 6.0, 9.0), 10.0, 21.0)


@check_rows(
    ("q", "value", "clipped"),
    [
        (0.5, 1.0 + (5 - 2) / 4, ""),  # rank 5 is the third of four events between 1 and 2
        (0.1, 1.0, "bottom"),  # rank 1 of 2 below the first edge: anything up to it
        (0.9, 4.0, ""),  # rank 9 is the last below 4
        (0.99, 4.0, "top"),  # rank 9.9 is beyond: at least 4
    ],
)
def test_quantiles(q: float, value: float, clipped: str) -> None:
    found = TEN.quantile(q)
    assert found is not None
    assert (found.value, found.clipped) == (pytest.approx(value), clipped)


def test_nothing_is_known_without_events() -> None:
    empty = Histogram((1.0,), (0.0,), 0.0, 0.0)
    assert empty.quantile(0.5) is None
    assert empty.mean() is None
    assert Histogram((), (), 3.0, 3.0).quantile(0.5) is None


def test_events_between_two_readings() -> None:
    earlier = Histogram((1.0, 2.0, 4.0), (1.0, 2.0, 3.0), 3.0, 5.0)
    inside = TEN.since(earlier)
    assert inside == Histogram((1.0, 2.0, 4.0), (1.0, 4.0, 6.0), 7.0, 16.0)
    assert inside.mean() == pytest.approx(16 / 7)


def test_a_reset_or_other_edges_give_no_difference() -> None:
    assert TEN.since(None) is None
    assert TEN.since(Histogram((1.0, 2.0, 4.0), (9.0, 9.0, 11.0), 11.0, 30.0)) is None
    assert TEN.since(Histogram((1.0, 2.0), (0.0, 0.0), 0.0, 0.0)) is None
    assert TEN.plus(Histogram((1.0, 2.0), (0.0, 0.0), 0.0, 0.0)) is None


def test_sum_of_two_engines() -> None:
    assert TEN.plus(TEN) == Histogram((1.0, 2.0, 4.0), (4.0, 12.0, 18.0), 20.0, 42.0)


@check_rows(("threshold", "edge"), [(0.5, None), (1.0, 1.0), (3.9, 2.0), (4.0, 4.0), (99.0, 4.0)])
def test_the_strictest_edge_that_can_stand_for_a_threshold(threshold: float, edge: float | None) -> None:
    assert TEN.edge_at_or_below(threshold) == edge


def test_counts_at_an_edge() -> None:
    assert TEN.count_at_or_below(2.0) == 6.0
    with pytest.raises(ValueError, match="not in tuple"):
        TEN.count_at_or_below(3.0)


@given(st.lists(st.floats(0.001, 100.0), min_size=1, max_size=200), st.floats(0.01, 1.0))
def test_a_quantile_lies_in_the_bucket_of_the_true_one(events: list[float], q: float) -> None:
    edges = (0.01, 0.1, 1.0, 10.0, 50.0)
    counts = tuple(float(sum(event <= edge for event in events)) for edge in edges)
    found = Histogram(edges, counts, float(len(events)), sum(events)).quantile(q)
    true = sorted(events)[max(0, math.ceil(q * len(events)) - 1)]
    assert found is not None
    bounds = (0.0, *edges)
    place = next((i for i, edge in enumerate(edges) if true <= edge), len(edges))
    if place == len(edges):
        assert (found.value, found.clipped) == (50.0, "top")
    else:
        assert bounds[place] <= found.value <= bounds[place + 1] * (1 + 1e-9)


@check_rows(
    ("q", "fewest"),
    [(0.5, FEWEST_EVENTS), (0.9, FEWEST_EVENTS), (0.95, 20), (0.99, 100), (0.999, 1000)],
)
def test_a_quantile_takes_enough_events_that_one_lies_above_it(q: float, fewest: int) -> None:
    assert has_enough_events(fewest, q)
    assert not has_enough_events(fewest - 1, q)
