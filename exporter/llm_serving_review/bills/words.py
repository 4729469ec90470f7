"""What page one, the findings and the summary say of a bill, in sentences."""

from __future__ import annotations

from math import fsum

from llm_serving_exporter.render.numbers import signed_percent, usd
from llm_serving_review.bills.compare import BillReview

# by the names of `Reasons`
REASONS = {
    "not_metered": "Billed, not metered",
    "not_billed": "Metered, not billed",
    "hours": "Other hours",
    "unused_gpus": "GPUs of a machine that no target uses",
    "price": "Another price",
    "undivided": "Hours, unused GPUs or price: the bill counts no hours",
    "unused_commitments": "Unused commitments",
}
_LEAST_CENT = 0.005
_SHOWN_LEFT_OUT = 2


def write_difference(found: BillReview) -> str:
    """Both sums, what the bill has more, and the reason with most of it; why nothing is compared where nothing is."""
    if found.comparison is None:
        return f"The bill is not compared: {found.refused}."
    total, apart = found.comparison.total, found.comparison.total.difference_usd
    begin = f"{'Preliminary: the' if found.preliminary else 'The'} bill says {usd(total.billed_usd)}"
    if not apart:
        return f"{begin}, as much as was metered."
    ratio = total.difference_ratio
    share = f" ({signed_percent(ratio)})" if ratio is not None else ""
    name, value = max(found.comparison.reasons.parts().items(), key=lambda item: abs(item[1]))
    words = REASONS[name][0].lower() + REASONS[name][1:] if not REASONS[name].startswith("GPU") else REASONS[name]
    most = f" Most of it: {words}, {usd(value)}." if abs(value) >= _LEAST_CENT else ""
    more = "more" if apart > 0 else "less"
    return f"{begin}, {usd(abs(apart))} {more} than the {usd(total.metered_usd)} that were metered{share}.{most}"


def write_left_out(found: BillReview) -> str:
    """What of the bill in that time is in no sum, with the largest of it; "" for nothing, or where nothing is compared."""
    if found.comparison is None:
        return ""
    beside = [(what, one.effective_usd) for what, one in found.beside if abs(one.effective_usd) >= _LEAST_CENT]
    if not beside:
        return ""
    beside.sort(key=lambda item: -abs(item[1]))
    parts = [f"{what} {usd(value)}" for what, value in beside[:_SHOWN_LEFT_OUT]]
    if len(beside) > _SHOWN_LEFT_OUT:
        parts.append(f"{len(beside) - _SHOWN_LEFT_OUT} more")
    return f"Left out of it: {usd(fsum(value for _, value in beside))} ({', '.join(parts)})."
