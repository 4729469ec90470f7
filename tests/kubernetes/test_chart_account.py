"""The rights that the chart gives its service account: they are enough for what its configuration asks for, and each of them is needed."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.support.builders.pods import fixture_pod, running_status
from tests.support.helm import CHART, NAME, exporter_config, render
from tests.support.servers.exporter_process import Exporter
from tests.support.servers.kube_api import Manifest
from tests.support.servers.kube_cluster import KubeCluster
from tests.support.waiting import wait_until
from tests.support.yaml_text import load_yaml

pytestmark = pytest.mark.kubernetes

RBAC = ("ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding")
NODE = "gpu-node-1"
# what discovery asks for
DISCOVERED = ("pods", "nodes", "resourceslices")
CASES = {
    "daemonset": (),
    "daemonset with node data": ("--set=discovery.nodeData=true",),
    "daemonset with claims": ("--set=gpu.dra=true",),
    "statefulset": ("--set=mode=statefulset",),
    "statefulset for two namespaces": ("--set=mode=statefulset", "--set=discovery.namespaces={chat,code}"),
}


class Installed:
    """The chart's service account with its rights, and the discovery that its configuration asks for."""

    def __init__(self, cluster: KubeCluster, manifests: list[Manifest], folder: Path) -> None:
        self._cluster = cluster
        self.roles = [one for one in manifests if one["kind"] in RBAC]
        config = load_yaml(exporter_config(manifests))
        sections = config["kubernetes"]
        self.namespaces = [name for section in sections for name in section.get("namespaces", ())]
        for name in (NAME, *self.namespaces):
            cluster.admin.create_namespace(name)
        (account,) = (one for one in manifests if one["kind"] == "ServiceAccount")
        cluster.admin.apply(account, *self.roles)
        token = cluster.admin.request_token(NAME, account["metadata"]["name"])
        for section in sections:
            # in a pod the account is where Kubernetes mounts it
            section["kubeconfig"] = str(cluster.kubeconfig(token))
        self._config = folder / "exporter.yml"
        self._config.write_text(
            yaml.safe_dump({"kubernetes": sections, "gpu": {"dra": config.get("gpu", {}).get("dra", False)}})
        )

    @contextmanager
    def exporter(self) -> Iterator[Exporter]:
        env = {"NODE_NAME": NODE, "POD_NAMESPACE": NAME}
        with Exporter("--config.file", str(self._config), env=env) as running:
            yield running

    def without(self, role: Manifest, resource: str, verb: str) -> None:
        """Takes one verb on one resource out of a role."""
        less = copy.deepcopy(role)
        for rule in less["rules"]:
            if resource in rule["resources"]:
                rule["verbs"] = [one for one in rule["verbs"] if one != verb]
        self._cluster.admin.apply(less)


@pytest.fixture
def installed(cluster: KubeCluster, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Installed]:
    installed = Installed(cluster, render(*CASES[request.param]), tmp_path)
    yield installed
    for manifest in installed.roles:
        cluster.admin.remove(manifest)


def problems(exporter: Exporter) -> str:
    return "\n".join(exporter.get("/debug/targets").json()["discovery"]["problems"])


@pytest.mark.parametrize("installed", CASES, indirect=True)
def test_its_rights_are_enough(cluster: KubeCluster, installed: Installed) -> None:
    pod = fixture_pod("production-stack", "llama3")
    pod["spec"]["nodeName"] = NODE
    namespace = installed.namespaces[0] if installed.namespaces else "somewhere"
    cluster.admin.create_namespace(namespace)
    stored = cluster.admin.create_pod(pod, running_status(pod, "127.0.62.1"), namespace=namespace)
    target = f"{namespace}/{stored['metadata']['name']}:8000"
    try:
        with installed.exporter() as exporter:
            exporter.until(lambda page: bool(page.series("target_up", target=target)), "the pod to be a target")
            assert problems(exporter) == ""
    finally:
        cluster.admin.delete_pod(stored)


@pytest.mark.parametrize("installed", CASES, indirect=True)
def test_each_right_is_needed_and_its_lack_is_said(cluster: KubeCluster, installed: Installed) -> None:
    taken = 0
    for role in [one for one in installed.roles if "rules" in one]:
        for rule in role["rules"]:
            for resource in (one for one in rule["resources"] if one in DISCOVERED):
                for verb in rule["verbs"]:
                    installed.without(role, resource, verb)
                    with installed.exporter() as exporter:
                        said = wait_until(
                            lambda exporter=exporter: problems(exporter), f"that it may not {verb} {resource}"
                        )
                    assert f"it may not list and watch {resource}" in said
                    assert f'cannot {verb} resource "{resource}"' in said
                    assert f"list and watch on {resource} by a {role['kind']}" in said
                    cluster.admin.apply(role)
                    taken += 1
    assert taken >= 2


def test_the_chart_gives_no_right_that_nothing_asks_for(cluster: KubeCluster) -> None:
    """Every verb is list or watch, of pods, nodes or slices, and only where the values ask for it."""
    plain = {
        (resource, verb)
        for one in render("--values", str(CHART / "ci" / "statefulset-values.yaml"))
        for rule in one.get("rules", ())
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert plain == {("pods", "list"), ("pods", "watch")}
