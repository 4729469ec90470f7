"""What healthy replicas of the simulator show in each five minutes, as the rules count it: `python -m bench.outlier_blocks FILE`.

The blocks go through the exporter's own stages.
`bench.outliers` puts weeks of fleets of any size together from them.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from llm_serving_exporter.model.record import replace
from llm_serving_simulator.fleet.fleet import ReplicaSpec
from llm_serving_simulator.fleet.history import Watch
from llm_serving_simulator.fleet.scenario import Event, History, Scenario
from llm_serving_simulator.fleet.spec import EngineSpec
from llm_serving_simulator.fleet.workload import DAY_SECONDS, Burst, Lengths, Mix, Prefixes, Profile

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
DECODED, WEIGHT = "llm_serving_decode_tokens_total", "llm_serving_phase_reference_seconds_per_token"
BATCH, CEILING = "llm_serving_batch_size_mean", "llm_serving_decode_ceiling_tokens_per_second"
WAITING, USED = "llm_serving_requests_waiting", "llm_serving_kv_cache_usage_ratio"
RUNNING, LIMIT = "llm_serving_requests_running", "llm_serving_batch_limit_requests"
COUNTERS = {TTFT, QUEUED, GAP, BUSY, SLO, PREFILL, DECODED}
GAUGES = {WEIGHT, BATCH, CEILING, WAITING, USED, RUNNING, LIMIT}


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
    tokens: float  # computed and generated
    work: float  # reference seconds
    least_waiting: float
    kv_usage: float
    most_batch_usage: float


@dataclass(frozen=True)
class Load:
    """What each replica of a fleet is asked for."""

    requests_per_second: float
    hours: float
    mix: Mix = MIX
    bursts: tuple[Burst, ...] = ()
    slots: int = 64  # of a batch


def build_scenario(name: str, replicas: int, load: Load, seed: int) -> Scenario:
    """A fleet that nothing happens to."""
    engine = EngineSpec(alias=name, max_num_seqs=load.slots)
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
    watch = Watch(fleet, interval_seconds=SAMPLE_SECONDS, wanted=COUNTERS | GAUGES)
    found: dict[str, list[Block]] = defaultdict(list)
    before: dict[str, dict[str, float]] = {}
    gauges: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for number in range(1, int((scenario.duration_seconds) / SAMPLE_SECONDS)):
        fleet.advance(number * SAMPLE_SECONDS)
        now: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for name, labels, value in watch.samples():
            target = labels["target"]
            if name in GAUGES:
                gauges[target][name + labels.get("phase", "")].append(value)
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
    mean: Callable[[str], float] = lambda name: sum(gauges[name]) / len(gauges[name]) if gauges.get(name) else 0.0  # noqa: E731 - likewise
    batch, ceiling = mean(BATCH), mean(CEILING)
    prompt, decoded = grew(f"{PREFILL}..."), grew(f"{DECODED}...")
    gaps = grew(f"{GAP}_count...")
    bad, good = grew(f"{SLO}..errors.bad"), grew(f"{SLO}..errors.good")
    return Block(
        grew(f"{TTFT}_count..."), grew(f"{TTFT}_sum..."), grew(f"{QUEUED}_sum..."), prompt,
        gaps, grew(f"{GAP}_sum...") * share, gaps * batch / ceiling if ceiling else 0.0, bad, bad + good,
        prompt + decoded, prompt * mean(f"{WEIGHT}prefill") + decoded * mean(f"{WEIGHT}decode"),
        min(gauges.get(WAITING, [0.0])), mean(USED), max(gauges.get(RUNNING, [0.0])) / mean(LIMIT) if mean(LIMIT) else 0.0,
    )  # fmt: skip


# a router keeps eight replicas alike: at work, hardly asked (some 70 first tokens an hour), and hit by a burst about every twenty minutes,
# at any moment of a block
POOLS = {
    "busy": (8, Load(1.0, 2.0)),
    "quiet": (8, Load(0.02, 24.0)),
    "bursts": (6, Load(2.5, 2.0, SHORT_ANSWERS, (Burst(600.0, 60.0, 12.0, 1130.0),))),
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


def queues() -> list[Load]:
    """Replicas with clients of their own that ask for 1.4 times what eight slots can do, for twenty of every fifty minutes."""
    found = []
    for number in range(9):
        prompt, answer = (200, 1800)[number % 2], (100, 400, 1200)[number % 3]
        # eight at a time, at about 7.5 ms a token; the mean is 1.38 times the median
        most = 8 / (answer * 1.38 * 0.0075)
        mix = Mix(replace(MIX.prompt, median=prompt), Lengths(answer, 0.8, most=6000), PREFIXES)
        found.append(Load(0.4 * most, 2.5, mix, (Burst(600.0 + 130 * number, 1200.0, 3.5, 3000.0),), slots=8))
    return found


def main(argv: list[str]) -> int:
    """Writes every pool as JSON: a list of replicas, each a list of blocks."""
    made = {
        name: [*watch_blocks(build_scenario(name, replicas, load, seed=19)).values()]
        for name, (replicas, load) in POOLS.items()
    }
    for name, loads in (("tenants", tenants()), ("queues", queues())):
        made[name] = [
            blocks
            for number, load in enumerate(loads)
            for blocks in watch_blocks(build_scenario(f"{name}-{number}", 1, load, seed=number)).values()
        ]
    written = {
        name: [[[*asdict(block).values()] for block in blocks] for blocks in pool] for name, pool in made.items()
    }
    Path(argv[1]).write_text(json.dumps(written))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
