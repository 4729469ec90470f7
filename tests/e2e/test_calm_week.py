"""Calm days in which no alert fires, and after them faults of which exactly the alerts fire that must; every rule each minute.

A rule that yields nothing is silent too. So what was recorded is held against the fleet's own counts, and the faults at the end of the
same history have to be found.
"""

from pathlib import Path

import pytest

from llm_serving_simulator.fleet.scenario import Event
from llm_serving_simulator.fleet.workload import DAY_SECONDS, Step
from tests.e2e.replay import HOUR, MINUTE, WATCHDOG, Replayed, calm, recorded_by, replayed, rules_in_order, settings_for

# recorded only where requests wait, which on a calm day none does for five minutes
OF_QUEUES = frozenset(
    {
        "model:llm_serving_reference_work_per_queued_replica:rate5m",
        "model:llm_serving_reference_work_per_replica:rate5m_waiting",
        "model:llm_serving_reference_work_per_replica:p90_7d",
        "model_gpu:llm_serving_phase_tokens:max_rate5m_waiting",
        "model_gpu:llm_serving_reference_work:max_rate5m_waiting",
        "model_gpu:llm_serving_replica_work:best",
        "target:llm_serving_queue:left_out",
    }
)
# recorded only where something is wrong: a failed scrape, a slowed GPU, one name or one GPU for two
OF_FAULTS = frozenset(
    {
        "engine:llm_serving_stalled_requests:max",
        "gpu:llm_serving_gpu_slowdown:max",
        "target:llm_serving_scrape_failures:increase5m",
        "gpu:llm_serving_claims:count",
        "target:llm_serving_claims:count",
        "fleet:llm_serving_unreached:ratio",
        "model:llm_serving_expected_replicas:last1d",
        "model:llm_serving_requests_at_sick:sum",
        "model:llm_serving_vanished_targets:sum",
        "model_node:llm_serving_lost_replicas:ratio",
        "scrape:llm_serving_replaced_labels:info",
        "target:llm_serving_outlier:own",
        "workload:llm_serving_lost_signals:count",
        "workload:llm_serving_signal_whole:count",
    }
)
# recorded where the last ten requests failed: those of the faults do not all fail
OF_ROWS = frozenset({"model:llm_serving_slo_bad:in_a_row"})
# recorded only where kube-state-metrics is scraped
OF_KUBERNETES = frozenset(
    {
        "kube:llm_serving_wanted_replicas:max",
        "model:llm_serving_autoscaled_survivors:ratio",
        "model:llm_serving_unwanted:bool",
        "node:llm_serving_kube_ready:seen",
        "node:llm_serving_kube_ready:time",
        "workload:llm_serving_wanted_replicas:sum",
    }
)
# recorded only where a front door is read or counts by tenant, where ranks that share experts have pages of their own, and where each node
# has an exporter
OF_LAYOUTS = frozenset(
    {
        "model:llm_serving_front_door_covers:bool",
        "model:llm_serving_front_door_first_tokens:ratio1h",
        "model:llm_serving_tenant_tokens:rate5m",
        "model:llm_serving_ttft_front_door:held30d",
        "model:llm_serving_ttft_front_door:held3d",
        "model:llm_serving_ttft_front_door:held6h",
        "node:llm_serving_exporter_answered:seen",
        "node:llm_serving_exporter_answered:time",
        "replica:llm_serving_lacking_ranks:sum",
        "replica:llm_serving_ranks:max",
        "replica:llm_serving_shown_ranks:sum",
    }
)
# recorded once there is a history of days
OF_DAYS = frozenset(
    {
        "model:llm_serving_prefix_cache_hit:median7d",
        "model_gpu:llm_serving_bandwidth_ceiling:median7d",
        "model:llm_serving_tokens:same_hour_median7d",
        "model:llm_serving_tokens:same_hour_lowest_median7d",
        "model:llm_serving_tokens:same_hour_week_ago",
        "model:llm_serving_tokens:past_hour_median7d",
        "model:llm_serving_cost_usd_per_million_tokens:median7d",
    }
)


# calm-day's own engines idle; at the peak these do nearly half of what three of the four can
SMALL = {"gpu": "L40S", "max_num_seqs": 8}


def errors(at_seconds: float) -> tuple[Event, ...]:
    """One request in four fails for twenty minutes."""
    return Event(at_seconds, "errors", value=0.25), Event(at_seconds + 20 * MINUTE, "errors", value=0.0)


def no_hits(at_seconds: float) -> tuple[Event, ...]:
    """Nothing is found in the prefix cache for two hours."""
    return Event(at_seconds, "prefix-cache-off"), Event(at_seconds + 2 * HOUR, "prefix-cache-on")


def no_traffic(at_seconds: float) -> tuple[Step, ...]:
    """Hardly a request comes for an hour."""
    return Step(at_seconds, 0.02), Step(at_seconds + HOUR, 1.0)


def assert_recorded(seen: Replayed, *, days: float, unrecorded: frozenset[str]) -> None:
    """Every minute was looked at, everything was recorded, and rightly."""
    assert seen.minutes == days * DAY_SECONDS / MINUTE + 1
    wanted = recorded_by(rules_in_order(settings_for(calm(days=days)))) - unrecorded
    assert (sorted(wanted - seen.recorded), sorted(seen.recorded - wanted)) == ([], [])
    for phase, (recorded, counted) in seen.tokens.items():
        assert counted > 1e6
        assert recorded == pytest.approx(counted, rel=0.02), phase
    for recorded, true in (seen.spend, seen.per_million):
        assert recorded == pytest.approx(true, rel=0.005)


def assert_only(seen: Replayed, wanted: dict[str, tuple[float, float]]) -> None:
    """Exactly these fired, each after its cause and within that time of it: so that nothing did before the first fault."""
    assert set(seen.fired) == {WATCHDOG, *wanted}, seen.fired
    for name, (cause, within) in wanted.items():
        assert cause < seen.fired[name] <= cause + within, f"{name} at {seen.fired[name]:.0f} s"


@pytest.mark.e2e
def test_nothing_fires_in_four_calm_hours_and_then_the_faults_do(tmp_path: Path) -> None:
    errors_at, days = 4 * HOUR, 6 / 24
    scenario = calm(days=days, from_hour=10.0, events=errors(errors_at), engine=SMALL)
    seen = replayed(scenario, tmp_path, days * DAY_SECONDS)
    assert_recorded(seen, days=days, unrecorded=OF_QUEUES | OF_DAYS | OF_FAULTS | OF_ROWS | OF_KUBERNETES | OF_LAYOUTS)
    assert_only(seen, {"LLMServingSLOBurn": (errors_at, 20 * MINUTE)})


@pytest.mark.soak
def test_nothing_fires_in_a_calm_week_and_then_the_faults_do(tmp_path: Path) -> None:
    # from Wednesday on a week for the baselines, the week that counts, and a day of faults
    days = 15.0
    last = 14 * DAY_SECONDS
    errors_at, no_hits_at, vanished_at = last + 8 * HOUR, last + 14 * HOUR, last + 19 * HOUR
    events = (*errors(errors_at), *no_hits(no_hits_at))
    # the fleet's own counts reach back eleven days
    seen = replayed(calm(days=days, events=events, rates=no_traffic(vanished_at)), tmp_path, 8 * DAY_SECONDS)
    assert_recorded(seen, days=days, unrecorded=OF_QUEUES | OF_FAULTS | OF_KUBERNETES | OF_LAYOUTS)
    assert_only(
        seen,
        {
            "LLMServingSLOBurn": (errors_at, 20 * MINUTE),
            "LLMServingHitRateDropped": (no_hits_at, 75 * MINUTE),
            "LLMServingTrafficVanished": (vanished_at, 40 * MINUTE),
        },
    )
