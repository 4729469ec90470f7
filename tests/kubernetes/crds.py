"""The CustomResourceDefinitions that our manifests need: prometheus-operator's and KEDA's, out of their Go modules."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.servers.kube_api import KubeApi, Manifest
from tests.support.waiting import PATIENCE_SECONDS, wait_until

# module and version -> where in it the definitions are
_MODULES = {
    "github.com/prometheus-operator/prometheus-operator@v0.85.0": "example/prometheus-operator-crd",
    "github.com/kedacore/keda/v2@v2.18.3": "config/crd/bases",
}


class _Loader(yaml.CSafeLoader):
    """Takes `=` for text, which it is as a value of an enum; YAML 1.1 has a type of its own for it."""


_Loader.add_constructor("tag:yaml.org,2002:value", lambda loader, node: str(node.value))


def crd_folders() -> list[Path]:
    """As KUBE_CRDS names them, else out of Go's module cache, which fetches what it lacks; skips the test where there is neither."""
    if named := os.environ.get("KUBE_CRDS"):
        return [Path(folder) for folder in named.split(os.pathsep)]
    go = shutil.which("go")
    if go is None:
        pytest.skip("KUBE_CRDS names no folders of CustomResourceDefinitions, and there is no Go to fetch them with")
    return [Path(_module_folder(go, module)) / inner for module, inner in _MODULES.items()]


def _module_folder(go: str, module: str) -> str:
    done = subprocess.run(
        [go, "mod", "download", "-json", module],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        cwd="/",  # outside any module of ours
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"{module} is not to be had: {done.stdout.strip()} {done.stderr.strip()}")
    return str(json.loads(done.stdout)["Dir"])


def install_crds(admin: KubeApi) -> None:
    """Applies them all, and waits until the server knows their kinds."""
    found: list[Manifest] = []
    for folder in crd_folders():
        files = sorted(folder.glob("*.yaml"))
        assert files, f"{folder} holds no CustomResourceDefinition"
        found += [one for file in files for one in yaml.load_all(file.read_text(), _Loader) if one]
    definitions = [one for one in found if one["kind"] == "CustomResourceDefinition"]
    admin.apply(*definitions)
    for one in definitions:
        wait_until(lambda one=one: _is_established(admin, one), f"{one['metadata']['name']} to be established")


def _is_established(admin: KubeApi, definition: Manifest) -> bool:
    status = admin.call("GET", admin.path_of(definition)).get("status", {})
    return any(one["type"] == "Established" and one["status"] == "True" for one in status.get("conditions", ()))
