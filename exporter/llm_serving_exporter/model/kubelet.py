"""What the kubelet of this node says of its devices: which container has which, and which there are."""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.model.attempt import Attempt
from llm_serving_exporter.model.pools import NOWHERE, NodePlace
from llm_serving_exporter.model.record import Struct, field


class DeviceGrant(Struct, frozen=True):
    """A device that a container has, by the names that the kubelet knows it by."""

    resource: (
        str  # of a device plugin, such as "nvidia.com/gpu"; of a claim (DRA): the driver, such as "gpu.nvidia.com"
    )
    device: str  # its id in the plugin's own form; of a claim: its name in the pool
    pool: str = ""  # of a claim; "": from a device plugin
    cdi: tuple[str, ...] = ()  # names of the claim's CDI devices, such as "nvidia.com/gpu=GPU-…"


class ContainerGrants(Struct, frozen=True):
    """A container of a pod on this node, and its devices of any kind."""

    namespace: str  # of the pod
    pod: str  # its name
    container: str  # its name in the pod
    grants: tuple[DeviceGrant, ...]  # its devices; (): it has none


class KubeletReadings(Struct, frozen=True):
    """One answer of the kubelet."""

    attempt: Attempt  # its health; where it failed `containers` is empty
    monotonic_seconds: float  # when the answer was there
    containers: tuple[
        ContainerGrants, ...
    ] = ()  # of every pod that the kubelet lists, finished ones included in some releases
    # devices that there are on this node, given out or not; None: the kubelet does not say
    allocatable: tuple[DeviceGrant, ...] | None = None


class Worker(Struct, frozen=True):
    """A pod that works for a target whose server is in another pod: a worker of a LeaderWorkerSet or of a Ray cluster."""

    namespace: str
    pod: str  # its name
    target: str  # name of the leader's target
    model_name: str = ""  # as served by the leader; "": not known here
    role: str = "unified"  # of the leader; a value of Role
    pod_uid: str = ""  # of the worker, which tells it from the next pod of its name; "": not known
    place: NodePlace = NOWHERE  # where its node stands


class WorkerGpus(Struct, frozen=True):
    """GPUs of this node that work for a target which another exporter may read."""

    worker: Worker
    uuids: tuple[str, ...]  # of the GPUs; () where they are not known
    why: str = ""  # the reason where they are not known; "": they are
    # how much of each is the worker's, where that is not all of it; None: not known
    shares: Mapping[str, float | None] = field(default_factory=dict)
