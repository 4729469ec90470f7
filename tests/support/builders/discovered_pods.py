"""Sections of Kubernetes discovery over pods that a test writes itself, without a server."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from llm_serving_exporter.discovery.kubernetes.objects import NodeRecord, PodRecord, decode_pod
from llm_serving_exporter.discovery.kubernetes.targets import (
    KNOWN_ANNOTATIONS,
    FoundPod,
    GroupBook,
    Surroundings,
    find_membership,
    find_targets,
    is_selected,
    is_unclear,
    list_known_labels,
)
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.settings.kubernetes import KubernetesDiscovery

Pod = dict[str, Any]


def section(**settings: Any) -> KubernetesDiscovery:
    """A section with the defaults of the file, and these settings."""
    defaults: dict[str, Any] = {
        "namespaces": (), "node": "", "selector": "", "only_annotated": False, "pod_labels": (), "node_data": False,
        "claimed_devices": False, "loading_limit_seconds": 3600.0, "kubeconfig": None, "context": None, "defaults": Target("", ""),
    }  # fmt: skip
    return KubernetesDiscovery(**{**defaults, **settings})


def record(pod: Pod, of: KubernetesDiscovery | None = None) -> PodRecord:
    """A pod as discovery keeps it."""
    return decode_pod(json.dumps(pod).encode(), list_known_labels(of or section()), KNOWN_ANNOTATIONS)


def find_all(
    pods: Sequence[Pod], of: KubernetesDiscovery | None = None, nodes: Mapping[str, NodeRecord] | None = None
) -> list[FoundPod]:
    """What comes of each pod that a section selects or cannot make out, workers left out."""
    of = of or section()
    records = [record(pod, of) for pod in pods]
    groups = GroupBook().gather_groups(records)
    around = Surroundings(of, "kubernetes", tuple(RUNTIMES))
    found = []
    for one in records:
        place = find_membership(one)
        if not one.has_ended and (is_selected(one, of) or is_unclear(one, of)) and (place is None or place.leads):
            group = groups[place.group] if place is not None else None
            found.append(find_targets(one, group, (nodes or {}).get(one.node), around))
    return found


def targets_of(pods: Sequence[Pod], of: KubernetesDiscovery | None = None) -> list[Target]:
    """The targets that these pods come to, by name."""
    found = [target for one in find_all(pods, of) for target, _ in one.targets]
    return sorted(found, key=lambda target: target.name)


def plain_pod(
    name: str = "chat-7d9-x2",
    *,
    namespace: str = "llm",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    containers: Sequence[Mapping[str, Any]] | None = None,
    owner: tuple[str, str] = ("", ""),
    address: str = "10.0.0.7",
    status: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Pod:
    """A pod that runs one engine, as small as one can be."""
    metadata: Pod = {"name": name, "namespace": namespace, "uid": f"uid-of-{name}", "labels": dict(labels or {})}
    metadata["annotations"] = dict(annotations or {})
    metadata["creationTimestamp"] = "2023-11-14T22:00:00Z"
    if owner[0]:
        metadata["ownerReferences"] = [{"kind": owner[0], "name": owner[1], "controller": True}]
    made = containers or [{"name": "engine", "ports": [{"containerPort": 8000}], "resources": gpus(1)}]
    return {
        "metadata": metadata,
        "spec": {"nodeName": "gpu-node-1", "containers": [dict(one) for one in made], **spec},
        "status": dict(status) if status is not None else {"phase": "Running", "podIP": address},
    }


def gpus(count: int, name: str = "nvidia.com/gpu") -> dict[str, Any]:
    return {"limits": {name: str(count)}, "requests": {name: str(count)}}


def container(name: str, *ports: int | tuple[int, str], gpu: int = 0, **more: Any) -> dict[str, Any]:
    """A container that declares these ports, each with its name where it has one, and asks for so many GPUs."""
    declared = [
        {"containerPort": one} if isinstance(one, int) else dict(zip(("containerPort", "name"), one, strict=True))
        for one in ports
    ]
    return {"name": name, **({"ports": declared} if ports else {}), **({"resources": gpus(gpu)} if gpu else {}), **more}
