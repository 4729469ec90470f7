"""Readings -> what a drill measured: the baseline, recovery, extremes while the node was gone, and the forecast beside what was reached."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, median

from llm_serving_drill import names
from llm_serving_drill.course import CLIPPED_ABOVE, Baseline, Course, Reading
from llm_serving_exporter.clients.prometheus import Series
from llm_serving_exporter.model.record import Struct


def make_reading(
    unix_seconds: float, samples: Iterable[tuple[Mapping[str, str], float]], alive: float | None
) -> Reading:
    """One moment, from the samples of `names.BY_MODEL`. Raises ValueError where a series is there twice: the labels leave two fleets."""
    found: dict[tuple[str, str], float] = {}
    for labels, value in samples:
        name = labels.get("__name__", "")
        which = labels.get(_BY.get(name, ""), "")
        if (name, which) in found:
            raise ValueError(f"{name} is there several times")
        found[name, which] = value

    def find_one(name: str, which: str = "") -> float | None:
        return found.get((name, which))

    def find_each(name: str) -> dict[str, float]:
        return {which: value for (known, which), value in found.items() if known == name and which}

    sufficient = find_one(names.SUFFICIENT)
    used = {
        **{phase: rate for phase, rate in find_each(names.TOKENS).items() if phase in ("prefill", "decode")},
        **_drop_absent(work=find_one(names.WORK), kv=find_one(names.KV_TOKENS), concurrency=find_one(names.IN_SYSTEM)),
    }
    return Reading(
        unix_seconds,
        ready=find_one(names.READY),
        present=find_one(names.PRESENT),
        desired=find_one(names.DESIRED),
        nodes=find_one(names.NODES),
        alive=alive,
        waiting=find_one(names.WAITING),
        p99_ttft_seconds=find_one(names.TTFT, "p99"),
        above_top_edge_ratio=find_one(names.ABOVE_TOP),
        kv_usage_ratio=find_one(names.KV_USAGE),
        errors_ratio=find_one(names.SLO_BAD, "errors"),
        tokens_per_second=find_each(names.TOKENS),
        n1_sufficient=None if sufficient is None else sufficient == 1,
        n1_load_max=find_one(names.N1_LOAD_MAX),
        load_max=find_one(names.LOAD_MAX),
        n1_load=find_each(names.N1_LOAD),
        load=find_each(names.LOAD),
        demand=find_each(names.DEMAND),
        n1_capacity=find_each(names.N1_CAPACITY),
        now=used,
    )


# the label beside model and role that tells a record's series apart
_BY = {
    names.N1_LOAD: "resource", names.N1_CAPACITY: "resource", names.LOAD: "resource", names.DEMAND: "resource",
    names.TOKENS: "phase", names.TTFT: "rank", names.SLO_BAD: "slo",
}  # fmt: skip


def _drop_absent(**values: float | None) -> dict[str, float]:
    return {name: value for name, value in values.items() if value is not None}


def make_baseline(seconds: float, series: Iterable[Series], rejected: float | None) -> Baseline:
    """The last `seconds` before the loss, from the points of `names.BEFORE` and the requests rejected meanwhile."""
    values: dict[tuple[str, str], list[float]] = {}
    for labels, points in series:
        name = labels.get("__name__", "")
        values[name, labels.get(_BY.get(name, ""), "")] = [value for _, value in points]

    def summarise(how: Callable[[list[float]], float], name: str, which: str = "") -> float | None:
        found = values.get((name, which))
        return how(found) if found else None

    above = summarise(median, names.ABOVE_TOP)
    return Baseline(
        seconds,
        p99_ttft_seconds=summarise(median, names.TTFT, "p99"),
        p99_at_least=above is not None and above > CLIPPED_ABOVE,
        waiting_mean=summarise(fmean, names.WAITING),
        waiting_max=summarise(max, names.WAITING),
        kv_usage_ratio=summarise(fmean, names.KV_USAGE),
        errors_ratio=summarise(fmean, names.SLO_BAD, "errors"),
        tokens_per_second={
            phase: fmean(found) for (name, phase), found in values.items() if name == names.TOKENS and found
        },
        ready_min=summarise(min, names.READY),
        rejected=rejected,
    )


class Recovery(Struct, frozen=True):
    """Since when replicas and queue are back, without a break until the last reading. Unix seconds; None where they are not back."""

    # as many are ready as before
    replicas_unix_seconds: float | None = None
    # the queue is no longer than before
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
    ready, known = before.ready, course.baseline.waiting_max if course.baseline else None
    longest = max(ready, known or 0.0)
    return Recovery(
        _held_since(lost, lambda one: one.ready is not None and one.ready >= ready),
        _held_since(lost, lambda one: one.waiting <= longest if one.waiting is not None else before.waiting is None),
    )


def _held_since(readings: Sequence[Reading], holds: Callable[[Reading], bool]) -> float | None:
    """Since when it has held without a break up to the last reading."""
    begun = None
    for one in reversed(readings):
        if not holds(one):
            break
        begun = one.unix_seconds
    return begun


def find_longest_span(readings: Sequence[Reading], holds: Callable[[Reading], bool]) -> tuple[float, float] | None:
    """Begin and end of the longest time in which it held at every reading; None where it never did."""
    best: tuple[float, float] | None = None
    begun: float | None = None
    for one in readings:
        if not holds(one):
            begun = None
            continue
        begun = one.unix_seconds if begun is None else begun
        if best is None or one.unix_seconds - begun > best[1] - best[0]:
            best = begun, one.unix_seconds
    return best


def readings_since_loss(course: Course) -> tuple[Reading, ...]:
    """Readings from the loss on."""
    since = course.lost_unix_seconds
    return () if since is None else tuple(one for one in course.readings if one.unix_seconds >= since)


class Extremes(Struct, frozen=True):
    """The worst from the loss to the end. None where the series was absent."""

    # fewest ready replicas
    ready_min: float | None = None
    # highest p99
    p99_ttft_seconds: float | None = None
    # that p99 is a lower bound
    p99_at_least: bool = False
    # longest queue, requests
    waiting_max: float | None = None
    # of the fullest engine
    kv_usage_ratio: float | None = None
    # highest share of failed requests
    errors_ratio: float | None = None


def find_extremes(course: Course) -> Extremes:
    """Over all readings since the loss."""
    readings = readings_since_loss(course)
    timed = [one for one in readings if one.p99_ttft_seconds is not None]
    slowest = max(timed, key=lambda one: (one.p99_ttft_seconds or 0.0, one.ttft_at_least), default=None)
    return Extremes(
        ready_min=min((one.ready for one in readings if one.ready is not None), default=None),
        p99_ttft_seconds=slowest.p99_ttft_seconds if slowest else None,
        p99_at_least=slowest.ttft_at_least if slowest else False,
        waiting_max=_max_known(one.waiting for one in readings),
        kv_usage_ratio=_max_known(one.kv_usage_ratio for one in readings),
        errors_ratio=_max_known(one.errors_ratio for one in readings),
    )


def _max_known(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


class Compared(Struct, frozen=True):
    """One resource: what was forecast for the survivors, and the most that they then did."""

    # "kv", "decode" and the like, as the label resource has it
    resource: str
    # most of the hour before, in the units of capacity
    demand: float | None
    # without the largest node
    capacity: float | None
    # demand as a share of that capacity
    forecast: float | None
    # the most that was used, as a share of that capacity; None where no reading shows the survivors alone
    reached: float | None


def compare_forecast(course: Course) -> tuple[Compared, ...]:
    """By resource. Reached = the highest rate or use while replicas were missing / the forecast's capacity without the largest node.

    A recorded 5m rate still holds the lost replicas' tokens for as long as its range: readings before that are left out.
    """
    if course.forecast is None:
        return ()
    plan, before = course.forecast.reading, course.before
    alone: list[Reading] = []
    if course.lost_unix_seconds is not None and before is not None and before.ready is not None:
        from_then = course.lost_unix_seconds + course.settings.rate_window_seconds
        missing = [one for one in readings_since_loss(course) if one.ready is not None and one.ready < before.ready]
        alone = [one for one in missing if one.unix_seconds >= from_then]
    rows = []
    for resource in sorted(plan.n1_load.keys() | plan.n1_capacity.keys()):
        capacity = plan.n1_capacity.get(resource)
        most = _max_known(one.now.get(resource) for one in alone)
        reached = most / capacity if most is not None and capacity else None
        rows.append(Compared(resource, plan.demand.get(resource), capacity, plan.n1_load.get(resource), reached))
    return tuple(rows)
