"""Good and bad events since the engine started, from its own histograms and counters, so that a restart of ours loses nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llm_serving_exporter.model.derived import SloCount
from llm_serving_exporter.model.histogram import Histogram
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot

GOOD_REASONS = ("stop", "length")
BAD_REASON = "error"
HTTP_BAD = "5xx"

LATENCY_FIELDS = {
    "ttft": "time_to_first_token_seconds",
    "itl": "inter_token_latency_seconds",
    "e2e": "e2e_request_latency_seconds",
}


def latency_slo(histogram: Histogram | None, threshold_seconds: float) -> SloCount | Absence:
    """Events at or below the largest bucket edge not above the threshold are good (strict), the rest bad."""
    if histogram is None:
        return Absence.INPUT_MISSING
    edge = histogram.edge_at_or_below(threshold_seconds)
    if edge is None:
        return Absence.BELOW_BUCKETS
    good = histogram.count_at_or_below(edge)
    return SloCount(good, histogram.count - good, threshold_seconds, edge)


def _sum(readings: Sequence[EngineSnapshot], field: str, key: str | None) -> float:
    total = 0.0
    for reading in readings:
        values = getattr(reading, field) or {}
        total += sum(values.values()) if key is None else values.get(key, 0.0)
    return total


def uncovered_server_errors(readings: Sequence[EngineSnapshot]) -> float | None:
    """HTTP 5xx answers of one model that no rejection and no finish by error accounts for; None without HTTP counters.

    A rejection that was sent as HTTP 200 hides one 5xx: a lower bound then.
    """
    if all(reading.http_responses_total is None for reading in readings):
        return None
    answered = _sum(readings, "http_responses_total", HTTP_BAD)
    covered = _sum(readings, "requests_rejected_total", None) + _sum(readings, "requests_finished_total", BAD_REASON)
    return max(0.0, answered - covered)


def error_slo(reading: EngineSnapshot, uncovered: float | None, previous: Mapping[str, SloCount]) -> SloCount | Absence:
    """Good: finished by stop or length. Bad: finished by error, plus `uncovered`, which is given to the reading with the HTTP counters.

    `previous` is this engine's last count in the same engine life: bad never falls below it, because a rejection is booked a
    moment before its answer and a counter that dips would read as a restart.
    """
    finished = reading.requests_finished_total
    if finished is None and reading.http_responses_total is None:
        return Absence.INPUT_MISSING
    good = sum((finished or {}).get(reason, 0.0) for reason in GOOD_REASONS)
    bad = (finished or {}).get(BAD_REASON, 0.0)
    if reading.http_responses_total is not None and uncovered is not None:
        bad += uncovered
    before = previous.get("errors")
    return SloCount(good, max(bad, before.bad) if before is not None else bad)
