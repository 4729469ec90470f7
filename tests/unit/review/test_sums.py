"""Formulas against worked examples."""

from __future__ import annotations

import pytest

from llm_serving_review.figures.outlook import Seen, project_month
from llm_serving_review.figures.totals import (
    Payback,
    Totals,
    api_usd,
    break_even_tokens,
    change,
    payback,
    ratio,
    total_cost_of_ownership,
    usd_per_million,
)
from llm_serving_review.settings.settings import ApiPrice, MonthlyCosts, Settings


@pytest.mark.parametrize(
    ("usd_per_hour", "tokens_per_second", "usd"),
    # the seed's tables: facts model-math O34, O29, O30
    [(3.0, 5000.0, 0.1667), (16.0, 286.0, 15.54), (16.0, 7200.0, 0.6173)],
)
def test_a_million_tokens(usd_per_hour: float, tokens_per_second: float, usd: float) -> None:
    hours = 168
    assert usd_per_million(usd_per_hour * hours, tokens_per_second * 3600 * hours) == pytest.approx(usd, rel=2e-4)


def test_a_request() -> None:
    # O35: 500 and 200 tokens at $0.17 a million
    assert api_usd(ApiPrice("flat", 0.17, 0.17, 0.17), 500, 0, 200) == pytest.approx(0.000119, rel=1e-9)


def test_total_cost_of_ownership() -> None:
    # O36: 10 GPUs at $3, storage 500, network 1000, monitoring 500, engineering 5000
    assert total_cost_of_ownership(10, 3.0, 0.0) == 21_600
    assert total_cost_of_ownership(10, 3.0, MonthlyCosts(500, 1000, 500, 5000).total) == 28_600


def test_payback() -> None:
    # O37
    assert payback(50_000, 15_000, 5_000).months == 5
    for api, words in ((5_000, "as much as"), (4_000, "less than")):
        never = payback(50_000, api, 5_000)
        assert never.months is None
        assert words in never.reason


def test_nothing_is_divided_by_nothing() -> None:
    assert usd_per_million(1.0, 0.0) is None
    assert usd_per_million(1.0, None) is None
    assert usd_per_million(None, 5.0) is None
    assert ratio(1.0, 0.0) is None
    assert change(1.0, 0.0) is None
    assert break_even_tokens(100.0, 0.0) is None


def test_an_api_has_a_price_of_its_own_for_cached_tokens() -> None:
    price = ApiPrice("api", 3.0, 0.3, 15.0)
    # 600,000 x $3 + 400,000 x $0.30 + 100,000 x $15, each a million
    assert api_usd(price, 1e6, 4e5, 1e5) == pytest.approx(1.8 + 0.12 + 1.5)
    # a cache cannot have had more than was sent
    assert api_usd(price, 100.0, 900.0, 0.0) == pytest.approx(100 * 0.3 / 1e6)


def test_break_even_is_where_the_api_asks_as_much() -> None:
    assert break_even_tokens(1000.0, 2.0) == 5e8
    assert 5e8 / 1e6 * 2.0 == 1000.0


def test_a_purchase_is_paid_back_by_what_running_it_saves() -> None:
    # a month of 730 hours: $3,000 of it the purchase as a rate, $1,000 rented, 10 million tokens for which the API asks $16,000
    week = Totals(usd=4000.0, gpu_hours=730.0, prompt_tokens=8e6, decode_tokens=2e6)
    settings = Settings(api_price=ApiPrice("api", 1000.0, 1000.0, 4000.0), purchase_usd=150_000.0)
    found = project_month(week, Seen(730.0, 730.0), None, settings, owned_usd=3000.0)
    assert found is not None
    assert found.api is not None
    assert found.api.api_usd == 16_000.0
    assert found.api.payback == Payback(10.0)
    assert found.projected_usd == 4000.0
    assert found.api.break_even_tokens_per_month == 4000.0 / 1600.0 * 1e6
