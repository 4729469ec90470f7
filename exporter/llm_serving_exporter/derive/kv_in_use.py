"""KV cache that live requests hold: as the page counts it, over the requests that hold it, and over the steps that read it."""

from __future__ import annotations

from itertools import pairwise

from llm_serving_exporter.model.derived import Range
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot
from llm_serving_exporter.model.window import EngineWindow

# what a figure of the KV in use reads
FIELDS = ("kv_used_tokens", "kv_cache_usage_ratio", "kv_cache_capacity_tokens")


def read_used_tokens(reading: EngineSnapshot) -> float | None:
    """Tokens that live requests hold, in whole blocks as the engine allots them: as the page counts them, else usage x capacity.

    None where the page says neither.
    """
    if reading.kv_used_tokens is not None:
        return reading.kv_used_tokens
    usage, capacity = reading.kv_cache_usage_ratio, reading.kv_cache_capacity_tokens
    return None if usage is None or capacity is None else usage * capacity


def average_tokens_per_request(window: EngineWindow) -> float | Absence:
    """KV tokens held per running request: sum over the readings with running requests of tokens / of requests.

    Counts a shared prefix once and rounds each request up to whole blocks.
    """
    tokens = requests = 0.0
    known = False
    for reading in window.readings:
        used = read_used_tokens(reading)
        if used is None or reading.requests_running is None:
            continue
        known = True
        if reading.requests_running > 0:
            tokens += used
            requests += reading.requests_running
    if not known:
        return Absence.INPUT_MISSING
    return tokens / requests if requests else Absence.IDLE


def drop_half_blocks(tokens: float, requests: float, block_tokens: float | None) -> float:
    """Tokens of so many requests without the empty half of each one's last block (facts model-math E.3.6a); at least one a request."""
    return max(requests, tokens - requests * (block_tokens - 1) / 2) if block_tokens else tokens


def add_up_over_steps(window: EngineWindow, steps: float) -> Range | None:
    """Tokens held at each of the window's decode steps, added up over the `steps` of them; None where no two readings say them.

    Between two readings as many as their mean, at least the lesser and at most the greater of them. A stretch in which the engine made
    more steps weighs more.
    """
    counter = "engine_steps_total" if window.last.decode_steps_total is None else "decode_steps_total"
    known = [
        (
            drop_half_blocks(used, reading.requests_running or 0.0, window.last.kv_block_tokens),
            getattr(reading, counter),
        )
        for reading in window.readings
        if (used := read_used_tokens(reading)) is not None
    ]
    stretches = [
        (earlier, later, 0.0 if before is None or after is None else max(0.0, after - before))
        for (earlier, before), (later, after) in pairwise(known)
    ]
    if not stretches:
        return None
    counted = add_up(weight for _, _, weight in stretches)
    if not counted:
        stretches, counted = [(earlier, later, 1.0) for earlier, later, _ in stretches], float(len(stretches))
    each = steps / counted
    return Range(
        each * add_up(weight * min(ends) for *ends, weight in stretches),
        each * add_up(weight * add_up(ends) / 2 for *ends, weight in stretches),
        each * add_up(weight * max(ends) for *ends, weight in stretches),
    )
