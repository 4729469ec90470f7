"""Small pieces of HTML for the exporter's own pages.

`str` is text and is escaped wherever it enters a piece; `Markup` is HTML and enters as it is. Every function here returns Markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import isfinite
from typing import LiteralString

from markupsafe import Markup, escape

LONGEST_TEXT = 600
NO_MARKUP = Markup("")


def fill(template: LiteralString, *values: object) -> Markup:
    """A constant piece of HTML with each {} replaced by a value: text escaped and bounded, Markup as it is."""
    first, *others = _pieces(template)
    # Markup.format() takes four times as long
    filled = [piece for value, other in zip(values, others, strict=True) for piece in (escape(_bounded(value)), other)]
    return Markup("".join((first, *filled)))  # noqa: S704  constants of our own, by the type


@lru_cache(maxsize=512)
def _pieces(template: str) -> tuple[str, ...]:
    return tuple(template.split("{}"))


def join(pieces: Iterable[object], separator: LiteralString = "") -> Markup:
    """Pieces one after another: text escaped and bounded, Markup as it is. The separator is a constant."""
    return Markup(separator).join(map(_bounded, pieces))  # noqa: S704  likewise


def bar(ratio: float | None, high_from: float | None = None) -> Markup:
    """A bar filled to a ratio; nothing where there is none. From `high_from` on it has the colour of a problem."""
    if ratio is None or not isfinite(ratio):
        return NO_MARKUP
    high = " high" if high_from is not None and ratio >= high_from else ""
    return fill('<span class="bar{}"><i style="width:{}%"></i></span>', high, f"{100 * min(1.0, max(0.0, ratio)):.1f}")


def level(ratio: float | None, words: str, high_from: float | None = None) -> Markup:
    """A bar with words beside it, for a table's cell."""
    return fill('{}<span class="level">{}</span>', bar(ratio, high_from), words)


def badge(word: str, kind: str) -> Markup:
    """A coloured word."""
    return fill('<span class="badge {}">{}</span>', kind, word)


def soft(words: str) -> Markup:
    """Words in a softer colour; nothing for ""."""
    return fill('<span class="soft">{}</span>', words) if words else NO_MARKUP


def note(kind: str, *sentences: str) -> Markup:
    """A coloured box with a paragraph for each sentence that is not empty."""
    paragraphs = join(fill("<p>{}</p>", sentence) for sentence in sentences if sentence)
    return fill('<div class="note {}">{}</div>', kind, paragraphs) if paragraphs else NO_MARKUP


def facts(items: Iterable[str]) -> Markup:
    """A line of short facts; empty ones are left out."""
    return fill('<p class="facts">{}</p>', join((fill("<span>{}</span>", item) for item in items if item), " "))


def tile(name: str, value: str, below: str, filled: Markup = NO_MARKUP) -> Markup:
    """A figure of a list of tiles: its name, its value with an optional bar, and a small line below."""
    return fill("<div><dt>{}</dt><dd>{}{}<small>{}</small></dd></div>", name, value, filled, below)


def row(head: str, cells: Iterable[str]) -> Markup:
    """A table row: its name, then its cells."""
    return fill(
        '<tr><th class="text" scope="row">{}</th>{}</tr>', head, join(fill("<td>{}</td>", cell) for cell in cells)
    )


def header(first: str, columns: Sequence[str]) -> Markup:
    """A header row."""
    others = join(fill('<th scope="col">{}</th>', column) for column in columns)
    return fill('<tr><th class="text" scope="col">{}</th>{}</tr>', first, others)


def table(head: Markup, body: Iterable[Markup], foot: Markup = NO_MARKUP) -> Markup:
    """A table that scrolls within itself where the window is narrow."""
    end = fill("<tfoot>{}</tfoot>", foot) if foot else NO_MARKUP
    # reachable by keyboard, or it could not be scrolled without a pointer
    return fill(
        '<div class="scroll" tabindex="0"><table><thead>{}</thead><tbody>{}</tbody>{}</table></div>',
        head,
        join(body),
        end,
    )


def make_presentable(text: str, longest: int = LONGEST_TEXT) -> str:
    """Plain text from outside, fit for a page: cut to `longest` characters, spaces for line breaks and the like, U+FFFD for what else
    has no shape of its own: control characters, lone surrogates, marks that turn the direction of the text beside them."""
    if not text.isprintable():
        text = "".join(map(_printable, text))
    return text if len(text) <= longest else text[:longest] + "…"


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    return " " if character.isspace() else "\N{REPLACEMENT CHARACTER}"


def _bounded(value: object) -> str:
    return value if isinstance(value, Markup) else make_presentable(str(value))
