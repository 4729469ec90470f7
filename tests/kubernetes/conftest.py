"""A real API server for the session; without KUBE_APISERVER these tests are skipped."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator

import pytest

from tests.support.servers.kube_cluster import KubeCluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeCluster]:
    kube_apiserver = os.environ.get("KUBE_APISERVER", "")
    if not kube_apiserver:
        pytest.skip(
            "KUBE_APISERVER names no kube-apiserver program; CONTRIBUTING.md says which programs these tests need"
        )
    assert shutil.which(kube_apiserver), f"KUBE_APISERVER={kube_apiserver} is no program"
    assert shutil.which("etcd"), "no etcd on PATH; Debian has it in etcd-server"
    with KubeCluster(tmp_path_factory.mktemp("cluster"), kube_apiserver) as running:
        yield running


@pytest.fixture
def namespace(cluster: KubeCluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own; its pods go with it."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:60].strip("-")
    cluster.admin.create_namespace(name)
    yield name
    cluster.admin.request("DELETE", f"/api/v1/namespaces/{name}/pods", {"gracePeriodSeconds": 0})
