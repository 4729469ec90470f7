"""The runbooks as they are installed, one a Markdown file of the package of the rules: their names and texts.

They are read as files, so that nothing of the rules is loaded for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import resources
from importlib.resources.abc import Traversable
from typing import NamedTuple

PREFIX = "LLMServing"
_INDEX = "README.md"
_INDEX_ROW = re.compile(r"^\| *(\w+) *\| *\[\w+\]\((\w+)\.md\) *\| *([\w, ]+?) *\| *([^|]+?) *\|$", re.MULTILINE)


class RunbookEntry(NamedTuple):
    """A line of the index."""

    name: str  # the alert's, as it fires
    check: str  # that the alert belongs to
    severities: str  # of its rules, "warning, critical"
    fires_when: str  # in a clause


def list_runbooks() -> tuple[RunbookEntry, ...]:
    """Every runbook, in the order of the index; () where the package of the rules is not installed."""
    index = _folder().joinpath(_INDEX)
    if not index.is_file():
        return ()
    rows = _INDEX_ROW.findall(index.read_text(encoding="utf-8"))
    return tuple(RunbookEntry(name, check, severities, when) for check, name, severities, when in rows)


def find_runbook(word: str, known: Iterable[RunbookEntry]) -> str | None:
    """The alert's name that a word means, with or without its prefix, in capitals or not; None where it means none."""
    wanted = word.removesuffix(".md").lower()
    return next(
        (one.name for one in known if wanted in (one.name.lower(), one.name.removeprefix(PREFIX).lower())), None
    )


def read_runbook(name: str) -> str:
    """The Markdown of a runbook of the index."""
    return _folder().joinpath(f"{name}.md").read_text(encoding="utf-8")


def _folder() -> Traversable:
    return resources.files("llm_serving_alerts").joinpath("runbooks")
