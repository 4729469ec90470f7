"""Paths of file discovery: plain, or with wildcards in the last element, as in Prometheus."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from itertools import islice

from llm_serving_exporter.schema.problems import Place, shown

_EXTENSIONS = (".json", ".yml", ".yaml")
_WILDCARDS = frozenset("*?[")
# of one folder; beyond that, discovery would cost more than the scrapes
MOST_FILES = 1000
_MOST_ENTRIES = 100_000


def check_pattern(pattern: str, place: Place) -> bool:
    """Whether a pattern can be used; reported at `place` where not."""
    folder, last = os.path.split(pattern)
    if not last.lower().endswith(_EXTENSIONS):
        place.refuse(f"{shown(pattern)} does not end in .json, .yml or .yaml", "Use a file with one of these endings.")
    elif _WILDCARDS & set(folder):
        place.refuse(f"{shown(pattern)} has a wildcard in a folder's name", "Wildcards are for the file name only.")
    else:
        return True
    return False


def is_glob(pattern: str) -> bool:
    """Whether a pattern may match any number of files, none included."""
    return bool(_WILDCARDS & set(os.path.basename(pattern)))


def matching(pattern: str) -> list[str]:
    """The files that a pattern names now, sorted; [] where there are none or the folder cannot be read.

    Hidden files match only a pattern that starts with a dot. At most `MOST_FILES` + 1.
    """
    if not is_glob(pattern):
        return [pattern] if os.path.exists(pattern) else []
    folder, last = os.path.split(pattern)
    try:
        with os.scandir(folder or ".") as entries:
            names = sorted(
                entry.name
                for entry in islice(entries, _MOST_ENTRIES)
                if fnmatchcase(entry.name, last) and entry.name.startswith(".") == last.startswith(".")
            )
    except OSError:
        return []
    return [os.path.join(folder, name) for name in names[: MOST_FILES + 1]]
