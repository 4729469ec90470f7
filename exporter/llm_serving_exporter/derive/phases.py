"""Prefill and decode apart: tokens per second over the window, also per GPU."""

from __future__ import annotations

from collections.abc import Callable

from llm_serving_exporter.catalogue import derived as names
from llm_serving_exporter.derive.figures import HARDWARE, SETTINGS, WINDOW, WINDOWS, DeriveSettings, Figure, figure
from llm_serving_exporter.derive.signals import NOT_ON_A_FRONT_END, Row, Series, gauge
from llm_serving_exporter.derive.steps import find_token_field
from llm_serving_exporter.model.hardware import Hardware
from llm_serving_exporter.model.numbers import resolution
from llm_serving_exporter.model.snapshot import Absence, Quality
from llm_serving_exporter.model.window import EngineWindow, EngineWindows

# --- The smallest change that a page can show, where it prints numbers with a few digits only.


# a rate whose increase is known no better than this is approximate
COARSE_SHARE = 0.05


def is_coarse(window: EngineWindow, field: str, digits: int | None) -> bool:
    """Whether a counter's increase over the window is known to no better than COARSE_SHARE of it."""
    grown = window.increase(field)
    if digits is None or not grown:
        return False
    step = resolution(getattr(window.last, field), digits)
    # whole numbers below that many digits are printed exactly
    return step > 1 and step > COARSE_SHARE * grown


# --- The rows.


COUNTERS = {"prefill": "prefill_tokens_total", "decode": "decode_tokens_total"}


def tokens_per_second(windows: EngineWindows) -> dict[str, float]:
    """Tokens/s by phase: increase of the phase's counter over the window that it needs. A phase without two readings is left out."""
    rates = {}
    for phase in COUNTERS:
        counter = counter_of(phase, windows.configured)
        window = windows.cover((counter,))
        increase = window.increase(counter)
        if increase is not None:
            rates[phase] = increase / window.elapsed_seconds
    return rates


def counter_of(phase: str, window: EngineWindow) -> str:
    """The field that a phase's rate is taken from."""
    return find_token_field(window.last) if phase == "decode" else COUNTERS[phase]


def share_per_gpu(rates: dict[str, float], gpu_count: float | None) -> dict[str, float]:
    """The same per GPU of the engine; empty where the number of GPUs is not known."""
    return {phase: rate / gpu_count for phase, rate in rates.items()} if gpu_count else {}


def _rate_of(phase: str) -> Callable[[EngineWindow, dict[str, float]], float | Absence]:
    def rate(window: EngineWindow, rates: dict[str, float]) -> float | Absence:
        missing = getattr(window.last, COUNTERS[phase]) is None
        return rates.get(phase, Absence.INPUT_MISSING if missing else Absence.WARMING_UP)

    return rate


def _read_for(*phases: str) -> Figure[tuple[str, ...]]:
    return figure(lambda window: tuple(counter_of(phase, window) for phase in phases), WINDOW)


def _quality_of(phase: str) -> Callable[[EngineWindow, DeriveSettings], Quality | None]:
    def quality(window: EngineWindow, settings: DeriveSettings) -> Quality | None:
        known_roughly = is_coarse(window, counter_of(phase, window), settings.significant_digits)
        return Quality.APPROXIMATE if known_roughly else None

    return quality


def _rates_per_gpu(window: EngineWindow, rates: dict[str, float], hardware: Hardware) -> dict[str, float] | Absence:
    shared = share_per_gpu(rates, hardware.engine_gpus)
    if shared:
        return shared
    if all(getattr(window.last, counter) is None for counter in COUNTERS.values()):
        return Absence.INPUT_MISSING
    if hardware.engine_gpus is None:
        return Absence.GPUS_UNKNOWN
    return Absence.WARMING_UP if not rates else Absence.INPUT_MISSING


_RATES = figure(tokens_per_second, WINDOWS)

RATES: dict[str, Row[float]] = {
    phase: Row(
        figure(_rate_of(phase), WINDOW, _RATES),
        f"{names.PHASE_TOKENS_PER_SECOND.name}_{phase}",
        fields=(counter,),
        fields_read=_read_for(phase),
        explained_by=counter,
        quality=figure(_quality_of(phase), WINDOW, SETTINGS),
        series=(Series(names.PHASE_TOKENS_PER_SECOND, (phase,)),),
    )
    for phase, counter in COUNTERS.items()
}
RATES_PER_GPU = gauge(
    names.PHASE_TOKENS_PER_SECOND_PER_GPU,
    figure(_rates_per_gpu, WINDOW, _RATES, HARDWARE),
    fields=tuple(COUNTERS.values()),
    fields_read=_read_for(*COUNTERS),
    silent=NOT_ON_A_FRONT_END,
)
ROWS = (*RATES.values(), RATES_PER_GPU)
