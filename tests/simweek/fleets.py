"""Each scenario as a fleet of its own, named after it: its engines, targets, nodes and what happens to them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TextIO

from llm_serving_exporter.model.cost import Power, PriceBook, PriceStatement, Rate, RateKind, Scope
from llm_serving_exporter.model.record import replace
from llm_serving_simulator.fleet.fleet import Fleet
from llm_serving_simulator.fleet.history import Sample, Watch, usual
from llm_serving_simulator.fleet.scenario import History, Scenario, load
from llm_serving_simulator.fleet.workload import DAY_SECONDS
from tests.simweek.past import USD_PER_GPU_HOUR, past_of
from tests.support.builders.fleet_history import Form, write_history

MINUTE, HOUR = 60.0, 3600.0
# of scenarios that go on for days, the hour that is the end's
_ENDS = {"calm-day": 15 * HOUR, "weekend-idle": DAY_SECONDS + 10 * HOUR}
_USUAL_HOUR = 3 * HOUR
# scenarios that say so themselves need baselines
_BASELINE_DAYS = 3.0
RATES = (
    Rate("reserved", RateKind.RESERVED, includes_power=True, committed_gpus=40),
    Rate("owned", RateKind.OWNED, includes_power=False),
)


@dataclass(frozen=True)
class Part:
    """A scenario that ends at `end_unix_seconds`, recorded for that many seconds; what it is too short for is calm."""

    name: str
    end_unix_seconds: float
    seconds: float

    @property
    def scenario(self) -> Scenario:
        """With names of its own."""
        return named(within(load(self.name), self.seconds))

    def past(self, begin_unix_seconds: float) -> Iterator[str]:
        """Lines for VictoriaMetrics, a sample a minute, up to that moment; none where the scenario needs no baselines."""
        scenario = self.scenario
        if scenario.history is None or scenario.history.days < _BASELINE_DAYS:
            return iter(())
        return past_of(usual(scenario), scenario.rate, self.seconds - scenario.duration_seconds, begin_unix_seconds)

    def write(self, out: TextIO, wanted: frozenset[str]) -> None:
        """Lines for VictoriaMetrics, a sample a minute."""
        self._simulate(out, wanted)

    def plan_faults(self, fleet: Fleet, watch: Watch, end_seconds: float) -> None:
        """What else befalls it than its scenario says, up to its last second: nothing."""

    def say_exporter(self) -> Iterator[Sample]:
        """What its exporter says of itself at each moment: nothing, that is one of `others`."""
        return iter(())

    def _simulate(self, out: TextIO, wanted: frozenset[str], earlier_seconds: float = 0.0) -> None:
        """Begins so much earlier than it is recorded."""
        scenario = self.scenario
        before = self.seconds - scenario.duration_seconds + earlier_seconds
        factor = scenario.history.factor if scenario.history else 1.0
        # a quarter of an hour more, in which queues and caches come to what is usual
        settled = replace(scenario, history=History((before + 15 * MINUTE) / DAY_SECONDS, factor))
        begin = settled.begin_seconds(with_history=True)
        epoch = self.end_unix_seconds - begin - scenario.duration_seconds
        fleet = settled.fleet(with_history=True, epoch_unix_seconds=epoch)
        fleet.advance(15 * MINUTE)
        watch = _watch(fleet, scenario, wanted)
        end = begin + scenario.duration_seconds
        self.plan_faults(fleet, watch, end)
        write_history(
            fleet,
            watch,
            out,
            until_seconds=end,
            interval_seconds=MINUTE,
            form=Form.VICTORIAMETRICS,
            labels={"job": "llm-serving", "instance": f"{self.name}:10077"},
            more=lambda _at, _samples: tuple(self.say_exporter()),
        )


def _watch(fleet: Fleet, scenario: Scenario, wanted: frozenset[str]) -> Watch:
    return Watch(
        fleet,
        interval_seconds=MINUTE,
        wanted=wanted,
        slo=scenario.slo,
        expected_replicas=scenario.expected_replicas,
        gpus=True,
        prices=prices(scenario),
    )


def within(scenario: Scenario, seconds: float) -> Scenario:
    """No longer than that: of a scenario of days, the hours before its most telling one."""
    if scenario.duration_seconds <= seconds:
        return scenario
    eventful = (*scenario.events, *scenario.rate.steps, *scenario.rate.bursts)
    assert eventful == (), scenario.name
    kept = min(seconds, _USUAL_HOUR)
    daily = scenario.rate.daily
    begins = daily.begins_seconds + _ENDS[scenario.name] - kept
    return replace(
        scenario, rate=replace(scenario.rate, daily=replace(daily, begins_seconds=begins)), duration_seconds=kept
    )


def named(scenario: Scenario) -> Scenario:
    """Its model, replicas and nodes bear its name, so that no two scenarios share one."""

    def own(name: str) -> str:
        kind, _, number = name.rpartition("-")
        return f"{scenario.name}-{'n' if kind == 'node' else ''}{number}"

    return replace(
        scenario,
        replicas=tuple(
            replace(
                one,
                name=own(one.name),
                nodes=tuple(map(own, one.nodes)),
                engine=replace(one.engine, alias=scenario.name),
            )
            for one in scenario.replicas
        ),
        events=tuple(
            replace(
                event,
                node=own(event.node) if event.node else "",
                replicas=None if event.replicas is None else tuple(map(own, event.replicas)),
            )
            for event in scenario.events
        ),
    )


def prices(scenario: Scenario) -> PriceBook:
    """What GPUs cost at two rates, with a budget."""
    statements = tuple(
        PriceStatement(Scope.GPU_MODEL, kind, USD_PER_GPU_HOUR, "reserved")
        for kind in sorted({replica.engine.gpu_spec.name for replica in scenario.replicas})
    )
    return PriceBook(statements, RATES, Power(0.12, 1.3, 350.0), budget_usd_per_month=90_000.0)
