"""`ceiling`: what a model on given GPUs could do at best: fit, ceilings by batch, price, replicas."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from llm_serving_exporter.derive import planning
from llm_serving_exporter.derive import roof as roofs
from llm_serving_exporter.derive.fit import Fit, check_fit, least_gpus
from llm_serving_exporter.derive.memory import CHECKPOINT_BELIEVED_WITHIN_RATIO
from llm_serving_exporter.derive.reads import choose_rate
from llm_serving_exporter.derive.roof import Ceiling, Roof
from llm_serving_exporter.model.hardware import GpuPeaks, Parallel
from llm_serving_exporter.model.weights import ModelFacts, Precision
from llm_serving_exporter.render.numbers import size

DEFAULT_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True, slots=True)
class Load:
    """A load to serve, and how."""

    # at its peak
    requests_per_second: float
    # mean prompt
    input_tokens: float
    # mean output; 0 for an encoder
    output_tokens: float
    # share of a replica's throughput that may be used
    target_utilisation: float
    # factor on the number of replicas
    redundancy: float
    # share of the ceiling that a replica reaches
    efficiency: float


@dataclass(frozen=True, slots=True)
class Question:
    """Everything that was asked."""

    # its geometry and weights
    model: ModelFacts
    # of one GPU
    peaks: GpuPeaks
    # how one replica is spread over GPUs
    parallel: Parallel
    # of one GPU
    memory_bytes: int
    # of each sequence
    context_tokens: int
    # of the time to first token
    prompt_tokens: int
    # sequences that decode together
    batches: tuple[int, ...] = DEFAULT_BATCHES
    # None where no price was given
    usd_per_gpu_hour: float | None = None
    # share of the memory that the engine may use
    memory_utilisation: float = 0.9
    # of each GPU, for activations, graphs and buffers
    overhead_bytes: float = 0.0
    # None where none is to be served
    load: Load | None = None

    @property
    def usd_per_hour(self) -> float | None:
        """Price of all GPUs of the replica."""
        return None if self.usd_per_gpu_hour is None else self.usd_per_gpu_hour * self.parallel.gpus


@dataclass(frozen=True, slots=True)
class Line:
    """One batch."""

    # sequences that decode together
    batch: int
    # tokens/s at best, and what bounds them
    ceiling: Ceiling
    # whether the KV of the batch fits the memory
    fits: bool
    # None without a price
    usd_per_million_tokens: float | None


@dataclass(frozen=True, slots=True)
class Embedding:
    """What an encoder does instead of decoding."""

    # at the dense peak; None where that is not known
    tokens_per_second: float | None
    # the least time of one input alone
    floor_seconds: float | None
    # None without a price
    usd_per_million_tokens: float | None


@dataclass(frozen=True, slots=True)
class Answer:
    """What follows. Rates are of one replica of `parallel.gpus` GPUs."""

    # what was asked
    question: Question
    # what of the memory is left
    fit: Fit
    # such GPUs that the weights and one sequence need at least; None where a GPU has no memory left for them
    least_gpus: int | None
    # by batch, () for an encoder
    lines: tuple[Line, ...]
    # None for everything but an encoder
    embedding: Embedding | None
    # the batch from which decode at this context is compute-bound, infinite for never; None for an encoder
    ridge_batch: float | None
    # the same for the weights' matrices alone, attention left aside
    weights_ridge_batch: float | None
    # the least time of the prompt alone; None for an encoder
    first_token_floor_seconds: float | None
    # on the load's mix; None without a load
    tokens_per_second_per_replica: float | None
    # how many the load needs; None without a load
    replicas: planning.Replicas | None
    # sentences for the reader
    notes: tuple[str, ...]


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
    )
    usable = question.memory_bytes * question.memory_utilisation - overhead
    least = least_gpus(room.weight_bytes + room.kv_bytes_per_sequence, usable)
    floor = roofs.prefill_floor_seconds(roof, question.prompt_tokens)
    rate = _replica_rate(roof, question.load, room) if question.load is not None else None
    return Answer(
        question,
        room,
        least,
        tuple(_lines(roof, question, room)),
        _embedding(roof, question, floor) if encoder else None,
        None if encoder else roofs.ridge_batch(roof, question.context_tokens),
        None if encoder else roofs.ridge_batch(roof, 0.0),
        None if encoder else floor,
        rate,
        _replicas(question.load, rate),
        tuple(_notes(roof, question, room, least)),
    )


def _uncounted_bytes(model: ModelFacts) -> float:
    """What the checkpoint holds beyond the language part (vision tower): kept in memory, not read. Not where it is another format's."""
    stored = model.checkpoint_bytes or 0.0
    believed = stored <= (1 + CHECKPOINT_BELIEVED_WITHIN_RATIO) * model.weight_bytes
    return max(0.0, stored - model.weight_bytes) if believed else 0.0


def _lines(roof: Roof, question: Question, room: Fit) -> Iterator[Line]:
    for batch in question.batches:
        ceiling = roofs.decode_ceiling(roof, batch, question.context_tokens)
        if ceiling is not None:
            fits = room.max_batch is None or batch <= room.max_batch
            yield Line(batch, ceiling, fits, _usd(question, ceiling.tokens_per_second))


def _embedding(roof: Roof, question: Question, floor: float | None) -> Embedding:
    rate = roofs.encoder_ceiling_tokens_per_second(roof, question.prompt_tokens)
    return Embedding(rate, floor, None if rate is None else _usd(question, rate))


def _usd(question: Question, tokens_per_second: float) -> float | None:
    if question.usd_per_hour is None:
        return None
    return planning.usd_per_million_tokens(question.usd_per_hour, tokens_per_second)


def _replica_rate(roof: Roof, load: Load, room: Fit) -> float | None:
    """Prompt and output tokens per second of one replica at its ceilings, on the load's mix, at the largest batch that fits."""
    if roof.model.geometry.encoder:
        return roofs.encoder_ceiling_tokens_per_second(roof, load.input_tokens) if room.fits else None
    computed = roofs.compute_seconds(roof, roofs.prefill_flops(roof, load.input_tokens))
    mean_context = load.input_tokens + load.output_tokens / 2
    per_sequence = roofs.kv_stored_bytes(roof, load.input_tokens + load.output_tokens)
    batch = math.floor(room.free_kv_bytes / per_sequence) if per_sequence > 0 else 1
    decode = roofs.decode_ceiling(roof, batch, mean_context) if batch >= 1 else None
    if computed is None or decode is None:
        return None
    # the first output token comes out of the prefill
    busy = computed + max(0.0, load.output_tokens - 1) / decode.tokens_per_second
    return (load.input_tokens + load.output_tokens) / busy if busy > 0 else None


def _replicas(load: Load | None, rate: float | None) -> planning.Replicas | None:
    if load is None or rate is None:
        return None
    return planning.replicas(
        load.requests_per_second, load.input_tokens, load.output_tokens, rate * load.efficiency,
        load.target_utilisation, load.redundancy,
    )  # fmt: skip


def _notes(roof: Roof, question: Question, room: Fit, least: int | None) -> Iterator[str]:
    model, gpus = question.model, question.parallel.gpus
    yield from (lack.sentence for lack in roofs.lacks(roof))
    if not room.fits:
        enough = f"; they need at least {least} such GPUs" if least is not None and least > gpus else ""
        what = "the weights" if model.geometry.encoder else "the weights and one sequence"
        yield f"does not fit: {size(room.shortfall_bytes)} are missing for {what}{enough}"
    limit = model.context_limit_tokens
    if limit is not None and limit < max(question.context_tokens, question.prompt_tokens):
        yield f"{model.name} is made for {limit} tokens by its config, fewer than asked"
    yield from _spread(roof)
    for wanted in dict.fromkeys(group.format.multiplied for group in model.groups):
        if choose_rate(roof.peaks, wanted) is not wanted and Precision.BF16 in question.peaks.flops:
            yield f"{question.peaks.name} has no {wanted} rate: such weights are dequantised and multiplied at {Precision.BF16}"
    yield from model.notes
    yield from (f"not counted: {part}" for part in model.geometry.left_out)


def _spread(roof: Roof) -> Iterator[str]:
    """What tensor parallelism does to the KV cache: the latent of MLA, and heads that are too few, are kept by several ranks."""
    ranks = roof.parallel.tensor
    heads = min((group.kv_heads for group in roof.model.geometry.attention if group.kv_elements), default=0)
    if ranks == 1 or not heads:
        return
    if roof.model.geometry.mla:
        yield f"each of the {ranks} tensor-parallel ranks keeps the whole KV cache: MLA has one latent for all heads"
    elif ranks % heads and heads % ranks:
        yield f"{heads} KV heads do not spread evenly over {ranks} tensor-parallel ranks; engines refuse that"
    elif ranks > heads:
        yield f"{ranks} tensor-parallel ranks share {heads} KV heads: each head is kept {ranks // heads} times"
