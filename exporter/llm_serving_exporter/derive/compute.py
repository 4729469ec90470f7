"""The rows of compute: the time that the window's FLOPs need at the dense peak, and the capacity of prefill, which compute binds."""

from __future__ import annotations

from llm_serving_exporter.catalogue import roofline as names
from llm_serving_exporter.derive import capacity
from llm_serving_exporter.derive.bandwidth import TRAFFIC
from llm_serving_exporter.derive.figures import figure
from llm_serving_exporter.derive.inputs import HARDWARE
from llm_serving_exporter.derive.load import LOAD, TASK, WORK_FIELDS, Load, Task
from llm_serving_exporter.derive.roof import compute_seconds
from llm_serving_exporter.derive.signals import NOT_ON_A_FRONT_END, Row, Series, gauge
from llm_serving_exporter.derive.traffic import Traffic, add_flops, decode_flops, prefill_flops
from llm_serving_exporter.model.derived import Cause
from llm_serving_exporter.model.hardware import Hardware
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.shape import Precision
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.target import Role

Flops = dict[Precision, float]


def _prefill_flops(task: Task | Absence) -> Flops | Absence:
    return task if isinstance(task, Absence) else prefill_flops(task.roof, task.done)


def _prefill_seconds(task: Task | Absence, flops: Flops | Absence) -> float | None:
    return None if isinstance(task, Absence) or isinstance(flops, Absence) else compute_seconds(task.roof, flops)


def _prefill_capacity(task: Task | Absence, seconds: float | None) -> float | Absence:
    return task if isinstance(task, Absence) else capacity.prefill_tokens_per_second(task.roof, task.done, seconds)


def _flops(load: Load | Absence, prefill: Flops | Absence) -> Flops | Absence:
    if isinstance(load, Absence):
        return load
    if isinstance(prefill, Absence):
        return prefill
    return add_flops(prefill, decode_flops(load.roof, load.done, load.context))


def _flops_per_second(load: Load | Absence, flops: Flops | Absence) -> float | Absence:
    if isinstance(load, Absence):
        return load
    if isinstance(flops, Absence):
        return flops
    return add_up(flops.values()) / load.done.elapsed_seconds


def _ratio(load: Load | Absence, flops: Flops | Absence) -> float | Absence:
    if isinstance(load, Absence):
        return load
    if isinstance(flops, Absence):
        return flops
    seconds = compute_seconds(load.roof, flops)
    return Absence.PEAK_UNKNOWN if seconds is None else seconds / load.done.elapsed_seconds


def _cause(ratio: float | Absence, hardware: Hardware) -> Cause | None:
    if isinstance(ratio, Absence) or not names.COMPUTE_RATIO.bounds.suspects(ratio):
        return None
    return Cause.GPU_COUNT if hardware.assumed_gpus else Cause.INPUTS


def _intensity(flops: Flops | Absence, moved: Traffic | Absence) -> float | None:
    if isinstance(flops, Absence) or isinstance(moved, Absence) or not moved.total.expected:
        return None
    return add_up(flops.values()) / moved.total.expected


_PREFILL_FLOPS = figure(_prefill_flops, TASK)
PREFILL_SECONDS = figure(_prefill_seconds, TASK, _PREFILL_FLOPS)
_FLOPS = figure(_flops, LOAD, _PREFILL_FLOPS)
_RATIO = figure(_ratio, LOAD, _FLOPS)

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
RATIO = gauge(
    names.COMPUTE_RATIO,
    _RATIO,
    fields=WORK_FIELDS,
    silent=NOT_ON_A_FRONT_END,
    cause=figure(_cause, _RATIO, HARDWARE),
    of_an_engine=True,
    kept=True,
)
FLOPS_PER_SECOND: Row[float] = Row(
    figure(_flops_per_second, LOAD, _FLOPS), silent=NOT_ON_A_FRONT_END, of_an_engine=True
)
INTENSITY: Row[float] = Row(
    figure(_intensity, _FLOPS, TRAFFIC),
    silent=NOT_ON_A_FRONT_END,
    of_an_engine=True,
    series=(Series(names.INTENSITY),),
)
# those without a signal of their own
OTHER_ROWS = (FLOPS_PER_SECOND, INTENSITY)
