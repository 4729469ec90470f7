"""How much of a week is known, whether it can be compared with the one before, and the month at its rate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import fsum

from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.render.numbers import hours, percent, usd
from llm_serving_review.evidence.usage import Evidence, Gap
from llm_serving_review.evidence.week import HOUR_SECONDS
from llm_serving_review.figures.totals import (
    MONTH_HOURS,
    Payback,
    Totals,
    api_usd,
    break_even_tokens,
    payback,
    ratio,
    say_counted,
    total_cost_of_ownership,
    usd_per_million,
)
from llm_serving_review.settings.settings import Settings
from llm_serving_review.tables.facts import FactTable
from llm_serving_review.tables.sums import group_by_key

# --- How much of a week is in its figures. Time before the first data and time in gaps is in none. Pure.


class Seen(Struct, frozen=True):
    """How much of a week's GPU time is in its figures."""

    hours: float  # hours that are seen; an hour without one of two equal targets counts half
    of: float  # all hours of the week
    is_span: bool = False  # whether it is a span of hours and no week

    @property
    def missing_share(self) -> float:
        """Of the week's GPU time."""
        return 1 - self.hours / self.of


def measure_coverage(facts: FactTable, name: str, sums: Totals, gaps: Iterable[Gap] | None, begins: int) -> Seen:
    """Hours of NOW or BEFORE that are in the figures. `gaps` None: gaps are unknown, so hours without any data count as missing. `begins`:
    hours before the first data of all."""
    week = facts.weeks[name]
    if gaps is None:
        known = facts.sum_hours(name, "quantity = 'gpu_seconds'")
        there = (hour.seconds for hour, value in zip(week.hours, known, strict=True) if value is not None)
        return Seen(fsum(there) / HOUR_SECONDS, week.length_hours, week.is_span)
    left = (week.end - week.hours[begins].begin) / HOUR_SECONDS
    lost = fsum(missing_gpu_seconds(gap) for gap in gaps) / HOUR_SECONDS
    have = sums.gpu_hours or 0.0
    return Seen(left * have / (have + lost) if lost else left, week.length_hours, week.is_span)


def missing_gpu_seconds(gap: Gap) -> float:
    """GPU time of the gap that is in no figure; a target whose number of GPUs is unknown counts as one GPU."""
    missing = gap.missing_gpu_seconds
    return gap.end - gap.begin if missing is None else missing


# --- Whether a week can be compared with the one before: where part of one is missing, the difference would look like a change. Pure.


# of a week's GPU time: more of it that is not there, or has no price, could be a cause of its own
MOST_UNKNOWN = 0.05


# less of it, in gaps, is said further down
_LEAST_MISSING = 0.01


def explain_no_comparison(
    evidence: Evidence, now: tuple[Totals, Seen], earlier: tuple[Totals, Seen]
) -> tuple[str, ...]:
    """Why the weeks cannot be compared, in sentences; () where they can. Takes totals and coverage of both weeks."""
    if earlier[0].usd is None:
        return ()
    why = []
    for week, (sums, seen) in ((evidence.week.name, now), (evidence.previous.name, earlier)):
        if seen.missing_share > MOST_UNKNOWN:
            why.append(f"{percent(seen.missing_share)} of the GPU time of {week} is missing")
        why += _unpriced(week, sums)
    return tuple(f"{evidence.week.name} is not compared with {evidence.previous.name}: {reason}." for reason in why)


def _unpriced(week: str, sums: Totals) -> Iterator[str]:
    share = sums.unpriced_gpu_hours / sums.gpu_hours if sums.gpu_hours else 0.0
    if share > MOST_UNKNOWN:
        yield f"{percent(share)} of the GPU-hours of {week} have no price"


def note_gaps(evidence: Evidence, now: Totals) -> tuple[str, ...]:
    """How much GPU time is missing in gaps, as a sentence; () where it is too little to matter."""
    gaps = evidence.gaps or ()
    lost = fsum(missing_gpu_seconds(gap) for gap in gaps) / HOUR_SECONDS
    if not lost or lost < _LEAST_MISSING * (lost + (now.gpu_hours or 0.0)):
        return ()
    known = [gap.estimated_usd for gap in gaps]
    worth = [value for value in known if value is not None]
    cost = f", {'about' if len(worth) == len(known) else 'at least'} {usd(fsum(worth))}," if worth else ""
    return (f"{hours(lost)} GPU-hours{cost} fall into gaps in the data and are in no figure.",)


def can_split(evidence: Evidence, facts: FactTable) -> bool:
    """Whether both weeks have the same kinds of tokens. A quantity that only one week has would look like a cause."""
    if {*evidence.usage.unread, *evidence.usage_before.unread} & {"prefill_tokens", "decode_tokens"}:
        return False
    phases = "select distinct week, quantity from fact where quantity in ('prefill_tokens', 'decode_tokens')"
    weeks = group_by_key((row["quantity"], row["week"]) for row in facts.rows(phases))
    return all(len(each) == len(facts.weeks) for each in weeks.values())


# --- Beyond the week: the month at its run rate, the budget, the total cost of ownership, and the price of an API.


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
