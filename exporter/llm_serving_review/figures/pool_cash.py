"""What giving GPUs back saves at the rate of pools: in each hour first what no pool covers of their kind there. Pure.

A commitment goes over to the GPUs that stay. So of 16 GPUs of which 8 are committed, each of the first 8 that go saves the uncommitted
price, whichever they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import fsum

from llm_serving_exporter.model.cost import RateKind
from llm_serving_review.evidence.usage import Line
from llm_serving_review.evidence.week import HOUR_SECONDS, Week
from llm_serving_review.figures.metered_hours import MeteredHour
from llm_serving_review.figures.pool_hours import OpenUse, find_card
from llm_serving_review.figures.rates import Where, fleet_of_owner
from llm_serving_review.tables.sums import sum_by_key

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
            fleet = fleet_of_owner(line.owner, self._identity)
            for hour, usd in enumerate(line.hours):
                kind = self._kinds.get((fleet, line.owner.target, hour)) if usd else None
                if kind is not None and usd:
                    found.append(((hour, kind), usd))
        return sum_by_key(found)

    def limit(self, cost: dict[Slot, float]) -> float:
        """The part of such cost that is saved where it falls away alone."""
        return fsum(min(usd, self._open.get(slot, 0.0)) for slot, usd in cost.items())


def _find_kind(piece: MeteredHour) -> Kind:
    return find_card(piece.gpu_name), piece.region, piece.zone, piece.instance_type
