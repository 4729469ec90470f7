"""Latency quantiles and means of the window, from the engine's own buckets."""

from __future__ import annotations

from collections.abc import Callable

from llm_serving_exporter.catalogue import derived as names
from llm_serving_exporter.derive.figures import figure
from llm_serving_exporter.derive.inputs import window_over
from llm_serving_exporter.derive.signals import Row, Series
from llm_serving_exporter.model.derived import Latency
from llm_serving_exporter.model.numbers import Histogram, has_enough_events
from llm_serving_exporter.model.snapshot import Absence, Quality
from llm_serving_exporter.model.window import EngineWindow

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
    told = [q for q in quantiles if has_enough_events(inside.count, q)]
    buckets = {inside.bucket(q) for q in told}
    return Latency(inside.count, inside.mean(), quantiles, buckets.pop() if len(buckets) == 1 else None)


def judge_quality(found: Latency) -> Quality | None:
    """Clipped where the median lies below the first edge or the highest quantile above the top finite one."""
    lowest, highest = found.quantiles.get(QUANTILES[0]), found.quantiles.get(QUANTILES[-1])
    if (lowest and lowest.clipped == "bottom") or (highest and highest.clipped == "top"):
        return Quality.CLIPPED
    return None


# not `quantile`: that label belongs to summaries, and promtool refuses it on a gauge
_RANKS = {q: f"p{100 * q:g}" for q in QUANTILES}


def _latency_of(field: str) -> Callable[[EngineWindow], Latency | Absence]:
    return lambda window: measure_latency(window, field)


def _quality(found: Latency | Absence) -> Quality | None:
    return None if isinstance(found, Absence) else judge_quality(found)


def _by_rank(found: Latency) -> dict[str, float]:
    return {_RANKS[q]: quantile.value for q, quantile in found.quantiles.items()}


def _row(name: str, field: str) -> Row[Latency]:
    found = figure(_latency_of(field), window_over(field))
    return Row(
        found,
        f"latency_{name}",
        fields=(field,),
        explained_by=field,
        quality=figure(_quality, found),
        series=(Series(names.WINDOW_LATENCY_SECONDS, (name,), _by_rank),),
    )


BY_NAME = {name: _row(name, field) for name, field in LATENCIES.items()}
ROWS = tuple(BY_NAME.values())
