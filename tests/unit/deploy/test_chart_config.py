"""The exporter takes each configuration that the chart renders."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.builders.configuration import load_text
from tests.support.helm import CHART, STACKS, exporter_config, render

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
    config = load_text(tmp_path, text, environ=ENVIRON)
    assert (config.prices is not None) == ("price_file" in text)
