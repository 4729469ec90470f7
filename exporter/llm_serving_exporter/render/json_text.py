"""Values -> JSON that every reader takes: it has no NaN and no infinity, null stands for them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any


def write_json(value: Any, *, ascii_only: bool = True) -> str:
    """The text of a document of mappings, sequences and plain values, with two spaces a level."""
    return json.dumps(_replace_impossible(value), indent=2, ensure_ascii=ascii_only, allow_nan=False)


def _replace_impossible(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _replace_impossible(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_replace_impossible(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value
