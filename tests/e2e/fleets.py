"""Random fleets and loads that lose their largest node: what happened then, and what an exporter showed before."""

import random
from collections.abc import Collection
from dataclasses import dataclass, field

from llm_serving_simulator.fleet.fleet import Fleet, ReplicaSpec
from llm_serving_simulator.fleet.history import Watch
from llm_serving_simulator.fleet.scenario import Slo
from llm_serving_simulator.fleet.spec import EngineSpec
from llm_serving_simulator.fleet.workload import Lengths, Mix, PoissonWorkload, Profile, Step
from tests.pack.simulated import Shown, keep, keep_start

# minutes: a queue at first, where the fleet is one that was seen at its limit; an hour and more of its own load; then the node goes
QUEUED, LOST_AT, AFTERWARDS = 12, 84, 25
# promtool's clock begins at 0; only what a replica did half an hour after its start, or later, is a measurement
STARTED_UNIX_SECONDS = -3600.0
SLO_SECONDS = 2.5
MINUTE = 60.0


@dataclass
class Outcome:
    """`survived`: p99 TTFT within the objective and hardly a request turned away, from two minutes after the loss on."""

    name: str
    about: str
    measured: bool
    load: float  # of what the survivors can do
    p99_seconds: float | None
    turned_away: int
    survived: bool
    shown: Shown = field(repr=False)


def fleet_specs(rng: random.Random) -> tuple[list[ReplicaSpec], Mix, str]:
    """Replicas on two to six nodes, some nodes with two, some replicas on two nodes; what they are asked for; in words."""
    nodes = rng.randint(2, 6)
    gpu = rng.choice(["H100 SXM", "L40S", "A100-SXM4-80GB"])
    slots = rng.choice([4, 6, 8, 12])
    prompt, output = rng.choice([300, 800, 2000, 4000]), rng.choice([400, 700, 1100])
    held = slots * (1.3 * prompt + 0.8 * output)
    kv_tokens = max(16384.0, held * rng.choice([0.7, 1.2, 2.5]))
    waiting = rng.choice([None, 50])

    def engine(tensor: int) -> EngineSpec:
        return EngineSpec(
            gpu=gpu, tensor=tensor, max_num_seqs=slots, context_limit_tokens=16384, kv_blocks=int(kv_tokens // 16), max_waiting=waiting
        )  # fmt: skip

    places = [[f"node-{number}"] for number in range(nodes)]
    if rng.random() < 0.3:
        places.append([f"node-{rng.randrange(nodes)}"])
    replicas = [ReplicaSpec(f"replica-{number}", tuple(place), engine(1)) for number, place in enumerate(places)]
    spans = nodes >= 3 and rng.random() < 0.25
    if spans:
        replicas[0] = ReplicaSpec("replica-0", ("node-0", "node-1"), engine(2))
    mix = Mix(Lengths(prompt, 0.5, most=9000), Lengths(output, 0.5, most=5000))
    about = f"{len(replicas)} replicas on {nodes} nodes{', one on two' if spans else ''}, {gpu}, {slots} slots, {prompt}/{output} tokens"
    return replicas, mix, about


def largest_node(replicas: Collection[ReplicaSpec]) -> str:
    """The node whose loss takes the most GPUs."""
    lost: dict[str, int] = {}
    for replica in replicas:
        for node in replica.nodes:
            lost[node] = lost.get(node, 0) + replica.engine.gpus
    return max(sorted(lost), key=lambda node: lost[node])


def requests_per_second(replicas: list[ReplicaSpec], mix: Mix, seed: int) -> float:
    """What the fleet finishes at its limit."""
    if not replicas:
        return 0.0
    slots = sum(replica.engine.max_num_seqs for replica in replicas)
    # where all may wait, whoever comes in the last quarter still does at the end
    ends = () if any(replica.engine.max_waiting for replica in replicas) else (Step(15 * MINUTE, 0.0),)
    flood = Fleet(replicas, PoissonWorkload(Profile(slots / 2.0, steps=ends), [mix], seed))
    flood.advance(20 * MINUTE)
    assert all(replica.engine and replica.engine.waiting for replica in flood.replicas.values()), replicas
    told = flood.truth(5 * MINUTE, 20 * MINUTE)
    return told.counts.finished / (told.end_seconds - told.begin_seconds)


def lose_largest_node(seed: int, load: float | None, wanted: Collection[str]) -> Outcome:
    """One fleet, its load (None: drawn; of what the survivors can do), and the loss."""
    rng = random.Random(f"fleet/{seed}")
    replicas, mix, about = fleet_specs(rng)
    node = largest_node(replicas)
    survivors = [replica for replica in replicas if node not in replica.nodes]
    limit = requests_per_second(survivors, mix, seed)
    measured = rng.random() < 0.5 and load is None
    drawn = rng.uniform(0.15, 1.6)
    rate = limit * (drawn if load is None else load)
    every = requests_per_second(replicas, mix, seed)
    flood = Profile(rate, steps=(Step(0.0, 1.4 * every / rate), Step(QUEUED * MINUTE, 1.0)) if measured else ())
    fleet = Fleet(replicas, PoissonWorkload(flood, [mix], seed), retry=True, epoch_unix_seconds=STARTED_UNIX_SECONDS)
    watch = Watch(fleet, interval_seconds=MINUTE, wanted=wanted, slo=Slo(ttft=SLO_SECONDS))
    shown: Shown = {}
    for minute in range(LOST_AT + 1):
        fleet.advance(minute * MINUTE)
        keep(shown, minute, watch.samples())
        keep_start(shown, minute, replicas, STARTED_UNIX_SECONDS)
    fleet.lose_node(node)
    fleet.advance((LOST_AT + AFTERWARDS) * MINUTE)
    told = fleet.truth((LOST_AT + 2) * MINUTE, (LOST_AT + AFTERWARDS) * MINUTE)
    p99 = told.ttft_quantile_seconds(0.99)
    away = told.counts.rejected + told.unrouted
    survived = p99 is not None and p99 <= SLO_SECONDS and away <= 0.01 * max(1, told.arrived)
    return Outcome(f"fleet-{seed}", about, measured, rate / limit, p99, away, survived, shown)
