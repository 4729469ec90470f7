"""The built-in tables in one file: `tables/*.yml` as they were read and checked, so that a start reads no YAML.

`make generate` writes it. It holds each column that is not its default; rows that tables share stand once. What takes code is not in it:
a table names its hooks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from llm_serving_exporter.engines.hooks import HOOKS
from llm_serving_exporter.engines.mapping import Hooks, Row, Runtime
from llm_serving_exporter.model.record import Struct, convert, name_fields, replace, select_given

FILE = "tables.json"


def write_compiled(tables: Iterable[Runtime]) -> str:
    """The text of the file."""
    numbers: dict[str, int] = {}
    lines = []
    for table in tables:
        columns = _plain(table, leave_out={"rows", *name_fields(Hooks)})
        columns["rows"] = [numbers.setdefault(_line(_plain(row)), len(numbers)) for row in table.rows]
        lines.append(_line(columns))
    rows, runtimes = ",\n".join(numbers), ",\n".join(lines)
    return f'{{"rows":[\n{rows}\n],"runtimes":[\n{runtimes}\n]}}\n'


def _line(columns: Mapping[str, Any]) -> str:
    return json.dumps(columns, ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any, leave_out: Iterable[str] = ()) -> Any:
    """As JSON has it: records without what is a default, sets in the order of their values."""
    if isinstance(value, Struct):
        return {name: _plain(content) for name, content in select_given(value).items() if name not in leave_out}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {_plain(key): _plain(content) for key, content in value.items()}
    if isinstance(value, frozenset):
        return sorted(value)
    return list(map(_plain, value)) if isinstance(value, tuple) else value


def read_compiled() -> dict[str, Runtime]:
    """The tables by name, in the order of the support matrix."""
    # importlib.resources takes longer to import than all of this
    content = json.loads(Path(__file__).with_name(FILE).read_bytes())
    rows = convert(content["rows"], list[Row])
    tables = []
    for columns in content["runtimes"]:
        numbers, hooks = columns.pop("rows"), HOOKS[columns["hooks"]].columns if "hooks" in columns else {}
        table = convert({**columns, "rows": ()}, Runtime)
        tables.append(replace(table, rows=tuple(rows[number] for number in numbers), **hooks))
    return {table.name: table for table in tables}
