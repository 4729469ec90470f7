"""Two weeks in which targets come, go, are scaled by day, move and change their price, as a Prometheus would have recorded them.

One central exporter outlives its targets: its own series say which it had. Sidecars go with their pods: `up` of theirs ends. All rates are
steady while a target is there, so that every sum is hours x GPUs x USD, by hand.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tests.support.builders.costfortnight import HOUR, TICK, Recorded

WEEK = 168.0
CENTRAL = "central:10077"

# USD per GPU-hour by kind and rate: last week, and this week
PRICES = {
    ("H100", "reserved"): (2.0, 1.9),
    ("H100", "on-demand"): (4.0, 4.0),
    ("L40S", "on-demand"): (1.2, 1.2),
    ("A100", "spot"): (1.0, 1.0),
}
KINDS = {"reserved": "reserved", "on-demand": "on_demand", "spot": "spot"}


@dataclass(frozen=True)
class Moving:
    """A target. Times in hours since Monday of the second week's midnight."""

    name: str
    model: str
    gpu: str
    gpus: int
    # the rate in the first week and in the second
    rates: tuple[str, str]
    node: str = "n1"
    begin: float = -WEEK
    end: float = WEEK
    # hours of each day in which it is there
    day: tuple[float, float] = (0.0, 24.0)
    # whether it has an exporter of its own, which goes with it
    sidecar: bool = False
    # when scrapes of its exporter fail
    dead: tuple[float, float] = (0.0, 0.0)
    # share of its time that is busy, and tokens a second of each kind, in the first week and in the second
    busy: tuple[float, float] = (0.5, 0.5)
    tokens: tuple[float, float] = (100.0, 100.0)
    # the Deployment that it belongs to; "" for none
    workload: str = ""

    def is_there(self, hour: float) -> bool:
        return self.begin <= hour <= self.end and (self.day == (0.0, 24.0) or self.day[0] <= hour % 24 <= self.day[1])

    def hours(self, week: int) -> float:
        """For how long it is there and counted in the first week (0) or the second (1), by hand."""
        first, last = (-WEEK, 0.0) if week == 0 else (0.0, WEEK)
        length = max(0.0, min(self.end, last) - max(self.begin, first))
        dead = max(0.0, min(self.dead[1], last) - max(self.dead[0], first))
        return length * (self.day[1] - self.day[0]) / 24 - dead

    def price(self, week: int) -> float:
        return PRICES[self.gpu, self.rates[week]][week]

    def usd(self, week: int) -> float:
        return self.hours(week) * self.gpus * self.price(week)


TARGETS = (
    Moving("steady:8000", "m-large", "H100", 2, ("reserved", "reserved"), tokens=(100.0, 120.0)),
    # removed from the central exporter on Wednesday noon
    Moving("leaver:8000", "m-large", "H100", 1, ("on-demand", "on-demand"), end=60.0),
    Moving("newcomer:8000", "m-new", "H100", 1, ("on-demand", "on-demand"), begin=30.0),
    Moving("rated:8000", "m-rate", "H100", 1, ("on-demand", "reserved"), node="n2"),
    Moving("day:8000", "m-day", "A100", 1, ("spot", "spot"), day=(8.0, 20.0), busy=(0.5, 0.6)),
    Moving("side-day:8000", "m-side", "A100", 1, ("spot", "spot"), day=(8.0, 20.0), sidecar=True),
    # moves from two replicas on H100 to two on L40S, under other names
    *(
        Moving(
            f"old-{number}:8000", "m-move", "H100", 2, ("on-demand", "on-demand"), end=0.0, sidecar=True,
            workload="move", node="n3",
        )
        for number in range(2)
    ),
    *(
        Moving(
            f"new-{number}:8000", "m-move", "L40S", 2, ("on-demand", "on-demand"), begin=0.0, sidecar=True,
            workload="move", node="n4",
        )
        for number in range(2)
    ),
    # its exporter is dead for three hours: the only gap
    Moving("dark:8000", "m-dark", "H100", 1, ("reserved", "reserved"), sidecar=True, dead=(100.0, 103.0)),
)  # fmt: skip


class MovedFortnight(Recorded):
    """`with_up`: whether `up` is kept."""

    def __init__(self, monday: float, targets: tuple[Moving, ...] = TARGETS, *, with_up: bool = True) -> None:
        super().__init__(monday)
        self.targets, self.with_up = targets, with_up
        self._record_central()
        for target in targets:
            self._record(target)

    def _record_central(self) -> None:
        scrape = {"job": "llm", "instance": CENTRAL}
        for hour in _ticks():
            held = sum(target.is_there(hour) for target in self.targets if not target.sidecar)
            self.put("llm_serving_exporter_targets", hour, held, state="held", **scrape)
            if self.with_up:
                self.put("up", hour, 1, **scrape)
            if round(hour * HOUR) % HOUR > TICK:
                continue
            for rate, kind in KINDS.items():
                self.put("llm_serving_rate_info", hour, 1, rate=rate, kind=kind, includes_power="true", **scrape)

    def _record(self, target: Moving) -> None:
        instance = f"{target.name.partition(':')[0]}:10077" if target.sidecar else CENTRAL
        scrape = {"job": "pods" if target.sidecar else "llm", "instance": instance}
        own = {"target": target.name, "model_name": target.model, "role": "unified"}
        counted: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        was_there = False
        for hour in _ticks():
            if not target.is_there(hour):
                counted.clear()
                was_there = False
                continue
            dead = target.dead[0] < hour < target.dead[1]
            if target.sidecar and self.with_up:
                self.put("up", hour, 0 if dead else 1, **scrape)
            if dead:
                counted.clear()
                was_there = False
                continue
            # a tick's growth is that of the time before it
            week = 0 if hour <= 0 else 1
            for key, value in _grow(target, week):
                counted[key] = counted.get(key, 0.0) + (value if was_there else 0.0)
            was_there = True
            for (name, more), value in counted.items():
                self.put(name, hour, value, **own, engine="0", **dict(more), **scrape)
            rate = target.rates[week]
            where = {"target": target.name, "gpu_name": target.gpu, **scrape}
            self.put("llm_serving_gpu_price_usd_per_hour", hour, target.price(week), rate=rate, **where)
            self.put("llm_serving_target_gpus", hour, target.gpus, **where)
            # asked for over an hour
            if round(hour * HOUR) % HOUR > TICK:
                continue
            identity = {"workload": target.workload, "workload_kind": "Deployment", "namespace": "llm"}
            self.put("llm_serving_target_info", hour, 1, **own, **(identity if target.workload else {}), **scrape)
            self.put("llm_serving_target_node_info", hour, 1, **own, node=target.node, **scrape)


def _grow(target: Moving, week: int) -> Iterator[tuple[tuple[str, tuple[tuple[str, str], ...]], float]]:
    """What a tick adds to each counter."""
    rate, busy = ("rate", target.rates[week]), target.busy[week]
    seconds = TICK * target.gpus
    for state, share in (("busy", busy), ("idle", 1 - busy)):
        yield ("llm_serving_gpu_seconds_total", (("state", state), rate)), share * seconds
    for phase, share in (("prefill", 0.25 * busy), ("decode", 0.75 * busy), ("idle", 1 - busy)):
        labels = ("phase", phase), rate, ("method", "roofline")
        yield ("llm_serving_cost_usd_total", labels), share * seconds / HOUR * target.price(week)
    for name, times in (("prefill", 3.0), ("decode", 1.0)):
        yield (f"llm_serving_{name}_tokens_total", ()), times * target.tokens[week] * TICK


def _ticks() -> Iterator[float]:
    for number in range(round(2 * WEEK * HOUR / TICK) + 1):
        yield -WEEK + number * TICK / HOUR
