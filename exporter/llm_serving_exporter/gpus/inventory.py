"""A device handle -> what the GPU is, and its MIG instances: what does not change while the driver is loaded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from llm_serving_exporter.gpus.calls import Device, Nvml, NvmlCallError
from llm_serving_exporter.model.gpu import GpuIdentity, MigInstance
from llm_serving_exporter.model.record import replace

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


def read_memory(device: Device) -> dict[str, Any]:
    """The fields of `GpuReading` about the memory of a GPU or a MIG instance; {} with the reason under `memory_used_bytes`.

    What the driver keeps for itself is None where the driver knows only the older call, whose used memory includes it. Unified-memory parts
    (GB10) do not support it; in a container the parent of MIG instances refuses for want of permission.
    """
    answer = device.read("memory_used_bytes", ("nvmlDeviceGetMemoryInfo", MEMORY_V2), ("nvmlDeviceGetMemoryInfo",))
    if answer is None:
        return {}
    reserved = getattr(answer, "reserved", None)
    return {
        "memory_used_bytes": int(answer.used),
        "memory_reserved_bytes": None if reserved is None else int(reserved),
        "memory_total_bytes": int(answer.total),
    }


def read_identity(device: Device, uuid: str, index: int) -> GpuIdentity:
    """Reads what identifies a GPU; None for what it does not say. Raises NvmlCallError where the GPU or the session is gone."""
    pci = device.read("pci_bus_id", ("nvmlDeviceGetPciInfo",))
    architecture = device.read("architecture", ("nvmlDeviceGetArchitecture",))
    capability = device.read("compute_capability", ("nvmlDeviceGetCudaComputeCapability",))
    bus_width = device.read("memory_bus_width_bits", ("nvmlDeviceGetMemoryBusWidth",)) or None  # GB10 answers 0
    memory_total = read_memory(device).get("memory_total_bytes")
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
        memory_total_bytes=memory_total,
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


# --- A GPU in MIG mode -> its instances: handle, UUID and identity of each.
#
# A handle of an instance stands for one compute instance within a GPU instance. Slots are scanned to the end: they have holes.


# NVIDIA MIG user guide, supported profiles: a GPU of at most 7 instances (A100, H100, H200, B200) has 8 memory slices,
# one of at most 4 (A30) has 4. Others are not known here: no share is computed.
MEMORY_SLICES_BY_INSTANCES = {7: 8, 4: 4}
SLOTS_MAX = 64
BYTES_PER_MEBIBYTE = 1 << 20


def is_mig_enabled(device: Device) -> bool:
    """Whether the GPU is in MIG mode now; False where it has none."""
    mode = device.read("mig", ("nvmlDeviceGetMigMode",))
    device.absent.pop("mig", None)  # no reading of its own
    return mode is not None and mode[0] == 1


def read_instances_max(device: Device) -> int | None:
    """How many instances the card can be cut into; None where it does not say."""
    count = device.read("mig_instances_max", ("nvmlDeviceGetMaxMigDeviceCount",))
    device.absent.pop("mig_instances_max", None)
    return count or None


def find_occupied_slots(nvml: Nvml, parent: Any, instances_max: int | None) -> Iterator[tuple[Any, str]]:
    """The instances that exist now: the handle, valid for this pass, and the UUID "MIG-…", another after each configuration of the card.

    A slot that NVML refuses is left out. Raises NvmlCallError where the GPU or the session is gone.
    """
    for slot in range(min(instances_max or 0, SLOTS_MAX)):
        try:
            handle = nvml.call("nvmlDeviceGetMigDeviceHandleByIndex", parent, slot)
            yield handle, nvml.call("nvmlDeviceGetUUID", handle)
        except NvmlCallError as error:
            if error.ends_more_than_the_call:
                raise


def read_instance_identity(
    device: Device, uuid: str, parent: GpuIdentity, parent_instances_max: int | None
) -> GpuIdentity | None:
    """The identity of an instance: the parent's with its own UUID, memory and `mig`; None where it has no GPU instance id.

    `memory_slices` comes from the instance's memory size over the parent's; both are None where the card's number of
    slices, the parent's memory or the attributes are unknown.
    """
    gpu_instance = device.read("gpu_instance_id", ("nvmlDeviceGetGpuInstanceId",))
    if gpu_instance is None:
        return None
    attributes = device.read("mig_attributes", ("nvmlDeviceGetAttributes",))
    memory_total = read_memory(device).get("memory_total_bytes")
    size_mib = None if attributes is None else int(attributes.memorySizeMB)
    if not size_mib and memory_total is not None:
        size_mib = memory_total // BYTES_PER_MEBIBYTE
    slices, total = _count_memory_slices(size_mib, parent.memory_total_bytes, parent_instances_max)
    return replace(
        parent,
        uuid=uuid,
        memory_total_bytes=memory_total,
        mig=MigInstance(
            gpu_instance_id=int(gpu_instance),
            compute_instance_id=device.read("compute_instance_id", ("nvmlDeviceGetComputeInstanceId",)),
            profile=_name_profile(device.read("name", ("nvmlDeviceGetName",)), attributes, size_mib),
            parent_uuid=parent.uuid,
            memory_slices=slices,
            memory_slices_total=total,
        ),
    )


def _count_memory_slices(
    size_mib: int | None, parent_bytes: int | None, instances: int | None
) -> tuple[int | None, int | None]:
    total = MEMORY_SLICES_BY_INSTANCES.get(instances or 0)
    if total is None or not size_mib or not parent_bytes:
        return None, total
    # an instance shows a little less than its slices (H100 80GB: 1g.10gb 9,856 of 81,559 MiB = 0.97 slices)
    return min(max(round(size_mib * BYTES_PER_MEBIBYTE * total / parent_bytes), 1), total), total


def _name_profile(name: str | None, attributes: Any, size_mib: int | None) -> str:
    """ "1g.10gb" out of "NVIDIA H100 80GB HBM3 MIG 1g.10gb"; from slices and memory rounded up where the name has
    none."""
    if name and " MIG " in name:
        return name.rpartition(" MIG ")[2]
    if attributes is None or not size_mib:
        return ""
    compute, gpu = int(attributes.computeInstanceSliceCount), int(attributes.gpuInstanceSliceCount)
    prefix = "" if compute == gpu else f"{compute}c."
    return f"{prefix}{gpu}g.{-(-size_mib // 1024)}gb"
