"""`engines/tables.json`: the built-in tables, read from `engines/tables/*.yml` as those of a user's file are.

`python -m llm_serving_exporter.docgen.tables --write` or `--check` at the top of a clone. It needs none that was written before.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from llm_serving_exporter.docgen.generated_files import write_or_check
from llm_serving_exporter.engines.compiled import FILE, write_compiled
from llm_serving_exporter.engines.mapping import Runtime
from llm_serving_exporter.errors import ConfigError, Problem
from llm_serving_exporter.settings.document import read_document
from llm_serving_exporter.settings.problems import Node, Place, Scalar
from llm_serving_exporter.settings.runtimes import read_table

PATH = f"exporter/llm_serving_exporter/engines/{FILE}"
FOLDER = Path(str(files("llm_serving_exporter.engines").joinpath("tables")))
# in the order of the support matrix
ORDER = (
    "vllm",
    "sglang",
    "tgi",
    "trtllm",
    "trtllm-json",
    "triton-trtllm",
    "triton-vllm",
    "triton",
    "llamacpp",
    "lmdeploy",
    "tei",
    "infinity",
    "dynamo-frontend",
    "dynamo-worker",
    "llm-d-epp",
    "envoy-ai-gateway",
    "litellm",
    "gen-ai",
    "vllm-stack-router",
    "vllm-router",
    "sglang-gateway",
    "sglang-router",
    "ray-vllm",
    "nim",
    "mistralrs",
    "xinference",
    "lightllm",
    "ollama",
    "deepspeed-mii",
    "gpu-only",
)


def read_tables(folder: Path = FOLDER, order: Sequence[str] = ORDER) -> dict[str, Runtime]:
    """The tables of a folder by name. Raises ConfigError with everything that is wrong with them."""
    problems: list[Problem] = []
    places = {name: Place(str(folder / f"{name}.yml"), "", problems) for name in order}
    waiting = {name: read_document(place.file, place) for name, place in places.items()}
    tables: dict[str, Runtime] = {}
    # those that others start from first
    while ready := [name for name, node in waiting.items() if _names_others(node).isdisjoint(waiting)]:
        for name in ready:
            if (node := waiting.pop(name)) is not None:
                tables[name] = read_table(node, places[name], tables)
    for name in waiting:
        places[name].refuse("the table is based on itself, by way of others")
    for path in sorted(folder.glob("*.yml")):
        if path.stem not in order:
            what, fix = "the table has no place in the support matrix", f"Add {path.stem} to ORDER of docgen/tables.py."
            Place(str(path), "", problems).refuse(what, fix)
    if problems:
        raise ConfigError(*problems)
    return {name: tables[name] for name in order}


def _names_others(node: Node | None) -> set[str]:
    """The tables that a table names: its base, and those whose rows it takes over."""
    if not isinstance(node, dict):
        return set()
    rows = node.get("rows")
    own = [
        node.get("based_on"),
        *(row.get("as") for row in (rows if isinstance(rows, list) else ()) if isinstance(row, dict)),
    ]
    return {one.text for one in own if isinstance(one, Scalar)}


def tables_json() -> str:
    """The text of the file."""
    return write_compiled(read_tables().values())


def main(argv: list[str] | None = None) -> int:
    """Writes or checks it below the current folder; 1 where it differs."""
    return write_or_check(
        "python -m llm_serving_exporter.docgen.tables", __doc__, {Path(PATH): tables_json()}, (), argv
    )


if __name__ == "__main__":
    sys.exit(main())
