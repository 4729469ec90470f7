"""A settings file as the tree that it becomes, its places, and its faults: every one of them, each with its place and what to do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import TypeAlias

from llm_serving_exporter.errors import LLMServingExporterError, Problem
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.text import hide_credentials

SHOWN_CHARACTERS = 60
MOST_PROBLEMS = 200  # more than anyone reads, few enough that a broken file floods neither a terminal nor memory


class Scalar(Struct, frozen=True):
    """A single value."""

    text: str
    kind: str  # how YAML or JSON reads it: text, a number, true or false, nothing, a date


Node: TypeAlias = "Scalar | list[Node] | dict[str, Node]"


class InvalidValueError(LLMServingExporterError, ValueError):
    """A text is not a value of its kind. `what` is the fault without a full stop, `fix` a sentence (or "")."""

    def __init__(self, what: str, fix: str = "") -> None:
        super().__init__(f"{what}. {fix}" if fix else f"{what}.")
        self.what = what
        self.fix = fix


class Place(Struct, frozen=True):
    """A place in a source of settings, where problems are reported. Places of one load share one list of problems."""

    file: str  # the file's path as the user gave it, or "flag --x", "environment variable Y"
    path: str  # the dotted path inside it, "" for the whole
    problems: list[Problem]

    def key(self, name: str) -> Place:
        """The place of a key below this one."""
        shown_name = shown(name)[1:-1]
        return Place(self.file, f"{self.path}.{shown_name}" if self.path else shown_name, self.problems)

    def item(self, index: int) -> Place:
        """The place of a list's element."""
        return Place(self.file, f"{self.path}[{index}]", self.problems)

    def refuse(self, what: str, fix: str = "") -> None:
        """Reports a problem here; the caller goes on, so that the user sees every one at once."""
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(Problem(self.file, self.path, what, fix))
        elif len(self.problems) == MOST_PROBLEMS:
            self.problems.append(Problem(self.file, "", f"there are more than {MOST_PROBLEMS} problems", "Start here."))

    def watch(self) -> Callable[[], bool]:
        """What says whether nothing has been refused since then, at any place of this load.

        Once so much is wrong that no more is reported, nothing counts as right any more.
        """
        before = len(self.problems)
        return lambda: before == len(self.problems) <= MOST_PROBLEMS

    def __str__(self) -> str:
        return f"{self.file}: {self.path}" if self.path else self.file


def shown(text: str) -> str:
    """A value as a message shows it: in double quotes, control characters escaped, credentials masked, cut where it is long."""
    text = hide_credentials(text)  # before it is cut: a mask needs the whole address
    cut = text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…"
    quoted = json.dumps(cut, ensure_ascii=False)
    # JSON leaves line separators and the like, and half of a surrogate pair could not be printed at all
    return quoted if quoted.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in quoted)


def listed(words: Iterable[str], last: str = "or") -> str:
    """A list for a sentence: "a, b or c"."""
    *head, tail = words
    return f"{', '.join(head)} {last} {tail}" if head else tail


def nearest(word: str, names: Iterable[str]) -> str | None:
    """The known name that is nearest to one that is not known; None where none is near."""
    names = sorted(names)
    near = get_close_matches(word, names, n=1, cutoff=0.6) or get_close_matches(word.lower(), names, n=1, cutoff=0.6)
    return near[0] if near else None


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """A fix for a name that is not known: the nearest known one, else all of them."""
    names = sorted(names)
    near = nearest(word, names)
    return f"Did you mean {near}?" if near else f"Known here: {', '.join(names)}."
