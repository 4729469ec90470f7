"""Scenarios over the whole stack: simulated fleet, real exporter, Prometheus and Alertmanager, PagerDuty's Events API on loopback.

Exactly the alerts that each scenario lists fire, in time, and exactly the critical ones page. They are paced by the clock:
`make test-soak` runs them. `test_simulated_scenarios.py` has the same in simulated time.
"""

from pathlib import Path

import pytest

from llm_serving_simulator.fleet.scenario import names
from llm_serving_simulator.fleet.spec import SGLANG
from tests.e2e.scenarios import ALWAYS, MADE_BY_THE_MACHINE, assert_as_listed, assert_pages, play

pytestmark = [pytest.mark.paced, pytest.mark.soak]

PAGES = "engine-hang"


@pytest.mark.parametrize(
    "name",
    # with a pair of servers the one that is left out runs below
    sorted(set(names()) - {PAGES}),
)
def test_exactly_the_alerts_that_it_lists(name: str, tmp_path: Path) -> None:
    scenario, seen, running = play(name, tmp_path)
    assert_as_listed(scenario, seen)
    assert_pages(seen, running)


@pytest.mark.parametrize("name", ["kv-pressure", "error-burst"])
def test_the_same_alerts_over_the_pages_of_sglang(name: str, tmp_path: Path) -> None:
    scenario, seen, running = play(name, tmp_path, runtime=SGLANG)
    assert_as_listed(scenario, seen)
    assert_pages(seen, running)


def test_gauges_that_may_be_late_are_no_evidence_of_a_hang(tmp_path: Path) -> None:
    _, seen, running = play(PAGES, tmp_path, runtime=SGLANG)
    assert set(seen.fired) - {MADE_BY_THE_MACHINE} == {ALWAYS}
    assert running.inbox.events == []


def test_a_pair_of_servers_sends_one_page(tmp_path: Path) -> None:
    scenario, seen, running = play(PAGES, tmp_path, servers=2)
    assert_as_listed(scenario, seen)
    assert_pages(seen, running)
    events = running.inbox.events
    (page,) = [event for event in events if event["event_action"] == "trigger"]
    resolves = [event for event in events if event["event_action"] == "resolve"]
    assert [event["dedup_key"] for event in resolves] == [page["dedup_key"]]
    assert page["payload"]["severity"] == "critical"
    assert "replica-1" in page["payload"]["summary"]
    assert "First: " in page["payload"]["summary"]
    assert {link["text"] for link in page["links"]} == {"Runbook", "Dashboard", "Silence it"}
