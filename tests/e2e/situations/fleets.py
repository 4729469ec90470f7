"""Fleets that situations happen to."""

from collections.abc import Sequence

from llm_serving_exporter.model.record import replace
from llm_serving_simulator.fleet.fleet import ReplicaSpec
from llm_serving_simulator.fleet.scenario import Event, Scenario, Slo
from llm_serving_simulator.fleet.spec import EngineSpec
from llm_serving_simulator.fleet.workload import Lengths, Mix, Prefixes, Profile, Step

ENGINE = EngineSpec(max_num_seqs=64, loading_seconds=90.0)
# few at a time with long answers: work for a handful of requests
SMALL = EngineSpec(max_num_seqs=8, context_limit_tokens=16384, loading_seconds=60.0)
WIDE = replace(SMALL, tensor=2)
LONG_ANSWERS = Mix(Lengths(500, 0.5, most=4000), Lengths(1700, 0.4, most=8000))
# where only first tokens count: many requests that cost little to simulate
SHORT = Mix(Lengths(300, 0.5, most=3000), Lengths(12, 0.5, most=100), Prefixes(0.5, 8, 128))
MIX = Mix(Lengths(500, 0.5, most=4000), Lengths(120, 0.5, most=800), Prefixes(0.5, 8, 256))


def fleet(
    name: str,
    replicas: int,
    minutes: float,
    *events: Event,
    requests_per_second: float,
    engine: EngineSpec = ENGINE,
    next_engine: EngineSpec | None = None,
    next_replicas: int = 0,
    nodes_each: int = 1,
    steps: Sequence[Step] = (),
    mix: Mix = MIX,
    expected: int | None = None,
    ready: int | None = None,
    seed: int = 1,
) -> Scenario:
    """Replicas `name-0` and so on, on nodes `name-n0` and so on. `requests_per_second` of the whole fleet; `next_replicas` that are
    stopped at first, of `next_engine`; `ready`: how many of the others serve at first."""

    def made(number: int, of: EngineSpec) -> ReplicaSpec:
        nodes = tuple(f"{name}-n{number * nodes_each + offset}" for offset in range(nodes_each))
        return ReplicaSpec(f"{name}-{number}", nodes, replace(of, alias=name))

    specs = [made(number, engine) for number in range(replicas)]
    specs += [made(replicas + number, next_engine or engine) for number in range(next_replicas)]
    return Scenario(
        name=name,
        summary=name,
        duration_seconds=minutes * 60.0,
        replicas=tuple(specs),
        rate=Profile(requests_per_second, steps=tuple(steps)),
        mixes=(mix,),
        seed=seed,
        retry=True,
        ready=(replicas if next_replicas else None) if ready is None else ready,
        events=events,
        slo=Slo(ttft=2.5),
        expected_replicas=expected,
    )
