"""Samples named in a table: `name`, or `name{label="value|other",…}` for those whose labels have one of the values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from llm_serving_exporter.model.record import Struct, field

_SELECTOR = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?")
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)="([^"\\]*)"\s*')


class Selector(Struct, frozen=True):
    """A sample by name and labels."""

    name: str  # wire name with `:`
    # label -> allowed values; "" allows a sample without the label
    where: Mapping[str, frozenset[str]] = field(default_factory=dict)


@lru_cache(maxsize=4096)
def selector(text: str) -> Selector:
    """Reads a selector. Raises ValueError with what is wrong."""
    match = _SELECTOR.fullmatch(text)
    if match is None:
        raise ValueError(f'{text!r} is not a sample name, with labels as in name{{label="value|other"}} or without')
    where: dict[str, frozenset[str]] = {}
    for part in (match[2] or "").split(",") if match[2] else ():
        label = _LABEL.fullmatch(part)
        if label is None:
            raise ValueError(f'{text!r}: {part!r} is not a label such as source="local_compute"')
        where[label[1]] = frozenset(label[2].split("|"))
    return Selector(match[1], where)
