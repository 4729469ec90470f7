"""The last gate: no series is published with a value that its metric cannot have, whatever made it."""

from __future__ import annotations

import logging
from math import inf, nan

import pytest

from llm_serving_exporter.catalogue import cost, derived, health, serving
from llm_serving_exporter.expose.families import Families, SharedLabels
from llm_serving_exporter.model.numbers import Histogram
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.settings.config import Config
from tests.support.builders.lying_pages import KNOWN, PRICES, Server
from tests.support.builders.recordings import page
from tests.support.rows import check_rows
from tests.support.servers.driven_exporter import DrivenExporter

LABELS = SharedLabels({"target": "a"})
LATENCY = next(metric for metric in serving.HISTOGRAMS if metric.name == "time_to_first_token_seconds")


def samples(families: Families) -> list[float]:
    return [sample.value for family in families for sample in family.samples]


@check_rows("value", [nan, inf, -inf, -1.0, 11.0])
def test_a_value_outside_its_range_is_no_sample_and_is_counted(value: float) -> None:
    families = Families()
    families.add_value(derived.PREFIX_CACHE_HIT_RATIO, LABELS, value)
    families.add_values(
        derived.SLO_EVENTS, LABELS, ("slo",), [("ttft",), ("e2e",)], [1.0, value if value != 11.0 else nan]
    )
    families.add_histogram(LATENCY, LABELS, Histogram((1.0,), (1.0,), 2.0, value if value != 11.0 else nan))
    assert samples(families) == [1.0]
    assert families.left_out == {
        ("a", "prefix_cache_hit_ratio"): 1,
        ("a", "slo_events_total"): 1,
        ("a", "time_to_first_token_seconds"): 1,
    }


def test_what_is_of_no_target_is_counted_under_none() -> None:
    families = Families()
    families.add_value(health.RELOAD_TIME, SharedLabels({}), nan)
    assert families.left_out == {("", health.RELOAD_TIME.name): 1}


def test_what_only_the_last_gate_finds_is_published_as_a_count_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server, config = Server({"/metrics": page("vllm-0.32", 60)}), Config(targets=(), prices=PRICES)
    with DrivenExporter("http://one", connect=server.connect, config=config, **KNOWN) as exporter:
        for _ in range(3):
            (reading,) = exporter.tick()
        assert reading.cost is not None
        first = reading.cost.engines[0]
        wrong = replace(first, totals=replace(first.totals, energy_joules=nan))
        exporter.store.put_target(replace(reading, cost=replace(reading.cost, engines=(wrong,))))
        with caplog.at_level(logging.WARNING):
            counts = [exporter.scrape().value("implausible_values_total", signal=cost.ENERGY.name) for _ in range(2)]
    assert counts == [1, 2]
    assert caplog.text.count("energy_joules_total is not published") == 1


def test_facts_that_are_the_same_are_written_once_and_others_anew() -> None:
    """As long as nothing of them is left out, which is counted on every page."""
    labels, asked = SharedLabels({"target": "a"}), list[float]()

    def add(families: Families, of: SharedLabels, facts: tuple[float, ...]) -> None:
        asked.append(facts[0])
        families.add_value(derived.PREFIX_CACHE_HIT_RATIO, of, facts[0])

    def page_of(facts: tuple[float, ...]) -> Families:
        families = Families()
        families.add_unchanged(labels, facts, add)
        return families

    first, second, wrong = (0.25,), (0.5,), (nan,)
    assert [samples(page_of(facts)) for facts in (first, first, second, second)] == [[0.25], [0.25], [0.5], [0.5]]
    assert asked == [0.25, 0.5]
    for _ in range(2):
        families = page_of(wrong)
        assert samples(families) == []
        assert families.left_out == {("a", "prefix_cache_hit_ratio"): 1}
    assert len(asked) == 4
