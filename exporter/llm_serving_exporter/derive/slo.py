"""Latency quantiles of the window, and good and bad events since the engine started, from its own histograms and counters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter

from llm_serving_exporter.catalogue import derived as names
from llm_serving_exporter.derive.figures import (
    AWAITED,
    EARLIER,
    SETTINGS,
    TARGET_WINDOW,
    WINDOW,
    DeriveSettings,
    figure,
    window_over,
)
from llm_serving_exporter.derive.signals import Row, Series
from llm_serving_exporter.model.derived import EngineDerived, Latency, ServerErrors, SloCount
from llm_serving_exporter.model.numbers import Histogram, add_up, has_enough_events
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot, Quality
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.model.window import EngineWindow, Window

# --- Latency quantiles and means of the window, from the engine's own buckets.


QUANTILES = (0.5, 0.9, 0.95, 0.99)

# label value -> snapshot field
LATENCIES = {
    "ttft": "time_to_first_token_seconds",
    "itl": "inter_token_latency_seconds",
    "tpot": "time_per_output_token_seconds",
    "e2e": "e2e_request_latency_seconds",
    "queue": "request_queue_time_seconds",
    "prefill": "request_prefill_time_seconds",
    "decode": "request_decode_time_seconds",
}


def measure_latency(window: EngineWindow, field: str) -> Latency | Absence:
    """Events between the window's ends: count, mean, quantiles."""
    later: Histogram | None = getattr(window.last, field)
    if later is None:
        return Absence.INPUT_MISSING
    if window.elapsed_seconds <= 0:
        return Absence.WARMING_UP
    inside = window.gained(field)
    if inside is None:
        return Absence.WARMING_UP
    if inside.count <= 0:
        return Absence.IDLE
    quantiles = {q: value for q in QUANTILES if (value := inside.quantile(q)) is not None}
    ranks = [q for q in quantiles if has_enough_events(inside.count, q)]
    buckets = {inside.bucket(q) for q in ranks}
    return Latency(inside.count, inside.mean(), quantiles, buckets.pop() if len(buckets) == 1 else None)


def judge_quality(found: Latency) -> Quality | None:
    """Clipped where the median lies below the first edge or the highest quantile above the top finite one."""
    lowest, highest = found.quantiles.get(QUANTILES[0]), found.quantiles.get(QUANTILES[-1])
    if (lowest and lowest.clipped == "bottom") or (highest and highest.clipped == "top"):
        return Quality.CLIPPED
    return None


# not `quantile`: that label belongs to summaries, and promtool refuses it on a gauge
_RANKS = {q: f"p{100 * q:g}" for q in QUANTILES}


def _by_rank(found: Latency) -> dict[str, float]:
    return {_RANKS[q]: quantile.value for q, quantile in found.quantiles.items()}


def _row(name: str, field: str) -> Row[Latency]:
    computed = figure(lambda window: measure_latency(window, field), window_over(field))
    return Row(
        computed,
        f"latency_{name}",
        fields=(field,),
        explained_by=field,
        quality=figure(lambda found: None if isinstance(found, Absence) else judge_quality(found), computed),
        series=(Series(names.WINDOW_LATENCY_SECONDS, (name,), _by_rank),),
    )


LATENCY_BY_NAME = {name: _row(name, field) for name, field in LATENCIES.items()}
LATENCY_ROWS = tuple(LATENCY_BY_NAME.values())


# --- Good and bad events since the engine started, from its own histograms and counters, so that a restart of ours loses nothing.


# "success": finished as it should, of an engine that does not say which of the two it was
GOOD_REASONS = ("stop", "length", "success")
BAD_REASON = "error"
HTTP_BAD = "5xx"
FINISHED, RESPONSES = "requests_finished_total", "http_responses_total"
REJECTED = "requests_rejected_total"
ERRORS = "errors"

LATENCY_FIELDS = {
    "ttft": "time_to_first_token_seconds",
    "itl": "inter_token_latency_seconds",
    "e2e": "e2e_request_latency_seconds",
}


def _sum(readings: Sequence[EngineSnapshot], field: str, key: str | None) -> float:
    total = 0.0
    for reading in readings:
        values = getattr(reading, field)
        if values:
            total += add_up(values.values()) if key is None else values.get(key, 0.0)
    return total


def awaited_latency_slo(edges: Sequence[float], threshold_seconds: float) -> SloCount | Absence:
    """Of a histogram that comes with its first event, most likely with these edges. IDLE where none is at or below the threshold."""
    below = [edge for edge in edges if edge <= threshold_seconds]
    return SloCount(0.0, 0.0, threshold_seconds, max(below)) if below else Absence.IDLE


def latency_slo(histogram: Histogram | None, threshold_seconds: float) -> SloCount | Absence:
    """Events at or below the largest bucket edge not above the threshold are good (strict), the rest bad."""
    if histogram is None:
        return Absence.INPUT_MISSING
    edge = histogram.edge_at_or_below(threshold_seconds)
    if edge is None:
        return Absence.BELOW_BUCKETS
    good = histogram.count_at_or_below(edge)
    return SloCount(good, histogram.count - good, threshold_seconds, edge)


def server_errors(
    readings: Sequence[EngineSnapshot], previous: ServerErrors | None, *, awaited: bool = False
) -> ServerErrors | None:
    """HTTP 5xx answers of one model that no rejection and no finish by error covers, counted on from `previous` (None: from 0).

    Rejections are booked a moment before their answer, so what they cover too much in one step is kept for the next, and no longer. A
    rejection that was sent as HTTP 200 covers one 5xx of the same or the next step: a lower bound then. None without HTTP counters.
    `awaited`: they come with the first answer, so that there has been none.
    """
    if all(reading.http_responses_total is None for reading in readings) and (previous is not None or not awaited):
        return previous
    answered = _sum(readings, RESPONSES, HTTP_BAD)
    covered = _sum(readings, REJECTED, None) + _sum(readings, FINISHED, BAD_REASON)
    if previous is None:
        return ServerErrors(0.0, 0.0, answered, covered)
    if answered < previous.answered or covered < previous.covered:
        if any(getattr(reading, field) is None for reading in readings for field in (RESPONSES, REJECTED, FINISHED)):
            return previous  # one of them is missing for a moment: nothing is subtracted until it is back
        return ServerErrors(previous.uncovered_total, 0.0, answered, covered)  # one of them counts from 0 again
    beyond = (answered - previous.answered) - (covered - previous.covered)
    uncovered = max(0.0, beyond - previous.spare)
    return ServerErrors(previous.uncovered_total + uncovered, max(0.0, -beyond), answered, covered)


def error_slo(reading: EngineSnapshot, *, awaited: bool = False) -> SloCount | Absence:
    """Good: finished by stop or length, or just well. Bad: finished by error. Client aborts are neither.

    `awaited`: the counter comes with the first request that finishes, so that none has.
    """
    finished = reading.requests_finished_total
    if finished is None:
        return SloCount(0.0, 0.0) if awaited else Absence.INPUT_MISSING
    return SloCount(add_up(finished.get(reason, 0.0) for reason in GOOD_REASONS), finished.get(BAD_REASON, 0.0))


def _latency_count(
    name: str, field: str
) -> Callable[[EngineWindow, DeriveSettings, frozenset[str]], SloCount | Absence]:
    """Counted at 0 where the first event has yet to come: an increase() over a counter born at 1 is 0."""

    def count(window: EngineWindow, settings: DeriveSettings, awaited: frozenset[str]) -> SloCount | Absence:
        threshold = settings.slo_seconds.get(name)
        if threshold is None:
            return Absence.NOT_CONFIGURED
        if name == "ttft" and not settings.first_token_is_clients:
            return Absence.OTHER_ROLE  # it leaves out what the request waited in the front door
        histogram = getattr(window.last, field)
        if histogram is None and field in awaited:
            return awaited_latency_slo(settings.default_edges.get(name, ()), threshold)
        return latency_slo(histogram, threshold)

    return count


def _error_count(window: EngineWindow, settings: DeriveSettings, awaited: frozenset[str]) -> SloCount | Absence:
    if not settings.slo_errors:
        return Absence.NOT_CONFIGURED
    if not settings.errors_counted:
        return Absence.NOT_EXPORTED
    return error_slo(window.last, awaited=FINISHED in awaited)


def _uncovered(
    window: EngineWindow,
    target: Window,
    settings: DeriveSettings,
    awaited: frozenset[str],
    earlier: EngineDerived | None,
) -> ServerErrors | None:
    last, first = window.last, RESPONSES in awaited
    if not (settings.slo_errors and settings.errors_counted) or (last.http_responses_total is None and not first):
        return None
    # HTTP answers that name no model are those of all of them
    of_model = [engine for engine in target.later.engines if last.model_name in (engine.model_name, "")]
    return server_errors(of_model, earlier.server_errors if earlier else None, awaited=first)


def _by_outcome(source: str) -> Callable[[SloCount], dict[tuple[str, ...], float]]:
    def events(count: SloCount) -> dict[tuple[str, ...], float]:
        # with the edge that is counted in its identity: another threshold must not read as a reset of this series
        edge = "" if count.counted_seconds is None else f"{count.counted_seconds:g}"
        return {("good", source, edge): count.good, ("bad", source, edge): count.bad}

    return events


def _thresholds(count: SloCount) -> dict[str, float]:
    kinds = {"configured": count.configured_seconds, "counted": count.counted_seconds}
    return {kind: seconds for kind, seconds in kinds.items() if seconds is not None}


_DO = {
    "ttft": "Set slo.ttft, as in 2.5s, to count good and bad first tokens.",
    "itl": "Set slo.itl, as in 50ms, to count good and bad inter-token latencies.",
    "e2e": "Set slo.e2e, as in 30s, to count good and bad request latencies.",
}
# prefill: a request's only token comes out of its prefill, and is not yet the user's first. decode: the clock starts when the request
# does here. The user's times are the front end's (facts runtimes-others 18)
_SILENT = {
    "ttft": frozenset({Role.PREFILL, Role.DECODE}),
    "itl": frozenset({Role.PREFILL}),
    "e2e": frozenset({Role.PREFILL, Role.DECODE}),
}
SLO_BY_NAME: dict[str, Row[SloCount]] = {
    name: Row(
        figure(_latency_count(name, field), WINDOW, SETTINGS, AWAITED),
        f"slo_{name}",
        fields=(field,),
        explained_by=field,
        silent=_SILENT[name],
        sentences={
            Absence.NOT_CONFIGURED: _DO[name],
            Absence.BELOW_BUCKETS: f"Raise slo.{name} to the first bucket edge of the engine's histogram or above.",
        },
        series=(
            Series(names.SLO_EVENTS, (name,), _by_outcome("histogram")),
            Series(names.SLO_THRESHOLD, (name,), _thresholds),
        ),
    )
    for name, field in LATENCY_FIELDS.items()
}
SLO_BY_NAME[ERRORS] = Row(
    figure(_error_count, WINDOW, SETTINGS, AWAITED),
    f"slo_{ERRORS}",
    fields=(FINISHED,),
    explained_by=FINISHED,
    sentences={Absence.NOT_CONFIGURED: "Set slo.errors: true to count requests that ended in an error."},
    series=(Series(names.SLO_EVENTS, (ERRORS,), _by_outcome("finished")),),
)
SERVER_ERRORS: Row[ServerErrors] = Row(
    figure(_uncovered, WINDOW, TARGET_WINDOW, SETTINGS, AWAITED, EARLIER),
    series=(Series(names.SLO_EVENTS, (ERRORS, "bad", "http", ""), attrgetter("uncovered_total")),),
    every_tick=True,
)
SLO_ROWS = (*SLO_BY_NAME.values(), SERVER_ERRORS)
