"""The built-in tables in one file: `tables/*.yml` as they were read and checked, so that a start reads no YAML.

`make generate` writes it. It holds each column that is not its default; rows that tables share stand once. What takes code is not in it:
a table names its hooks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from llm_serving_exporter.engines.hooks import HOOKS
from llm_serving_exporter.engines.mapping import (
    Aggregate,
    Fingerprint,
    FirstToken,
    Flags,
    Hooks,
    Mark,
    PageKind,
    Reads,
    Row,
    Runtime,
)
from llm_serving_exporter.model.record import Struct, name_fields, select_given
from llm_serving_exporter.model.snapshot import Quality
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.model.tenants import TenantKind

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
    rows = [Row(**_read(columns, _ROW)) for columns in content["rows"]]
    return {columns["name"]: _runtime(columns, rows) for columns in content["runtimes"]}


def _runtime(columns: dict[str, Any], rows: list[Row]) -> Runtime:
    numbers = columns.pop("rows")
    hooks = HOOKS[columns["hooks"]].columns if "hooks" in columns else {}
    return Runtime(rows=tuple(rows[number] for number in numbers), **{**_read(columns, _RUNTIME), **hooks})


def _read(columns: Mapping[str, Any], types: Mapping[str, Callable[[Any], Any]]) -> dict[str, Any]:
    return {name: types[name](content) if name in types else content for name, content in columns.items()}


def _read_fingerprints(content: list[dict[str, list[dict[str, str]]]]) -> tuple[Fingerprint, ...]:
    return tuple(
        Fingerprint(**{key: tuple(Mark(**mark) for mark in marks) for key, marks in one.items()}) for one in content
    )


# by the type of a column, where JSON has another; of those that are not here a tuple and a set are a list there
_FROM_JSON: dict[str, Callable[[Any], Any]] = {
    "Reads": Reads,
    "Aggregate": Aggregate,
    "Quality": Quality,
    "PageKind": PageKind,
    "Role": Role,
    "FirstToken": FirstToken,
    "Flags": lambda content: Flags(**_read(content, _FLAGS)),
    "tuple[Fingerprint, ...]": _read_fingerprints,
    "tuple[tuple[str, str], ...]": lambda content: tuple(map(tuple, content)),
    "Mapping[str, frozenset[str]]": lambda content: {name: frozenset(values) for name, values in content.items()},
    "Mapping[str, tuple[float, ...]]": lambda content: {name: tuple(edges) for name, edges in content.items()},
    "Mapping[TenantKind, tuple[str, ...]]": lambda content: {
        TenantKind(kind): tuple(labels) for kind, labels in content.items()
    },
}


def _list_types(record: type[Struct]) -> dict[str, Callable[[Any], Any]]:
    types = {}
    for column, annotation in record.__annotations__.items():
        name = annotation.removesuffix(" | None")
        plain = {"tuple": tuple, "frozenset": frozenset}.get(name.partition("[")[0])
        if (convert := _FROM_JSON.get(name, plain)) is not None:
            types[column] = convert
    return types


_ROW, _RUNTIME = _list_types(Row), _list_types(Runtime)
_FLAGS: dict[str, Callable[[Any], Any]] = _list_types(Flags)
