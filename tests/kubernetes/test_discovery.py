"""Discovery against a real API server: rights, changes, versions that are too old, many pods, stacks, slices, groups over several nodes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from llm_serving_exporter.discovery.kubernetes.section import SectionPods
from llm_serving_exporter.discovery.section import SectionReading
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.model.target import PodFault, Target
from tests.support.builders.discovered_pods import section
from tests.support.builders.pods import Pod, fixture_pod, fixture_pods, pending_status, running_status
from tests.support.servers.kube_api import Manifest
from tests.support.servers.kube_cluster import KubeCluster
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kubernetes


@contextmanager
def discovering(cluster: KubeCluster, token: str = "", **settings: Any) -> Iterator[SectionPods]:
    kubeconfig = str(cluster.kubeconfig(token or cluster.admin_token))
    pods = SectionPods(section(kubeconfig=kubeconfig, **settings))
    pods.read()
    try:
        yield pods
    finally:
        pods.close()


def awaited(pods: SectionPods, holds: Callable[[SectionReading], object], what: str) -> SectionReading:
    (found,) = wait_until(lambda: [one for one in [pods.read()] if holds(one)], what, lambda: str(pods.read()))
    return found


def names(found: SectionReading) -> list[str]:
    return [target.name for source in found.sources for target in source.targets or ()]


def problems(found: SectionReading) -> list[str]:
    return [str(problem) for source in found.sources for problem in source.problems]


def engine(name: str) -> Manifest:
    pod = copy.deepcopy(fixture_pod("sglang"))
    pod["metadata"]["name"] = name
    return pod


def test_a_pod_comes_is_ready_and_goes(cluster: KubeCluster, namespace: str) -> None:
    with discovering(cluster, namespaces=(namespace,)) as pods:
        awaited(pods, lambda found: found.sources[0].targets == (), "the empty list")
        stored = cluster.admin.create_pod(engine("a"), pending_status(), namespace=namespace)
        waiting = awaited(pods, lambda found: found.waiting, "the pod that waits").waiting
        assert [pod.workload for pod in waiting] == ["meta-llama-31-8b-instruct-sglang"]
        cluster.admin.set_status(stored, running_status(stored, "10.0.0.1", ready=False))
        name = f"{namespace}/a:30000"
        loading = awaited(pods, names, "the target")
        assert (names(loading), loading.pods[name].was_ready, loading.waiting) == ([name], False, ())
        cluster.admin.set_status(stored, running_status(stored, "10.0.0.1"))
        awaited(pods, lambda found: found.pods[name].was_ready, "that it is ready")
        cluster.admin.terminate_pod(stored)
        assert names(pods.read()) == [name]
        cluster.admin.delete_pod(stored)
        awaited(pods, lambda found: not names(found), "its end")


def test_rights_on_pods_of_a_namespace_are_enough_and_one_less_is_said(cluster: KubeCluster, namespace: str) -> None:
    cluster.admin.create_pod(engine("a"), running_status(engine("a"), "10.0.0.1"), namespace=namespace)
    token = cluster.admin.create_account(namespace, "exporter")
    for verbs, missing in ((["watch"], "list"), (["list"], "watch")):
        rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": verbs}]
        granted = cluster.admin.grant((namespace, "exporter"), rules, within=namespace)
        with discovering(cluster, token, namespaces=(namespace,)) as pods:
            said = problems(awaited(pods, problems, f"that it may not {missing}"))[0]
        cluster.admin.revoke(granted)
        assert (
            f"kubernetes (namespace {namespace}): it may not list and watch pods in the namespace {namespace}: pods is forbidden: "
            in said
        )
        assert f'cannot {missing} resource "pods"' in said
        assert "Give its service account list and watch on pods by a Role and a RoleBinding in the namespace." in said
    cluster.admin.grant((namespace, "exporter"), within=namespace)
    with discovering(cluster, token, namespaces=(namespace,)) as pods:
        found = awaited(pods, names, "the target")
        assert (len(names(found)), problems(found)) == (1, [])
    with discovering(cluster, token) as pods:
        said = problems(awaited(pods, problems, "that it may not list all namespaces"))[0]
        assert "at the cluster scope" in said
        assert "by a ClusterRole and a ClusterRoleBinding" in said


def test_a_server_that_is_killed_and_comes_back(cluster: KubeCluster, namespace: str) -> None:
    cluster.admin.create_pod(engine("a"), running_status(engine("a"), "10.0.0.1"), namespace=namespace)
    with discovering(cluster, namespaces=(namespace,)) as pods:
        awaited(pods, names, "the target")
        cluster.kill_api_server()
        found = awaited(pods, problems, "the problem")
        assert (len(names(found)), "What is known of them stays." in problems(found)[0]) == (1, True)
        cluster.start_api_server()
        cluster.admin.create_pod(engine("b"), running_status(engine("b"), "10.0.0.2"), namespace=namespace)
        found = awaited(pods, lambda found: len(names(found)) == 2, "the pod that came afterwards")
        assert problems(found) == []


def test_versions_that_the_server_forgot(cluster: KubeCluster, namespace: str) -> None:
    cluster.admin.create_pod(engine("a"), running_status(engine("a"), "10.0.0.1"), namespace=namespace)
    with discovering(cluster, namespaces=(namespace,)) as pods:
        awaited(pods, names, "the target")
        cluster.forget_versions()
        cluster.admin.create_pod(engine("b"), running_status(engine("b"), "10.0.0.2"), namespace=namespace)
        found = awaited(pods, lambda found: len(names(found)) == 2 and not problems(found), "both, and no problem")
        assert names(found) == [f"{namespace}/a:30000", f"{namespace}/b:30000"]


def test_a_list_of_several_pages_a_selector_and_a_node(cluster: KubeCluster, namespace: str) -> None:
    for number in range(205):
        pod = engine(f"p-{number:03}")
        pod["metadata"]["labels"]["part"] = "even" if number % 2 == 0 else "odd"
        pod["spec"]["nodeName"] = f"node-{number % 5}"
        cluster.admin.create_pod(
            pod, running_status(pod, f"10.1.{number // 250}.{number % 250 + 1}"), namespace=namespace
        )
    with discovering(cluster, namespaces=(namespace,)) as pods:
        awaited(pods, lambda found: len(names(found)) == 205, "every pod")
    with discovering(cluster, namespaces=(namespace,), selector="part=even", node="node-2") as pods:
        found = awaited(pods, names, "some pods")
        assert names(found) == [f"{namespace}/p-{number:03}:30000" for number in range(2, 205, 10)]


def test_a_replica_that_loses_a_worker(cluster: KubeCluster, namespace: str) -> None:
    made = [
        cluster.admin.create_pod(pod, running_status(pod, f"10.0.0.{number}"), namespace=namespace)
        for number, pod in enumerate(fixture_pods("leaderworkerset"), 1)
    ]
    with discovering(cluster, namespaces=(namespace,)) as pods:
        found = awaited(pods, lambda found: found.workers, "the worker")
        (target,) = found.sources[0].targets or ()
        assert (target.gpu_count, target.nodes) == (16, ("gpu-node-1", "gpu-node-2"))
        cluster.admin.delete_pod(made[1])
        found = awaited(pods, lambda found: found.pods[target.name].fault, "the loss")
        assert (found.pods[target.name].fault, names(found)) == ("worker_lost", [target.name])


# --- what discovery makes of each stack's pods, through a real API server ---


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


# --- resourceSlices of a real API server ---


PATH = "/apis/resource.k8s.io/v1/resourceslices"
NODE = "claims-node-1"


def write(name: str, uuid: str, *, node: str = NODE, driver: str = "gpu.nvidia.com", generation: int = 1) -> Any:
    """A slice with one card, as NVIDIA's driver writes it."""
    device = {
        "name": "gpu-0",
        "attributes": {"uuid": {"string": uuid}, "type": {"string": "gpu"}, "minor": {"int": 0}},
        "capacity": {"memory": {"value": "81559Mi"}},
    }
    pool = {"name": node, "generation": generation, "resourceSliceCount": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": [device]},
    }


def test_slices_of_the_own_node_and_driver(cluster: KubeCluster) -> None:
    api = cluster.admin
    pods = SectionPods(
        section(node=NODE, claimed_devices=True, kubeconfig=str(cluster.kubeconfig(cluster.admin_token)))
    )
    api.call("POST", PATH, write("ours", "GPU-1"))
    api.call("POST", PATH, write("theirs", "GPU-2", node="claims-node-2"))
    api.call("POST", PATH, write("amd", "GPU-3", driver="gpu.amd.com"))
    try:
        wait_until(lambda: pods.read().slices == {(NODE, "gpu-0"): "GPU-1"}, "the slices", lambda: str(pods.read()))
        # the driver starts again: the pool is made anew beside the old one
        api.call("POST", PATH, write("newer", "GPU-4", generation=2))
        wait_until(lambda: pods.read().slices == {(NODE, "gpu-0"): "GPU-4"}, "the newer one")
        api.call("DELETE", f"{PATH}/newer")
        api.call("DELETE", f"{PATH}/ours")
        wait_until(lambda: pods.read().slices == {}, "none")
        assert pods.read().problems == ()
    finally:
        pods.close()
        for name in ("theirs", "amd"):
            api.call("DELETE", f"{PATH}/{name}")


# --- replicas over several nodes, as a DaemonSet's exporters hear of them from a real API server ---


GROUP = "leaderworkerset.sigs.k8s.io/group-index"
# leader's and worker's node of each group
NODES = (("g-node-0", "g-node-1"), ("g-node-2", "g-node-3"))


def targets_of(pods: SectionPods) -> list[Target]:
    return [target for source in pods.read().sources for target in source.targets or ()]


GROVE = {"grove.io/podcliquescalinggroup": "vllm-disagg-0-decode", "grove.io/podcliquescalinggroup-replica-index": "0"}
GROVE_NODES = ("d-node-0", "d-node-1")


def test_a_replica_of_dynamo_over_two_nodes_by_an_exporter_a_node(cluster: KubeCluster, namespace: str) -> None:
    for place, role in enumerate(("ldr", "wkr")):
        pod = copy.deepcopy(next(pod for pod in fixture_pods("dynamo") if "decodeworker" in pod["metadata"]["name"]))
        pod["metadata"]["name"] = f"decode-{role}"
        pod["metadata"]["labels"] |= {**GROVE, "grove.io/podclique": f"vllm-disagg-0-decode-0-{role}"}
        pod["spec"]["nodeName"] = GROVE_NODES[place]
        cluster.admin.create_pod(pod, running_status(pod, f"127.0.75.{place + 1}"), namespace=namespace)
    kubeconfig = str(cluster.kubeconfig(cluster.admin_token))
    with ExitStack() as stack:
        leader, worker = (
            stack.enter_context(
                closing(SectionPods(section(namespaces=(namespace,), node=node, kubeconfig=kubeconfig)))
            )
            for node in GROVE_NODES
        )

        def known() -> list[Target]:
            return [target for target in targets_of(leader) if not target.lacks_pods]

        (target,) = wait_until(known, "the replica with all of its pods", lambda: str(leader.read()))
        assert (target.identity.pod, target.gpu_count, target.nodes) == ("decode-ldr", 2, GROVE_NODES)
        worked = wait_until(lambda: worker.read().workers, "the worker's leader")
        assert [(one.pod, one.target) for one in worked] == [("decode-wkr", target.name)]


def create_replica(cluster: KubeCluster, namespace: str, number: int) -> list[Manifest]:
    """A leader and a worker of eight GPUs each, as the controller of LeaderWorkerSets makes them."""
    made = []
    for place, pod in enumerate(fixture_pods("leaderworkerset")):
        pod = copy.deepcopy(pod)
        pod["metadata"]["name"] = f"vllm-{number}" + ("" if place == 0 else f"-{place}")
        pod["metadata"]["labels"][GROUP] = str(number)
        pod["spec"]["nodeName"] = NODES[number][place]
        status = running_status(pod, f"127.0.7{number}.{place + 1}")
        made.append(cluster.admin.create_pod(pod, status, namespace=namespace))
    return made


def test_two_groups_of_two_nodes_by_an_exporter_a_node(cluster: KubeCluster, namespace: str) -> None:
    replicas = [create_replica(cluster, namespace, number) for number in range(2)]
    kubeconfig = str(cluster.kubeconfig(cluster.admin_token))
    with ExitStack() as stack:
        by_node = {
            node: stack.enter_context(
                closing(SectionPods(section(namespaces=(namespace,), node=node, kubeconfig=kubeconfig)))
            )
            for nodes in NODES
            for node in nodes
        }

        def count() -> list[int | None]:
            return sorted(target.gpu_count or 0 for pods in by_node.values() for target in targets_of(pods))

        wait_until(lambda: count() == [16, 16], "both replicas with all of their GPUs", lambda: str(count()))
        for number, (of_leader, of_worker) in enumerate(NODES):
            leader = f"{namespace}/vllm-{number}:8080"
            (target,) = targets_of(by_node[of_leader])
            assert (target.name, target.nodes, target.lacks_pods) == (leader, NODES[number], False)
            worked = wait_until(lambda pods=by_node[of_worker]: pods.read().workers, "the worker's leader")
            assert [(one.pod, one.target) for one in worked] == [(f"vllm-{number}-1", leader)]
        # one worker lost is one replica lost, and it stays as large as it was
        cluster.admin.delete_pod(replicas[1][1])

        def faults() -> dict[str, PodFault | None]:
            return {name: state.fault for pods in by_node.values() for name, state in pods.read().pods.items()}

        expected = {f"{namespace}/vllm-0:8080": None, f"{namespace}/vllm-1:8080": PodFault.WORKER_LOST}
        wait_until(lambda: faults() == expected, "the replica without a worker", lambda: str(faults()))
        assert count() == [16, 16]
