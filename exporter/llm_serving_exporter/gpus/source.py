"""What any source of GPU readings offers: NVML here, a replay or a simulated fleet elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from llm_serving_exporter.catalogue.gpu import GPU
from llm_serving_exporter.model.gpu import GpuAbsence, GpuReading, GpuReadings
from llm_serving_exporter.model.record import name_fields, replace


class GpuSource(Protocol):
    """A source of GPU readings."""

    def read(self) -> GpuReadings:
        """One pass over every GPU. Never raises: what went wrong is in `attempt`."""
        ...

    def close(self) -> None:
        """Give back what the source holds; may be called twice. A `read()` afterwards is a failed attempt."""
        ...


# --- The gate of GPU readings: what a driver says and cannot be true goes no further, into no counter of energy or cost.


# a reading's field is published under its own name behind this
_PREFIX = "gpu_"
_BOUNDS = {
    metric.name.removeprefix(_PREFIX): metric.bounds
    for metric in GPU
    if metric.name.removeprefix(_PREFIX) in name_fields(GpuReading)
}


def drop_implausible(readings: GpuReadings) -> GpuReadings:
    """The readings without what is outside its declared range; such a field is absent as implausible."""
    return replace(readings, gpus=tuple(map(_drop, readings.gpus)))


def _drop(gpu: GpuReading) -> GpuReading:
    without: dict[str, Any] = {}
    absent: dict[str, str] = {}
    for field, bounds in _BOUNDS.items():
        value = getattr(gpu, field)
        if value is None:
            continue
        if isinstance(value, Mapping):
            wrong = [key for key, number in value.items() if not bounds.admits(number)]
            if wrong:
                without[field] = {key: number for key, number in value.items() if key not in wrong}
                absent |= {f"{field}.{key}": GpuAbsence.IMPLAUSIBLE.value for key in wrong}
        elif not bounds.admits(value):
            without[field] = None
            absent[field] = GpuAbsence.IMPLAUSIBLE.value
    return replace(gpu, **without, absent={**gpu.absent, **absent}) if without else gpu
