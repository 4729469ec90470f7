"""How a test of a table says which rows are wrong."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent

from tests.support.paths import ROOT

# whoever sees more wrong rows than that looks for what they share
MOST_SHOWN = 20
_MOST_NAMED = 100


@dataclass(frozen=True, slots=True)
class RowFault:
    """A row whose check failed."""

    name: str
    # file and line of the check, and that line's text
    place: str
    # the assertion's text, or the exception's type and text
    text: str


def describe_fault(name: str, error: BaseException, check: Callable[..., None]) -> RowFault:
    """What `check` raised for the row, as text: an exception would hold everything that the check had in hand."""
    frames = traceback.extract_tb(error.__traceback__)
    code = inspect.unwrap(check).__code__
    path = code.co_filename
    of_check = [frame for frame in frames if frame.filename == path] or [frames[-1]]
    places = [_say_place(of_check[-1])]
    if frames[-1] is not of_check[-1]:
        places.append(_say_place(frames[-1]))
    text = str(error)
    if not isinstance(error, AssertionError):
        text = f"{type(error).__name__}: {text}"
    return RowFault(name, "\n".join(places), text)


def say_faults(faults: Sequence[RowFault], tried: int) -> str:
    """How many rows are wrong, which, and why."""
    parts = [f"{len(faults)} of {tried} rows {'is' if len(faults) == 1 else 'are'} wrong"]
    parts += [
        "\n".join(part for part in (fault.name, indent(fault.place, "  "), indent(fault.text, "    ")) if part.strip())
        for fault in faults[:MOST_SHOWN]
    ]
    if rest := faults[MOST_SHOWN:]:
        parts.append(f"and {len(rest)} more: {name_some([fault.name for fault in rest])}")
    return "\n\n".join(parts)


def name_some(names: Sequence[str]) -> str:
    """All of them, where they can be read."""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def _say_place(frame: traceback.FrameSummary) -> str:
    path = Path(frame.filename)
    where = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    return f"{where}:{frame.lineno}: {frame.line}"
