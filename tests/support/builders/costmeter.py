"""A cost meter on a bench: a target of two GPUs whose second costs a USD, and ticks of five seconds."""

from typing import Any

from llm_serving_exporter.cost.meter import CostMeter
from llm_serving_exporter.cost.terms import Terms
from llm_serving_exporter.model.cost import (
    Attribution,
    Power,
    PriceBook,
    PriceStatement,
    Rate,
    RateKind,
    Scope,
    TargetCost,
    TickWork,
)
from llm_serving_exporter.model.derived import Derived, EngineDerived
from llm_serving_exporter.model.gpu import GpuReadings
from llm_serving_exporter.model.hardware import TargetGpus
from llm_serving_exporter.model.reading import State
from llm_serving_exporter.model.snapshot import EngineSnapshot, Snapshot
from llm_serving_exporter.model.target import Target
from tests.support.builders.target_readings import change_reading, make_reading

# 3600 USD an hour: a USD a GPU second; twice that from second 1000 on
BOOK = PriceBook(
    (
        PriceStatement(Scope.GPU_MODEL, "H100", 3600.0, "owned"),
        PriceStatement(Scope.GPU_MODEL, "H100", 7200.0, "owned", 1000.0),
    ),
    (Rate("owned", RateKind.OWNED, includes_power=False),),
    Power(0.36, 1.0, 1000.0),
)
TERMS = Terms(BOOK, Attribution(), 60.0)
TARGET = Target("t", "http://h:8000", nodes=("a",), interval_seconds=5.0)
WORKED = TickWork(True, {"prefill": 1.0, "decode": 3.0}, 100.0, 10.0, cached_seconds=0.5)


def page(at: float, tick: TickWork | None, *names: str, **counters: float) -> dict[str, Any]:
    """A good page with one engine of each name, all of which did the same."""
    every = names or ("m",)
    engines = tuple(EngineSnapshot(name, "0", requests_running=1.0, **counters) for name in every)
    derived = Derived(tuple(EngineDerived(name, "0", tick=tick) for name in every), 60.0, {}, {})
    return {"up": True, "state": State.READY, "snapshot": Snapshot(engines, "vllm", at, at), "derivation": derived}


class Bench:
    """A meter whose ticks are five seconds apart."""

    def __init__(self, terms: Terms = TERMS, **reading: Any) -> None:
        self.meter, self.terms, self.now = CostMeter(), terms, 0.0
        self.reading = make_reading(TARGET, total=TargetGpus(2, "H100"), **reading)

    def tick(self, *, seconds: float = 5.0, gpus: GpuReadings | None = None, **changes: Any) -> TargetCost:
        self.now += seconds
        self.reading = change_reading(self.reading, **changes)
        return self.meter.advance(self.reading, gpus, self.terms, monotonic=self.now, unix=self.now)

    def work(self, tick: TickWork | None = WORKED, *names: str, **counters: float) -> TargetCost:
        return self.tick(**page(self.now + 5, tick, *names, **counters))


def usd(found: TargetCost, name: str = "m") -> dict[str, float]:
    totals = next(one.totals for one in found.engines if one.model_name == name)
    return {phase: amount for (phase, _, _), amount in totals.usd.items() if amount}


def seconds(found: TargetCost, name: str = "m") -> dict[str, float]:
    totals = next(one.totals for one in found.engines if one.model_name == name)
    return {state: amount for (state, _), amount in totals.gpu_seconds.items() if amount}
