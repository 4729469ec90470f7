"""How full the batch is."""

from __future__ import annotations

from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.window import EngineWindow


def batch_size_mean(window: EngineWindow) -> float | Absence:
    """Decoding sequences in a step: inter-token events over engine steps of the window, both counted by the engine.

    Independent of when the page is read, unlike the gauge of running requests; idle time does not enter.
    """
    earlier, later = window.first.inter_token_latency_seconds, window.last.inter_token_latency_seconds
    if later is None or window.last.engine_steps_total is None:
        return Absence.INPUT_MISSING
    steps = window.increase("engine_steps_total")
    if earlier is None or steps is None:
        return Absence.WARMING_UP
    if steps <= 0:
        return Absence.IDLE
    return (later.count - earlier.count) / steps


def batch_utilization_ratio(window: EngineWindow) -> float | Absence:
    """Mean of running requests over the window's readings / the engine's limit of running requests."""
    limit = window.last.batch_limit_requests
    if not limit:
        return Absence.NOT_CONFIGURED
    running = window.mean("requests_running")
    return running / limit if running is not None else Absence.INPUT_MISSING
