"""False alarms of ReplicaOutlier a fleet-week, and how soon it tells.

`python -m bench.outlier_blocks FILE`, then `python -m bench.outliers FILE`.
A statistical simulation of what the simulator's engines do: each replica of a fleet is one of the simulated ones from a moment of its own
on, so that what follows on what within a replica stays as it was, and replicas know nothing of one another. The rule (`bench.outlier_rule`)
is worked out with the thresholds of the settings. Nothing is wrong with any of the replicas: whatever fires is false, unless a fault was
laid over one of them.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from bench.outlier_blocks import BLOCK_SECONDS, Block
from bench.outlier_rule import HISTORY, MEASURES, Fleet, Replica, watch
from llm_serving_alerts.settings_file import default_settings
from llm_serving_exporter.model.record import replace

DAY_BLOCKS = int(86_400 / BLOCK_SECONDS)
# replicas -> weeks that are played: none in thirty weeks is less than one in ten, with a confidence of 95 %
WEEKS = {3: 300, 20: 60, 100: 30, 500: 30}
# a process plays so many
CHUNK_WEEKS = {3: 100, 20: 20, 100: 5, 500: 1}
# with other settings
TRIED_WEEKS = {3: 30, 20: 6}
# settings that are tried beside the default ones, to see how far away they are
TRIED: tuple[Mapping[str, float], ...] = (
    {"ttft_above": 1.5, "ttft_least": 0.05},
    {"ttft_above": 1.5, "ttft_least": 0.05, "spreads": 3},
    {"decode_above": 1.1, "decode_least": 0.001},
    {"errors_least": 0.02, "spreads": 4},
    {"work_below": 0.6},
)
# what a sick replica does to five minutes of it
FAULTS: Mapping[str, Callable[[Block, float], Block]] = {
    "first tokens 1 s late": lambda block, share: replace(
        block, first_token_seconds=block.first_token_seconds + share * block.first_tokens
    ),
    "requests wait 1 s longer to be let in": lambda block, share: replace(
        block,
        first_token_seconds=block.first_token_seconds + share * block.first_tokens,
        queue_seconds=block.queue_seconds + share * block.first_tokens,
    ),
    "decode twice as slow": lambda block, share: replace(block, gap_seconds=block.gap_seconds * (1 + share)),
    "a fifth of requests fail": lambda block, share: replace(
        block, failed=block.failed + share * 0.2 * (block.ended - block.failed)
    ),
}
FAULTY_FLEETS, TRIALS, WITHIN_MINUTES = (3, 20, 100), 100, 15.0


def settings() -> dict[str, float]:
    """The delivered thresholds, and for how many blocks it must hold."""
    own = default_settings().alerts["ReplicaOutlier"]
    return {**own.values, "held": 1 + int(own.for_seconds / BLOCK_SECONDS)}


def draw(rng: random.Random, pool: Sequence[Replica], replicas: int) -> Iterator[tuple[Replica, int]]:
    """Members of a fleet, each from a block of its own on."""
    for number in rng.sample(range(replicas + len(pool)), replicas):
        one = pool[number % len(pool)]
        yield one, rng.randrange(len(one.blocks))


def count_alarms(
    pool: Sequence[Replica], replicas: int, weeks: int, seed: int, rule: Mapping[str, float]
) -> dict[str, int]:
    """How often something fires in so many weeks, by what it is of at first."""
    rng, alarms = random.Random(f"outliers/{replicas}/{seed}"), dict.fromkeys(MEASURES, 0)
    for _ in range(weeks):
        fleet = Fleet([*draw(rng, pool, replicas)], rule)
        for _ in range(7 * DAY_BLOCKS):
            for of in fleet.go_on().values():
                alarms[of] += 1
    return alarms


def tell(pool: Sequence[Replica], replicas: int, rule: Mapping[str, float], fault: str) -> list[float | None]:
    """Minutes from a fault until its replica is told of, of many tries; None: not within an hour."""
    rng, found = random.Random(f"faults/{replicas}/{fault}"), []
    for _ in range(TRIALS):
        (first, begin), *others = draw(rng, pool, replicas)
        # it begins within a block, of which it has the rest
        share = rng.random()
        around = [first.blocks[(begin + number) % len(first.blocks)] for number in range(2 * HISTORY)]
        sick = [
            FAULTS[fault](block, share if number == HISTORY else 1.0) if number >= HISTORY else block
            for number, block in enumerate(around)
        ]
        fleet = Fleet([(watch(sick, rule["events"]), 0), *others], rule)
        told = next((number for number in range(2 * HISTORY) if 0 in fleet.go_on() and number >= HISTORY), None)
        found.append(None if told is None else (told - HISTORY + share) * BLOCK_SECONDS / 60)
    return found


def read_pools(path: Path, events: float) -> dict[str, list[Replica]]:
    """What `bench.outlier_blocks` has written."""
    read = json.loads(path.read_text())
    return {name: [watch([Block(*block) for block in one], events) for one in pool] for name, pool in read.items()}


def main(argv: list[str]) -> int:
    """Prints three tables as Markdown. `argv[2:]`: fleet sizes, all by default."""
    rule = settings()
    pools = read_pools(Path(argv[1]), rule["events"])
    sizes = [int(text) for text in argv[2:]] or [*WEEKS]
    with ProcessPoolExecutor(2) as processes:
        print(f"| replicas are | false alarms a week: {', '.join(MEASURES)} |\n|---|---|")
        for name, pool in pools.items():
            for replicas in sizes:
                chunk = CHUNK_WEEKS[replicas]
                play = partial(count_alarms, pool, replicas, chunk, rule=rule)
                _print(name, "", replicas, WEEKS[replicas], [*processes.map(play, range(WEEKS[replicas] // chunk))])
        for name, pool in pools.items():
            for changed in TRIED:
                text = ", ".join(f"{setting} {value:g}" for setting, value in changed.items())
                for replicas, weeks in TRIED_WEEKS.items():
                    _print(name, text, replicas, weeks, [count_alarms(pool, replicas, weeks, 0, {**rule, **changed})])
        print("| replicas are | fault | told within 15 min, within an hour, minutes (median) |\n|---|---|---|")
        for name, pool in pools.items():
            for replicas in FAULTY_FLEETS:
                for fault, times in zip(
                    FAULTS, processes.map(partial(tell, pool, replicas, rule), FAULTS), strict=True
                ):
                    known = sorted(one for one in times if one is not None)
                    soon = sum(one <= WITHIN_MINUTES for one in known) / len(times)
                    median = f"{known[len(known) // 2]:.0f}" if known else "–"
                    print(
                        f"| {name} | one of {replicas}: {fault} | {soon:.0%}, {len(known) / len(times):.0%}, {median} |",
                        flush=True,
                    )
    return 0


def _print(name: str, changed: str, replicas: int, weeks: int, found: Sequence[Mapping[str, int]]) -> None:
    rates = ", ".join(f"{sum(one[of] for one in found) / weeks:.3g}" for of in MEASURES)
    print(f"| {name}{f' ({changed})' if changed else ''} | {replicas} ({weeks} weeks): {rates} |", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
