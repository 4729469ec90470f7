"""PodSecurity admission: each mode's pods are taken at the level that the docs claim for it, and refused at the next stricter one."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.support.helm import pick, render
from tests.support.servers.kube_api import Manifest
from tests.support.servers.kube_cluster import KubeCluster
from tests.support.yaml_text import load_yaml

pytestmark = pytest.mark.kubernetes

LEVELS = ("privileged", "baseline", "restricted")
# an engine's pod that is as strict as can be: what the level comes to with the sidecar is the sidecar's doing
STRICT_ENGINE: Manifest = {
    "metadata": {"labels": {"app": "vllm"}},
    "spec": {
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "vllm",
                "image": "vllm/vllm-openai:v0.8.5",
                "ports": [{"containerPort": 8000}],
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            }
        ],
    },
}


def of_workload(*arguments: str) -> Manifest:
    """The pod template of the DaemonSet or StatefulSet that the chart makes."""
    (found,) = (one for one in render(*arguments) if one["kind"] in ("DaemonSet", "StatefulSet"))
    return dict(found["spec"]["template"])


def of_sidecar(patch: str, *arguments: str) -> Manifest:
    """An engine's pod with the sidecar in it, as the patch of the chart's ConfigMap makes it."""
    manifests = render("--set=mode=sidecar", *arguments)
    texts = pick(manifests, "ConfigMap", "llm-serving-exporter-sidecar")["data"]
    added = load_yaml(texts[patch])["spec"]["template"]
    pod = copy.deepcopy(STRICT_ENGINE)
    pod["metadata"]["labels"] |= added["metadata"]["labels"]
    for name, value in added["spec"].items():
        pod["spec"][name] = [*pod["spec"].get(name, ()), *value] if isinstance(value, list) else value
    return pod


# what is rendered -> the strictest level that takes it, as docs/kubernetes.md and the chart's README claim
CLAIMED: dict[str, tuple[Any, str]] = {
    "daemonset": (lambda: of_workload("--set=mode=daemonset"), "privileged"),
    "daemonset without the kubelet's socket": (
        lambda: of_workload("--set=mode=daemonset", "--set=gpu.kubelet=false"),
        "restricted",
    ),
    "daemonset that sees every process": (
        lambda: of_workload("--set=mode=daemonset", "--set=gpu.kubelet=false", "--set=daemonset.hostPID=true"),
        "privileged",
    ),
    "statefulset": (lambda: of_workload("--set=mode=statefulset"), "restricted"),
    "native sidecar": (lambda: of_sidecar("native.yml"), "restricted"),
    "plain sidecar": (lambda: of_sidecar("plain.yml"), "restricted"),
    "sidecar that sees the engine's processes": (
        lambda: of_sidecar("native.yml", "--set=sidecar.shareProcessNamespace=true"),
        "restricted",
    ),
}


@pytest.fixture(scope="module")
def levels(cluster: KubeCluster) -> KubeCluster:
    for level in LEVELS:
        cluster.admin.create_namespace(f"at-{level}", **{"pod-security.kubernetes.io/enforce": level})
    return cluster


def answer_at(cluster: KubeCluster, level: str, template: Manifest) -> tuple[int, str]:
    """What the server says to a pod of this template in a namespace of that level; nothing is kept."""
    pod = {"apiVersion": "v1", "kind": "Pod", **copy.deepcopy(template)}
    pod["metadata"] = {**pod["metadata"], "name": "tried", "namespace": f"at-{level}"}
    path = f"/api/v1/namespaces/at-{level}/pods"
    answer = cluster.admin.request("POST", path, pod, dryRun="All", fieldValidation="Strict")
    return answer.status_code, answer.json().get("message", "")


@pytest.mark.parametrize("mode", CLAIMED)
def test_it_is_taken_at_its_level_and_refused_one_stricter(levels: KubeCluster, mode: str) -> None:
    make, claimed = CLAIMED[mode]
    template = make()
    for level in LEVELS[: LEVELS.index(claimed) + 1]:
        status, text = answer_at(levels, level, template)
        assert status == 201, f"{level}: {text}"
    for level in LEVELS[LEVELS.index(claimed) + 1 :]:
        status, text = answer_at(levels, level, template)
        assert status == 403
        assert f'violates PodSecurity "{level}:latest"' in text


def test_the_strictest_level_does_refuse(levels: KubeCluster) -> None:
    """For what is `restricted` there is no level above: that the level is enforced shows on a pod that says nothing of itself."""
    careless = copy.deepcopy(STRICT_ENGINE)
    del careless["spec"]["securityContext"]
    status, text = answer_at(levels, "restricted", careless)
    assert status == 403
    assert "runAsNonRoot" in text
