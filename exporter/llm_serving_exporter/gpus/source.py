"""What any source of readings offers: NVML here, a replay or a simulated fleet elsewhere; which of its readings are taken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from llm_serving_exporter.catalogue.gpu import GPU
from llm_serving_exporter.model.gpu import DcgmReadings, GpuAbsence, GpuReading, GpuReadings, KubeletReadings
from llm_serving_exporter.model.record import name_fields, replace

T_co = TypeVar("T_co", covariant=True)


class Source(Protocol[T_co]):
    """What is read of this node: GPUs by a driver or a device exporter, a dcgm-exporter, a kubelet; or a simulation of them."""

    def read(self) -> T_co:
        """One pass. Never raises: what went wrong is in its `attempt`."""
        ...

    def close(self) -> None:
        """Give back what the source holds; may be called twice. A `read()` afterwards is a failed attempt."""
        ...


GpuSource = Source[GpuReadings]
DcgmReader = Source[DcgmReadings]
KubeletReader = Source[KubeletReadings | None]  # None: there is no kubelet to ask


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
