"""What stands out, as sentences with their numbers: a table of rules, each of which writes a sentence or None."""

from __future__ import annotations

from collections.abc import Callable
from math import fsum
from typing import TYPE_CHECKING

from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.text import count_nouns
from llm_serving_exporter.render.numbers import amount, hours, percent, usd
from llm_serving_review.figures.change import write_causes
from llm_serving_review.figures.pools import NO_POOLS
from llm_serving_review.figures.rows import ModelRow
from llm_serving_review.figures.totals import change, say_counted

if TYPE_CHECKING:
    from llm_serving_review.figures.review import Review

_SHOWN_MODELS = 3


class Finding(Struct, frozen=True):
    """A sentence that stands out."""

    rule: str  # the rule of `RULES` that wrote it
    sentence: str  # with its numbers


def apply_rules(review: Review) -> tuple[Finding, ...]:
    """The sentences of all rules that have one, in the order of `RULES`."""
    said = ((name, rule(review)) for name, rule in RULES.items())
    return tuple(Finding(name, sentence) for name, sentence in said if sentence)


def _drop_small(value: float | None, least: float) -> float | None:
    return value if value is not None and abs(value) >= least else None


def _write_change(value: float, down: str = "fell", up: str = "rose") -> str:
    return f"{up if value > 0 else down} {percent(abs(value), 0)}"


def _apart(review: Review) -> str | None:
    """Unit cost and total moved in opposite directions; either figure alone would hide it."""
    unit = _drop_small(change(review.now.blended_usd_per_million, review.earlier.blended_usd_per_million), 0.03)
    spend = _drop_small(change(review.now.usd, review.earlier.usd), 0.03)
    if unit is None or spend is None or unit * spend > 0:
        return None
    tokens = change(review.now.tokens, review.earlier.tokens) or 0.0
    joined = "while" if spend > 0 else "although"
    return (
        f"Cost per token {_write_change(unit)} {joined} the total {_write_change(spend)}: "
        f"{percent(abs(tokens), 0)} {'more' if tokens > 0 else 'fewer'} tokens were served."
    )


def _cause(review: Review) -> str | None:
    """Why the spend changed."""
    if review.change is None or review.earlier.usd is None:
        return None
    if abs(review.change.split.total) < 0.03 * review.earlier.usd:
        return None
    return write_causes(review.change, review.week.this, review.week.one_before)[0]


def _dearer(review: Review) -> str | None:
    """A model whose tokens became much more expensive."""
    worst: tuple[float, ModelRow] | None = None
    for row in review.models:
        rise = change(row.now.blended_usd_per_million, row.before.blended_usd_per_million)
        weight = (row.now.usd or 0.0) >= 0.05 * (review.now.usd or 0.0)
        if rise is not None and rise >= 0.2 and weight and (worst is None or rise > worst[0]):
            worst = rise, row
    if worst is None:
        return None
    rise, row = worst
    return (
        f"Tokens of {row.model_name or '(no model name)'} cost {percent(rise, 0)} more than {review.week.one_before}: "
        f"{usd(row.now.blended_usd_per_million)} a million instead of {usd(row.before.blended_usd_per_million)}."
    )


def _idle(review: Review) -> str | None:
    share = review.now.share("idle")
    if share is None or share < 0.3:
        return None
    return f"{percent(share, 0)} of the spend, {usd(review.now.usd_by_phase['idle'])}, went to GPUs that had nothing to do."


def _empty_batches(review: Review) -> str | None:
    """GPUs that were busy with nearly empty batches, which idle time does not show."""
    rows = [row for row in review.models if row.batch_ratio is not None and row.now.usd]
    small = [row for row in rows if row.batch_ratio is not None and row.batch_ratio < 0.25]
    if not small:
        return None
    row = max(small, key=lambda one: one.now.usd or 0.0)
    if (row.now.usd or 0.0) < 0.1 * (review.now.usd or 0.0):
        return None
    memory = (
        f", memory bandwidth at {percent(row.bandwidth_ratio, 0)} of its ceiling"
        if row.bandwidth_ratio is not None
        else ""
    )
    return (
        f"{row.model_name or '(no model name)'} ran batches {percent(row.batch_ratio, 0)} full{memory}: its GPUs were busy, "
        f"but every token also paid for the empty slots."
    )


def _spare(review: Review) -> str | None:
    if review.spare is None or not review.spare.excess_usd or review.spare.excess_usd < 0.05 * (review.now.usd or 0.0):
        return None
    return (
        f"{hours(review.spare.excess_hours)} replica-hours ({usd(review.spare.excess_usd)}) were more than the demand and the reserve "
        "for a lost node required."
    )


def _commitment(review: Review) -> str | None:
    """A commitment that was paid for and not used."""
    unused = [one for one in review.commitments if one.unused_gpu_hours > 0.05 * one.committed_gpu_hours]
    if not unused:
        return None
    one = max(unused, key=lambda found: found.unused_usd or 0.0)
    cost = f" ({usd(one.unused_usd)})" if one.unused_usd is not None else ""
    used = percent(one.used_gpu_hours / one.committed_gpu_hours, 0)
    return f"{used} of the commitment “{one.name}” was used: {hours(one.unused_gpu_hours)} GPU-hours{cost} were paid for and stood idle."


def _pool(review: Review) -> str | None:
    """A pool that was paid for and not used."""
    unused = [row for row in (review.pools or NO_POOLS).rows if row.unused_usd > 0.05 * row.committed_usd]
    if not unused:
        return None
    row = max(unused, key=lambda one: one.unused_usd)
    paid = "It paid all the same" if row.saved_usd >= 0 else f"Without it {review.week.this} would have been cheaper"
    return (
        f"{usd(row.unused_usd)} of the {usd(row.committed_usd)} of the pool “{row.pool.name}” stood unused. {paid}: "
        f"it took {usd(row.benefit_usd)} off."
    )


def _unknown_commitment(review: Review) -> str | None:
    unknown = [one.name for one in review.commitments if one.usd_per_gpu_hour is None]
    if not unknown:
        return None
    named = ", ".join(f"“{name}”" for name in unknown)
    return f"No target ran at the rate {named}, so its price is unknown and its commitment is in no cost figure."


def _down(review: Review) -> str | None:
    share = review.now.share("down")
    if share is None or share < 0.02:
        return None
    return f"{usd(review.now.usd_by_phase['down'])} ({percent(share)}) was paid for GPUs whose target was down."


def _uncounted(review: Review) -> str | None:
    """What counts no tokens, whose money is in no unit cost."""
    share = review.now.tokens_share
    if not review.now.tokens or share is None or share > 0.95:
        return None
    rows = [row for row in review.models if say_counted(row.now.tokens_share) or not row.now.tokens]
    rows.sort(key=lambda row: (row.now.of_tokens.usd or 0.0 if row.now.tokens else 0.0) - (row.now.usd or 0.0))
    names = [row.model_name or "(no model name)" for row in rows[:_SHOWN_MODELS]]
    more = f" and {len(rows) - len(names)} more" if len(rows) > len(names) else ""
    beside = (review.now.usd or 0.0) - (review.now.of_tokens.usd or 0.0)
    of = f" ({', '.join(names)}{more})" if names else ""
    return (
        f"{usd(beside)}, {percent(1 - share, 0)} of the spend, went to GPUs whose engines count no tokens{of}: it is in no cost per token, "
        "break-even or comparison with an API."
    )


def _unattributed(review: Review) -> str | None:
    share = review.now.share("unattributed")
    if share is None or share < 0.05:
        return None
    return (
        f"{percent(share, 0)} of the spend could not be attributed to prefill or decode, so their costs are too low by that much. "
        "The exporter's landing page says which input it lacks."
    )


def _unpriced(review: Review) -> str | None:
    if review.now.unpriced_gpu_hours < 0.5:
        return None
    return (
        f"{hours(review.now.unpriced_gpu_hours)} GPU-hours have no price: they and their tokens are in no cost figure. "
        "Add a price for them to the price file."
    )


def _budget(review: Review) -> str | None:
    found = review.outlook
    if found is None or found.budget_usd is None or found.budget_used_ratio is None or found.budget_used_ratio <= 1:
        return None
    over = found.projected_usd - found.budget_usd
    month = f"At the rate of {review.week.this} a month comes to {usd(found.projected_usd)}"
    return f"{month}, {usd(over)} above the budget of {usd(found.budget_usd)}."


def _api(review: Review) -> str | None:
    api = review.outlook.api if review.outlook is not None else None
    if api is None or not api.own_usd:
        return None
    less = api.api_usd < api.own_usd
    apart = percent(abs(api.api_usd / api.own_usd - 1), 0)
    at = f" Serving them here breaks even at {amount(api.break_even_tokens_per_month)} tokens a month." if less else ""
    words = "less" if less else "more"
    of = f", {say_counted(api.counted_share)}," if say_counted(api.counted_share) else ""
    cost = f"would have cost {usd(api.api_usd)}, {apart} {words} than here"
    return f"At the price of {api.name} the tokens of {review.week.this}{of} {cost}.{at}"


def _objectives(review: Review) -> str | None:
    missed = [
        one
        for one in review.attainments
        if one.objective is not None and one.share is not None and one.share < one.objective
    ]
    if not missed:
        return None
    names = ", ".join(f"{one.slo} {percent(one.share, 2)} (objective {percent(one.objective, 2)})" for one in missed)
    return f"Missed objectives: {names}."


def _pages(review: Review) -> str | None:
    if review.alerts is None or not review.alerts.pages:
        return None
    loudest = review.alerts.noisiest[0].alert if review.alerts.noisiest else ""
    times = "once" if review.alerts.pages == 1 else count_nouns(review.alerts.pages, "time")
    return f"Alerts paged somebody {times}, firing for {hours(review.alerts.page_minutes / 60)} hours in all; the noisiest was {loudest}."


def _gaps(review: Review) -> str | None:
    lost = fsum(gap.estimated_usd or 0.0 for gap in review.gaps or ())
    if lost < 0.01 * (review.now.usd or 0.0) or not lost:
        return None
    least = any(gap.estimated_usd is None for gap in review.gaps or ())
    return f"{'At least' if least else 'About'} {usd(lost)} of GPU time falls into gaps in the data; it is not in the spend."


# what pages that explain the change elsewhere leave out
CAUSE_RULE = "cause of the change"
# what is said of a bill that differs: it comes behind all rules, when the bill is read
BILL_RULE = "bill"
RULES: dict[str, Callable[[Review], str | None]] = {
    "unit cost and total apart": _apart,
    CAUSE_RULE: _cause,
    "dearer model": _dearer,
    "tokens not counted": _uncounted,
    "over budget": _budget,
    "idle": _idle,
    "empty batches": _empty_batches,
    "spare replicas": _spare,
    "unused commitment": _commitment,
    "unused pool": _pool,
    "commitment without a price": _unknown_commitment,
    "down": _down,
    "objectives missed": _objectives,
    "pages": _pages,
    "API price": _api,
    "unattributed": _unattributed,
    "no price": _unpriced,
    "gaps": _gaps,
}
