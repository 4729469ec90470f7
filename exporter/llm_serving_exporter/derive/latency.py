"""Latency quantiles and means of the window, from the engine's own buckets."""

from __future__ import annotations

from llm_serving_exporter.model.derived import Latency
from llm_serving_exporter.model.histogram import Histogram
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


def latency(window: EngineWindow, field: str) -> Latency | Absence:
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
    return Latency(inside.count, inside.mean(), quantiles)


def quality(found: Latency) -> Quality | None:
    """Clipped where the median lies below the first edge or the highest quantile above the top finite one."""
    lowest, highest = found.quantiles.get(QUANTILES[0]), found.quantiles.get(QUANTILES[-1])
    if (lowest and lowest.clipped == "bottom") or (highest and highest.clipped == "top"):
        return Quality.CLIPPED
    return None
