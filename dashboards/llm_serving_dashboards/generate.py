"""The committed dashboards for the default settings: `python -m llm_serving_dashboards.generate --write` or `--check`."""

from __future__ import annotations

import sys
from pathlib import Path

from llm_serving_alerts.settings_file import default_settings
from llm_serving_dashboards.boards import build_dashboards
from llm_serving_dashboards.grafana.document import format_json
from llm_serving_dashboards.provisioning import render_datasource, render_provider
from llm_serving_exporter.docgen.generated_files import write_or_check

RENDERED = Path("dashboards/rendered")
PROVISIONING = Path("dashboards/provisioning")


def render_files() -> dict[Path, str]:
    """Every generated file below the repository's root, with its text."""
    settings = default_settings()
    return {
        **{RENDERED / f"{made.board.uid}.json": format_json(made.document) for made in build_dashboards(settings)},
        PROVISIONING / "dashboards" / "llm-serving.yml": render_provider(),
        PROVISIONING / "datasources" / "prometheus.yml": render_datasource(settings),
    }


def main(argv: list[str] | None = None) -> int:
    """Writes or checks every generated file below the current folder; 1 where one differs or should not be there."""
    return write_or_check(
        "python -m llm_serving_dashboards.generate",
        __doc__,
        render_files(),
        [*RENDERED.glob("*"), *PROVISIONING.glob("*/*")],
        argv,
    )


if __name__ == "__main__":
    sys.exit(main())
