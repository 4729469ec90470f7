"""Pools over the GPU-hours of one UTC hour: what each covers, and what of it is left over. Pure.

Windows apply first, then quantities, then spends, and pools of one kind in the order of the price file. So clouds do it: AWS applies
savings plans to what reserved instances leave, and capacity blocks are paid in advance and take no other discount. A spend goes to the use
with the highest discount first, and of equal ones to the lowest committed price
(https://docs.aws.amazon.com/savingsplans/latest/userguide/sp-applying.html).

Whatever a pool covers of a kind is spread over its users by their GPU-hours.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import fsum

from llm_serving_exporter.model.cost import Pool, PoolKind, PoolUse
from llm_serving_exporter.model.record import Struct
from llm_serving_review.evidence.week import HOUR_SECONDS
from llm_serving_review.figures.metered_hours import MeteredHour

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
