"""Pools over the GPU-hours of one UTC hour: what each covers, and what of it is left over. Pure.

Windows apply first, then quantities, then spends, and pools of one kind in the order of the price file. So clouds do it: AWS applies
savings plans to what reserved instances leave, and capacity blocks are paid in advance and take no other discount. A spend goes to the use
with the highest discount first, and of equal ones to the lowest committed price
(https://docs.aws.amazon.com/savingsplans/latest/userguide/sp-applying.html).

Whatever a pool covers of a kind is spread over its users by their GPU-hours.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from math import fsum
from types import MappingProxyType

from llm_serving_exporter.model.cost import Pool, PoolKind, PoolUse, RateKind
from llm_serving_exporter.model.record import Struct, replace
from llm_serving_review.evidence.usage import Gap, Line, Where
from llm_serving_review.evidence.week import HOUR_SECONDS, Week
from llm_serving_review.figures.metered_hours import MeteredHour
from llm_serving_review.tables.sums import sum_by_key

_ORDER = {kind: at for at, kind in enumerate(PoolKind)}
# how slices of a card are called: they are a share of it
_SLICES = (" MIG", " part 1/")
# of a name without a dot: a count at its end (a2-highgpu-8g), else its first number (Standard_NC96ads_A100_v4)
_COUNT_AT_END = re.compile(r"-[0-9]+g?$")
_FIRST_NUMBER = re.compile(r"[0-9]+")


class OpenUse(Struct):
    """GPU-hours of a pool's rate, and what is not covered of them yet."""

    piece: MeteredHour  # as it was metered
    left: float  # GPU-hours that no pool covers so far
    committed_usd: float = 0.0  # what the covered ones cost, at committed prices

    @property
    def usd_per_gpu_hour(self) -> float:
        """The uncommitted price, as the hour was booked: so that what is covered whole costs nothing more."""
        return self.piece.usd / self.piece.gpu_hours if self.piece.gpu_hours else 0.0

    def discount(self, price: float) -> float:
        """What a committed price is below the stated one, as a share of that; 0 where there is none."""
        stated = self.piece.usd_per_gpu_hour or self.usd_per_gpu_hour
        # to 1e-12: quotients of the same prices differ in their last bit
        return round(1 - price / stated, 12) if stated > 0 else 0.0

    @property
    def paid_usd(self) -> float:
        """After commitments."""
        return self.committed_usd + self.left * self.usd_per_gpu_hour


class PoolHour(Struct, frozen=True):
    """A pool within a UTC hour."""

    utc_begin: float  # Unix seconds of the full hour
    committed_usd: float  # what is paid for it, used or not
    used_usd: float  # part of that which covers use
    covered_gpu_hours: float  # GPU-hours that it covers
    uncommitted_usd: float  # what these would have cost without it
    committed_gpu_hours: float = 0.0  # GPU-hours that are paid for; 0 of a spend


def order_pools(pools: Iterable[Pool]) -> list[Pool]:
    """The order in which they apply."""
    return sorted(pools, key=lambda pool: _ORDER[pool.kind])


def apply_to_hour(pool: Pool, uses: Sequence[OpenUse], utc_begin: float, begin: float, end: float) -> PoolHour | None:
    """Covers what the pool covers of `uses`, which lie between `begin` and `end` of the hour. None where it is not in force then.

    Where it begins or ends in between, it covers the same share of the use: that is taken to be even.
    """
    since = begin if pool.from_unix_seconds is None else max(begin, pool.from_unix_seconds)
    until = end if pool.until_unix_seconds is None else min(end, pool.until_unix_seconds)
    if until <= since:
        return None
    length, share = (until - since) / HOUR_SECONDS, (until - since) / (end - begin)
    if pool.kind is PoolKind.SPEND:
        return _spend(pool, uses, utc_begin, length, share)
    committed = pool.gpus * length
    own = [use for use in uses if use.left > 0 and covers(pool.use, use.piece, size_flexible=pool.size_flexible)]
    covered, uncommitted = _cover(own, share, committed, pool.usd_per_gpu_hour)
    price = pool.usd_per_gpu_hour
    return PoolHour(utc_begin, committed * price, covered * price, covered, uncommitted, committed)


def _spend(pool: Pool, uses: Sequence[OpenUse], utc_begin: float, length: float, share: float) -> PoolHour:
    groups: dict[tuple[float, float], list[OpenUse]] = {}
    for use in uses:
        price = _find_rate(pool, use.piece)
        if use.left > 0 and price is not None:
            groups.setdefault((-use.discount(price), price), []).append(use)
    committed = left = pool.usd_per_hour * length
    of_groups = [(0.0, 0.0)]
    for _, price in sorted(groups):
        of_groups.append(_cover(groups[_, price], share, left / price, price))
        left = max(0.0, left - of_groups[-1][0] * price)
    covered, uncommitted = map(fsum, zip(*of_groups, strict=True))
    return PoolHour(utc_begin, committed, committed - left, covered, uncommitted)


def _find_rate(pool: Pool, piece: MeteredHour) -> float | None:
    """The committed price of the first of its rates that is for such a GPU; None where none is."""
    if not _is_there(pool.use, piece):
        return None
    for rate in pool.rates:
        if covers(rate.use, piece, size_flexible=pool.size_flexible):
            return rate.usd_per_gpu_hour
    return None


def _cover(uses: Sequence[OpenUse], share: float, most: float, price: float) -> tuple[float, float]:
    """Covers at most `most` GPU-hours of a share of what is left, evenly. The GPU-hours, and what they would have cost."""
    open_ = fsum(use.left for use in uses) * share
    covered = min(open_, most)
    if covered <= 0:
        return 0.0, 0.0
    part, uncommitted = covered / open_ * share, []
    for use in uses:
        taken = use.left * part
        # what is covered to the last bit is covered
        use.left = 0.0 if part >= 1 else use.left - taken
        use.committed_usd += taken * price
        uncommitted.append(taken * use.usd_per_gpu_hour)
    return covered, fsum(uncommitted)


def covers(use: PoolUse, piece: MeteredHour, *, size_flexible: bool = False) -> bool:
    """Whether a commitment is for such a GPU. What is not known of a node is not what a commitment asks for."""
    if not _is_there(use, piece):
        return False
    if use.gpu_name:
        return find_card(piece.gpu_name) == use.gpu_name
    if size_flexible:
        return bool(piece.instance_type) and find_family(piece.instance_type) == find_family(use.instance_type)
    return piece.instance_type == use.instance_type


def _is_there(use: PoolUse, piece: MeteredHour) -> bool:
    return use.region in ("", piece.region) and use.zone in ("", piece.zone)


@lru_cache(maxsize=1024)
def find_card(gpu_name: str) -> str:
    """The card of a GPU, which may be a slice of one."""
    for mark in _SLICES:
        gpu_name = gpu_name.partition(mark)[0]
    return gpu_name


@lru_cache(maxsize=1024)
def find_family(instance_type: str) -> str:
    """An instance type without its size: "p5" of p5.48xlarge, "a2-highgpu" of a2-highgpu-8g."""
    family, dot, _ = instance_type.partition(".")
    if dot:
        return family
    short = _COUNT_AT_END.sub("", instance_type)
    return short if short != instance_type else _FIRST_NUMBER.sub("", instance_type, count=1)


# --- What is not known of a pool's use: hours in gaps, and nodes of which nobody knows where they are. Pure.


def find_hidden(
    pools: Iterable[Pool], pieces: Iterable[MeteredHour], identity: Sequence[str], gaps: Iterable[Gap]
) -> Mapping[str, list[tuple[float, float]]]:
    """By pool: times in which data of a target are missing that uses it in other hours."""
    holes = [gap for gap in gaps if gap.hides_use]
    found: dict[str, list[tuple[float, float]]] = {}
    for pool in pools:
        users = {(one.fleet, one.target) for one in pieces if _is_for(pool, one)} if holes else set()
        found[pool.name] = [(gap.begin, gap.end) for gap in holes if gap.place(identity) in users]
    return found


def is_hidden(times: Iterable[tuple[float, float]], utc_begin: float) -> bool:
    """Whether a UTC hour lies in one of them, in part or as a whole."""
    return any(begin < utc_begin + HOUR_SECONDS and utc_begin < end for begin, end in times)


def _is_for(pool: Pool, piece: MeteredHour) -> bool:
    if pool.kind is not PoolKind.SPEND:
        return covers(pool.use, piece, size_flexible=pool.size_flexible)
    return any(covers(rate.use, piece, size_flexible=pool.size_flexible) for rate in pool.rates)


class Doubts:
    """Whether what is not known of a node is all that keeps a pool from its GPUs."""

    def __init__(self, pools: Iterable[Pool]) -> None:
        self._pools = tuple(pools)
        # by the kind of GPU and the place: thousands of hours have the same
        self._known: dict[tuple[str, str, str, str], bool] = {}

    def has(self, piece: MeteredHour) -> bool:
        """Of any pool."""
        key = piece.gpu_name, piece.region, piece.zone, piece.instance_type
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = any(self._may_be_for(pool, piece) for pool in self._pools)
        return found

    def _may_be_for(self, pool: Pool, piece: MeteredHour) -> bool:
        uses = [pool.use] if pool.kind is not PoolKind.SPEND else [rate.use for rate in pool.rates]
        for use in uses:
            guess = replace(
                piece,
                region=piece.region or use.region or pool.use.region,
                zone=piece.zone or use.zone or pool.use.zone,
                instance_type=piece.instance_type or use.instance_type,
            )
            if guess != piece and covers(use, guess, size_flexible=pool.size_flexible):
                return True
        return False


# --- On-demand load that would fit onto committed GPUs that stand unused: by the hour, and at what is paid on demand. Pure.


class Move(Struct, frozen=True):
    """What one commitment could take over."""

    pool: str
    gpu_hours: float  # of GPUs that ran on demand while as many of it stood unused
    usd: float  # what they cost on demand
    by_card: tuple[tuple[str, float], ...] = ()  # the same GPU-hours by kind of GPU, of those at on-demand rates


def sum_moves(moves: Iterable[Move]) -> dict[str, float]:
    """GPU-hours at on-demand rates that fit onto what is committed already, by kind of GPU."""
    return sum_by_key(item for one in moves for item in one.by_card)


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
    loads: dict[float, list[OpenUse]] = {}
    for one in pieces:
        if one.rate in on_demand and one.gpu_hours > 0:
            key = one.utc_begin, find_card(one.gpu_name)
            taken = min(one.gpu_hours, gone.get(key, 0.0))
            if taken:
                gone[key] -= taken
            loads.setdefault(one.utc_begin, []).append(OpenUse(one, one.gpu_hours - taken))
    for at, each in uses.items():
        loads.setdefault(at, []).extend(OpenUse(use.piece, use.left) for use in each if use.left > 0)
    found = []
    for pool in pools:
        cards = _find_cards(pool, pieces)
        moved: list[tuple[OpenUse, float]] = []
        for at, free in unused.get(pool.name, {}).items():
            own = [one for one in loads.get(at, ()) if one.left > 0 and _is_same_kind(one.piece, pool, cards)]
            # the dearest first: that is what is worth moving
            open_ = free
            for load in sorted(own, key=lambda one: -one.usd_per_gpu_hour):
                taken = min(open_, load.left)
                load.left, open_ = load.left - taken, open_ - taken
                moved.append((load, taken))
        usd = fsum(taken * load.usd_per_gpu_hour for load, taken in moved)
        if usd > 0:
            by_card = sum_by_key(
                (find_card(load.piece.gpu_name), taken) for load, taken in moved if load.piece.rate in on_demand
            )
            found.append(Move(pool.name, fsum(taken for _, taken in moved), usd, tuple(sorted(by_card.items()))))
    return tuple(found)


def _find_cards(pool: Pool, pieces: Iterable[MeteredHour]) -> set[str]:
    """The kinds of GPU that a pool is of: an instance type's are those that its nodes had."""
    if pool.use.gpu_name:
        return {pool.use.gpu_name}
    return {find_card(one.gpu_name) for one in pieces if one.instance_type == pool.use.instance_type and one.gpu_name}


def _is_same_kind(piece: MeteredHour, pool: Pool, cards: Collection[str]) -> bool:
    type_ = piece.instance_type
    return find_card(piece.gpu_name) in cards or (bool(type_) and type_ == pool.use.instance_type)


# --- What giving GPUs back saves at the rate of pools: in each hour first what no pool covers of their kind there. Pure.
#
# A commitment goes over to the GPUs that stay. So of 16 GPUs of which 8 are committed, each of the first 8 that go saves the uncommitted
# price, whichever they are.


# card, region, zone, instance type: one takes over another's commitment
Kind = tuple[str, str, str, str]
# hour of the week, and kind
Slot = tuple[int, Kind]


class PoolCash:
    """USD at the rate of pools that no pool covers, by hour of the week and kind of GPU."""

    def __init__(self, uses: Iterable[OpenUse], week: Week, identity: Iterable[str]) -> None:
        """`uses`: what pools left, () without pools."""
        self._identity = tuple(identity)
        left: list[tuple[Slot, float]] = []
        self._kinds: dict[tuple[Where, str, int], Kind] = {}
        for use in uses:
            piece = use.piece
            # a UTC hour that two hours of the week share counts for the first
            hour = max(0, int((piece.utc_begin - week.begin) // HOUR_SECONDS))
            kind = _find_kind(piece)
            left.append(((hour, kind), use.left * use.usd_per_gpu_hour))
            self._kinds[piece.fleet, piece.target, hour] = kind
        self._open = sum_by_key(left)

    def sum_cost(self, lines: Iterable[Line]) -> dict[Slot, float]:
        """Cost at the rate of pools by hour and kind; `lines` may be at any rate."""
        found: list[tuple[Slot, float]] = []
        for line in lines:
            if not self._open or line.of[1] != RateKind.POOL.value:
                continue
            place = line.owner.place(self._identity)
            for hour, usd in enumerate(line.hours):
                kind = self._kinds.get((*place, hour)) if usd else None
                if kind is not None and usd:
                    found.append(((hour, kind), usd))
        return sum_by_key(found)

    def limit(self, cost: dict[Slot, float]) -> float:
        """The part of such cost that is saved where it falls away alone."""
        return fsum(min(usd, self._open.get(slot, 0.0)) for slot, usd in cost.items())


def _find_kind(piece: MeteredHour) -> Kind:
    return find_card(piece.gpu_name), piece.region, piece.zone, piece.instance_type
