"""A target's GPUs at one pass, taken together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from llm_serving_exporter.model.snapshot import Absence


@dataclass(frozen=True, slots=True)
class DeviceSample:
    """Means over the GPUs of one target; None where any of them lacks the reading, with the reason in `absent` by field name.

    `gpm_ratio` and `dcgm_ratio`: memory bandwidth used over the peak, 0-1, from NVML's GPM and from dcgm-exporter.
    `memory_used_bytes` is their sum.
    """

    monotonic_seconds: float
    gpus: int
    gpm_ratio: float | None = None
    dcgm_ratio: float | None = None
    memory_used_bytes: float | None = None
    absent: Mapping[str, Absence] = field(default_factory=dict)
