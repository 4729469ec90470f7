"""A real API server takes every manifest of deploy/ by server-side apply, each field checked; CRDs are prometheus-operator's and KEDA's."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.kubernetes.crds import install_crds
from tests.support.helm import CHART, KUSTOMIZE, STACKS, kustomize, render
from tests.support.paths import ROOT
from tests.support.servers.kube_api import Manifest
from tests.support.servers.kube_cluster import KubeCluster
from tests.support.yaml_text import load_all_yaml
from tests.unit.deploy.test_chart_strict import EVERYTHING, LONGEST_RELEASE, MODES
from tests.unit.deploy.test_kubernetes_page import PAGE_VALUES

pytestmark = pytest.mark.kubernetes

VALUES = [*sorted((CHART / "ci").glob("*.yaml")), *sorted(STACKS.glob("*.yaml"))]
KUSTOMIZATIONS = sorted(path.parent for path in KUSTOMIZE.rglob("kustomization.yaml"))


def manifests_of(path: Path) -> list[Manifest]:
    """The objects in a file; none in one that is a program's configuration."""
    documents = load_all_yaml(path.read_text())
    return [one for one in documents if isinstance(one, dict) and {"apiVersion", "kind", "metadata"} <= one.keys()]


# written to be changed and applied by hand
EXAMPLES = [
    path
    for path in sorted((ROOT / "deploy").rglob("*.y*ml"))
    if not {CHART.parent, KUSTOMIZE} & set(path.parents) and manifests_of(path)
]


@pytest.fixture(scope="module")
def api(cluster: KubeCluster) -> KubeCluster:
    install_crds(cluster.admin)
    return cluster


def apply_twice(cluster: KubeCluster, manifests: Iterable[Manifest]) -> None:
    """Each is taken, and taken again without a change: what is applied from a repository again and again does not move by itself."""
    for manifest in manifests:
        if namespace := manifest["metadata"].get("namespace"):
            cluster.admin.create_namespace(namespace)
        cluster.admin.apply(manifest)
        first = content(cluster, manifest)
        cluster.admin.apply(manifest)
        assert content(cluster, manifest) == first, manifest["metadata"]["name"]


def content(cluster: KubeCluster, manifest: Manifest) -> Manifest:
    """What is stored, without who wrote it when: an apply that changes nothing may still be noted there."""
    stored = dict(cluster.admin.call("GET", cluster.admin.path_of(manifest)))
    stored["metadata"] = {
        key: value for key, value in stored["metadata"].items() if key not in ("resourceVersion", "managedFields")
    }
    return stored


@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)
def test_what_the_chart_renders_is_taken(api: KubeCluster, values: Path) -> None:
    manifests = render("--values", str(values))
    assert manifests
    apply_twice(api, manifests)


@pytest.mark.parametrize("folder", KUSTOMIZATIONS, ids=lambda path: path.relative_to(KUSTOMIZE).as_posix())
def test_each_kustomization_is_taken(api: KubeCluster, folder: Path) -> None:
    manifests = kustomize(folder)
    assert manifests
    apply_twice(api, manifests)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_each_example_is_taken(api: KubeCluster, path: Path) -> None:
    apply_twice(api, manifests_of(path))


@pytest.mark.parametrize("release", [LONGEST_RELEASE, "with.dots.in-it"])
@pytest.mark.parametrize("mode", MODES)
def test_the_longest_names_are_taken(api: KubeCluster, mode: str, release: str) -> None:
    """A CronJob's name has a bound of its own, and so have the labels that controllers add."""
    everything = EVERYTHING if mode != "sidecar" else ("--set=scrape.kind=scrapeconfig",)
    apply_twice(api, render(f"--set=mode={mode},discovery.namespaces={{chat}}", *everything, name=release))


@pytest.mark.parametrize("values", PAGE_VALUES, ids=lambda text: text.partition("\n")[0])
def test_the_values_of_the_page_are_taken(api: KubeCluster, tmp_path: Path, values: str) -> None:
    (tmp_path / "values.yaml").write_text(values)
    mode = "sidecar" if "mode sidecar" in values else "daemonset"
    apply_twice(api, render("--values", str(tmp_path / "values.yaml"), f"--set=mode={mode}"))


def test_examples_of_each_kind_are_found() -> None:
    kinds = {manifest["kind"] for path in EXAMPLES for manifest in manifests_of(path)}
    assert {"CronJob", "HorizontalPodAutoscaler", "ScaledObject"} <= kinds


def test_a_wrong_field_is_refused(api: KubeCluster) -> None:
    """Without that, the tests above could not fail."""
    manifests = render("--values", str(CHART / "ci" / "statefulset-values.yaml"))
    for kind, wrong in (("PodMonitor", "podMetricsEndpoint"), ("StatefulSet", "replica"), ("NetworkPolicy", "egres")):
        manifest = copy.deepcopy(next(one for one in manifests if one["kind"] == kind))
        manifest["spec"][wrong] = {}
        answer = api.admin.try_apply(manifest, dry_run=True)
        assert answer.status_code in (400, 500), answer.text
        assert wrong in answer.text
