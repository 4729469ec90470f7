"""Mean length of context that a decode step reads per sequence, with what it may lie between (facts model-math E.3.6)."""

from __future__ import annotations

from llm_serving_exporter.derive import kv
from llm_serving_exporter.model.geometry import Geometry
from llm_serving_exporter.model.histogram import Histogram
from llm_serving_exporter.model.roofline import Range
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.window import EngineWindow

FINISHED, HELD, FINISHED_BEFORE = "finished_requests", "kv_in_use", "finished_requests_of_all_time"
DECODING = "decoding_sequences"
# fewer finished requests than this say too little about the lengths of those that run
ENOUGH_FINISHED = 8


def estimate_context(window: EngineWindow, geometry: Geometry) -> tuple[Range, str] | Absence:
    """Tokens per decoding sequence and where they come from.

    From the lengths of the requests that finished in the window where there are enough: kernels read a shared prefix for each
    sequence. Else from the KV in use, which counts it once; else from all requests since the engine started. Where two of them
    are known, they are the ends. Before all of them what the engine says of the sequences that decode. Absent: idle, or none is known.
    """
    said = _decoding(window)
    if said is not None:
        return Range(said, said, said), DECODING
    held = _held(window) if holds_every_token(geometry) else Absence.WARMING_UP
    finished = _from_finished(window.gained("request_prompt_tokens"), window.gained("request_generation_tokens"))
    if finished is not None:
        lower, upper = (finished, finished) if isinstance(held, Absence) else sorted((held, finished))
        return Range(lower, finished, upper), FINISHED
    if not isinstance(held, Absence):
        return Range(held, held, held), HELD
    before = _from_finished(window.last.request_prompt_tokens, window.last.request_generation_tokens)
    return held if before is None else (Range(before, before, before), FINISHED_BEFORE)


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
    held = kv.context_tokens_mean(window)
    if isinstance(held, Absence) or not window.last.kv_block_tokens:
        return held
    # the last block of a sequence is half empty in the mean (E.3.6a)
    return max(1.0, held - (window.last.kv_block_tokens - 1) / 2)


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
