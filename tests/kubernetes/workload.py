"""What a Deployment's controller, the kubelets and the engines do together, step by step, at the pace of whoever watches."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.support.builders.pods import pending_status, running_status
from tests.support.servers.kube_api import KubeApi, Manifest
from tests.support.servers.pod_engine import PodEngine

# a network of loopback that nothing else here listens on
_NETWORK = "127.0.64"
_addresses = itertools.count(1)


@dataclass
class RunningPod:
    """A pod, and the engine in it."""

    stored: Manifest
    engine: PodEngine
    has_address: bool = False  # only then it can be a target

    @property
    def name(self) -> str:
        return str(self.stored["metadata"]["name"])

    @property
    def target(self) -> str:
        """The name that the exporter gives it."""
        return f"{self.stored['metadata']['namespace']}/{self.name}:{self.engine.port}"

    @property
    def expected_labels(self) -> dict[str, str]:
        """What `target_info` has to say of it."""
        metadata = self.stored["metadata"]
        return {
            "namespace": metadata["namespace"],
            "pod": self.name,
            "container": "vllm",
            "workload": metadata["ownerReferences"][0]["name"].rpartition("-")[0],
            "workload_kind": "Deployment",
        }


class Workload:
    """A Deployment `name` of vLLM pods. `step` is called between what happens: it lets time pass for whoever watches."""

    def __init__(self, api: KubeApi, namespace: str, name: str, port: int, step: Callable[[], None]) -> None:
        self._api, self._namespace, self._name, self._port, self._step = api, namespace, name, port, step
        self._hash = secrets.token_hex(5)
        self.pods: list[RunningPod] = []
        # of those that are gone
        self.gone: list[RunningPod] = []

    def scale(self, replicas: int) -> None:
        """All at once, as an autoscaler does: the new ones are made together, the newest go together."""
        made = [self._create_pod() for _ in range(replicas - len(self.pods))]
        self._step()
        for pod in made:
            self._give_address(pod)
        self._step()
        for pod in made:
            self._make_ready(pod)
        leaving = self.pods[replicas:]
        for pod in leaving:
            self._begin_end(pod)
        self._step()
        for pod in leaving:
            self._end(pod)

    def roll(self) -> None:
        """A new revision, one pod at a time: a new one comes up, an old one goes, none is missing meanwhile."""
        self._hash = secrets.token_hex(5)
        for old in list(self.pods):
            new = self._create_pod()
            self._step()
            self._give_address(new)
            self._step()
            self._make_ready(new)
            self._begin_end(old)
            self._step()
            self._end(old)

    def close(self) -> None:
        for pod in self.pods:
            pod.engine.stop()

    def _create_pod(self) -> RunningPod:
        """Wanted and scheduled nowhere yet."""
        pod = self._describe_pod()
        stored = self._api.create_pod(pod, pending_status())
        number = next(_addresses)
        engine = PodEngine(f"{_NETWORK}.{number % 250 + 1}", self._port)
        made = RunningPod(stored, engine)
        self.pods.append(made)
        return made

    def _give_address(self, pod: RunningPod) -> None:
        """It has a node and an address; its engine loads its model and listens nowhere."""
        self._api.set_status(pod.stored, running_status(pod.stored, pod.engine.address, ready=False))
        pod.has_address = True

    def _make_ready(self, pod: RunningPod) -> None:
        pod.engine.start()
        self._api.set_status(pod.stored, running_status(pod.stored, pod.engine.address))

    def _begin_end(self, pod: RunningPod) -> None:
        """It is told to end, gets no new requests and finishes those that it has."""
        self._api.terminate_pod(pod.stored)
        self._api.set_status(pod.stored, running_status(pod.stored, pod.engine.address, ready=False))

    def _end(self, pod: RunningPod) -> None:
        pod.engine.stop()
        self._api.delete_pod(pod.stored)
        self.pods.remove(pod)
        self.gone.append(pod)

    def _describe_pod(self) -> Manifest:
        owner = f"{self._name}-{self._hash}"
        container: dict[str, Any] = {
            "name": "vllm",
            "image": "vllm/vllm-openai:v0.8.5",
            "ports": [{"name": "http", "containerPort": self._port}],
            "resources": {"limits": {"nvidia.com/gpu": "1"}},
        }
        reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{owner}-{secrets.token_hex(2)}",
                "namespace": self._namespace,
                "labels": {"app": self._name, "pod-template-hash": self._hash},
                "ownerReferences": [reference],
            },
            "spec": {"nodeName": f"node-{next(_addresses)}", "containers": [container]},
        }
