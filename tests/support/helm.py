"""The Helm chart and the kustomizations of deploy/, rendered by the real programs."""

import copy
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.paths import ROOT
from tests.support.waiting import PATIENCE_SECONDS
from tests.support.yaml_text import load_all_yaml, load_yaml

Manifest = dict[str, Any]

CHART = ROOT / "deploy/helm/llm-serving-exporter"
STACKS = ROOT / "deploy/helm/stacks"
KUSTOMIZE = ROOT / "deploy/kustomize"
# where `make test-packages` builds what no package manager has
BUILT = ROOT / ".venv/go/bin"
# of the release and of its namespace, as in deploy/kustomize
NAME = "llm-serving-exporter"
# a helm that was built from source takes itself for one that knows no newer Kubernetes than 1.20
KUBE_VERSION = "1.34.0"
# what one tool adds so that pods roll or that it knows its objects again
_ONLY_HELMS = ("helm.sh/chart", "app.kubernetes.io/managed-by", "checksum/config")


@cache
def find_tool(name: str) -> str | None:
    """Path of helm, kubeconform or kubectl: as HELM, KUBECONFORM, KUBECTL say it, on PATH, or where `make test-packages` built it."""
    found = shutil.which(os.environ.get(name.upper(), name))
    return found or shutil.which(name, path=str(BUILT))


def need_tool(name: str) -> str:
    """The same; skips the test where there is none."""
    found = find_tool(name)
    if found is None:
        built = "" if name == "kubectl" else "; `make test-packages` builds it where Go is installed"
        pytest.skip(f"no {name} on PATH{built}")
    return found


def run_helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What helm answers, good or bad."""
    return subprocess.run(
        [need_tool("helm"), *arguments], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )


def template(*arguments: str, chart: Path = CHART, name: str = NAME) -> subprocess.CompletedProcess[str]:
    return run_helm("template", name, str(chart), "--namespace", NAME, "--kube-version", KUBE_VERSION, *arguments)


class _EachKeyOnce(yaml.CSafeLoader):
    """Refuses a mapping with a key twice, as a strict server does: YAML readers take either of the two."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = sorted({str(key) for key in keys if keys.count(key) > 1})
        assert not twice, f"twice in one mapping: {twice}, {node.start_mark}"
        return super().construct_mapping(node, deep)


def render(*arguments: str, name: str = NAME, chart: Path = CHART) -> list[Manifest]:
    """The objects that the chart makes with these arguments of `helm template`."""
    done = template(*arguments, name=name, chart=chart)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.load_all(done.stdout, _EachKeyOnce) if document]  # a SafeLoader


def kustomize(folder: Path) -> list[Manifest]:
    """The objects of a kustomization."""
    command = [need_tool("kubectl"), "kustomize", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return [document for document in load_all_yaml(done.stdout) if document]


def pick(manifests: list[Manifest], kind: str, name: str = "") -> Manifest:
    """The one object of this kind, and name where given."""
    (found,) = (one for one in manifests if one["kind"] == kind and name in ("", one["metadata"]["name"]))
    return found


def kinds(manifests: list[Manifest]) -> list[str]:
    return sorted(one["kind"] for one in manifests)


def exporter_config(manifests: list[Manifest]) -> str:
    """The exporter.yml among the objects; the first where each of several namespaces has it."""
    return next(one["data"]["exporter.yml"] for one in manifests if "exporter.yml" in one.get("data", {}))


def pod_spec(manifests: list[Manifest]) -> dict[str, Any]:
    """Of the DaemonSet or StatefulSet."""
    (found,) = (one for one in manifests if one["kind"] in ("DaemonSet", "StatefulSet"))
    return dict(found["spec"]["template"]["spec"])


def normalise(manifests: list[Manifest]) -> dict[tuple[str, str, str], Manifest]:
    """Objects by kind, namespace and name, without what only Helm or only kustomize adds: Helm's labels and checksum; the hash at the
    end of a generated ConfigMap's name. A file of configuration is compared as what it says, not as text."""
    hashed = {
        one["metadata"]["name"]: one["metadata"]["name"].rpartition("-")[0]
        for one in manifests
        if one["kind"] == "ConfigMap"
        and not one["metadata"]["name"].endswith("-config")
        and "exporter.yml" in one["data"]
    }
    found = {}
    for manifest in manifests:
        one = _without_helms(copy.deepcopy(manifest), hashed)
        if "data" in one:
            one["data"] = {name: load_yaml(text) for name, text in one["data"].items()}
            # of what is generated the labels are kustomize's own
            one["metadata"].pop("labels", None)
        found[one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]] = one
    return found


def _without_helms(tree: Any, hashed: dict[str, str]) -> Any:
    if isinstance(tree, list):
        return [_without_helms(item, hashed) for item in tree]
    if isinstance(tree, str):
        return hashed.get(tree, tree)
    if not isinstance(tree, dict):
        return tree
    found = {key: _without_helms(item, hashed) for key, item in tree.items() if key not in _ONLY_HELMS}
    return {key: item for key, item in found.items() if key != "annotations" or item}
