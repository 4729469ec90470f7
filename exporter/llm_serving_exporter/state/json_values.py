"""What the state files share: their bound, and how a time stands in them."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

from llm_serving_exporter.settings.document import find_fault

LARGEST_FILE_BYTES = 64 * 2**10


def parse_unix_seconds(document: dict[str, Any], key: str) -> float | None:
    """The time under a key; None where it is null or missing. Raises ValueError for anything that is not a time."""
    value = document.get(key)
    if value is None:
        return None
    # more than a double can hold is not a time either
    if isinstance(value, bool) or not isinstance(value, int | float) or not (0 <= value < 1e15 and isfinite(value)):
        raise ValueError(f"{key} is not a time in unix seconds")
    return float(value)


def describe_cause(error: Exception) -> str:
    """Why a file could not be read or written, without its path; of JSON what is wrong with it."""
    if isinstance(error, json.JSONDecodeError):
        error = find_fault(error)
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
