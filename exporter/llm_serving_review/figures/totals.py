"""Totals of a week over all owners or some, and unit costs. `tables/totals.sql` has what is summed."""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.render.numbers import percent
from llm_serving_review.settings.settings import ApiPrice
from llm_serving_review.tables.facts import FactTable
from llm_serving_review.tables.sums import sum_known

# --- Formulas of the review, one function each. None: unknown. docs/internals-report.md has them in words.


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


# --- Totals, and unit costs.


PHASES = ("prefill", "decode", "idle", "down", "unattributed")
STATES = ("busy", "idle", "down", "unknown")
TOKEN_PHASES = ("prefill", "decode")

# of the spend: where less is not counted, nothing is said of it
_LEAST_UNCOUNTED = 0.005


class Counted(Struct, frozen=True):
    """Both sides of a unit cost: GPU time and tokens of the same engines. None: nothing was counted, which is not 0."""

    usd: float | None = None  # GPU time
    prompt_tokens: float | None = None  # as clients sent them, cached ones included
    cached_tokens: float | None = None  # that the prefix cache had
    decode_tokens: float | None = None


class Totals(Struct, frozen=True):
    """Sums over a week. None: nothing was counted, which is not 0."""

    usd: float | None = None  # GPU time
    usd_by_phase: Mapping[str, float] = field(default_factory=dict)  # GPU time by phase
    gpu_hours: float | None = None  # in all states
    gpu_hours_by_state: Mapping[str, float] = field(default_factory=dict)  # busy, idle, down, unknown
    unpriced_gpu_hours: float = 0.0  # part of `gpu_hours` that is in no cost
    prefill_tokens: float | None = None  # prompt tokens that were computed
    decode_tokens: float | None = None
    prompt_tokens: float | None = None  # prompt tokens as clients sent them, cached ones included
    cached_tokens: float | None = None  # prompt tokens that the prefix cache had
    requests: float | None = None
    energy_kwh: float | None = None  # energy of the GPUs
    energy_usd: float | None = None  # electricity that the GPU rates do not include
    carbon_kg: float | None = None  # kilograms of CO2 equivalent
    savings_usd: float | None = None  # GPU time that the prefix cache saved
    # by phase, with idle and down time borne by the tokens of the same target; what no token bears is in neither
    allocated_usd: Mapping[str, float] = field(default_factory=dict)
    # of engines whose tokens, prompt as sent and generated, are counted; None where that is all of them
    counted: Counted | None = None
    # `usd_by_phase` of engines whose tokens of that phase are counted; None where that is all of them
    counted_usd_by_phase: Mapping[str, float] | None = None
    requests_usd: float | None = None  # `usd` of engines whose requests are counted; None where that is all of them
    # `prompt_tokens` of engines whose cached ones are counted; None where that is all of them
    cacheable_tokens: float | None = None

    @property
    def all_usd(self) -> float | None:
        """GPU time and electricity."""
        return sum_known((self.usd, self.energy_usd))

    @property
    def of_tokens(self) -> Counted:
        """Both sides of what a token costs."""
        return self.counted or Counted(self.usd, self.prompt_tokens, self.cached_tokens, self.decode_tokens)

    @property
    def tokens(self) -> float | None:
        """Prompt as sent and generated, of engines that count both; None where none does."""
        counted = self.of_tokens
        if counted.prompt_tokens is None or counted.decode_tokens is None:
            return None
        return counted.prompt_tokens + counted.decode_tokens

    @property
    def tokens_share(self) -> float | None:
        """Share of the spend whose tokens are counted: the others' money is in no unit cost."""
        return ratio(self.of_tokens.usd, self.usd)

    @property
    def requests_share(self) -> float | None:
        """Share of the spend whose requests are counted."""
        return ratio(self.usd if self.requests_usd is None else self.requests_usd, self.usd)

    def phase_tokens(self, phase: str) -> float | None:
        """Tokens computed (prefill) or generated (decode)."""
        return self.prefill_tokens if phase == "prefill" else self.decode_tokens

    def busy_usd_per_million(self, phase: str) -> float | None:
        """Of the phase's own GPU time, of engines that count its tokens."""
        of = self.usd_by_phase if self.counted_usd_by_phase is None else self.counted_usd_by_phase
        return usd_per_million(of.get(phase), self.phase_tokens(phase))

    def allocated_usd_per_million(self, phase: str) -> float | None:
        """With idle and down time borne by the tokens."""
        return usd_per_million(self.allocated_usd.get(phase), self.phase_tokens(phase))

    @property
    def blended_usd_per_million(self) -> float | None:
        """All GPU cost of engines whose tokens are counted, over these."""
        return usd_per_million(self.of_tokens.usd, self.tokens)

    @property
    def usd_per_request(self) -> float | None:
        """All GPU cost of engines whose requests are counted, over these, whatever the reason of their end."""
        return ratio(self.usd if self.requests_usd is None else self.requests_usd, self.requests)

    @property
    def usd_per_thousand_requests(self) -> float | None:
        """The same of a thousand."""
        return None if self.usd_per_request is None else 1000 * self.usd_per_request

    @property
    def tokens_per_usd(self) -> float | None:
        """All tokens over all GPU cost of engines that count them."""
        return ratio(self.tokens, self.of_tokens.usd)

    def share(self, phase: str) -> float | None:
        """A phase's share of the cost."""
        return ratio(self.usd_by_phase.get(phase, 0.0), self.usd)

    @property
    def cached_ratio(self) -> float | None:
        """Cached prompt tokens over prompt tokens as sent, of engines that count both."""
        return ratio(self.cached_tokens, self.prompt_tokens if self.cacheable_tokens is None else self.cacheable_tokens)


def say_counted(share: float | None, what: str = "tokens") -> str:
    """Of how much of the spend a unit cost is: `of the 12 % of the spend whose tokens are counted`; "" where it is of all of it."""
    if share is None or share >= 1 - _LEAST_UNCOUNTED:
        return ""
    return f"of the {percent(share, 0)} of the spend whose {what} are counted"


NOTHING = Totals()


def read_totals(facts: FactTable, section: str = "") -> dict[tuple[str, str], Totals]:
    """Totals by week and item. `section`: what owners are added up by, "" for all of them; "model" or "label ..." have items."""
    found = {}
    for row in facts.rows("select * from totals where section = :section", section=section):
        counted, by_phase = row.pop("counted", {}), row["counted_usd_by_phase"]
        row["counted"] = None if counted.pop("all", 1) else Counted(**counted)
        row["counted_usd_by_phase"] = None if by_phase.pop("all", 1) else by_phase
        _, week, item = (row.pop(name) for name in ("section", "week", "item"))
        found[week, item] = Totals(**row)
    return found
