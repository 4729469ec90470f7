"""What an engine's counters make of a window that is described by what was done in it."""

import math
from typing import Any

from llm_serving_exporter.model.numbers import Histogram
from llm_serving_exporter.model.record import name_fields, replace
from llm_serving_exporter.model.snapshot import EngineSnapshot, Snapshot
from llm_serving_exporter.model.window import EngineWindow, EngineWindows, Spans, Window

MINUTE = 60.0


def all_of(value: float, events: float) -> Histogram:
    """Events of one size."""
    return Histogram((math.floor(value), math.ceil(value + 0.5)), (0.0, events), events, value * events)


def engine(
    *, decoded: float = 0.0, steps: float | None = 0.0, seconds_per_token: float = 0.02, prompts: float = 0.0, prefill: float = 0.0,
    cached: float = 0.0, finished: float = 0.0, prompt: float = 0.0, output: float = 0.0, **more: Any,
) -> EngineSnapshot:  # fmt: skip
    """One reading: counts since the engine's start. `finished` requests of `prompt` and `output` tokens each."""
    values: dict[str, Any] = {
        "prefill_tokens_total": prefill,
        "cached_prompt_tokens_total": cached,
        "decode_tokens_total": decoded + prompts,
        "engine_steps_total": steps,
        "inter_token_latency_seconds": all_of(seconds_per_token, decoded),
        "time_to_first_token_seconds": all_of(1.0, prompts),
        "request_prompt_tokens": all_of(prompt, finished),
        "request_generation_tokens": all_of(output, finished),
        "requests_running": 1.0,
        "requests_waiting": 0.0,
    }
    return EngineSnapshot("m", more.pop("engine", "0"), **{**values, **more})


def window(seconds: float = MINUTE, **done: Any) -> EngineWindow:
    """Nothing at its start, and `done` at its end."""
    names = {*name_fields(EngineSnapshot)} - {"decoded"}
    gauges = {key: value for key, value in done.items() if key in names and not isinstance(value, Histogram)}
    quiet = {key: value for key, value in gauges.items() if not key.endswith("_total") and "estimated" not in key}
    zeros = {key: 0.0 if value is not None else None for key, value in gauges.items() if key not in quiet}
    first = engine(
        **{key: done[key] for key in ("prompt", "output", "seconds_per_token") if key in done}, **quiet, **zeros
    )
    last = engine(**done)
    for name in (
        "inter_token_latency_seconds",
        "time_to_first_token_seconds",
        "engine_steps_total",
        "prefill_tokens_total",
    ):
        if getattr(last, name) is None:
            first = replace(first, **{name: None})
    return EngineWindow((first, last), seconds)


def held(context_tokens: float, running: float) -> dict[str, float]:
    """Gauges that say that so many requests run with so much context each."""
    return {
        "requests_running": running,
        "kv_cache_usage_ratio": 0.5,
        "kv_cache_capacity_tokens": 2 * context_tokens * running,
    }


def pages(*readings: EngineSnapshot | tuple[EngineSnapshot, ...], seconds: float = 5.0) -> Window:
    """Pages so many seconds apart."""
    engines = [one if isinstance(one, tuple) else (one,) for one in readings]
    return Window(tuple(Snapshot(one, "vllm", 1e9 + i * seconds, i * seconds) for i, one in enumerate(engines)))


def all_live(one: EngineWindow) -> EngineWindows:
    """One window for everything."""
    return EngineWindows(Spans(MINUTE), {MINUTE: one})
