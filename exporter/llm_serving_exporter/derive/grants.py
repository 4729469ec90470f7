"""What the kubelet gave a pod's container -> the GPUs that a target has by it, and how much of each."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from llm_serving_exporter.derive.device_ids import Device, count_parts, find_device
from llm_serving_exporter.model.gpu import ContainerGrants, GpuIdentity, KubeletReadings
from llm_serving_exporter.model.record import Struct, field

MOST_NAMED = 3  # devices that a reason names


class Grants(Struct, frozen=True):
    """The GPUs of a container, or of a pod."""

    # how much of each GPU or MIG instance, by UUID: 1 is all of it, None is not known
    shares: Mapping[str, float | None] = field(default_factory=dict)
    # the physical devices
    bases: frozenset[str] = frozenset()
    # the reason why there are none, or why they are not known; then `shares` is empty
    why: str = ""
    # whether the kubelet says that there are none
    is_none: bool = False


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
