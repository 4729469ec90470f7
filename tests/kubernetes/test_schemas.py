"""Everything that the chart and the kustomizations make, by kubeconform against the schemas of a real API server."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.helm import CHART, KUSTOMIZE, STACKS, kustomize, need_tool, render
from tests.support.paths import ROOT
from tests.support.servers.kube_cluster import KubeCluster
from tests.support.waiting import PATIENCE_SECONDS
from tests.support.yaml_text import load_yaml

pytestmark = pytest.mark.kubernetes

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
