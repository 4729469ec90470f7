"""Whose GPU it is: all evidence, from a pod's devices over processes to what a configuration states, and how much of each card is whose."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum

from llm_serving_exporter.model.gpu import (
    GPU_UUID,
    ContainerGrants,
    DeviceGrant,
    GpuIdentity,
    GpuProcess,
    GpuReading,
    KubeletReadings,
    Worker,
    WorkerGpus,
)
from llm_serving_exporter.model.hardware import GpuPart, ShareSource
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct, field, replace
from llm_serving_exporter.model.target import Role, Target
from llm_serving_exporter.model.text import count_nouns

# --- A device as the kubelet names it -> the GPU or MIG instance that it is, where that is certain.
#
# ========================================  ===================================================================================
# NVIDIA's device plugin                    ``GPU-<uuid>``, ``MIG-<uuid>``; shared by time or by MPS ``GPU-<uuid>::3``
#                                           as NVIDIA/k8s-device-plugin has it, internal/rm/devices.go: AnnotatedID
# GKE's device plugin                       ``nvidia0``, ``nvidia0/gi3``, shared ``nvidia0/vgpu1`` or ``nvidia0/gi3/vgpu1``: the number
#                                           is that of /dev/nvidiaN (GoogleCloudPlatform/container-engine-accelerators,
#                                           pkg/gpu/nvidia/gpusharing and mig)
# claims (DRA), driver gpu.nvidia.com       ``gpu-0``: the minor number, in early releases the index; ``gpu-0-mig-19-0-1``: profile and
#                                           place on the card, which NVML does not tell (NVIDIA/k8s-dra-driver-gpu, deviceinfo.go).
#                                           A ResourceSlice says the UUID of each
# others (HAMi, Volcano, AMD, Gaudi, TPU …) named, and not known
# resources that nobody here has heard of   may be accelerators: named where a container has nothing else
# ========================================  ===================================================================================


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

    uuid: str | None  # of the GPU or MIG instance, as NVML writes it where NVML shows it; None: not known
    base: str  # of the physical device, the same for all parts of it
    is_part: bool = False  # whether it is one of several parts of the GPU, which share its time
    why: str = ""  # the reason where it is not known
    is_doubtful: bool = False  # whether it may be no accelerator at all


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
    why = f"only the cluster's ResourceSlices say which GPU the claimed device {_quote(grant.device)} is"
    return Device(None, base, why=why)


def _find_minor(minor: int, instance: int | None, gpus: tuple[GpuIdentity, ...]) -> tuple[str | None, str]:
    """The UUID, or None with the reason. Several compute instances of one GPU instance cannot be told from one another."""
    what = f"/dev/nvidia{minor}" + ("" if instance is None else f", GPU instance {instance},")
    place = minor, instance
    found = [gpu.uuid for gpu in gpus if (gpu.minor_number, gpu.mig.gpu_instance_id if gpu.mig else None) == place]
    if len(found) == 1:
        return found[0], ""
    return None, f"{what} is {'not visible to NVML here' if not found else f'{len(found)} instances'}"


def _spell(uuid: str, gpus: tuple[GpuIdentity, ...]) -> str:
    """A UUID as NVML writes it, where NVML shows it."""
    return next((gpu.uuid for gpu in gpus if gpu.uuid.lower() == uuid.lower()), uuid)


def _quote(text: str) -> str:
    """Text from a device plugin, short and printable."""
    return "".join(one if one.isprintable() else "?" for one in text[:80])


# --- What the kubelet gave a pod's container -> the GPUs that a target has by it, and how much of each.


MOST_NAMED = 3  # devices that a reason names


class Grants(Struct, frozen=True):
    """The GPUs of a container, or of a pod."""

    # how much of each GPU or MIG instance, by UUID: 1 is all of it, None is not known
    shares: Mapping[str, float | None] = field(default_factory=dict)
    bases: frozenset[str] = frozenset()  # the physical devices
    why: str = ""  # the reason why there are none, or why they are not known; then `shares` is empty
    is_none: bool = False  # whether the kubelet says that there are none


class NodeGrants:
    """The kubelet's answer, looked up by pod and container. Pods in `finished` (namespace, name) have nothing any more.

    `parts`: how many parts each shared device has, as `keep_parts` has it over several answers; None: by this answer alone.
    """

    def __init__(
        self,
        readings: KubeletReadings,
        gpus: Collection[GpuIdentity],
        finished: Collection[tuple[str, str]] = (),
        slices: Mapping[tuple[str, str], str] | None = None,
        parts: Mapping[str, int] | None = None,
    ) -> None:
        self._gpus, self._slices = gpus, slices or {}
        self._parts = keep_parts({}, readings) if parts is None else parts
        self._pods: dict[tuple[str, str], list[ContainerGrants]] = {}
        for one in readings.containers:
            if (one.namespace, one.pod) not in finished:
                self._pods.setdefault((one.namespace, one.pod), []).append(one)

    def find(self, namespace: str, pod: str, container: str = "") -> Grants:
        """The GPUs of a container; of all containers of the pod where `container` is ""."""
        listed = self._pods.get((namespace, pod))
        if listed is None:
            return Grants(why=f"the kubelet of this node lists no running pod {namespace}/{pod}")
        wanted = [one for one in listed if container in ("", one.container)]
        devices = [
            device
            # a kubelet names a device once for each NUMA node of it
            for grant in dict.fromkeys(grant for one in wanted for grant in one.grants)
            if (device := find_device(grant, self._gpus, self._slices)) is not None
        ]
        certain = [device for device in devices if not device.is_doubtful]
        unknown = list(dict.fromkeys(device.why for device in certain or devices if device.uuid is None))
        if unknown:
            more = f" and {len(unknown) - MOST_NAMED} more" if len(unknown) > MOST_NAMED else ""
            return Grants(why="kubelet: " + "; ".join(unknown[:MOST_NAMED]) + more)
        if not certain:
            whose = f"container {container} of {namespace}/{pod}" if container else f"{namespace}/{pod}"
            return Grants(why=f"the kubelet gave {whose} no GPU", is_none=True)
        return Grants(self._add_shares(certain), frozenset(device.base for device in certain))

    def _add_shares(self, devices: Collection[Device]) -> dict[str, float | None]:
        shares: dict[str, float | None] = {}
        for device in devices:
            assert device.uuid is not None
            if not device.is_part:
                shares[device.uuid] = 1.0
                continue
            total = self._parts.get(device.base)
            before = shares.get(device.uuid, 0.0)
            shares[device.uuid] = None if total is None or before is None else min(1.0, before + 1 / total)
        return shares


def keep_parts(before: Mapping[str, int], readings: KubeletReadings) -> dict[str, int]:
    """How many parts each shared device has, by `Device.base`. `before`: the same at the answer before this one, {} for the first.

    A kubelet says what there is without devices that are not healthy, and without all of a plugin that has not registered again since the
    kubelet's start (k8s.io/kubernetes v1.34.4, devicemanager.GetAllocatableDevices): of what is given out the last number holds.
    """
    given = count_parts(grant for one in readings.containers for grant in one.grants)
    kept = {base: count for base, count in before.items() if base in given}
    # more parts than there are would be more than the whole
    now = {base: max(count, given.get(base, 0)) for base, count in count_parts(readings.allocatable or ()).items()}
    return {**kept, **now}


# --- Which GPUs belong to which target, how that is known, and how much of each card is the target's.


# why a target has none, though its processes once named some
YIELDED = "the GPUs that its processes used are another target's now"


class Origin(StrEnum):
    """How a claim is known: the values of the label `origin`, the strongest first."""

    CONFIGURED = "configured"
    KUBELET = "kubelet"  # the devices of its container, by the kubelet's word
    PROCESS = "process"  # the driver's process lists name its processes
    ENVIRONMENT = "environment"  # full UUIDs in the environment of its processes
    # every process of every GPU is seen here, none is foreign, and it is the only target, and no pod
    ONLY_TARGET = "only_target"


# claims by what runs: an engine that restarts has none for a while
_OF_PROCESSES = (Origin.PROCESS, Origin.ENVIRONMENT)


class Assignment(Struct, frozen=True):
    """Which GPUs a target has, and how that is known."""

    uuids: tuple[str, ...]  # () where they are not known
    origin: str  # a value of Origin, or "" where they are not known
    why: str = ""  # the reason where they, or some of them, are not known
    # how much of each GPU or instance in `uuids` is the target's, where that is not simply all of it
    parts: Mapping[str, GpuPart] = field(default_factory=dict)

    def is_part_known(self, uuid: str) -> bool:
        """Whether the GPU is shared, and it is known how much of it is the target's."""
        part = self.parts.get(uuid)
        return part is not None and part.share is not None


class Evidence(Struct, frozen=True):
    """What is known on this node, beside NVML, of who uses its GPUs."""

    # by target whose processes are looked for here: the processes of its server, empty where they cannot be seen
    pids: Mapping[str, frozenset[int]] = field(default_factory=dict)
    # by target: GPUs that the environment of its processes names by full UUIDs
    environment: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    grants: NodeGrants | None = None  # what the kubelet gave to whom; None: it does not say
    kubelet_why: str = ""  # why the kubelet does not say
    blind: str = ""  # why not every process of every GPU is seen here; "": each one is


def assign_gpus(
    targets: tuple[Target, ...], gpus: tuple[GpuReading, ...], evidence: Evidence, previous: Mapping[str, Assignment]
) -> dict[str, Assignment]:
    """By target: as configured; else by the kubelet; else by processes; else by their environment; else all, for an only target.

    What processes once said (`previous`) stays while no process says anything else: an engine that is down or restarts has none, and must
    not be taken for the owner of every GPU meanwhile. Such a memory yields to what the processes of other targets name
    now, unless the target states its share of its GPUs, or had the GPU together with these before. A MIG-enabled parent is
    never assigned by processes when its instances are visible: they are GPUs of their own.
    """
    parents = {gpu.identity.mig.parent_uuid for gpu in gpus if gpu.identity.mig}
    usable = [gpu for gpu in gpus if gpu.identity.uuid not in parents]
    granted = {target.name: _find_grants(target, evidence) for target in targets}
    named = {target.name: _find_named(usable, evidence.pids.get(target.name, frozenset())) for target in targets}
    apart = _tell_apart(targets, granted, named)
    found: dict[str, Assignment] = {}
    for target in targets:
        if target.gpus is not None:
            found[target.name] = _assign_configured(target, gpus)
        elif granted[target.name].shares:
            found[target.name] = _assign_granted(granted[target.name], apart.get(target.name), gpus)
        else:
            found[target.name] = _assign_seen(target, len(targets) == 1, usable, named[target.name], granted, evidence)
    _recall(found, previous, frozenset(target.name for target in targets if target.gpu_share is not None))
    return found


def share_cards(assignment: Assignment, gpus: Collection[GpuIdentity]) -> dict[str, float | None]:
    """By UUID of the assignment: which part of its card is the target's, above 0, up to 1; None where it is not known.

    A MIG instance is its part of the card's compute slices; an instance that NVML does not show is a part that is not known.
    """
    instances = {gpu.uuid: gpu.mig for gpu in gpus if gpu.mig is not None}
    parts = {gpu.uuid: gpu.partitions for gpu in gpus}
    found: dict[str, float | None] = {}
    for uuid in assignment.uuids:
        part, mig = assignment.parts.get(uuid), instances.get(uuid)
        own = 1.0 if part is None else part.share
        of_card = (
            mig.compute_share if mig is not None else None if uuid.startswith("MIG-") else 1.0 / parts.get(uuid, 1)
        )
        found[uuid] = None if own is None or of_card is None else own * of_card
    return found


def assign_workers(
    workers: Collection[Worker], targets: Collection[Target], found: dict[str, Assignment], evidence: Evidence
) -> tuple[WorkerGpus, ...]:
    """The GPUs of pods on this node that work for another pod's target, by the kubelet.

    Where `found`, which is of `targets`, has the leader's target, they are added there: by the kubelet too, or without any GPU by its word.
    What is returned belongs to targets of other exporters.
    """
    # that only lead, such as Ray's heads
    without = {target.name for target in targets if target.gpus is None and _find_grants(target, evidence).is_none}
    elsewhere = []
    for worker in workers:
        grants = Grants(why=evidence.kubelet_why)
        if evidence.grants is not None:
            grants = evidence.grants.find(worker.namespace, worker.pod)
        leader = found.get(worker.target)
        if leader is None:
            elsewhere.append(WorkerGpus(worker, tuple(grants.shares), grants.why, grants.shares))
        elif grants.shares and (leader.origin == Origin.KUBELET or (not leader.origin and worker.target in without)):
            uuids = tuple(dict.fromkeys((*leader.uuids, *grants.shares)))
            parts = {**leader.parts, **_granted_parts(grants, grants.shares)}
            found[worker.target] = Assignment(uuids, Origin.KUBELET, leader.why if leader.uuids else "", parts)
    return tuple(elsewhere)


def _find_grants(target: Target, evidence: Evidence) -> Grants:
    """What the kubelet gave the target's container; nothing, with the reason, where it does not say or the target is no pod."""
    place = target.identity
    if not place.pod:
        return Grants()
    if evidence.grants is None:
        return Grants(why=evidence.kubelet_why)
    return evidence.grants.find(place.namespace, place.pod, place.container)


def _find_named(usable: Sequence[GpuReading], own: frozenset[int]) -> tuple[str, ...]:
    """GPUs that list one of the processes."""
    return tuple(gpu.identity.uuid for gpu in usable if any(process.pid in own for process in gpu.processes or ()))


def _tell_apart(
    targets: Sequence[Target], granted: Mapping[str, Grants], named: Mapping[str, tuple[str, ...]]
) -> dict[str, tuple[str, ...]]:
    """Targets with the same container, each with the GPUs that its own processes name; left out where that does not tell them from another.

    Without it they have one claim together: the whole container's.
    """
    groups: dict[tuple[str, str, frozenset[str]], list[str]] = {}
    for target in targets:
        if target.gpus is None and granted[target.name].bases:
            place = target.identity
            groups.setdefault((place.namespace, place.pod, granted[target.name].bases), []).append(target.name)
    apart: dict[str, tuple[str, ...]] = {}
    for names in groups.values():
        if len(names) < 2:
            continue
        own = {name: [uuid for uuid in named[name] if uuid in granted[name].shares] for name in names}
        every = [uuid for uuids in own.values() for uuid in uuids]
        if all(own.values()) and len(every) == len(set(every)):
            apart.update({name: tuple(uuids) for name, uuids in own.items()})
    return apart


def _assign_configured(target: Target, gpus: Sequence[GpuReading]) -> Assignment:
    assert target.gpus is not None
    found = tuple(gpu.identity.uuid for gpu in gpus if gpu.identity.uuid in target.gpus or _index(gpu) in target.gpus)
    missing = len(target.gpus) - len(found)
    why = f"{missing} of the {len(target.gpus)} configured GPUs are not visible here" if missing > 0 else ""
    return Assignment(found, Origin.CONFIGURED, why)


def _assign_granted(grants: Grants, apart: tuple[str, ...] | None, gpus: Sequence[GpuReading]) -> Assignment:
    uuids = apart if apart is not None else tuple(grants.shares)
    seen = {gpu.identity.uuid for gpu in gpus}
    hidden = sum(uuid not in seen for uuid in uuids)
    of_all = count_nouns(len(uuids), "GPU is", "GPUs are")
    why = f"{hidden} of its {of_all} not visible to NVML here: the exporter wants NVIDIA_VISIBLE_DEVICES=all"
    origin = Origin.KUBELET if apart is None else Origin.PROCESS
    return Assignment(uuids, origin, why if hidden else "", _granted_parts(grants, uuids))


def _granted_parts(grants: Grants, uuids: Iterable[str]) -> dict[str, GpuPart]:
    return {uuid: GpuPart(grants.shares[uuid], ShareSource.KUBELET) for uuid in uuids if grants.shares[uuid] != 1.0}


def _assign_seen(
    target: Target,
    alone: bool,
    usable: Sequence[GpuReading],
    named: tuple[str, ...],
    granted: Mapping[str, Grants],
    evidence: Evidence,
) -> Assignment:
    """By what is seen of the target's processes; else all GPUs, where it is the only target and every process is seen."""
    if named:
        return Assignment(named, Origin.PROCESS)
    stated = evidence.environment.get(target.name, ())
    if stated:
        return Assignment(stated, Origin.ENVIRONMENT)
    kubelet = granted[target.name].why
    if target.name not in evidence.pids:
        return Assignment((), "", kubelet or "the target's URL does not name this host: set gpus or gpu_count")
    if not usable:
        return Assignment((), "", kubelet or "no GPU is visible here")
    if not alone:
        why = "the GPUs' process lists do not show this engine (another PID namespace?): set gpus"
        return Assignment((), "", kubelet or why)
    if evidence.blind:
        return Assignment((), "", f"{kubelet}; {evidence.blind}" if kubelet else evidence.blind)
    if target.identity.pod:
        # the node's GPUs are those of many pods, and one that still loads has no process on any
        return Assignment((), "", kubelet or "its processes name no GPU so far, and those of a node are many pods'")
    own = evidence.pids[target.name]
    foreign = sum(any(process.pid not in own for process in gpu.processes or ()) for gpu in usable)
    if foreign:
        why = f"processes that cannot be told to be the engine's use {foreign} of the {count_nouns(len(usable), 'GPU')} here: set gpus"
        return Assignment((), "", why)
    return Assignment(tuple(gpu.identity.uuid for gpu in usable), Origin.ONLY_TARGET)


def _recall(found: dict[str, Assignment], previous: Mapping[str, Assignment], sharing: Collection[str]) -> None:
    """Puts back into `found` what processes said of targets of which nothing better is known now."""
    named = _list_owners({name: one for name, one in found.items() if one.origin in (Origin.KUBELET, *_OF_PROCESSES)})
    together = _list_owners(previous)
    for name, before in previous.items():
        remembered = before.origin in _OF_PROCESSES or before.why == YIELDED
        if name in found and remembered and found[name].origin in (Origin.ONLY_TARGET, ""):
            left = tuple(
                uuid
                for uuid in before.uuids
                if name in sharing
                or uuid not in named
                or (before.is_part_known(uuid) and named[uuid] <= together[uuid] - {name})
            )
            found[name] = replace(before, uuids=left) if left else Assignment((), "", YIELDED)


def _list_owners(assignments: Mapping[str, Assignment]) -> dict[str, set[str]]:
    """The targets that have each GPU, by its UUID."""
    owners: dict[str, set[str]] = {}
    for name, one in assignments.items():
        for uuid in one.uuids:
            owners.setdefault(uuid, set()).add(name)
    return owners


def _index(gpu: GpuReading) -> int | None:
    """An index names a whole GPU, never a MIG instance."""
    return gpu.identity.index if gpu.identity.mig is None else None


# --- GPUs that several targets have, or that one has a stated part of -> how much of each GPU is whose (design section 8).


class _Memory(Struct, frozen=True):
    """GPU memory that the processes of one GPU hold."""

    # by target; None: its processes are not among those that the driver lists, or are not its own alone, or without their memory
    own: Mapping[str, int | None]
    # of processes that are no target's of this GPU; None: the driver does not say it of one of them
    foreign: int | None


def divide_gpus(
    targets: Collection[Target],
    found: Mapping[str, Assignment],
    gpus: Collection[GpuReading],
    pids: Mapping[str, frozenset[int]],
    previous: Mapping[str, Assignment],
) -> dict[str, Assignment]:
    """`found` with the part that each target has of every GPU that it shares: as it states, else as the kubelet gave it, else by memory.

    `pids`: the processes of each target, as far as they are seen. By memory: what is not stated is divided among the others in the
    proportion of what their processes hold, so that all parts add up to 1; processes of no target take the same part of each. Where
    one of the targets has no process now (it is down, or restarts), the parts of the pass before (`previous`) hold, if the GPU was these
    targets' then too; else they are not known.
    """
    processes = {gpu.identity.uuid: gpu.processes for gpu in gpus}
    # what else a remembered assignment has is of the pass before
    parts = {
        name: {uuid: part for uuid, part in one.parts.items() if part.source is ShareSource.KUBELET}
        for name, one in found.items()
    }
    # a front end has no cost
    engines = [target for target in targets if target.role is not Role.FRONTEND]
    before = {uuid: [one.name for one in owners] for uuid, owners in _group_by_gpu(engines, previous).items()}
    for uuid, owners in _group_by_gpu(engines, found).items():
        memory = _add_memory([one.name for one in owners], processes.get(uuid) or (), pids)
        stated = _list_stated(uuid, owners, parts)
        rest = [one.name for one in owners if one.name not in stated]
        if len(owners) > 1 and rest:
            taken = [part.share for part in stated.values()]
            left = None if None in taken else 1.0 - add_up(share or 0.0 for share in taken)
            held = {}
            if set(before.get(uuid, ())) == {one.name for one in owners}:
                held = {name: part for name in rest if (part := previous[name].parts.get(uuid)) is not None}
            stated |= _divide_by_memory(rest, left, memory, held)
        for name, part in stated.items():
            parts[name][uuid] = replace(part, memory_bytes=memory.own[name])
    return {name: replace(one, parts=parts[name]) for name, one in found.items()}


def _group_by_gpu(targets: Collection[Target], assignments: Mapping[str, Assignment]) -> dict[str, list[Target]]:
    owners: dict[str, list[Target]] = {}
    for target in targets:
        for uuid in assignments[target.name].uuids if target.name in assignments else ():
            owners.setdefault(uuid, []).append(target)
    return owners


def _list_stated(
    uuid: str, owners: Sequence[Target], granted: Mapping[str, Mapping[str, GpuPart]]
) -> dict[str, GpuPart]:
    """By target: the part that configuration or kubelet state; of a GPU's only target also that it is not known."""
    stated = {}
    for target in owners:
        given = granted[target.name].get(uuid)
        if target.gpu_share is not None:
            # it is of the card: how much of an instance that is does not follow from it, and an only target has all of that
            if not uuid.startswith("MIG-"):
                stated[target.name] = GpuPart(target.gpu_share, ShareSource.CONFIGURED)
            elif len(owners) > 1:
                stated[target.name] = GpuPart(None, ShareSource.CONFIGURED)
        elif given is not None and (given.share is not None or len(owners) == 1):
            stated[target.name] = given
    return stated


def _add_memory(names: Sequence[str], processes: Collection[GpuProcess], pids: Mapping[str, frozenset[int]]) -> _Memory:
    own: dict[str, list[int | None]] = {name: [] for name in names}
    foreign: list[int | None] = []
    for process in processes:
        whose = [name for name in names if process.pid in pids.get(name, ())]
        for name in whose:
            # of two targets with the same processes nobody knows which holds what
            own[name].append(process.memory_bytes if len(whose) == 1 else None)
        if not whose:
            foreign.append(process.memory_bytes)
    return _Memory({name: _add(held) if held else None for name, held in own.items()}, _add(foreign))


def _add(numbers: Collection[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return add_up(known) if len(known) == len(numbers) else None


def _divide_by_memory(
    names: Sequence[str], left: float | None, memory: _Memory, held: Mapping[str, GpuPart]
) -> dict[str, GpuPart]:
    """Parts of `names`, which have `left` of the GPU together. `held`: their parts at the pass before, where these still hold."""
    unknown = dict.fromkeys(names, GpuPart(None, ShareSource.MEMORY))
    if left is None or left <= 0:
        return unknown
    own = {name: number for name, number in memory.own.items() if number}
    if len(own) < len(memory.own) or memory.foreign is None:
        known = [part.share for part in held.values() if part.source is ShareSource.MEMORY]
        return dict(held) if len(known) == len(names) and None not in known else unknown
    foreign = memory.foreign / (memory.foreign + add_up(own.values()))
    together = add_up(own[name] for name in names)
    return {name: GpuPart(left * own[name] / together, ShareSource.MEMORY, foreign) for name in names}
