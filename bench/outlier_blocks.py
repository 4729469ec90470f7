"""What healthy replicas of the simulator show in each five minutes, as the rules count it: `python -m bench.outlier_blocks FILE`.

The blocks go through the exporter's own stages (`sim.fleet.watch`). `bench.outliers` puts weeks of fleets of any size together from them.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from llm_serving_exporter.sim.fleet.rate import DAY_SECONDS, Burst, Profile
from llm_serving_exporter.sim.fleet.replica import ReplicaSpec
from llm_serving_exporter.sim.fleet.scenario import Event, History, Scenario
from llm_serving_exporter.sim.fleet.spec import EngineSpec
from llm_serving_exporter.sim.fleet.watch import Watch
from llm_serving_exporter.sim.fleet.workload import Lengths, Mix, Prefixes

BLOCK_SECONDS, SAMPLE_SECONDS = 300.0, 60.0
WARM_SECONDS = 1200.0
# prompts with a heavy tail, half of them with a prefix that is found again: what makes first tokens unequal
PREFIXES = Prefixes(0.5, 16, 1024)
MIX = Mix(
    Lengths(600, 1.0, most=30_000, tail_share=0.02, tail_from=6000, tail_alpha=1.5),
    Lengths(200, 0.8, most=2000),
    PREFIXES,
)
SHORT_ANSWERS = replace(MIX, output=Lengths(40, 0.8, most=400))
# of all requests, everywhere: what engines and clients do wrong anyway
FAILED_SHARE = 0.01
TTFT, GAP = "llm_serving_time_to_first_token_seconds", "llm_serving_inter_token_latency_seconds"
BUSY, SLO = "llm_serving_phase_busy_seconds_total", "llm_serving_slo_events_total"
PREFILL, QUEUED = "llm_serving_prefill_tokens_total", "llm_serving_request_queue_time_seconds"
BATCH, CEILING = "llm_serving_batch_size_mean", "llm_serving_decode_ceiling_tokens_per_second"


@dataclass(frozen=True)
class Block:
    """Five minutes of a replica."""

    first_tokens: float
    first_token_seconds: float
    queue_seconds: float  # of these
    prompt_tokens: float  # computed
    gaps: float
    gap_seconds: float  # without prefill's share
    gap_ceiling_seconds: float
    failed: float
    ended: float


@dataclass(frozen=True)
class Load:
    """What each replica of a fleet is asked for."""

    requests_per_second: float
    hours: float
    mix: Mix = MIX
    bursts: tuple[Burst, ...] = ()


def build_scenario(name: str, replicas: int, load: Load, seed: int) -> Scenario:
    """A fleet that nothing happens to."""
    engine = EngineSpec(alias=name, max_num_seqs=64)
    return Scenario(
        name=name,
        summary=name,
        duration_seconds=load.hours * 3600.0 + WARM_SECONDS,
        replicas=tuple(ReplicaSpec(f"{name}-{number}", (f"node-{number}",), engine) for number in range(replicas)),
        rate=Profile(load.requests_per_second * replicas, bursts=load.bursts),
        mixes=(load.mix,),
        seed=seed,
        history=History(WARM_SECONDS / DAY_SECONDS),
        events=(Event(0.0, "errors", value=FAILED_SHARE),),
    )


def watch_blocks(scenario: Scenario) -> dict[str, list[Block]]:
    """Each replica's blocks, in order."""
    fleet = scenario.fleet(with_history=True)
    watch = Watch(
        fleet, interval_seconds=SAMPLE_SECONDS, wanted={TTFT, QUEUED, GAP, BUSY, SLO, PREFILL, BATCH, CEILING}
    )
    found: dict[str, list[Block]] = defaultdict(list)
    before: dict[str, dict[str, float]] = {}
    gauges: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for number in range(1, int((scenario.duration_seconds) / SAMPLE_SECONDS)):
        fleet.advance(number * SAMPLE_SECONDS)
        now: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for name, labels, value in watch.samples():
            target = labels["target"]
            if name in (BATCH, CEILING):
                gauges[target][name].append(value)
            elif not name.endswith("_bucket"):
                key = ".".join([name, *(labels.get(label, "") for label in ("phase", "slo", "outcome"))])
                now[target][key] += value
        if number * SAMPLE_SECONDS >= WARM_SECONDS and number * SAMPLE_SECONDS % BLOCK_SECONDS == 0:
            for target, counted in now.items():
                if target in before:
                    found[target].append(make_block(counted, before[target], gauges[target]))
            before, gauges = (
                {target: dict(counted) for target, counted in now.items()},
                defaultdict(lambda: defaultdict(list)),
            )
    return dict(found)


def make_block(now: Mapping[str, float], then: Mapping[str, float], gauges: Mapping[str, list[float]]) -> Block:
    """From the counters at its end and at its beginning, and the gauges between."""
    grew: Callable[[str], float] = lambda key: now.get(key, 0.0) - then.get(key, 0.0)  # noqa: E731 - one line, used below
    prefill, decode = grew(f"{BUSY}.prefill.."), grew(f"{BUSY}.decode..")
    share = decode / (prefill + decode) if prefill + decode > 0 else 0.0
    batch, ceiling = (sum(gauges[name]) / len(gauges[name]) if gauges.get(name) else 0.0 for name in (BATCH, CEILING))
    gaps = grew(f"{GAP}_count...")
    bad, good = grew(f"{SLO}..errors.bad"), grew(f"{SLO}..errors.good")
    return Block(
        grew(f"{TTFT}_count..."), grew(f"{TTFT}_sum..."), grew(f"{QUEUED}_sum..."), grew(f"{PREFILL}..."),
        gaps, grew(f"{GAP}_sum...") * share, gaps * batch / ceiling if ceiling else 0.0, bad, bad + good,
    )  # fmt: skip


# a router keeps eight replicas alike: at work, hardly asked (some 70 first tokens an hour), and with queues every twenty minutes
POOLS = {
    "busy": (8, Load(1.0, 2.0)),
    "quiet": (8, Load(0.02, 24.0)),
    "bursts": (6, Load(2.5, 2.0, SHORT_ANSWERS, (Burst(600.0, 60.0, 12.0, 1200.0),))),
}


def tenants() -> list[Load]:
    """Replicas with clients of their own: each its rate, its lengths of prompts and answers, and its luck with prefixes."""
    rates, prompts, answers, found = (0.1, 0.3, 1.0, 2.0), (200, 600, 1800), (60, 200, 600), (0.0, 0.5, 0.9)
    return [
        Load(
            rates[number % 4],
            2.5,
            Mix(
                replace(MIX.prompt, median=prompts[number % 3], tail_share=0.02 * (number % 2)),
                Lengths(answers[number // 4 % 3], 0.8, most=3000),
                replace(PREFIXES, share=found[number // 2 % 3]),
            ),
        )
        for number in range(12)
    ]


def main(argv: list[str]) -> int:
    """Writes every pool as JSON: a list of replicas, each a list of blocks."""
    made = {
        name: [*watch_blocks(build_scenario(name, replicas, load, seed=19)).values()]
        for name, (replicas, load) in POOLS.items()
    }
    made["tenants"] = [
        blocks
        for number, load in enumerate(tenants())
        for blocks in watch_blocks(build_scenario(f"tenant-{number}", 1, load, seed=number)).values()
    ]
    written = {
        name: [[[*asdict(block).values()] for block in blocks] for blocks in pool] for name, pool in made.items()
    }
    Path(argv[1]).write_text(json.dumps(written))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
