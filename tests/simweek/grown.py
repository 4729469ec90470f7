"""Fleets of any size: a few replicas of each model are simulated, the others do the same some minutes later under names of their own."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TextIO, cast

from llm_serving_exporter import __version__
from llm_serving_exporter.model.record import replace
from llm_serving_simulator.fleet.fleet import Fleet, ReplicaSpec
from llm_serving_simulator.fleet.history import SHORT, Sample, Watch, usual
from llm_serving_simulator.fleet.scenario import Event, Scenario, load
from tests.simweek.fleets import MINUTE, Part, named, within
from tests.simweek.past import past_of
from tests.support.builders.sample_lines import split_sample

# replicas of a model that are simulated
SIMULATED = 6
NAMES = (
    "llama-3.1-8b", "qwen3-8b", "ministral-8b", "gemma-3-12b", "granite-4-8b", "phi-5-mini", "olmo-3-7b", "falcon-h1-7b",
    "glm-4-9b", "nemotron-nano-9b", "command-r7b", "exaone-4-8b", "apertus-8b", "smollm3-8b", "internlm4-8b", "yi-2-9b",
)  # fmt: skip
_GPUS = ("H100 SXM", "H100 SXM", "H200 SXM")
# so long before the end, when they still go on: what is looked at first are the last minutes
_FLOOD_SECONDS, _LOSS_SECONDS, _SLOW_SECONDS = 30 * MINUTE, 40 * MINUTE, 50 * MINUTE
_CARD_SECONDS, _SILENT_SECONDS = 35 * MINUTE, 25 * MINUTE
_CARD = re.compile(r'gpu="GPU-\w{,4}')
# the replica whose card fails
_CARD_OF = 1


def grown(models: int, replicas: int, end_unix_seconds: float, seconds: float) -> tuple[Part, ...]:
    """So many models with so many replicas each."""
    return tuple(
        Grown(NAMES[one] if one < len(NAMES) else f"model-{one}", end_unix_seconds, seconds, one, models, replicas)
        for one in range(models)
    )


@dataclass(frozen=True)
class Grown(Part):
    """Model `number` of `models`, each with its own exporter. Of six and more, the second has a flood of long prompts, the third loses a
    node, one replica of the fourth is slow, a card of the fifth fails, and the sixth's exporter does not answer. The others are calm."""

    number: int
    models: int
    replicas: int

    @property
    def _fault(self) -> int:
        return self.number if self.models >= 6 else 0

    @property
    def scenario(self) -> Scenario:
        """Of the replicas that are simulated."""
        made = _story(self._fault, self.seconds)
        count = min(SIMULATED, self.replicas)
        engine = replace(made.replicas[0].engine, gpu=_GPUS[self.number % len(_GPUS)])
        # no two models have the same traffic
        base = made.rate.base * count / len(made.replicas) * (1 - 0.06 * (self.number % 7))
        return named(
            replace(
                made,
                name=self.name,
                seed=self.number + 1,
                replicas=tuple(ReplicaSpec(f"replica-{one}", (f"node-{one}",), engine) for one in range(count)),
                rate=replace(made.rate, base=base),
                expected_replicas=self.replicas,
            )
        )

    def past(self, begin_unix_seconds: float) -> Iterator[str]:
        """Of all replicas."""
        scenario = self.scenario
        known = replace(usual(scenario, SHORT), replicas=self.replicas, wanted=self.replicas)
        rate = replace(scenario.rate, base=scenario.rate.base * self.replicas / len(scenario.replicas))
        return past_of(known, rate, self.seconds - scenario.duration_seconds, begin_unix_seconds)

    def plan_faults(self, fleet: Fleet, watch: Watch, end_seconds: float) -> None:
        """A card of the fifth."""
        if self._fault == 4:
            fleet.call_at(end_seconds - _CARD_SECONDS, lambda: watch.fail_gpu(f"{self.name}-{_CARD_OF}", 0))

    def say_exporter(self) -> Iterator[Sample]:
        """That it is there."""
        yield "up", {}, 1.0
        yield "llm_serving_exporter_build_info", {"version": __version__, "python_version": "3.11.7"}, 1.0
        yield "llm_serving_nvml_up", {}, 1.0

    def write(self, out: TextIO, wanted: frozenset[str]) -> None:
        """Of all replicas."""
        if self._fault == 5:
            out = cast(TextIO, _Silent(out, self.end_unix_seconds - _SILENT_SECONDS))
        copier = Copier(self.scenario, self.replicas, out, {f"{self.name}-{_CARD_OF}"} if self._fault == 4 else set())
        self._simulate(cast(TextIO, copier), wanted, copier.latest_minutes * MINUTE)


@dataclass(frozen=True)
class _Silent:
    """What an exporter exports up to a moment; from then on Prometheus knows only that it does not answer."""

    out: TextIO
    until_unix_seconds: float

    def write(self, text: str) -> None:
        """All lines of a minute, or of one replica in it."""
        stamp = split_sample(text.partition("\n")[0]).stamp
        if float(stamp) < self.until_unix_seconds * 1000:
            self.out.write(text)
            return
        up = re.search(r"^up\{.*?\} ", text, re.MULTILINE)
        if up is not None:
            self.out.write(f"{up[0]}0.0 {stamp}\n")


class Copier:
    """What is written to it, a minute at a time, goes on to `out` once for each replica: the first as they are, the others as one of those
    that nothing happened to, some minutes ago. Nothing is written before there is something for the latest of them.

    `ill`: those that something happens to beside the scenario's events.
    """

    def __init__(self, scenario: Scenario, replicas: int, out: TextIO, ill: Collection[str] = ()) -> None:
        own = [one.name for one in scenario.replicas]
        struck = {*ill, *(name for event in scenario.events for name in event.replicas or ())}
        struck |= {one.name for one in scenario.replicas for event in scenario.events if event.node in one.nodes}
        whole = [number for number, name in enumerate(own) if name not in struck]
        copies = range(len(own), replicas)
        # number, whose copy it is, and how many minutes late
        self._copies = [(copy, whole[at % len(whole)], at // len(whole) + 1) for at, copy in enumerate(copies)]
        self.latest_minutes = max((late for _, _, late in self._copies), default=0)
        self._name, self._out, self._count = scenario.name, out, len(own)
        self._of = re.compile(rf'="{re.escape(scenario.name)}-n?(\d+)"')
        self._minutes: deque[tuple[str, list[str]]] = deque(maxlen=self.latest_minutes + 1)
        self._numbers: dict[str, int] = {}

    def write(self, text: str) -> None:
        """All lines of a minute."""
        lines = text.splitlines(keepends=True)
        stamp = f" {split_sample(lines[0]).stamp}\n"
        each: list[list[str]] = [[] for _ in range(self._count + 1)]
        for line in lines:
            each[self._number(split_sample(line).series)].append(line)
        self._minutes.append((stamp, ["".join(own) for own in each]))
        if len(self._minutes) <= self.latest_minutes:
            return
        self._out.write(text)
        for copy, whose, late in self._copies:
            then, texts = self._minutes[-1 - late]
            own = texts[whose].replace(then, stamp)
            for mark in ("-", "-n"):
                own = own.replace(f'="{self._name}{mark}{whose}"', f'="{self._name}{mark}{copy}"')
            # a UUID stays one, of which legends show the beginning
            self._out.write(_CARD.sub(f'gpu="GPU-{copy:04}', own))

    def _number(self, series: str) -> int:
        """Of the replica that a series is of, the last of the texts where it is of none."""
        known = self._numbers.get(series)
        if known is None:
            found = self._of.search(series)
            known = self._numbers[series] = self._count if found is None else int(found[1])
        return known


def _story(number: int, seconds: float) -> Scenario:
    calm = within(load("calm-day"), seconds)
    if number == 1:
        flood = load("prefill-flood")
        began = flood.rate.steps[0].at_seconds
        return replace(flood, duration_seconds=min(seconds, began + _FLOOD_SECONDS), alerts=())
    if number == 2:
        return replace(calm, events=(Event(calm.duration_seconds - _LOSS_SECONDS, "lose-node", node="node-2"),))
    if number == 3:
        at = calm.duration_seconds - _SLOW_SECONDS
        return replace(calm, events=(Event(at, "slow", replicas=("replica-3",), value=2.5),))
    return calm
