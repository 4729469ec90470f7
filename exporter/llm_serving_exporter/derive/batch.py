"""How full the batch is."""

from __future__ import annotations

from llm_serving_exporter.catalogue import derived as names
from llm_serving_exporter.derive.figures import figure
from llm_serving_exporter.derive.inputs import WINDOW, window_by, window_over
from llm_serving_exporter.derive.page_fields import SET_THE_BATCH_LIMIT
from llm_serving_exporter.derive.signals import NOT_ON_A_FRONT_END, gauge
from llm_serving_exporter.derive.steps import count_sequence_steps, list_step_fields
from llm_serving_exporter.model.snapshot import Absence, Quality
from llm_serving_exporter.model.window import EngineWindow, EngineWindows

# counters of one page are booked at slightly different moments
BATCH_TOLERANCE = 0.05


def batch_size_mean(window: EngineWindow) -> float | Absence:
    """Decoding sequences in a step: sequence-steps over engine steps of the window, both counted by the engine; over its decode passes,
    where these are passes of their own.

    Independent of when the page is read, unlike the gauge of running requests; idle time does not enter.
    """
    counter = "engine_steps_total" if window.last.decode_steps_total is None else "decode_steps_total"
    decoded, made = count_sequence_steps(window), window.increase(counter)
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


def _quality(window: EngineWindow, mean: float | Absence) -> Quality | None:
    """Suspect where more decode than run at once: the engine's steps are not what they seem."""
    limit = window.last.batch_limit_requests
    beyond = limit and not isinstance(mean, Absence) and mean > limit * (1 + BATCH_TOLERANCE)
    return Quality.SUSPECT if beyond else None


def _read(window: EngineWindow) -> tuple[str, ...]:
    return list_step_fields(window.last)


def _steps_window(windows: EngineWindows) -> EngineWindow:
    return windows.cover(list_step_fields(windows.configured.last))


_SIZE_MEAN = figure(batch_size_mean, window_by(_steps_window))

SIZE_MEAN = gauge(
    names.BATCH_SIZE_MEAN,
    _SIZE_MEAN,
    fields=("inter_token_latency_seconds", "engine_steps_total", "decode_tokens_total"),
    fields_read=figure(_read, WINDOW),
    silent=NOT_ON_A_FRONT_END,
    quality=figure(_quality, WINDOW, _SIZE_MEAN),
    sentences={Absence.IDLE: "The engine made no step within the window."},
)
UTILIZATION = gauge(
    names.BATCH_UTILIZATION_RATIO,
    figure(batch_utilization_ratio, window_over("requests_running")),
    fields=("requests_running",),
    silent=NOT_ON_A_FRONT_END,
    sentences={Absence.NOT_CONFIGURED: SET_THE_BATCH_LIMIT},
)
ROWS = (SIZE_MEAN, UTILIZATION)
