"""Replicas over several nodes, as a DaemonSet's exporters hear of them from a real API server: each looks at its own node alone."""

from __future__ import annotations

import copy
from contextlib import ExitStack, closing

import pytest

from llm_serving_exporter.discovery.kubernetes.section import SectionPods
from llm_serving_exporter.model.target import PodFault, Target
from tests.support.builders.discovered_pods import section
from tests.support.builders.pods import fixture_pods, running_status
from tests.support.servers.kube_api import Manifest
from tests.support.servers.kube_cluster import KubeCluster
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kubernetes

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
