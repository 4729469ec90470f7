"""A device handle -> what a whole GPU shows now, in base units. NVML's units stand at each conversion."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

from llm_serving_exporter.gpu.calls import NOT_SUPPORTED, ON_PARENT, Device
from llm_serving_exporter.gpu.fields import FieldReader
from llm_serving_exporter.gpu.gpm import GpmReading
from llm_serving_exporter.gpu.inventory import CLOCK_MEMORY, CLOCK_SM, HERTZ_PER_MEGAHERTZ, read_memory
from llm_serving_exporter.model.gpu import BusyTime, GpuIdentity, GpuProcess, GpuReading
from llm_serving_exporter.model.record import replace

WATTS_PER_MILLIWATT = 1e-3
JOULES_PER_MILLIJOULE = 1e-3
_PERCENT = 100.0
_TEMPERATURE_GPU = 0  # nvmlTemperatureSensors_t
_VOLATILE = 0  # nvmlEccCounterType_t: since the driver loaded
_ECC_KINDS = {"corrected": 0, "uncorrected": 1}  # nvmlMemoryErrorType_t
_NO_INSTANCE = 0xFFFFFFFF
# more compute processes than this on one GPU is not an LLM server; the list stays bounded
PROCESSES_MAX = 1024
PROCESS_INFO_BYTES = 24  # nvmlProcessInfo_t

# nvmlClocksEventReasons: the bits that say that a clock is held below what was asked for; idle and user settings are no
# slowdown
SLOWDOWN_BITS = {
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
}
# readings that a MIG instance does not have of its own
_WHOLE_GPU_ONLY = (
    "busy_ratio",
    "memory_active_ratio",
    "power_watts",
    "power_limit_watts",
    "energy_joules_total",
    "temperature_celsius",
    "clock_hertz",
    "slowdown",
    "ecc_errors_total",
    "remapped_rows",
    "xid_events_total",
    "pcie_bytes_total",
    "nvlink_bytes_total",
)

Processes = tuple[Any, ...]


def read_gpu(device: Device, identity: GpuIdentity, fields: FieldReader) -> tuple[GpuReading, Processes | None]:
    """Everything of a whole GPU but GPM and XIDs, and its raw process list (for its MIG instances).

    Raises NvmlCallError where the GPU or the session is gone.
    """
    memory = read_memory(device)  # before any GPM call, see gpm.find_unsupported_reason
    use = device.read("busy_ratio", ("nvmlDeviceGetUtilizationRates",))
    if use is None:
        device.absent["memory_active_ratio"] = device.absent["busy_ratio"]
    values = fields.read(device)
    rows = device.read("remapped_rows", ("nvmlDeviceGetRemappedRows",))
    processes = _read_processes(device)
    reading = GpuReading(
        identity=identity,
        memory_used_bytes=None if memory is None else memory.used,
        memory_reserved_bytes=None if memory is None else memory.reserved,
        memory_total_bytes=None if memory is None else memory.total,
        busy_ratio=None if use is None else use.gpu / _PERCENT,
        memory_active_ratio=None if use is None else use.memory / _PERCENT,
        power_watts=_read_scaled(device, "power_watts", "nvmlDeviceGetPowerUsage", WATTS_PER_MILLIWATT),
        power_limit_watts=_read_scaled(
            device, "power_limit_watts", "nvmlDeviceGetEnforcedPowerLimit", WATTS_PER_MILLIWATT
        ),
        energy_joules_total=_read_scaled(
            device, "energy_joules_total", "nvmlDeviceGetTotalEnergyConsumption", JOULES_PER_MILLIJOULE
        ),
        temperature_celsius=_read_temperatures(device, values.memory_celsius),
        clock_hertz=_read_clocks(device),
        slowdown=_read_slowdown(device),
        held_seconds_total=values.held_seconds,
        ecc_errors_total=_read_ecc(device),
        remapped_rows={} if rows is None else {"correctable": int(rows[0]), "uncorrectable": int(rows[1])},
        remap_pending=None if rows is None else bool(rows[2]),
        remap_failed=None if rows is None else bool(rows[3]),
        pcie_bytes_total=values.pcie_bytes,
        nvlink_bytes_total=values.nvlink_bytes,
        processes=None if processes is None else tuple(map(_make_process, processes)),
    )
    return reading, processes


def read_instance(device: Device, identity: GpuIdentity, of_parent: Processes | None) -> GpuReading:
    """What a MIG instance has of its own: memory and processes, from the parent's list where the driver gives no other."""
    memory = read_memory(device)
    device.absent.update(dict.fromkeys(_WHOLE_GPU_ONLY, ON_PARENT))
    processes = _read_processes(device)
    if processes is None and of_parent is not None and device.absent.get("processes") == NOT_SUPPORTED:
        # driver 535 refuses the call on a MIG handle
        del device.absent["processes"]
        processes = tuple(process for process in of_parent if _belongs_to_instance(process, identity))
    return GpuReading(
        identity=identity,
        memory_used_bytes=None if memory is None else memory.used,
        memory_reserved_bytes=None if memory is None else memory.reserved,
        memory_total_bytes=None if memory is None else memory.total,
        processes=None if processes is None else tuple(map(_make_process, processes)),
    )


def complete_reading(
    reading: GpuReading,
    device: Device,
    gpm: GpmReading,
    xids: Mapping[int, int] | None,
    xids_absent: str | None,
    samples: BusyTime | None = None,
) -> GpuReading:
    """Add what comes last: GPM, the XID counts, and every reason that this pass has gathered. `samples`: for a GPU without GPM."""
    absent = {**device.absent, **gpm.absent}
    if xids_absent is not None:
        absent["xid_events_total"] = xids_absent
    return replace(
        reading,
        dram_bandwidth_ratio=gpm.ratios.get("dram_bandwidth_ratio"),
        sm_activity_ratio=gpm.ratios.get("sm_activity_ratio"),
        tensor_activity_ratio=gpm.ratios.get("tensor_activity_ratio"),
        busy_time=gpm.busy_time or samples,
        gpm_window_seconds=gpm.window_seconds,
        xid_events_total=xids,
        absent=absent,
    )


def _read_scaled(device: Device, field: str, wrapper: str, factor: float) -> float | None:
    value = device.read(field, (wrapper,))
    return None if value is None else value * factor


def _read_temperatures(device: Device, memory_celsius: float | None) -> dict[str, float]:
    core = device.read(
        "temperature_celsius.gpu",
        ("nvmlDeviceGetTemperature", _TEMPERATURE_GPU),  # to go with CUDA 14
        ("nvmlDeviceGetTemperatureV", _TEMPERATURE_GPU),
    )
    found = _keep_present(device, "temperature_celsius", {"gpu": core, "memory": memory_celsius})
    return {sensor: float(celsius) for sensor, celsius in found.items()}


def _read_clocks(device: Device) -> dict[str, float]:
    found = {
        domain: device.read(f"clock_hertz.{domain}", ("nvmlDeviceGetClockInfo", number))
        for domain, number in (("sm", CLOCK_SM), ("memory", CLOCK_MEMORY))
    }
    return {
        domain: megahertz * HERTZ_PER_MEGAHERTZ
        for domain, megahertz in _keep_present(device, "clock_hertz", found).items()
    }


def _read_ecc(device: Device) -> dict[str, int]:
    found = {
        kind: device.read(f"ecc_errors_total.{kind}", ("nvmlDeviceGetTotalEccErrors", number, _VOLATILE))
        for kind, number in _ECC_KINDS.items()
    }
    return {kind: int(count) for kind, count in _keep_present(device, "ecc_errors_total", found).items()}


def _keep_present(device: Device, field: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """The members that were found; where there are none, their reason stands under the field's own name."""
    present = {member: value for member, value in found.items() if value is not None}
    if not present:
        reasons = [device.absent.pop(f"{field}.{member}", NOT_SUPPORTED) for member in found]
        device.absent[field] = reasons[0]
    return present


def _read_slowdown(device: Device) -> dict[str, bool] | None:
    mask = device.read(
        "slowdown",
        ("nvmlDeviceGetCurrentClocksEventReasons",),
        ("nvmlDeviceGetCurrentClocksThrottleReasons",),  # its name before driver 535
    )
    return None if mask is None else {reason: bool(mask & bit) for reason, bit in SLOWDOWN_BITS.items()}


def _read_processes(device: Device) -> Processes | None:
    layout = getattr(device.nvml.module, "c_nvmlProcessInfo_v3_t", None)
    if layout is not None and ctypes.sizeof(layout) != PROCESS_INFO_BYTES:
        # nvidia-ml-py 12.535.77 follows a layout that drivers had for a few releases only: its pids would be wrong
        device.absent["processes"] = NOT_SUPPORTED
        return None
    found = device.read(
        "processes",
        ("nvmlDeviceGetComputeRunningProcesses",),
        ("nvmlDeviceGetComputeRunningProcesses_v2",),  # drivers before 510
    )
    return None if found is None else tuple(found[:PROCESSES_MAX])


def _make_process(raw: Any) -> GpuProcess:
    return GpuProcess(int(raw.pid), None if raw.usedGpuMemory is None else int(raw.usedGpuMemory))


def _belongs_to_instance(process: Any, identity: GpuIdentity) -> bool:
    mig = identity.mig
    if mig is None or process.gpuInstanceId != mig.gpu_instance_id:
        return False
    return process.computeInstanceId in (mig.compute_instance_id, _NO_INSTANCE) or mig.compute_instance_id is None
