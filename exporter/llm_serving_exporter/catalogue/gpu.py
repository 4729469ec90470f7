"""Series of the GPUs, from NVML."""

from __future__ import annotations

from llm_serving_exporter.catalogue.spec import GPU_LABELS, MOST_RATIO, Group, Kind, Metric, Unit, list_declared

_UNSUPPORTED = "the GPU or driver does not support it, or permission is missing"


def _gpu(
    name: str,
    kind: Kind,
    unit: Unit,
    help: str,
    source: str,
    *labels: str,
    absent: str = _UNSUPPORTED,
    most: float | None = None,
) -> Metric:
    return Metric(name, kind, unit, Group.GPU, help, (*GPU_LABELS, *labels), absent, "", source, most=most)


GPU_UP = _gpu(
    "gpu_up", Kind.GAUGE, Unit.BOOLEAN, "Whether the GPU answers NVML.", "NVML", absent="the GPU was never seen by this process",
)  # fmt: skip
GPU_INFO = _gpu(
    "gpu_info", Kind.INFO, Unit.BOOLEAN, "Identity of the GPU; constant 1.", "NVML",
    "index", "pci_bus_id", "compute_capability", "driver_version", "mig_profile", "parent", "source",
)  # fmt: skip
GPU_MEMORY_USED = _gpu(
    "gpu_memory_used_bytes", Kind.GAUGE, Unit.BYTES, "Memory allocated on the GPU, without the driver's reserve where that is known.",
    "nvmlDeviceGetMemoryInfo_v2",
)  # fmt: skip
GPU_MEMORY_TOTAL = _gpu(
    "gpu_memory_total_bytes", Kind.GAUGE, Unit.BYTES, "Memory of the GPU or MIG instance.", "nvmlDeviceGetMemoryInfo_v2"
)
GPU_BUSY = _gpu(
    "gpu_busy_ratio", Kind.GAUGE, Unit.RATIO,
    "Share of time in which a kernel ran, 0 to 1. It does not say how much of the GPU the kernel used.",
    "nvmlDeviceGetUtilizationRates.gpu",
)  # fmt: skip
GPU_MEMORY_ACTIVE = _gpu(
    "gpu_memory_active_ratio", Kind.GAUGE, Unit.RATIO, "Share of time in which memory was read or written, 0 to 1. This is not bandwidth.",
    "nvmlDeviceGetUtilizationRates.memory",
)  # fmt: skip
GPU_DRAM_BANDWIDTH = _gpu(
    "gpu_dram_bandwidth_ratio", Kind.GAUGE, Unit.RATIO,
    "Memory bandwidth used over the theoretical maximum, 0 to 1, by all who use the GPU.", "NVML GPM metric 10",
    absent="GPM needs Hopper or newer (GB10 and guests of vGPU have none), driver 525 or newer, and gpu.gpm on", most=MOST_RATIO,
)  # fmt: skip
GPU_SM_ACTIVITY = _gpu(
    "gpu_sm_activity_ratio", Kind.GAUGE, Unit.RATIO, "Share of streaming multiprocessors busy, 0 to 1.", "NVML GPM metric 2",
    absent="as gpu_dram_bandwidth_ratio",
)  # fmt: skip
GPU_TENSOR_ACTIVITY = _gpu(
    "gpu_tensor_activity_ratio", Kind.GAUGE, Unit.RATIO, "Share of time in which the tensor cores were busy, 0 to 1.", "NVML GPM metric 5",
    absent="as gpu_dram_bandwidth_ratio",
)  # fmt: skip
GPU_BANDWIDTH_PEAK = _gpu(
    "gpu_memory_bandwidth_peak_bytes_per_second", Kind.GAUGE, Unit.BYTES_PER_SECOND,
    "Peak memory bandwidth by origin: nvml, catalogue, and used, the value that ceilings are computed from. A MIG instance has its share.",
    "nvml: 2 x nvmlDeviceGetMaxClockInfo(MEM) x nvmlDeviceGetMemoryBusWidth / 8; catalogue: the GPU's data sheet", "origin",
    absent="neither NVML nor the catalogue has it",
)  # fmt: skip
GPU_POWER = _gpu(
    "gpu_power_watts", Kind.GAUGE, Unit.WATTS, "Power drawn by the board, for all who use it.", "nvmlDeviceGetPowerUsage",
)  # fmt: skip
GPU_POWER_LIMIT = _gpu(
    "gpu_power_limit_watts", Kind.GAUGE, Unit.WATTS, "Power limit in force.", "nvmlDeviceGetEnforcedPowerLimit"
)
GPU_ENERGY = _gpu(
    "gpu_energy_joules_total", Kind.COUNTER, Unit.JOULES, "Energy used since the driver was loaded.", "nvmlDeviceGetTotalEnergyConsumption",
    absent="older than Volta, a MIG instance, or a guest of vGPU",
)  # fmt: skip
GPU_TEMPERATURE = _gpu(
    "gpu_temperature_celsius", Kind.GAUGE, Unit.CELSIUS, "Temperature by sensor.", "nvmlDeviceGetTemperature, field MEMORY_TEMP", "sensor",
)  # fmt: skip
GPU_CLOCK = _gpu("gpu_clock_hertz", Kind.GAUGE, Unit.HERTZ, "Clock now by domain.", "nvmlDeviceGetClockInfo", "domain")
GPU_CLOCK_MAX = _gpu(
    "gpu_clock_max_hertz", Kind.GAUGE, Unit.HERTZ, "Highest clock by domain.", "nvmlDeviceGetMaxClockInfo", "domain"
)
GPU_SLOWDOWN = _gpu(
    "gpu_slowdown", Kind.GAUGE, Unit.BOOLEAN, "Whether the clocks are reduced for this reason now.",
    "nvmlDeviceGetCurrentClocksEventReasons", "reason",
)  # fmt: skip
GPU_ECC_ERRORS = _gpu(
    "gpu_ecc_errors_total", Kind.COUNTER, Unit.COUNT, "Memory errors since the driver was loaded by kind.",
    "nvmlDeviceGetTotalEccErrors, volatile", "kind",
)  # fmt: skip
GPU_REMAPPED_ROWS = _gpu(
    "gpu_remapped_rows", Kind.GAUGE, Unit.COUNT, "Memory rows remapped over the card's life by kind of error.", "nvmlDeviceGetRemappedRows",
    "kind",
)  # fmt: skip
GPU_REMAP_PENDING = _gpu(
    "gpu_remap_pending", Kind.GAUGE, Unit.BOOLEAN, "Whether a row remap waits for a reset.", "nvmlDeviceGetRemappedRows"
)
GPU_REMAP_FAILED = _gpu(
    "gpu_remap_failed", Kind.GAUGE, Unit.BOOLEAN, "Whether a row remap has failed.", "nvmlDeviceGetRemappedRows"
)
GPU_XID_EVENTS = _gpu(
    "gpu_xid_events_total", Kind.COUNTER, Unit.COUNT, "XID errors since the exporter's start; the watched ones exist at 0.",
    "nvmlEventSetWait", "xid",
)  # fmt: skip
GPU_PCIE = _gpu(
    "gpu_pcie_bytes_total", Kind.COUNTER, Unit.BYTES, "Bytes over PCIe by direction, seen from the GPU.",
    "fields PCIE_COUNT_TX_BYTES, PCIE_COUNT_RX_BYTES", "direction",
)  # fmt: skip
GPU_NVLINK = _gpu(
    "gpu_nvlink_bytes_total", Kind.COUNTER, Unit.BYTES, "Payload bytes over all NVLinks by direction, seen from the GPU.",
    "fields NVLINK_THROUGHPUT_DATA_TX, _RX", "direction",
)  # fmt: skip
_CLAIMS = "configuration; else the kubelet; else the driver's process lists; else full UUIDs in the engine's environment; else all GPUs, for an only target that is no pod, where every process is seen"
_NO_CLAIM = "the GPUs of the target are not known: docs/kubernetes-gpus.md says what each way to run needs, or configure targets[].gpus"
GPU_TARGET_INFO = Metric(
    "gpu_target_info", Kind.INFO, Unit.BOOLEAN, Group.GPU,
    "Which GPU serves which target, and how that is known (origin: configured, kubelet, process, environment, only_target); constant 1. The target "
    "may be another exporter's, if a worker pod of its engine runs here.",
    ("gpu", "target", "origin"), _NO_CLAIM, _CLAIMS, "derived",
)  # fmt: skip
GPU_TARGET_SHARE = Metric(
    "gpu_target_share_ratio", Kind.GAUGE, Unit.RATIO, Group.GPU,
    "How much of the GPU or MIG instance is the target's, 0 to 1, and what says so (source: whole, configured, kubelet, process_memory). "
    "Shares of one GPU that add up to more than 1 are claims that contradict one another.",
    ("gpu", "target", "source"), f"{_NO_CLAIM}; or several targets have the GPU and neither configuration, kubelet nor process list say which part is whose",
    "configured: targets[].gpu_share; kubelet: the target's parts / parts that the kubelet knows; process_memory: of what is not stated, GPU memory of the target's processes / that of all such targets' processes; whole: 1, no other target has it",
    "derived",
)  # fmt: skip
NODE_GPUS = Metric(
    "node_gpus", Kind.GAUGE, Unit.COUNT, Group.GPU,
    "GPUs that NVIDIA's driver holds on this node. Fewer with gpu_up: this container sees some of them only.",
    ("node",), "gpu.enabled is off, or /sys/bus/pci does not show it", "/sys/bus/pci/drivers/nvidia", "sysfs",
)  # fmt: skip

GPU = list_declared(globals())
