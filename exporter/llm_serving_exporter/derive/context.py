"""Mean length of context that a decode step attends to per sequence, with what it may lie between (facts model-math E.3.6)."""

from __future__ import annotations

from llm_serving_exporter.derive.kv_in_use import average_tokens_per_request, drop_half_blocks
from llm_serving_exporter.derive.steps import count_prompts
from llm_serving_exporter.model.derived import Range
from llm_serving_exporter.model.numbers import Histogram
from llm_serving_exporter.model.shape import Geometry
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.window import EngineWindow

FINISHED, HELD, FINISHED_BEFORE = "finished_requests", "kv_in_use", "finished_requests_of_all_time"
DECODING, BEGUN = "decoding_sequences", "begun_requests"
# fewer finished requests than this say too little about the lengths of those that run
ENOUGH_FINISHED = 8


def estimate_context(window: EngineWindow, geometry: Geometry) -> tuple[Range, str] | Absence:
    """Tokens per decoding sequence and where they come from.

    Before all others what the engine says of the sequences that decode. Then the lengths of the requests that finished in the window where
    there are enough, the KV in use, and all requests since the engine started. Where the first two of them are known, they are the ends.
    Attention looks at a shared prefix for each sequence, and the KV in use counts it once: where prompts hit the prefix cache, it is no
    length of contexts, and the prompts that were begun stand in for it. Absent: idle, or none is known.
    """
    said = _decoding(window)
    if said is not None:
        return Range(said, said, said), DECODING
    held = _held(window) if holds_every_token(geometry) else Absence.WARMING_UP
    shared = hits_prefixes(window)
    finished = _from_finished(window.gained("request_prompt_tokens"), window.gained("request_generation_tokens"))
    if finished is not None:
        if isinstance(held, Absence) or (shared and held < finished):
            return Range(finished, finished, finished), FINISHED
        lower, upper = sorted((held, finished))
        return Range(lower, finished, upper), FINISHED
    begun = _from_begun(window) if shared else None
    if begun is not None and (isinstance(held, Absence) or held < begun):
        return Range(begun, begun, begun), BEGUN
    if not isinstance(held, Absence):
        return Range(held, held, held), HELD
    before = _from_finished(window.last.request_prompt_tokens, window.last.request_generation_tokens)
    return held if before is None else (Range(before, before, before), FINISHED_BEFORE)


def average_context(window: EngineWindow) -> float | Absence:
    """Tokens that attention looks at per running request, of a model of which nothing is known: the KV in use over running requests, unless
    the engine says it of its sequences, or prompts hit the prefix cache. Absent: idle, or the page does not say what is in use.
    """
    held = average_tokens_per_request(window)
    said = _decoding(window)
    if said is not None:
        return said
    if isinstance(held, Absence) or not hits_prefixes(window):
        return held
    finished = _from_finished(window.gained("request_prompt_tokens"), window.gained("request_generation_tokens"))
    return max(held, finished or _from_begun(window) or held)


def hits_prefixes(window: EngineWindow) -> bool:
    """Whether prompts of the window found some of their KV in the prefix cache, so that sequences may share it."""
    fields = ("prefix_cache_hits", "prefix_cache_hit_tokens_total", "cached_prompt_tokens_total")
    return any((window.increase(name) or 0.0) > 0 for name in fields)


def holds_every_token(geometry: Geometry) -> bool:
    """Whether each token of context stays in the KV cache of every layer: only then is the engine's capacity a count of tokens."""
    return not geometry.recurrent and all(group.window_tokens is None for group in geometry.attention)


def _decoding(window: EngineWindow) -> float | None:
    """Mean context of a decoding sequence over the readings with some; None where the engine does not say it."""
    if not window.values("decode_context_tokens"):
        return None
    tokens = requests = 0.0
    for reading in window.readings:
        if reading.decode_context_tokens and reading.requests_running:
            tokens += reading.decode_context_tokens
            requests += reading.requests_running
    return tokens / requests if requests else None


def _held(window: EngineWindow) -> float | Absence:
    held = average_tokens_per_request(window)
    return held if isinstance(held, Absence) else drop_half_blocks(held, 1.0, window.last.kv_block_tokens)


def _from_begun(window: EngineWindow) -> float | None:
    """Mean prompt, as sent, of the requests whose prefill ended in the window: the least that they look at. None where none did."""
    sent, prompts = window.increase("prompt_tokens_total"), count_prompts(window)
    return sent / prompts if sent and prompts else None


def _from_finished(prompts: Histogram | None, outputs: Histogram | None) -> float | None:
    """Mean prompt + E[o^2] / (2 E[o]) over requests that finished, prompt and output taken as independent (E.3.6b)."""
    if prompts is None or outputs is None or min(prompts.count, outputs.count) < ENOUGH_FINISHED:
        return None
    prompt, output = prompts.mean(), outputs.mean()
    if prompt is None or not output:
        return None
    return prompt + second_moment(outputs) / (2 * output)


def second_moment(histogram: Histogram) -> float:
    """E[x^2] from buckets: uniform inside each, then scaled so that the first moment is the histogram's own.

    Events beyond the top edge count at that edge before the scaling. `histogram` has events.
    """
    first = second = below = lower = 0.0
    for edge, cumulative in zip(histogram.edges, histogram.cumulative, strict=True):
        events = cumulative - below
        first += events * (lower + edge) / 2
        second += events * (lower * lower + lower * edge + edge * edge) / 3
        below, lower = cumulative, edge
    beyond = histogram.count - below
    first += beyond * lower
    second += beyond * lower * lower
    if first <= 0 or second <= 0:
        return 0.0
    scale = 1.0 if histogram.sum is None else histogram.sum / first
    return second * scale * scale / histogram.count
