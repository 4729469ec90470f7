"""Course -> verdict with its reasons."""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt

from llm_serving_drill.course import RESTORE, TRIGGER, Course, Phase
from llm_serving_drill.measures import find_recovery
from llm_serving_drill.paging import Arrival, Paged, judge_alerts
from llm_serving_exporter.model.reading import DrillVerdict
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.text import count_nouns
from llm_serving_exporter.render.numbers import count, share, span

# below that many events the share of bad ones says little: the alerts on objectives want as many
FEW_EVENTS = 100


class Judged(Struct, frozen=True):
    """The verdict and why."""

    # passed, failed or aborted
    verdict: DrillVerdict
    # why it is not passed
    reasons: tuple[str, ...]
    # what a reader of a passed one should know
    remarks: tuple[str, ...]


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
            yield f"the restore command failed: {run.problem or f'it ended with status {run.status}'}"


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
        yield from (f"{one.name} {_describe_fault(one)}" for one in judge_alerts(course) if not one.good)


def _describe_what_is_missing(course: Course) -> str:
    back = find_recovery(course)
    if back.replicas_unix_seconds is None:
        return "fewer replicas were ready than before"
    if back.queue_unix_seconds is None:
        return "the queue was longer than it had ever been in the baseline and than a request a replica"
    return f"it did not stay so for {span(course.settings.settle_seconds)}"


def _describe_fault(one: Paged) -> str:
    if one.arrival is Arrival.SILENCED:
        return "reached Alertmanager and was silenced: nobody was told"
    if one.arrival is Arrival.LATE:
        return "came too late"
    if one.sighting.firing_unix_seconds is not None:
        return "fired, and Alertmanager did not have it"
    return "did not fire"


def _remarks(course: Course) -> Iterator[str]:
    found = judge_alerts(course)
    if found and not any(one.arrival is not Arrival.NOT_DUE for one in found) and not course.broken_off:
        yield "no alert was due: the replicas were back before any rule's time was up, so that this drill says nothing about being told"
    for run in course.commands:
        if run.what == TRIGGER and not run.good:
            yield f"the trigger command failed: {run.problem or f'it ended with status {run.status}'}"
    total = (course.counts.ttft_good or 0.0) + (course.counts.ttft_bad or 0.0)
    if 0 < total < FEW_EVENTS:
        yield f"the objective was judged by {count_nouns(round(total), 'request')} only"
    fewest = course.baseline.ready_min if course.baseline else None
    ready = course.before.ready if course.before else None
    if fewest is not None and ready is not None and fewest < ready:
        yield "a replica was missing for a part of the baseline"
    if course.lost_unix_seconds is not None and course.counts.rejected is None:
        yield "nobody counted rejected requests: they were not judged"
