"""Why a line is not exposition text, in a sentence for a person. Runs only on lines that were refused."""

from __future__ import annotations

import re

from llm_serving_exporter.parse.grammar import (
    LABEL_NAME,
    METRIC_TYPES,
    MILLISECONDS,
    NAME,
    NUMBER,
    OPENMETRICS,
    QUOTED,
    SECONDS,
    TEXT,
    quote_excerpt,
    read_body,
)

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
    while True:
        at = _skip_blanks(line, at)
        if line[at : at + 1] == "}":
            return "", at + 1
        label = _LABEL.match(line, at)
        if label is None:
            return f"expected a label name or '}}', found {quote_excerpt(line[at:], _OF_LABELS)}", 0
        at = _skip_blanks(line, label.end())
        if line[at : at + 1] == "=":
            at = _skip_blanks(line, at + 1)
            value = _QUOTED.match(line, at)
            if value is None:
                fault = "has no closing quote" if line[at : at + 1] == '"' else "is not in double quotes"
                return f"value of label {quote_excerpt(label[0])} {fault}: {quote_excerpt(line[at:], _OF_LABELS)}", 0
            at = _skip_blanks(line, value.end())
        elif label[0][0] != '"':
            return (
                f"expected '=' after label {quote_excerpt(label[0])}, found {quote_excerpt(line[at:], _OF_LABELS)}",
                0,
            )
        if line[at : at + 1] == ",":
            at += 1
        elif line[at : at + 1] != "}":
            return (
                f"expected ',' or '}}' after label {quote_excerpt(label[0])}, found {quote_excerpt(line[at:], _OF_LABELS)}",
                0,
            )


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
