"""Pages of docs/ as tests read them: what the index lists, and prose without examples."""

import re
from pathlib import Path

from tests.support.paths import ROOT

DOCS = ROOT / "docs"
INDEX = DOCS / "index.md"
FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2[ \t]*$", re.DOTALL | re.MULTILINE)


def strip_examples(text: str) -> str:
    """The text without examples, and with one word for each piece of code in a line."""
    return re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "code", FENCE.sub("", text))


def list_entries(index: Path = INDEX) -> list[tuple[str, str]]:
    """Heading and file of each page that the index lists: what docs/conf.py makes toctrees of."""
    sections = re.split(r"^## ", index.read_text(), flags=re.MULTILINE)[1:]
    return [
        (section.partition("\n")[0], file)
        for section in sections
        for file in re.findall(r"^- \[[^\]]*\]\(([^)#]+)\)", section, re.MULTILINE)
    ]
