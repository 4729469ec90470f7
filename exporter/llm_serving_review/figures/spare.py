"""Replicas beyond what was required, and replicas in reserve for a lost node."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from llm_serving_exporter.model.record import Struct
from llm_serving_review.evidence.usage import Fleet, Gauge, Hours, Line, Usage, sum_by_hour
from llm_serving_review.figures.pool_cash import PoolCash, Slot
from llm_serving_review.tables.sums import group_by_key, sum_by_key, sum_known

_DOWN = "down"


class Spare(Struct, frozen=True):
    """Replicas beyond need, and what they cost."""

    excess_hours: float  # replica-hours beyond the demand and its reserve
    excess_usd: float | None  # their cost; None where no hour has both replicas and a cost
    reserve_hours: float  # replica-hours held against the loss of a node
    reserve_usd: float | None  # their cost; None where no hour has both replicas and a cost
    excess_by_hour: Hours  # replicas beyond need in each hour; None where one of the figures is unknown
    reserve_by_hour: Hours  # replicas in reserve in each hour; None where one of the figures is unknown
    excess_cash_usd: float = (
        0.0  # part of `excess_usd` at rates that are paid by the hour, and of GPUs that no pool covers
    )


def measure_spare(
    usage: Usage, fleet: Fleet, hours: int, cash: Collection[str] = (), pool_cash: PoolCash | None = None
) -> Spare | None:
    """Over all models; None without the rule pack's records of replicas. `cash`: rates that are paid by the hour. `pool_cash`: what of
    GPUs at the rate of pools is paid by the hour; None for nothing."""
    present = {_model_key(gauge): gauge.hours for gauge in fleet.present}
    required = {(_model_key(gauge), gauge.labels.get("reserve", "")): gauge.hours for gauge in fleet.required}
    over_by_hour: list[tuple[int, tuple[float, float]]] = []
    priced_usd: list[tuple[float, float, float]] = []
    of_pools: list[tuple[Slot, float]] = []
    for who, running in present.items():
        bare, whole = required.get((who, "none")), required.get((who, "nodes"))
        cost, of_cash, priced = _cost_running(usage, who, hours, cash)
        at_pools: dict[int, list[tuple[Slot, float]]] = {}
        if pool_cash is not None:
            for slot, value in pool_cash.sum_cost(_keep_running(usage.cost, who)).items():
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
            paid = there * priced[index]
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


def _cost_running(
    usage: Usage, who: Iterable[tuple[str, str]], hours: int, cash: Collection[str]
) -> tuple[Hours, Hours, tuple[float, ...]]:
    """By hour, without GPUs that are down: what a model's replicas cost, the part of it at rates of `cash`, and the share of them that
    has a price."""
    cost, seconds = _keep_running(usage.cost, who), _keep_running(usage.gpu_seconds, who)
    all_, priced = sum_by_hour(seconds, hours), sum_by_hour((line for line in seconds if line.of[1]), hours)
    shares = tuple((part or 0.0) / whole if whole else 1.0 for part, whole in zip(priced, all_, strict=True))
    return sum_by_hour(cost, hours), sum_by_hour((line for line in cost if line.of[1] in cash), hours), shares


def _keep_running(lines: Iterable[Line], who: Iterable[tuple[str, str]]) -> list[Line]:
    """Those of a model, without GPUs that are down."""
    return [
        line
        for line in lines
        if line.of[0] != _DOWN and _belongs(line.owner.extra, line.owner.model_name, line.owner.role, who)
    ]


def _model_key(gauge: Gauge) -> tuple[tuple[str, str], ...]:
    """Identity labels, model and role."""
    return tuple(sorted((name, value) for name, value in gauge.labels.items() if name not in ("reserve", "__name__")))


def _belongs(extra: Iterable[tuple[str, str]], model_name: str, role: str, who: Iterable[tuple[str, str]]) -> bool:
    own = {**dict(extra), "model_name": model_name, "role": role}
    return all(own.get(name, "") == value for name, value in who)
