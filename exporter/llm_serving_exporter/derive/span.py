"""How long the windows of a target's signals have to be: longer than configured where the engine books late or refreshes slowly."""

from __future__ import annotations

from llm_serving_exporter.model.snapshot import EngineSnapshot, Quality, Snapshot
from llm_serving_exporter.model.window import Spans

# tokens booked at a request's end: over a window of so many of the longest requests the lumps are a small share
REQUESTS_IN_A_WINDOW = 4
# for an engine that books so and does not say how long its requests take; and the longest that any window gets
LAGGING_SECONDS, LONGEST_SECONDS = 300.0, 600.0
# two readings of a counter that is refreshed every N seconds are each up to N old: over twelve of them the error is at most a twelfth
REFRESHES_IN_A_WINDOW = 12
# rates of these are what a window is for; with the live count of tokens under way the booked one is not needed
_BOOKED = {"decode_tokens_total": "decode_tokens_live", "prefill_tokens_total": ""}


def find_spans(configured_seconds: float, snapshot: Snapshot) -> Spans:
    """How long the windows of this snapshot's signals have to be: as configured, and longer for counters that are booked late or refreshed
    slowly, at most LONGEST_SECONDS. One that is does not lengthen the windows of others."""
    needed = {
        field: seconds * REFRESHES_IN_A_WINDOW
        for field, seconds in snapshot.refreshed_every.items()
        if seconds * REFRESHES_IN_A_WINDOW > configured_seconds
    }
    late = [field for field, live in _BOOKED.items() if _books_late(snapshot, field, live)]
    if _finds_late(snapshot):
        late.append("prefix_cache_hits")
    if late:
        longest = [found for engine in snapshot.engines if (found := _longest_request(engine)) is not None]
        seconds = REQUESTS_IN_A_WINDOW * max(longest) if longest else LAGGING_SECONDS
        needed.update((field, max(seconds, needed.get(field, 0.0))) for field in late)
    if not needed:
        return Spans(configured_seconds)
    bounded = {field: min(seconds, LONGEST_SECONDS) for field, seconds in needed.items()}
    return Spans(configured_seconds, {field: span for field, span in bounded.items() if span > configured_seconds})


def _books_late(snapshot: Snapshot, field: str, live: str) -> bool:
    if snapshot.quality.get(field) is not Quality.LAGGING:
        return False
    return not live or all(getattr(engine, live) is None for engine in snapshot.engines)


def _finds_late(snapshot: Snapshot) -> bool:
    """Whether cache hits are booked at a request's end, and what was looked up is not: their ratio needs both of most requests."""
    quality = snapshot.quality.get
    return quality("prefix_cache_hits") is Quality.LAGGING and quality("prefix_cache_queries") is not Quality.LAGGING


def _longest_request(engine: EngineSnapshot) -> float | None:
    """p99 of all requests since the engine started; None where it does not say."""
    finished = engine.e2e_request_latency_seconds
    found = finished.quantile(0.99) if finished is not None else None
    return found.value if found is not None else None
