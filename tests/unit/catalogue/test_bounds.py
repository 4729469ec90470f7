"""Ranges: every series and every field of a page has one, and what they admit."""

from __future__ import annotations

from math import inf, nan

from llm_serving_exporter.catalogue import BY_NAME, METRICS
from llm_serving_exporter.catalogue.serving import FIELD_BOUNDS
from llm_serving_exporter.catalogue.spec import MOST_EVENTS, Bounds, Kind, Unit
from llm_serving_exporter.model.numbers import Histogram
from llm_serving_exporter.model.record import name_fields
from llm_serving_exporter.model.snapshot import EngineSnapshot
from tests.support.rows import check_rows

SHARE = Bounds(0.0, 1.01, 1.0)
# of seconds
LATENCY = Bounds(0.0, 100.0)


@check_rows("value", [0.0, -0.0, 5e-324, 0.5, 1, True, 1.01])
def test_what_can_be_is_admitted(value: float) -> None:
    assert SHARE.admits(value)
    assert SHARE.suspects(value) == (value > 1)


@check_rows("value", [nan, inf, -inf, 1e308, 1e15, -1.0, -5e-324, 1.0100001, 10**400])
def test_what_cannot_be_is_not(value: float) -> None:
    assert not SHARE.admits(value)


@check_rows(
    "found",
    [
        Histogram((1.0, 2.0), (1.0, 3.0), 4.0, 9.0),
        Histogram((1.0, 2.0), (0.0, 0.0), 0.0, 0.0),
        Histogram((), (), 4.0, 400.0),
        Histogram((1.0,), (3.0,), 3.0, None),
        # a page that was read between an event's sum and its count
        Histogram((1.0,), (0.0,), 0.0, 99.0),
    ],
)
def test_a_histogram_that_can_be_is_admitted(found: Histogram) -> None:
    assert LATENCY.admits_histogram(found)


@check_rows(
    "found",
    [
        Histogram((1.0, 2.0), (3.0, 1.0), 4.0, 9.0),
        Histogram((1.0, 2.0), (1.0, 5.0), 4.0, 9.0),
        Histogram((1.0,), (nan,), 4.0, 9.0),
        Histogram((1.0,), (-1.0,), 4.0, 9.0),
        Histogram((1.0,), (inf,), inf, 9.0),
        Histogram((1.0,), (1.0,), nan, 9.0),
        Histogram((1.0,), (1.0,), 2 * MOST_EVENTS, 9.0),
        Histogram((1.0,), (1.0,), 4.0, nan),
        Histogram((1.0,), (1.0,), 4.0, -0.1),
        Histogram((1.0,), (1.0,), 4.0, inf),
        Histogram((1.0,), (1.0,), 4.0, 501.0),  # a hundred seconds each, and one event ahead
    ],
)
def test_a_histogram_that_cannot_be_is_not(found: Histogram) -> None:
    assert not LATENCY.admits_histogram(found)


def test_every_number_of_a_page_has_a_range() -> None:
    texts = {"model_name", "engine", "batch_limit_source", "kv_cache_dtype", "state_dtype", "role"}
    assert {*name_fields(EngineSnapshot)} - texts == FIELD_BOUNDS.keys()


def test_a_field_that_is_published_has_the_range_of_its_series() -> None:
    for name in FIELD_BOUNDS.keys() & BY_NAME.keys():
        assert FIELD_BOUNDS[name] == BY_NAME[name].bounds


def test_shares_and_ratios_of_ceilings_are_told_apart() -> None:
    found = {metric.name: metric.bounds for metric in METRICS if metric.unit is Unit.RATIO}
    of_ceilings = {name for name, bounds in found.items() if bounds.most > 1.01}
    assert of_ceilings == {
        "prefix_cache_hit_ratio", "bandwidth_ceiling_ratio", "bandwidth_ceiling_ratio_range", "decode_ceiling_ratio",
        "compute_ceiling_ratio", "gpu_dram_bandwidth_ratio", "batch_utilization_ratio", "long_context_amplification_ratio",
    }  # fmt: skip
    for name in ("prefix_cache_hit_ratio", "bandwidth_ceiling_ratio", "decode_ceiling_ratio", "compute_ceiling_ratio"):
        assert found[name] == Bounds(0.0, 10.0, 1.0)
    assert found["kv_cache_usage_ratio"] == SHARE


def test_nothing_but_a_temperature_is_below_0() -> None:
    assert {metric.name for metric in METRICS if metric.bounds.least < 0} == {"gpu_temperature_celsius"}
    assert all(metric.bounds.most == 1 for metric in METRICS if metric.kind is Kind.INFO)
