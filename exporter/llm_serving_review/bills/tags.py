"""Tags of a bill's line: one column of JSON, or a column a tag."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from llm_serving_review.bills.cells import Row, read_map
from llm_serving_review.bills.columns import ABSENT, Columns

_NOT_A_LETTER = re.compile(r"[^a-z0-9]+")
_PREFIXES = ("", "user_")
# of CUR, as it names their columns and the keys of its map
_TAG_COLUMNS = "resource_tags_"


class TagReader:
    """Reads the tags that the settings name. Spelling goes by letters and digits: AWS writes user:My-Team as user_my_team."""

    def __init__(self, columns: Columns, keys: Iterable[str]) -> None:
        self._map = columns.find("resource_tags", "tags")
        beside = {_simplify(name): position for name, position in columns.list_beginning_with(_TAG_COLUMNS)}
        self._wanted = {key: tuple(prefix + _simplify(key) for prefix in _PREFIXES) for key in keys}
        self._positions = {
            key: tuple(beside[name] for name in names if name in beside) for key, names in self._wanted.items()
        }

    def read(self, row: Row) -> Mapping[str, str]:
        """The tags that the line has, by the keys of the settings."""
        if not self._wanted:
            return {}
        by_name = {_simplify(name): value for name, value in self._read_map(row).items()}
        found = {}
        for key, names in self._wanted.items():
            values = [by_name.get(name, "") for name in names] + [row[position] for position in self._positions[key]]
            value = next((one.strip() for one in values if one.strip()), "")
            if value:
                found[key] = value
        return found

    def _read_map(self, row: Row) -> Mapping[str, str]:
        return read_map(row[self._map]) if self._map != ABSENT else {}


def _simplify(name: str) -> str:
    return _NOT_A_LETTER.sub("_", name.lower()).strip("_")
