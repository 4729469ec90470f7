"""What the formats allow, by example."""

from __future__ import annotations

import math

import pytest

from llm_serving_exporter.fetch.exposition import is_openmetrics, parse_text
from tests.support.builders.exposition_oracle import samples_of
from tests.support.rows import check_rows

Sample = tuple[str, tuple[tuple[str, str], ...], float]


def samples(text: str, *, openmetrics: bool = False) -> list[Sample]:
    return samples_of(parse_text(text, openmetrics=openmetrics))


@check_rows(
    ("written", "value"),
    [
        ("0", 0.0),
        ("-0.0", -0.0),
        ("+5", 5.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("1e3", 1000.0),
        ("1.5E-3", 0.0015),
        ("1.7951475236527116e+09", 1.7951475236527116e09),
        ("007", 7.0),
        ("Inf", math.inf),
        ("+Inf", math.inf),
        ("-Inf", -math.inf),
        ("inf", math.inf),
        ("+infinity", math.inf),
        ("-INFINITY", -math.inf),
        ("1e999", math.inf),
        ("NaN", math.nan),
        ("nan", math.nan),
        ("-nan", math.nan),  # what printf makes of 0/0 on x86
    ],
)
@check_rows("openmetrics", [False, True])
def test_numbers(written: str, value: float, openmetrics: bool) -> None:
    ((_, _, found),) = samples(f"a {written}\n# EOF\n", openmetrics=openmetrics)
    assert repr(found) == repr(value)


B = ("a", (("b", "c"),), 1.0)
PLAIN = ("a", (), 1.0)
ESCAPED = r'a{z="1",b="quote \" slash \\ line \n other \t",c="} # 1",a="größe 🙂",d=""} 1'
UNESCAPED = (("a", "größe 🙂"), ("b", 'quote " slash \\ line \n other \\t'), ("c", "} # 1"), ("d", ""), ("z", "1"))
NAMED = ('my.name "x"', (("label.one", "1"), ("two", "2")), 1.0)


@check_rows(
    ("line", "expected"),
    [
        *(
            (line, B)
            for line in (
                'a{b="c"} 1', ' a{b="c"} 1', 'a {b="c"} 1', 'a\t{ b = "c" , }\t1 ', 'a{b="c"}1', 'a{b="c",}  1', '{"a",b="c"} 1',
                '{b="c","a"} 1', '{ "a" , "b" = "c" } 1', 'a{"b"="c"} 1',
            )
        ),
        *((line, PLAIN) for line in ("a 1", "a{} 1", "a{ } 1", "a\t1", "  a \t 1\t", '{"a"} 1')),
        # labels are unescaped and sorted by name; quoted names may hold anything
        (ESCAPED, ("a", UNESCAPED, 1.0)),
        ('{"my.name \\"x\\"","label.one"="1",two="2"} 1', NAMED),
    ],
)  # fmt: skip
def test_ways_to_write_one_sample(line: str, expected: Sample) -> None:
    assert samples(line + "\n") == [expected]


def test_names_keep_colons_and_underscores() -> None:
    page = parse_text("vllm:x_total 1\n_y 2\n:z 3\n__w 4\n", openmetrics=False)
    assert page.names == {"vllm:x_total", "_y", ":z", "__w"}


def test_timestamps_are_checked_and_not_kept() -> None:
    assert [name for name, _, _ in samples("a 1 1395066363000\nb 1 -1500\nc 1\nd 1 0\n")] == [*"abcd"]
    openmetrics = samples("a 1 1395066363\nb 1 -1.5\nc 1\nd 1 1e3\n# EOF\n", openmetrics=True)
    assert [name for name, _, _ in openmetrics] == [*"abcd"]


def test_types_and_comments() -> None:
    text = """# HELP a any text: "quotes" \\ and {braces} 1
# TYPE a counter
  #TYPE b nonsense
#
# HELP
# TYPES c nonsense
#	TYPE	d	histogram\t
# TYPE "e.f" gauge
# TYPE g untyped
# TYPE g summary
# HELP h
# UNIT i seconds and more
"""
    page = parse_text(text, openmetrics=False)
    assert page.types == {"a": "counter", "d": "histogram", "e.f": "gauge", "g": "summary"}
    assert (page.keys, page.series_count, page.names) == ((), 0, frozenset())


OPENMETRICS_PAGE = """# TYPE a counter
# HELP a Help with "quotes".
a_total{x="1"} 5 # {trace_id="4bf9"} 0.5 1520879607.789
a_created{x="1"} 1520872607.123
# TYPE b_seconds histogram
# UNIT b_seconds seconds
b_seconds_bucket{le="0.1"} 8 # {} 0.054
b_seconds_bucket{le="+Inf"} 11 1520879607 # {trace_id="KOO5S4vxi0o",span="x"} 0.67
b_seconds_count 11
b_seconds_sum 1.5
# TYPE c info
c_info{version="1"} 1
# TYPE d stateset
d{d="on"} 1
d{d="off"} 0
# TYPE e gaugehistogram
e_bucket{le="+Inf"} 3
e_gcount 3
e_gsum 2.5
# TYPE f unknown
f NaN
# EOF
"""


def test_everything_that_openmetrics_adds() -> None:
    page = parse_text(OPENMETRICS_PAGE, openmetrics=True)
    assert page.types == {
        "a": "counter",
        "b_seconds": "histogram",
        "c": "info",
        "d": "stateset",
        "e": "gaugehistogram",
        "f": "unknown",
    }
    assert [(name, value) for name, _, value in samples_of(page)[:4]] == [
        ("a_total", 5.0),
        ("a_created", 1520872607.123),
        ("b_seconds_bucket", 8.0),
        ("b_seconds_bucket", 11.0),
    ]
    assert page.series_count == len(page.keys) == 13


def test_openmetrics_labelled_as_plain_text_is_read_without_its_exemplars() -> None:
    without_exemplars = "\n".join(line.partition(" # {")[0] for line in OPENMETRICS_PAGE.split("\n"))
    without_seconds = without_exemplars.replace(" 1520879607\n", "\n")
    plain = parse_text(without_seconds, openmetrics=False)
    assert repr(samples_of(plain)) == repr(samples(without_seconds, openmetrics=True))
    assert plain.types == parse_text(OPENMETRICS_PAGE, openmetrics=True).types
    assert parse_text("a 1\n# EOF\nb 2\n", openmetrics=False).series_count == 2


@pytest.mark.parametrize("openmetrics", [False, True])
def test_a_last_line_eof_needs_no_newline(openmetrics: bool) -> None:
    assert parse_text("a 1\n# EOF", openmetrics=openmetrics).series_count == 1


def test_vllm_openmetrics_samples_need_not_be_named_after_their_type_line() -> None:
    text = '# HELP vllm:x Count.\n# TYPE vllm:x counter\nvllm_x_total{engine="0"} 3.0\n# EOF\n'
    page = parse_text(text, openmetrics=True)
    assert page.types == {"vllm:x": "counter"}
    assert samples_of(page) == [("vllm_x_total", (("engine", "0"),), 3.0)]


def test_nothing_is_made_of_suffixes_or_le() -> None:
    text = """# TYPE iteration_tokens_total histogram
iteration_tokens_total_bucket{le="1.0"} 1
iteration_tokens_total_sum 1
# TYPE limit gauge
limit{le="3"} 7
# TYPE x_created gauge
x_created 1.0
"""
    assert [(name, labels) for name, labels, _ in samples(text)] == [
        ("iteration_tokens_total_bucket", (("le", "1.0"),)),
        ("iteration_tokens_total_sum", ()),
        ("limit", (("le", "3"),)),
        ("x_created", ()),
    ]


def test_duplicate_series_are_kept_in_page_order() -> None:
    page = parse_text('a{b="1"} 1\na{b="1"} 2\n', openmetrics=False)
    assert page.keys[0] == page.keys[1]
    assert page.values == (1.0, 2.0)


def test_only_wanted_samples_are_kept_and_each_name_is_asked_for_once() -> None:
    asked: list[str] = []

    def wanted(name: str) -> bool:
        asked.append(name)
        return name in ("a", "my.c")

    page = parse_text('b 1\na 2\nb 3\n{"my.c"} 4\na 5 6\n', openmetrics=False, wanted=wanted)
    assert samples_of(page) == [("a", (), 2.0), ("my.c", (), 4.0), ("a", (), 5.0)]
    assert asked == ["b", "a", "my.c"]
    assert page.names == {"a", "b", "my.c"}
    assert page.series_count == 5
    assert page.indexes == (-1, 0, -1, 1, 2, -1)


def test_value_widths_say_where_a_line_ends_with_its_value() -> None:
    page = parse_text('# TYPE a gauge\na 12\n\na 1.50 7\nx{b="ä"}\t-3\nx 4 \n', openmetrics=False)
    assert page.value_widths == (0, 2, 0, 0, 2, 0, 0)


@check_rows(
    ("content_type", "expected"),
    [
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", True),
        ("Application/OpenMetrics-Text", True),
        ("application/openmetrics-text;version=0.0.1", True),
        ("text/plain; version=0.0.4; charset=utf-8", False),
        ("text/plain; note=application/openmetrics-text", False),
        ("", False),
    ],
)
def test_is_openmetrics(content_type: str, expected: bool) -> None:
    assert is_openmetrics(content_type) is expected
