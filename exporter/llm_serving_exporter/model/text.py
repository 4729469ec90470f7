"""Text from outside, made fit for labels, pages, logs and terminals."""

from __future__ import annotations

import re

LABEL_LENGTH = 200  # characters of a label value; longer ones come from a mistake or an attack
# C0 and C1, line and paragraph separators, and halves of surrogate pairs, which cannot be encoded
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")

# where in its own source Python's TLS fails: another line in each version
_SOURCE = re.compile(r" \(_ssl\.c:\d+\)")

# an "@" as it is, in full width or small, as a URL, HTML or JSON writes it, each perhaps written so more than once, and as people hide it
_AT = r"(?:[@\uff20\ufe6b]|%(?:25)*40|&(?:amp;)*(?:\#0*64|\#x0*40|commat);?|\\(?:u00|x)40|[\[({<]\s*at\s*[\])}>])"
# something before and after it: whatever looks like an address is treated as one. One character of each is enough, and linear in the name's
# length: with "+" each of its characters would begin a search to its end
_ADDRESS = re.compile(rf"[^\s@]\s*{_AT}\s*[^\s@]", re.IGNORECASE)


def clean(text: str, longest: int = LABEL_LENGTH) -> str:
    """The text cut to `longest` characters, with U+FFFD for control characters, lone surrogates and other unprintable ones.

    A lone surrogate (JSON can carry one) has no UTF-8 form and would make a whole page impossible to send.
    """
    cut = text[:longest]
    return cut if cut.isprintable() else "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in cut)


def has_control_characters(text: str) -> bool:
    """Whether the text holds a line break, another control character or half of a surrogate pair."""
    return _CONTROL.search(text) is not None


def has_address(text: str) -> bool:
    """Whether there is an e-mail address in the text, or what looks like one, also as a URL, HTML or JSON would write it."""
    return _ADDRESS.search(text) is not None


def blank_unprintable(text: str) -> str:
    """A blank for each character that has no picture, so that nothing breaks a line or moves a cursor; columns stay."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def on_one_line(text: str, longest: int | None = None) -> str:
    """One printable line: unprintable characters are blanks, runs of blanks are one; cut to `longest` characters with "…".

    Of an error of TLS the line of Python's source is left out.
    """
    line = _SOURCE.sub("", " ".join(blank_unprintable(text).split()))
    return line if longest is None or len(line) <= longest else line[: longest - 1] + "…"


def count_nouns(number: int, noun: str, nouns: str = "") -> str:
    """`1 target`, `1,200 targets`. `nouns`: where more than one is not the noun with an "s"."""
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def escape_label_value(value: str) -> str:
    """A label's value as it stands between double quotes in the exposition format and in PromQL."""
    if "\\" in value or '"' in value or "\n" in value:  # most values need nothing, and a page has thousands
        return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return value
