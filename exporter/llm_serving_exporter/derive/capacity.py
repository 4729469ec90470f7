"""What one engine is expected to do at its ceilings: at the batch of now, and of each phase alone at its largest (capacity, for N-1)."""

from __future__ import annotations

from llm_serving_exporter.derive import roof as roofs
from llm_serving_exporter.derive.context import holds_every_token
from llm_serving_exporter.derive.roof import Ceiling, Roof
from llm_serving_exporter.derive.traffic import Work, held_tokens_per_sequence, prefix_read_bytes
from llm_serving_exporter.model.shape import Geometry
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.window import EngineWindow


def decode_ceiling(roof: Roof, done: Work, context_tokens: float) -> Ceiling | None:
    """Decode's ceiling at the window's own batch and its own KV in use; None as for `roof.decode_ceiling`."""
    held = held_tokens_per_sequence(roof, done)
    return roofs.decode_ceiling(
        roof, _batch(roof, done), context_tokens, tokens_per_step=1 + done.drafts, held_tokens=held
    )


def prefill_tokens_per_second(roof: Roof, done: Work, compute_seconds: float | None) -> float | Absence:
    """Prompt tokens/s that are computed at most, of prompts like the window's: as long, as much of each in the prefix cache.

    `compute_seconds`: what the window's prefill takes at the dense peak of all GPUs of the engine: stages work on prompts of their own, so
    that they all count, unlike for one prompt's first token. A step takes as many prompts as make the weights' bytes not
    count; what each reads of its prefix and writes of its own KV does. Absent: no prompt, or a peak is not known.
    """
    if not done.prompts:
        return Absence.IDLE
    bandwidth = (roof.peaks.bandwidth_bytes_per_second or 0.0) * roof.parallel.rank_gpus
    if not compute_seconds or not bandwidth:
        return Absence.PEAK_UNKNOWN
    moved = prefix_read_bytes(roof, done) + done.prefill_tokens * roofs.kv_token_bytes(roof)
    return done.prefill_tokens / max(compute_seconds, moved / bandwidth)


def decode_steps_per_second(roof: Roof, window: EngineWindow, done: Work, context_tokens: float) -> float | Absence:
    """Sequence-steps/s at the ceiling of the largest batch of that context. Absent: how many fit, or a peak, is not known.

    Never fewer than the batch of now: sequences that share a prefix are more than their lengths let fit. A large batch is what compute
    binds, so that its bandwidth alone would promise too much.
    """
    held = held_tokens_per_sequence(roof, done)
    most = largest_batch(window, roof.model.geometry, context_tokens if held is None else min(held, context_tokens))
    if most is None:
        return Absence.INPUT_MISSING
    most = max(most, _batch(roof, done))
    found = roofs.decode_ceiling(
        roofs.balance_ranks(roof), most, context_tokens, tokens_per_step=1 + done.drafts, held_tokens=held
    )
    if found is None or found.compute_tokens_per_second is None:
        return Absence.PEAK_UNKNOWN
    return found.tokens_per_second


def largest_batch(window: EngineWindow, geometry: Geometry, context_tokens: float) -> float | None:
    """Sequences of that context that can decode at once: as many as the KV cache holds, at most the engine's limit where that is known.

    Where the cache's capacity is not said, or is no count of tokens (sliding windows, recurrent state), as many as fill it if each takes
    what a running request takes now. None where that is not known either: the limit alone says nothing about memory.
    """
    last = window.last
    if last.kv_cache_capacity_tokens and holds_every_token(geometry):
        fitting: float | None = last.kv_cache_capacity_tokens / max(1.0, context_tokens)
    else:
        fitting = _fitting_as_now(window)
    if fitting is None or not last.batch_limit_requests:
        return fitting
    return min(fitting, last.batch_limit_requests)


def _fitting_as_now(window: EngineWindow) -> float | None:
    """Requests over the share of the cache that they take, over the readings with both."""
    requests = shares = 0.0
    for reading in window.readings:
        if reading.requests_running and reading.kv_cache_usage_ratio:
            requests += reading.requests_running
            shares += reading.kv_cache_usage_ratio
    return requests / shares if shares else None


def _batch(roof: Roof, done: Work) -> float:
    """Sequences that decode at a time, at least one."""
    return max(1.0, done.decoding(roof.parallel.pipeline) or 1.0)
