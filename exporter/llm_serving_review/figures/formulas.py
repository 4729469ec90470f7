"""Formulas of the review, one function each. None: unknown. docs/internals-report.md has them in words."""

from __future__ import annotations

from llm_serving_exporter.model.record import Struct
from llm_serving_review.settings.settings import ApiPrice

MILLION = 1e6
# the price file's own month: 8760 / 12
MONTH_HOURS = 730.0
# the month of the total cost of ownership: 30 days
TCO_MONTH_HOURS = 720.0


def usd_per_million(usd: float | None, tokens: float | None) -> float | None:
    """USD for a million tokens; None without tokens."""
    return usd / tokens * MILLION if usd is not None and tokens else None


def ratio(above: float | None, below: float | None) -> float | None:
    """above / below; None where either is unknown or `below` is 0."""
    return above / below if above is not None and below else None


def change(after: float | None, before: float | None) -> float | None:
    """Relative change, 0.08 for 8 % more; None without something to compare with."""
    return after / before - 1 if after is not None and before else None


def allocated(phase_usd: float, prefill_usd: float, decode_usd: float, all_usd: float) -> float | None:
    """A phase's share of all cost of a target, idle and down time included; None where neither phase has a cost."""
    productive = prefill_usd + decode_usd
    return phase_usd * all_usd / productive if productive > 0 else None


def total_cost_of_ownership(
    gpus: float, usd_per_gpu_hour: float, other_usd_per_month: float, hours: float = TCO_MONTH_HOURS
) -> float:
    """USD a month: GPUs by the hour plus all other costs."""
    return gpus * usd_per_gpu_hour * hours + other_usd_per_month


def api_usd(price: ApiPrice, prompt_tokens: float, cached_tokens: float, output_tokens: float) -> float:
    """What an API would have charged. `prompt_tokens` are those that clients sent; the cached ones among them have a price of their own."""
    cached = min(cached_tokens, prompt_tokens)
    return (
        (prompt_tokens - cached) * price.input_usd_per_million
        + cached * price.cached_input_usd_per_million
        + output_tokens * price.output_usd_per_million
    ) / MILLION


def break_even_tokens(own_usd_per_month: float, api_usd_per_million: float | None) -> float | None:
    """Tokens a month for which the API would charge as much as own serving costs at any load; None where the API is free."""
    return own_usd_per_month / api_usd_per_million * MILLION if api_usd_per_million else None


class Payback(Struct, frozen=True):
    """When a purchase is paid back."""

    months: float | None  # until then; None for never, or where that is not known
    reason: str = ""  # why never, or why nobody knows, as a sentence; "" otherwise
    is_known: bool = True  # whether it is known


def payback(purchase_usd: float, api_usd_per_month: float, own_usd_per_month: float) -> Payback:
    """Months until monthly savings against the API have paid for a purchase."""
    saving = api_usd_per_month - own_usd_per_month
    if saving <= 0:
        words = "as much as" if saving == 0 else "less than"
        return Payback(
            None, f"The API would cost {words} serving the tokens here, so nothing is saved to pay the purchase back."
        )
    return Payback(purchase_usd / saving)
