"""PageParser: what the formats allow, when it may keep the layout, that its steady path never differs, every refusal with its line."""

from __future__ import annotations

import gc
import time
import weakref
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.errors import ExpositionError
from llm_serving_exporter.fetch.exposition import parse_text
from llm_serving_exporter.fetch.page import KnownPages, PageParser
from llm_serving_exporter.model.sample import FailureReason, Page, Samples, SeriesKey
from tests.fuzz.harness import check_successor
from tests.support.rows import check_rows

# how long an example takes is the machine's matter, not the parser's
TEXT = "text/plain; version=0.0.4"
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
FIRST = b"""# HELP a Help.
# TYPE a gauge
a{b="c",n="\xc3\xa4"} 1.5
a{b="d"} 2

# TYPE other counter
other_total 3
a{b="e"} NaN
"""


def page(body: bytes, content_type: str = TEXT) -> Page:
    return Page(body, content_type, 0.0, 0.0)


def both(first: bytes, second: bytes) -> tuple[Samples, Samples]:
    parser = PageParser(lambda name: name == "a")
    return parser.parse(page(first)), parser.parse(page(second))


def test_first_page() -> None:
    samples = PageParser(lambda name: name == "a").parse(page(FIRST))
    layout = samples.layout
    assert layout.keys == (
        SeriesKey("a", (("b", "c"), ("n", "ä"))),
        SeriesKey("a", (("b", "d"),)),
        SeriesKey("a", (("b", "e"),)),
    )
    assert repr(samples.values) == "(1.5, 2.0, nan)"
    assert layout.types == {"a": "gauge", "other": "counter"}
    assert layout.names == {"a", "other_total"}
    assert layout.series_count == 4


@check_rows(
    ("old", "new", "values"),
    [
        (b"", b"", "(1.5, 2.0, nan)"),
        (b" 1.5\n", b" -1.25e-3\n", "(-0.00125, 2.0, nan)"),
        (b" 2\n", b" NaN\n", "(1.5, nan, nan)"),
        (b" NaN\n", b" +Inf\n", "(1.5, 2.0, inf)"),
        (b" NaN\n", b" -inf\n", "(1.5, 2.0, -inf)"),
        (b"total 3\n", b"total 4\n", "(1.5, 2.0, nan)"),
        (b"Help.", b"Another help.", "(1.5, 2.0, nan)"),
        (b"\n\n", b"\n# a comment\n", "(1.5, 2.0, nan)"),
        (b" 2\n", b" 2 1395066363000\n", "(1.5, 2.0, nan)"),
        (b" 2\n", b"\t 7\t\n", "(1.5, 7.0, nan)"),
        (b'{b="d"}', b'{ b="d", }', "(1.5, 2.0, nan)"),
    ],
)
def test_layout_object_stays_while_the_series_stay(old: bytes, new: bytes, values: str) -> None:
    first, second = both(FIRST, FIRST.replace(old, new, 1))
    assert second.layout is first.layout
    assert repr(second.values) == values
    assert repr(first.values) == "(1.5, 2.0, nan)"  # pages already given out do not move


@check_rows(
    ("old", "new"),
    [
        (b'b="d"', b'b="x"'),
        (b"# TYPE a gauge", b"# TYPE a untyped"),
        (b"other_total 3\n", b"other_total 3\nother_total 3\n"),
        (b"other_total 3\n", b"another_total 3\n"),
        (b'a{b="e"} NaN\n', b""),
        (b'a{b="d"} 2\n', b'# a{b="d"} 2\n'),
    ],
)
def test_another_layout_is_another_object(old: bytes, new: bytes) -> None:
    first, second = both(FIRST, FIRST.replace(old, new, 1))
    assert second.layout is not first.layout


@check_rows(
    ("old", "new", "line", "cause"),
    [
        (b" 1.5\n", b" 1_5\n", 3, "value '1_5' is not a number"),
        (b"total 3\n", b"total x\n", 7, "value 'x' is not a number"),
        (b"total 3\n", b"total 1-1\n", 7, "value '1-1' is not a number"),
        # so many digits that what nobody asked for is looked at instead of read
        (b"total 3\n", b"total " + 120 * b"1" + b"-1\n", 7, f"value '{60 * '1'}...' is not a number"),
        (b"total 3\n", b"total \n", 7, "the sample has no value"),
        (b"total 3\n", b"total 3\r\n", 7, "value '3\\r' is not a number (the line ends in a carriage return)"),
        (b"other_total 3\n", b"3\n", 7, "expected a metric name, found '3'"),
        (b"other_total 3\n", b" 3\n", 7, "expected a metric name, found '3'"),
        (b"total 3\n", b"total\n", 7, "the sample has no value"),
        (b"total 3\n", b"total 3\x0b\n", 7, "value '3\\x0b' is not a number"),
        (b"\n\n", b"\n5\n", 5, "expected a metric name, found '5'"),
        (b"\xc3\xa4", b"\xff\xa4", 3, "byte 0xff is not UTF-8"),
    ],
)
def test_a_bad_line_on_a_known_layout_is_refused_and_the_next_page_is_read(
    old: bytes, new: bytes, line: int, cause: str
) -> None:
    parser = PageParser(lambda name: name == "a")
    first = parser.parse(page(FIRST))
    with pytest.raises(ExpositionError) as caught:
        parser.parse(page(FIRST.replace(old, new, 1)))
    assert (caught.value.line, caught.value.cause, caught.value.reason) == (line, cause, FailureReason.MALFORMED)
    after = parser.parse(page(FIRST.replace(b" 2\n", b" 8\n")))
    assert after.layout is first.layout
    assert after.values[:2] == (1.5, 8.0)


@pytest.mark.parametrize("end", [-1, -2, -4])
def test_a_known_page_that_is_cut_is_truncated(end: int) -> None:
    parser = PageParser()
    parser.parse(page(FIRST))
    with pytest.raises(ExpositionError) as caught:
        parser.parse(page(FIRST[:end]))
    assert (caught.value.line, caught.value.reason) == (8, FailureReason.TRUNCATED)


def test_a_page_that_is_cut_inside_a_character_is_truncated() -> None:
    with pytest.raises(ExpositionError) as caught:
        PageParser().parse(page(FIRST[: FIRST.index(b"\xa4")]))
    assert str(caught.value) == "line 3: the page ends inside a character"
    assert caught.value.reason == FailureReason.TRUNCATED


def test_too_many_series_after_a_page_that_had_few() -> None:
    parser = PageParser(max_series=4)
    parser.parse(page(FIRST))
    with pytest.raises(ExpositionError, match="more than 4 series; raise max_series") as caught:
        parser.parse(page(FIRST + b"b 1\n"))
    assert (caught.value.line, caught.value.reason) == (9, FailureReason.TOO_MANY_SERIES)


def test_the_same_bytes_under_another_content_type_are_read_anew() -> None:
    body = b"a 1\n# EOF\n"
    parser = PageParser()
    first = parser.parse(page(body))
    assert parser.parse(page(body, OPENMETRICS)).layout is first.layout
    bad = b"a 1 \n# EOF\n"
    assert parser.parse(page(bad)).values == (1.0,)
    with pytest.raises(ExpositionError):
        parser.parse(page(bad, OPENMETRICS))


def test_openmetrics_pages_with_moving_exemplars_and_timestamps_keep_the_layout() -> None:
    parser = PageParser()
    body = b'a_total 1 # {trace="1"} 0.5\nb 2 1.5\nc 3\n# EOF'
    first = parser.parse(page(body, OPENMETRICS))
    moved = body.replace(b'1 # {trace="1"} 0.5', b'6 # {trace="7"} 0.25').replace(b"2 1.5", b"7 2.5")
    second = parser.parse(page(moved, OPENMETRICS))
    assert second.layout is first.layout
    assert second.values == (6.0, 7.0, 3.0)


def test_nobody_asks_for_anything() -> None:
    parser = PageParser(lambda name: False)
    first, second = parser.parse(page(FIRST)), parser.parse(page(FIRST.replace(b" 3\n", b" 9\n")))
    assert second.layout is first.layout
    assert second.values == ()


def test_parsers_that_share_what_they_know_give_pages_that_are_alike_one_layout() -> None:
    known = KnownPages()
    one, other = PageParser(known=known), PageParser(known=known)
    first, second = one.parse(page(FIRST)), other.parse(page(FIRST.replace(b" 3\n", b" 9\n")))
    assert second.layout is first.layout
    assert second.values[2] == 9.0
    changed = other.parse(page(FIRST.replace(b'"d"', b'"x"')))
    assert changed.layout is not first.layout
    assert one.parse(page(FIRST)).layout is first.layout
    assert other.parse(page(FIRST)).layout is first.layout


def test_a_page_that_others_know_may_have_too_many_series_for_one() -> None:
    known = KnownPages()
    PageParser(known=known).parse(page(FIRST))
    with pytest.raises(ExpositionError, match="more than 3 series"):
        PageParser(max_series=3, known=known).parse(page(FIRST))


def test_a_page_that_nobody_reads_any_more_is_forgotten() -> None:
    known = KnownPages()
    parser = PageParser(known=known)
    layout = weakref.ref(parser.parse(page(FIRST)).layout)
    parser.parse(page(b"b 1\n"))
    gc.collect()
    assert layout() is None
    assert known.find(FIRST, openmetrics=False) is None


def test_comments_that_change_places_are_another_page() -> None:
    """Their lengths together stay as they are."""
    body = b"# TYPE a gauge\n# TYPE b counter\na 1\nb 2\n"
    parser = PageParser()
    parser.parse(page(body))
    moved = parser.parse(page(body.replace(b"b counter", b"b gauge").replace(b"a gauge", b"a counter")))
    assert moved.layout.types == {"a": "counter", "b": "gauge"}


tokens = st.sampled_from(
    [
        "0", "1", "-2.5", "3e9", "1.7e+09", "NaN", "nan", "Inf", "+Inf", "-infinity", "1_0", "1-1", "", "x", "0x1",
        "e", ".",
    ]
)  # fmt: skip
lines = st.sampled_from(
    ["a", "b_total", 'a{x="1"}', 'a{x="ä"}', '{"q.r"}', "# TYPE a gauge", "# HELP a", "#", "", "# EOF", "1", "a{", "\r"]
)
gaps = st.sampled_from([" ", " ", " ", " ", "\t", "  ", ""])
ends = st.sampled_from(["\n", "\n", "\n", "\n", "\n", "\r\n", " \n", " 5\n", ""])
page_lines = st.lists(st.tuples(lines, gaps, tokens, ends), max_size=6)


@st.composite
def page_sequences(draw: st.DrawFn) -> list[bytes]:
    """Pages each of which is the one before with a few lines drawn anew, so that most keep their layout."""
    current = draw(page_lines)
    pages = []
    for _ in range(draw(st.integers(2, 4))):
        pages.append("".join(map("".join, current)).encode())
        current = [
            (line, gap, draw(tokens), end) if draw(st.booleans()) else (line, gap, token, end)
            for line, gap, token, end in current
        ]
        if draw(st.integers(0, 3)) == 0:
            current = draw(page_lines)
    return pages


@given(page_sequences(), st.booleans(), st.booleans())
def test_any_sequence_of_pages_reads_as_each_page_alone(
    pages: list[bytes], openmetrics: bool, everything: bool
) -> None:
    for before, body in pairwise(pages):
        check_successor(before, body, openmetrics=openmetrics, wanted=None if everything else "a".__eq__)


@given(st.data())
def test_a_known_page_with_flipped_bytes_reads_as_that_page_alone(data: st.DataObject) -> None:
    body = bytearray(FIRST)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body) - 1))
        alphabet = st.one_of(st.sampled_from(b' \n\t\r0159.eE+-_NaInf#{}"=,\\'), st.integers(0, 255))
        match data.draw(st.sampled_from(["replace", "delete", "insert"])):
            case "replace":
                body[at] = data.draw(alphabet)
            case "delete":
                del body[at]
            case _:
                body.insert(at, data.draw(alphabet))
    check_successor(FIRST, bytes(body), wanted="a".__eq__)


# --- every refusal: line, cause, reason ---


def refusal(text: str, *, openmetrics: bool = False, max_series: int = 50_000) -> tuple[int, str, str]:
    with pytest.raises(ExpositionError) as caught:
        parse_text(text, openmetrics=openmetrics, max_series=max_series)
    return caught.value.line, caught.value.cause, caught.value.reason


MALFORMED_SAMPLES = {
    "1.5": "expected a metric name, found '1.5'",
    '{"a"="b"} 1': "the metric has no name",
    "{} 1": "the metric has no name",
    '{"",a="b"} 1': "the metric name is empty",
    'a{""} 1': "the metric name is empty",
    'a{"b"} 1': "the metric name stands twice",
    '{"a","b"} 1': "the metric name stands twice",
    "a": "the sample has no value",
    "a ": "the sample has no value",
    'a{b="c"}': "the sample has no value",
    "a.5": "metric name 'a' runs into '.5'",
    "a+5": "metric name 'a' runs into '+5'",
    "a-5 1": "metric name 'a' runs into '-5 1'",
    "a.b 1": "metric name 'a' runs into '.b 1'",
    "HTTP/1.1 200 OK": "metric name 'HTTP' runs into '/1.1 200 OK'",
    "größe 1": "metric name 'gr' runs into '\\xf6\\xdfe 1'",
    "a{": "expected a label name or '}', found ''",
    "a{,} 1": "expected a label name or '}', found ',} 1'",
    'a{b="c",,} 1': "expected a label name or '}', found ',} 1'",
    'a{1b="c"} 1': "expected a label name or '}', found '1b=\"c\"} 1'",
    'a{b-c="d"} 1': "expected '=' after label 'b', found '-c=\"d\"} 1'",
    'a{b:c="d"} 1': "expected '=' after label 'b', found ':c=\"d\"} 1'",
    "a{b} 1": "expected '=' after label 'b', found '} 1'",
    "a{b=c} 1": "value of label 'b' is not in double quotes: 'c} 1'",
    'a{b="c} 1': "value of label 'b' has no closing quote: '\"c} 1'",
    'a{b="c\\"} 1': "value of label 'b' has no closing quote: '\"c\\\\\"} 1'",
    'a{b="c"': "expected ',' or '}' after label 'b', found ''",
    'a{b="jane" doe@example.org"} 1': "expected ',' or '}' after label 'b', found text with an e-mail address in it",
    'a{b="jane doe%40example.org} 1': "value of label 'b' has no closing quote: text with an e-mail address in it",
    'a{b="sergeant" pepper"} 1': "expected ',' or '}' after label 'b', found 'pepper\"} 1'",
    'a{b="sergeant" pepper of the band"} 1': "expected ',' or '}' after label 'b', found 'pepper of th...'",
    'a{b="c" d="e"} 1': "expected ',' or '}' after label 'b', found 'd=\"e\"} 1'",
    'a{b="c",b="d"} 1': "label 'b' stands twice",
    'a{b="c","b"="d"} 1': "label 'b' stands twice",
    'a{b="\\n",c="d",b="e"} 1': "label 'b' stands twice",
    'a{b="\\n",__name__="d"} 1': "'__name__' cannot be a label name",
    'a{__name__="b"} 1': "'__name__' cannot be a label name",
    'a{""="b"} 1': "'' cannot be a label name",
    "a one": "value 'one' is not a number",
    "a 1_000": "value '1_000' is not a number",
    "a 0x1": "value '0x1' is not a number",
    "a 0x1p3": "value '0x1p3' is not a number",
    "a 1,5": "value '1,5' is not a number",
    "a .": "value '.' is not a number",
    "a 1e": "value '1e' is not a number",
    "a +-1": "value '+-1' is not a number",
    "a infinit": "value 'infinit' is not a number",
    "a ınf": "value '\\u0131nf' is not a number",
    "a ١": "value '\\u0661' is not a number",
    "a 1\r": "value '1\\r' is not a number (the line ends in a carriage return)",
    "a 1\u00a0": "value '1\\xa0' is not a number",
    "a 1 1.5": "timestamp '1.5' is not a number of whole milliseconds",
    "a 1 12345678901234567890": "timestamp '12345678901234567890' is not a number of whole milliseconds",
    'a 1 # {b="c"} 1': "timestamp '#' is not a number of whole milliseconds",
    "a 1 2 3": "unexpected text after the timestamp: '3'",
    "a " + "x" * 100: f"value '{'x' * 60}...' is not a number",
}


@check_rows("line", MALFORMED_SAMPLES, ids=ascii)
def test_malformed_sample_names_line_and_cause(line: str) -> None:
    assert refusal(f"good 1\n\n{line}\ngood 2\n") == (3, MALFORMED_SAMPLES[line], FailureReason.MALFORMED)


MALFORMED_COMMENTS = {
    "# HELP ": "expected a metric name after HELP, found ''",
    "# TYPE 1a gauge": "expected a metric name after TYPE, found '1a gauge'",
    "# HELP a{b} text": "expected a metric name after HELP, found 'a{b} text'",
    '# TYPE "a gauge': "expected a metric name after TYPE, found '\"a gauge'",
    "# TYPE a": "TYPE of 'a' lacks the type",
    "# TYPE a ": "TYPE of 'a' lacks the type",
    "# TYPE a Gauge": "TYPE of 'a' is 'Gauge', not a metric type",
    "# TYPE a gauge gauge": "TYPE of 'a' is 'gauge gauge', not a metric type",
    "# TYPE a gauge\r": "TYPE of 'a' is 'gauge\\r', not a metric type (the line ends in a carriage return)",
}


@check_rows("line", MALFORMED_COMMENTS, ids=ascii)
def test_malformed_metadata_names_line_and_cause(line: str) -> None:
    assert refusal(f"good 1\n{line}\n") == (2, MALFORMED_COMMENTS[line], FailureReason.MALFORMED)


_SPACING = "OpenMetrics allows one space between tokens, none inside the braces, and nothing after the timestamp"
_EXEMPLAR = "the exemplar is not ' # {labels} value' with an optional timestamp"
MALFORMED_OPENMETRICS = {
    "": "OpenMetrics allows no blank line",
    "# a comment": "OpenMetrics allows no comment but HELP, TYPE, UNIT and EOF: '# a comment'",
    "#TYPE a gauge": "OpenMetrics allows no comment but HELP, TYPE, UNIT and EOF: '#TYPE a gauge'",
    "# UNIT 1 seconds": "expected a metric name after UNIT, found '1 seconds'",
    "# TYPE a": "TYPE of 'a' lacks the type",
    "a  1": _SPACING,
    "a\t1": _SPACING,
    " a 1": _SPACING,
    "a 1 ": _SPACING,
    'a{b="c"}1': _SPACING,
    'a{b="c", d="e"} 1': _SPACING,
    "a 1 2 3": _SPACING,
    "a 1 NaN": "timestamp 'NaN' is not a number of seconds",
    "a 1 # ": _EXEMPLAR,
    "a 1 # {b} 1": _EXEMPLAR,
    'a 1 # {b="c"}': _EXEMPLAR,
    'a 1 2 # {b="c"} x': _EXEMPLAR,
    'a 1 # {b="c"} 1 NaN': _EXEMPLAR,
    "a {count:1,sum:2}": "expected '=' after label 'count', found ':1,sum:2}'",
    "a x": "value 'x' is not a number",
}


@check_rows("line", MALFORMED_OPENMETRICS, ids=ascii)
def test_malformed_openmetrics_names_line_and_cause(line: str) -> None:
    text = f"good 1\n{line}\n# EOF\n"
    assert refusal(text, openmetrics=True) == (2, MALFORMED_OPENMETRICS[line], FailureReason.MALFORMED)


MALFORMED, TRUNCATED, TOO_MANY = FailureReason.MALFORMED, FailureReason.TRUNCATED, FailureReason.TOO_MANY_SERIES
BEYOND = "the page has more than 2 series; raise max_series if that is right"
AFTER, INSIDE = "text after # EOF", "the page ends inside this line, without a newline"
CAPPED = "# TYPE a gauge\n\na 1\n  # not a sample\na 2\n\t a 3\na 4\n"


@check_rows(
    ("text", "more", "expected"),
    [
        *((f"a 1\n# EOF\n{rest}", {"openmetrics": True}, (3, AFTER, MALFORMED)) for rest in ("a 2\n", "\n", "# EOF\n", "a 2", "# EOF")),
        *(
            (f"a 1\n{cut}", {"openmetrics": openmetrics}, (2, INSIDE, TRUNCATED))
            for cut in ("a 12", "# HELP a", "# EO", "a", "# EOF\\", "# EOF ") for openmetrics in (False, True)
        ),
        *(("", {"openmetrics": openmetrics}, (0, "the page is empty", TRUNCATED)) for openmetrics in (False, True)),
        ("# TYPE a gauge\na 1\n", {"openmetrics": True}, (0, "the OpenMetrics page does not end in # EOF", TRUNCATED)),
        # a malformed line counts before a cut end, too many series before both
        ("a x\nb 1", {}, (1, "value 'x' is not a number", MALFORMED)),
        (CAPPED, {"max_series": 2}, (6, BEYOND, TOO_MANY)),
        ("a 1\nnot a sample\na 3\n", {"max_series": 2}, (3, BEYOND, TOO_MANY)),
    ],
)  # fmt: skip
def test_the_end_of_a_page_and_its_series(text: str, more: dict[str, Any], expected: tuple[int, str, str]) -> None:
    assert refusal(text, **more) == expected


def test_a_page_of_as_many_series_as_it_may_have_is_read() -> None:
    assert parse_text(CAPPED, openmetrics=False, max_series=4).series_count == 4


def test_the_series_cap_counts_samples_that_nobody_asked_for() -> None:
    with pytest.raises(ExpositionError) as caught:
        parse_text("a 1\na 2\na 3\n", openmetrics=False, wanted=lambda name: False, max_series=2)
    assert caught.value.reason == FailureReason.TOO_MANY_SERIES


@check_rows(
    "line",
    [
        "a{" + 'b="c",' * 200_000 + "! 1", 'a{b="' + "\\" * 1_000_000 + "x 1", "a " + "1" * 1_000_000 + "x",
        "a" * 1_000_000 + "!", " \t" * 500_000 + "!", '{"' + '\\"' * 500_000, "# TYPE " + "a" * 1_000_000 + "! gauge",
    ],
    ids=["labels", "backslashes", "digits", "name", "blanks", "quotes", "type"],
)  # fmt: skip
def test_a_hostile_line_of_a_megabyte_is_refused_in_linear_time_with_a_short_message(line: str) -> None:
    started = time.process_time()
    _, cause, reason = refusal(line + "\n")
    # quadratic work on a million characters would take minutes; the bound is loose on purpose
    assert time.process_time() - started < 20
    assert reason == FailureReason.MALFORMED
    assert len(cause) < 250
