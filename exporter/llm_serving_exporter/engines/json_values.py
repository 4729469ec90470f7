"""Values of a JSON answer, which may be anything: the value where it is of the kind that is wanted, else None or nothing.

Numbers are compared before anything converts them: JSON has whole numbers that no float holds, and NaN and Infinity as Python reads it.
"""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.model.text import LABEL_LENGTH, clean

# above any size, limit or count of bytes that a server can have, and a float still holds each whole number
MOST_WHOLE = 10**15
# any measure; beyond it arithmetic on a few of them could leave what a float holds
LARGEST = 1e18


def whole(value: object) -> int | None:
    """A positive whole number of at most MOST_WHOLE."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MOST_WHOLE:
        return None
    return value


def number(value: object) -> float | None:
    """A finite number of at most LARGEST, whatever its sign."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -LARGEST <= value <= LARGEST:
        return None
    return float(value)


def text(value: object, longest: int = LABEL_LENGTH) -> str | None:
    """A string that is not empty, made fit for labels and pages."""
    return clean(value, longest) if isinstance(value, str) and value else None


def mapping(value: object) -> Mapping[str, object]:
    """An object; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def listed(value: object, most: int) -> list[object]:
    """The first `most` of a list; nothing of anything else."""
    return value[:most] if isinstance(value, list) else []


def is_owned_by(answer: object, owner: str, most: int = 64) -> bool:
    """Whether a model list (`/v1/models`: data[].owned_by) names this owner, and no other."""
    entries = listed(mapping(answer).get("data"), most)
    return bool(entries) and all(mapping(entry).get("owned_by") == owner for entry in entries)


def find_unread_sizes(parallel: Mapping[str, object], read: frozenset[str], most: int = 16) -> tuple[str, ...]:
    """The names of sizes above one, in a server's configuration of its parallelism, that are not among those that are read."""
    found = [
        clean(name)
        for name, value in parallel.items()
        if name.endswith("_size") and name not in read and (whole(value) or 0) > 1 and "parallel" in name
    ]
    return tuple(sorted(found)[:most])
