"""Simulated fleets for tests: a small one, scenarios played to a minute, and the real pipeline reading one over HTTP in simulated time."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.settings.config import Config
from llm_serving_exporter.targets.host import TargetHost
from llm_serving_simulator.fleet.books import Truth
from llm_serving_simulator.fleet.fleet import Fleet, ReplicaSpec
from llm_serving_simulator.fleet.scenario import Scenario
from llm_serving_simulator.fleet.server import FleetServer, ScaledClock
from llm_serving_simulator.fleet.spec import EngineSpec
from llm_serving_simulator.fleet.workload import DAY_SECONDS, Lengths, Mix, PoissonWorkload, Prefixes, Profile, Request

EPOCH = 1_800_000_000.0
MINUTE, HOUR = 60.0, 3600.0
MIX = Mix(Lengths(500), Lengths(150, most=1000), Prefixes(0.5, 4, 512))


class TraceWorkload:
    """Requests in order of their times."""

    def __init__(self, requests: Iterable[Request]) -> None:
        self._requests = sorted(requests, key=lambda request: request.at_seconds)

    def requests(self) -> Iterator[Request]:
        return iter(self._requests)


def starting(scenario: Scenario, hour: float, weekday: int = 2) -> Scenario:
    """The same from another hour of the week on."""
    daily = replace(scenario.rate.daily, begins_seconds=weekday * DAY_SECONDS + hour * HOUR)
    return replace(scenario, rate=replace(scenario.rate, daily=daily))


def minutes(fleet: Fleet, begin: float, end: float, step: float = 0.25) -> Iterator[float]:
    """The fleet at each quarter of a minute from `begin` to `end`, in minutes."""
    at = begin
    while at <= end:
        fleet.advance(at * MINUTE)
        yield at
        at += step


def truth(fleet: Fleet, begin: float, end: float) -> Truth:
    fleet.advance(end * MINUTE)
    return fleet.truth(begin * MINUTE, end * MINUTE)


def p99(found: Truth) -> float:
    value = found.ttft_quantile_seconds(0.99)
    assert value is not None
    return value


class HandClock(ScaledClock):
    """A simulated clock that a test moves."""

    def __init__(self) -> None:
        super().__init__(1.0, EPOCH)
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


def small_fleet(replicas: int = 1, *, rate: float = 3.0, seed: int = 1, **engine: Any) -> Fleet:
    spec = EngineSpec(**{"loading_seconds": 30.0, **engine})
    specs = [ReplicaSpec(f"r{number}", (f"n{number}",), spec) for number in range(replicas)]
    return Fleet(specs, PoissonWorkload(Profile(rate), [MIX], seed), epoch_unix_seconds=EPOCH)


@dataclass
class Watched:
    """A fleet behind HTTP and a host that reads every replica."""

    fleet: Fleet
    server: FleetServer
    clock: HandClock
    host: TargetHost

    def tick(self, seconds: float = 10.0) -> dict[str, TargetReading]:
        """Time goes on, and every target is read once."""
        self.clock.seconds += seconds
        found = {}
        for name, hosted in self.host.targets.items():
            found[name] = hosted.tick()
            hosted.refresh_facts()
        return found


@contextmanager
def watched(fleet: Fleet, **target: Any) -> Iterator[Watched]:
    clock = HandClock()
    host = TargetHost(Config(targets=()), monotonic=clock.monotonic, wall=clock.wall)
    with FleetServer(fleet, clock=clock) as server:
        for name, replica in fleet.replicas.items():
            spec = replica.spec.engine
            one = Target(name, server.url(name), gpu_model=spec.gpu, gpu_count=spec.gpus, **target)
            host.add_target(one)
        host.settle_targets()
        try:
            yield Watched(fleet, server, clock, host)
        finally:
            host.close()
