"""An API server that is not what it was: its account, its authority, its rights and its state change while discovery follows it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from llm_serving_exporter.discovery.kubernetes.section import SectionPods
from llm_serving_exporter.discovery.section import SectionReading
from llm_serving_exporter.discovery.sections import Discovery
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.model.target import Shard
from tests.kubernetes.test_discovery import PATH as SLICES
from tests.kubernetes.test_discovery import write as write_slice
from tests.support.builders.discovered_pods import section
from tests.support.builders.pods import fixture_pod, pending_status, running_status
from tests.support.servers.kube_api import Manifest
from tests.support.servers.kube_cluster import KubeCluster
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kubernetes

NODE = "changed-node-1"
EVERYTHING = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]},
    {"apiGroups": ["resource.k8s.io"], "resources": ["resourceslices"], "verbs": ["list", "watch"]},
]


def write_token(folder: Path, token: str) -> None:
    """As a kubelet does: a new file takes the place of the old one at once."""
    (folder / "new").write_text(token)
    os.replace(folder / "new", folder / "token")


def write_kubeconfig(cluster: KubeCluster, folder: Path, token: str) -> str:
    """One whose token stands in a file of its own."""
    write_token(folder, token)
    path = folder / "kubeconfig"
    text = cluster.kubeconfig(token).read_text()
    path.write_text(text.replace(f'token: "{token}"', f'tokenFile: "{folder / "token"}"'))
    assert token not in path.read_text()
    return str(path)


@contextmanager
def discovering(kubeconfig: str, **settings: Any) -> Iterator[SectionPods]:
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
    return [target.identity.pod for source in found.sources for target in source.targets or ()]


def problems(found: SectionReading) -> str:
    every = (*found.problems, *(problem for source in found.sources for problem in source.problems))
    return "\n".join(map(str, every))


def create_engine(cluster: KubeCluster, namespace: str, name: str, address: str = "", **spec: Any) -> Manifest:
    pod = fixture_pod("sglang")
    pod["metadata"]["name"] = name
    pod["spec"] |= spec
    status = running_status(pod, address) if address else pending_status()
    return cluster.admin.create_pod(pod, status, namespace=namespace)


def restart(cluster: KubeCluster) -> None:
    """Ends every watch: an open one lasts, whatever happens to its account."""
    cluster.kill_api_server()
    cluster.start_api_server()


def test_a_token_that_is_rotated_and_whose_predecessor_is_refused(
    cluster: KubeCluster, namespace: str, tmp_path: Path
) -> None:
    token = cluster.admin.create_account(namespace, "exporter")
    cluster.admin.grant((namespace, "exporter"), within=namespace)
    create_engine(cluster, namespace, "a", "10.0.0.1")
    with discovering(write_kubeconfig(cluster, tmp_path, token), namespaces=(namespace,)) as pods:
        awaited(pods, names, "the target")
        later = cluster.admin.create_account_anew(namespace, "exporter")
        restart(cluster)
        refused = "the API server does not accept the exporter's credentials"
        found = awaited(pods, lambda found: refused in problems(found), "that the old token is refused")
        assert names(found) == ["a"]
        assert cluster.user(token).request("GET", f"/api/v1/namespaces/{namespace}/pods").status_code == 401
        write_token(tmp_path, later)
        create_engine(cluster, namespace, "b", "10.0.0.2")
        awaited(pods, lambda found: names(found) == ["a", "b"] and not problems(found), "both, and no problem")
        assert token not in repr(pods.read())
        assert later not in repr(pods.read())


def test_an_authority_that_is_replaced(cluster: KubeCluster, namespace: str, tmp_path: Path) -> None:
    create_engine(cluster, namespace, "a", "10.0.0.1")
    kubeconfig = write_kubeconfig(cluster, tmp_path, cluster.admin_token)
    before = tmp_path / "ca.pem"
    before.write_bytes(cluster.ca_file.read_bytes())
    Path(kubeconfig).write_text(Path(kubeconfig).read_text().replace(str(cluster.ca_file), str(before)))
    with discovering(kubeconfig, namespaces=(namespace,)) as pods:
        awaited(pods, names, "the target")
        cluster.replace_authority()
        found = awaited(pods, lambda found: "CERTIFICATE_VERIFY_FAILED" in problems(found), "that it is not trusted")
        assert names(found) == ["a"]
        before.write_bytes(cluster.ca_file.read_bytes())
        create_engine(cluster, namespace, "b", "10.0.0.2")
        awaited(pods, lambda found: names(found) == ["a", "b"] and not problems(found), "both, and no problem")


@pytest.mark.parametrize("resource", ["nodes", "resourceslices"])
def test_a_right_on_something_beside_the_pods_that_is_taken_back(
    cluster: KubeCluster, namespace: str, resource: str
) -> None:
    """It is said, what is known of it stays, and pods are followed on."""
    admin, name = cluster.admin, f"{NODE}-{resource}"
    admin.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"providerID": "cloud://7"}})
    admin.call("POST", SLICES, write_slice(name, "GPU-1", node=name))
    token = admin.create_account(namespace, "exporter")
    admin.grant((namespace, "exporter"), EVERYTHING)
    create_engine(cluster, namespace, "a", "10.0.0.1", nodeName=name)
    wants = {"node": name, "node_data": True, "claimed_devices": True}
    try:
        with discovering(str(cluster.kubeconfig(token)), **wants) as pods:

            def knows(found: SectionReading) -> bool:
                targets = [target for source in found.sources for target in source.targets or ()]
                return bool(found.slices) and [target.identity.provider_id for target in targets] == ["cloud://7"]

            awaited(pods, knows, "node and slice")
            less = [rule for rule in EVERYTHING if resource not in rule["resources"]]
            admin.grant((namespace, "exporter"), less)
            restart(cluster)
            found = awaited(pods, lambda found: problems(found).count("may not") == 1, "that the right is gone")
            said = problems(found)
            assert f"it may not list and watch {resource}" in said
            assert "Give its service account list and watch on" in said
            assert "What is known of them stays." in said
            create_engine(cluster, namespace, "b", "10.0.0.2", nodeName=name)
            found = awaited(pods, lambda found: names(found) == ["a", "b"], "a pod that comes afterwards")
            assert found.slices == {(name, "gpu-0"): "GPU-1"}
            assert {target.identity.provider_id for source in found.sources for target in source.targets or ()} == {
                "cloud://7"
            }
        # one that starts without the right goes on without what it would tell
        with discovering(str(cluster.kubeconfig(token)), **wants) as pods:
            found = awaited(pods, lambda found: names(found) and problems(found), "the pods, and what is missing")
            assert f"it may not list and watch {resource}" in problems(found)
            assert names(found) == ["a", "b"]
    finally:
        admin.remove({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        admin.call("DELETE", f"{SLICES}/{name}")


def test_the_clock_of_the_server_is_known(cluster: KubeCluster, namespace: str) -> None:
    with discovering(str(cluster.kubeconfig(cluster.admin_token)), namespaces=(namespace,)) as pods:
        awaited(pods, lambda found: found.sources[0].targets is not None, "the list")
        offset = pods._pods[0].copy().clock_offset_seconds
    assert offset is not None
    assert abs(offset + time.monotonic() - time.time()) < 30


def test_a_server_that_is_restored_from_a_backup(cluster: KubeCluster, namespace: str) -> None:
    """It is at an older version then; it would take a watch from the newer one, and tell nothing until it gets there."""
    create_engine(cluster, namespace, "a", "10.0.0.1")
    create_engine(cluster, namespace, "gone", "10.0.0.2")
    cluster.back_up()
    with discovering(str(cluster.kubeconfig(cluster.admin_token)), namespaces=(namespace,)) as pods:
        awaited(pods, lambda found: names(found) == ["a", "gone"], "two pods")
        cluster.admin.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/gone", {"gracePeriodSeconds": 0})
        create_engine(cluster, namespace, "b", "10.0.0.3")
        # far beyond what the restored server will be at
        for number in range(30):
            cluster.admin.create_namespace(namespace, number=str(number))
        awaited(pods, lambda found: names(found) == ["a", "b"], "another one")
        cluster.restore()
        awaited(pods, lambda found: names(found) == ["a", "gone"] and not problems(found), "what there is now")
        create_engine(cluster, namespace, "c", "10.0.0.4")
        awaited(pods, lambda found: names(found) == ["a", "c", "gone"], "what comes afterwards")


def test_pods_that_wait_are_counted_once_over_all_shards(cluster: KubeCluster, namespace: str) -> None:
    made = [create_engine(cluster, namespace, f"p-{number}") for number in range(12)]
    expected = {f"p-{number}" for number in range(12)}
    kubeconfig = str(cluster.kubeconfig(cluster.admin_token))
    shards = [
        Discovery((section(kubeconfig=kubeconfig, namespaces=(namespace,)),), shard=Shard(number, 3))
        for number in (1, 2, 3)
    ]

    def count() -> tuple[list[str], list[str]]:
        found = [shard.targets((), RUNTIMES) for shard in shards]
        waiting = sorted(pod.pod for one in found for pod in one.waiting)
        return waiting, sorted(target.identity.pod for one in found for target in one.targets)

    try:
        wait_until(lambda: count() == (sorted(expected), []), "every pod, once", lambda: str(count()))
        assert sum(bool(shard.targets((), RUNTIMES).waiting) for shard in shards) > 1, "they are spread"
        # one shard more, as at a reload: whoever has it now counts it
        shards.append(Discovery((section(kubeconfig=kubeconfig, namespaces=(namespace,)),), shard=Shard(4, 4)))
        for number, shard in enumerate(shards[:3], 1):
            shard.replace((section(kubeconfig=kubeconfig, namespaces=(namespace,)),), Shard(number, 4))
        wait_until(lambda: count() == (sorted(expected), []), "every pod, once again", lambda: str(count()))
        for number, pod in enumerate(made[:5]):
            cluster.admin.set_status(pod, running_status(pod, f"10.2.0.{number + 1}"))
        ready = sorted(f"p-{number}" for number in range(5))
        rest = sorted(expected - set(ready))
        wait_until(lambda: count() == (rest, ready), "five targets, and seven that wait", lambda: str(count()))
    finally:
        for shard in shards:
            shard.close()
