"""An engine's command line -> what it says of the engine's limits.

A command line may hold keys and tokens: only the flags that a table knows leave this module, and of their values only numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from llm_serving_exporter.engines.mapping import Runtime
from llm_serving_exporter.model.target import Arguments

WORDS_MAX = 4096
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)
# what surrounds a word of a shell's command line
_SHELL = "'\";&|\\()"


def read_arguments(words: Sequence[str], runtimes: Iterable[Runtime]) -> Arguments:
    """The known flags of a command line with their values, "" for one without a number: `--flag 8`, `--flag=8`, also inside the text of a
    shell's command.

    As for every engine's parser the last one counts, and `_` in a flag is `-` (vLLM's takes both). In the text of a shell several engines
    may start: there values that differ are none.
    """
    flags = {flag for runtime in runtimes if runtime.flags for flag in runtime.flags.every}
    values: dict[str, str] = {}
    for word in words[:WORDS_MAX]:
        if len(pieces := word.split()) > 1:
            values |= _read_text([piece.strip(_SHELL) for piece in pieces[:WORDS_MAX]], flags)
    values |= dict(_pairs(words[:WORDS_MAX], flags))
    return tuple(sorted(values.items()))


def find_batch_limit(runtime: Runtime, arguments: Arguments) -> int | None:
    """The most requests that the engine runs at once, as its arguments say it; None where they do not, or not of one engine alone."""
    if runtime.flags is None:
        return None
    given = dict(arguments)
    if any(flag in given for flag in runtime.flags.unless):
        return None
    limits = [given[flag] for flag in runtime.flags.batch_limit if flag in given]
    return (int(limits[0]) or None) if len(limits) == 1 and limits[0] else None


def _pairs(words: Sequence[str], flags: set[str]) -> Iterable[tuple[str, str]]:
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        flag = name[:2] + name[2:].replace("_", "-")
        if flag in flags:
            after = value if equals else words[place + 1] if place + 1 < len(words) else ""
            number = after.strip(_SHELL)
            yield flag, number if _NUMBER.fullmatch(number) else ""


def _read_text(words: Sequence[str], flags: set[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for flag, value in _pairs(words, flags):
        values[flag] = value if values.get(flag, value) == value else ""
    return values
