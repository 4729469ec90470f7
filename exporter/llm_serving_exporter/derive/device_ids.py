"""A device as the kubelet names it -> the GPU or MIG instance that it is, where that is certain.

========================================  ===================================================================================
NVIDIA's device plugin                    ``GPU-<uuid>``, ``MIG-<uuid>``; shared by time or by MPS ``GPU-<uuid>::3``
                                          (NVIDIA/k8s-device-plugin, internal/rm/devices.go, AnnotatedID)
GKE's device plugin                       ``nvidia0``, ``nvidia0/gi3``, shared ``nvidia0/vgpu1`` or ``nvidia0/gi3/vgpu1``: the number
                                          is that of /dev/nvidiaN (GoogleCloudPlatform/container-engine-accelerators,
                                          pkg/gpu/nvidia/gpusharing and mig)
claims (DRA), driver gpu.nvidia.com       ``gpu-0``: the minor number, in early releases the index; ``gpu-0-mig-19-0-1``: profile and
                                          place on the card, which NVML does not tell (NVIDIA/k8s-dra-driver-gpu, deviceinfo.go).
                                          A ResourceSlice says the UUID of each
others (HAMi, Volcano, AMD, Gaudi, TPU …) named, and not known
resources that nobody here has heard of   may be accelerators: named where a container has nothing else
========================================  ===================================================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from llm_serving_exporter.model.gpu import GPU_UUID, DeviceGrant, GpuIdentity
from llm_serving_exporter.model.record import Struct

_BY_UUID = re.compile(rf"({GPU_UUID.pattern})(?P<part>::\d+)?")
_BY_MINOR = re.compile(r"(nvidia(?P<minor>\d+)(?:/gi(?P<instance>\d+))?)(?P<part>/vgpu\d+)?")
_CLAIMED_GPU = re.compile(r"gpu-(\d+)")
NVIDIA_CLAIMS = "gpu.nvidia.com"
# resources of other accelerators, and NVIDIA's own in forms that are none of the above
_ACCELERATORS = re.compile(
    r"nvidia\.com/(gpu|mig-|pgpu|vgpu|GRID)|amd\.com/|gpu\.(amd|intel)\.com|gpu\.intel\.com/|habana\.ai/|gaudi\.intel\.com"
    r"|google\.com/tpu|tpu\.google\.com|(aws\.amazon\.com/)?neuron|neuron\.aws\.com|huawei\.com/|cambricon\.com/|hygon\.com/"
    r"|metax-tech\.com/|mthreads\.com/|iluvatar\.|enflame\.com/|kunlunxin\.com/|qualcomm\.com/qaic|furiosa\.ai/|rebellions\.ai/"
    r"|volcano\.sh/(vgpu|gpu)|aliyun\.com/gpu|tencent\.com/vcuda|gpu\."
)
# what stands beside an accelerator and is none: network cards, what virtual machines and enclaves need, processors and memory
_NO_ACCELERATORS = re.compile(
    r"rdma/|vpc\.amazonaws\.com/|devices\.kubevirt\.io/|smarter-devices/|openshift\.io/|networking\.gke\.io|dranet|dra\.(net|cpu|memory)"
    r"|compute-domain\.nvidia\.com|(sgx|qat|dsa|iaa)\.intel\.com|intel\.com/"
    r"|[a-z0-9.-]+/(hostdev|rdma|mlnx|mellanox|sriov|infiniband|roce|ib|nic|fuse|kvm|tun|vhost-net|vsock)"
)


class Device(Struct, frozen=True):
    """A device that is a GPU, or may be one."""

    # of the GPU or MIG instance, as NVML writes it where NVML shows it; None: not known
    uuid: str | None
    # of the physical device, the same for all parts of it
    base: str
    # whether it is one of several parts of the GPU, which share its time
    is_part: bool = False
    # the reason where it is not known
    why: str = ""
    # whether it may be no accelerator at all
    is_doubtful: bool = False


def find_device(
    grant: DeviceGrant, gpus: Iterable[GpuIdentity], slices: Mapping[tuple[str, str], str]
) -> Device | None:
    """The GPU or MIG instance that a grant is; None where it is no accelerator at all.

    `gpus`: those that NVML shows. `slices`: UUIDs by pool and device, out of the cluster's ResourceSlices; {} where they are not read.
    """
    seen = tuple(gpus)
    if grant.pool:
        return _find_claimed(grant, seen, slices)
    by_uuid = _BY_UUID.fullmatch(grant.device)
    if by_uuid:
        return Device(_spell(by_uuid[1], seen), by_uuid[1], by_uuid["part"] is not None)
    by_minor = _BY_MINOR.fullmatch(grant.device)
    if by_minor:
        instance = by_minor["instance"]
        uuid, why = _find_minor(int(by_minor["minor"]), None if instance is None else int(instance), seen)
        return Device(uuid, by_minor[1], by_minor["part"] is not None, why)
    named = f"{_quote(grant.resource)} {_quote(grant.device)}"
    # an id made of a UUID is a GPU's, whatever the rest of it means
    if _ACCELERATORS.match(grant.resource) or GPU_UUID.search(grant.device):
        return Device(None, grant.device, why=f"{named} is in a form that is not known")
    if _NO_ACCELERATORS.match(grant.resource):
        return None
    return Device(None, grant.device, why=f"{named} may be an accelerator that is not known", is_doubtful=True)


def count_parts(allocatable: Iterable[DeviceGrant]) -> dict[str, int]:
    """How many parts each shared physical device has, by its `Device.base`. A kubelet names a device once for each NUMA node of it.

    A device whose parts are of several resources is left out: they are of different sizes, as of plugins that share by memory.
    """
    parts: dict[str, int] = {}
    resources: dict[str, set[str]] = {}
    for resource, device in {(grant.resource, grant.device) for grant in allocatable}:
        found = _BY_UUID.fullmatch(device) or _BY_MINOR.fullmatch(device)
        if found and found["part"] is not None:
            parts[found[1]] = parts.get(found[1], 0) + 1
            resources.setdefault(found[1], set()).add(resource)
    return {base: count for base, count in parts.items() if len(resources[base]) == 1}


def _find_claimed(
    grant: DeviceGrant, gpus: tuple[GpuIdentity, ...], slices: Mapping[tuple[str, str], str]
) -> Device | None:
    """A device of a claim: by the cluster's own word, else by a CDI name that is a UUID, else by a number that means one card only."""
    base = f"{grant.resource}/{grant.pool}/{grant.device}"
    if grant.resource != NVIDIA_CLAIMS:
        if _ACCELERATORS.match(grant.resource):
            return Device(None, base, why=f"claims of {_quote(grant.resource)} are not known")
        if _NO_ACCELERATORS.match(grant.resource):
            return None
        why = f"the claimed device {_quote(grant.device)} of {_quote(grant.resource)} may be an accelerator that is not known"
        return Device(None, base, why=why, is_doubtful=True)
    said = slices.get((grant.pool, grant.device))
    named = {name.partition("=")[2] for name in grant.cdi}
    for uuid in (said, *sorted(named)):
        if uuid and GPU_UUID.fullmatch(uuid):
            return Device(_spell(uuid, gpus), uuid)
    number = _CLAIMED_GPU.fullmatch(grant.device)
    if number:
        # minor number or index, by the driver's release: certain only where both are the same
        for gpu in gpus:
            if gpu.mig is None and gpu.minor_number == gpu.index == int(number[1]):
                return Device(gpu.uuid, base)
    return Device(
        None, base, why=f"only the cluster's ResourceSlices say which GPU the claimed device {_quote(grant.device)} is"
    )


def _find_minor(minor: int, instance: int | None, gpus: tuple[GpuIdentity, ...]) -> tuple[str | None, str]:
    """The UUID, or None with the reason. Several compute instances of one GPU instance cannot be told from one another."""
    what = f"/dev/nvidia{minor}" + ("" if instance is None else f", GPU instance {instance},")
    found = [
        gpu.uuid
        for gpu in gpus
        if gpu.minor_number == minor and (gpu.mig.gpu_instance_id if gpu.mig else None) == instance
    ]
    if len(found) == 1:
        return found[0], ""
    return None, f"{what} is {'not visible to NVML here' if not found else f'{len(found)} instances'}"


def _spell(uuid: str, gpus: tuple[GpuIdentity, ...]) -> str:
    """A UUID as NVML writes it, where NVML shows it."""
    return next((gpu.uuid for gpu in gpus if gpu.uuid.lower() == uuid.lower()), uuid)


def _quote(text: str) -> str:
    """Text from a device plugin, short and printable."""
    return "".join(one if one.isprintable() else "?" for one in text[:80])
