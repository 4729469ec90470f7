"""Which names of a catalogue are near to one that it does not have: of the same family, and of about the same size.

Letters alone mislead: "GLM-4.6" and "GPT-J-6B" share most of theirs.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from llm_serving_exporter.model.numbers import add_up

_MOST = 3
# sizes this far apart are of one class ("8B" and "9B"), others are not
_SIZE_RATIO = 1.25
# names without a size must be this alike, as difflib counts it
_ALIKE, _ALIKE_OF_A_SIZE = 0.8, 0.5
# of another family, by a slip of the pen: "lama-3.1-8b"
_ALIKE_WITH_A_SLIP = 0.9
_FAMILY = re.compile(r"[a-z]+")
# "70b", "1.5b", "8x7b", "125m"; what is active in "30b-a3b" is no size of its own
_SIZE = re.compile(r"(?<![a-z0-9.])(?:(\d{1,3})x)?(\d{1,4}(?:\.\d{1,2})?)([bmt])(?![a-z0-9])")
_UNITS = {"m": 1e6, "b": 1e9, "t": 1e12}


class _Named(Protocol):
    @property
    def name(self) -> str:
        """Its first name."""


def nearest(said: str, catalogue: Sequence[_Named]) -> list[str]:
    """Names of rows of the family that a name begins with, of its size where it says one, the most alike first; none where none is near.

    `said`: in lower case, without an organisation.
    """
    family, size = _family(said), _size(said)
    if not family:
        return []
    letters = Counter(said)
    scored: list[tuple[float, str]] = []
    for row in catalogue:
        name = row.name.rpartition("/")[2].lower()
        own = _size(name)
        same = size is not None and own is not None and max(size, own) <= _SIZE_RATIO * min(size, own)
        if not same and size is not None and own is not None:
            continue
        least = _ALIKE_OF_A_SIZE if same else _ALIKE
        if _family(name) != family:
            least = max(least, _ALIKE_WITH_A_SLIP)
        # of most names the letters alone tell: comparing their order is most of the work
        if _share_of_letters(letters, len(said), name) >= least:
            alike = difflib.SequenceMatcher(None, said, name).ratio()
            if alike >= least:
                scored.append((alike, row.name))
    return [name for _, name in sorted(scored, key=lambda one: (-one[0], one[1]))[:_MOST]]


def _share_of_letters(letters: Counter[str], length: int, name: str) -> float:
    """The ratio as difflib counts it if the common letters stood in the same order: never below it."""
    return 2.0 * add_up(min(count, name.count(letter)) for letter, count in letters.items()) / (length + len(name))


def _family(name: str) -> str:
    """Letters that the name begins with; more words where the first is one of many ("gpt-oss", "gpt-j")."""
    words = re.split(r"[^a-z0-9]+", name)
    first = _FAMILY.match(words[0])
    if first is None:
        return ""
    shared = first[0] in ("gpt", "open", "deepseek", "nvidia") and len(words) > 1
    second = _FAMILY.match(words[1]) if shared else None
    return f"{first[0]}-{second[0]}" if second is not None else first[0]


def _size(name: str) -> float | None:
    """The size that a name says, in parameters; None where it says none. "8x7b" counts as 56 B."""
    found = _SIZE.search(name)
    if found is None:
        return None
    return int(found[1] or 1) * float(found[2]) * _UNITS[found[3]]
