"""What is read of a node's GPUs: from the driver, dcgm-exporter, the kubelet. What a card or page does not have is None, never 0."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum

from llm_serving_exporter.model.hardware import BusySource
from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.model.sample import Attempt
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.target import NOWHERE, NodePlace

# NVIDIA MIG user guide, supported profiles: cards with 8 memory slices have 7 compute slices (A100, H100, H200, B200), those with 4 have 4
_COMPUTE_SLICES = {8: 7, 4: 4}
# "1g.10gb", "1c.3g.40gb", "1g.10gb+me": compute slices of the compute instance where it has fewer, else of the GPU instance
_PROFILE = re.compile(r"(?:(\d+)c\.)?(\d+)g\.")
_HEX = r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"
# of a GPU or a MIG instance, whole; MIG-GPU-…/1/0 is the form of drivers before R470
GPU_UUID = re.compile(rf"(?:(?:GPU|MIG)-{_HEX}|MIG-GPU-{_HEX}/\d+/\d+)")


# sources of readings that are the driver's, or stand for it; any other is a device exporter's
DRIVER_SOURCES = frozenset({"nvml", "replay", "simulated"})


class GpuAbsence(StrEnum):
    """Why a reading of a GPU is not there: the values of `GpuReading.absent`."""

    NOT_SUPPORTED = "not_supported"  # by this card, driver or pynvml
    NO_PERMISSION = "no_permission"
    DISABLED = "disabled"  # by configuration
    # NVML refuses while something else holds it; with GPM under MIG on driver 535: set gpu.gpm to false
    IN_USE = "in_use"
    NO_DATA = "no_data"  # NVML answers, without a value for now (not ready, NaN)
    NO_WINDOW = "no_window"  # needs two samples, and so far there is one
    ON_PARENT = "on_parent"  # a MIG instance has none of its own: the whole GPU's reading has it
    ON_INSTANCES = "on_instances"  # a GPU in MIG mode has none as a whole: its instances have it
    IMPLAUSIBLE = "implausible"  # the driver's value cannot be true
    ERROR = "error"


class BusyTime(Struct, frozen=True):
    """How long a GPU was busy, as far as it was watched, since the watch began; both only grow while the source stays."""

    source: BusySource  # who watched it: GPM or NVML
    busy_seconds: float  # with work, of those covered
    covered_seconds: float  # that were watched


class MigInstance(Struct, frozen=True):
    """A MIG instance: a part of a GPU that applications see as a GPU of its own."""

    gpu_instance_id: int  # on its parent
    compute_instance_id: int | None  # within the GPU instance; None: the driver does not say
    profile: str  # such as "1g.10gb"; "": the driver does not say
    parent_uuid: str  # of the whole GPU
    memory_slices: int | None  # that it owns; None: unknown
    memory_slices_total: int | None  # of the parent; None: unknown

    @property
    def compute_share(self) -> float | None:
        """Its part of the card's compute slices, by its profile; None where not known. Those of a card add up to 1 at most."""
        total = _COMPUTE_SLICES.get(self.memory_slices_total or 0)
        profile = _PROFILE.match(self.profile)
        slices = 0 if profile is None else int(profile[1] or profile[2])
        return slices / total if total is not None and 0 < slices <= total else None


class GpuIdentity(Struct, frozen=True):
    """What does not change while the driver is loaded. None: the card or driver does not say."""

    uuid: str  # the key of a GPU everywhere: indices move across reboots
    index: int  # as NVML enumerates, from 0; an instance has its parent's
    name: str  # product name as NVML has it, such as "NVIDIA H100 80GB HBM3"; "": unknown
    pci_bus_id: str | None = None  # domain:bus:device.function
    pci_device_id: int | None = None  # device id << 16 | vendor id
    minor_number: int | None = None  # N of /dev/nvidiaN
    architecture: str | None = None  # such as "hopper"
    compute_capability: tuple[int, int] | None = None  # major and minor, (9, 0) for Hopper
    memory_total_bytes: int | None = None  # of the GPU, or of the instance
    memory_bus_width_bits: int | None = None  # of the whole GPU
    sm_clock_max_hertz: float | None = None  # highest clock of the multiprocessors
    memory_clock_max_hertz: float | None = None  # as NVML has it: half the rate of a pin, for every memory type
    # 2 x clock x bus width / 8, of the whole GPU also for an instance
    memory_bandwidth_peak_bytes_per_second: float | None = None
    mig: MigInstance | None = None  # None: the whole GPU
    is_virtual: bool = False  # a guest's part of a card that the host's driver has (NVIDIA vGPU)
    partitions: int = 1  # equal parts of the card, of which this is one (AMD's DPX, QPX, CPX)


class GpuProcess(Struct, frozen=True):
    """A compute process on a GPU."""

    pid: int  # on the host, as the driver reports it, not that of a container
    memory_bytes: int | None  # GPU memory that it holds; None: the driver does not say


class GpuReading(Struct, frozen=True):
    """One GPU, or one MIG instance, at one instant. Ratios are 0-1. None, or an absent key: see `absent`.

    Counters (`energy_joules_total`, `ecc_errors_total`, `*_bytes_total`) only grow while the driver is loaded.
    """

    identity: GpuIdentity
    lost: bool = False  # whether the GPU no longer answers: then only its identity and its XID counts are here
    memory_used_bytes: int | None = None  # by applications, without the driver's own where that is known
    memory_reserved_bytes: int | None = None  # kept by the driver and firmware
    memory_total_bytes: int | None = None  # of the GPU, or of the instance
    busy_ratio: float | None = None  # share of time in which a kernel ran, however small
    memory_active_ratio: float | None = None  # share of time in which memory was read or written, never bandwidth
    dram_bandwidth_ratio: float | None = None  # memory bandwidth used over the peak, by GPM
    sm_activity_ratio: float | None = None  # share of multiprocessors that were busy, by GPM
    tensor_activity_ratio: float | None = None  # share of time in which the tensor cores were busy, by GPM
    busy_time: BusyTime | None = None  # None: nothing watches it
    gpm_window_seconds: float | None = None  # that the three ratios above are averages over
    power_watts: float | None = None  # drawn by the board
    power_limit_watts: float | None = None  # in force now
    energy_joules_total: float | None = None  # since the driver was loaded
    temperature_celsius: Mapping[str, float] = field(default_factory=dict)  # sensor: gpu, memory
    clock_hertz: Mapping[str, float] = field(default_factory=dict)  # domain: sm, memory
    slowdown: Mapping[str, bool] | None = None  # reason to hold the clocks down -> whether it holds now
    # reason of `slowdown`, or "thermal" for any heat -> seconds that it held the clocks down
    held_seconds_total: Mapping[str, float] = field(default_factory=dict)
    ecc_errors_total: Mapping[str, int] = field(default_factory=dict)  # kind: corrected, uncorrected
    remapped_rows: Mapping[str, int] = field(default_factory=dict)  # kind: correctable, uncorrectable
    remap_pending: bool | None = None  # whether a remapped memory row waits for a reset of the GPU
    remap_failed: bool | None = None  # whether a memory row could not be remapped: the card wants replacing
    xid_events_total: Mapping[int, int] | None = None  # XID number -> events since the exporter's start
    pcie_bytes_total: Mapping[str, int] = field(default_factory=dict)  # direction: tx, rx
    nvlink_bytes_total: Mapping[str, int] = field(default_factory=dict)  # direction: tx, rx; AMD's XGMI likewise
    processes: tuple[GpuProcess, ...] | None = None  # compute processes; (): none runs
    absent: Mapping[str, str] = field(default_factory=dict)  # field, or "field.key" of a mapping -> why (GpuAbsence)


class GpuReadings(Struct, frozen=True):
    """One pass over every GPU that is visible."""

    attempt: Attempt  # where it failed `gpus` is empty
    source: str  # where the readings come from: "nvml", "replay", "simulated", or the name of a device exporter's table
    monotonic_seconds: float  # when the pass ended
    gpus: tuple[GpuReading, ...] = ()  # with MIG instances
    driver_version: str | None = None  # None: it could not be read


def count_cards(gpus: Iterable[GpuReading]) -> int:
    """Whole cards that are seen: a card is seen by its instances too."""
    return len({gpu.identity.mig.parent_uuid if gpu.identity.mig else gpu.identity.uuid for gpu in gpus})


class DcgmReading(Struct, frozen=True):
    """One GPU, or one MIG instance of it, as dcgm-exporter's page has it.

    The ratio is 0-1, an average over dcgm-exporter's collect interval: of the whole GPU, or of what the instance owns (NVIDIA's example of
    an A100 in seven 1g.5gb instances shows 0.80 for an instance and 0.69 for the GPU, which has 8 memory slices: 7/8 x 0.80 = 0.70).
    """

    uuid: str  # of the whole GPU, also for an instance
    gpu_instance_id: int | None = None  # None: the whole GPU
    # share of cycles in which the memory interface moved data: times the peak it is bandwidth
    # (DCGM_FI_DEV_MEM_COPY_UTIL, a share of time, is not read); or why the page has none
    dram_bandwidth_ratio: float | Absence = Absence.NOT_EXPORTED


class DcgmReadings(Struct, frozen=True):
    """One reading of dcgm-exporter's page."""

    attempt: Attempt  # where it failed `gpus` is empty
    # when it ended; values are older, by up to dcgm-exporter's collect interval (30 s by default)
    monotonic_seconds: float
    gpus: tuple[DcgmReading, ...] = ()  # with MIG instances, in the page's order


class DeviceGrant(Struct, frozen=True):
    """A device that a container has, by the names that the kubelet knows it by."""

    resource: str  # "nvidia.com/gpu" of a device plugin; of a claim (DRA) the driver, "gpu.nvidia.com"
    device: str  # its id in the plugin's own form; of a claim: its name in the pool
    pool: str = ""  # of a claim; "": from a device plugin
    cdi: tuple[str, ...] = ()  # names of the claim's CDI devices, such as "nvidia.com/gpu=GPU-…"


class ContainerGrants(Struct, frozen=True):
    """A container of a pod on this node, and its devices of any kind."""

    namespace: str
    pod: str
    container: str
    grants: tuple[DeviceGrant, ...]


class KubeletReadings(Struct, frozen=True):
    """One answer of the kubelet."""

    attempt: Attempt  # where it failed `containers` is empty
    monotonic_seconds: float  # when the answer was there
    # of every pod that the kubelet lists, in some releases also finished ones
    containers: tuple[ContainerGrants, ...] = ()
    allocatable: tuple[DeviceGrant, ...] | None = None  # of this node, given out or not; None: the kubelet does not say


class Worker(Struct, frozen=True):
    """A pod that works for a target whose server is in another pod: a worker of a LeaderWorkerSet or of a Ray cluster."""

    namespace: str
    pod: str
    target: str  # name of the leader's target
    model_name: str = ""  # as served by the leader; "": not known here
    role: str = "unified"  # of the leader; a value of Role
    pod_uid: str = ""  # tells it from the next pod of its name; "": not known
    place: NodePlace = NOWHERE


class WorkerGpus(Struct, frozen=True):
    """GPUs of this node that work for a target which another exporter may read."""

    worker: Worker
    uuids: tuple[str, ...]  # (): not known, for the reason `why`
    why: str = ""
    # of each that is not all the worker's; None: not known
    shares: Mapping[str, float | None] = field(default_factory=dict)
