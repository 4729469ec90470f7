"""Examples of the documentation: what stands between fences, where, and what a mark above the fence says that it needs."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import dedent

from tests.support.paths import ROOT

_BLOCK = re.compile(
    r"(?:^ *<!-- needs: (?P<needs>[^>]+) -->\n)?^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """An example of a page."""

    # file below the root, and the line of its fence
    place: str
    # what the mark above it says that it needs; empty where there is none
    needs: str
    # as the fence names it; empty where it names none
    language: str
    # between the fences, without the indentation of a list
    text: str

    def __str__(self) -> str:
        return self.place

    @property
    def title(self) -> str:
        """Its first line, where that is a comment: it names the file that the example is."""
        first = self.text.partition("\n")[0]
        return first.removeprefix("# ") if first.startswith("# ") else ""

    def list_commands(self) -> Iterator[list[str]]:
        """Words of each command, lines that go on joined, comments left out."""
        for line in re.sub(r"\\\n\s*", "", self.text).splitlines():
            for part in line.split(" && "):
                if words := shlex.split(part, comments=True):
                    yield words


def list_blocks(page: str) -> list[Block]:
    """The examples of a page in their order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = [
        Block(
            f"{page}:{text.count(chr(10), 0, one.start('language')) + 1}",
            one["needs"] or "",
            one["language"],
            dedent(one["text"]),
        )
        for one in _BLOCK.finditer(text)
    ]
    # each has a fence at both ends, and no other fence stands between
    assert 2 * len(found) == len(re.findall(r"^ *```", text, re.MULTILINE)), page
    return found
