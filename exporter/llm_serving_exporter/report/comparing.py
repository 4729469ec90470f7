"""Whether a week may be held against the one before: what is there of one in part only would look like a change. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from llm_serving_exporter.report.figures import percent
from llm_serving_exporter.report.nouns import Evidence
from llm_serving_exporter.report.totals import Totals

# of a week's GPU time: more of it that is not there, or has no price, could be a cause of its own
MOST_UNKNOWN = 0.02


def not_compared(evidence: Evidence, now: Totals, earlier: Totals) -> tuple[str, ...]:
    """Why not, in sentences; () where it may be."""
    if earlier.usd is None:
        return ()
    why = [*_unpriced(evidence.week.name, now), *_unpriced(evidence.previous.name, earlier)]
    return tuple(f"{evidence.week.name} is not compared with {evidence.previous.name}: {reason}." for reason in why)


def _unpriced(week: str, sums: Totals) -> Iterator[str]:
    share = sums.unpriced_gpu_hours / sums.gpu_hours if sums.gpu_hours else 0.0
    if share > MOST_UNKNOWN:
        yield f"{percent(share)} of the GPU-hours of {week} have no price"
