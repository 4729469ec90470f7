"""Page -> Samples, cheap while the page's layout stays the same. Each target has a parser; threads must not share one.

From one page to the next mostly values change, so that a page that differs from a known one in nothing else is only read for them
(`parse.known`). That proves the layout unchanged to the byte. Anything else, from a new series to a malformed line, goes to the strict
parser, so both ways give the same result.

Why not one compiled pattern of the whole page (its text literal, a hole for each value): measured on a vLLM page it
takes twice as long, costs 90 ms and 8 MB to compile at each new layout and keeps three times the memory (bench/parse.py).
"""

from __future__ import annotations

from collections.abc import Callable

from llm_serving_exporter.errors import ExpositionError
from llm_serving_exporter.model.sample import FailureReason, Layout, Page, Samples
from llm_serving_exporter.parse.exposition import ParsedPage, is_openmetrics, parse_text
from llm_serving_exporter.parse.known import KnownPage, KnownPages, remember_page


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
