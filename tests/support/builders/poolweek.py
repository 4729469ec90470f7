"""GPU time of a few hours and the pools over it, made by hand, so that each sum can be worked out on paper."""

from __future__ import annotations

from collections.abc import Mapping
from zoneinfo import ZoneInfo

from llm_serving_exporter.model.cost import Pool, PoolBook
from llm_serving_exporter.model.target import NodePlace
from llm_serving_review.evidence.usage import Book, Evidence, Gap, Gauge, Line, Owner, Usage
from llm_serving_review.evidence.week import Week, parse_week, week_before
from llm_serving_review.figures.pools import Pools, measure_pools

H100, L4 = "H100 SXM 80GB", "L4 24GB"
P5, EAST_A = "p5.48xlarge", NodePlace("us-east-1", "us-east-1a", "p5.48xlarge")


class PoolWeek:
    """Targets with their GPUs by hour of the week; hours that are not named have no data."""

    def __init__(self, zone: str = "UTC", name: str = "2026-W46") -> None:
        self.week: Week = parse_week(name, ZoneInfo(zone))
        self._cost: list[Line] = []
        self._seconds: list[Line] = []
        self._prices: list[Gauge] = []
        self._nodes: list[Gauge] = []
        self._places: list[Gauge] = []

    def add(
        self,
        target: str,
        gpus: Mapping[int, float],
        price: float = 4.0,
        *,
        model: str = "m",
        rate: str = "pool",
        gpu_name: str = H100,
        place: NodePlace = EAST_A,
    ) -> None:
        """A target on a node of its own name, in these hours, at this price an hour and GPU."""
        owner = Owner((), target, model, "unified")
        hours = range(len(self.week.hours))
        there = tuple(1.0 if hour in gpus else None for hour in hours)
        self._seconds.append(Line(owner, ("busy", rate), tuple(gpus[h] * 3600 if h in gpus else None for h in hours)))
        self._cost.append(
            Line(owner, ("decode", rate, "flat"), tuple(gpus[h] * price if h in gpus else None for h in hours))
        )
        self._prices.append(
            Gauge(
                {"target": target, "gpu_name": gpu_name, "rate": rate},
                tuple(price if h in gpus else None for h in hours),
            )
        )
        node = {"target": target, "node": f"node-of-{target}"}
        self._nodes.append(Gauge(node, there))
        of = {
            "region": place.region,
            "zone": place.zone,
            "instance_type": place.instance_type,
            "provider_id": place.provider_id,
        }
        self._places.append(Gauge({**node, **of}, there))

    def book_late(self, target: str, hour: int, share: float) -> None:
        """Books a share of a target's cost of an hour in the next one."""
        for index, line in enumerate(self._cost):
            if line.owner.target == target:
                hours = list(line.hours)
                moved = (hours[hour] or 0.0) * share
                hours[hour], hours[hour + 1] = (hours[hour] or 0.0) - moved, (hours[hour + 1] or 0.0) + moved
                self._cost[index] = Line(line.owner, line.of, tuple(hours))

    @property
    def usage(self) -> Usage:
        """What counters grew by."""
        return Usage(cost=tuple(self._cost), gpu_seconds=tuple(self._seconds))

    @property
    def book(self) -> Book:
        """Prices, rates, nodes and places."""
        kinds = ("pool", "on_demand", "reserved")
        return Book(
            prices=tuple(self._prices),
            nodes=tuple(self._nodes),
            places=tuple(self._places),
            rates={kind: kind for kind in kinds},
        )

    def measure(self, *pools: Pool, gaps: tuple[Gap, ...] = (), begins: int = 0) -> Pools:
        """The pools over the week. They must be in force in it."""
        found = measure_pools(self.usage, self.book, self.week, PoolBook(pools), (), gaps, begins)
        assert found is not None
        return found

    def evidence(self, *pools: Pool, before: PoolWeek | None = None, gaps: tuple[Gap, ...] = ()) -> Evidence:
        """The same as evidence of a review."""
        zone = ZoneInfo(self.week.zone)
        earlier = before.usage if before is not None else Usage()
        return Evidence(
            self.week,
            week_before(self.week, zone),
            self.usage,
            earlier,
            self.book,
            gaps=gaps,
            book_before=before.book if before is not None else Book(),
            pools=PoolBook(pools) if pools else None,
        )
