"""The model catalogue: rows of models.toml -> ModelEntry, checked. No geometry is built here: that happens when a model is asked for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts import names
from llm_serving_exporter.facts.model_files import ModelEntry
from llm_serving_exporter.model.snapshot import Absence

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_REQUIRED = frozenset({"name", "source", "config"})
_OPTIONAL = frozenset({"also", "more", "nulls", "quantization"})


def parse(document: Mapping[str, Any]) -> tuple[ModelEntry, ...]:
    """The parsed models.toml -> its rows, in its order.

    Raises FactsError naming the row and the key where one is not as it must be, or where two rows claim one name.
    """
    sources, rows = document.get("sources"), document.get("model")
    if not isinstance(sources, Mapping) or not isinstance(rows, list) or not rows:
        raise _fault("", "needs [sources] and [[model]] rows")
    entries = tuple(_entry(index, row, sources) for index, row in enumerate(rows))
    owners: dict[str, str] = {}
    for entry in entries:
        for name in (entry.name, *entry.also):
            claimed = names.key(name)
            if claimed is None:
                raise _fault(entry.name, f"{name!r} is no name that a model can be found by")
            owner = owners.setdefault(claimed, entry.name)
            if owner != entry.name:
                raise _fault(entry.name, f"{name!r} is already {owner}'s")
    return entries


def _entry(index: int, row: Any, sources: Mapping[str, Any]) -> ModelEntry:
    name = row.get("name") if isinstance(row, Mapping) else None
    if not isinstance(name, str) or not name:
        raise _fault(f"model {index + 1}", "needs a name")
    wrong = (_REQUIRED - row.keys()) | (row.keys() - _REQUIRED - _OPTIONAL)
    if wrong:
        raise _fault(name, f"keys are missing or not known: {', '.join(sorted(wrong))}")
    source = sources.get(str(row["source"]))
    title, date = (source.get("title"), source.get("date")) if isinstance(source, Mapping) else (None, None)
    if not isinstance(title, str) or not isinstance(date, str) or not _DATE.fullmatch(date):
        raise _fault(name, f"source {row['source']!r} is not in [sources] with a title and a date as 2026-08-22")
    config: dict[str, Any] = {**_table(name, row, "config"), **_table(name, row, "more")}
    config |= dict.fromkeys(_texts(name, row, "nulls"))
    if "quantization" in row:
        config["quantization_config"] = _table(name, row, "quantization")
    return ModelEntry(name, _texts(name, row, "also"), config, title, date)


def _table(name: str, row: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = row.get(key, {})
    if not isinstance(value, Mapping):
        raise _fault(name, f"{key} is not a table")
    return value


def _texts(name: str, row: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = row.get(key, [])
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise _fault(name, f"{key} is not a list of texts")
    return tuple(value)


def _fault(name: str, what: str) -> FactsError:
    return FactsError(Absence.MODEL_UNKNOWN.value, f"models.toml: {name + ': ' if name else ''}{what}")
