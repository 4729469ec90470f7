"""What a drill measured, whether somebody was told, and the verdict with its reasons."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from math import sqrt
from statistics import fmean, median
from typing import Any

from llm_serving_drill import names
from llm_serving_drill.course import CLIPPED_ABOVE, RESTORE, TRIGGER, Baseline, Course, Phase, Reading, Sighting
from llm_serving_exporter.clients.json_api import Series
from llm_serving_exporter.model.reading import DrillVerdict
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.text import count_nouns
from llm_serving_exporter.render.numbers import count, share, span

# --- Readings -> what a drill measured: the baseline, recovery, extremes while the node was gone, and the forecast beside what was
# reached.


def make_reading(
    unix_seconds: float, samples: Iterable[tuple[Mapping[str, str], float]], alive: float | None
) -> Reading:
    """One moment, from the samples of `names.BY_MODEL`. Raises ValueError where a series is there twice: the labels leave two fleets."""
    values: dict[tuple[str, str], float] = {}
    for labels, value in samples:
        series = _name_series(labels)
        if series in values:
            raise ValueError(f"{series[0]} is there several times")
        values[series] = value
    single: dict[str, Any] = {field: values.get(series) for field, series in names.VALUES.items()}
    each: dict[str, Any] = {
        field: {which: value for (name, which), value in values.items() if name == record and which}
        for field, record in names.EACH.items()
    }
    now = {phase: rate for phase, rate in each["tokens_per_second"].items() if phase in ("prefill", "decode")}
    now |= {resource: values[record, ""] for resource, record in names.USED.items() if (record, "") in values}
    sufficient = values.get((names.SUFFICIENT, ""))
    return Reading(
        unix_seconds, alive=alive, n1_sufficient=None if sufficient is None else sufficient == 1, now=now, **single, **each
    )  # fmt: skip


def _name_series(labels: Mapping[str, str]) -> tuple[str, str]:
    name = labels.get("__name__", "")
    return name, labels.get(names.LABELS.get(name, ""), "")


# fields of `Baseline`: what becomes of the points, and whose
_SUMMARIES: dict[str, tuple[Callable[[list[float]], Any], tuple[str, str]]] = {
    "p99_ttft_seconds": (median, (names.TTFT, "p99")), "waiting_mean": (fmean, (names.WAITING, "")),
    "waiting_max": (max, (names.WAITING, "")), "kv_usage_ratio": (fmean, (names.KV_USAGE, "")),
    "errors_ratio": (fmean, (names.SLO_BAD, "errors")), "ready_min": (min, (names.READY, "")),
}  # fmt: skip


def make_baseline(seconds: float, series: Iterable[Series], rejected: float | None) -> Baseline:
    """The last `seconds` before the loss, from the points of `names.BEFORE` and the requests rejected meanwhile."""
    values = {_name_series(labels): [value for _, value in points] for labels, points in series}
    above = values.get((names.ABOVE_TOP, "")) or [0.0]
    return Baseline(
        seconds,
        p99_at_least=median(above) > CLIPPED_ABOVE,
        tokens_per_second={
            phase: fmean(recorded) for (name, phase), recorded in values.items() if name == names.TOKENS and recorded
        },
        rejected=rejected,
        **{field: how(values[series]) for field, (how, series) in _SUMMARIES.items() if values.get(series)},
    )


class Recovery(Struct, frozen=True):
    """Since when replicas and queue are back, without a break until the last reading. Unix seconds; None where they are not back."""

    replicas_unix_seconds: float | None = None
    queue_unix_seconds: float | None = None

    @property
    def recovered_unix_seconds(self) -> float | None:
        """Both."""
        if self.replicas_unix_seconds is None or self.queue_unix_seconds is None:
            return None
        return max(self.replicas_unix_seconds, self.queue_unix_seconds)


def find_recovery(course: Course) -> Recovery:
    """As many replicas ready as before, and no longer queue than the longest of the baseline or one request a replica.

    One may wait for the next step anywhere, however seldom the baseline showed it. A queue that nobody exports is no obstacle: the
    replicas decide alone.
    """
    before, lost = course.before, readings_since_loss(course)
    if before is None or before.ready is None or not lost:
        return Recovery()
    ready, usual = before.ready, course.baseline.waiting_max if course.baseline else None
    longest = max(ready, usual or 0.0)
    return Recovery(
        _held_since(lost, lambda reading: reading.ready is not None and reading.ready >= ready),
        _held_since(
            lost, lambda reading: reading.waiting <= longest if reading.waiting is not None else before.waiting is None
        ),
    )


def _held_since(readings: Sequence[Reading], holds: Callable[[Reading], bool]) -> float | None:
    begun = None
    for reading in reversed(readings):
        if not holds(reading):
            break
        begun = reading.unix_seconds
    return begun


def find_longest_span(readings: Sequence[Reading], holds: Callable[[Reading], bool]) -> tuple[float, float] | None:
    """Begin and end of the longest time in which it held at every reading; None where it never did."""
    best: tuple[float, float] | None = None
    begun: float | None = None
    for reading in readings:
        if not holds(reading):
            begun = None
            continue
        begun = reading.unix_seconds if begun is None else begun
        if best is None or reading.unix_seconds - begun > best[1] - best[0]:
            best = begun, reading.unix_seconds
    return best


def readings_since_loss(course: Course) -> tuple[Reading, ...]:
    """Readings from the loss on."""
    since = course.lost_unix_seconds
    return () if since is None else tuple(reading for reading in course.readings if reading.unix_seconds >= since)


class Extremes(Struct, frozen=True):
    """The worst from the loss to the end. None where the series was absent."""

    ready_min: float | None = None
    p99_ttft_seconds: float | None = None
    p99_at_least: bool = False  # that p99 is a lower bound
    waiting_max: float | None = None  # longest queue, requests
    kv_usage_ratio: float | None = None  # of the fullest engine
    errors_ratio: float | None = None


def find_extremes(course: Course) -> Extremes:
    """Over all readings since the loss."""
    readings = readings_since_loss(course)
    timed = [reading for reading in readings if reading.p99_ttft_seconds is not None]
    slowest = max(timed, key=lambda reading: (reading.p99_ttft_seconds or 0.0, reading.ttft_at_least), default=None)
    return Extremes(
        ready_min=min((reading.ready for reading in readings if reading.ready is not None), default=None),
        p99_ttft_seconds=slowest.p99_ttft_seconds if slowest else None,
        p99_at_least=slowest.ttft_at_least if slowest else False,
        waiting_max=_max_known(reading.waiting for reading in readings),
        kv_usage_ratio=_max_known(reading.kv_usage_ratio for reading in readings),
        errors_ratio=_max_known(reading.errors_ratio for reading in readings),
    )


def _max_known(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


class Compared(Struct, frozen=True):
    """One resource: what was forecast for the survivors, and the most that they then did."""

    resource: str  # "kv", "decode" and the like, as the label resource has it
    demand: float | None  # most of the hour before, in the units of capacity
    capacity: float | None  # without the largest node
    forecast: float | None  # demand as a share of that capacity
    # the most that was used, as a share of that capacity; None where no reading shows the survivors alone
    reached: float | None


def compare_forecast(course: Course) -> tuple[Compared, ...]:
    """By resource. Reached = the highest rate or use while replicas were missing / the forecast's capacity without the largest node.

    A recorded 5m rate still holds the lost replicas' tokens for as long as its range: readings before that are left out.
    """
    if course.forecast is None:
        return ()
    plan, ready = course.forecast.reading, course.before.ready if course.before else None
    from_then = (course.lost_unix_seconds or 0.0) + course.settings.rate_window_seconds
    alone = [
        reading
        for reading in readings_since_loss(course)
        if ready is not None
        and reading.ready is not None
        and reading.ready < ready
        and reading.unix_seconds >= from_then
    ]
    rows = []
    for resource in sorted(plan.n1_load.keys() | plan.n1_capacity.keys()):
        capacity = plan.n1_capacity.get(resource)
        most = _max_known(reading.now.get(resource) for reading in alone)
        reached = most / capacity if most is not None and capacity else None
        rows.append(Compared(resource, plan.demand.get(resource), capacity, plan.n1_load.get(resource), reached))
    return tuple(rows)


# --- Which alerts were due, by what was seen of their conditions, and whether they came.


class Arrival(StrEnum):
    """`not due`: its condition did not hold for as long as the rule wants, or nobody asked for it and it did not come."""

    IN_TIME = "in time"
    LATE = "late"
    MISSING = "missing"
    SILENCED = "silenced"
    NOT_DUE = "not due"


class Paged(Struct, frozen=True):
    """An alert after the drill."""

    name: str
    arrival: Arrival
    # when it had to be there; None where it was not due, and for one that was asked for by name, which may come at any time of the drill
    due_unix_seconds: float | None
    sighting: Sighting

    @property
    def good(self) -> bool:
        """It came in time, or it was not due."""
        return self.arrival in (Arrival.IN_TIME, Arrival.NOT_DUE)


def judge_alerts(course: Course) -> tuple[Paged, ...]:
    """Every alert of the plan. Without a loss nothing is due."""
    if course.plan is None or course.lost_unix_seconds is None:
        return ()
    seen = {sighting.name: sighting for sighting in course.sightings}
    alerts = []
    for name in course.plan.alerts:
        sighting = seen.get(name, Sighting(name))
        required = name in course.plan.required
        due, was_due = (None, True) if required else _find_due(course, name)
        arrival = _judge_arrival(course, sighting, due, was_due)
        alerts.append(Paged(name, arrival, None if arrival is Arrival.NOT_DUE else due, sighting))
    return tuple(alerts)


def _judge_arrival(course: Course, sighting: Sighting, due: float | None, was_due: bool) -> Arrival:
    came = sighting.firing_unix_seconds
    if course.alertmanager and came is not None:
        if sighting.silenced:
            return Arrival.SILENCED
        came = sighting.received_unix_seconds
    if came is None:
        return Arrival.MISSING if was_due else Arrival.NOT_DUE
    return Arrival.LATE if due is not None and came > due else Arrival.IN_TIME


def have_all_arrived(course: Course) -> bool:
    """Every alert that is due or was asked for is there (in time or not), and at least one is."""
    alerts = judge_alerts(course)
    came = [alert for alert in alerts if alert.arrival in (Arrival.IN_TIME, Arrival.LATE, Arrival.SILENCED)]
    return bool(came) and not any(alert.arrival is Arrival.MISSING for alert in alerts)


def _find_due(course: Course, name: str) -> tuple[float | None, bool]:
    """When it had to have come, and whether its condition held until then without a break.

    That is the condition's begin + the rule's `for` + slack; None where it never held or no such rule is loaded.
    """
    rule = course.forecast.rules.get(name) if course.forecast else None
    if rule is None:
        return None, False
    longest = find_longest_span(readings_since_loss(course), _condition_of(name))
    if longest is None:
        return None, False
    begun, ended = longest
    due = begun + rule.for_seconds + course.settings.page_slack_seconds
    return due, due <= ended


def _condition_of(name: str) -> Callable[[Reading], bool]:
    """The alert's condition on a reading, as its rule has it. That N1Critical asks what was wanted for an hour is left out: nobody scales a
    model while it is drilled."""

    def replica_lost(reading: Reading) -> bool:
        return reading.desired is not None and (reading.present or 0.0) < reading.desired

    def targets_down(reading: Reading) -> bool:
        # without an exporter that knows them, none is alive
        return (
            bool(reading.desired) and 1 - (reading.alive or 0.0) / (reading.desired or 1.0) > names.TARGETS_DOWN_ABOVE
        )

    def critical(reading: Reading) -> bool:
        short = reading.present is not None and reading.desired is not None and reading.present < reading.desired
        full = max(reading.n1_load_max or 0.0, reading.load_max or 0.0) > 1
        return short and full and (reading.waiting or 0.0) > 0

    conditions = {names.REPLICA_LOST: replica_lost, names.TARGETS_DOWN: targets_down, names.N1_CRITICAL: critical}
    return conditions.get(name, replica_lost)


def hold_is_over(course: Course, now_unix_seconds: float) -> bool:
    """Whether the loss has lasted as long as it was to last before it is restored; never where nobody said how long."""
    settings, lost = course.settings, course.lost_unix_seconds
    if lost is None:
        return False
    if settings.hold_seconds is not None:
        return now_unix_seconds - lost >= settings.hold_seconds
    if not settings.hold_for_page or course.plan is None or course.forecast is None:
        return False
    is_pending = any(seen.pending_unix_seconds and not seen.firing_unix_seconds for seen in course.sightings)
    if have_all_arrived(course) and not is_pending:
        return True
    rules = [rule for name, rule in course.forecast.rules.items() if name in course.plan.alerts]
    # a load that is too high is seen once the recorded rates hold nothing of the lost ones any more
    longest = max((rule.for_seconds for rule in rules), default=0.0)
    return now_unix_seconds - lost >= longest + settings.rate_window_seconds + settings.page_slack_seconds


# --- Course -> verdict with its reasons.


# below that many events the share of bad ones says little: the alerts on objectives want as many
FEW_EVENTS = 100


class Judged(Struct, frozen=True):
    """The verdict and why."""

    verdict: DrillVerdict
    reasons: tuple[str, ...]
    remarks: tuple[str, ...]  # what a reader of a passed one should know


def judge(course: Course) -> Judged:
    """Aborted where it was broken off; else passed where there is no fault.

    Passed: (1) of the TTFT events from start to end no larger share was bad than 1 - objective; (2) no more requests were rejected
    than at the baseline's rate, within three standard deviations of a Poisson count; (3) every alert that was due came in time, and those
    named on the command line came; (4) replicas and queue came back.
    """
    remarks = tuple(_remarks(course))
    if course.broken_off:
        return Judged(DrillVerdict.ABORTED, (course.broken_off, *_faults(course)), remarks)
    reasons = tuple(_reasons(course))
    return Judged(DrillVerdict.FAILED if reasons else DrillVerdict.PASSED, reasons, remarks)


def share_of_bad_ttft(course: Course) -> float | None:
    """Bad TTFT events / all, from start to end; None without events."""
    good, bad = course.counts.ttft_good, course.counts.ttft_bad
    total = (good or 0.0) + (bad or 0.0)
    return (bad or 0.0) / total if total > 0 else None


def count_rejections(course: Course) -> tuple[float, float] | None:
    """Requests rejected from start to end, and the most that the baseline explains; None where nobody counts them."""
    counted, baseline = course.counts.rejected, course.baseline
    if counted is None or baseline is None or course.start_unix_seconds is None:
        return None
    seconds = course.end_unix_seconds - course.start_unix_seconds
    usual = (baseline.rejected or 0.0) / baseline.seconds * seconds
    return counted, usual + 3 * sqrt(usual)


def _reasons(course: Course) -> Iterator[str]:
    if share_of_bad_ttft(course) is None:
        yield (
            "no time to first token was counted against the objective, so that it cannot be judged; "
            "check that slo.ttft is set and that there was load"
        )
    yield from _faults(course)
    if course.phase is not Phase.DONE:
        yield f"not recovered within {span(course.settings.bounds.duration_seconds)}: {_describe_what_is_missing(course)}"
    for run in course.commands:
        if run.what == RESTORE and not run.good:
            yield f"the restore command failed: {run.failure}"


def _faults(course: Course) -> Iterator[str]:
    """The faults that can be named however far the drill went."""
    bad, allowed = share_of_bad_ttft(course), 1 - course.settings.objective
    # 1 - 0.99 is a little more than 0.01
    if bad is not None and bad > allowed + 1e-9:
        yield f"{share(bad)} of the times to first token were over the threshold, {share(round(allowed, 9))} are allowed"
    rejected = count_rejections(course)
    # a count that PromQL extrapolates is no whole number: half a request is none
    if rejected is not None and rejected[0] > max(rejected[1], 0.5):
        were = count_nouns(round(rejected[0]), "request was", "requests were")
        yield f"{were} rejected, the baseline explains {count(round(rejected[1], 1))}"
    if not course.broken_off:
        yield from (f"{alert.name} {_describe_fault(alert)}" for alert in judge_alerts(course) if not alert.good)


def _describe_what_is_missing(course: Course) -> str:
    back = find_recovery(course)
    if back.replicas_unix_seconds is None:
        return "fewer replicas were ready than before"
    if back.queue_unix_seconds is None:
        return "the queue was longer than it had ever been in the baseline and than a request a replica"
    return f"it did not stay so for {span(course.settings.settle_seconds)}"


def _describe_fault(alert: Paged) -> str:
    if alert.arrival is Arrival.SILENCED:
        return "reached Alertmanager and was silenced: nobody was told"
    if alert.arrival is Arrival.LATE:
        return "came too late"
    if alert.sighting.firing_unix_seconds is not None:
        return "fired, and Alertmanager did not have it"
    return "did not fire"


def _remarks(course: Course) -> Iterator[str]:
    alerts = judge_alerts(course)
    if alerts and not any(alert.arrival is not Arrival.NOT_DUE for alert in alerts) and not course.broken_off:
        yield "no alert was due: the replicas were back before any rule's time was up, so that this drill says nothing about being told"
    for run in course.commands:
        if run.what == TRIGGER and not run.good:
            yield f"the trigger command failed: {run.failure}"
    total = (course.counts.ttft_good or 0.0) + (course.counts.ttft_bad or 0.0)
    if 0 < total < FEW_EVENTS:
        yield f"the objective was judged by {count_nouns(round(total), 'request')} only"
    fewest = course.baseline.ready_min if course.baseline else None
    ready = course.before.ready if course.before else None
    if fewest is not None and ready is not None and fewest < ready:
        yield "a replica was missing for a part of the baseline"
    if course.lost_unix_seconds is not None and course.counts.rejected is None:
        yield "nobody counted rejected requests: they were not judged"
