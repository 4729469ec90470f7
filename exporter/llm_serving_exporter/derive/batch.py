"""How full the batch is."""

from __future__ import annotations

from llm_serving_exporter.derive.steps import sequence_steps
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.window import EngineWindow


def batch_size_mean(window: EngineWindow) -> float | Absence:
    """Decoding sequences in a step: sequence-steps over engine steps of the window, both counted by the engine.

    Independent of when the page is read, unlike the gauge of running requests; idle time does not enter.
    """
    decoded, made = sequence_steps(window), window.increase("engine_steps_total")
    if window.last.engine_steps_total is None:
        return Absence.INPUT_MISSING
    if isinstance(decoded, Absence):
        return decoded
    if made is None:
        return Absence.WARMING_UP
    return decoded / made if made > 0 else Absence.IDLE


def batch_utilization_ratio(window: EngineWindow) -> float | Absence:
    """Mean of running requests over the window's readings / the engine's limit of running requests."""
    limit = window.last.batch_limit_requests
    if not limit:
        return Absence.NOT_CONFIGURED
    running = window.mean("requests_running")
    return running / limit if running is not None else Absence.INPUT_MISSING
