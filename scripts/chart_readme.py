"""Writes the table of values in the Helm chart's README.md from values.schema.json and values.yaml: `--write` or `--check`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from llm_serving_exporter.docgen.generated_files import write_or_check

# a parent chart may set them; they have no default here
OF_A_PARENT = ("global", "enabled")
CHART = Path("deploy/helm/llm-serving-exporter")
BEGIN, END = (
    "<!-- values: made by `make generate` from values.schema.json and values.yaml -->",
    "<!-- end of values -->",
)


def list_values(schema: dict[str, Any], values: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any, str]]:
    """Each value that may be set: its path, its default, what it means. Raises KeyError where one has no description or no default."""
    for name, one in schema["properties"].items():
        path = f"{above}{name}"
        if not above and name in OF_A_PARENT:
            continue
        if "properties" in one and one["type"] == "object" and one.get("additionalProperties") is False:
            yield from list_values(one, values[name], f"{path}.")
        else:
            yield path, values[name], one["description"]


def render_readme() -> str:
    """The README with a table of today's values. Raises ValueError where its marks are gone."""
    text = (CHART / "README.md").read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"{CHART}/README.md: {BEGIN} and {END} must be there once")
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    rows = (f"| `{path}` | `{json.dumps(default)}` | {about} |" for path, default, about in list_values(schema, values))
    table = "\n".join(["| value | default | meaning |", "|---|---|---|", *rows])
    return f"{text.partition(BEGIN)[0]}{BEGIN}\n{table}\n{END}{text.partition(END)[2]}"


if __name__ == "__main__":
    sys.exit(write_or_check("scripts/chart_readme.py", __doc__, {CHART / "README.md": render_readme()}, (), None))
