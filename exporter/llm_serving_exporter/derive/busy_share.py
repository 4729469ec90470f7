"""Share of a tick in which an engine worked, by its page alone, whatever the tick's length (design section 8).

Requests overlap, so that their times cannot be added up. Divided by the batch in which they ran they can: the sum of all inter-token
latencies / the requests that ran at a time is the time in which steps were made. A page without latencies has the weights of its work,
which are the least that it can have taken, beside the readings at which requests ran.
"""

from __future__ import annotations

from llm_serving_exporter.derive.busy import Weights
from llm_serving_exporter.derive.steps import ITL, average_running
from llm_serving_exporter.model.window import EngineWindow

PREFILL_TIME = "request_prefill_time_seconds"
# work that takes so much of the time at the ceilings, with requests at every reading, is work without a pause: engines reach a third of
# them and more, and requests that come with the readings' own rhythm seldom take so long
SATURATED_SHARE, FEWEST_READINGS = 0.3, 4


def measure_device_share(tick: EngineWindow) -> float | None:
    """By the engine's count of the time that its device works; None where it has none."""
    seconds = tick.increase("device_busy_seconds")
    if seconds is None or tick.elapsed_seconds <= 0:
        return None
    return min(1.0, max(0.0, seconds / tick.elapsed_seconds))


def estimate_busy_share(tick: EngineWindow, window: EngineWindow, weights: Weights | None) -> float | None:
    """By latencies over the batch, else by the weights of the tick's own work. None where the page has neither.

    `window`: the readings of the window, `weights`: of the tick's work, None where they are not known.
    """
    if tick.elapsed_seconds <= 0:
        return None
    if tick.events(ITL) == 0 and all(reading.requests_running for reading in tick.readings):
        return 1.0  # within one long prefill or one long step, which are booked at their end, if at all
    batch = _find_batch(tick, window)
    decode, prefill = _divide_sum(tick, ITL, batch), _divide_sum(tick, PREFILL_TIME, batch)
    measured = decode is not None and prefill is not None
    if weights is not None:
        decode = weights.decode if decode is None else decode
        prefill = weights.prefill if prefill is None else max(prefill, weights.prefill)
    if decode is None:
        return None
    share = min(1.0, (decode + (prefill or 0.0)) / tick.elapsed_seconds)
    if not measured and share >= SATURATED_SHARE and _is_never_at_rest(window):
        return 1.0
    return share


def _find_batch(tick: EngineWindow, window: EngineWindow) -> float:
    """Requests that run at a time while some do, 1 or more: by the readings that have some, else by the tick's steps."""
    running = average_running(window)
    steps, events = tick.increase("engine_steps_total"), tick.events(ITL)
    if running is None and steps and events:
        running = events / steps
    return max(1.0, running or 1.0)


def _divide_sum(tick: EngineWindow, name: str, batch: float) -> float | None:
    """Seconds in which the histogram's events took place, `batch` of them at a time; None where it is not on the page."""
    gained = tick.grown(name)
    return None if gained is None or gained.total is None else gained.total / batch


def _is_never_at_rest(window: EngineWindow) -> bool:
    running = [reading.requests_running for reading in window.readings]
    return len(running) >= FEWEST_READINGS and all(number is not None and number > 0 for number in running)
