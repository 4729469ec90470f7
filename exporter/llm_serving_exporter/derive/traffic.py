"""Bytes and FLOPs of a window by our arithmetic over the engine's counters, and what the engine is expected to do at its ceilings."""

from __future__ import annotations

from collections.abc import Callable

from llm_serving_exporter.derive.roof import Ceiling, balance_ranks
from llm_serving_exporter.derive.roof import decode_ceiling as roof_decode_ceiling
from llm_serving_exporter.derive.steps import (
    Steps,
    add_up_over_steps,
    average_running,
    average_tokens_per_request,
    count_decode_steps,
    count_prompts,
    count_sequence_steps,
    count_steps,
    drafts_per_sequence_step,
    drop_half_blocks,
    holds_every_token,
)
from llm_serving_exporter.derive.work import Roof, kv_read_bytes, kv_token_bytes, token_flops, weight_read_bytes
from llm_serving_exporter.derive.work import prefill_flops as roof_prefill_flops
from llm_serving_exporter.model.derived import Range
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.shape import Geometry, Precision
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.window import EngineWindow

# --- Bytes and FLOPs of a window by our arithmetic over the engine's counters (facts model-math D.2, E.3).


# the H100's second-level cache (its data sheet)
CHIP_CACHE_BYTES = 50e6
# steps that are worked out from latencies are fractions; so few of them are none
FEWEST_STEPS = 0.01


class Work(Struct, frozen=True):
    """What an engine did in a window: counts only."""

    elapsed_seconds: float  # the window's length
    steps: Steps
    sequence_steps: float  # steps of single sequences in decode
    prompts: float  # those whose prefill ended
    prefill_tokens: float  # prompt tokens computed
    cached_tokens: float  # prompt tokens taken from the prefix cache
    drafts: float  # tokens that a sequence-step verifies beside its own
    running: float | None = None  # mean of running requests while there were any; None where that is not known
    # of the steps, the passes that decode, of an engine that decodes in passes of its own; None: any step may decode
    decode_steps: float | None = None
    # tokens in the KV cache at each step that decodes, added up over those steps; None where the page does not say what is in use
    kv_token_steps: Range | None = None
    # tokens in the KV cache for each running request, what they share once; None likewise
    kv_tokens_per_request: float | None = None

    @property
    def batch(self) -> float | None:
        """Decoding sequences in a mean step that decodes; None without steps."""
        steps = self.decode_steps or self.steps.count
        return self.sequence_steps / steps if steps > 0 else None

    def decoding(self, stages: int) -> float | None:
        """Sequences that decode at a time; None without steps.

        Pipeline stages work on a micro-batch each, and engines count each micro-batch as a step: the other stages' sequences
        are as many again, as far as that many requests run.
        """
        batch = self.batch
        if batch is None or stages <= 1:
            return batch
        return batch * stages if self.running is None else max(batch, min(batch * stages, self.running))

    @property
    def tokens(self) -> float:
        """Tokens that passed the model: prefill, decode, and drafts that were verified."""
        return self.prefill_tokens + self.sequence_steps * (1 + self.drafts)


class Traffic(Struct, frozen=True):
    """Bytes that a window moved between HBM and the GPUs, all GPUs of the engine together."""

    weights: Range  # weights read
    kv_read: Range  # KV cache and recurrent state read
    kv_written: float  # KV cache written
    activations: Range  # activations, and weights that are read more than once for many tokens

    @property
    def total(self) -> Range:
        """All of it."""
        written, parts = self.kv_written, (self.weights, self.kv_read, self.activations)
        return Range(
            written + add_up(part.lower for part in parts),
            written + add_up(part.expected for part in parts),
            written + add_up(part.upper for part in parts),
        )


def measure_work(window: EngineWindow, *, encoder: bool = False) -> Work | Absence:
    """The window's work. IDLE where the engine made no step. `encoder`: the model does not decode, whatever the page says or does not."""
    made = count_steps(window, encoder=encoder)
    decoded = 0.0 if encoder else count_sequence_steps(window)
    for missing in (made, decoded):
        if isinstance(missing, Absence):
            return missing
    assert isinstance(made, Steps)
    assert isinstance(decoded, float)
    prefill = window.increase("prefill_tokens_total")
    if prefill is None:
        return Absence.INPUT_MISSING if window.last.prefill_tokens_total is None else Absence.WARMING_UP
    if made.count < FEWEST_STEPS:
        return Absence.IDLE
    held = average_tokens_per_request(window)
    return Work(
        window.elapsed_seconds,
        made,
        decoded,
        _prompts(window, prefill),
        prefill,
        max(0.0, window.increase("cached_prompt_tokens_total") or 0.0),
        drafts_per_sequence_step(window),
        average_running(window),
        window.increase("decode_steps_total"),
        add_up_over_steps(window, count_decode_steps(window, made, decoded)),
        None if isinstance(held, Absence) else drop_half_blocks(held, 1.0, window.last.kv_block_tokens),
    )


def _prompts(window: EngineWindow, prefill_tokens: float) -> float:
    """At least one where something was computed, and as many as no prompt needs to be longer than the engine takes."""
    if prefill_tokens <= 0:
        return 0.0
    longest = window.last.context_limit_tokens
    return max(count_prompts(window), prefill_tokens / longest if longest else 0.0, 1.0)


def estimate_traffic(roof: Roof, done: Work, context: Range) -> Traffic:
    """Every step reads the weights once, every step that decodes the KV in use; every computed token moves activations and is written.

    Sequences that share a prefix read it from memory between once and once for each, which is the upper bound; once to twice on an H100
    (tests/truth/test_h100.py). Where the page does not say what is in use, or that is no count of what is read, every sequence-step reads
    its context, and a prompt once what it takes from the prefix cache.
    """
    count = done.steps.count
    if roof.model.geometry.experts:
        weights = average_per_step(done, lambda tokens: weight_read_bytes(roof, tokens))
    else:  # a dense model's do not depend on the step's tokens
        weights = weight_read_bytes(roof, 1.0)
    attended = [done.sequence_steps * kv_read_bytes(roof, tokens)
                for tokens in (context.lower, context.expected, context.upper)]  # fmt: skip
    held = held_read_bytes(roof, done)
    if held is None:
        cached = prefix_read_bytes(roof, done)
        read = Range(cached + attended[0], cached + attended[1], cached + attended[2])
    else:
        expected = held.expected + _reread_prefix_bytes(roof, done, context.expected)
        read = Range(held.lower, expected, max(expected, held.upper, attended[2]))
    # what was fitted is all that a token moves beside weights and KV read: its own KV is in it
    written, moved = done.tokens * kv_token_bytes(roof), roof.activation_bytes
    return Traffic(
        Range(weights.lower * count, weights.expected * count, weights.upper * count),
        read,
        written,
        Range(*(max(0.0, done.tokens * each - written) for each in (moved.lower, moved.expected, moved.upper))),
    )


def held_read_bytes(roof: Roof, done: Work) -> Range | None:
    """What the steps that decode read of the KV in use, each token of it once; None where that does not follow from the tokens in use.

    With pipeline stages each step is a micro-batch's, which reads its own sequences' part.
    """
    tokens, token_bytes = done.kv_token_steps, roof.token_read_bytes
    if tokens is None or token_bytes is None:
        return None
    at_once = done.decoding(roof.parallel.pipeline)
    each = token_bytes * (done.batch or 0.0) / at_once if at_once else token_bytes
    return Range(tokens.lower * each, tokens.expected * each, tokens.upper * each)


def _reread_prefix_bytes(roof: Roof, done: Work, context_tokens: float) -> float:
    """What memory gives a second time of a prefix that sequences share. One that the chip's cache holds, a layer at a time, it gives once;
    longer ones were read once to twice on an H100: half of what does not fit counts again."""
    held, at_once = held_tokens_per_sequence(roof, done), done.decoding(roof.parallel.pipeline) or 0.0
    if held is None or held >= context_tokens or at_once <= 1 or not roof.token_read_bytes or not done.batch:
        return 0.0
    # of sequences with one prefix in common each holds its share of it, and looks at all of it
    prefix = at_once * (context_tokens - held) / (at_once - 1)
    layers = add_up(group.layers for group in roof.model.geometry.attention)
    layer_bytes = prefix * roof.token_read_bytes / (layers * roof.parallel.tensor)
    if layer_bytes <= CHIP_CACHE_BYTES:
        return 0.0
    again = 0.5 * (1 - CHIP_CACHE_BYTES / layer_bytes) * prefix
    return again * roof.token_read_bytes * done.sequence_steps / done.batch


def held_tokens_per_sequence(roof: Roof, done: Work) -> float | None:
    """Tokens of the KV in use for each sequence: its part of what sequences share. None where nothing says it, and where no prompt hit the
    prefix cache, so that they share nothing."""
    return done.kv_tokens_per_request if roof.token_read_bytes and done.cached_tokens else None


def prefix_read_bytes(roof: Roof, done: Work) -> float:
    """What the window's prompts read of the KV that they took from the prefix cache, each of them once."""
    if not done.prompts or not done.cached_tokens:
        return 0.0
    prefix = kv_read_bytes(roof, done.cached_tokens / done.prompts) - kv_read_bytes(roof, 0.0)
    return done.prompts * prefix


def average_per_step(done: Work, of_tokens: Callable[[float], Range]) -> Range:
    """Mean over the steps of what depends on a step's tokens, and grows ever slower with them: experts touched, weights read.

    Prefill's tokens come in few steps, at most one a prompt that ended: the mean step would touch more experts than the steps
    do in the mean. It is the upper bound.
    """
    count = done.steps.count
    even = of_tokens(done.tokens / count)
    with_prefill = min(count, done.prompts)
    decoded = done.sequence_steps * (1 + done.drafts) / count
    if with_prefill <= 0 or with_prefill >= count:
        return even
    alone, together = of_tokens(decoded), of_tokens(decoded + done.prefill_tokens / with_prefill)
    share = with_prefill / count
    return Range(
        alone.lower * (1 - share) + together.lower * share,
        alone.expected * (1 - share) + together.expected * share,
        even.upper,
    )


def prefill_flops(roof: Roof, done: Work) -> dict[Precision, float]:
    """FLOPs of the window's prefill: as many prompts as ended it, of mean length. Longer prompts cost more than the mean says."""
    if not done.prompts:
        return {}
    prompt = roof_prefill_flops(roof, done.prefill_tokens / done.prompts, done.cached_tokens / done.prompts, 1.0)
    return {precision: flops * done.prompts for precision, flops in prompt.items()}


def decode_flops(roof: Roof, done: Work, context: Range) -> dict[Precision, float]:
    """FLOPs of the window's decode; drafted tokens are computed like any other."""
    token = token_flops(roof, context.expected)
    return {precision: flops * done.sequence_steps * (1 + done.drafts) for precision, flops in token.items()}


def add_flops(*parts: dict[Precision, float]) -> dict[Precision, float]:
    """The sum by precision."""
    total: dict[Precision, float] = {}
    for part in parts:
        for precision, flops in part.items():
            total[precision] = total.get(precision, 0.0) + flops
    return total


# --- What one engine is expected to do at its ceilings: at the batch of now, and of each phase alone at its largest (capacity, for N-1).


def decode_ceiling(roof: Roof, done: Work, context_tokens: float) -> Ceiling | None:
    """Decode's ceiling at the window's own batch and its own KV in use; None as for `roof.decode_ceiling`."""
    held = held_tokens_per_sequence(roof, done)
    return roof_decode_ceiling(
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
    moved = prefix_read_bytes(roof, done) + done.prefill_tokens * kv_token_bytes(roof)
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
    ceiling = roof_decode_ceiling(
        balance_ranks(roof), most, context_tokens, tokens_per_step=1 + done.drafts, held_tokens=held
    )
    if ceiling is None or ceiling.compute_tokens_per_second is None:
        return Absence.PEAK_UNKNOWN
    return ceiling.tokens_per_second


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
