"""Page -> Samples, cheap while the page's layout stays the same. Each target has a parser; threads must not share one.

From one page to the next mostly values change. So the lines of the last good page are kept, and of the next one only
the lines that differ are looked at: each must be the old text up to the value, then a number. That proves the layout
unchanged to the byte. Anything else, from a new series to a malformed line, goes to the strict parser, so both ways
give the same result.

Why not one compiled pattern of the whole page (its text literal, a hole for each value): measured on a vLLM page it
takes twice as long, costs 90 ms and 8 MB to compile at each new layout and keeps three times the memory (bench/parse.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import compress
from operator import ne

from llm_serving_exporter.errors import ExpositionError
from llm_serving_exporter.model.attempt import FailureReason
from llm_serving_exporter.model.page import Page
from llm_serving_exporter.model.samples import Layout, Samples
from llm_serving_exporter.parse.exposition import ParsedPage, is_openmetrics, parse_text

# With these characters alone float() accepts nothing that the strict grammar refuses: no underscore, no blank.
_NUMBER_BYTES = b"0123456789.eE+-NaInf"
_NO_VALUE = b"\n"  # no line contains it, so a line with this prefix cannot change


@dataclass(slots=True)
class _LastPage:
    """What the next page is compared with, line by line."""

    openmetrics: bool  # the format
    layout: Layout  # the object that every page with the same series gets
    lines: list[bytes]  # each line's text
    prefixes: list[bytes]  # each line's text before the value; `_NO_VALUE` where the line has none
    places: list[int]  # each line's place in `values`
    values: list[float]  # one for each key of the layout, and a last one for the values of samples that are not wanted


class PageParser:
    """Parses one target's pages.

    `wanted` is asked for a sample name as on the wire whether its samples are to be kept (None: all); its answer for
    a name must not change. `max_series` caps the samples on a page, kept or not.
    """

    def __init__(self, wanted: Callable[[str], bool] | None = None, max_series: int = 50_000) -> None:
        self._wanted = wanted
        self._max_series = max_series
        self._last: _LastPage | None = None

    def parse(self, page: Page) -> Samples:
        """The page's samples; `layout` is the last page's object while the layout is the same.

        Raises ExpositionError (see `parse_text`; bytes that are not UTF-8 are MALFORMED). The parser can be used again.
        """
        openmetrics = is_openmetrics(page.content_type)
        last = self._last
        if last is not None and last.openmetrics == openmetrics and _advance_values(last, page.body):
            return Samples(last.layout, tuple(last.values[:-1]))
        text = _decode_body(page.body)
        parsed = parse_text(text, openmetrics=openmetrics, wanted=self._wanted, max_series=self._max_series)
        layout = _choose_layout(parsed, last.layout if last is not None else None)
        self._last = _remember_page(page.body, parsed, layout, openmetrics)
        return Samples(layout, parsed.values)


def _advance_values(last: _LastPage, body: bytes) -> bool:
    """Updates `last` to `body` and returns True where the layout is unchanged; else changes nothing and returns False."""
    lines = body.split(b"\n")
    if len(lines) != len(last.lines):
        return False
    changed = list(map(ne, lines, last.lines))
    new = list(compress(lines, changed))
    prefixes = list(compress(last.prefixes, changed))
    tokens = list(map(bytes.removeprefix, new, prefixes))
    digits = b"".join(tokens)
    # A line without its prefix comes back whole, which the sum of the lengths shows.
    if len(digits) + len(b"".join(prefixes)) != len(b"".join(new)) or digits.translate(None, _NUMBER_BYTES):
        return False
    try:
        numbers = list(map(float, tokens))
    except ValueError:
        return False
    values = last.values
    for place, number in zip(compress(last.places, changed), numbers, strict=True):
        values[place] = number
    last.lines = lines
    return True


def _remember_page(body: bytes, parsed: ParsedPage, layout: Layout, openmetrics: bool) -> _LastPage:
    lines = body.split(b"\n")
    prefixes = [line[:-width] if width else _NO_VALUE for line, width in zip(lines, parsed.value_widths, strict=True)]
    # -1, a line that nobody asked for, is the last place
    return _LastPage(openmetrics, layout, lines, prefixes, list(parsed.indexes), [*parsed.values, 0.0])


def _choose_layout(parsed: ParsedPage, old: Layout | None) -> Layout:
    # another help text, a comment or a value with a timestamp changes no series
    if (
        old is not None
        and old.series_count == parsed.series_count
        and old.names == parsed.names
        and old.types == parsed.types
        and old.keys == parsed.keys
    ):
        return old
    return Layout(parsed.keys, parsed.types, parsed.names, parsed.series_count)


def _decode_body(body: bytes) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        cut = error.reason == "unexpected end of data"
        raise ExpositionError(
            body.count(b"\n", 0, error.start) + 1,
            "the page ends inside a character" if cut else f"byte 0x{body[error.start]:02x} is not UTF-8",
            FailureReason.TRUNCATED if cut else FailureReason.MALFORMED,
        ) from None
