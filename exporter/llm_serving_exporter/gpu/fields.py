"""One batched field-value query a pass -> memory temperature, PCIe and NVLink byte totals, and for how
long the clocks were held down.

Field numbers and value types are nvml.h's (`NVML_FI_DEV_…`, `nvmlValueType_t`); they belong to the driver, so they
stand here as numbers: older pynvml lacks the names.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

from llm_serving_exporter.gpu.calls import INVALID_ARGUMENT, NOT_SUPPORTED, Device, classify_refusal
from llm_serving_exporter.gpu.counters import Totals
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct

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


class FieldReadings(Struct, frozen=True):
    """What the fields gave. The reasons for what is missing are in the device's `absent`."""

    memory_celsius: float | None  # None where the card has no such sensor
    pcie_bytes: Mapping[str, int]  # total by direction, "tx" and "rx"; {} where the card does not count
    nvlink_bytes: Mapping[str, int]  # likewise, over all links
    held_seconds: Mapping[str, float]  # total by reason to hold the clocks down; {} where the driver does not count


class FieldReader:
    """The fields that one GPU supports: all are asked once, then only those that were not refused for good."""

    def __init__(self, totals: Totals) -> None:
        self._totals = totals
        self._wanted = _FIRST_QUERY

    def read(self, device: Device) -> FieldReadings:
        """One `nvmlDeviceGetFieldValues`. Raises NvmlCallError where the GPU or the session is gone."""
        values, reasons = self._query_fields(device)
        memory_celsius = values.get(MEMORY_TEMPERATURE)
        if not memory_celsius or memory_celsius < 0:  # GDDR cards answer 0
            memory_celsius = None
            device.absent["temperature_celsius.memory"] = reasons.get(MEMORY_TEMPERATURE, NOT_SUPPORTED)
        pcie = {
            direction: self._totals.update(f"pcie.{direction}", int(values[key]))
            for direction, key in PCIE_BYTES.items()
            if key in values
        }
        if not pcie:
            device.absent["pcie_bytes_total"] = reasons.get(PCIE_BYTES["tx"], NOT_SUPPORTED)
        nvlink = self._sum_nvlink(values)
        if not nvlink:
            device.absent["nvlink_bytes_total"] = reasons.get(NVLINK_KIB["tx"], NOT_SUPPORTED)
        held = {
            reason: values[key] * SECONDS_PER_NANOSECOND for reason, key in HELD_NANOSECONDS.items() if key in values
        }
        return FieldReadings(memory_celsius, pcie, nvlink, held)

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
                reasons[key] = NOT_SUPPORTED if refused else classify_refusal(answer.nvmlReturn)
        links = {key for keys in NVLINK_LINK_BYTES.values() for key in keys}
        whole = all(key in values for key in NVLINK_KIB.values())
        self._wanted = tuple(
            key for key in self._wanted if reasons.get(key) != NOT_SUPPORTED and not (whole and key in links)
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
                    self._totals.update(f"nvlink.{direction}.{link}", int(values[(field, link)]))
                    for field, link in answered
                )
        return totals


def _read_value(answer: Any) -> float | None:
    """The union member that the answer's value type names; None for a type unknown here."""
    kind = _TYPES.get(answer.valueType)
    return None if kind is None else kind.from_buffer(answer.value).value
