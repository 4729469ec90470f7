"""The exporter takes each configuration that the chart renders."""

from __future__ import annotations

from pathlib import Path

import pytest

from llm_serving_exporter.settings.kubernetes import KubernetesDiscovery
from tests.support.builders.configuration import load_text
from tests.support.helm import CHART, STACKS, exporter_config, render

pytestmark = pytest.mark.packages

# as the downward API sets them
ENVIRON = {
    "NODE_NAME": "gpu-1",
    "POD_NAMESPACE": "monitoring",
    "POD_NAME": "exporter-0",
    "POD_UID": "0f3c5a1e-5f4b-4c55-9d0e-3a9a4b6f7c21",
}


@pytest.mark.parametrize(
    "arguments",
    [
        *(pytest.param((f"--values={path}",), id=path.stem) for path in sorted((CHART / "ci").glob("*.yaml"))),
        *(
            pytest.param((f"--values={path}", f"--set=mode={mode}"), id=f"{path.stem}-{mode}")
            for path in sorted(STACKS.glob("*.yaml"))
            for mode in ("daemonset", "statefulset", "sidecar")
        ),
        pytest.param((), id="defaults"),
    ],
)
def test_the_exporter_takes_it(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    made = render(*arguments)
    text = exporter_config(made)
    for one in made:
        for name, content in one.get("data", {}).items():
            (tmp_path / name).write_text(content)
    # where a Secret would be mounted
    (tmp_path / "web.yml").write_text("basic_auth_users: {}\n")
    config = load_text(tmp_path, text.replace("/etc/web/", f"{tmp_path}/"), environ=ENVIRON)
    assert (config.prices is not None) == ("price_file" in text)


@pytest.mark.parametrize("values", ["gpu.dra=true", "discovery.nodeData=true", "gpu.dra=false"])
def test_it_asks_for_what_it_has_rights_to(tmp_path: Path, values: str) -> None:
    made = render(f"--set={values}", "--set=discovery.selectors={app=a,app=b}")
    found = load_text(tmp_path, exporter_config(made), environ=ENVIRON).discovery
    sections = [one for one in found if isinstance(one, KubernetesDiscovery)]
    assert len(sections) == len(found) == 2
    asked = {
        "pods",
        *("nodes" for one in sections if one.node_data),
        *("resourceslices" for one in sections if one.claimed_devices),
    }
    assert asked == {resource for one in made for rule in one.get("rules", ()) for resource in rule["resources"]}
