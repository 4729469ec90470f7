"""Beyond the week: the month at its run rate, the budget, the total cost of ownership, and the price of an API."""

from __future__ import annotations

from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.render.numbers import hours
from llm_serving_review.figures.coverage import Seen
from llm_serving_review.figures.formulas import (
    MONTH_HOURS,
    Payback,
    api_usd,
    break_even_tokens,
    payback,
    ratio,
    total_cost_of_ownership,
    usd_per_million,
)
from llm_serving_review.figures.totals import Totals, say_counted
from llm_serving_review.settings.settings import Settings

_LEAST_SAID = 0.002


class ApiComparison(Struct, frozen=True):
    """The week's tokens at the price of an API. Both sides cover the hours that are seen, and the engines whose tokens are counted."""

    name: str
    api_usd: float  # what the API would have charged
    own_usd: float  # GPU time, unused commitments, electricity and the monthly costs: the share of them that `counted_share` says
    api_usd_per_million: float | None  # over all tokens; None without tokens
    own_usd_per_million: float | None  # over all tokens; None without tokens
    break_even_tokens_per_month: float | None  # tokens a month for which both cost the same; None where the API is free
    tokens_per_month: float  # tokens a month at this week's rate
    payback: Payback | None  # of the purchase; None where none is configured
    counted_share: float = 1.0  # share of the spend whose tokens are counted


class Outlook(Struct, frozen=True):
    """The month at this week's rate."""

    projected_usd: float  # GPU time, unused commitments and electricity, a month of 730 hours
    own_usd: float  # the same with the monthly costs
    monthly_costs_usd: float  # storage, network, monitoring, engineering
    budget_usd: float | None  # a month; None for no budget
    budget_used_ratio: float | None  # projected over budget; None for no budget
    tco_usd: float | None  # total cost of ownership, a month of 720 hours; None without GPU-hours
    api: ApiComparison | None  # None without a price or without tokens
    seen: Seen | None = None  # the hours on which it is based

    @property
    def of_hours(self) -> str:
        """On how much of the week it rests, where that is not all of it."""
        if self.seen is None or (self.seen.missing_share < _LEAST_SAID and not self.seen.is_span):
            return ""
        if self.seen.missing_share < _LEAST_SAID:
            return f"from {hours(self.seen.of)} hours"
        return f"from {hours(self.seen.hours)} of {hours(self.seen.of)} hours"


def project_month(
    week: Totals,
    there: Seen,
    budget_usd: float | None,
    settings: Settings,
    owned_usd: float = 0.0,
    unused_usd: float = 0.0,
) -> Outlook | None:
    """The month at this week's rate; None without a cost. Hours that are not seen are taken to have cost what the others did.

    `owned_usd`: cost of owned GPUs, which is a purchase stated as a rate and cannot pay itself back. `unused_usd`: unused commitments,
    which are paid like the rest.
    """
    if week.usd is None or there.hours <= 0:
        return None
    spent = week.usd + (week.energy_usd or 0.0) + unused_usd
    months = there.hours / MONTH_HOURS
    projected = spent / months
    other = settings.monthly_costs.total
    price = ratio(spent, week.gpu_hours)
    return Outlook(
        projected,
        projected + other,
        other,
        budget_usd,
        ratio(projected, budget_usd),
        None
        if price is None or week.gpu_hours is None
        else total_cost_of_ownership(week.gpu_hours / there.hours, price, other),
        _compare_with_api(week, spent + other * months, owned_usd, months, settings),
        there,
    )


def _compare_with_api(
    week: Totals, own_usd: float, owned_usd: float, months: float, settings: Settings
) -> ApiComparison | None:
    price = settings.api_price
    counted, share = week.of_tokens, week.tokens_share
    if (
        price is None
        or counted.prompt_tokens is None
        or counted.decode_tokens is None
        or not week.tokens
        or share is None
    ):
        return None
    api = api_usd(price, counted.prompt_tokens, counted.cached_tokens or 0.0, counted.decode_tokens)
    purchase = settings.purchase_usd
    # what is paid beside GPU time is nobody's: each share of the spend bears as much of it
    own_usd, owned_usd = own_usd * share, owned_usd * share
    uncounted = say_counted(share)
    return ApiComparison(
        price.name,
        api,
        own_usd,
        usd_per_million(api, week.tokens),
        usd_per_million(own_usd, week.tokens),
        break_even_tokens(own_usd / months, usd_per_million(api, week.tokens)),
        week.tokens / months,
        None
        if purchase is None
        else Payback(None, f"What the purchase saves is not known: the API's price is {uncounted}.", is_known=False)
        if uncounted
        else payback(purchase, api / months, (own_usd - owned_usd) / months),
        share,
    )
