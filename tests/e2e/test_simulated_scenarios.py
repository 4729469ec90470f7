"""Scenarios in simulated time: exactly the alerts that each lists fire, when it says.

vmalert replays the rules over what an exporter showed of the fleet each minute. `tests/e2e/test_scenarios.py` has the real exporter,
Prometheus and Alertmanager beside a fleet that runs sixty times as fast: `make test-soak` runs it.
"""

from collections import defaultdict

import pytest

from llm_serving_simulator.fleet.scenario import load, names
from tests.e2e.scenarios import ALWAYS
from tests.e2e.week import PLAN, Week

pytestmark = pytest.mark.e2e

# Their alerts need more of a past, or more than a sample a minute, than the simulation has: `make test-soak` runs them by the clock.
BY_THE_CLOCK = {"kv-pressure", "node-loss-under-load", "prefill-flood"}


@pytest.fixture(scope="module")
def fired(week: Week) -> dict[str, dict[str, float]]:
    """By model: Unix seconds at which each alert first fired. "": alerts of no model."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for series in week.range('ALERTS{alertstate="firing"}'):
        labels, first = series["metric"], float(series["values"][0][0])
        of_model = found[labels.get("model_name", "")]
        of_model[labels["alertname"]] = min(first, of_model.get(labels["alertname"], first))
    return found


@pytest.mark.parametrize("name", sorted(set(names()) - BY_THE_CLOCK))
def test_exactly_the_alerts_that_it_lists(name: str, fired: dict[str, dict[str, float]]) -> None:
    scenario = load(name)
    # each scenario is a model of that name, and ends at the end
    seen = fired.get(name, {})
    assert set(seen) == {alert.name for alert in scenario.alerts}
    for alert in scenario.alerts:
        at = seen[alert.name] - (PLAN.end_unix_seconds - scenario.duration_seconds)
        assert at >= alert.after_seconds, f"{alert.name} fired at {at:.0f} s, before its cause"
        assert alert.within_seconds is None or at <= alert.after_seconds + alert.within_seconds, (
            f"{alert.name}: {at:.0f} s"
        )


def test_nothing_else_fires_but_what_always_does_and_the_gpu_and_the_node_that_are_lost(
    fired: dict[str, dict[str, float]],
) -> None:
    # one of the recorded servers that stand beside the scenarios loses a GPU; node-loss-under-load loses a node after 25 of its 80 minutes
    assert set(fired[""]) == {ALWAYS, "LLMServingGPUFailed", "LLMServingNodeLost"}
    assert 5 * 60 <= fired[""]["LLMServingNodeLost"] - (PLAN.end_unix_seconds - 55 * 60) <= 7 * 60
