"""ResourceSlices of a node (Dynamic Resource Allocation): which GPU or MIG instance a device of a claim is.

The structures are those of resource.k8s.io/v1, which Kubernetes 1.34 and newer serve. The attribute `uuid`: NVIDIA/k8s-dra-driver-gpu,
cmd/gpu-kubelet-plugin/deviceinfo.go.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from llm_serving_exporter.discovery.kubernetes.listing import Listing
from llm_serving_exporter.discovery.kubernetes.mirror import Connect, Mirror
from llm_serving_exporter.model.record import Struct

DRIVER = "gpu.nvidia.com"
UUID = "uuid"
PATH = "/apis/resource.k8s.io/v1/resourceslices"
# the API allows 128 in one slice
_MOST_DEVICES, _LONGEST_TEXT = 256, 256
_RIGHTS = "Give its service account list and watch on resourceslices by a ClusterRole (resource.k8s.io), or leave out gpu.dra."
_ABSENT = "Kubernetes 1.34 and newer have them; leave out gpu.dra where the cluster is older or no driver is installed."


class _Attribute(msgspec.Struct):
    string: str | None = None


class _Device(msgspec.Struct):
    name: str = ""
    attributes: dict[str, _Attribute] | None = None


class _Pool(msgspec.Struct):
    name: str = ""
    generation: int = 0


class _Spec(msgspec.Struct):
    driver: str = ""
    pool: _Pool = msgspec.field(default_factory=_Pool)
    devices: list[_Device] | None = None


class _Meta(msgspec.Struct):
    name: str = ""


class _Slice(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)


_SLICE = msgspec.json.Decoder(_Slice)


class SliceRecord(Struct, frozen=True):
    """Some devices of a pool."""

    pool: str  # its name, mostly that of the node
    generation: int  # of the pool: slices of an older one are void
    uuids: tuple[
        tuple[str, str], ...
    ]  # device and the UUID of its GPU or MIG instance; devices without one are left out


def decode_slice(body: bytes | msgspec.Raw) -> tuple[str, SliceRecord | None]:
    """A slice: its name, and what is kept of it; None where another driver made it. Raises msgspec.MsgspecError for what is no slice."""
    found = _SLICE.decode(body)
    if not found.metadata.name:
        raise msgspec.ValidationError("a resource slice without a name")
    spec = found.spec
    if spec.driver != DRIVER:
        return found.metadata.name, None
    uuids = ((one.name, _find_uuid(one)) for one in (spec.devices or ())[:_MOST_DEVICES])
    known = tuple((name, uuid) for name, uuid in uuids if name and uuid)
    return found.metadata.name, SliceRecord(spec.pool.name, spec.pool.generation, known)


def _find_uuid(device: _Device) -> str:
    """An attribute without a domain is the driver's own."""
    attributes = device.attributes or {}
    found = attributes.get(UUID) or attributes.get(f"{DRIVER}/{UUID}") or _Attribute()
    return (found.string or "")[:_LONGEST_TEXT]


def map_devices(slices: Iterable[SliceRecord]) -> dict[tuple[str, str], str]:
    """UUIDs by pool and device, of each pool's newest generation: while a driver replaces its slices there are some of both."""
    every = tuple(slices)
    newest: dict[str, int] = {}
    for one in every:
        newest[one.pool] = max(one.generation, newest.get(one.pool, one.generation))
    return {
        (one.pool, device): uuid for one in every if one.generation == newest[one.pool] for device, uuid in one.uuids
    }


def watch_slices(node: str, connect: Connect) -> Mirror[str, SliceRecord]:
    """A copy of the node's slices, to be started."""
    parameters = {"fieldSelector": f"spec.nodeName={node},spec.driver={DRIVER}"}
    name = f"kubernetes (resource slices of node {node})"
    where = f"of node {node}"
    listing = Listing(name, "resourceslices", PATH, where, _RIGHTS, parameters, absent=_ABSENT)
    return Mirror(listing, connect, decode_slice)
