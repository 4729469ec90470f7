"""What to do first: each action's USD a week comes from figures of the review, none is a guess."""

from __future__ import annotations

from dataclasses import dataclass

from llm_serving_exporter.report.figures import amount, hours, percent, usd
from llm_serving_exporter.report.spare import Commitment, Spare, Steady
from llm_serving_exporter.report.totals import Totals

SHOWN = 3
# below that share of the spend nobody acts
LEAST_SHARE = 0.005


@dataclass(frozen=True, slots=True)
class Action:
    """`usd_per_week`: what it would have saved in the week. `what` is an imperative, `why` says where the figure comes from."""

    what: str
    why: str
    usd_per_week: float


def actions(
    week: Totals, spare: Spare | None, commitments: tuple[Commitment, ...], steady: tuple[Steady, ...]
) -> tuple[Action, ...]:
    """The largest first. Savings may overlap (an idle replica that is removed is idle no more), so that they are never added up."""
    found = []
    over = spare.excess_usd if spare is not None else None
    if spare is not None and over:
        why = f"{hours(spare.excess_hours)} replica-hours ran beyond what the demand and the reserve for a lost node required"
        found.append(Action("Run fewer replicas in quiet hours", why, over))
    for one in commitments:
        if one.unused_usd:
            why = (
                f"{hours(one.unused_gpu_hours)} of {hours(one.committed_gpu_hours)} committed GPU-hours went unused, at "
                f"{usd(one.usd_per_gpu_hour)} each"
            )
            found.append(
                Action(f"Move work onto the commitment “{one.rate}”, or commit to fewer GPUs", why, one.unused_usd)
            )
    for offer in steady:
        why = (
            f"{amount(offer.gpus)} {offer.gpu_name} ran on demand in every hour, at {usd(offer.usd_per_gpu_hour)} instead of "
            f"{usd(offer.reserved_usd_per_gpu_hour)}"
        )
        found.append(Action(f"Reserve the steady GPUs at the rate “{offer.rate}”", why, offer.usd))
    down = week.usd_by_phase.get("down", 0.0)
    if down:
        lost = week.gpu_hours_by_state.get("down", 0.0)
        found.append(
            Action("Find out why targets were down", f"{hours(lost)} GPU-hours were paid while a target was down", down)
        )
    idle = week.usd_by_phase.get("idle", 0.0) - (over or 0.0) - (spare.reserve_usd or 0.0 if spare is not None else 0.0)
    if idle > 0:
        of = " outside of spare and reserve replicas" if spare is not None else ""
        why = f"GPUs that were paid for had nothing to do{of}: {percent((idle / week.usd) if week.usd else None)} of the spend"
        found.append(
            Action("Fill or shrink idle time: consolidate models, shift batch work into quiet hours", why, idle)
        )
    least = LEAST_SHARE * (week.usd or 0.0)
    return tuple(sorted((one for one in found if one.usd_per_week > least), key=lambda one: -one.usd_per_week)[:SHOWN])
