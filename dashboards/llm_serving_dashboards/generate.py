"""The committed dashboards for the default settings: `python -m llm_serving_dashboards.generate --write` or `--check`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from llm_serving_alerts.settings_file import default_settings
from llm_serving_dashboards.boards import boards
from llm_serving_dashboards.grafana import text_of
from llm_serving_dashboards.provisioning import datasource, provider

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
    parser = argparse.ArgumentParser(prog="python -m llm_serving_dashboards.generate", description=__doc__)
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--write", action="store_true", help="write the files")
    how.add_argument("--check", action="store_true", help="fail where a file differs from what would be written")
    arguments = parser.parse_args(argv)
    wanted = files()
    stale = [str(path) for path in sorted([*RENDERED.glob("*"), *PROVISIONING.glob("*/*")]) if path not in wanted]
    for path, text in wanted.items():
        if arguments.write:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            stale.append(str(path))
    if stale:
        sys.stderr.write(
            f"out of date: {', '.join(stale)}; run `make generate`, remove what is not made any more, commit the result\n"
        )
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
