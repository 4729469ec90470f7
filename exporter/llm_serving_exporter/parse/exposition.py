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

from llm_serving_exporter.errors import ExpositionError
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.sample import FailureReason, SeriesKey
from llm_serving_exporter.parse.fault import explain_comment, explain_sample
from llm_serving_exporter.parse.grammar import METRIC_TYPES, OPENMETRICS, TEXT, LabelBody, read_body, unquote_name

_METADATA_KEYWORD = re.compile(r"[ \t]*+#[ \t]++(?:HELP|TYPE)[ \t]")
_SAMPLE_START = re.compile(r"^[ \t]*+[^ \t\n#]", re.MULTILINE)
_NO_LABELS = LabelBody((), None)


class ParsedSample(Struct, frozen=True):
    """One sample of a page."""

    name: str  # as on the wire
    labels: tuple[tuple[str, str], ...]  # (name, value) unescaped, sorted by name
    value: float  # NaN and infinities included
    timestamp_seconds: float | None  # Unix time; None where the line has none


class ParsedPage(Struct, frozen=True):
    """One page. Samples are those that were wanted, in page order, duplicates included; lines are those of
    `text.split("\\n")`."""

    keys: tuple[SeriesKey, ...]  # one for each sample
    values: tuple[float, ...]  # one for each of `keys`
    timestamps_seconds: Mapping[int, float]  # index in `keys` -> Unix time; only samples whose line has one
    types: Mapping[str, str]  # family name -> type; the last TYPE line of a name wins
    names: frozenset[str]  # every sample name on the page, wanted or not
    series_count: int  # every sample on the page, wanted or not
    value_widths: tuple[int, ...]  # one for each line: characters of the value that ends the line (all ASCII), else 0
    indexes: tuple[int, ...]  # one for each line: its sample's place in `keys`, else -1

    @property
    def samples(self) -> tuple[ParsedSample, ...]:
        """The wanted samples as objects, in page order, duplicates included."""
        return tuple(
            ParsedSample(key.name, key.labels, value, self.timestamps_seconds.get(index))
            for index, (key, value) in enumerate(zip(self.keys, self.values, strict=True))
        )


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
    grammar = OPENMETRICS if openmetrics else TEXT
    match_sample = grammar.sample.fullmatch
    lines = text.split("\n")
    widths, indexes = [0] * len(lines), [-1] * len(lines)
    unfinished = lines.pop()

    keys: list[SeriesKey] = []
    values: list[float] = []
    timestamps: dict[int, float] = {}
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
        bare, raw_body, value, timestamp = match.groups()
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
            if timestamp is not None:
                timestamps[len(keys)] = float(timestamp) / grammar.timestamp_units_per_second
            keys.append(SeriesKey(shared, labels))
            values.append(float(value))

    _check_end(unfinished, len(lines), ended, openmetrics)
    return ParsedPage(
        tuple(keys), tuple(values), timestamps, types, frozenset(kept), count, tuple(widths), tuple(indexes)
    )


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
