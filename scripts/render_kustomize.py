"""Writes the objects of deploy/kustomize from the Helm chart: `make kustomize`. `--check` compares. Needs helm (HELM, or on PATH)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from llm_serving_exporter.docgen.generated_files import write_or_check

CHART, STACKS, ROOT = Path("deploy/helm/llm-serving-exporter"), Path("deploy/helm/stacks"), Path("deploy/kustomize")
# of the release and of its namespace
NAME = "llm-serving-exporter"
# the chart refuses what is older, and a helm that was built from source takes itself for one that knows no newer
KUBE_VERSION = "1.34.0"
HEADER = "# written by `make kustomize` from deploy/helm; change the chart, not this file\n"
# what says that Helm made an object, and what Helm rolls pods by: kustomize has a hash in the ConfigMap's name for that
HELMS = ("helm.sh/chart", "app.kubernetes.io/managed-by", "checksum/config")
MODES = {"base": "daemonset", "statefulset": "statefulset"}
MONITORING = ("--set=scrape.kind=podmonitor",)


def render_chart(*arguments: str) -> list[dict[str, Any]]:
    """The objects that `helm template` makes with these arguments. Raises CalledProcessError."""
    helm = os.environ.get("HELM", "helm")
    command = [helm, "template", NAME, str(CHART), "--namespace", NAME, "--kube-version", KUBE_VERSION, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    return [drop_helms(document) for document in yaml.safe_load_all(done.stdout) if document]


def drop_helms(tree: Any) -> Any:
    """The same without what only Helm needs."""
    if isinstance(tree, list):
        return [drop_helms(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    found = {key: drop_helms(item) for key, item in tree.items() if key not in HELMS}
    return {key: item for key, item in found.items() if key != "annotations" or item}


def render_files() -> dict[Path, str]:
    """Every file that is made here, with its text."""
    found = {}
    for folder, mode in MODES.items():
        objects = render_chart(f"--set=mode={mode}")
        found[ROOT / folder / "resources.yaml"] = _dump(item for item in objects if not _is_config(item))
        found[ROOT / folder / "exporter.yml"] = _config(objects)
    for values in sorted(STACKS.glob("*.yaml")):
        found[ROOT / "overlays" / values.stem / "exporter.yml"] = _config(render_chart(f"--values={values}"))
    monitors = (item for item in render_chart(*MONITORING) if item["kind"] == "PodMonitor")
    found[ROOT / "monitoring" / "resources.yaml"] = _dump(monitors)
    return found


def _is_config(item: dict[str, Any]) -> bool:
    return bool(item["kind"] == "ConfigMap" and item["metadata"]["name"] == f"{NAME}-config")


def _config(objects: list[dict[str, Any]]) -> str:
    (found,) = (item["data"]["exporter.yml"] for item in objects if _is_config(item))
    return HEADER + str(found)


def _dump(objects: Iterable[dict[str, Any]]) -> str:
    return HEADER + yaml.safe_dump_all(objects, sort_keys=False, width=1_000_000)


if __name__ == "__main__":
    made = [*ROOT.glob("**/exporter.yml"), *ROOT.glob("**/resources.yaml")]
    sys.exit(write_or_check("scripts/render_kustomize.py", __doc__, render_files(), made, None))
