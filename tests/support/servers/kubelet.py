"""A kubelet's PodResources service: a real gRPC server on a Unix socket, which answers what the test says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from llm_serving_exporter.gpus.pod_resources import ALLOCATABLE, LIST, SERVICE, build_messages

MESSAGES = build_messages()
GPU = "nvidia.com/gpu"


class StubKubelet:
    """`with StubKubelet(path) as kubelet:` then `kubelet.give("serving", "vllm-0", "vllm", GPU, ids)`.

    Stopped and made again on the same path, it is a kubelet that started again: its socket is another one.
    """

    def __init__(self, path: Path, *, allocatable: bool = True) -> None:
        self.path = path
        self.calls = 0
        # (namespace, pod, container) -> resource -> device ids; claims: (driver, pool, device, CDI names)
        self.devices: dict[tuple[str, str, str], dict[str, list[str]]] = {}
        self.claims: dict[tuple[str, str, str], list[tuple[str, str, str, Sequence[str]]]] = {}
        # resource -> device ids that there are; what was given is among them without being named
        self.there: dict[str, list[str]] = {}
        # gRPC code that every question gets; None: answers
        self.refusal: grpc.StatusCode | None = None
        # whether it leaves out all that there is, as before a plugin has registered again
        self.says_nothing_there = False
        # what is sent instead of the answer to List
        self.raw: bytes | None = None
        self._says_allocatable = allocatable

    def give(self, namespace: str, pod: str, container: str, resource: str = GPU, ids: Sequence[str] = ()) -> None:
        """A container has these devices; without ids it has none."""
        of = self.devices.setdefault((namespace, pod, container), {})
        if ids:
            of.setdefault(resource, []).extend(ids)

    def claim(
        self, namespace: str, pod: str, container: str, driver: str, pool: str, device: str, cdi: Sequence[str] = ()
    ) -> None:
        """A container has a device of a claim (DRA)."""
        self.devices.setdefault((namespace, pod, container), {})
        self.claims.setdefault((namespace, pod, container), []).append((driver, pool, device, cdi))

    def take(self, namespace: str, pod: str) -> None:
        """The pod is gone."""
        self.devices = {key: of for key, of in self.devices.items() if key[:2] != (namespace, pod)}

    def __enter__(self) -> StubKubelet:
        self.path.parent.mkdir(exist_ok=True)
        self._pool = ThreadPoolExecutor(2)
        self._server = grpc.server(self._pool)
        handlers: dict[str, Any] = {LIST.rpartition("/")[2]: grpc.unary_unary_rpc_method_handler(self._list)}
        if self._says_allocatable:
            handlers[ALLOCATABLE.rpartition("/")[2]] = grpc.unary_unary_rpc_method_handler(self._allocatable)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        assert self._server.add_insecure_port(f"unix:{self.path}")
        self._server.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.stop(None).wait(10)
        self._pool.shutdown()

    def _list(self, _request: bytes, context: grpc.ServicerContext) -> bytes:
        self.calls += 1
        if self.refusal is not None:
            context.abort(self.refusal, "the test says so")
        if self.raw is not None:
            return self.raw
        answer = MESSAGES["ListPodResourcesResponse"]()
        pods: dict[tuple[str, str], Any] = {}
        for (namespace, name, container), of in self.devices.items():
            pod = pods.get((namespace, name))
            if pod is None:
                pod = pods[namespace, name] = answer.pod_resources.add(name=name, namespace=namespace)
            one = pod.containers.add(name=container)
            _add_devices(one.devices, of)
            for driver, pool, device, cdi in self.claims.get((namespace, name, container), ()):
                resource = one.dynamic_resources.add(claim_name="c", claim_namespace=namespace).claim_resources.add(
                    driver_name=driver, pool_name=pool, device_name=device
                )
                for cdi_name in cdi:
                    resource.cdi_devices.add(name=cdi_name)
        return bytes(answer.SerializeToString())

    def _allocatable(self, _request: bytes, context: grpc.ServicerContext) -> bytes:
        answer = MESSAGES["AllocatableResourcesResponse"]()
        if self.says_nothing_there:
            return bytes(answer.SerializeToString())
        there = {resource: list(ids) for resource, ids in self.there.items()}
        for of in self.devices.values():
            for resource, ids in of.items():
                there[resource] = [
                    *there.get(resource, ()),
                    *(one for one in ids if one not in there.get(resource, ())),
                ]
        _add_devices(answer.devices, there)
        return bytes(answer.SerializeToString())


def _add_devices(devices: Any, of: Mapping[str, Sequence[str]]) -> None:
    """As a kubelet does: one entry a device and NUMA node, not one a resource."""
    for resource, ids in of.items():
        for one in ids:
            devices.add(resource_name=resource, device_ids=[one])
