"""What to do first. The USD of each action come from figures of the review; none is a guess."""

from __future__ import annotations

import json
from collections.abc import Collection
from enum import StrEnum

from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.text import on_one_line
from llm_serving_exporter.render.numbers import amount, hours, percent, usd
from llm_serving_review.evidence.context import LEAST_SHARE, find_gauge_key
from llm_serving_review.evidence.usage import Fleet, Hours
from llm_serving_review.figures.pool_hours import PoolCash, Slot
from llm_serving_review.figures.pools import NO_POOLS, Pools
from llm_serving_review.figures.rates import Commitment, Steady
from llm_serving_review.figures.totals import Totals, ratio
from llm_serving_review.tables.facts import AT_RATES, NOW, OF_MODEL, FactTable, name_model
from llm_serving_review.tables.sums import group_by_key, sum_by_key, sum_known

# --- Replicas beyond what was required, and replicas in reserve for a lost node.


_COST, _TIME = "quantity = 'cost'", "quantity = 'gpu_seconds'"
_RUNNING = f"coalesce(phase, state) <> 'down' and {OF_MODEL}"


class Spare(Struct, frozen=True):
    """Replicas beyond need, and what they cost."""

    excess_hours: float  # replica-hours beyond the demand and its reserve
    excess_usd: float | None  # their cost; None where no hour has both replicas and a cost
    reserve_hours: float  # replica-hours held against the loss of a node
    reserve_usd: float | None  # their cost; None where no hour has both replicas and a cost
    excess_by_hour: Hours  # replicas beyond need in each hour; None where one of the figures is unknown
    reserve_by_hour: Hours  # replicas in reserve in each hour; None where one of the figures is unknown
    # part of `excess_usd` at rates that are paid by the hour, and of GPUs that no pool covers
    excess_cash_usd: float = 0.0


def measure_spare(
    facts: FactTable, fleet: Fleet, cash: Collection[str] = (), pool_cash: PoolCash | None = None
) -> Spare | None:
    """Over all models; None without the rule pack's records of replicas. `cash`: rates that are paid by the hour. `pool_cash`: what of
    GPUs at the rate of pools is paid by the hour; None for nothing."""
    hours, rates = len(facts.weeks[NOW].hours), json.dumps([*cash])
    present = {find_gauge_key(gauge, facts.identity): gauge.hours for gauge in fleet.present}
    required = {
        (find_gauge_key(gauge, facts.identity), gauge.label("reserve")): gauge.hours for gauge in fleet.required
    }
    over_by_hour: list[tuple[int, tuple[float, float]]] = []
    priced_usd: list[tuple[float, float, float]] = []
    of_pools: list[tuple[Slot, float]] = []
    for who, running in present.items():
        bare, whole = required.get((who, "none")), required.get((who, "nodes"))
        model = name_model(who)
        cost, of_cash, seconds, priced = (
            facts.sum_hours(NOW, f"{_RUNNING} and {where}", **model, rates=rates)
            for where in (_COST, f"{_COST} and {AT_RATES}", _TIME, f"{_TIME} and rate <> ''")
        )
        at_pools: dict[int, list[tuple[Slot, float]]] = {}
        if pool_cash is not None:
            for slot, value in pool_cash.sum_cost(facts.lines(NOW, "cost", _RUNNING, **model)).items():
                at_pools.setdefault(slot[0], []).append((slot, value))
        for index, there in enumerate(running):
            without = bare[index] if bare else None
            with_reserve = whole[index] if whole else None
            if there is None or with_reserve is None:
                continue
            over = max(0.0, there - with_reserve)
            held = max(0.0, min(there, with_reserve) - min(there, without)) if without is not None else 0.0
            over_by_hour.append((index, (over, held)))
            usd = cost[index]
            # of those that have a price: what others cost is not known
            paid = there * ((priced[index] or 0.0) / all_ if (all_ := seconds[index]) else 1.0)
            if usd is not None and paid > 0:
                priced_usd.append((over * usd / paid, held * usd / paid, over * (of_cash[index] or 0.0) / paid))
                of_pools += [(slot, over * value / paid) for slot, value in at_pools.get(index, ())]
    if not over_by_hour:
        return None
    by_hour = group_by_key(over_by_hour)
    excess, reserve = (
        tuple(sum_known(one[column] for one in by_hour.get(hour, ())) for hour in range(hours)) for column in (0, 1)
    )
    excess_usd, reserve_usd, cash_usd = map(sum_known, zip(*priced_usd, strict=True)) if priced_usd else (None,) * 3
    uncovered = 0.0 if pool_cash is None else pool_cash.limit(sum_by_key(of_pools))
    return Spare(
        sum_known(excess) or 0.0, excess_usd, sum_known(reserve) or 0.0, reserve_usd, excess, reserve,
        (cash_usd or 0.0) + uncovered,
    )  # fmt: skip


SHOWN = 3
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


def shorten_name(name: str) -> str:
    """So that what is to be done is still there where a line ends."""
    return on_one_line(name, _LONGEST_NAME)


def _move_load(name: str, gpu_hours: float, worth: float) -> Action:
    why = f"{hours(gpu_hours)} GPU-hours of the same kind were paid on demand while as many of it stood unused"
    return Action(f"Move on-demand load onto the unused GPUs of “{shorten_name(name)}”", why, worth, Kind.CASH)


def list_pool_actions(pools: Pools) -> list[Action]:
    """What to do about pools that were not used, the most of it first moved load that is paid on demand."""
    moved = {one.pool: one for one in pools.moves}
    found = [_move_load(one.pool, one.gpu_hours, one.usd) for one in pools.moves]
    for row in pools.rows:
        rest = row.unused_usd
        if (move := moved.get(row.pool.name)) is not None:
            rest -= move.gpu_hours * row.pool.usd_per_gpu_hour
        if rest > 0:
            beside = ", beside what on-demand load would use" if move is not None else ""
            why = f"{usd(row.unused_usd)} of {usd(row.committed_usd)} committed stood unused{beside}"
            what = f"Move work onto the pool “{shorten_name(row.pool.name)}”, or commit to less"
            found.append(Action(what, why, rest, Kind.CAPACITY))
    return found


def save_or_free(what: str, why: str, worth: float, cash: float, least: float, kind: Kind = Kind.CASH) -> Action:
    """What saves `cash` of its worth in USD, and frees capacity for the rest, which is named from `least` on."""
    if cash <= least:
        capacity = Kind.CAPACITY_AT_MOST if kind == Kind.AT_MOST else Kind.CAPACITY
        return Action(what, f"{why}, on GPUs that are committed or owned", worth, capacity)
    rest = worth - cash
    more = f"; {usd(rest)} more on GPUs that are committed or owned" if rest > least else ""
    return Action(what, why + more, cash, kind)


def choose_actions(
    week: Totals,
    spare: Spare | None,
    commitments: tuple[Commitment, ...],
    steady: tuple[Steady, ...],
    idle_cash_usd: float,
    pools: Pools = NO_POOLS,
) -> tuple[Action, ...]:
    """Chooses the actions that are worth most, the largest first; at most `SHOWN`. They may overlap (an idle replica that is removed is no
    longer idle), so they are never added up.

    `idle_cash_usd`: cost of idle time that is paid by the hour. A committed or owned GPU costs the same with nothing on it.
    """
    found = []
    least = LEAST_SHARE * (week.usd or 0.0)

    over = spare.excess_usd if spare is not None else None
    if spare is not None and over:
        why = f"{hours(spare.excess_hours)} replica-hours were more than the demand and the reserve for a lost node required"
        found.append(save_or_free("Run fewer replicas in quiet hours", why, over, spare.excess_cash_usd, least))
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
            what = f"Move work onto the commitment “{shorten_name(one.name)}”, or commit to fewer GPUs"
            found.append(Action(what, f"{unused} went unused{about}", one.immovable_usd, Kind.CAPACITY))
    found += list_pool_actions(pools)
    for offer in steady:
        why = (
            f"{amount(offer.gpus)} {offer.gpu_name} ran on demand in every hour, at {usd(offer.usd_per_gpu_hour)} instead of "
            f"{usd(offer.reserved_usd_per_gpu_hour)}"
        )
        found.append(
            Action(f"Reserve the steady GPUs at the rate “{shorten_name(offer.rate)}”", why, offer.usd, Kind.CASH)
        )
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
        cash = rest * idle_cash_usd / idle
        what = "Fill or shrink idle time: consolidate models, shift batch work into quiet hours"
        found.append(save_or_free(what, why, rest, cash, least, Kind.AT_MOST))
    return tuple(sorted((one for one in found if one.usd_per_week > least), key=lambda one: -one.usd_per_week)[:SHOWN])
