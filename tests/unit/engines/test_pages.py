"""Traps of runtimes' pages, one by one: a page as it is written, and what may be read from it. What needs more than a page stands in the
module of its runtime.

The rows stand in `pages/`, a file a runtime, with the `version` that is usual there. A row without `says` is another page of the last one.
`reads`: fields of the only engine; `absent`: of all, with the reason; `each`: a field engine by engine; `quality`: null for none;
`{L}` stands for the labels that the file calls L.
"""

import re
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from llm_serving_exporter.engines.registry import RUNTIMES
from tests.support.builders.snapshots import snapshot_of
from tests.support.rows import check_rows
from tests.support.yaml_text import load_yaml

FOLDER = Path(__file__).parent / "pages"
KEYS = {"says", "version", "content_type", "page", "engines", "reads", "absent", "quality", "snapshot", "each"}


def read_rows() -> Iterator[Any]:
    for file in sorted(FOLDER.glob("*.yml")):
        table = load_yaml(file.read_text())
        says, number = "", 1
        for row in table["cases"]:
            assert row.keys() <= KEYS, row
            number = 1 if "says" in row else number + 1
            says = row.get("says", says)
            page = re.sub(r"\{([A-Z])(?=[,}])", lambda found, table=table: "{" + table["labels"][found[1]], row["page"])
            row = {"runtime": table["runtime"], "version": table["version"], **row, "page": page}
            yield pytest.param(row, id=f"{table['runtime']}: {says}" + (f", page {number}" if number > 1 else ""))


def plain(value: Any) -> Any:
    """As YAML has it."""
    return sorted(value) if isinstance(value, frozenset) else list(value) if isinstance(value, tuple) else value


@check_rows("row", read_rows)
def test_what_may_be_read_from_a_page(row: dict[str, Any]) -> None:
    more = {"content_type": row["content_type"]} if "content_type" in row else {}
    snapshot = snapshot_of(row["page"], row["version"], runtime=RUNTIMES[row["runtime"]], **more)
    if "each" not in row:
        assert len(snapshot.engines) == row.get("engines", 1)
    for field, value in row.get("reads", {}).items():
        assert plain(reduce(getattr, field.split("."), snapshot.engines[0])) == value, field
    for field, values in row.get("each", {}).items():
        assert [getattr(engine, field) for engine in snapshot.engines] == values, field
    for field, reason in row.get("absent", {}).items():
        assert snapshot.absent.get(field) == reason, field
        assert reason is None or all(getattr(engine, field) is None for engine in snapshot.engines), field
    for field, quality in row.get("quality", {}).items():
        assert snapshot.quality.get(field) == quality, field
    for name, value in row.get("snapshot", {}).items():
        assert plain(getattr(snapshot, name)) == value, name
    assert row.keys() & {"reads", "each", "absent", "quality", "snapshot"}


def test_there_are_pages_of_many_runtimes() -> None:
    assert len({row.values[0]["runtime"] for row in read_rows()}) >= 15
    assert sum(1 for _ in read_rows()) >= 100
