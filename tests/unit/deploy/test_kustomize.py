"""The kustomizations make what the chart makes, and the sidecar's patch goes onto an engine."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from scripts import render_kustomize
from tests.support.helm import KUSTOMIZE, NAME, STACKS, kustomize, need_tool, normalise, pick, render
from tests.support.paths import ROOT
from tests.support.waiting import PATIENCE_SECONDS
from tests.support.yaml_text import load_yaml

OVERLAYS = {path.stem: f"--values={path}" for path in sorted(STACKS.glob("*.yaml"))}


@pytest.mark.packages
@pytest.mark.parametrize(
    ("folder", "argument"),
    [
        ("base", "--set=mode=daemonset"),
        ("statefulset", "--set=mode=statefulset"),
        *((f"overlays/{stack}", argument) for stack, argument in OVERLAYS.items()),
    ],
)
def test_a_kustomization_makes_what_the_chart_makes(folder: str, argument: str) -> None:
    found, wanted = normalise(kustomize(KUSTOMIZE / folder)), normalise(render(argument))
    assert found.keys() == wanted.keys()
    for place, manifest in wanted.items():
        assert found[place] == manifest, place


@pytest.mark.packages
def test_what_is_monitored_is_what_the_chart_makes() -> None:
    release = "kube-prometheus-stack"
    made = render(f"--set=scrape.kind=podmonitor,scrape.release={release},rules.enabled=true,dashboards.enabled=true")
    found = kustomize(KUSTOMIZE / "monitoring")
    for one in found:
        wanted = pick(made, one["kind"], one["metadata"]["name"])
        assert one["metadata"]["namespace"] == wanted["metadata"]["namespace"] == NAME
        assert one["metadata"]["labels"]["release"] == wanted["metadata"]["labels"]["release"] == release
        assert (one.get("spec"), one.get("data")) == (wanted.get("spec"), wanted.get("data"))
    shown = [one for one in found if one["kind"] == "ConfigMap"]
    assert all(one["metadata"]["labels"]["grafana_dashboard"] == "1" for one in shown)
    assert len(shown) == len(list((ROOT / "dashboards/rendered").glob("*.json")))
    assert len(found) == len(shown) + 3


@pytest.mark.packages
def test_the_generated_files_are_those_of_the_chart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELM", need_tool("helm"))
    monkeypatch.chdir(ROOT)
    for path, text in render_kustomize.render_files().items():
        assert path.read_text() == text, f"{path} is out of date: run `make kustomize`"


@pytest.mark.process
@pytest.mark.seam("kubectl")
def test_a_change_of_the_configuration_rolls_the_pods(tmp_path: Path) -> None:
    def config_name(text: str) -> str:
        folder = tmp_path / str(len(text))
        folder.mkdir()
        (folder / "exporter.yml").write_text(text)
        (folder / "kustomization.yaml").write_text(
            yaml.safe_dump(
                {
                    "resources": ["base"],
                    "configMapGenerator": [
                        {"name": f"{NAME}-config", "namespace": NAME, "behavior": "replace", "files": ["exporter.yml"]}
                    ],
                }
            )
        )
        shutil.copytree(KUSTOMIZE / "base", folder / "base")
        volumes = pick(kustomize(folder), "DaemonSet")["spec"]["template"]["spec"]["volumes"]
        return str(volumes[0]["configMap"]["name"])

    assert config_name("gpu: {gpm: true}\n") != config_name("gpu: {gpm: false}\n")


@pytest.mark.packages
@pytest.mark.parametrize("way", ["native", "plain"])
def test_the_sidecars_patch_goes_onto_an_engine(tmp_path: Path, way: str) -> None:
    made = render("--set=mode=sidecar,sidecar.shareProcessNamespace=true,podLabels.monitored=yes-it-is")
    patch = pick(made, "ConfigMap", f"{NAME}-sidecar")["data"][f"{way}.yml"]
    engine = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "chat"},
        "spec": {
            "selector": {"matchLabels": {"app": "chat"}},
            "template": {
                "metadata": {"labels": {"app": "chat"}},
                "spec": {
                    "initContainers": [{"name": "download", "image": "download"}],
                    "containers": [{"name": "vllm", "image": "vllm", "ports": [{"containerPort": 8000}]}],
                    "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
                },
            },
        },
    }
    (tmp_path / "engine.yaml").write_text(yaml.safe_dump(engine))
    (tmp_path / "sidecar.yml").write_text(patch)
    # as the notes of the chart say, but of an object in a file
    command = [
        need_tool("kubectl"), "patch", "--local", "--filename", str(tmp_path / "engine.yaml"), "--output", "yaml",
    ]  # fmt: skip
    command += ["--patch-file", str(tmp_path / "sidecar.yml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    pod = load_yaml(done.stdout)["spec"]["template"]
    containers = {kind: [one["name"] for one in pod["spec"][kind]] for kind in ("containers", "initContainers")}
    beside = {"native": ("initContainers", {"download"}), "plain": ("containers", {"vllm"})}[way]
    assert set(containers[beside[0]]) == {NAME, *beside[1]}
    assert {"vllm"} <= set(containers["containers"])
    own = {"llm-serving-exporter-config", "llm-serving-exporter-state"}
    assert {volume["name"] for volume in pod["spec"]["volumes"]} == {"shm", *own}
    assert pod["metadata"]["labels"] == {"app": "chat", "llm-serving-exporter/sidecar": NAME, "monitored": "yes-it-is"}
    assert pod["spec"]["shareProcessNamespace"] is True
