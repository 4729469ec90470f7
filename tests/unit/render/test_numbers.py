"""Numbers as people read them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.render import numbers as readable
from tests.support.rows import check_rows


@check_rows(
    ("write", "value", "text"),
    [
        (readable.number, 0, "0"), (readable.number, 12_345, "12.3k"), (readable.number, 999.6, "1k"), (readable.number, 1.2e6, "1.2M"),
        (readable.number, 0.05, "0.05"), (readable.number, 99.95, "100"), (readable.number, 3.3e12, "3.3T"),
        (readable.count, 256, "256"), (readable.count, 9999, "9999"), (readable.count, 12_345, "12.3k"), (readable.count, 2.5, "2.5"),
        (readable.share, 0, "0 %"), (readable.share, 0.123, "12.3 %"), (readable.share, 1, "100 %"), (readable.share, 1.2, "120 %"),
        (readable.seconds, 0.0042, "4.2 ms"), (readable.seconds, 1.37, "1.37 s"), (readable.seconds, 8.5e-5, "85 µs"),
        (readable.seconds, 0.9999, "1 s"), (readable.seconds, 120, "120 s"), (readable.seconds, 0, "0 s"),
        (readable.span, 0, "0 s"), (readable.span, 725, "12 min 5 s"), (readable.span, 11_520, "3 h 12 min"),
        (readable.span, 86_430, "1 d"), (readable.span, 3600, "1 h"), (readable.span, -3, "0 s"),
        (readable.size, 77_100_000_000, "71.8 GiB"), (readable.size, 500, "500 B"),
    ],
)  # fmt: skip
def test_three_digits_and_the_unit(write, value, text):
    assert write(value) == text


@check_rows("write", [readable.number, readable.count, readable.share, readable.seconds, readable.span, readable.size])
@check_rows("value", [None, math.nan, math.inf, -math.inf])
def test_what_is_not_there_is_a_dash_and_never_a_zero(write, value):
    assert write(value) == "–"


@given(st.integers(min_value=1, max_value=10**9), st.integers(min_value=1, max_value=10**9))
def test_a_share_with_any_bad_event_never_reads_as_perfect(good, bad):
    assert readable.share(good / (good + bad)) != "100 %"


@given(st.floats(min_value=1e-4, max_value=1e14))
def test_a_number_is_true_to_half_a_percent(value):
    text = readable.number(value)
    scale = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}.get(text[-1], 1.0)
    assert float(text.rstrip("kMGT")) * scale == pytest.approx(value, rel=0.006)


@check_rows(
    ("value", "shown"),
    [(None, "–"), (math.nan, "–"), (0.0, "$0.00"), (0.000119, "$0.000119"), (0.00000119, "$0.00000119"), (0.0714, "$0.0714"),
     (0.1, "$0.10"), (1234.5, "$1,234.50")],
)  # fmt: skip
def test_prices_and_bills_are_true_to_the_cent(value: float | None, shown: str) -> None:
    assert readable.usd_to_the_cent(value) == shown


@check_rows(
    ("value", "text"),
    [
        (None, "–"), (float("nan"), "–"), (0.0, "$0.00"), (1234.5, "$1,234"), (99.996, "$100"), (99.99, "$99.99"), (12.3, "$12.30"),
        (0.1667, "$0.167"), (0.000119, "$0.000119"), (-284.0, "−$284"), (1e-13, "$0.00"), (-1e-9, "$0.00"), (1e7, "$10,000,000"),
    ],
)  # fmt: skip
def test_amounts_of_the_report(value: float | None, text: str) -> None:
    assert readable.usd(value) == text


@check_rows(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "0"),
        (7.0, "7"),
        (7890.0, "7,890"),
        (99_999.0, "100 k"),
        (999_600.0, "1.00 M"),
        (1.234e9, "1.23 B"),
        (2.5, "2.5"),
    ],
)
def test_large_counts_as_bills_write_them(value: float | None, text: str) -> None:
    assert readable.amount(value) == text


def test_signs() -> None:
    assert readable.signed_percent(0.08) == "+8.0 %"
    assert readable.signed_percent(-0.123) == "−12.3 %"
    assert readable.signed_percent(None) == "–"


@pytest.mark.parametrize("nothing", [0.0, -0.0, 1e-16, -1e-16, 0.0004, -0.0004])
def test_what_rounds_to_zero_has_no_sign(nothing: float) -> None:
    """Sums that differ in their last digit only, on another Python or in another order, are shown alike."""
    assert readable.signed_percent(nothing) == readable.percent(nothing) == "0.0 %"
    assert readable.signed_usd_to_the_cent(nothing) == "$0.00"


def test_hours() -> None:
    assert readable.hours(99.96) == "100"
    assert readable.hours(1234.0) == "1,234"


def test_an_amount_has_its_noun_in_the_right_number() -> None:
    assert readable.amount_of(1.0, "request") == "1 request"
    assert readable.amount_of(2.0, "request") == "2 requests"
    assert readable.amount_of(0.0, "token") == "0 tokens"
    assert readable.amount_of(None, "token") == "– tokens"
