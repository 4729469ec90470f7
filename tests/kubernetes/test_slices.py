"""ResourceSlices of a real API server: those of the own node and of NVIDIA's driver, as they come and go."""

from __future__ import annotations

from typing import Any

import pytest

from llm_serving_exporter.discovery.kubernetes.section import SectionPods
from tests.support.builders.discovered_pods import section
from tests.support.servers.kube_cluster import KubeCluster
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kubernetes

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
