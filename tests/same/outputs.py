"""A folder of outputs, each a text under a name, with what no two runs have in common masked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mask:
    """What is masked in every output."""

    pattern: re.Pattern[str]
    # what stands there instead
    instead: str
    # why it cannot be the same twice
    reason: str


def _mask(pattern: str, instead: str, reason: str) -> Mask:
    return Mask(re.compile(pattern, re.MULTILINE), instead, reason)


# all that is masked; what else differs between two runs of one tree is a fault, of the product or of the collector
MASKS = (
    _mask(
        r"^((?:llm_serving_\w+:)?process_\w+(?:\{[^}]*\})?) .*",
        r"\1 MASKED",
        "what the collector's own process has taken: processor, memory, descriptors, its start",
    ),
    _mask(
        r'(^ +name: "process_\w+"(?:\n(?! +name:).*)*?\n +as_double: ).*',
        r"\1MASKED",
        "the same in a message of OTLP",
    ),
    _mask(
        # the digest of an image is not one of them
        r"(?<!sha256:)\b[0-9a-f]{64}\b",
        "MASKED",
        "the hash of a configuration, which holds the port of a server that the collector started",
    ),
)


class Outputs:
    """`write` puts a text under a name such as "help/once.txt"; within `hiding` what texts have by chance, a port or a folder, is called
    otherwise."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._hidden: dict[str, str] = {}

    @contextmanager
    def hiding(self, chance: Mapping[str, str]) -> Iterator[None]:
        """Writes each value for its key."""
        before, self._hidden = self._hidden, self._hidden | chance
        try:
            yield
        finally:
            self._hidden = before

    def write(self, name: str, text: str) -> None:
        """One output. Raises ValueError where it is there already: it would hide another one."""
        self.write_whole(name, self._mask(text))

    def write_whole(self, name: str, text: str) -> None:
        """One in which nothing is masked: a file of the repository, which has nothing by chance."""
        path = self.folder / name
        if path.exists():
            raise ValueError(f"two outputs are called {name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="surrogateescape", newline="")

    def _mask(self, text: str) -> str:
        # the longest first: a folder within a hidden one is hidden whole
        for chance, instead in sorted(self._hidden.items(), key=lambda item: -len(item[0])):
            text = text.replace(chance, instead)
        for mask in MASKS:
            text = mask.pattern.sub(mask.instead, text)
        return text
