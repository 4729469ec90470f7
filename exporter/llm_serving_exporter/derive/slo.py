"""Good and bad events since the engine started, from its own histograms and counters, so that a restart of ours loses nothing."""

from __future__ import annotations

from collections.abc import Sequence

from llm_serving_exporter.model.derived import ServerErrors, SloCount
from llm_serving_exporter.model.histogram import Histogram
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot

# "success": finished as it should, of an engine that does not say which of the two it was
GOOD_REASONS = ("stop", "length", "success")
BAD_REASON = "error"
HTTP_BAD = "5xx"

LATENCY_FIELDS = {
    "ttft": "time_to_first_token_seconds",
    "itl": "inter_token_latency_seconds",
    "e2e": "e2e_request_latency_seconds",
}


def _sum(readings: Sequence[EngineSnapshot], field: str, key: str | None) -> float:
    total = 0.0
    for reading in readings:
        values = getattr(reading, field) or {}
        total += sum(values.values()) if key is None else values.get(key, 0.0)
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
    answered = _sum(readings, "http_responses_total", HTTP_BAD)
    covered = _sum(readings, "requests_rejected_total", None) + _sum(readings, "requests_finished_total", BAD_REASON)
    if previous is None:
        return ServerErrors(0.0, 0.0, answered, covered)
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
    return SloCount(sum(finished.get(reason, 0.0) for reason in GOOD_REASONS), finished.get(BAD_REASON, 0.0))
