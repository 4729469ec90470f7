"""A target's GPUs at one pass, taken together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from llm_serving_exporter.model.frozen import dataclass
from llm_serving_exporter.model.snapshot import Absence


@dataclass(frozen=True, slots=True)
class DeviceSample:
    """Means over the GPUs of one target. None: at least one of them lacks the reading, with the reason in `absent`."""

    monotonic_seconds: float  # when the pass over the GPUs ended
    gpus: int  # how many GPUs the target has here
    gpm_ratio: float | None = None  # memory bandwidth used over the peak, 0-1, by NVML's GPM
    dcgm_ratio: float | None = None  # the same by dcgm-exporter
    memory_used_bytes: float | None = None  # of all of them together, not a mean
    absent: Mapping[str, Absence] = field(default_factory=dict)  # field that is None -> why
