"""Verdicts on courses made by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from llm_serving_drill import names
from llm_serving_drill.course import Baseline, CommandRun, Counts, Course, Forecast, Phase, Plan, Reading
from llm_serving_drill.verdict import (
    Arrival,
    compare_forecast,
    count_rejections,
    find_extremes,
    find_longest_span,
    find_recovery,
    hold_is_over,
    judge,
    judge_alerts,
    make_baseline,
    make_reading,
)
from llm_serving_exporter.model.reading import DrillVerdict
from llm_serving_exporter.model.record import replace
from tests.support.builders.drills import MINUTE, SETTINGS, START, course, reading, seen
from tests.support.rows import check_rows

# one replica is away from minute 1 to minute 15, then all is as it was
LOST = [reading(minute, ready=3) for minute in range(1, 15)]
BACK = [reading(minute) for minute in range(15, 21)]
# ReplicaLost waits 10 minutes: it fires at minute 11 and has until minute 13
TOLD = (seen(names.REPLICA_LOST, fired=11.2),)


def reasons(one: Course) -> str:
    return "\n".join(judge(one).reasons)


def arrivals(one: Course) -> dict[str, Arrival]:
    return {found.name.removeprefix(names.PREFIX): found.arrival for found in judge_alerts(one)}


def test_it_is_passed_where_nothing_is_amiss() -> None:
    found = judge(course(*LOST, *BACK, sightings=TOLD))
    assert (found.verdict, found.reasons, found.remarks) == (DrillVerdict.PASSED, (), ())


@pytest.mark.parametrize(
    ("good", "bad", "reason"),
    [
        # one in a hundred is what 0.99 allows, and 1 - 0.99 is not 0.01 to a computer
        (990.0, 10.0, ""),
        (989.0, 11.0, "1.1 % of the times to first token were over the threshold, 1 % are allowed"),
        (0.0, 0.0, "no time to first token was counted against the objective"),
        (None, None, "no time to first token was counted against the objective"),
        (None, 5.0, "100 % of the times to first token were over the threshold"),
    ],
)
def test_no_larger_share_may_be_late_than_the_objective_allows(
    good: float | None, bad: float | None, reason: str
) -> None:
    found = judge(course(*LOST, *BACK, sightings=TOLD, counts=Counts(good, bad, 0.0)))
    assert found.verdict is (DrillVerdict.FAILED if reason else DrillVerdict.PASSED)
    assert "\n".join(found.reasons).startswith(reason)


@pytest.mark.parametrize(
    ("usual", "counted", "passes"),
    [
        # 10 in the 10 minutes of the baseline are 20 in the drill's 20: 20 + 3 x sqrt(20) = 33.4
        (10.0, 33.0, True),
        (10.0, 34.0, False),
        # none before: the first whole one counts, a fraction that PromQL extrapolates does not
        (0.0, 0.4, True),
        (0.0, 1.0, False),
        # nobody counts them: nothing to judge
        (0.0, None, True),
    ],
)
def test_rejections_beyond_what_the_baseline_explains_fail(usual: float, counted: float | None, passes: bool) -> None:
    one = course(
        *LOST, *BACK, sightings=TOLD, baseline=Baseline(600.0, rejected=usual), counts=Counts(1000.0, 0.0, counted)
    )
    assert judge(one).verdict is (DrillVerdict.PASSED if passes else DrillVerdict.FAILED)
    if counted is None:
        assert count_rejections(one) is None
        assert "nobody counted rejected requests: they were not judged" in judge(one).remarks


def test_few_events_are_said() -> None:
    found = judge(course(*LOST, *BACK, sightings=TOLD, counts=Counts(60.0, 0.0, 0.0)))
    assert found.remarks == ("the objective was judged by 60 requests only",)


def change(readings: Sequence[Reading], **more: object) -> list[Reading]:
    return [replace(one, **more) for one in readings]


GONE = [reading(minute, ready=1, alive=1) for minute in range(1, 15)]
# queue and load above 1 from minute 2 on
QUEUE = [LOST[0], *(reading(minute, ready=3, waiting=9, load_max=1.2) for minute in range(2, 15))]


@check_rows(
    ("readings", "due"),
    [
        # a ticket ten minutes after the loss, a page only where they queue
        (LOST, {"ReplicaLost"}),
        # what was sent to sleep is not missing
        (change(LOST, present=4.0), set()),
        # more than half are gone, and do not load; exporters that went with their nodes leave nothing behind that is alive
        (GONE, {"ReplicaLost", "TargetsDown"}),
        (change(GONE, alive=4.0), {"ReplicaLost"}),
        (change(GONE, ready=2.0, present=2.0, alive=2.0), {"ReplicaLost"}),
        (change(GONE, alive=None), {"ReplicaLost", "TargetsDown"}),
        # the survivors queue and are full; a queue while there is room is no matter of lost nodes
        (QUEUE, {"ReplicaLost", "N1Critical"}),
        (change(QUEUE, load_max=0.9), {"ReplicaLost"}),
        # it begins anew with a queue that was gone for a moment: neither 6 minutes before that nor 6 after it are 7
        ([*QUEUE[:7], reading(8, ready=3, waiting=0, load_max=1.2), *QUEUE[8:]], {"ReplicaLost"}),
    ],
)
def test_alerts_are_due_by_what_was_seen_of_their_conditions(readings: list[Reading], due: set[str]) -> None:
    one = course(*readings, *BACK)
    assert {name for name, arrival in arrivals(one).items() if arrival is Arrival.MISSING} == due
    assert set(arrivals(one).values()) <= {Arrival.MISSING, Arrival.NOT_DUE}
    assert reasons(one) == "\n".join(f"LLMServing{name} did not fire" for name in arrivals(one) if name in due)


def test_a_page_is_due_after_the_rules_time_and_slack() -> None:
    # from minute 2 on: 5 minutes of the rule, 2 of slack
    alerts = judge_alerts(course(*QUEUE, *BACK))
    assert [one.due_unix_seconds for one in alerts if one.name == names.N1_CRITICAL] == [START + 9 * MINUTE]


def test_replicas_that_are_back_before_any_alert_is_due_pass_with_a_remark() -> None:
    # away for nine minutes; ReplicaLost waits ten
    one = course(*LOST[:9], *[reading(minute) for minute in range(10, 21)])
    assert set(arrivals(one).values()) == {Arrival.NOT_DUE}
    assert judge(one).verdict is DrillVerdict.PASSED
    assert judge(one).remarks[0].startswith("no alert was due")


def test_an_alert_after_its_time_is_late() -> None:
    # lost at minute 1: due at 1 + 10 + 2 of slack
    one = course(*LOST, *BACK, sightings=(seen(names.REPLICA_LOST, fired=13.5),))
    assert reasons(one) == "LLMServingReplicaLost came too late"
    assert (
        arrivals(course(*LOST, *BACK, sightings=(seen(names.REPLICA_LOST, fired=13.0),)))["ReplicaLost"]
        is Arrival.IN_TIME
    )
    # one that came before the time was up was due then all the same; what neither came nor was due has no such time
    early = judge_alerts(course(*LOST[:12], sightings=TOLD))
    assert [one.due_unix_seconds for one in early] == [START + 13 * MINUTE, None, None]


def test_an_alert_asked_for_by_name_must_come_whether_it_is_due_or_not() -> None:
    plan = Plan("a", 2, (names.TARGETS_DOWN,), (), (), ())
    assert reasons(course(*LOST, *BACK, plan=plan)) == "LLMServingTargetsDown did not fire"
    assert (
        judge(course(*LOST, *BACK, plan=plan, sightings=(seen(names.TARGETS_DOWN, 9),))).verdict is DrillVerdict.PASSED
    )


@pytest.mark.parametrize(
    ("sighting", "reason"),
    [
        (seen(names.REPLICA_LOST, 11.2, received=11.5), ""),
        (seen(names.REPLICA_LOST, 11.2), "LLMServingReplicaLost fired, and Alertmanager did not have it"),
        (seen(names.REPLICA_LOST, 11.2, received=13.2), "LLMServingReplicaLost came too late"),
        (
            seen(names.REPLICA_LOST, 11.2, received=11.5, silenced=True),
            "LLMServingReplicaLost reached Alertmanager and was silenced: nobody was told",
        ),
        # the louder alert of the same loss was sent in its place
        (seen(names.REPLICA_LOST, 11.2, received=11.5, inhibited=True), ""),
    ],
)
def test_with_an_alertmanager_it_has_to_have_it(sighting: object, reason: str) -> None:
    assert reasons(course(*LOST, *BACK, alertmanager=True, sightings=(sighting,))) == reason


def test_recovery_is_the_later_of_replicas_and_queue_and_counts_from_the_loss() -> None:
    # replicas back at 15, queue (at most 5 in the baseline) at 17
    back = [reading(15, waiting=8), reading(16, waiting=6), reading(17, waiting=5), reading(18, waiting=2)]
    found = find_recovery(course(*LOST, *back))
    assert found.replicas_unix_seconds == START + 15 * MINUTE
    assert found.queue_unix_seconds == found.recovered_unix_seconds == START + 17 * MINUTE
    # what falls back has not recovered
    assert find_recovery(course(*LOST, *back, reading(19, ready=3))).recovered_unix_seconds is None
    # where nothing ever waited before, one for each of the four replicas may
    empty = course(*LOST, *back[:3], reading(18, waiting=4), baseline=Baseline(600.0, waiting_max=0.0))
    assert find_recovery(empty).recovered_unix_seconds == START + 18 * MINUTE


def test_a_queue_that_is_not_exported_is_no_obstacle_and_one_that_vanished_is() -> None:
    silent = [replace(one, waiting=None) for one in (*LOST, *BACK)]
    assert (
        find_recovery(course(*silent, before=replace(reading(-0.1), waiting=None))).recovered_unix_seconds
        == START + 900
    )
    assert find_recovery(course(*silent)).recovered_unix_seconds is None


def test_what_did_not_come_back_is_named() -> None:
    def at_the_end(*readings: object) -> str:
        return reasons(course(*readings, sightings=TOLD, phase=Phase.LOST))

    assert at_the_end(*LOST) == "not recovered within 30 min: fewer replicas were ready than before"
    queue = [reading(15, waiting=8)]
    assert at_the_end(*LOST, *queue).endswith(
        "the queue was longer than it had ever been in the baseline and than a request a replica"
    )
    assert at_the_end(*LOST, *BACK).endswith("it did not stay so for 1 min")


def test_a_restore_that_failed_fails_it() -> None:
    run = CommandRun("restore", "uncordon", START, 1.0, 3, "no such node")
    assert (
        reasons(course(*LOST, *BACK, sightings=TOLD, commands=(run,)))
        == "the restore command failed: it ended with status 3"
    )


def test_what_was_broken_off_is_aborted_with_what_was_amiss_until_then() -> None:
    one = course(*LOST[:3], broken_off="interrupted", phase=Phase.LOST, counts=Counts(90.0, 10.0, 0.0))
    found = judge(one)
    assert found.verdict is DrillVerdict.ABORTED
    assert found.reasons[0] == "interrupted"
    assert found.reasons[1].startswith("10 % of the times to first token")
    assert len(found.reasons) == 2


def test_the_loss_is_held_for_its_time_or_until_everybody_was_told() -> None:
    one = course(*LOST, settings=replace(SETTINGS, hold_seconds=300.0))
    lost = one.lost_unix_seconds
    assert lost is not None
    assert [hold_is_over(one, lost + seconds) for seconds in (299.0, 300.0)] == [False, True]
    assert not hold_is_over(course(*LOST), lost + 86_400)
    page = replace(SETTINGS, hold_for_page=True)
    assert not hold_is_over(course(*LOST[:9], settings=page), lost + 540)
    assert hold_is_over(course(*LOST[:11], settings=page, sightings=TOLD), lost + 660)
    # another one is pending: it is waited for
    pending = (*TOLD, seen(names.N1_CRITICAL, None))
    assert not hold_is_over(course(*LOST[:11], settings=page, sightings=pending), lost + 660)
    # but not for ever: the longest rule's 10 minutes + 5 of the range + 2 of slack
    assert hold_is_over(course(*LOST, settings=page, sightings=pending), lost + 17 * MINUTE)


# --- what is made of samples and series


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
