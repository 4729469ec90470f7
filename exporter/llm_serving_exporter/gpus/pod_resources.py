"""Messages of the kubelet's PodResources API, version v1: bytes -> what the exporter needs of them.

Names and numbers of the fields: k8s.io/kubelet v0.34.1, pkg/apis/podresources/v1/api.proto. Fields that are not needed (CPUs, memory,
topology) are not declared and are skipped as unknown ones. Imported only where there is a kubelet: protobuf is an extra.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from llm_serving_exporter.model.gpu import ContainerGrants, DeviceGrant

SERVICE = "v1.PodResourcesLister"
LIST, ALLOCATABLE = f"/{SERVICE}/List", f"/{SERVICE}/GetAllocatableResources"

# message -> field: number, whether it is repeated, and its message; "": a string
_MESSAGES: dict[str, dict[str, tuple[int, bool, str]]] = {
    "CDIDevice": {"name": (1, False, "")},
    "ClaimResource": {
        "cdi_devices": (1, True, "CDIDevice"),
        "driver_name": (2, False, ""),
        "pool_name": (3, False, ""),
        "device_name": (4, False, ""),
    },
    "DynamicResource": {
        "claim_name": (2, False, ""),
        "claim_namespace": (3, False, ""),
        "claim_resources": (4, True, "ClaimResource"),
    },
    "ContainerDevices": {"resource_name": (1, False, ""), "device_ids": (2, True, "")},
    "ContainerResources": {
        "name": (1, False, ""),
        "devices": (2, True, "ContainerDevices"),
        "dynamic_resources": (5, True, "DynamicResource"),
    },
    "PodResources": {
        "name": (1, False, ""),
        "namespace": (2, False, ""),
        "containers": (3, True, "ContainerResources"),
    },
    "ListPodResourcesResponse": {"pod_resources": (1, True, "PodResources")},
    "AllocatableResourcesResponse": {"devices": (1, True, "ContainerDevices")},
}


def build_messages() -> dict[str, Any]:
    """The classes of the messages by name, in a pool of their own: another library may bring the same ones."""
    file = FileDescriptorProto(name="podresources/v1/api.proto", package="v1", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, repeated, of) in fields.items():
            message.field.add(
                name=field,
                number=number,
                label=FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL,
                type=FieldDescriptorProto.TYPE_MESSAGE if of else FieldDescriptorProto.TYPE_STRING,
                type_name=f".v1.{of}" if of else None,
            )
    pool = DescriptorPool()
    pool.Add(file)
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"v1.{name}")) for name in _MESSAGES}


_CLASSES = build_messages()


def read_containers(body: bytes) -> tuple[ContainerGrants, ...]:
    """An answer to List. Raises google.protobuf.message.DecodeError where it is none."""
    answer = _CLASSES["ListPodResourcesResponse"].FromString(body)
    return tuple(
        ContainerGrants(pod.namespace, pod.name, container.name, tuple(_list_grants(container)))
        for pod in answer.pod_resources
        for container in pod.containers
    )


def read_allocatable(body: bytes) -> tuple[DeviceGrant, ...]:
    """An answer to GetAllocatableResources. Raises google.protobuf.message.DecodeError where it is none."""
    answer = _CLASSES["AllocatableResourcesResponse"].FromString(body)
    return tuple(DeviceGrant(of.resource_name, device) for of in answer.devices for device in of.device_ids)


def _list_grants(container: Any) -> Iterator[DeviceGrant]:
    for of in container.devices:
        for device in of.device_ids:
            yield DeviceGrant(of.resource_name, device)
    for claim in container.dynamic_resources:
        for one in claim.claim_resources:
            cdi = tuple(device.name for device in one.cdi_devices)
            yield DeviceGrant(one.driver_name, one.device_name, one.pool_name, cdi)
