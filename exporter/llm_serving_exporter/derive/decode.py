"""The rows of decode: its steps and their context, its ceiling at the batch of now and at the largest one, the ridge."""

from __future__ import annotations

import math

from llm_serving_exporter.catalogue import roofline as names
from llm_serving_exporter.derive import capacity
from llm_serving_exporter.derive import roof as roofs
from llm_serving_exporter.derive.bandwidth import IMPOSSIBLE
from llm_serving_exporter.derive.figures import figure
from llm_serving_exporter.derive.inputs import HARDWARE, window_by
from llm_serving_exporter.derive.load import ENCODER, LOAD, WORK, WORK_FIELDS, WORK_WINDOW, Load
from llm_serving_exporter.derive.roof import Ceiling
from llm_serving_exporter.derive.signals import NOT_ON_A_FRONT_END, Row, Series
from llm_serving_exporter.derive.steps import list_step_fields, speculates, tokens_per_sequence_step
from llm_serving_exporter.derive.traffic import Work
from llm_serving_exporter.model.derived import Cause, Range
from llm_serving_exporter.model.hardware import Hardware
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.model.window import EngineWindow, EngineWindows

# a prefill replica makes a request's first token only: what decode could do is not what it works under
_SILENT = frozenset({Role.PREFILL, Role.FRONTEND})
_NOTHING_DECODED = "Nothing was decoded within the window."


def _decoding(load: Load | Absence, encoder: bool) -> Load | Absence:  # a figure's inputs go by place
    if encoder:
        return Absence.NO_DECODE
    return load if isinstance(load, Absence) or load.done.sequence_steps else Absence.IDLE


def _ceiling(load: Load | Absence) -> Ceiling | Absence:
    if isinstance(load, Absence):
        return load
    return capacity.decode_ceiling(load.roof, load.done, load.context.expected) or Absence.PEAK_UNKNOWN


def _ratio(load: Load | Absence, ceiling: Ceiling | Absence) -> float | Absence:
    if isinstance(load, Absence):
        return load
    if isinstance(ceiling, Absence):
        return ceiling
    return load.done.sequence_steps / load.done.elapsed_seconds / ceiling.tokens_per_second


def _cause(ratio: float | Absence, ceiling: Ceiling | Absence, of_bytes: Cause | None) -> Cause | None:
    """Nothing known explains a rate above the upper bound, which reads what sequences share once."""
    if isinstance(ratio, Absence) or isinstance(ceiling, Absence):
        return None
    of_upper = ratio * (ceiling.tokens_per_second / ceiling.read_once_tokens_per_second)
    return (of_bytes or Cause.INPUTS) if names.DECODE_RATIO.bounds.suspects(of_upper) else None


def _ridge(load: Load | Absence) -> float | Absence:
    if isinstance(load, Absence):
        return load
    ridge = roofs.ridge_batch(load.roof, load.context.expected, tokens_per_step=1 + load.done.drafts)
    if ridge is None:
        return Absence.PEAK_UNKNOWN
    return ridge if math.isfinite(ridge) else Absence.NO_RIDGE


def _weights_ridge(load: Load | Absence) -> float | None:
    """With no context; recurrent state is read at any: it too may take longer than computing with it."""
    if isinstance(load, Absence):
        return None
    ridge = roofs.weights_ridge_batch(load.roof, tokens_per_step=1 + load.done.drafts)
    return ridge if ridge is not None and math.isfinite(ridge) else None


def _capacity(window: EngineWindow, load: Load | Absence, tokens_per_step: float | None) -> float | Absence:
    if isinstance(load, Absence):
        return load
    steps = capacity.decode_steps_per_second(load.roof, window, load.done, load.context.expected)
    each = tokens_per_step or 1.0 if speculates(window) else 1.0
    return steps if isinstance(steps, Absence) else steps * each


def _context(load: Load | Absence) -> tuple[Range, str] | None:
    if isinstance(load, Absence) or not load.done.sequence_steps:
        return None
    return load.context, load.context_source


def _batch(done: Work | Absence, hardware: Hardware) -> float | None:
    if isinstance(done, Absence):
        return None
    return done.decoding(hardware.parallel.pipeline if hardware.parallel else 1)


def _tokens_per_second(ceiling: Ceiling) -> float:
    return ceiling.tokens_per_second


def _upper(ceiling: Ceiling) -> float | None:
    """Nothing where sequences share nothing, and it is the ceiling."""
    upper = ceiling.read_once_tokens_per_second
    return upper if upper > ceiling.tokens_per_second else None


def _ridge_intensity(ceiling: Ceiling) -> float | None:
    return ceiling.ridge_flops_per_byte


def _steps_per_second(done: Work) -> dict[str, float]:
    how = "counted" if done.steps.counted else "inter_token_latency"
    return {how: done.steps.count / done.elapsed_seconds}


def _range(context: tuple[Range, str]) -> Range:
    return context[0]


_DECODING = figure(_decoding, LOAD, ENCODER)
DECODE_CEILING = figure(_ceiling, _DECODING)
_RATIO = figure(_ratio, _DECODING, DECODE_CEILING)
KNOWN_CONTEXT = figure(_context, LOAD)


def _tokens_window(windows: EngineWindows) -> EngineWindow:
    return windows.cover((*list_step_fields(windows.configured.last), "decode_tokens_total"))


_TOKENS_PER_STEP = figure(tokens_per_sequence_step, window_by(_tokens_window))

CEILING: Row[Ceiling] = Row(
    DECODE_CEILING,
    names.DECODE_CEILING.name,
    fields=WORK_FIELDS,
    silent=_SILENT,
    sentences={Absence.IDLE: _NOTHING_DECODED},
    of_an_engine=True,
    series=(
        Series(names.DECODE_CEILING, part=_tokens_per_second),
        Series(names.DECODE_CEILING_UPPER, part=_upper),
        Series(names.RIDGE, part=_ridge_intensity),
    ),
)
RATIO: Row[float] = Row(
    _RATIO,
    names.DECODE_RATIO.name,
    fields=WORK_FIELDS,
    silent=_SILENT,
    sentences={Absence.IDLE: _NOTHING_DECODED},
    cause=figure(_cause, _RATIO, DECODE_CEILING, IMPOSSIBLE),
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
    figure(_ridge, _DECODING),
    names.BATCH_RIDGE.name,
    fields=WORK_FIELDS,
    silent=_SILENT,
    sentences={Absence.IDLE: _NOTHING_DECODED},
    of_an_engine=True,
    series=(Series(names.BATCH_RIDGE, ("step",)),),
)
WEIGHTS_RIDGE: Row[float] = Row(
    figure(_weights_ridge, _DECODING),
    silent=_SILENT,
    of_an_engine=True,
    series=(Series(names.BATCH_RIDGE, ("weights",)),),
)
STEPS: Row[Work] = Row(
    WORK,
    silent=NOT_ON_A_FRONT_END,
    of_an_engine=True,
    series=(Series(names.STEPS_PER_SECOND, part=_steps_per_second),),
)
BATCH: Row[float] = Row(figure(_batch, WORK, HARDWARE), silent=NOT_ON_A_FRONT_END, of_an_engine=True)
CONTEXT: Row[tuple[Range, str]] = Row(
    KNOWN_CONTEXT,
    silent=NOT_ON_A_FRONT_END,
    of_an_engine=True,
    series=(Series(names.DECODE_CONTEXT, part=_range),),
)
TOKENS_PER_STEP: Row[float] = Row(
    _TOKENS_PER_STEP, silent=NOT_ON_A_FRONT_END, of_an_engine=True, series=(Series(names.TOKENS_PER_STEP),)
)
# those without a signal of their own
OTHER_ROWS = (WEIGHTS_RIDGE, STEPS, BATCH, CONTEXT, TOKENS_PER_STEP)
