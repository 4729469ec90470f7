"""Numbers as a reader of bills has them."""

from __future__ import annotations

import pytest

from llm_serving_exporter.render import money as figures


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"), (float("nan"), "–"), (0.0, "$0.00"), (1234.5, "$1,234"), (99.996, "$100"), (99.99, "$99.99"), (12.3, "$12.30"),
        (0.1667, "$0.167"), (0.000119, "$0.000119"), (-284.0, "−$284"), (1e-13, "$0.00"), (-1e-9, "$0.00"), (1e7, "$10,000,000"),
    ],
)  # fmt: skip
def test_usd(value: float | None, text: str) -> None:
    assert figures.usd(value) == text


@pytest.mark.parametrize(
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
def test_amounts(value: float | None, text: str) -> None:
    assert figures.amount(value) == text


def test_signs() -> None:
    assert figures.signed_percent(0.08) == "+8.0 %"
    assert figures.signed_percent(-0.123) == "−12.3 %"
    assert figures.signed_percent(None) == "–"
    assert figures.signed_usd(5.0) == "+$5.00"
    assert figures.signed_usd(0.0) == "$0.00"
    assert figures.hours(99.96) == "100"
    assert figures.hours(1234.0) == "1,234"
