"""What is not known of a pool's use: hours in gaps, and nodes of which nobody knows where they are. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from llm_serving_exporter.model.cost import Pool, PoolKind
from llm_serving_exporter.model.record import replace
from llm_serving_review.evidence.usage import Gap
from llm_serving_review.evidence.week import HOUR_SECONDS
from llm_serving_review.figures.metered_hours import MeteredHour
from llm_serving_review.figures.pool_hours import covers
from llm_serving_review.figures.rates import fleet_of_gauge

# of a gap: less is what a restart loses
_KNOWN_SECONDS = 60.0


def find_hidden(
    pools: Iterable[Pool], pieces: Iterable[MeteredHour], identity: Sequence[str], gaps: Iterable[Gap]
) -> Mapping[str, list[tuple[float, float]]]:
    """By pool: times in which data of a target are missing that uses it in other hours."""
    holes = [gap for gap in gaps if gap.missing_gpu_seconds is None or gap.missing_gpu_seconds > _KNOWN_SECONDS]
    found: dict[str, list[tuple[float, float]]] = {}
    for pool in pools:
        users = {(one.fleet, one.target) for one in pieces if _is_for(pool, one)} if holes else set()
        found[pool.name] = [
            (gap.begin, gap.end) for gap in holes if (fleet_of_gauge(dict(gap.extra), identity), gap.target) in users
        ]
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
