"""What discovery makes of each stack's pods, through a real API server: which are targets, where, and what they are called."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from llm_serving_exporter.discovery.kubernetes.section import SectionPods
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.model.target import Target
from tests.support.builders.discovered_pods import section
from tests.support.builders.pods import Pod, fixture_pods, running_status
from tests.support.servers.kube_cluster import KubeCluster
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kubernetes


@dataclass(frozen=True)
class Expected:
    """Of one target. `pod`: a part of its name."""

    pod: str
    port: int
    role: str | None  # None: left to the page
    container: str
    workload: str
    kind: str
    scheme: str = "http"


STACKS: dict[str, tuple[Expected, ...]] = {
    "production-stack": (
        Expected("vllm-llama3", 8000, None, "vllm", "vllm-llama3-deployment-vllm", "Deployment"),
        Expected("router", 8000, "frontend", "router-container", "vllm-deployment-router", "Deployment"),
    ),
    # its engine prefills only where there is a decoder too, which its page knows
    "ome": (
        Expected("engine", 8080, None, "ome-container", "llama-70b", "InferenceService"),
        Expected("decoder", 8080, "decode", "ome-container", "llama-70b", "InferenceService"),
        Expected("router", 8080, "frontend", "router", "llama-70b", "InferenceService"),
    ),
    # the proxy at 8000 shows the page of the engine at 8200
    "llm-d": (
        Expected("decode", 8200, "decode", "vllm", "pd-llm-d-modelservice-decode", "Deployment"),
        Expected("prefill", 8000, "prefill", "vllm", "pd-llm-d-modelservice-prefill", "Deployment"),
        Expected("epp", 9090, "frontend", "epp", "gaie-pd-epp", "Deployment"),
    ),
    "kserve": (
        Expected("predictor", 8080, None, "kserve-container", "huggingface-llama3", "InferenceService"),
        Expected("kserve-6d7c9b8f65", 8001, "decode", "main", "qwen2-7b", "LLMInferenceService", "https"),
        Expected("prefill", 8000, "prefill", "main", "qwen2-7b", "LLMInferenceService", "https"),
        Expected("scheduler", 9090, "frontend", "main", "qwen2-7b", "LLMInferenceService"),
    ),
    "sglang": (
        Expected(
            "sglang", 30000, None, "meta-llama-31-8b-instruct-sglang", "meta-llama-31-8b-instruct-sglang", "Deployment"
        ),
    ),
    # the head runs no replica
    "ray": (Expected("worker", 8080, None, "ray-worker", "ray-serve-llm-k7xzp", "RayCluster"),),
    "kaito": (Expected("llama-70b-0", 5000, None, "workspace-llama-70b", "workspace-llama-70b", "Workspace"),),
    "kubeai": (Expected("llama-3.1", 8000, None, "server", "llama-3.1-8b", "Model"),),
    # the worker has no page
    "leaderworkerset": (Expected("vllm-0", 8080, None, "vllm-leader", "vllm", "LeaderWorkerSet"),),
    "dynamo": (
        Expected("frontend", 8000, "frontend", "main", "vllm-disagg", "DynamoGraphDeployment"),
        Expected("decodeworker", 9090, "decode", "main", "vllm-disagg", "DynamoGraphDeployment"),
    ),
}


class Discovery:
    """A section over the pods of one namespace, with nothing set."""

    def __init__(self, cluster: KubeCluster, namespace: str) -> None:
        token = cluster.admin.create_account(namespace, "exporter")
        cluster.admin.grant((namespace, "exporter"), within=namespace)
        kubeconfig = str(cluster.kubeconfig(token))
        self.section = SectionPods(section(kubeconfig=kubeconfig, namespaces=(namespace,)))

    def targets(self) -> tuple[Target, ...] | None:
        """None as long as the list has not been read."""
        (source,) = self.section.read(RUNTIMES).sources
        return source.targets


@pytest.fixture
def discovery(cluster: KubeCluster, namespace: str) -> Iterator[Discovery]:
    running = Discovery(cluster, namespace)
    yield running
    running.section.close()


@pytest.mark.parametrize("stack", STACKS)
def test_each_stack_gives_its_targets(cluster: KubeCluster, namespace: str, discovery: Discovery, stack: str) -> None:
    pods = fixture_pods(stack)
    for number, pod in enumerate(pods, 1):
        cluster.admin.create_pod(pod, running_status(pod, f"10.1.0.{number}"), namespace=namespace)
    found = wait_until(discovery.targets, "the pods to be found", lambda: str(discovery.section.read(RUNTIMES)))
    expected = {describe_expected(one, namespace, pods) for one in STACKS[stack]}
    assert {describe_target(target) for target in found} == expected
    assert "never-to-be-shown" not in repr(found)


def test_kserves_engine_over_several_nodes_is_its_heads(
    cluster: KubeCluster, namespace: str, discovery: Discovery
) -> None:
    """The worker joins the head's Ray cluster and answers nobody (config/runtimes/kserve-huggingfaceserver-multinode.yaml)."""
    predictor = next(pod for pod in fixture_pods("kserve") if "predictor" in pod["metadata"]["name"])
    for number, (name, container) in enumerate((("head", "kserve-container"), ("worker", "worker-container")), 1):
        pod = copy.deepcopy(predictor)
        pod["metadata"]["name"] = name
        engine = next(one for one in pod["spec"]["containers"] if one["name"] == "kserve-container")
        pod["spec"]["containers"] = [{**engine, "name": container}]
        cluster.admin.create_pod(pod, running_status(pod, f"10.1.1.{number}"), namespace=namespace)
    found = wait_until(discovery.targets, "the pods to be found", lambda: str(discovery.section.read(RUNTIMES)))
    assert [target.identity.pod for target in found] == ["head"]


Description = tuple[str, str, str | None, str, str, str]


def describe_expected(one: Expected, namespace: str, pods: list[Pod]) -> Description:
    number, pod = next((n, pod) for n, pod in enumerate(pods, 1) if one.pod in pod["metadata"]["name"])
    name = f"{namespace}/{pod['metadata']['name']}:{one.port}"
    return (name, f"{one.scheme}://10.1.0.{number}:{one.port}", one.role, one.container, one.workload, one.kind)


def describe_target(target: Target) -> Description:
    identity = target.identity
    return (target.name, target.url, target.role, identity.container, identity.workload, identity.workload_kind)
