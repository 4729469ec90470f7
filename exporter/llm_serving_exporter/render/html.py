"""Small pieces of HTML that the landing page is made of. Text from outside goes in through `text` only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from math import isfinite

LONGEST_TEXT = 600


def text(raw: object) -> str:
    """Any text as HTML: escaped, and cut where it is absurdly long."""
    plain = str(raw)
    return escape(plain if len(plain) <= LONGEST_TEXT else plain[:LONGEST_TEXT] + "…")


def bar(ratio: float | None, high_from: float | None = None) -> str:
    """A bar filled to a ratio; nothing where there is none. From `high_from` on it has the colour of a problem."""
    if ratio is None or not isfinite(ratio):
        return ""
    high = " high" if high_from is not None and ratio >= high_from else ""
    return f'<span class="bar{high}"><i style="width:{100 * min(1.0, max(0.0, ratio)):.1f}%"></i></span>'


def level(ratio: float | None, words: str, high_from: float | None = None) -> str:
    """A bar with words beside it, for a table's cell."""
    return f'{bar(ratio, high_from)}<span class="level">{text(words)}</span>'


def badge(word: str, kind: str) -> str:
    """A coloured word."""
    return f'<span class="badge {kind}">{text(word)}</span>'


def note(kind: str, *sentences: str) -> str:
    """A coloured box with a paragraph for each sentence that is not empty. Sentences are plain text."""
    paragraphs = "".join(f"<p>{text(sentence)}</p>" for sentence in sentences if sentence)
    return f'<div class="note {kind}">{paragraphs}</div>' if paragraphs else ""


def facts(items: Iterable[str]) -> str:
    """A line of short facts, each already HTML; empty ones are left out."""
    return f'<p class="facts">{" ".join(f"<span>{item}</span>" for item in items if item)}</p>'


def row(head: str, cells: Iterable[str]) -> str:
    """A table row: its name, then its cells, all of them already HTML."""
    return f'<tr><th class="text" scope="row">{head}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'


def header(first: str, columns: Sequence[str]) -> str:
    """A header row of plain texts."""
    others = "".join(f'<th scope="col">{text(column)}</th>' for column in columns)
    return f'<tr><th class="text" scope="col">{text(first)}</th>{others}</tr>'


def table(head: str, body: Iterable[str], foot: str = "") -> str:
    """A table that scrolls within itself where the window is narrow."""
    end = f"<tfoot>{foot}</tfoot>" if foot else ""
    # reachable by keyboard, or it could not be scrolled without a pointer
    return f'<div class="scroll" tabindex="0"><table><thead>{head}</thead><tbody>{"".join(body)}</tbody>{end}</table></div>'
