"""Pages that are read in a hurry: README, the start pages and the concepts have no long sentence, and a concept has one picture."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.docs_pages import list_entries, strip_examples
from tests.support.paths import ROOT
from tests.support.rows import check_rows

# words of a sentence; examples, tables and code in a line (a word each) aside
LONGEST = 30
# these have a picture of what they are about
PICTURED = ("ceiling.md", "limiter.md", "n1.md", "cost.md")
READ_IN_A_HURRY = [
    ROOT / "README.md",
    *(ROOT / "docs" / file for section, file in list_entries() if section in ("Start", "Concepts")),
]
_BREAK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )|\n(?=#)")
# a full stop, a question or an exclamation, before what a sentence begins with
_END = re.compile(r"(?<=[.!?])[*)\"]*\s+(?=[A-Z0-9(\"`*\[]|code\b)")


def split_sentences(text: str) -> list[str]:
    """Sentences of a page's prose: what stands between links' brackets counts, where they lead does not."""
    text = re.sub(r"<!--.*?-->", "", strip_examples(text), flags=re.DOTALL)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    found = []
    for paragraph in _BREAK.split(text):
        lines = [line.strip() for line in paragraph.splitlines() if not line.lstrip().startswith("|")]
        found += [one for one in _END.split(" ".join(lines).lstrip("#-* ")) if one]
    return found


@check_rows("path", READ_IN_A_HURRY, ids=lambda path: path.name)
def test_no_sentence_is_long(path: Path) -> None:
    sentences = split_sentences(path.read_text(encoding="utf-8"))
    assert len(sentences) >= 5
    assert [one for one in sentences if len(one.split()) > LONGEST] == []


@check_rows("name", PICTURED)
def test_a_concept_has_one_picture(name: str) -> None:
    assert len(re.findall(r"!\[", (ROOT / "docs" / name).read_text(encoding="utf-8"))) == 1


def test_sentences_are_told_apart() -> None:
    text = (
        "# A heading\n\nOne is short. Two\nhas `code it` and\n[a link](b.md). Is it? 1.5 is no end.\n\n- an item\n- another: all of it\n\n"
        "| a. B | table |\n\n```sh\nrun. This\n```\n![A picture. Of it](a.png)\n"
    )
    assert [one.split()[-1] for one in split_sentences(text)] == [
        "heading", "short.", "link.", "it?", "end.", "item", "it"
    ]  # fmt: skip
    assert [len(one.split()) for one in split_sentences(text)][2] == 6
