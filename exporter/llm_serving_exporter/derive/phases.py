"""Prefill and decode apart: tokens per second over the window, also per GPU."""

from __future__ import annotations

from llm_serving_exporter.model.window import EngineWindow

COUNTERS = {"prefill": "prefill_tokens_total", "decode": "decode_tokens_total"}
# a count of tokens that includes requests under way is the better rate
_LIVE = {"decode": "decode_tokens_live"}


def tokens_per_second(window: EngineWindow) -> dict[str, float]:
    """Tokens/s by phase: increase of the phase's counter over the elapsed time. A phase without two readings is left out."""
    rates = {}
    for phase in COUNTERS:
        increase = window.increase(counter_of(phase, window))
        if increase is not None:
            rates[phase] = increase / window.elapsed_seconds
    return rates


def counter_of(phase: str, window: EngineWindow) -> str:
    """The field that a phase's rate is taken from."""
    live = _LIVE.get(phase)
    return live if live is not None and getattr(window.last, live) is not None else COUNTERS[phase]


def per_gpu(rates: dict[str, float], gpu_count: float | None) -> dict[str, float]:
    """The same per GPU of the engine; empty where the number of GPUs is not known."""
    return {phase: rate / gpu_count for phase, rate in rates.items()} if gpu_count else {}
