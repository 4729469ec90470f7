"""Versions of runtimes, as far as the tables need them."""

from __future__ import annotations

import re

Version = tuple[int, ...]

_LEADING = re.compile(r"\s*[vb]?(\d+(?:\.\d+)*)")
_CLAUSE = re.compile(r"(>=|<=|<|>)(\d+(?:\.\d+)*)\Z")


def parse_version(text: str | None) -> Version | None:
    """The leading numbers of a version ("0.32.1rc1.dev5+gabc" -> (0, 32, 1), "b11434-pypi" -> (11434,)); None where there are none."""
    match = _LEADING.match(text or "")
    return tuple(int(part) for part in match[1].split(".")[:4]) if match else None


def satisfies(version: Version, versions: str) -> bool:
    """Whether a version satisfies every comma-separated clause (">=0.9,<0.13"); "" is satisfied by all.

    Raises ValueError for a clause that is not `>=`, `>`, `<=` or `<` and numbers.
    """
    for clause in filter(None, (part.strip() for part in versions.split(","))):
        match = _CLAUSE.match(clause)
        if match is None:
            raise ValueError(f"not a version clause: {clause!r}")
        bound = tuple(int(part) for part in match[2].split("."))
        width = max(len(bound), len(version))
        left, right = version + (0,) * (width - len(version)), bound + (0,) * (width - len(bound))
        if not {">=": left >= right, "<=": left <= right, "<": left < right, ">": left > right}[match[1]]:
            return False
    return True
