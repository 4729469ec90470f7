"""What dcgm-exporter's page says about GPUs. Every reading is optional: what the page lacks is None, never 0."""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.model.attempt import Attempt
from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.model.snapshot import Absence, Quality


class DcgmReading(Struct, frozen=True):
    """One GPU, or one MIG instance of it. None: not on the page, with the reason in `absent`.

    Ratios are 0-1, averages over dcgm-exporter's collect interval: of the whole GPU, or of what the instance owns (NVIDIA's example of
    an A100 in seven 1g.5gb instances shows 0.80 for an instance and 0.69 for the GPU, which has 8 memory slices: 7/8 x 0.80 = 0.70).
    """

    uuid: str  # of the whole GPU, also for an instance
    gpu_instance_id: int | None = None  # None: the whole GPU
    mig_profile: str = ""  # such as "1g.10gb"; "": the whole GPU
    gpu_name: str = ""  # as NVML has it
    host_name: str = ""  # of dcgm-exporter's node, as its label says it; "": not said
    # share of cycles in which the memory interface moved data: times the peak it is bandwidth
    # (DCGM_FI_DEV_MEM_COPY_UTIL, a share of time, is not read)
    dram_bandwidth_ratio: float | None = None
    # share of cycles in which a multiprocessor had a warp, mean over all of them
    sm_activity_ratio: float | None = None
    tensor_activity_ratio: float | None = None  # share of cycles in which the tensor cores worked
    engine_activity_ratio: float | None = None  # share of time in which the graphics or compute engine was in use
    power_watts: float | None = None  # of the whole GPU, also for an instance
    energy_joules_total: float | None = None  # of the whole GPU, also for an instance; since the driver was loaded
    memory_used_bytes: float | None = None  # framebuffer in use
    absent: Mapping[str, Absence] = field(default_factory=dict)  # field that is None -> why


class DcgmReadings(Struct, frozen=True):
    """One reading of dcgm-exporter's page."""

    attempt: Attempt  # its health; where it failed `gpus` is empty
    # when it ended; the values are older, by up to dcgm-exporter's collect interval (30 s by default)
    monotonic_seconds: float
    gpus: tuple[DcgmReading, ...] = ()  # GPUs and MIG instances, in the page's order
    quality: Quality = Quality.SLOW  # slow: values repeat until dcgm-exporter collects again


class DcgmRatios(Struct, frozen=True):
    """One ratio of each GPU of a target."""

    by_uuid: Mapping[str, float] | None  # 0-1; None: one of the GPUs lacks it, or none is known
    absence: Absence = Absence.AVAILABLE  # why `by_uuid` is None
    why: str = ""  # the same as a sentence for a person; "" where nothing is missing
