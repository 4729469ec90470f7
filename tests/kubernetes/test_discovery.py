"""Discovery against a real API server: rights, changes, versions that are too old, a server that dies, many pods."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from llm_serving_exporter.discovery.kubernetes.section import SectionPods
from llm_serving_exporter.discovery.section import SectionReading
from tests.support.builders.discovered_pods import section
from tests.support.builders.pods import fixture_pod, fixture_pods, pending_status, running_status
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
