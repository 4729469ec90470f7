"""Busy time by phase: each tick's busy seconds are split by what each phase's work needs at least (design section 8)."""

from __future__ import annotations

from llm_serving_exporter.derive import capacity
from llm_serving_exporter.derive import roof as roofs
from llm_serving_exporter.derive.roof import Ceiling, Roof
from llm_serving_exporter.derive.traffic import Work, prefill_flops
from llm_serving_exporter.model.derived import BusySeconds
from llm_serving_exporter.model.hardware import Efficiency
from llm_serving_exporter.model.record import Struct, replace
from llm_serving_exporter.model.window import EngineWindow

# engines book a prompt when its first token comes out: busy time waits this long for the tokens that it was spent on
LONGEST_PENDING_SECONDS = 300.0
FULL = Efficiency()
# the batch and context at which phase_reference_seconds_per_token is taken, so that it is a constant of model and GPU
REFERENCE_BATCH, REFERENCE_CONTEXT_TOKENS, REFERENCE_PROMPT_TOKENS = 32, 1024, 1024
# what moves while an engine works
COUNTERS = ("prefill_tokens_total", "decode_tokens_total", "engine_steps_total")


class Weights(Struct, frozen=True):
    """Seconds that the prefill and the decode of some work need at the ceilings."""

    # of its prompts
    prefill: float
    # of its sequence-steps
    decode: float


def weigh_work(roof: Roof, done: Work, context_tokens: float, efficiency: Efficiency = FULL) -> Weights | None:
    """Prefill: its FLOPs at the dense peak. Decode: its sequence-steps at the ceiling of the work's own batch. Both at `efficiency`, the
    shares of the peaks that are taken to be reached. None without a peak."""
    prefill = roofs.compute_seconds(roof, prefill_flops(roof, done))
    ceiling = capacity.decode_ceiling(roof, done, context_tokens) if done.sequence_steps else None
    return weigh_phases(done, prefill, ceiling, efficiency)


def weigh_phases(
    done: Work, prefill_seconds: float | None, ceiling: Ceiling | None, efficiency: Efficiency = FULL
) -> Weights | None:
    """The same from the time that the prefill needs at the peak and the decode ceiling, where these are known already."""
    if prefill_seconds is None:
        return None
    prefill = prefill_seconds / efficiency.compute
    if not done.sequence_steps:
        return Weights(prefill, 0.0)
    if ceiling is None or ceiling.compute_tokens_per_second is None:
        return None
    reached = min(
        ceiling.bandwidth_tokens_per_second * efficiency.bandwidth,
        ceiling.compute_tokens_per_second * efficiency.compute,
    )
    return Weights(prefill, done.sequence_steps / reached)


def split_busy_time(shares: Weights | None) -> dict[str, float]:
    """Share of busy time by phase; empty where it is not known or nothing was done."""
    total = 0.0 if shares is None else shares.prefill + shares.decode
    if shares is None or total <= 0:
        return {}
    return {"prefill": shares.prefill / total, "decode": shares.decode / total}


def was_busy(tick: EngineWindow) -> bool:
    """Whether a request ran or a token counter moved between the two readings."""
    running = (tick.first.requests_running or 0.0) > 0 or (tick.last.requests_running or 0.0) > 0
    return running or any((tick.increase(name) or 0.0) > 0 for name in COUNTERS)


def advance_busy_seconds(before: BusySeconds | None, tick: EngineWindow, shares: Weights | None) -> BusySeconds:
    """The counters after one more tick. `shares` are of the tick's own work: None or nothing booked keeps its busy time pending."""
    totals = before or BusySeconds()
    if tick.elapsed_seconds <= 0 or not was_busy(tick):
        return totals
    pending = totals.pending_seconds + tick.elapsed_seconds
    ratio = split_busy_time(shares)
    if ratio:
        return replace(
            totals,
            prefill=totals.prefill + pending * ratio["prefill"],
            decode=totals.decode + pending * ratio["decode"],
            pending_seconds=0.0,
        )
    if pending > LONGEST_PENDING_SECONDS:
        return replace(totals, unattributed=totals.unattributed + pending, pending_seconds=0.0)
    return replace(totals, pending_seconds=pending)


def compute_reference_seconds(roof: Roof) -> dict[str, float]:
    """Seconds of one engine that a token of each phase needs at the reference batch and context; an encoder has no decode.

    Empty where a peak is not known.
    """
    prompt = roofs.compute_seconds(roof, roofs.prefill_flops(roof, REFERENCE_PROMPT_TOKENS, 0.0, 1.0))
    if prompt is None:
        return {}
    found = {"prefill": prompt / REFERENCE_PROMPT_TOKENS}
    ceiling = roofs.decode_ceiling(roofs.balance_ranks(roof), REFERENCE_BATCH, REFERENCE_CONTEXT_TOKENS)
    return found if ceiling is None else {**found, "decode": 1 / ceiling.tokens_per_second}
