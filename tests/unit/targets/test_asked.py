"""Figures that only pages ask for: whether nobody, one or ten ask between two ticks, every state and counter is the same."""

from __future__ import annotations

import re

import pytest

from llm_serving_exporter.settings.config import Config
from tests.support.builders.lying_pages import KNOWN, PRICES, Server, change_samples
from tests.support.builders.recordings import recording
from tests.support.quick import keep_quick
from tests.support.servers.driven_exporter import DrivenExporter

# of the page's series those that say how often it was made, or by whom: none of them is of a target
_STATES = re.compile(r"^llm_serving_(?!exporter_)\w+(\{.*)? \S+$", re.MULTILINE)


def list_series(asks: int, *, lie: bool = False) -> tuple[str, list[object]]:
    """The page after twenty ticks of the recorded load, between which `asks` pages were made; and the states of each tick."""
    run = recording("vllm-0.32-mfu")
    server = Server({"/metrics": run.pages[20]})
    states: list[object] = []
    with DrivenExporter(
        "http://one", connect=server.connect, config=Config(targets=(), prices=PRICES), **KNOWN
    ) as exporter:
        exporter.tick()
        for number in range(21, 61, 2):
            page = run.pages[number]
            if lie and number == 41:
                page = change_samples(page, "vllm:prefix_cache_hits_total", lambda value: value + 1e9)
            server.routes = {"/metrics": page}
            (reading,) = exporter.tick()
            for _ in range(asks):
                exporter.scrape()
            assert reading.page.derivation is not None
            found = reading.page.derivation
            verdict = found.verdict
            states.append(
                (
                    [(one.busy, one.tick, one.server_errors) for one in found.tick_engines],
                    (verdict.state, verdict.candidate, verdict.candidate_since_monotonic_seconds),
                    [one.totals for one in reading.cost.engines],
                    dict(reading.page.implausible_total),
                )
            )
        text = exporter.scrape().text
    return "\n".join(match[0] for match in _STATES.finditer(text)), states


@pytest.mark.parametrize("asks", keep_quick([1, 10], lambda asks: asks == 1))
def test_nobodys_asking_changes_a_state_or_a_counter(asks: int) -> None:
    series, states = list_series(0)
    assert len(states) == 20
    assert series.count("\n") > 200
    assert list_series(asks) == (series, states)


def test_a_figure_is_worked_out_once_whoever_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    from llm_serving_exporter.derive import figures

    worked_out: list[object] = []
    make = figures.Computed.__init__

    class Counting(dict[object, object]):
        def __setitem__(self, key: object, value: object) -> None:
            worked_out.append(key)
            assert key not in self, "a figure was worked out twice"
            super().__setitem__(key, value)

    def begin(self: figures.Computed, handed_in: object) -> None:
        make(self, handed_in)
        self._values = Counting(self._values)
        self._known = self._values.__getitem__

    monkeypatch.setattr(figures.Computed, "__init__", begin)
    list_series(2)
    assert len(worked_out) > 500


def test_a_lie_that_only_pages_see_is_counted_once_for_its_page() -> None:
    def count(asks: int) -> set[str]:
        series, _ = list_series(asks, lie=True)
        return set(re.findall(r'implausible_values_total\{.*signal="prefix_cache_hit_ratio".*\} (\S+)', series))

    assert count(1) == count(3) != set()
