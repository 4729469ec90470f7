"""The built-in catalogue of models as a whole: every row, parsed and checked. The product parses only the row that is asked for."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from llm_serving_exporter.facts.loader import SOURCES
from llm_serving_exporter.facts.models import ModelEntry, parse


def texts() -> dict[str, str]:
    """The catalogue's files, as shipped, by name."""
    folder = files("llm_serving_exporter.facts").joinpath("catalogue")
    return {place.name: place.read_text(encoding="utf-8") for place in folder.iterdir() if place.name.endswith(".toml")}


@cache
def document() -> dict[str, Any]:
    """All files as one document."""
    parsed = {name: tomllib.loads(text) for name, text in texts().items()}
    rows = [row for name in sorted(parsed) for row in parsed[name].get("model", ())]
    return {"sources": parsed[SOURCES]["sources"], "model": rows}


@cache
def whole_catalogue() -> tuple[ModelEntry, ...]:
    """Every row."""
    return parse(document())
