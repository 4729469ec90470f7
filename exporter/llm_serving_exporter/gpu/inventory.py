"""A device handle -> what the GPU is: what does not change while the driver is loaded."""

from __future__ import annotations

import re

from llm_serving_exporter.gpu.calls import Device
from llm_serving_exporter.model.gpu import GpuIdentity
from llm_serving_exporter.model.record import Struct

HERTZ_PER_MEGAHERTZ = 1e6
CLOCK_SM, CLOCK_MEMORY = 1, 2  # nvmlClockType_t
MEMORY_V2 = 0x02000028  # version word of nvmlMemory_v2_t: version 2, 40 bytes

# nvmlDeviceArchitecture_t
ARCHITECTURES = {
    2: "kepler",
    3: "maxwell",
    4: "pascal",
    5: "volta",
    6: "turing",
    7: "ampere",
    8: "ada",
    9: "hopper",
    10: "blackwell",
    13: "rubin",
}


_GUEST = 2  # nvmlGpuVirtualizationMode_t: NVML_GPU_VIRTUALIZATION_MODE_VGPU; passed-through cards (1) are whole ones
# types of vGPU end in gigabytes and series ("GRID T4-16Q", "NVIDIA A100-1-5CME"), no card's own name does (vGPU user guide)
_GUEST_NAME = re.compile(r"-\d+[ABCQ](?:ME(?:ALL|NOGFX)?|NOME|GFX)?$")


class Memory(Struct, frozen=True):
    """Memory of a GPU or MIG instance, in bytes."""

    total: int  # what the driver shows, reserved memory included
    used: int  # what processes hold; with `reserved` None, what the driver reserves as well
    reserved: int | None  # what the driver keeps for itself; None where the driver knows only the older call


def peak_bandwidth_bytes_per_second(
    memory_clock_max_hertz: float | None, memory_bus_width_bits: int | None
) -> float | None:
    """2 x max memory clock x bus width / 8; None where either is missing or 0.

    NVML reports half the effective per-pin rate for every memory type, HBM and GDDR alike, so the factor 2 is right
    everywhere: within 0.6 % of the data sheets, except where the driver's bus width includes disabled memory (H200 with
    6144 instead of 6016 bits +2.4 %; B200 7680 or 8192 bits for "8 TB/s").
    """
    if not memory_clock_max_hertz or not memory_bus_width_bits:
        return None
    return 2.0 * memory_clock_max_hertz * memory_bus_width_bits / 8.0


def read_memory(device: Device) -> Memory | None:
    """Memory of a GPU or a MIG instance; None with the reason under `memory_used_bytes`.

    Unified-memory parts (GB10) do not support it; in a container the parent of MIG instances refuses for want of
    permission.
    """
    answer = device.read("memory_used_bytes", ("nvmlDeviceGetMemoryInfo", MEMORY_V2), ("nvmlDeviceGetMemoryInfo",))
    if answer is None:
        return None
    reserved = getattr(answer, "reserved", None)
    return Memory(int(answer.total), int(answer.used), None if reserved is None else int(reserved))


def read_identity(device: Device, uuid: str, index: int) -> GpuIdentity:
    """Reads what identifies a GPU; None for what it does not say. Raises NvmlCallError where the GPU or the session is gone."""
    pci = device.read("pci_bus_id", ("nvmlDeviceGetPciInfo",))
    architecture = device.read("architecture", ("nvmlDeviceGetArchitecture",))
    capability = device.read("compute_capability", ("nvmlDeviceGetCudaComputeCapability",))
    bus_width = device.read("memory_bus_width_bits", ("nvmlDeviceGetMemoryBusWidth",)) or None  # GB10 answers 0
    memory = read_memory(device)
    mode = device.read("virtualization_mode", ("nvmlDeviceGetVirtualizationMode",))
    name = device.read("name", ("nvmlDeviceGetName",)) or ""
    memory_clock_max = _read_clock_max(device, CLOCK_MEMORY)
    return GpuIdentity(
        uuid=uuid,
        index=index,
        name=name,
        pci_bus_id=None if pci is None else _decode_text(pci.busId),
        pci_device_id=None if pci is None else int(pci.pciDeviceId),
        minor_number=device.read("minor_number", ("nvmlDeviceGetMinorNumber",)),
        architecture=ARCHITECTURES.get(architecture),
        compute_capability=None if capability is None else (int(capability[0]), int(capability[1])),
        memory_total_bytes=None if memory is None else memory.total,
        memory_bus_width_bits=bus_width,
        sm_clock_max_hertz=_read_clock_max(device, CLOCK_SM),
        memory_clock_max_hertz=memory_clock_max,
        memory_bandwidth_peak_bytes_per_second=peak_bandwidth_bytes_per_second(memory_clock_max, bus_width),
        is_virtual=mode == _GUEST or _GUEST_NAME.search(name) is not None,
    )


def _read_clock_max(device: Device, domain: int) -> float | None:
    megahertz = device.read(f"clock_max.{domain}", ("nvmlDeviceGetMaxClockInfo", domain))
    return megahertz * HERTZ_PER_MEGAHERTZ if megahertz else None


def _decode_text(value: str | bytes) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else value
