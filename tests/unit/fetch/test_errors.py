"""Every refusal: line, cause, reason."""

from __future__ import annotations

import time

import pytest

from llm_serving_exporter.errors import ExpositionError
from llm_serving_exporter.fetch.exposition import parse_text
from llm_serving_exporter.model.sample import FailureReason
from tests.support.rows import check_rows


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


@check_rows(("rest", "line"), [("a 2\n", 3), ("\n", 3), ("# EOF\n", 3), ("a 2", 3), ("# EOF", 3)])
def test_nothing_may_follow_the_end_of_an_openmetrics_page(rest: str, line: int) -> None:
    assert refusal(f"a 1\n# EOF\n{rest}", openmetrics=True) == (line, "text after # EOF", FailureReason.MALFORMED)


@check_rows("openmetrics", [False, True])
@check_rows("cut", ["a 12", "# HELP a", "# EO", "a", "# EOF\\", "# EOF "])
def test_page_that_stops_inside_a_line_is_truncated(cut: str, openmetrics: bool) -> None:
    cause = "the page ends inside this line, without a newline"
    assert refusal(f"a 1\n{cut}", openmetrics=openmetrics) == (2, cause, FailureReason.TRUNCATED)


@pytest.mark.parametrize("openmetrics", [False, True])
def test_empty_page_is_truncated(openmetrics: bool) -> None:
    assert refusal("", openmetrics=openmetrics) == (0, "the page is empty", FailureReason.TRUNCATED)


def test_openmetrics_page_without_its_end_is_truncated() -> None:
    expected = (0, "the OpenMetrics page does not end in # EOF", FailureReason.TRUNCATED)
    assert refusal("# TYPE a gauge\na 1\n", openmetrics=True) == expected


def test_a_malformed_line_counts_before_a_cut_end() -> None:
    assert refusal("a x\nb 1") == (1, "value 'x' is not a number", FailureReason.MALFORMED)


def test_too_many_series_names_the_cap_the_setting_and_the_first_line_too_many() -> None:
    text = "# TYPE a gauge\n\na 1\n  # not a sample\na 2\n\t a 3\na 4\n"
    assert refusal(text, max_series=2) == (
        6,
        "the page has more than 2 series; raise max_series if that is right",
        FailureReason.TOO_MANY_SERIES,
    )
    assert parse_text(text, openmetrics=False, max_series=4).series_count == 4


def test_the_series_cap_counts_samples_that_nobody_asked_for() -> None:
    with pytest.raises(ExpositionError) as caught:
        parse_text("a 1\na 2\na 3\n", openmetrics=False, wanted=lambda name: False, max_series=2)
    assert caught.value.reason == FailureReason.TOO_MANY_SERIES


def test_lines_beyond_the_series_cap_are_not_parsed() -> None:
    # the second line alone would be MALFORMED
    assert refusal("a 1\nnot a sample\na 3\n", max_series=2)[2] == FailureReason.TOO_MANY_SERIES


@check_rows(
    "line",
    [
        "a{" + 'b="c",' * 200_000 + "! 1",
        'a{b="' + "\\" * 1_000_000 + "x 1",
        "a " + "1" * 1_000_000 + "x",
        "a" * 1_000_000 + "!",
        " \t" * 500_000 + "!",
        '{"' + '\\"' * 500_000,
        "# TYPE " + "a" * 1_000_000 + "! gauge",
    ],
    ids=["labels", "backslashes", "digits", "name", "blanks", "quotes", "type"],
)
def test_a_hostile_line_of_a_megabyte_is_refused_in_linear_time_with_a_short_message(line: str) -> None:
    started = time.process_time()
    _, cause, reason = refusal(line + "\n")
    # quadratic work on a million characters would take minutes; the bound is loose on purpose
    assert time.process_time() - started < 20
    assert reason == FailureReason.MALFORMED
    assert len(cause) < 250
