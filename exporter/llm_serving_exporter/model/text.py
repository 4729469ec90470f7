"""Text from outside, made fit for labels, pages, logs and terminals."""

from __future__ import annotations

LABEL_LENGTH = 200  # characters of a label value; longer ones come from a mistake or an attack


def clean(text: str, longest: int = LABEL_LENGTH) -> str:
    """The text cut to `longest` characters, with U+FFFD for control characters, lone surrogates and other unprintable ones.

    A lone surrogate (JSON can carry one) has no UTF-8 form and would make a whole page impossible to send.
    """
    cut = text[:longest]
    return cut if cut.isprintable() else "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in cut)


def on_one_line(text: str) -> str:
    """One line, nothing in it that moves a cursor."""
    return "".join(character if character.isprintable() else " " for character in " ".join(text.split()))
