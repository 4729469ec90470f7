"""Pods of real stacks out of tests/kubernetes/fixtures, and the status that a kubelet would write of them."""

import copy
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from typing import Any

from tests.support.paths import TESTS
from tests.support.yaml_text import load_all_yaml

FIXTURES = TESTS / "kubernetes" / "fixtures"
STACKS = tuple(sorted(path.stem for path in FIXTURES.glob("*.yaml")))

Pod = dict[str, Any]


def fixture_pods(stack: str) -> list[Pod]:
    """The pods of a stack, in the order of its file; each a fresh copy without status and UID."""
    return copy.deepcopy(_read_pods(stack))


@cache
def _read_pods(stack: str) -> list[Pod]:
    return list(load_all_yaml((FIXTURES / f"{stack}.yaml").read_text()))


def fixture_pod(stack: str, part: str = "") -> Pod:
    """The one pod of a stack whose name contains `part`."""
    (found,) = [pod for pod in fixture_pods(stack) if part in pod["metadata"]["name"]]
    return found


def timestamp(unix_seconds: float) -> str:
    """A time as the API server writes it."""
    return datetime.fromtimestamp(unix_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def running_status(
    pod: Pod, ips: str | Iterable[str], *, ready: bool = True, started: float = 1_700_000_000.0, restarts: int = 0
) -> dict[str, Any]:
    """The status of a pod whose containers all run since `started`. `ips`: its address, or several (IPv4 and IPv6).

    Init containers that restart always run beside the others; the rest have completed.
    """
    addresses = [ips] if isinstance(ips, str) else list(ips)
    spec = pod["spec"]
    return {
        "phase": "Running",
        "podIP": addresses[0],
        "podIPs": [{"ip": address} for address in addresses],
        "hostIP": "192.0.2.1",
        "startTime": timestamp(started),
        "conditions": [
            _condition("Initialized", True, started),
            _condition("PodScheduled", True, started),
            _condition("ContainersReady", ready, started),
            _condition("Ready", ready, started),
        ],
        "initContainerStatuses": [
            _running(container, True, started, 0)
            if container.get("restartPolicy") == "Always"
            else _terminated(container, "Completed", 0, started)
            for container in spec.get("initContainers", ())
        ],
        "containerStatuses": [_running(container, ready, started, restarts) for container in spec["containers"]],
    }


def pending_status() -> dict[str, Any]:
    """The status of a pod that no node has room for: no address, nothing has started."""
    return {"phase": "Pending", "conditions": [_condition("PodScheduled", False, 1_700_000_000.0)]}


def crash_loop_status(pod: Pod, ip: str, *, started: float = 1_700_000_000.0) -> dict[str, Any]:
    """The status of a pod whose containers end again and again: the kubelet waits before it starts them once more."""
    status = running_status(pod, ip, ready=False, started=started, restarts=7)
    for container in status["containerStatuses"]:
        container["lastState"] = _terminated(container, "Error", 1, started)["state"]
        container["state"] = {
            "waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting failed container"}
        }
        container["started"] = False
    return status


def lost_node_status(pod: Pod, ip: str, *, evicted: bool = False, started: float = 1_700_000_000.0) -> dict[str, Any]:
    """The status that the control plane leaves where a node's kubelet answers no more.

    It takes the pod's Ready away and nothing else (MarkPodsNotReady, pkg/controller/util/node of Kubernetes 1.34): the containers are still
    called ready and running, by a kubelet that is gone. `evicted`: five minutes later, when the taint of the node deletes the pod.
    """
    status = running_status(pod, ip, started=started)
    for condition in status["conditions"]:
        if condition["type"] == "Ready":
            condition["status"] = "False"
    if evicted:
        reason = {"reason": "DeletionByTaintManager", "message": "Taint manager: deleting due to NoExecute taint"}
        status["conditions"].append({**_condition("DisruptionTarget", True, started), **reason})
    return status


def ended_status(pod: Pod, phase: str = "Succeeded", reason: str = "") -> dict[str, Any]:
    """The status of a pod that is through: Succeeded, or Failed, with the reason Evicted where the node threw it out."""
    code = 0 if phase == "Succeeded" else 137
    containers = [
        _terminated(one, "Completed" if code == 0 else "Error", code, 1_700_000_000.0)
        for one in pod["spec"]["containers"]
    ]
    return {"phase": phase, **({"reason": reason} if reason else {}), "containerStatuses": containers}


def stored(pod: Pod, uid: str, status: dict[str, Any], version: int = 1) -> Pod:
    """The pod as the API server gives it, for tests without one."""
    metadata = {
        **pod["metadata"],
        "uid": uid,
        "resourceVersion": str(version),
        "creationTimestamp": "2023-11-14T22:13:20Z",
    }
    return {**pod, "metadata": metadata, "status": status}


def _condition(kind: str, holds: bool, since: float) -> dict[str, Any]:
    return {"type": kind, "status": "True" if holds else "False", "lastTransitionTime": timestamp(since)}


def _running(container: dict[str, Any], ready: bool, started: float, restarts: int) -> dict[str, Any]:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": ready,
        "started": True,
        "restartCount": restarts,
        "state": {"running": {"startedAt": timestamp(started)}},
        "lastState": {},
    }


def _terminated(container: dict[str, Any], reason: str, code: int, ended: float) -> dict[str, Any]:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": code == 0,
        "restartCount": 0,
        "state": {"terminated": {"exitCode": code, "reason": reason, "finishedAt": timestamp(ended)}},
        "lastState": {},
    }
