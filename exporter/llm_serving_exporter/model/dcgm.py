"""What dcgm-exporter's page says about GPUs. Every reading is optional: what the page lacks is None, never 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from llm_serving_exporter.model.attempt import Attempt
from llm_serving_exporter.model.snapshot import Absence, Quality


@dataclass(frozen=True, slots=True)
class DcgmReading:
    """One GPU, or one MIG instance of it (`gpu_instance_id`); `uuid` is the whole GPU's for either.

    Ratios are 0-1, averages over dcgm-exporter's collect interval: of the whole GPU, or of what the instance owns (NVIDIA's example of
    an A100 in seven 1g.5gb instances shows 0.80 for an instance and 0.69 for the GPU, which has 8 memory slices: 7/8 x 0.80 = 0.70).
    `dram_bandwidth_ratio` is the share of cycles in which the memory interface moved data, so that x peak is bandwidth;
    DCGM_FI_DEV_MEM_COPY_UTIL, a share of time, is not read. `power_watts` and `energy_joules_total` (since the driver was loaded)
    are the whole GPU's even for an instance. `absent` has a reason for each of these fields that is None.
    """

    uuid: str
    gpu_instance_id: int | None = None
    mig_profile: str = ""
    gpu_name: str = ""
    host_name: str = ""
    dram_bandwidth_ratio: float | None = None
    sm_activity_ratio: float | None = None
    tensor_activity_ratio: float | None = None
    engine_activity_ratio: float | None = None
    power_watts: float | None = None
    energy_joules_total: float | None = None
    memory_used_bytes: float | None = None
    absent: Mapping[str, Absence] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DcgmReadings:
    """One reading of dcgm-exporter's page; where it failed `gpus` is empty and `attempt` says why.

    `monotonic_seconds` is when it ended. The values are older, by up to dcgm-exporter's collect interval (30 s by default), and
    repeat until the next collection: hence `quality`.
    """

    attempt: Attempt
    monotonic_seconds: float
    gpus: tuple[DcgmReading, ...] = ()
    quality: Quality = Quality.SLOW


@dataclass(frozen=True, slots=True)
class DcgmRatios:
    """A ratio of each GPU of a target by UUID; None where one of them is missing: then `absence` has the code and `why` a sentence."""

    by_uuid: Mapping[str, float] | None
    absence: Absence = Absence.AVAILABLE
    why: str = ""
