"""Whether a week can be compared with the one before: where part of one is missing, the difference would look like a change. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from math import fsum

from llm_serving_exporter.render.numbers import hours, percent, usd
from llm_serving_review.evidence.usage import Evidence, Usage
from llm_serving_review.evidence.week import HOUR_SECONDS
from llm_serving_review.figures.coverage import Seen, missing_gpu_seconds
from llm_serving_review.figures.totals import Totals

# of a week's GPU time: more of it that is not there, or has no price, could be a cause of its own
MOST_UNKNOWN = 0.05


# less of it, in gaps, is said further down
_LEAST_MISSING = 0.01
_SPLIT_BY = ("prefill_tokens", "decode_tokens")


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


def can_split(usage: Usage, earlier: Usage) -> bool:
    """Whether both weeks have the same kinds of tokens. A quantity that only one week has would look like a cause."""
    return not any(
        name in usage.unread or name in earlier.unread or bool(getattr(usage, name)) != bool(getattr(earlier, name))
        for name in _SPLIT_BY
    )
