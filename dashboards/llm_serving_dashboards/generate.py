"""The committed dashboards for the default settings: `python -m llm_serving_dashboards.generate --write` or `--check`."""

from __future__ import annotations

import sys
from pathlib import Path

from llm_serving_alerts.settings_file import default_settings
from llm_serving_dashboards.boards import boards
from llm_serving_dashboards.grafana.document import text_of
from llm_serving_dashboards.provisioning import datasource, provider
from llm_serving_exporter.docgen.generated_files import write_or_check

RENDERED = Path("dashboards/rendered")
PROVISIONING = Path("dashboards/provisioning")


def files() -> dict[Path, str]:
    """Every generated file below the repository's root, with its text."""
    settings = default_settings()
    return {
        **{RENDERED / f"{made.board.uid}.json": text_of(made.document) for made in boards(settings)},
        PROVISIONING / "dashboards" / "llm-serving.yml": provider(),
        PROVISIONING / "datasources" / "prometheus.yml": datasource(settings),
    }


def main(argv: list[str] | None = None) -> int:
    """Writes or checks every generated file below the current folder; 1 where one differs or should not be there."""
    return write_or_check(
        "python -m llm_serving_dashboards.generate",
        __doc__,
        files(),
        [*RENDERED.glob("*"), *PROVISIONING.glob("*/*")],
        argv,
    )


if __name__ == "__main__":
    sys.exit(main())
