"""What is read from a GPU. Every reading is optional: what a card does not support is None, never 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from llm_serving_exporter.model.attempt import Attempt


class GpuAbsence(StrEnum):
    """Why a reading of a GPU is not there: the values of `GpuReading.absent`."""

    NOT_SUPPORTED = "not_supported"  # by this card, driver or pynvml
    NO_PERMISSION = "no_permission"
    DISABLED = "disabled"  # by configuration
    IN_USE = (
        "in_use"  # NVML refuses while something else holds it; with GPM under MIG on driver 535: set gpu.gpm to false
    )
    NO_DATA = "no_data"  # NVML answers, without a value for now (not ready, NaN)
    NO_WINDOW = "no_window"  # needs two samples, and so far there is one
    ON_PARENT = "on_parent"  # a MIG instance has none of its own: the whole GPU's reading has it
    ON_INSTANCES = "on_instances"  # a GPU in MIG mode has none as a whole: its instances have it
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class MigInstance:
    """A MIG instance: ids on its parent, profile name ("1g.10gb"), memory and compute slices and the parent's totals where known."""

    gpu_instance_id: int
    compute_instance_id: int | None
    profile: str
    parent_uuid: str
    memory_slices: int | None
    memory_slices_total: int | None


@dataclass(frozen=True, slots=True)
class GpuIdentity:
    """What does not change while the driver is loaded. `uuid` is the key: indices move across reboots.

    Clocks are the maxima; `memory_bandwidth_peak_bytes_per_second` = 2 x max memory clock x bus width / 8
    (facts: NVML reports half the per-pin rate for every memory type), of the whole GPU even for a MIG instance.
    """

    uuid: str
    index: int
    name: str
    pci_bus_id: str | None = None
    pci_device_id: int | None = None
    minor_number: int | None = None
    architecture: str | None = None
    compute_capability: tuple[int, int] | None = None
    memory_total_bytes: int | None = None
    memory_bus_width_bits: int | None = None
    sm_clock_max_hertz: float | None = None
    memory_clock_max_hertz: float | None = None
    memory_bandwidth_peak_bytes_per_second: float | None = None
    mig: MigInstance | None = None


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A compute process on a GPU: pid as the driver reports it (the host's), bytes it holds where known."""

    pid: int
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU at one instant.

    Ratios are 0-1. `busy_ratio` is the share of time in which a kernel ran, `memory_active_ratio` the share of time in
    which memory was read or written: both are time fractions, never bandwidth. `dram_bandwidth_ratio`,
    `sm_activity_ratio`, `tensor_activity_ratio` come from GPM, averaged over `gpm_window_seconds`. Counters
    (`energy_joules_total`, `*_bytes_total`, `ecc_errors_total`, `xid_events_total`) only grow while the driver is loaded.
    `slowdown` maps a reason to whether it holds now. `lost` is True where the GPU no longer answers: then everything else
    but its identity and its XID counts is None.
    `absent` maps a reading's field name to why it is missing, with a dot and the key where one member of a mapping is.
    """

    identity: GpuIdentity
    lost: bool = False
    memory_used_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    memory_total_bytes: int | None = None
    busy_ratio: float | None = None
    memory_active_ratio: float | None = None
    dram_bandwidth_ratio: float | None = None
    sm_activity_ratio: float | None = None
    tensor_activity_ratio: float | None = None
    gpm_window_seconds: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    energy_joules_total: float | None = None
    temperature_celsius: Mapping[str, float] = field(default_factory=dict)  # sensor: gpu, memory
    clock_hertz: Mapping[str, float] = field(default_factory=dict)  # domain: sm, memory
    slowdown: Mapping[str, bool] | None = None
    ecc_errors_total: Mapping[str, int] = field(default_factory=dict)  # kind: corrected, uncorrected
    remapped_rows: Mapping[str, int] = field(default_factory=dict)  # kind: correctable, uncorrectable
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    xid_events_total: Mapping[int, int] | None = None
    pcie_bytes_total: Mapping[str, int] = field(default_factory=dict)  # direction: tx, rx
    nvlink_bytes_total: Mapping[str, int] = field(default_factory=dict)  # direction: tx, rx
    processes: tuple[GpuProcess, ...] | None = None
    absent: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GpuReadings:
    """One pass over every GPU that is visible.

    `attempt` is the health of the pass; where it failed `gpus` is empty. `source` says where the readings come from:
    "nvml", "replay" or "simulated". `driver_version` is None where it could not be read.
    """

    attempt: Attempt
    source: str
    monotonic_seconds: float
    gpus: tuple[GpuReading, ...] = ()
    driver_version: str | None = None
