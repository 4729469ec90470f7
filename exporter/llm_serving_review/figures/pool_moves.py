"""On-demand load that would fit onto committed GPUs that stand unused: by the hour, and at what is paid on demand. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import fsum
from types import MappingProxyType

from llm_serving_exporter.model.cost import Pool
from llm_serving_exporter.model.record import Struct
from llm_serving_review.figures.metered_hours import MeteredHour
from llm_serving_review.figures.pool_hours import OpenUse, find_card
from llm_serving_review.tables.sums import sum_by_key


class Move(Struct, frozen=True):
    """What one commitment could take over."""

    pool: str
    gpu_hours: float  # of GPUs that ran on demand while as many of it stood unused
    usd: float  # what they cost on demand
    by_card: tuple[tuple[str, float], ...] = ()  # the same GPU-hours by kind of GPU, of those at on-demand rates


def sum_moves(moves: Iterable[Move]) -> dict[str, float]:
    """GPU-hours at on-demand rates that fit onto what is committed already, by kind of GPU."""
    return sum_by_key(item for one in moves for item in one.by_card)


class _Load(Struct):
    """GPU time that is paid on demand."""

    left: float  # GPU-hours that no commitment has been promised yet
    usd_per_gpu_hour: float  # what each costs
    card: str  # the kind of GPU
    instance_type: str  # of its node; "" where it is unknown
    on_demand: bool  # whether its rate is on demand, not that of pools


def find_moves(
    pools: Sequence[Pool],
    unused: Mapping[str, Mapping[float, float]],
    pieces: Iterable[MeteredHour],
    uses: Mapping[float, Sequence[OpenUse]],
    on_demand: Collection[str],
    promised: Mapping[tuple[float, str], float] = MappingProxyType({}),
) -> tuple[Move, ...]:
    """min(unused, on demand) hour by hour, of the same kind of GPU wherever it stands; no hour of load is promised to two pools.

    `unused`: GPU-hours by pool and UTC hour. `uses`: what pools left of the GPU time at their rate, which pays the uncommitted price too.
    `promised`: GPU-hours at on-demand rates that other commitments take over, by UTC hour and card.
    """
    pieces, gone = list(pieces), dict(promised)
    loads: dict[float, list[_Load]] = {}
    for one in pieces:
        if one.rate in on_demand and one.gpu_hours > 0:
            price = one.usd / one.gpu_hours
            key = one.utc_begin, find_card(one.gpu_name)
            taken = min(one.gpu_hours, gone.get(key, 0.0))
            if taken:
                gone[key] -= taken
            loads.setdefault(one.utc_begin, []).append(_make_load(one, one.gpu_hours - taken, price, on_demand=True))
    for at, each in uses.items():
        loads.setdefault(at, []).extend(
            _make_load(use.piece, use.left, use.usd_per_gpu_hour, on_demand=False) for use in each if use.left > 0
        )
    found = []
    for pool in pools:
        cards = _find_cards(pool, pieces)
        moved: list[tuple[_Load, float]] = []
        for at, free in unused.get(pool.name, {}).items():
            own = [one for one in loads.get(at, ()) if one.left > 0 and _is_same_kind(one, pool, cards)]
            # the dearest first: that is what is worth moving
            open_ = free
            for load in sorted(own, key=lambda one: -one.usd_per_gpu_hour):
                taken = min(open_, load.left)
                load.left, open_ = load.left - taken, open_ - taken
                moved.append((load, taken))
        usd = fsum(taken * load.usd_per_gpu_hour for load, taken in moved)
        if usd > 0:
            by_card = sum_by_key((load.card, taken) for load, taken in moved if load.on_demand)
            found.append(Move(pool.name, fsum(taken for _, taken in moved), usd, tuple(sorted(by_card.items()))))
    return tuple(found)


def _make_load(piece: MeteredHour, gpu_hours: float, price: float, *, on_demand: bool) -> _Load:
    return _Load(gpu_hours, price, find_card(piece.gpu_name), piece.instance_type, on_demand)


def _find_cards(pool: Pool, pieces: Iterable[MeteredHour]) -> set[str]:
    """The kinds of GPU that a pool is of: an instance type's are those that its nodes had."""
    if pool.use.gpu_name:
        return {pool.use.gpu_name}
    return {find_card(one.gpu_name) for one in pieces if one.instance_type == pool.use.instance_type and one.gpu_name}


def _is_same_kind(load: _Load, pool: Pool, cards: Collection[str]) -> bool:
    return load.card in cards or (bool(load.instance_type) and load.instance_type == pool.use.instance_type)
