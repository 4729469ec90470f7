"""Page -> Samples, cheap while the page's layout stays the same. Each target has a parser; threads must not share one.

From one page to the next, and from one replica of a model to another, mostly values differ. So what a page has beside its values is
kept, once for all targets whose pages have it, and of a page that has it to the byte only the values are read. Anything else, from a new
series to a malformed line, goes to the strict parser, so both ways give the same result. Nothing of a page itself is kept.

Why not one compiled pattern of the whole page (its text literal, a hole for each value): measured on a vLLM page it
takes twice as long, costs 90 ms and 8 MB to compile at each new layout and keeps three times the memory.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from itertools import compress
from threading import Lock
from weakref import WeakValueDictionary

from llm_serving_exporter.errors import ExpositionError
from llm_serving_exporter.fetch.exposition import NUMBER, ParsedPage, is_openmetrics, parse_text
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.sample import FailureReason, Layout, Page, Samples

# With these characters alone float() accepts nothing that the strict grammar refuses: no underscore, no blank.
_NUMBER_BYTES = b"0123456789.eE+-NaInf"
# on average; a double has 17, and an exponent
_USUAL_DIGITS = 24
_NUMBERS = re.compile(rf"{NUMBER}(?:\n{NUMBER})*".encode())


class KnownPage(Struct, frozen=True, eq=False, weakref=True):
    """A page without its values."""

    openmetrics: bool
    layout: Layout  # the object that every such page gets
    has_value: bytes  # for each line 1 where it ends in a value, else 0
    is_bare: bytes  # the opposite
    prefixes: tuple[bytes, ...]  # of each line with a value, the text before that
    bare_lines: tuple[bytes, ...]  # the other lines, whole
    is_wanted: bytes  # for each value 1 where its sample was asked for, else 0
    is_other: bytes  # the opposite
    # place among the values and value of the samples asked for whose line ends in something else, such as a timestamp
    fixed: tuple[tuple[int, float], ...]
    size: int  # bytes of such a page, but for its values

    def read_values(self, body: bytes) -> tuple[float, ...] | None:
        """The values of a page that differs from this one in nothing else; None of any other, and of one whose values are no numbers."""
        lines = body.split(b"\n")
        if len(lines) != len(self.has_value) or tuple(compress(lines, self.is_bare)) != self.bare_lines:
            return None
        tokens = list(map(bytes.removeprefix, compress(lines, self.has_value), self.prefixes))
        digits = b"".join(tokens)
        # A line without its prefix comes back whole, which the sum of the lengths shows.
        if len(digits) + self.size != len(body) or digits.translate(None, _NUMBER_BYTES):
            return None
        others = compress(tokens, self.is_other)
        try:
            # a number of many digits takes longer to read than its line takes to find: of those that nobody asked for it is only looked at
            if len(digits) <= _USUAL_DIGITS * len(tokens):
                deque(map(float, others), maxlen=0)
            elif 1 in self.is_other and _NUMBERS.fullmatch(b"\n".join(others)) is None:
                return None
            numbers = map(float, compress(tokens, self.is_wanted))
            if not self.fixed:
                return tuple(numbers)
            values = list(numbers)
        except ValueError:
            return None
        for place, value in self.fixed:
            values.insert(place, value)
        return tuple(values)


def outline_page(body: bytes) -> int:
    """A number that pages which differ only in their values have in common, and hardly any others."""
    return hash(tuple([line.rpartition(b" ")[0] for line in body.split(b"\n")]))


def remember_page(body: bytes, parsed: ParsedPage, layout: Layout, *, openmetrics: bool) -> KnownPage:
    """What is known of a page that was parsed. `layout`: that of `parsed`, or an older one that equals it."""
    lines, widths, indexes = body.split(b"\n"), parsed.value_widths, parsed.indexes
    has_value = bytes(map(bool, widths))
    is_bare = bytes(not width for width in widths)
    prefixes = tuple(line[:-width] for line, width in zip(lines, widths, strict=True) if width)
    bare_lines = tuple(compress(lines, is_bare))
    is_wanted = bytes(index >= 0 for index in compress(indexes, has_value))
    is_other = bytes(not wanted for wanted in is_wanted)
    fixed = tuple((index, parsed.values[index]) for index in compress(indexes, is_bare) if index >= 0)
    size = sum(map(len, prefixes)) + sum(map(len, bare_lines)) + len(lines) - 1
    return KnownPage(openmetrics, layout, has_value, is_bare, prefixes, bare_lines, is_wanted, is_other, fixed, size)


class KnownPages:
    """The pages that parsers which want the same samples know; each is kept as long as one of them uses it. Threads may share it."""

    def __init__(self) -> None:
        self._lock = Lock()
        # by format and outline
        self._pages: WeakValueDictionary[tuple[bool, int], KnownPage] = WeakValueDictionary()

    def find(self, body: bytes, *, openmetrics: bool) -> KnownPage | None:
        """The one that this page most likely differs from in nothing but values; None where there is none."""
        with self._lock:
            return self._pages.get((openmetrics, outline_page(body)))

    def add(self, body: bytes, page: KnownPage) -> None:
        """`body`: a page of which `page` is what is known."""
        with self._lock:
            self._pages[page.openmetrics, outline_page(body)] = page


# --- The parser of a target.


class PageParser:
    """Parses one target's pages.

    `wanted` is asked for a sample name as on the wire whether its samples are to be kept (None: all); its answer for
    a name must not change. `max_series` caps the samples on a page, kept or not. `known`: pages of other parsers with the same `wanted`.
    """

    def __init__(
        self, wanted: Callable[[str], bool] | None = None, max_series: int = 50_000, known: KnownPages | None = None
    ) -> None:
        self._wanted = wanted
        self._max_series = max_series
        self._others = KnownPages() if known is None else known
        # of the last good page
        self._known: KnownPage | None = None

    def parse(self, page: Page) -> Samples:
        """The page's samples; `layout` is the last page's object while the layout is the same.

        Raises ExpositionError (see `parse_text`; bytes that are not UTF-8 are MALFORMED). The parser can be used again.
        """
        openmetrics, last = is_openmetrics(page.content_type), self._known
        found = self._read(last, page.body, openmetrics) if last is not None else None
        if found is None:
            other = self._others.find(page.body, openmetrics=openmetrics)
            if other is not None and other is not last and (found := self._read(other, page.body, openmetrics)):
                self._known = other
        return found or self._parse_strictly(page, openmetrics)

    def _read(self, known: KnownPage, body: bytes, openmetrics: bool) -> Samples | None:
        if known.openmetrics != openmetrics or known.layout.series_count > self._max_series:
            return None
        values = known.read_values(body)
        return Samples(known.layout, values) if values is not None else None

    def _parse_strictly(self, page: Page, openmetrics: bool) -> Samples:
        text = _decode_body(page.body)
        parsed = parse_text(text, openmetrics=openmetrics, wanted=self._wanted, max_series=self._max_series)
        layout = _choose_layout(parsed, self._known.layout if self._known is not None else None)
        self._known = remember_page(page.body, parsed, layout, openmetrics=openmetrics)
        self._others.add(page.body, self._known)
        return Samples(layout, parsed.values)


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
