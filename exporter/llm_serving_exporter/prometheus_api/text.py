"""Text from outside, as a message shows it."""

from __future__ import annotations


def on_one_line(text: str) -> str:
    """One line, nothing in it that moves a cursor."""
    return "".join(character if character.isprintable() else " " for character in " ".join(text.split()))
