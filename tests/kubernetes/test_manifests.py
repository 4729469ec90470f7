"""A real API server takes every manifest of deploy/ at the security level that the docs claim; schemas of all that charts make."""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kubernetes.crds import install_crds
from tests.support.helm import CHART, KUSTOMIZE, STACKS, kustomize, need_tool, pick, render
from tests.support.paths import ROOT
from tests.support.servers.kube_api import Manifest
from tests.support.servers.kube_cluster import KubeCluster
from tests.support.waiting import PATIENCE_SECONDS
from tests.support.yaml_text import load_all_yaml, load_yaml
from tests.unit.deploy.test_chart_strict import EVERYTHING, LONGEST_RELEASE, MODES
from tests.unit.deploy.test_deploy import PAGE_VALUES

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


# --- podSecurity admission ---


LEVELS = ("privileged", "baseline", "restricted")
# an engine's pod that is as strict as can be: what the level comes to with the sidecar is the sidecar's doing
STRICT_ENGINE: Manifest = {
    "metadata": {"labels": {"app": "vllm"}},
    "spec": {
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "vllm",
                "image": "vllm/vllm-openai:v0.8.5",
                "ports": [{"containerPort": 8000}],
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            }
        ],
    },
}


def of_workload(*arguments: str) -> Manifest:
    """The pod template of the DaemonSet or StatefulSet that the chart makes."""
    (found,) = (one for one in render(*arguments) if one["kind"] in ("DaemonSet", "StatefulSet"))
    return dict(found["spec"]["template"])


def of_sidecar(patch: str, *arguments: str) -> Manifest:
    """An engine's pod with the sidecar in it, as the patch of the chart's ConfigMap makes it."""
    manifests = render("--set=mode=sidecar", *arguments)
    texts = pick(manifests, "ConfigMap", "llm-serving-exporter-sidecar")["data"]
    added = load_yaml(texts[patch])["spec"]["template"]
    pod = copy.deepcopy(STRICT_ENGINE)
    pod["metadata"]["labels"] |= added["metadata"]["labels"]
    for name, value in added["spec"].items():
        pod["spec"][name] = [*pod["spec"].get(name, ()), *value] if isinstance(value, list) else value
    return pod


# what is rendered -> the strictest level that takes it, as docs/kubernetes.md and the chart's README claim
CLAIMED: dict[str, tuple[Any, str]] = {
    "daemonset": (lambda: of_workload("--set=mode=daemonset"), "privileged"),
    "daemonset without the kubelet's socket": (
        lambda: of_workload("--set=mode=daemonset", "--set=gpu.kubelet=false"),
        "restricted",
    ),
    "daemonset that sees every process": (
        lambda: of_workload("--set=mode=daemonset", "--set=gpu.kubelet=false", "--set=daemonset.hostPID=true"),
        "privileged",
    ),
    "statefulset": (lambda: of_workload("--set=mode=statefulset"), "restricted"),
    "native sidecar": (lambda: of_sidecar("native.yml"), "restricted"),
    "plain sidecar": (lambda: of_sidecar("plain.yml"), "restricted"),
    "sidecar that sees the engine's processes": (
        lambda: of_sidecar("native.yml", "--set=sidecar.shareProcessNamespace=true"),
        "restricted",
    ),
}


@pytest.fixture(scope="module")
def levels(cluster: KubeCluster) -> KubeCluster:
    for level in LEVELS:
        cluster.admin.create_namespace(f"at-{level}", **{"pod-security.kubernetes.io/enforce": level})
    return cluster


def answer_at(cluster: KubeCluster, level: str, template: Manifest) -> tuple[int, str]:
    """What the server says to a pod of this template in a namespace of that level; nothing is kept."""
    pod = {"apiVersion": "v1", "kind": "Pod", **copy.deepcopy(template)}
    pod["metadata"] = {**pod["metadata"], "name": "tried", "namespace": f"at-{level}"}
    path = f"/api/v1/namespaces/at-{level}/pods"
    answer = cluster.admin.request("POST", path, pod, dryRun="All", fieldValidation="Strict")
    return answer.status_code, answer.json().get("message", "")


@pytest.mark.parametrize("mode", CLAIMED)
def test_it_is_taken_at_its_level_and_refused_one_stricter(levels: KubeCluster, mode: str) -> None:
    make, claimed = CLAIMED[mode]
    template = make()
    for level in LEVELS[: LEVELS.index(claimed) + 1]:
        status, text = answer_at(levels, level, template)
        assert status == 201, f"{level}: {text}"
    for level in LEVELS[LEVELS.index(claimed) + 1 :]:
        status, text = answer_at(levels, level, template)
        assert status == 403
        assert f'violates PodSecurity "{level}:latest"' in text


def test_the_strictest_level_does_refuse(levels: KubeCluster) -> None:
    """For what is `restricted` there is no level above: that the level is enforced shows on a pod that says nothing of itself."""
    careless = copy.deepcopy(STRICT_ENGINE)
    del careless["spec"]["securityContext"]
    status, text = answer_at(levels, "restricted", careless)
    assert status == 403
    assert "runAsNonRoot" in text


# --- everything that the chart and the kustomizations make ---


# of operators: their schemas come with their CRDs, which this server does not have
OPERATORS = ("PodMonitor", "ScrapeConfig", "PrometheusRule", "ScaledObject")


@pytest.fixture(scope="module")
def schemas(cluster: KubeCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A JSON schema for each kind, as kubeconform looks for it, from the server's own OpenAPI document."""
    folder = tmp_path_factory.mktemp("schemas")
    document = cluster.admin.call("GET", "/openapi/v2")
    definitions = {name: _close(one) for name, one in document["definitions"].items()}
    (folder / "_definitions.json").write_text(json.dumps({"definitions": definitions}))
    for name in definitions:
        for kind in document["definitions"][name].get("x-kubernetes-group-version-kind", ()):
            group = f"{kind['group']}-" if kind["group"] else ""
            reference = {"$ref": f"_definitions.json#/definitions/{name}"}
            (folder / f"{kind['kind']}-{group}{kind['version']}.json".lower()).write_text(json.dumps(reference))
    return folder


def _close(schema: Any) -> Any:
    """References point into the file of all definitions, and no object has a key that its schema does not name."""
    if isinstance(schema, list):
        return [_close(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("format") == "int-or-string":
        return {"type": ["string", "integer"]}
    found = {key: _close(item) for key, item in schema.items()}
    if isinstance(reference := found.get("$ref"), str):
        if reference.endswith("resource.Quantity"):
            return {"type": ["string", "number"]}
        found["$ref"] = reference.replace("#/definitions/", "_definitions.json#/definitions/")
    if isinstance(found.get("properties"), dict) and "additionalProperties" not in found:
        found["additionalProperties"] = False
    return found


def conform(schemas: Path, manifests: list[dict[str, Any]], folder: Path) -> dict[str, Any]:
    path = folder / "manifests.yaml"
    path.write_text(yaml.safe_dump_all(manifests))
    location = f"{schemas}/{{{{.ResourceKind}}}}-{{{{.Group}}}}-{{{{.ResourceAPIVersion}}}}.json"
    core = f"{schemas}/{{{{.ResourceKind}}}}-{{{{.ResourceAPIVersion}}}}.json"
    command = [need_tool("kubeconform"), "-output", "json", "-summary", "-skip", ",".join(OPERATORS)]
    command += ["-schema-location", location, "-schema-location", core, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.stdout, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize(
    "arguments",
    [
        *(pytest.param((f"--values={path}",), id=path.stem) for path in sorted((CHART / "ci").glob("*.yaml"))),
        *(pytest.param((f"--values={path}",), id=path.stem) for path in sorted(STACKS.glob("*.yaml"))),
        pytest.param(("--set=rules.enabled=true,dashboards.enabled=true",), id="monitoring"),
    ],
)
def test_the_chart_makes_what_the_schemas_allow(schemas: Path, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    made = render(*arguments)
    found = conform(schemas, made, tmp_path)
    assert found.get("resources") in (None, []), found["resources"]
    skipped = sum(one["kind"] in OPERATORS for one in made)
    assert found["summary"] == {"valid": len(made) - skipped, "invalid": 0, "errors": 0, "skipped": skipped}


@pytest.mark.parametrize("folder", sorted(path.parent for path in KUSTOMIZE.glob("*/kustomization.yaml")))
def test_kustomize_makes_what_the_schemas_allow(schemas: Path, tmp_path: Path, folder: Path) -> None:
    assert conform(schemas, kustomize(folder), tmp_path)["summary"]["invalid"] == 0


def test_the_autoscaler_is_what_the_schemas_allow(schemas: Path, tmp_path: Path) -> None:
    scaler = load_yaml((ROOT / "deploy/keda/horizontalpodautoscaler.yaml").read_text())
    assert conform(schemas, [scaler], tmp_path)["summary"]["valid"] == 1


def test_a_wrong_key_or_type_would_be_seen(schemas: Path, tmp_path: Path) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}}
    wrong = [
        {**account, "automountToken": True},
        {**account, "automountServiceAccountToken": "yes"},
        {**account, "metadata": {"name": "a", "label": {}}},
    ]
    assert conform(schemas, [account], tmp_path)["summary"]["valid"] == 1
    assert conform(schemas, wrong, tmp_path)["summary"]["invalid"] == 3
