"""The strict parser: one page of exposition text to its samples, or an error with the line. Pure.

Prometheus text 0.0.4 and 1.0.0, OpenMetrics 1.0. Every line is checked, wanted or not, and its syntax is
all that is checked. The next stage judges whether a family is complete, grouped, named after its TYPE line and free of
duplicates (vLLM's OpenMetrics page types `vllm:x` and samples `vllm_x`; its values are sound).

Where readers of these formats differ:

- carriage returns are refused, as Prometheus does;
- numbers are Go's without underscores and hexadecimal; a signed NaN is read; beyond the range of a double is infinity;
- a page ends in a newline, or in a last line ``# EOF``;
- with the text content type ``# EOF`` is a comment and OpenMetrics type names are known;
- labels are separated by commas, one after the last is allowed; no label name stands twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from llm_serving_exporter.errors import ExpositionError
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.sample import FailureReason, SeriesKey
from llm_serving_exporter.model.text import has_address

# --- The two exposition grammars as patterns, and the reading of a label body.
#
# Sources: Prometheus exposition formats 0.0.4 and 1.0.0 with quoted UTF-8 names; OpenMetrics 1.0. Both as Prometheus' own lexers read them
# (promlex.l, openmetricslex.l), because a page that Prometheus refuses should not look healthy here.
#
# No line, however hostile, makes a match slower than linear: repetitions of one character are possessive, and whether a group goes on is
# settled by its first character. Groups are not possessive, because CPython 3.11 before 3.11.5 matches those wrongly (gh-106052).


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

    sample: re.Pattern[str]  # groups: name, label body, value; None where absent
    metadata: re.Pattern[str]  # groups: keyword, name, text


def _build_body(term: str, gap: str) -> str:
    return rf"{gap}(?:{term}(?:{gap},{gap}{term})*{gap},?+{gap})?"


def _build_term(gap: str) -> str:
    # a quoted string without "=" is the metric's name
    return rf"(?:(?:{LABEL_NAME}|{QUOTED}){gap}={gap}{QUOTED}|{QUOTED})"


_GAP = r"[ \t]*+"
TEXT = Grammar(
    sample=re.compile(
        rf"{_GAP}(?:({NAME})(?=[ \t{{]))?{_GAP}(?:\{{({_build_body(_build_term(_GAP), _GAP)})\}})?{_GAP}"
        rf"({NUMBER})(?:[ \t]++{MILLISECONDS})?{_GAP}"
    ),
    metadata=re.compile(rf"{_GAP}#[ \t]++(HELP|TYPE)[ \t]++({NAME}|{QUOTED})(?:[ \t]++(.*+))?"),
)
_EXEMPLAR = rf" \# \{{{_build_body(rf'{LABEL_NAME}={QUOTED}', '')}\}} {NUMBER}(?: {SECONDS})?"
OPENMETRICS = Grammar(
    sample=re.compile(
        rf"(?:({NAME})(?=[ {{]))?(?:\{{({_build_body(_build_term(''), '')})\}})? ({NUMBER})(?: {SECONDS})?(?:{_EXEMPLAR})?"
    ),
    metadata=re.compile(rf"\# (HELP|TYPE|UNIT) ({NAME}|{QUOTED})(?: (.*+))?"),
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


# --- Why a line is not exposition text, in a sentence for a person. Runs only on lines that were refused.


# characters that are shown of labels: enough for what is wrong, too few for the name of a user
_OF_LABELS = 12
_BLANK = re.compile(r"[ \t]*+")
_NAME = re.compile(NAME)
_LABEL = re.compile(rf"{LABEL_NAME}|{QUOTED}")
_QUOTED = re.compile(QUOTED)
_TOKEN = re.compile(r"[^ \t]*+")
_NUMBER = re.compile(NUMBER)
_MILLISECONDS = re.compile(MILLISECONDS)
_SECONDS = re.compile(SECONDS)
_METADATA_START = re.compile(r"[ \t]*+#[ \t]++(HELP|TYPE|UNIT)[ \t]++")


def explain_comment(line: str, *, openmetrics: bool) -> str:
    """Why a line that starts with ``#`` is refused."""
    start = _METADATA_START.match(line)
    if start is None:
        return f"OpenMetrics allows no comment but HELP, TYPE, UNIT and EOF: {quote_excerpt(line)}"
    found = (OPENMETRICS if openmetrics else TEXT).metadata.fullmatch(line)
    if found is None:
        return f"expected a metric name after {start[1]}, found {quote_excerpt(line[start.end() :])}"
    name, kind = quote_excerpt(found[2]), (found[3] or "").rstrip(" \t")
    if not kind:
        return f"TYPE of {name} lacks the type"
    hint = " (the line ends in a carriage return)" if kind[:-1] in METRIC_TYPES and kind[-1] == "\r" else ""
    return f"TYPE of {name} is {quote_excerpt(kind)}, not a metric type{hint}"


def explain_sample(line: str, *, openmetrics: bool) -> str:
    """Why a line that is no comment is refused as a sample."""
    if not line.strip(" \t"):
        return "OpenMetrics allows no blank line"
    at = _skip_blanks(line, 0)
    name = _NAME.match(line, at)
    if name and line[name.end() : name.end() + 1] not in ("", " ", "\t", "{"):
        return f"metric name {quote_excerpt(name[0])} runs into {quote_excerpt(line[name.end() :])}"
    at = _skip_blanks(line, name.end() if name else at)
    labelled = line[at : at + 1] == "{"
    if name is None and not labelled:
        return f"expected a metric name, found {quote_excerpt(line[at:])}"
    if labelled:
        body_start = at + 1
        cause, at = _explain_labels(line, body_start)
        if cause:
            return cause
        body = read_body(line[body_start : at - 1])
        if body.fault:
            return body.fault
        if (name is None) == (body.name is None):
            return "the metric name stands twice" if name else "the metric has no name"
    return _explain_value(line, at, openmetrics)


def _skip_blanks(line: str, at: int) -> int:
    blank = _BLANK.match(line, at)
    assert blank is not None  # it matches the empty string
    return blank.end()


def _explain_labels(line: str, at: int) -> tuple[str, int]:
    """Walks from behind the opening brace: (cause, 0), or ("", the place behind the closing brace)."""

    def quote_rest() -> str:
        return quote_excerpt(line[at:], _OF_LABELS)

    while True:
        at = _skip_blanks(line, at)
        if line[at : at + 1] == "}":
            return "", at + 1
        label = _LABEL.match(line, at)
        if label is None:
            return f"expected a label name or '}}', found {quote_rest()}", 0
        at = _skip_blanks(line, label.end())
        if line[at : at + 1] == "=":
            at = _skip_blanks(line, at + 1)
            value = _QUOTED.match(line, at)
            if value is None:
                fault = "has no closing quote" if line[at : at + 1] == '"' else "is not in double quotes"
                return f"value of label {quote_excerpt(label[0])} {fault}: {quote_rest()}", 0
            at = _skip_blanks(line, value.end())
        elif label[0][0] != '"':
            return f"expected '=' after label {quote_excerpt(label[0])}, found {quote_rest()}", 0
        if line[at : at + 1] == ",":
            at += 1
        elif line[at : at + 1] != "}":
            return f"expected ',' or '}}' after label {quote_excerpt(label[0])}, found {quote_rest()}", 0


def _explain_value(line: str, at: int, openmetrics: bool) -> str:
    value, at = _read_token(line, at)
    if not value:
        return "the sample has no value"
    if _NUMBER.fullmatch(value) is None:
        hint = " (the line ends in a carriage return)" if value[-1] == "\r" else ""
        return f"value {quote_excerpt(value)} is not a number{hint}"
    timestamp, at = _read_token(line, at)
    if timestamp and not (openmetrics and timestamp == "#"):
        pattern, unit = (_SECONDS, "seconds") if openmetrics else (_MILLISECONDS, "whole milliseconds")
        if pattern.fullmatch(timestamp) is None:
            return f"timestamp {quote_excerpt(timestamp)} is not a number of {unit}"
        rest, _ = _read_token(line, at)
        if rest and not openmetrics:
            return f"unexpected text after the timestamp: {quote_excerpt(line[_skip_blanks(line, at) :])}"
    if "#" in line[at:] or timestamp == "#":
        return "the exemplar is not ' # {labels} value' with an optional timestamp"
    return "OpenMetrics allows one space between tokens, none inside the braces, and nothing after the timestamp"


def _read_token(line: str, at: int) -> tuple[str, int]:
    """The next run without blanks, "" at the end of the line, and the place behind it."""
    token = _TOKEN.match(line, _skip_blanks(line, at))
    assert token is not None  # it matches the empty string
    return token[0], token.end()


# --- The parser.


_METADATA_KEYWORD = re.compile(r"[ \t]*+#[ \t]++(?:HELP|TYPE)[ \t]")
_SAMPLE_START = re.compile(r"^[ \t]*+[^ \t\n#]", re.MULTILINE)
_NO_LABELS = LabelBody((), None)


class ParsedPage(Struct, frozen=True):
    """One page. Samples are those that were wanted, in page order, duplicates included; lines are those of
    `text.split("\\n")`. Timestamps are checked and not kept."""

    keys: tuple[SeriesKey, ...]  # one for each sample
    values: tuple[float, ...]  # one for each of `keys`
    types: Mapping[str, str]  # family name -> type; the last TYPE line of a name wins
    names: frozenset[str]  # every sample name on the page, wanted or not
    series_count: int  # every sample on the page, wanted or not
    value_widths: tuple[int, ...]  # one for each line: characters of the value that ends the line (all ASCII), else 0
    indexes: tuple[int, ...]  # one for each line: its sample's place in `keys`, else -1


def is_openmetrics(content_type: str) -> bool:
    """Whether a Content-Type header announces OpenMetrics text; "" and anything else is the Prometheus text format."""
    return content_type.partition(";")[0].strip().lower() == "application/openmetrics-text"


def parse_text(
    text: str, *, openmetrics: bool, wanted: Callable[[str], bool] | None = None, max_series: int = 50_000
) -> ParsedPage:
    """Parses a whole page.

    `wanted` is asked once per sample name whether to keep its samples (None: all). `max_series` caps the samples on the
    page, kept or not, and is checked first.

    Raises ExpositionError: TOO_MANY_SERIES; MALFORMED at the first bad line; TRUNCATED where every complete line is
    good but the page stops inside a line or, in OpenMetrics, before ``# EOF``.
    """
    _check_series_cap(text, max_series)
    match_sample = (OPENMETRICS if openmetrics else TEXT).sample.fullmatch
    lines = text.split("\n")
    widths, indexes = [0] * len(lines), [-1] * len(lines)
    unfinished = lines.pop()

    keys: list[SeriesKey] = []
    values: list[float] = []
    types: dict[str, str] = {}
    kept: dict[str, str] = {}  # every name seen -> the one copy of it that all its samples share, "" if not wanted
    # many series have the same text between the braces: a model's gauges, the buckets of one le in all its histograms
    bodies: dict[str | None, LabelBody] = {None: _NO_LABELS}
    count, ended = 0, False
    for at, line in enumerate(lines):
        if ended:
            raise _malformed_error(at, "text after # EOF")
        match = None if line[:1] == "#" else match_sample(line)
        if match is None:
            ended = _read_comment(line, at, types, openmetrics)
            continue
        bare, raw_body, value = match.groups()
        body = bodies.get(raw_body)
        if body is None:
            body = bodies[raw_body] = read_body(raw_body)
        labels, quoted_name, fault = body
        if fault is not None or (bare is None) == (quoted_name is None):
            raise _malformed_error(at, explain_sample(line, openmetrics=openmetrics))
        name = bare or quoted_name or ""  # exactly one stands there, and neither can be empty
        count += 1
        if match.end(3) == len(line):
            widths[at] = len(value)
        shared = kept.get(name)
        if shared is None:
            shared = kept[name] = name if wanted is None or wanted(name) else ""
        if shared:
            indexes[at] = len(keys)
            keys.append(SeriesKey(shared, labels))
            values.append(float(value))

    _check_end(unfinished, len(lines), ended, openmetrics)
    return ParsedPage(tuple(keys), tuple(values), types, frozenset(kept), count, tuple(widths), tuple(indexes))


def _read_comment(line: str, at: int, types: dict[str, str], openmetrics: bool) -> bool:
    """Reads a line that is not a sample and adds to `types`; whether it ends an OpenMetrics page."""
    bare = line.lstrip(" \t")
    if not bare and not openmetrics:
        return False
    if bare[:1] != "#":
        raise _malformed_error(at, explain_sample(line, openmetrics=openmetrics))
    if openmetrics and line == "# EOF":
        return True
    match = (OPENMETRICS if openmetrics else TEXT).metadata.fullmatch(line)
    if match is None:
        if openmetrics or _METADATA_KEYWORD.match(line):
            raise _malformed_error(at, explain_comment(line, openmetrics=openmetrics))
        return False
    keyword, name, rest = match.groups()
    if keyword == "TYPE":
        kind = (rest or "").rstrip(" \t")
        if kind not in METRIC_TYPES:
            raise _malformed_error(at, explain_comment(line, openmetrics=openmetrics))
        types[unquote_name(name)] = kind
    return False


def _check_series_cap(text: str, max_series: int) -> None:
    # Counting newlines is a memchr: nearly every page ends here. The rest count sample lines and build nothing.
    if text.count("\n") <= max_series:
        return
    for count, match in enumerate(_SAMPLE_START.finditer(text), 1):
        if count > max_series:
            raise ExpositionError(
                text.count("\n", 0, match.start()) + 1,
                f"the page has more than {max_series} series; raise max_series if that is right",
                FailureReason.TOO_MANY_SERIES,
            )


def _check_end(unfinished: str, at: int, ended: bool, openmetrics: bool) -> None:
    if ended and unfinished:
        raise _malformed_error(at, "text after # EOF")
    if unfinished == "# EOF" or ended:
        return
    if unfinished or at == 0:
        cause = "the page ends inside this line, without a newline" if unfinished else "the page is empty"
        raise ExpositionError(at + 1 if unfinished else 0, cause, FailureReason.TRUNCATED)
    if openmetrics:
        raise ExpositionError(0, "the OpenMetrics page does not end in # EOF", FailureReason.TRUNCATED)


def _malformed_error(at: int, cause: str) -> ExpositionError:
    return ExpositionError(at + 1, cause, FailureReason.MALFORMED)
