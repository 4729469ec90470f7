"""A GPU in MIG mode -> its instances: handle, UUID and identity of each.

A handle of an instance stands for one compute instance within a GPU instance. Slots are scanned to the end: they have
holes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llm_serving_exporter.gpu.calls import Device, Nvml, NvmlCallError
from llm_serving_exporter.gpu.inventory import read_memory
from llm_serving_exporter.model.gpu import GpuIdentity, MigInstance
from llm_serving_exporter.model.record import Struct, replace

# NVIDIA MIG user guide, supported profiles: a GPU of at most 7 instances (A100, H100, H200, B200) has 8 memory slices,
# one of at most 4 (A30) has 4. Others are not known here: no share is computed.
MEMORY_SLICES_BY_INSTANCES = {7: 8, 4: 4}
SLOTS_MAX = 64
BYTES_PER_MEBIBYTE = 1 << 20


class MigSlot(Struct, frozen=True):
    """A slot that holds a MIG instance."""

    handle: Any  # valid for this pass
    uuid: str  # "MIG-…"; another one after each configuration of the card


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


def find_occupied_slots(nvml: Nvml, parent: Any, instances_max: int | None) -> Iterator[MigSlot]:
    """The instances that exist now. A slot that NVML refuses is left out. Raises NvmlCallError where the GPU or the session is
    gone."""
    for slot in range(min(instances_max or 0, SLOTS_MAX)):
        try:
            handle = nvml.call("nvmlDeviceGetMigDeviceHandleByIndex", parent, slot)
            yield MigSlot(handle, nvml.call("nvmlDeviceGetUUID", handle))
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
    memory = read_memory(device)
    size_mib = None if attributes is None else int(attributes.memorySizeMB)
    if not size_mib and memory is not None:
        size_mib = memory.total // BYTES_PER_MEBIBYTE
    slices, total = _count_memory_slices(size_mib, parent.memory_total_bytes, parent_instances_max)
    return replace(
        parent,
        uuid=uuid,
        memory_total_bytes=None if memory is None else memory.total,
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
