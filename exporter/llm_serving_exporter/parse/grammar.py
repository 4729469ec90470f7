"""The two exposition grammars as patterns, and the reading of a label body.

Sources: Prometheus exposition formats 0.0.4 and 1.0.0 with quoted UTF-8 names; OpenMetrics 1.0. Both as Prometheus' own
lexers read them (promlex.l, openmetricslex.l), because a page that Prometheus refuses should not look healthy here.

No line, however hostile, makes a match slower than linear: repetitions of one character are possessive, and whether a group
goes on is settled by its first character. Groups are not possessive, because CPython 3.11 before 3.11.5 matches those
wrongly (gh-106052).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.text import has_address

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*+"
LABEL_NAME = r"[a-zA-Z_][a-zA-Z0-9_]*+"
QUOTED = r'"[^"\\]*+(?:\\.[^"\\]*+)*"'

# Go's ParseFloat as Prometheus calls it (no underscores, no hexadecimal), plus a signed NaN, which C's printf writes.
# Letters are spelt out: under IGNORECASE "ı" would count as an "i".
NUMBER = (
    r"[+-]?+(?:(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?"
    r"|[iI][nN][fF](?:[iI][nN][iI][tT][yY])?|[nN][aA][nN])"
)
# int64 milliseconds in the text format; finite seconds in OpenMetrics
MILLISECONDS = r"[+-]?[0-9]{1,19}+"
SECONDS = r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?"

METRIC_TYPES = frozenset(
    # text format, then what OpenMetrics adds; one set, because some servers label the one as the other
    ("counter", "gauge", "histogram", "summary", "untyped", "unknown", "gaugehistogram", "stateset", "info")
)


class Grammar(Struct, frozen=True):
    """Patterns of one format, each for a whole line without its newline."""

    sample: re.Pattern[str]  # groups: name, label body, value, timestamp; None where absent
    metadata: re.Pattern[str]  # groups: keyword, name, text
    timestamp_units_per_second: float  # 1000 where timestamps are milliseconds, 1 where they are seconds


def _build_body(term: str, gap: str) -> str:
    return rf"{gap}(?:{term}(?:{gap},{gap}{term})*{gap},?+{gap})?"


def _build_term(gap: str) -> str:
    # a quoted string without "=" is the metric's name
    return rf"(?:(?:{LABEL_NAME}|{QUOTED}){gap}={gap}{QUOTED}|{QUOTED})"


_GAP = r"[ \t]*+"
TEXT = Grammar(
    sample=re.compile(
        rf"{_GAP}(?:({NAME})(?=[ \t{{]))?{_GAP}(?:\{{({_build_body(_build_term(_GAP), _GAP)})\}})?{_GAP}"
        rf"({NUMBER})(?:[ \t]++({MILLISECONDS}))?{_GAP}"
    ),
    metadata=re.compile(rf"{_GAP}#[ \t]++(HELP|TYPE)[ \t]++({NAME}|{QUOTED})(?:[ \t]++(.*+))?"),
    timestamp_units_per_second=1000.0,
)
_EXEMPLAR = rf" \# \{{{_build_body(rf'{LABEL_NAME}={QUOTED}', '')}\}} {NUMBER}(?: {SECONDS})?"
OPENMETRICS = Grammar(
    sample=re.compile(
        rf"(?:({NAME})(?=[ {{]))?(?:\{{({_build_body(_build_term(''), '')})\}})? ({NUMBER})(?: ({SECONDS}))?(?:{_EXEMPLAR})?"
    ),
    metadata=re.compile(rf"\# (HELP|TYPE|UNIT) ({NAME}|{QUOTED})(?: (.*+))?"),
    timestamp_units_per_second=1.0,
)

_TERMS = re.compile(rf"(?:({LABEL_NAME})|({QUOTED}))(?:{_GAP}={_GAP}({QUOTED}))?")
_PLAIN_TERMS = re.compile(rf'({LABEL_NAME}){_GAP}={_GAP}"([^"]*+)"')
_NO_LABEL_NAME = ("", "__name__")
_ESCAPE = re.compile(r'\\([\\"n])')


def unquote_value(quoted: str) -> str:
    r"""The string inside the quotes, with ``\\``, ``\"`` and ``\n`` resolved; any other escape stays as written."""
    inner = quoted[1:-1]
    return _ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], inner) if "\\" in inner else inner


def unquote_name(name: str) -> str:
    """A metric name of a metadata line, which may be quoted."""
    return unquote_value(name) if name[0] == '"' else name


class LabelBody(NamedTuple):
    """What stands between the braces of a sample."""

    labels: tuple[tuple[str, str], ...]  # (name, value) unescaped, sorted by name
    name: str | None  # the metric's name where it is quoted between the braces
    fault: str | None = None  # what is wrong although the syntax is right; None where nothing is


def read_body(body: str) -> LabelBody:
    """Reads a body that has matched a grammar's `sample` pattern."""
    if "\\" not in body:
        pairs = _PLAIN_TERMS.findall(body)
        # Without escapes quotes come in pairs, so that many terms are the whole body and none of its names is quoted.
        if 2 * len(pairs) == body.count('"') and len(labels := dict(pairs)) == len(pairs) and "__name__" not in labels:
            pairs.sort()
            return LabelBody(tuple(pairs), None)
    terms = _TERMS.findall(body)
    names = [unquote_value(quoted) for _, quoted, value in terms if not value]
    pairs = [(bare or unquote_value(quoted), unquote_value(value)) for bare, quoted, value in terms if value]
    if names and (len(names) > 1 or not names[0]):
        return LabelBody((), None, "the metric name stands twice" if names[0] else "the metric name is empty")
    pairs.sort()
    last = None
    for label, _ in pairs:
        if label == last:
            return LabelBody((), None, f"label {quote_excerpt(label)} stands twice")
        if label in _NO_LABEL_NAME:
            return LabelBody((), None, f"{quote_excerpt(label)} cannot be a label name")
        last = label
    return LabelBody(tuple(pairs), names[0] if names else None)


# characters of a line in which an address may begin that the excerpt cuts
_ADDRESS_WITHIN = 600


def quote_excerpt(text: str, limit: int = 60) -> str:
    """Text of a page for a message: quoted, printable ASCII, bounded in length. Gateways' pages have addresses of users: none is shown."""
    if has_address(text[:_ADDRESS_WITHIN]):
        return "text with an e-mail address in it"
    return ascii(text if len(text) <= limit else text[:limit] + "...")
