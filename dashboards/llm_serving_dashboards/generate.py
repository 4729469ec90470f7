"""The committed dashboards for the default settings: `python -m llm_serving_dashboards.generate --write` or `--check`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from llm_serving_alerts.settings_file import default_settings
from llm_serving_dashboards.boards import build_dashboards
from llm_serving_dashboards.command import DASHBOARD_LABELS, render_datasource, render_provider
from llm_serving_dashboards.grafana.document import format_json
from llm_serving_exporter.docgen.generated_files import write_or_check

RENDERED = Path("dashboards/rendered")
PROVISIONING = Path("dashboards/provisioning")
# of the Helm chart, which reads only what lies in it; kustomize takes the same folder
CHART = Path("deploy/helm/llm-serving-exporter/files/dashboards")


def render_files() -> dict[Path, str]:
    """Every generated file below the repository's root, with its text."""
    settings = default_settings()
    boards = {f"{made.board.uid}.json": format_json(made.document) for made in build_dashboards(settings)}
    return {
        **{folder / name: text for folder in (RENDERED, CHART) for name, text in boards.items()},
        CHART / "kustomization.yaml": yaml.safe_dump(_kustomization(sorted(boards)), sort_keys=False),
        PROVISIONING / "dashboards" / "llm-serving.yml": render_provider(),
        PROVISIONING / "datasources" / "prometheus.yml": render_datasource(settings),
    }


def _kustomization(names: list[str]) -> dict[str, Any]:
    """A ConfigMap for each dashboard, called as `llm-serving-exporter dashboards --format configmap` calls it."""
    return {
        "generatorOptions": {"disableNameSuffixHash": True, "labels": DASHBOARD_LABELS},
        "configMapGenerator": [{"name": name.removesuffix(".json"), "files": [name]} for name in names],
    }


def main(argv: list[str] | None = None) -> int:
    """Writes or checks every generated file below the current folder; 1 where one differs or should not be there."""
    return write_or_check(
        "python -m llm_serving_dashboards.generate",
        __doc__,
        render_files(),
        [*RENDERED.glob("*"), *CHART.glob("*"), *PROVISIONING.glob("*/*")],
        argv,
    )


if __name__ == "__main__":
    sys.exit(main())
