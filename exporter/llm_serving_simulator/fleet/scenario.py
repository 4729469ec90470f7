"""A scenario: a fleet, what it is asked for, what happens to it, and which alerts that must raise."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from llm_serving_exporter.model.record import Struct, field, replace
from llm_serving_simulator.fleet.fleet import Fleet
from llm_serving_simulator.fleet.rate import DAY_SECONDS, Profile, Step
from llm_serving_simulator.fleet.replica import ReplicaSpec
from llm_serving_simulator.fleet.workload import Mix, PoissonWorkload


class Event(Struct, frozen=True):
    """Something that is done at a time of the scenario."""

    at_seconds: float  # of the scenario
    what: str  # one of `ACTIONS`, which says which of the others count
    node: str = ""  # that it happens to
    replicas: tuple[str, ...] | None = None  # that it happens to; None: all of them
    value: float = 0.0  # factor, rate or seconds, by `what`


class Alert(Struct, frozen=True):
    """An alert that must fire."""

    name: str  # without its prefix
    after_seconds: float = 0.0  # of the scenario: not before
    within_seconds: float | None = None  # after `after_seconds`; None: at any time after it


class Chapter(Struct, frozen=True):
    """What somebody who looks on is told."""

    at_seconds: float  # of the scenario
    says: str  # a sentence or two


class History(Struct, frozen=True):
    """Load before the scenario begins, for baselines: the same workload without its steps, bursts and changes."""

    days: float  # before the scenario
    factor: float = 1.0  # of the rate

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.days * DAY_SECONDS


class Slo(Struct, frozen=True):
    """Thresholds that the exporter beside the fleet is given; None: none."""

    ttft: float | None = None  # seconds
    itl: float | None = None  # seconds
    e2e: float | None = None  # seconds


def _each(call: Callable[[Fleet, str], None], fleet: Fleet, event: Event) -> None:
    for name in fleet.replicas if event.replicas is None else event.replicas:
        call(fleet, name)


ACTIONS: dict[str, Callable[[Fleet, Event], None]] = {
    "lose-node": lambda fleet, event: fleet.lose_node(event.node),
    "return-node": lambda fleet, event: fleet.return_node(event.node),
    "restart": partial(_each, Fleet.restart),
    "hang": lambda fleet, event: fleet.hang(event.replicas),
    "resume": lambda fleet, event: fleet.resume(event.replicas),
    "slow": lambda fleet, event: fleet.slow_down(event.value, event.replicas),
    "throttle": lambda fleet, event: fleet.throttle(event.value, event.replicas),
    "delay-first-tokens": lambda fleet, event: fleet.delay_first_tokens(event.value, event.replicas),
    "cut-off": lambda fleet, event: fleet.cut_off(event.replicas),
    "reconnect": lambda fleet, event: fleet.reconnect(event.replicas),
    "upgrade": lambda fleet, event: fleet.upgrade(event.replicas),
    "errors": lambda fleet, event: fleet.fail(event.value, event.replicas),
    "scale": lambda fleet, event: fleet.scale(int(event.value)),
    "rolling-update": lambda fleet, event: fleet.rolling_update(),
    "prefix-cache-reset": lambda fleet, event: fleet.reset_prefix_cache(event.replicas),
    "prefix-cache-off": lambda fleet, event: fleet.look_up_prefixes(False, event.replicas),
    "prefix-cache-on": lambda fleet, event: fleet.look_up_prefixes(True, event.replicas),
}
# which key of the file an action's value stands under
VALUES = {"slow": "factor", "throttle": "factor", "delay-first-tokens": "seconds", "errors": "share", "scale": "to"}
OF_NODES = frozenset({"lose-node", "return-node"})
OF_REPLICAS = frozenset(ACTIONS) - OF_NODES - {"scale", "rolling-update"}


class Scenario(Struct, frozen=True):
    """A fleet, its load, and what happens to it. Times are seconds from the scenario's beginning."""

    name: str  # as on the command line
    summary: str  # one line
    duration_seconds: float  # of simulated time
    replicas: tuple[ReplicaSpec, ...]  # all that there ever are
    rate: Profile  # of requests
    mixes: tuple[Mix, ...]  # what requests are like, in order of time
    seed: int = 1  # of every random number
    retry: bool = False  # whether requests of a lost replica are sent again
    ready: int | None = None  # replicas that serve at first; None: all of them
    events: tuple[Event, ...] = ()  # in order of time
    slo: Slo = field(default_factory=Slo)  # objectives of the exporter beside it
    expected_replicas: int | None = None  # that the exporter is configured to expect; None: nothing
    history: History | None = None  # None: none
    alerts: tuple[Alert, ...] = ()  # that must fire
    story: tuple[Chapter, ...] = ()  # in order of time

    def fleet(self, *, with_history: bool = False, epoch_unix_seconds: float = 0.0, seed: int | None = None) -> Fleet:
        """The fleet at its first second. With history the scenario begins after that many seconds: see `begin_seconds`."""
        begin = self.begin_seconds(with_history=with_history)
        workload = PoissonWorkload(
            self._rate(begin), [self._shifted(mix, begin) for mix in self.mixes], self.seed if seed is None else seed
        )
        fleet = Fleet(
            self.replicas, workload, retry=self.retry, ready=self.ready, epoch_unix_seconds=epoch_unix_seconds
        )
        for event in self.events:
            fleet.call_at(begin + event.at_seconds, partial(ACTIONS[event.what], fleet, event))
        return fleet

    def begin_seconds(self, *, with_history: bool) -> float:
        """The fleet's second at which the scenario begins."""
        return self.history.seconds if with_history and self.history is not None else 0.0

    def _rate(self, begin: float) -> Profile:
        rate = self.rate
        if not begin or self.history is None:
            return rate
        first = () if rate.steps and rate.steps[0].at_seconds <= 0 else (Step(begin, 1.0),)
        shifted = (replace(step, at_seconds=begin + step.at_seconds) for step in rate.steps)
        return replace(
            rate,
            daily=replace(rate.daily, begins_seconds=rate.daily.begins_seconds - begin),
            steps=(Step(0.0, self.history.factor), *first, *shifted),
            bursts=tuple(replace(burst, at_seconds=begin + burst.at_seconds) for burst in rate.bursts),
        )

    @staticmethod
    def _shifted(mix: Mix, begin: float) -> Mix:
        return replace(mix, from_seconds=begin + mix.from_seconds) if mix.from_seconds else mix
