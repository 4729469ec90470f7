"""The rows of compute and of decode: ceilings, capacity, steps and their context."""

from __future__ import annotations

import math
from operator import attrgetter, itemgetter

from llm_serving_exporter.catalogue import roofline as names
from llm_serving_exporter.derive.bandwidth import (
    ENCODER,
    IMPOSSIBLE,
    LOAD,
    TASK,
    TRAFFIC,
    WORK,
    WORK_FIELDS,
    WORK_WINDOW,
    Load,
    Task,
)
from llm_serving_exporter.derive.figures import HARDWARE, Figure, figure, needs_all
from llm_serving_exporter.derive.roof import Ceiling, ridge_batch, weights_ridge_batch
from llm_serving_exporter.derive.signals import OF_AN_ENGINE, Row, Series, gauge
from llm_serving_exporter.derive.steps import speculates, tokens_per_sequence_step, window_over_steps
from llm_serving_exporter.derive.traffic import (
    Traffic,
    Work,
    add_flops,
    decode_ceiling,
    decode_flops,
    decode_steps_per_second,
    prefill_flops,
    prefill_tokens_per_second,
)
from llm_serving_exporter.derive.work import compute_seconds
from llm_serving_exporter.model.derived import Cause, Range
from llm_serving_exporter.model.hardware import Hardware
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.shape import Precision
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.model.window import EngineWindow

# --- The rows of compute: the time that the window's FLOPs need at the dense peak, and the capacity of prefill, which compute binds.


Flops = dict[Precision, float]


def _prefill_seconds(task: Task | Absence, flops: Flops | Absence) -> float | None:
    return None if isinstance(task, Absence) or isinstance(flops, Absence) else compute_seconds(task.roof, flops)


def _prefill_capacity(task: Task | Absence, seconds: float | None) -> float | Absence:
    return task if isinstance(task, Absence) else prefill_tokens_per_second(task.roof, task.done, seconds)


def _compute_ratio(load: Load, flops: Flops) -> float | Absence:
    seconds = compute_seconds(load.roof, flops)
    return Absence.PEAK_UNKNOWN if seconds is None else seconds / load.done.elapsed_seconds


def _explain_compute(ratio: float | Absence, hardware: Hardware) -> Cause | None:
    if isinstance(ratio, Absence) or not names.COMPUTE_RATIO.bounds.suspects(ratio):
        return None
    return Cause.GPU_COUNT if hardware.assumed_gpus else Cause.INPUTS


def _intensity(flops: Flops, moved: Traffic) -> float | None:
    return add_up(flops.values()) / moved.total.expected if moved.total.expected else None


_PREFILL_FLOPS = needs_all(lambda task: prefill_flops(task.roof, task.done), TASK)
PREFILL_SECONDS = figure(_prefill_seconds, TASK, _PREFILL_FLOPS)
_FLOPS = needs_all(
    lambda load, prefill: add_flops(prefill, decode_flops(load.roof, load.done, load.context)), LOAD, _PREFILL_FLOPS
)
_COMPUTE_RATIO = needs_all(_compute_ratio, LOAD, _FLOPS)

PREFILL_CAPACITY: Row[float] = Row(
    figure(_prefill_capacity, TASK, PREFILL_SECONDS),
    f"{names.PHASE_CEILING.name}_prefill",
    fields=WORK_FIELDS,
    # of a decode replica it is what it does not work under
    silent=frozenset({Role.DECODE, Role.FRONTEND}),
    sentences={Absence.IDLE: "No prompt was computed within the window, so that their length is not known."},
    of_an_engine=True,
    series=(Series(names.PHASE_CEILING, ("prefill",)),),
)
COMPUTE_RATIO = gauge(
    names.COMPUTE_RATIO,
    _COMPUTE_RATIO,
    fields=WORK_FIELDS,
    **OF_AN_ENGINE,
    cause=figure(_explain_compute, _COMPUTE_RATIO, HARDWARE),
    every_tick=True,
)
FLOPS_PER_SECOND: Row[float] = Row(
    needs_all(lambda load, flops: add_up(flops.values()) / load.done.elapsed_seconds, LOAD, _FLOPS), **OF_AN_ENGINE
)
INTENSITY: Row[float] = Row(needs_all(_intensity, _FLOPS, TRAFFIC), **OF_AN_ENGINE, series=(Series(names.INTENSITY),))
# those without a signal of their own
COMPUTE_ROWS = (FLOPS_PER_SECOND, INTENSITY)


# --- The rows of decode: its steps and their context, its ceiling at the batch of now and at the largest one, the ridge.


# a prefill replica makes a request's first token only: what decode could do is not what it works under
_SILENT = frozenset({Role.PREFILL, Role.FRONTEND})
_NOTHING_DECODED = "Nothing was decoded within the window."


def _decoding(load: Load | Absence, encoder: bool) -> Load | Absence:  # a figure's inputs go by place
    if encoder:
        return Absence.NO_DECODE
    return load if isinstance(load, Absence) or load.done.sequence_steps else Absence.IDLE


def _explain_decode(ratio: float | Absence, ceiling: Ceiling | Absence, of_bytes: Cause | None) -> Cause | None:
    """Nothing known explains a rate above the upper bound, which reads what sequences share once."""
    if isinstance(ratio, Absence) or isinstance(ceiling, Absence):
        return None
    of_upper = ratio * (ceiling.tokens_per_second / ceiling.read_once_tokens_per_second)
    return (of_bytes or Cause.INPUTS) if names.DECODE_RATIO.bounds.suspects(of_upper) else None


def _ridge(load: Load) -> float | Absence:
    ridge = ridge_batch(load.roof, load.context.expected, tokens_per_step=1 + load.done.drafts)
    if ridge is None:
        return Absence.PEAK_UNKNOWN
    return ridge if math.isfinite(ridge) else Absence.NO_RIDGE


def _weights_ridge(load: Load) -> float | None:
    """With no context; recurrent state is read at any: it too may take longer than computing with it."""
    ridge = weights_ridge_batch(load.roof, tokens_per_step=1 + load.done.drafts)
    return ridge if ridge is not None and math.isfinite(ridge) else None


def _capacity(window: EngineWindow, load: Load | Absence, tokens_per_step: float | None) -> float | Absence:
    if isinstance(load, Absence):
        return load
    steps = decode_steps_per_second(load.roof, window, load.done, load.context.expected)
    each = tokens_per_step or 1.0 if speculates(window) else 1.0
    return steps if isinstance(steps, Absence) else steps * each


def _context(load: Load | Absence) -> tuple[Range, str] | None:
    if isinstance(load, Absence) or not load.done.sequence_steps:
        return None
    return load.context, load.context_source


def _upper(ceiling: Ceiling) -> float | None:
    """Nothing where sequences share nothing, and it is the ceiling."""
    upper = ceiling.read_once_tokens_per_second
    return upper if upper > ceiling.tokens_per_second else None


def _steps_per_second(done: Work) -> dict[str, float]:
    how = "counted" if done.steps.counted else "inter_token_latency"
    return {how: done.steps.count / done.elapsed_seconds}


_DECODING = figure(_decoding, LOAD, ENCODER)
DECODE_CEILING: Figure[Ceiling | Absence] = needs_all(
    lambda load: decode_ceiling(load.roof, load.done, load.context.expected) or Absence.PEAK_UNKNOWN, _DECODING
)
_DECODE_RATIO = needs_all(
    lambda load, ceiling: load.done.sequence_steps / load.done.elapsed_seconds / ceiling.tokens_per_second,
    _DECODING,
    DECODE_CEILING,
)
KNOWN_CONTEXT = figure(_context, LOAD)


_TOKENS_PER_STEP = figure(tokens_per_sequence_step, window_over_steps("decode_tokens_total"))

CEILING: Row[Ceiling] = Row(
    DECODE_CEILING,
    names.DECODE_CEILING.name,
    fields=WORK_FIELDS,
    silent=_SILENT,
    sentences={Absence.IDLE: _NOTHING_DECODED},
    of_an_engine=True,
    series=(
        Series(names.DECODE_CEILING, part=attrgetter("tokens_per_second")),
        Series(names.DECODE_CEILING_UPPER, part=_upper),
        Series(names.RIDGE, part=attrgetter("ridge_flops_per_byte")),
    ),
)
DECODE_RATIO: Row[float] = Row(
    _DECODE_RATIO,
    names.DECODE_RATIO.name,
    fields=WORK_FIELDS,
    silent=_SILENT,
    sentences={Absence.IDLE: _NOTHING_DECODED},
    cause=figure(_explain_decode, _DECODE_RATIO, DECODE_CEILING, IMPOSSIBLE),
    of_an_engine=True,
    series=(Series(names.DECODE_RATIO),),
)
CAPACITY: Row[float] = Row(
    figure(_capacity, WORK_WINDOW, _DECODING, _TOKENS_PER_STEP),
    f"{names.PHASE_CEILING.name}_decode",
    fields=WORK_FIELDS,
    silent=_SILENT,
    sentences={
        Absence.IDLE: "Nothing was decoded within the window, so that the length of contexts is not known.",
        Absence.INPUT_MISSING: (
            "How many sequences fit the KV cache is not known: the engine says neither its capacity in tokens nor how much of it is in use."
        ),
    },
    of_an_engine=True,
    series=(Series(names.PHASE_CEILING, ("decode",)),),
)
RIDGE: Row[float] = Row(
    needs_all(_ridge, _DECODING),
    names.BATCH_RIDGE.name,
    fields=WORK_FIELDS,
    silent=_SILENT,
    sentences={Absence.IDLE: _NOTHING_DECODED},
    of_an_engine=True,
    series=(Series(names.BATCH_RIDGE, ("step",)),),
)
WEIGHTS_RIDGE: Row[float] = Row(
    needs_all(_weights_ridge, _DECODING),
    silent=_SILENT,
    of_an_engine=True,
    series=(Series(names.BATCH_RIDGE, ("weights",)),),
)
STEPS: Row[Work] = Row(WORK, **OF_AN_ENGINE, series=(Series(names.STEPS_PER_SECOND, part=_steps_per_second),))
BATCH: Row[float] = Row(
    needs_all(lambda done, gpus: done.decoding(gpus.parallel.pipeline if gpus.parallel else 1), WORK, HARDWARE),
    **OF_AN_ENGINE,
)
CONTEXT: Row[tuple[Range, str]] = Row(
    KNOWN_CONTEXT, **OF_AN_ENGINE, series=(Series(names.DECODE_CONTEXT, part=itemgetter(0)),)
)
TOKENS_PER_STEP: Row[float] = Row(_TOKENS_PER_STEP, **OF_AN_ENGINE, series=(Series(names.TOKENS_PER_STEP),))
# those without a signal of their own
DECODE_ROWS = (WEIGHTS_RIDGE, STEPS, BATCH, CONTEXT, TOKENS_PER_STEP)
