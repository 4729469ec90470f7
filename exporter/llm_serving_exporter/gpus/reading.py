"""A device handle -> what a whole GPU shows now, in base units. NVML's units stand at each conversion."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping
from typing import Any

from llm_serving_exporter.gpus.calls import (
    INVALID_ARGUMENT,
    Device,
    NamedCall,
    Nvml,
    NvmlCallError,
    Totals,
    classify_refusal,
)
from llm_serving_exporter.gpus.inventory import CLOCK_MEMORY, CLOCK_SM, HERTZ_PER_MEGAHERTZ, read_memory
from llm_serving_exporter.model.gpu import BusyTime, GpuAbsence, GpuIdentity, GpuProcess, GpuReading
from llm_serving_exporter.model.hardware import BusySource
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct, field, replace

# --- One batched field-value query a pass -> memory temperature, PCIe and NVLink byte totals, and for how long the clocks were held down.
#
# Field numbers and value types are nvml.h's (`NVML_FI_DEV_…`, `nvmlValueType_t`); they belong to the driver, so they stand here as
# numbers: older pynvml lacks the names.


MEMORY_TEMPERATURE = (82, 0)  # degrees Celsius, unsigned
PCIE_BYTES = {"tx": (197, 0), "rx": (198, 0)}  # bytes since the driver loaded, protocol overhead included; may wrap
ALL_LINKS = 0xFFFFFFFF
NVLINK_KIB = {"tx": (138, ALL_LINKS), "rx": (139, ALL_LINKS)}  # data without protocol overhead, all links, KiB
# nanoseconds in which a reason held the clocks down since the driver loaded: nvidia-smi's "Clocks Event Reasons Counters". 74 and 75 are
# PERF_POLICY_POWER and _THERMAL, 269 to 271 NVML_FI_DEV_CLOCKS_EVENT_REASON_*, which older drivers lack
HELD_NANOSECONDS = {
    "sw_power_cap": (74, 0),
    "thermal": (75, 0),
    "sw_thermal_slowdown": (269, 0),
    "hw_thermal_slowdown": (270, 0),
    "hw_power_brake_slowdown": (271, 0),
}
SECONDS_PER_NANOSECOND = 1e-9
LINKS_MAX = 18  # NVML_NVLINK_MAX_LINKS up to and with NVLink 5
NVLINK_LINK_BYTES = {
    direction: tuple((field, link) for link in range(LINKS_MAX)) for direction, field in (("tx", 202), ("rx", 204))
}
BYTES_PER_KIB = 1024

# nvmlValueType_t -> the C type of the union member in use; by type, since pynvml before 12.570 lacks the last member's name
_TYPES: dict[int, Any] = {
    0: ctypes.c_double,
    1: ctypes.c_uint,
    2: ctypes.c_ulong,
    3: ctypes.c_ulonglong,
    4: ctypes.c_longlong,
    5: ctypes.c_int,
    6: ctypes.c_ushort,
}

_FieldKey = tuple[int, int]
_FIRST_QUERY: tuple[_FieldKey, ...] = (
    MEMORY_TEMPERATURE,
    *PCIE_BYTES.values(),
    *NVLINK_KIB.values(),
    *NVLINK_LINK_BYTES["tx"],
    *NVLINK_LINK_BYTES["rx"],
    *HELD_NANOSECONDS.values(),
)


class FieldReader:
    """The fields that one GPU supports: all are asked once, then only those that were not refused for good."""

    def __init__(self, totals: Totals) -> None:
        self._totals = totals
        self._wanted = _FIRST_QUERY

    def read(self, device: Device) -> dict[str, Any]:
        """One `nvmlDeviceGetFieldValues`: those fields of `GpuReading` that it gives, and the reasons for the others in the device's
        `absent`. Raises NvmlCallError where the GPU or the session is gone."""
        values, reasons = self._query_fields(device)
        celsius = values.get(MEMORY_TEMPERATURE)
        hot = {"memory": float(celsius)} if celsius and celsius > 0 else {}  # GDDR cards answer 0
        pcie = {
            direction: self._totals[f"pcie.{direction}"].update(int(values[key]))
            for direction, key in PCIE_BYTES.items()
            if key in values
        }
        nvlink = self._sum_nvlink(values)
        for given, name, key in (
            (hot, "temperature_celsius.memory", MEMORY_TEMPERATURE),
            (pcie, "pcie_bytes_total", PCIE_BYTES["tx"]),
            (nvlink, "nvlink_bytes_total", NVLINK_KIB["tx"]),
        ):
            if not given:
                device.absent[name] = reasons.get(key, GpuAbsence.NOT_SUPPORTED)
        held = {
            reason: values[key] * SECONDS_PER_NANOSECOND for reason, key in HELD_NANOSECONDS.items() if key in values
        }
        return {
            "temperature_celsius": hot,
            "pcie_bytes_total": pcie,
            "nvlink_bytes_total": nvlink,
            "held_seconds_total": held,
        }

    def _query_fields(self, device: Device) -> tuple[dict[_FieldKey, float], dict[_FieldKey, str]]:
        """Values by field, and for the others the reason; fields refused for good are not asked again."""
        if not self._wanted:
            return {}, {}
        answers = device.read("fields", ("nvmlDeviceGetFieldValues", list(self._wanted)))
        if answers is None:
            reason = device.absent.pop("fields")
            return {}, dict.fromkeys(self._wanted, reason)
        values: dict[_FieldKey, float] = {}
        reasons: dict[_FieldKey, str] = {}
        for key, answer in zip(self._wanted, answers, strict=True):
            value = _read_value(answer)
            if answer.nvmlReturn == 0 and value is not None:
                values[key] = value
            else:
                # a link number beyond the card's last one is an invalid argument
                refused = answer.nvmlReturn == INVALID_ARGUMENT or answer.nvmlReturn == 0
                reasons[key] = GpuAbsence.NOT_SUPPORTED if refused else classify_refusal(answer.nvmlReturn)
        links = {key for keys in NVLINK_LINK_BYTES.values() for key in keys}
        whole = all(key in values for key in NVLINK_KIB.values())
        self._wanted = tuple(
            key for key in self._wanted if reasons.get(key) != GpuAbsence.NOT_SUPPORTED and not (whole and key in links)
        )
        return values, reasons

    def _sum_nvlink(self, values: Mapping[_FieldKey, float]) -> dict[str, int]:
        """Bytes by direction: the GPU's own sum (KiB) where it has one, else the sum over links (NVLink 5)."""
        whole = {d: int(values[key]) * BYTES_PER_KIB for d, key in NVLINK_KIB.items() if key in values}
        if len(whole) == len(NVLINK_KIB):
            return whole
        totals: dict[str, int] = {}
        for direction, keys in NVLINK_LINK_BYTES.items():
            answered = [key for key in keys if key in values]
            if answered:
                totals[direction] = add_up(
                    self._totals[f"nvlink.{direction}.{link}"].update(int(values[(field, link)]))
                    for field, link in answered
                )
        return totals


def _read_value(answer: Any) -> float | None:
    """The union member that the answer's value type names; None for a type unknown here."""
    kind = _TYPES.get(answer.valueType)
    return None if kind is None else kind.from_buffer(answer.value).value


# --- GPM samples -> DRAM bandwidth, SM and tensor activity as ratios over the time between two passes (Hopper and newer).
#
# Metric numbers are nvml.h's `nvmlGpmMetricId_t`, constant across drivers and pynvml versions. One sample stays as the baseline of the
# next pass, so each pass costs one sample and windows follow one another without a gap.


METRICS = {"sm_activity_ratio": 2, "tensor_activity_ratio": 5, "dram_bandwidth_ratio": 10}  # percent
# share of time in which anything ran, percent
_GRAPHICS_UTIL = 1
# nvml.h: the two samples must be more than 100 ms apart, the driver refreshes no faster
SHORTEST_WINDOW_SECONDS = 0.1
# an average over a longer time says little about now: after such a gap a new window begins
LONGEST_WINDOW_SECONDS = 600.0
_GPM_PERCENT = 100.0
# what rounding makes of 100
_MOST_PERCENT = 101.0


class GpmReading(Struct, frozen=True):
    """Averages over the window between two samples."""

    ratios: Mapping[str, float] = field(default_factory=dict)  # name of the field in `GpuReading` -> 0 to 1
    window_seconds: float | None = None  # None where there is no ratio
    absent: Mapping[str, str] = field(default_factory=dict)  # field -> why it has no ratio
    busy_time: BusyTime | None = None  # over all windows so far; None: the card does not say


def make_absent_reading(reason: str) -> GpmReading:
    """A reading without any ratio, all for one reason."""
    return GpmReading(absent=dict.fromkeys(METRICS, reason))


def find_unsupported_reason(nvml: Nvml, handle: Any) -> str | None:
    """None where the GPU supports GPM, else the code for `absent`.

    Drivers export GPM's symbols on every card, so only this query tells; `handle` is never a MIG instance's (on driver
    535 GPM calls on those leave later memory queries failing with "in use").
    """
    try:
        support = nvml.call("nvmlGpmQueryDeviceSupport", handle)
    except NvmlCallError as error:
        return classify_refusal(error.code)
    return None if support.isSupportedDevice else GpuAbsence.NOT_SUPPORTED


class GpmSampler:
    """The rolling pair of samples of one GPU, or of one GPU instance of it (`gpu_instance_id`)."""

    def __init__(self, nvml: Nvml, gpu_instance_id: int | None = None) -> None:
        self._nvml = nvml
        self._gpu_instance_id = gpu_instance_id
        self._baseline: Any = None
        self._scratch: Any = None
        self._baseline_at: float | None = None
        self._last = make_absent_reading(GpuAbsence.NO_WINDOW)
        self._refused = False
        self._busy: BusyTime | None = None

    def read(self, handle: Any, clock: Callable[[], float]) -> GpmReading:
        """The averages since the last pass; the previous ones where that was too short ago.

        `handle` is the whole GPU's, `clock` gives monotonic seconds. Raises NvmlCallError where the GPU or the session
        is gone; another failure is a reason in `absent`, and the baseline stays.
        """
        if self._refused:
            return self._last
        now = clock()
        if self._baseline_at is not None and now - self._baseline_at <= SHORTEST_WINDOW_SECONDS:
            return self._last
        try:
            self._take_sample(handle)
            now = clock()
            baseline_at, self._baseline_at = self._baseline_at, now
            self._baseline, self._scratch = self._scratch, self._baseline
            if baseline_at is None or now - baseline_at > LONGEST_WINDOW_SECONDS:
                self._last = make_absent_reading(GpuAbsence.NO_WINDOW)
            else:
                self._last = self._compare_samples(self._scratch, self._baseline, now - baseline_at)
        except NvmlCallError as error:
            if error.ends_more_than_the_call:
                raise
            self._last = make_absent_reading(classify_refusal(error.code))
            self._refused = classify_refusal(error.code) == GpuAbsence.NOT_SUPPORTED
        return self._last

    def close(self) -> None:
        """Free the samples; must come before nvmlShutdown, their memory is the library's."""
        for sample in (self._baseline, self._scratch):
            if sample is not None:
                try:
                    self._nvml.call("nvmlGpmSampleFree", sample)
                except NvmlCallError:
                    continue  # a library that is gone has taken its memory with it
        self._baseline = self._scratch = self._baseline_at = None
        self._last = make_absent_reading(GpuAbsence.NO_WINDOW)

    def _take_sample(self, handle: Any) -> None:
        """A new sample into the scratch buffer."""
        if self._scratch is None:
            self._scratch = self._nvml.call("nvmlGpmSampleAlloc")
        if self._gpu_instance_id is None:
            self._nvml.call("nvmlGpmSampleGet", handle, self._scratch)
        else:
            self._nvml.call("nvmlGpmMigSampleGet", handle, self._gpu_instance_id, self._scratch)

    def _compare_samples(self, earlier: Any, later: Any, window_seconds: float) -> GpmReading:
        request = self._nvml.module.c_nvmlGpmMetricsGet_t()
        request.version = self._nvml.module.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(METRICS) + 1
        request.sample1, request.sample2 = earlier, later
        for index, metric in enumerate(METRICS.values()):
            request.metrics[index].metricId = metric
        request.metrics[len(METRICS)].metricId = _GRAPHICS_UTIL
        self._nvml.call("nvmlGpmMetricsGet", request)
        ratios: dict[str, float] = {}
        absent: dict[str, str] = {}
        for index, name in enumerate(METRICS):
            answer = request.metrics[index]
            if answer.nvmlReturn != 0:
                absent[name] = classify_refusal(answer.nvmlReturn)
            elif math.isfinite(answer.value):
                ratios[name] = answer.value / _GPM_PERCENT
            else:
                absent[name] = GpuAbsence.NO_DATA  # NaN is a legal value: no sample of that unit
        self._add_busy_time(request.metrics[len(METRICS)], window_seconds)
        return GpmReading(ratios, window_seconds if ratios else None, absent, self._busy)

    def _add_busy_time(self, answer: Any, window_seconds: float) -> None:
        if answer.nvmlReturn != 0 or not 0 <= answer.value <= _MOST_PERCENT:  # NaN fails every comparison
            return
        busy, covered = (0.0, 0.0) if self._busy is None else (self._busy.busy_seconds, self._busy.covered_seconds)
        share = min(1.0, answer.value / _GPM_PERCENT)
        self._busy = BusyTime(BusySource.GPM, busy + share * window_seconds, covered + window_seconds)


# --- The reading of a whole GPU.


_PERCENT = 100.0
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
# field of `GpuReading`, or "field.member" of a mapping -> the calls that give it, the best first, and the factor to base units. 0 is the
# core of nvmlTemperatureSensors_t, and "since the driver loaded" of nvmlEccCounterType_t, which stands behind nvmlMemoryErrorType_t
_VALUES: Mapping[str, tuple[tuple[NamedCall, ...], float]] = {
    "power_watts": ((("nvmlDeviceGetPowerUsage",),), 1e-3),
    "power_limit_watts": ((("nvmlDeviceGetEnforcedPowerLimit",),), 1e-3),
    "energy_joules_total": ((("nvmlDeviceGetTotalEnergyConsumption",),), 1e-3),
    # the first is to go with CUDA 14
    "temperature_celsius.gpu": ((("nvmlDeviceGetTemperature", 0), ("nvmlDeviceGetTemperatureV", 0)), 1.0),
    "clock_hertz.sm": ((("nvmlDeviceGetClockInfo", CLOCK_SM),), HERTZ_PER_MEGAHERTZ),
    "clock_hertz.memory": ((("nvmlDeviceGetClockInfo", CLOCK_MEMORY),), HERTZ_PER_MEGAHERTZ),
    "ecc_errors_total.corrected": ((("nvmlDeviceGetTotalEccErrors", 0, 0),), 1),
    "ecc_errors_total.uncorrected": ((("nvmlDeviceGetTotalEccErrors", 1, 0),), 1),
}
_MAPPINGS = tuple(dict.fromkeys(name.partition(".")[0] for name in _VALUES if "." in name))
# the second is its name before driver 535
_SLOWDOWN = (("nvmlDeviceGetCurrentClocksEventReasons",), ("nvmlDeviceGetCurrentClocksThrottleReasons",))
# readings that a MIG instance does not have of its own
_WHOLE_GPU_ONLY = (
    *("busy_ratio", "memory_active_ratio", "slowdown", *dict.fromkeys(name.partition(".")[0] for name in _VALUES)),
    *("remapped_rows", "xid_events_total", "pcie_bytes_total", "nvlink_bytes_total"),
)

Processes = tuple[Any, ...]


def read_gpu(device: Device, identity: GpuIdentity, fields: FieldReader) -> tuple[GpuReading, Processes | None]:
    """Everything of a whole GPU but GPM and XIDs, and its raw process list (for its MIG instances).

    Raises NvmlCallError where the GPU or the session is gone.
    """
    values: dict[str, Any] = {group: {} for group in _MAPPINGS}
    values |= read_memory(device)  # before any GPM call, see find_unsupported_reason
    use = device.read("busy_ratio", ("nvmlDeviceGetUtilizationRates",))
    if use is None:
        device.absent["memory_active_ratio"] = device.absent["busy_ratio"]
    else:
        values |= {"busy_ratio": use.gpu / _PERCENT, "memory_active_ratio": use.memory / _PERCENT}
    rows = device.read("remapped_rows", ("nvmlDeviceGetRemappedRows",))
    if rows is not None:
        values["remapped_rows"] = {"correctable": int(rows[0]), "uncorrectable": int(rows[1])}
        values |= {"remap_pending": bool(rows[2]), "remap_failed": bool(rows[3])}
    processes = _read_processes(device)
    mask = device.read("slowdown", *_SLOWDOWN)
    if mask is not None:
        values["slowdown"] = {reason: bool(mask & bit) for reason, bit in SLOWDOWN_BITS.items()}
    for name, (calls, factor) in _VALUES.items():
        answer = device.read(name, *calls)
        group, _, member = name.partition(".")
        if answer is not None:
            values[group] = {**values[group], member: answer * factor} if member else answer * factor
    for name, members in fields.read(device).items():
        values[name] = {**values.get(name, {}), **members}
    for group in _MAPPINGS:
        if not values[group]:
            # why there is no member is why there is nothing
            reasons = [device.absent.pop(name) for name in list(device.absent) if name.startswith(f"{group}.")]
            device.absent[group] = reasons[0]
    return GpuReading(identity, processes=_describe_processes(processes), **values), processes


def read_instance(device: Device, identity: GpuIdentity, of_parent: Processes | None) -> GpuReading:
    """What a MIG instance has of its own: memory and processes, from the parent's list where the driver gives no other."""
    memory = read_memory(device)
    device.absent.update(dict.fromkeys(_WHOLE_GPU_ONLY, GpuAbsence.ON_PARENT))
    processes = _read_processes(device)
    refused = device.absent.get("processes") == GpuAbsence.NOT_SUPPORTED
    if processes is None and of_parent is not None and refused:
        # driver 535 refuses the call on a MIG handle
        del device.absent["processes"]
        processes = tuple(process for process in of_parent if _belongs_to_instance(process, identity))
    return GpuReading(identity, processes=_describe_processes(processes), **memory)


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
    ratios: Mapping[str, Any] = gpm.ratios
    return replace(
        reading,
        **ratios,
        busy_time=gpm.busy_time or samples,
        gpm_window_seconds=gpm.window_seconds,
        xid_events_total=xids,
        absent=absent,
    )


def _read_processes(device: Device) -> Processes | None:
    layout = getattr(device.nvml.module, "c_nvmlProcessInfo_v3_t", None)
    if layout is not None and ctypes.sizeof(layout) != PROCESS_INFO_BYTES:
        # nvidia-ml-py 12.535.77 follows a layout that drivers had for a few releases only: its pids would be wrong
        device.absent["processes"] = GpuAbsence.NOT_SUPPORTED
        return None
    found = device.read(
        "processes",
        ("nvmlDeviceGetComputeRunningProcesses",),
        ("nvmlDeviceGetComputeRunningProcesses_v2",),  # drivers before 510
    )
    return None if found is None else tuple(found[:PROCESSES_MAX])


def _describe_processes(raw: Processes | None) -> tuple[GpuProcess, ...] | None:
    if raw is None:
        return None
    return tuple(
        GpuProcess(int(process.pid), None if process.usedGpuMemory is None else int(process.usedGpuMemory))
        for process in raw
    )


def _belongs_to_instance(process: Any, identity: GpuIdentity) -> bool:
    mig = identity.mig
    if mig is None or process.gpuInstanceId != mig.gpu_instance_id:
        return False
    return process.computeInstanceId in (mig.compute_instance_id, _NO_INSTANCE) or mig.compute_instance_id is None
