"""A real API server takes each pod that other tests rely on, with the statuses that they write, and what tests do to it has its effect."""

from __future__ import annotations

import pytest
import requests

from tests.support.builders.pods import (
    STACKS,
    crash_loop_status,
    ended_status,
    fixture_pod,
    fixture_pods,
    lost_node_status,
    pending_status,
    running_status,
)
from tests.support.servers.kube_api import READ_PODS
from tests.support.servers.kube_cluster import KubeCluster
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kubernetes


@pytest.mark.parametrize("stack", STACKS)
def test_each_pod_of_each_stack_is_taken(cluster: KubeCluster, namespace: str, stack: str) -> None:
    for number, pod in enumerate(fixture_pods(stack)):
        stored = cluster.admin.create_pod(pod, running_status(pod, f"127.0.3.{number + 1}"), namespace=namespace)
        assert stored["metadata"]["labels"] == pod["metadata"]["labels"]
        assert stored["status"]["podIP"] == f"127.0.3.{number + 1}"


def test_every_status_is_taken(cluster: KubeCluster, namespace: str) -> None:
    pod = fixture_pod("sglang")
    for status in (
        pending_status(),
        running_status(pod, ["127.0.3.9", "::1"], ready=False),
        crash_loop_status(pod, "127.0.3.9"),
        lost_node_status(pod, "127.0.3.9", evicted=True),
        ended_status(pod),
        ended_status(pod, "Failed", "Evicted"),
    ):
        stored = cluster.admin.create_pod(pod, status, namespace=namespace)
        assert stored["status"]["phase"] == status["phase"]
        cluster.admin.delete_pod(stored)


def test_a_pod_that_is_about_to_go_has_a_deletion_time(cluster: KubeCluster, namespace: str) -> None:
    pod = fixture_pod("sglang")
    stored = cluster.admin.create_pod(pod, running_status(pod, "127.0.3.9"), namespace=namespace)
    cluster.admin.terminate_pod(stored)
    (left,) = cluster.admin.pods(namespace)
    assert "deletionTimestamp" in left["metadata"]
    cluster.admin.delete_pod(stored)
    assert cluster.admin.pods(namespace) == []


def test_rights_are_given_and_taken_back(cluster: KubeCluster, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    account = cluster.user(cluster.admin.create_account(namespace, "reader"))
    assert account.request("GET", path).status_code == 403
    granted = cluster.admin.grant((namespace, "reader"), READ_PODS, within=namespace)
    wait_until(lambda: account.request("GET", path).ok, "the right to take effect")
    assert account.request("GET", "/api/v1/pods").status_code == 403
    cluster.admin.revoke(granted)
    wait_until(lambda: account.request("GET", path).status_code == 403, "the right to be gone")


def test_the_server_comes_back_with_what_it_had(cluster: KubeCluster, namespace: str) -> None:
    pod = fixture_pod("sglang")
    cluster.admin.create_pod(pod, namespace=namespace)
    cluster.kill_api_server()
    with pytest.raises(requests.ConnectionError):
        cluster.admin.pods(namespace)
    cluster.start_api_server()
    assert len(cluster.admin.pods(namespace)) == 1


def test_versions_become_too_old(cluster: KubeCluster, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    before = cluster.admin.call("GET", path)["metadata"]["resourceVersion"]
    cluster.forget_versions()
    answer = cluster.admin.request("GET", path, watch="1", resourceVersion=before, timeoutSeconds="5")
    assert '"code":410' in answer.text
