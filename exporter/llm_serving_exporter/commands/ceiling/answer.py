"""`ceiling`: what a model on given GPUs could do: fit, ceilings by batch, price, replicas."""

from __future__ import annotations

import math
from collections.abc import Iterator
from enum import StrEnum

from llm_serving_exporter.derive.kv import CHECKPOINT_BELIEVED_WITHIN_RATIO
from llm_serving_exporter.derive.planning import (
    Fit,
    Replicas,
    Speculation,
    bound_decode,
    check_fit,
    count_sequences,
    least_gpus,
    list_refusals,
    replica_ceiling,
)
from llm_serving_exporter.derive.planning import replicas as planning_replicas
from llm_serving_exporter.derive.planning import usd_per_million_tokens as planning_usd_per_million_tokens
from llm_serving_exporter.derive.roof import Ceiling, encoder_ceiling_tokens_per_second, lacks, prefill_floor_seconds
from llm_serving_exporter.derive.roof import ridge_batch as roof_ridge_batch
from llm_serving_exporter.derive.work import Roof, choose_rate, compute_seconds, kv_stored_bytes, prefill_flops
from llm_serving_exporter.model.hardware import GpuPeaks, Parallel
from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.model.shape import ModelFacts, Precision
from llm_serving_exporter.render.numbers import size

# --- What ends the batch of an engine beside its memory: the sequences that it is told to run at once, and the recurrent state of as many.
#
# Some engines refuse to start where the state of all of those does not fit, long before the KV cache is full.


# vLLM takes the larger of the kinds of layers for the size of a group where they differ by less (v1/core/kv_cache_utils.py)
_ALIKE = 1.5


class States(StrEnum):
    """When an engine takes the memory for the recurrent state of its sequences."""

    AS_THEY_COME = "as they come"
    # for each sequence that may run, before the first one does
    AT_THE_START = "at the start"
    # in blocks of the KV cache, of which there must be one for each sequence that may run (vLLM's config/compilation.py)
    POOLED = "pooled"


class Limit(Struct, frozen=True):
    """A number that a flag says."""

    number: int  # what it says, in what the field of Limits counts
    words: str  # the flag with its value, as written


class Limits(Struct, frozen=True):
    """What of an engine's start, or of the question, ends its batch. Sequences are of all ranks of the replica together."""

    engine: str = ""  # name of the engine; "": none was named
    sequences: Limit | None = None  # that run at once; None: nothing says it
    flag: str = ""  # by which it is told those; "": none
    least_default: int | None = None  # the fewest that it takes where nothing says them; None: not known
    context: Limit | None = None  # tokens of one sequence, prompt and answer; None: nothing says them
    context_flag: str = ""  # by which it is told those; "": none
    states: States = States.AS_THEY_COME  # when it takes memory for recurrent state
    holds_longest: bool = False  # whether it starts only where one sequence of the longest context fits
    # sequences, and the tokens of a step, which are fewer; None: they go together
    crossed: tuple[Limit, Limit] | None = None

    @property
    def most(self) -> int | None:
        """Sequences that run at once; None: as many as fit."""
        return None if self.sequences is None else self.sequences.number

    @property
    def reserved(self) -> int:
        """Sequences whose state is taken before the first one runs."""
        return (self.most or 0) if self.states is States.AT_THE_START else 0


def list_limit_refusals(roof: Roof, limits: Limits, room: Fit, context_tokens: float) -> tuple[str, ...]:
    """Why an engine does not start with these limits, or does not take what was asked, in sentences; () where it does.

    `context_tokens`: the most of one sequence that was asked for. `room`: of the same roof.
    """
    return tuple(_refusals(roof, limits, room, context_tokens))


def _refusals(roof: Roof, limits: Limits, room: Fit, context_tokens: float) -> Iterator[str]:
    if limits.context is not None and context_tokens > limits.context.number:
        yield f"{limits.engine} refuses {context_tokens:g} tokens of context: {limits.context.words} of the start command is less"
    if limits.crossed is not None and limits.holds_longest:
        sequences, step = limits.crossed
        yield f"{limits.engine} refuses to start: {step.words} is below {sequences.words}"
    if limits.context is not None and limits.holds_longest:
        yield from _longest(roof, limits, room, limits.context.number, limits.context.words)
    if limits.sequences is not None:
        yield from _states(roof, limits, room, limits.sequences.number, limits.sequences.words)


def note_defaults(roof: Roof, limits: Limits, room: Fit, batch: int) -> Iterator[str]:
    """What the engine's own defaults do to the answer, which its command leaves to them. `batch`: the largest that was counted."""
    default = limits.least_default
    if limits.sequences is None and default is not None:
        what = f"{limits.engine}'s own limit, {default} or more by version and GPU"
        refused = next(_states(roof, limits, room, default, what), None)
        if refused is not None:
            yield f"{refused}, with {limits.flag}"
        elif batch > default:
            yield f"the start command does not say {limits.flag}: {what}, may end the batch before the {batch} that are counted"
    longest = roof.model.context_limit_tokens
    if limits.context is None and limits.holds_longest and longest is not None and room.fits:
        yield from _longest(roof, limits, room, longest, f"the model's {longest} tokens, without {limits.context_flag}")


def _longest(roof: Roof, limits: Limits, room: Fit, tokens: int, words: str) -> Iterator[str]:
    held, free = kv_stored_bytes(roof, tokens), max(0.0, room.free_kv_bytes) / room.ranks
    if held > free:
        yield f"{limits.engine} refuses to start: a sequence of {words} keeps {size(held)}, and there are {size(free)}"


def _states(roof: Roof, limits: Limits, room: Fit, sequences: int, words: str) -> Iterator[str]:
    state, free = roof.model.state_bytes_per_sequence(), max(0.0, room.unreserved_bytes) / room.ranks
    if state <= 0 or limits.states is States.AS_THEY_COME:
        return
    each = state if limits.states is States.AT_THE_START else _block_bytes(roof.model)
    fitting = math.floor(free / each)
    if sequences > fitting * room.ranks:
        what = (
            "the recurrent state of each"
            if limits.states is States.AT_THE_START
            else "a block of recurrent state for each"
        )
        yield (
            f"{limits.engine} refuses to start with {words}: it takes {what} from the start, {size(each)}, and there are "
            f"{size(free)}: write {fitting * room.ranks} or less"
        )


def _block_bytes(model: ModelFacts) -> float:
    """One block of vLLM's pool: the state of one layer, times the layers of a group, which are those of the rarest kind of layer."""
    recurrent, attention = model.geometry.recurrent, model.geometry.attention
    kinds = [group.layers for group in recurrent]
    kinds += [group.layers for group in attention if group.kept and group.kv_elements]
    layers = max(kinds) if max(kinds) < _ALIKE * min(kinds) else min(kinds)
    return layers * max(model.layer_state_bytes(group) for group in recurrent)


# --- The answer


# figures that differ by less are one figure, rounded
_ROUNDING = 1.02
DEFAULT_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Load(Struct, frozen=True):
    """A load to serve, and how."""

    requests_per_second: float  # at its peak
    input_tokens: float  # mean prompt
    output_tokens: float  # mean output; 0 for an encoder
    target_utilisation: float  # share of a replica's throughput that may be used
    redundancy: float  # factor on the number of replicas
    efficiency: float  # share of the ceiling that a replica reaches


class Question(Struct, frozen=True):
    """Everything that was asked."""

    model: ModelFacts
    peaks: GpuPeaks  # of one GPU
    parallel: Parallel
    memory_bytes: int  # of one GPU
    context_tokens: int  # of each sequence
    prompt_tokens: int  # of the time to first token
    batches: tuple[int, ...] = DEFAULT_BATCHES
    usd_per_gpu_hour: float | None = None  # None where no price was given
    memory_utilisation: float = 0.9  # share of the memory that the engine may use
    overhead_bytes: float = 0.0  # of each GPU, for activations, graphs and buffers
    load: Load | None = None  # None where none is to be served
    speculation: Speculation = field(default_factory=Speculation)  # drafts of each sequence and step
    caveats: tuple[str, ...] = ()  # what was asked beyond that and is not answered, in sentences
    limits: Limits = field(default_factory=Limits)  # what ends the batch beside the memory

    @property
    def usd_per_hour(self) -> float | None:
        """Price of all GPUs of the replica."""
        return None if self.usd_per_gpu_hour is None else self.usd_per_gpu_hour * self.parallel.gpus


class Line(Struct, frozen=True):
    """One batch."""

    batch: int
    ceiling: Ceiling  # the expected tokens/s, and what bounds them
    upper_tokens_per_second: float  # tokens/s at best: nothing real is above
    lower_tokens_per_second: float | None  # with the worst routing; None where that is the expected
    fits: bool  # whether the KV of the batch fits the memory, and the engine runs as many
    beyond_limit: bool  # whether it is more than the engine runs at once
    usd_per_million_tokens: float | None  # None without a price


class Embedding(Struct, frozen=True):
    """What an encoder does instead of decoding."""

    tokens_per_second: float | None  # at the dense peak; None where that is not known
    floor_seconds: float | None  # the least time of one input alone
    usd_per_million_tokens: float | None  # None without a price


class Answer(Struct, frozen=True):
    """What follows. Rates are of one replica of `parallel.gpus` GPUs."""

    question: Question
    fit: Fit  # what of the memory is left
    refusals: tuple[str, ...]  # why engines do not start like this, in sentences; () where they do
    # such GPUs that the weights and one sequence need at least; None where a GPU has no memory left for them
    least_gpus: int | None
    lines: tuple[Line, ...]  # by batch, () for an encoder
    embedding: Embedding | None  # None for everything but an encoder
    # the batch from which decode at this context is compute-bound, infinite for never; None for an encoder
    ridge_batch: float | None
    weights_ridge_batch: float | None  # the same for the weights' matrices alone, attention left aside
    first_token_floor_seconds: float | None  # the least time of the prompt alone; None for an encoder
    tokens_per_second_per_replica: float | None  # on the load's mix; None without a load
    replicas: Replicas | None  # how many the load needs; None without a load
    notes: tuple[str, ...]

    @property
    def max_batch(self) -> int | None:
        """Sequences that run at once: as many as fit, and no more than the engine takes; None for a model that keeps nothing of them."""
        fitting, most = self.fit.max_batch, self.question.limits.most
        return fitting if fitting is None or most is None else min(fitting, most)


def answer(question: Question) -> Answer:
    """Works everything out. A model that does not fit still gets its ceilings."""
    roof = Roof(question.model, question.peaks, question.parallel)
    encoder = question.model.geometry.encoder
    overhead = question.overhead_bytes + _uncounted_bytes(question.model) / question.parallel.gpus
    room = check_fit(
        roof,
        question.memory_bytes,
        utilisation=question.memory_utilisation,
        overhead_bytes=overhead,
        context_tokens=question.context_tokens,
        reserved=question.limits.reserved,
    )
    usable = question.memory_bytes * question.memory_utilisation - overhead
    # of one rank: more of them do not make one smaller
    least = least_gpus(room.weight_bytes / question.parallel.data + room.kv_bytes_per_sequence, usable)
    floor = prefill_floor_seconds(roof, question.prompt_tokens)
    batch = _load_batch(roof, question, room)
    rate = _replica_rate(roof, question.load, room, batch) if question.load is not None else None
    asked = max(question.context_tokens, question.prompt_tokens)
    longest = (
        max(asked, question.load.input_tokens + question.load.output_tokens) if question.load is not None else asked
    )
    refusals = (
        *list_refusals(question.model, question.peaks, question.parallel, asked),
        *list_limit_refusals(roof, question.limits, room, longest),
    )
    lines = tuple(_lines(roof, question, room, refused=bool(refusals)))
    counted = max((line.batch for line in lines if line.fits), default=0)
    return Answer(
        question,
        room,
        refusals,
        least,
        lines,
        _embedding(roof, question, floor) if encoder else None,
        None if encoder else _ridge(roof, question.context_tokens),
        None if encoder else _ridge(roof, 0.0),
        None if encoder else floor,
        rate,
        _replicas(question.load, rate),
        (
            *refusals,
            *question.caveats,
            *note_defaults(roof, question.limits, room, max(counted, batch)),
            *_notes(roof, question, room, least),
        ),
    )


def _ridge(roof: Roof, context_tokens: float) -> float | None:
    """Of the whole replica."""
    batch = roof_ridge_batch(roof, context_tokens)
    return None if batch is None else batch * roof.parallel.data


def _uncounted_bytes(model: ModelFacts) -> float:
    """What the checkpoint holds beyond the language part (vision tower): kept in memory, not read. Not where it is another format's."""
    stored = model.checkpoint_bytes or 0.0
    believed = stored <= (1 + CHECKPOINT_BELIEVED_WITHIN_RATIO) * model.weight_bytes
    return max(0.0, stored - model.weight_bytes) if believed else 0.0


def _lines(roof: Roof, question: Question, room: Fit, *, refused: bool) -> Iterator[Line]:
    for batch in question.batches:
        bounds = bound_decode(roof, batch, question.context_tokens, question.speculation)
        if bounds is not None:
            beyond = question.limits.most is not None and batch > question.limits.most
            fits = not refused and not beyond and (room.max_batch is None or batch <= room.max_batch)
            price = _usd(question, bounds.expected.tokens_per_second)
            yield Line(
                batch,
                bounds.expected,
                bounds.upper_tokens_per_second,
                bounds.lower_tokens_per_second,
                fits,
                beyond,
                price,
            )


def _embedding(roof: Roof, question: Question, floor: float | None) -> Embedding:
    rate = _encode(roof, question.prompt_tokens)
    return Embedding(rate, floor, None if rate is None else _usd(question, rate))


def _encode(roof: Roof, mean_tokens: float) -> float | None:
    """Tokens/s of all ranks of an encoder."""
    rate = encoder_ceiling_tokens_per_second(roof, mean_tokens)
    return None if rate is None else rate * roof.parallel.data


def _usd(question: Question, tokens_per_second: float) -> float | None:
    if question.usd_per_hour is None:
        return None
    return planning_usd_per_million_tokens(question.usd_per_hour, tokens_per_second)


def _load_batch(roof: Roof, question: Question, room: Fit) -> int:
    """The largest batch of a load's requests that fits and that the engine runs; 0 without a load, and for an encoder."""
    load, limits = question.load, question.limits
    if load is None or roof.model.geometry.encoder:
        return 0
    per_sequence = kv_stored_bytes(roof, load.input_tokens + load.output_tokens)
    batch = (
        count_sequences(roof, room.free_kv_bytes, per_sequence, limits.reserved)
        if per_sequence > 0
        else roof.parallel.data
    )
    return batch if limits.most is None else min(batch, limits.most)


def _replica_rate(roof: Roof, load: Load, room: Fit, batch: int) -> float | None:
    """Prompt and output tokens per second of one replica at its ceilings, on the load's mix, at the largest batch that runs."""
    if roof.model.geometry.encoder:
        return _encode(roof, load.input_tokens) if room.fits else None
    ranks = roof.parallel.data
    computed = compute_seconds(roof, prefill_flops(roof, load.input_tokens))
    mean_context = load.input_tokens + load.output_tokens / 2
    decode = replica_ceiling(roof, batch, mean_context) if batch >= 1 else None
    if computed is None or decode is None:
        return None
    # the first output token comes out of the prefill
    busy = computed / ranks + max(0.0, load.output_tokens - 1) / decode.tokens_per_second
    return (load.input_tokens + load.output_tokens) / busy if busy > 0 else None


def _replicas(load: Load | None, rate: float | None) -> Replicas | None:
    if load is None or rate is None:
        return None
    return planning_replicas(
        load.requests_per_second, load.input_tokens, load.output_tokens, rate * load.efficiency,
        load.target_utilisation, load.redundancy,
    )  # fmt: skip


def _notes(roof: Roof, question: Question, room: Fit, least: int | None) -> Iterator[str]:
    model, gpus = question.model, question.parallel.gpus
    yield from (lack.sentence for lack in lacks(roof))
    if not room.fits:
        enough = f"; they need at least {least} such GPUs" if least is not None and least > gpus else ""
        what = "the weights" if model.geometry.encoder else "the weights and one sequence"
        yield f"does not fit: {size(room.shortfall_bytes)} are missing for {what}{enough}"
    yield from _spread(roof)
    if question.speculation.drafts:
        yield from _drafts(question.speculation)
    for wanted in dict.fromkeys(group.format.multiplied for group in model.groups):
        if choose_rate(roof.peaks, wanted) is not wanted and Precision.BF16 in question.peaks.flops:
            yield f"{question.peaks.name} has no {wanted} rate: such weights are dequantised and multiplied at {Precision.BF16}"
    yield from _published(question.peaks)
    yield from model.notes
    yield from (f"not counted: {part}" for part in model.geometry.left_out)


def _published(peaks: GpuPeaks) -> Iterator[str]:
    """Peaks of which other figures are published too, and how far those reach."""
    low, high = peaks.bandwidth_lower_bytes_per_second, peaks.bandwidth_upper_bytes_per_second
    moved = peaks.bandwidth_bytes_per_second or 0.0
    ranges = [("bandwidth", low or moved, high or moved, 1e9, "GB/s")]
    for key, rate in peaks.flops.items():
        ranges.append((key.value, peaks.flops_lower.get(key, rate), peaks.flops_upper.get(key, rate), 1e12, "TFLOP/s"))
    apart = [
        f"{name} {least / unit:.6g} to {most / unit:.6g} {words}"
        for name, least, most, unit, words in ranges
        if most > _ROUNDING * least > 0
    ]
    if apart:
        yield f"published of {peaks.name}: {', '.join(apart)}; tokens/s count the figures above, at best the highest"


def _spread(roof: Roof) -> Iterator[str]:
    """What the layout does to the KV cache and to routed experts: who keeps copies."""
    parallel, geometry = roof.parallel, roof.model.geometry
    heads = min((group.kv_heads for group in geometry.attention if group.kv_elements), default=0)
    copies = parallel.count_kv_copies(heads)
    if heads and copies > 1:
        if geometry.mla:
            kept = (
                "keeps the whole KV cache"
                if copies == parallel.tensor
                else f"keeps its part of the KV cache {copies:g} times"
            )
            yield f"each of the {parallel.tensor} tensor-parallel ranks {kept}: MLA has one latent for all heads; --dp or --dcp avoid that"
        else:
            yield f"{parallel.tensor} tensor-parallel ranks share {heads} KV heads: each head is kept {copies:g} times"
    own = parallel.data / parallel.sharing_ranks
    if geometry.experts and own > 1:
        whole = parallel.tensor * parallel.data
        yield f"the routed experts are kept {own:g} times; --ep {whole} spreads them over all ranks, as engines do with expert parallelism"


def _drafts(speculation: Speculation) -> Iterator[str]:
    yield "what the drafting itself takes is not counted"
    if speculation.acceptance is None:
        yield "tokens/s count no draft as accepted: --acceptance says how many are; tokens/s at best count all of them"
