"""The committed rules, routes and references for the default settings: `python -m llm_serving_alerts.generate --write` or `--check`."""

from __future__ import annotations

import sys
from pathlib import Path

from llm_serving_alerts.reference import alerts_md, records_md
from llm_serving_alerts.render import rule_files
from llm_serving_alerts.routes import alertmanager_files
from llm_serving_alerts.settings_file import default_settings
from llm_serving_exporter.docgen.generated_files import write_or_check

RENDERED = Path("alerts/rendered")
ROUTES = Path("alerts/alertmanager")
DOCS = Path("docs")


def files() -> dict[Path, str]:
    """Every generated file below the repository's root, with its text."""
    settings = default_settings()
    routes = {ROUTES / name: text for name, text in alertmanager_files(settings).items()}
    references = {DOCS / "records.md": records_md(settings), DOCS / "alerts.md": alerts_md(settings)}
    return {RENDERED / name: text for name, text in rule_files(settings).items()} | routes | references


def main(argv: list[str] | None = None) -> int:
    """Writes or checks every generated file below the current folder; 1 where one differs or should not be there."""
    return write_or_check("python -m llm_serving_alerts.generate", __doc__, files(), RENDERED.glob("*"), argv)


if __name__ == "__main__":
    sys.exit(main())
