"""A target's GPUs at one pass, taken together."""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.model.snapshot import Absence


class Clocks(Struct, frozen=True):
    """How fast the multiprocessors of one target's GPUs run, and what holds them down: means over the GPUs."""

    sm_hertz: float  # now
    sm_max_hertz: float  # that the cards can run at
    power_watts: float | None = None  # drawn by a board; None: at least one does not say
    power_limit_watts: float | None = None  # in force for a board
    held_now: Mapping[str, float] = field(default_factory=dict)  # cause (power, thermal) -> share of the GPUs
    # reason of GpuReading.held_seconds_total -> seconds so far, where every GPU's driver counts them
    held_seconds_total: Mapping[str, float] = field(default_factory=dict)


class DeviceSample(Struct, frozen=True):
    """Means over the GPUs of one target. None: at least one of them lacks the reading, with the reason in `absent`."""

    monotonic_seconds: float  # when the pass over the GPUs ended
    gpus: int  # how many GPUs the target has here
    gpm_ratio: float | None = None  # memory bandwidth used over the peak, 0-1, by NVML's GPM
    dcgm_ratio: float | None = None  # the same by dcgm-exporter
    memory_used_bytes: float | None = None  # of all of them together, not a mean
    absent: Mapping[str, Absence] = field(default_factory=dict)  # field that is None -> why
    clocks: Clocks | None = (
        None  # None: at least one GPU does not show its clock or what holds it, or they are not the target's alone
    )
