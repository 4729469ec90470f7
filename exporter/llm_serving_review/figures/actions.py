"""What to do first. The USD of each action come from figures of the review; none is a guess."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.text import on_one_line
from llm_serving_exporter.render.numbers import amount, hours, percent, usd
from llm_serving_review.figures.formulas import ratio
from llm_serving_review.figures.pools import Pools
from llm_serving_review.figures.rates import Commitment, Steady
from llm_serving_review.figures.spare import Spare
from llm_serving_review.figures.totals import Totals

SHOWN = 3
# below that share of the spend nobody acts
LEAST_SHARE = 0.005
# of names from outside
_LONGEST_NAME = 60


class Kind(StrEnum):
    """What the USD of an action are: money saved or saved at most; capacity freed or freed at most, which is paid for all the same;
    money that was lost already."""

    CASH = "cash"
    AT_MOST = "at_most"
    CAPACITY = "capacity"
    CAPACITY_AT_MOST = "capacity_at_most"
    LOST = "lost"


_WORTH = {
    Kind.CASH: "saves {} {each}",
    Kind.AT_MOST: "saves up to {} {each}",
    Kind.CAPACITY: "frees capacity worth {} {each}",
    Kind.CAPACITY_AT_MOST: "frees capacity worth up to {} {each}",
    Kind.LOST: "cost {} in {this}",
}


class Action(Struct, frozen=True):
    """Something to do, and what it comes to."""

    what: str  # an imperative
    why: str
    usd_per_week: float  # USD in the week under review
    kind: Kind  # whether that is money saved, capacity freed or money lost
    each: str = "a week"  # how often it comes: "a week", "in 24 hours"
    this: str = "the week"  # of what it is: "the week", "these 24 hours"

    @property
    def worth(self) -> str:
        """The amount, and what it is."""
        return _WORTH[self.kind].format(usd(self.usd_per_week), each=self.each, this=self.this)


def _shorten(name: str) -> str:
    """So that what is to be done is still there where a line ends."""
    return on_one_line(name, _LONGEST_NAME)


def _move_load(name: str, gpu_hours: float, worth: float) -> Action:
    why = f"{hours(gpu_hours)} GPU-hours of the same kind were paid on demand while as many of it stood unused"
    return Action(f"Move on-demand load onto the unused GPUs of “{_shorten(name)}”", why, worth, Kind.CASH)


def list_pool_actions(pools: Pools | None) -> list[Action]:
    """What to do about pools that were not used, the most of it first moved load that is paid on demand."""
    if pools is None:
        return []
    moved = {one.pool: one for one in pools.moves}
    found = [_move_load(one.pool, one.gpu_hours, one.usd) for one in pools.moves]
    for row in pools.rows:
        rest = row.unused_usd
        if (move := moved.get(row.pool.name)) is not None:
            rest -= move.gpu_hours * row.pool.usd_per_gpu_hour
        if rest > 0:
            beside = ", beside what on-demand load would use" if move is not None else ""
            why = f"{usd(row.unused_usd)} of {usd(row.committed_usd)} committed stood unused{beside}"
            what = f"Move work onto the pool “{_shorten(row.pool.name)}”, or commit to less"
            found.append(Action(what, why, rest, Kind.CAPACITY))
    return found


def choose_actions(
    week: Totals,
    spare: Spare | None,
    commitments: tuple[Commitment, ...],
    steady: tuple[Steady, ...],
    cash_by_phase: Mapping[str, float],
    pools: Pools | None = None,
) -> tuple[Action, ...]:
    """Chooses the actions that are worth most, the largest first; at most `SHOWN`. They may overlap (an idle replica that is removed is no
    longer idle), so they are never added up.

    `cash_by_phase`: cost at rates that are paid by the hour. A committed or owned GPU costs the same with nothing on it.
    """
    found = []
    least = LEAST_SHARE * (week.usd or 0.0)

    def freed(what: str, why: str, worth: float, cash: float, kind: Kind) -> Action:
        if cash <= least:
            capacity = Kind.CAPACITY_AT_MOST if kind == Kind.AT_MOST else Kind.CAPACITY
            return Action(what, f"{why}, on GPUs that are committed or owned", worth, capacity)
        rest = worth - cash
        more = f"; {usd(rest)} more on GPUs that are committed or owned" if rest > least else ""
        return Action(what, why + more, cash, kind)

    over = spare.excess_usd if spare is not None else None
    if spare is not None and over:
        why = f"{hours(spare.excess_hours)} replica-hours were more than the demand and the reserve for a lost node required"
        found.append(freed("Run fewer replicas in quiet hours", why, over, spare.excess_cash_usd, Kind.CASH))
    for one in commitments:
        unused = f"{hours(one.unused_gpu_hours)} of {hours(one.committed_gpu_hours)} committed GPU-hours"
        if one.movable_usd:
            found.append(_move_load(one.name, one.movable_gpu_hours, one.movable_usd))
        if one.immovable_usd:
            about = (
                ", beside what on-demand load would use"
                if one.movable_usd
                else f", at {usd(one.usd_per_gpu_hour)} each"
            )
            what = f"Move work onto the commitment “{_shorten(one.name)}”, or commit to fewer GPUs"
            found.append(Action(what, f"{unused} went unused{about}", one.immovable_usd, Kind.CAPACITY))
    found += list_pool_actions(pools)
    for offer in steady:
        why = (
            f"{amount(offer.gpus)} {offer.gpu_name} ran on demand in every hour, at {usd(offer.usd_per_gpu_hour)} instead of "
            f"{usd(offer.reserved_usd_per_gpu_hour)}"
        )
        found.append(Action(f"Reserve the steady GPUs at the rate “{_shorten(offer.rate)}”", why, offer.usd, Kind.CASH))
    down = week.usd_by_phase.get("down", 0.0)
    if down:
        lost = week.gpu_hours_by_state.get("down", 0.0)
        why = f"{hours(lost)} GPU-hours were paid for while a target was down"
        found.append(Action("Find out why targets were down", why, down, Kind.LOST))
    idle = week.usd_by_phase.get("idle", 0.0)
    rest = idle - (over or 0.0) - (spare.reserve_usd or 0.0 if spare is not None else 0.0)
    if rest > 0:
        besides = ", spare and reserve replicas not counted" if spare is not None else ""
        why = f"idle GPUs took {percent(ratio(rest, week.usd))} of the spend{besides}"
        cash = rest * cash_by_phase.get("idle", 0.0) / idle
        what = "Fill or shrink idle time: consolidate models, shift batch work into quiet hours"
        found.append(freed(what, why, rest, cash, Kind.AT_MOST))
    return tuple(sorted((one for one in found if one.usd_per_week > least), key=lambda one: -one.usd_per_week)[:SHOWN])
