"""When a drill may begin."""

from __future__ import annotations

from typing import Any

import pytest

from llm_serving_drill import names
from llm_serving_drill.course import ActiveAlert, AlertRule, Bounds, Forecast, Settings
from llm_serving_drill.plan import make_plan
from llm_serving_exporter.model.record import replace
from tests.support.builders.drills import BOUNDS, RULES, SETTINGS, START, reading


def forecast(*, rules: dict[str, AlertRule] = RULES, active: tuple[ActiveAlert, ...] = (), **more: Any) -> Forecast:
    return Forecast(reading(0, **more), {"a": 1, "b": 3}, "a", rules, active)


def refusals(known: Forecast, **settings: Any) -> str:
    return "\n".join(make_plan(known, replace(SETTINGS, **settings)).refusals)


def test_the_node_with_the_most_replicas_goes_and_no_more_may() -> None:
    found = make_plan(forecast(), SETTINGS)
    assert (found.node, found.may_lose, found.refusals) == ("b", 3, ())
    assert found.notes == (
        "the forecast takes away the largest node of each resource, which by KV capacity is a, not b",
    )
    assert make_plan(forecast(), replace(SETTINGS, node="a")).may_lose == 1
    assert make_plan(forecast(), replace(SETTINGS, bounds=replace(BOUNDS, lost_replicas=2))).may_lose == 2


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        (forecast(ready=None), "Prometheus has no ready replicas of this model and role recorded"),
        (
            forecast(ready=None),
            "Prometheus has no ready replicas of this model and role recorded (model:llm_serving_ready_replicas:sum); "
            "it has none of any model, so check that the recording rules are loaded and --prometheus.url",
        ),
        (
            replace(forecast(ready=None), others=tuple((f"m{number:02}", "decode") for number in range(22))),
            "Prometheus has no ready replicas of this model and role recorded (model:llm_serving_ready_replicas:sum); "
            "check --model, --role and --selector: it has "
            f"{', '.join(f'm{number:02} (decode)' for number in range(20))} and 2 more",
        ),
        (forecast(n1_sufficient=None), "N-1 is unknown"),
        (
            forecast(n1_sufficient=False, n1_load={"kv": 0.5, "phases": 1.25}),
            "N-1 says that the survivors cannot carry the demand of the last hour: 125 % of what is left of phases would be needed",
        ),
        (forecast(nodes=1.0, n1_sufficient=None), "one node serves the model"),
        (forecast(ready=3.0), "a replica is missing already: 3 of 4 wanted ones are ready"),
        (forecast(desired=None), "nothing says how many replicas are wanted"),
        (forecast(rules={}), "Prometheus evaluates no alert LLMServingReplicaLost"),
        (forecast(active=(ActiveAlert(names.REPLICA_LOST, "warning", False, START),)), "LLMServingReplicaLost is pending already"),
        (forecast(errors_ratio=0.06), "a bound is reached before anything is lost: 6 % of the requests failed, more than 5 %"),
        (replace(forecast(), replicas_by_node={}, largest_node=None), "nothing says how many replicas stand on a node"),
    ],
)  # fmt: skip
def test_it_does_not_begin_where(known: Forecast, reason: str) -> None:
    found = refusals(known)
    assert found.startswith(reason)
    assert "\n" not in found


def test_force_turns_refusals_into_notes_as_well() -> None:
    found = make_plan(forecast(n1_sufficient=None), replace(SETTINGS, force=True))
    assert found.refusals
    assert any(note.startswith("forced, although N-1 is unknown") for note in found.notes)


def test_a_loss_that_is_only_watched_is_never_refused() -> None:
    found = make_plan(forecast(n1_sufficient=False), replace(SETTINGS, watch=True))
    assert (found.refusals, found.node, found.may_lose) == ((), None, None)
    assert any("N-1 says" in note for note in found.notes)


def test_alerts_asked_for_by_name_have_to_exist_and_none_is_an_answer() -> None:
    assert refusals(forecast(desired=None), expected_alerts=()) == ""
    assert (
        refusals(forecast(), expected_alerts=("LLMServingMistyped",))
        == "Prometheus evaluates no alert LLMServingMistyped"
    )
    assert make_plan(forecast(), replace(SETTINGS, expected_alerts=(names.TARGETS_DOWN,))).required == (
        names.TARGETS_DOWN,
    )


def test_a_latency_that_is_only_known_to_be_at_least_so_long_says_so() -> None:
    slow = forecast(p99_ttft_seconds=10.0, above_top_edge_ratio=0.5)
    settings = Settings(Bounds(None, 5.0, 1800.0))
    assert make_plan(slow, settings).refusals == (
        "a bound is reached before anything is lost: p99 time to first token is at least 10 s, more than 5 s (--max-ttft)",
    )
