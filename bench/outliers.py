"""False alarms of ReplicaOutlier a fleet-week: `python -m bench.outlier_blocks FILE`, then `python -m bench.outliers FILE`.

A statistical simulation of what the simulator's engines do: each replica of a fleet is one of the simulated ones from a moment of its own
on, so that what follows on what within a replica stays as it was, and replicas know nothing of one another. The rule is worked out here
with the thresholds of the settings. Whatever fires is false: nothing is wrong with any of them.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.outlier_blocks import BLOCK_SECONDS, Block
from llm_serving_alerts.records.outlier_blocks import LONG_SECONDS, MORE_LOAD, QUANTILE_OF_OTHERS, SHORT_SECONDS
from llm_serving_alerts.records.outliers import DECODE, ERRORS, LEAST_REPLICAS, NORMAL, TTFT
from llm_serving_alerts.settings_file import default_settings

WEEK_BLOCKS = int(7 * 86_400 / BLOCK_SECONDS)
# replicas -> weeks that are played
WEEKS = {3: 100, 20: 15, 100: 3, 500: 1}
# with other settings
TRIED_WEEKS = {3: 10, 20: 2}
SPANS = tuple(int(seconds / BLOCK_SECONDS) for seconds in (SHORT_SECONDS, LONG_SECONDS))
# settings that are tried beside the default ones, to see how far away they are
TRIED: tuple[Mapping[str, float], ...] = (
    {},
    {"ttft_above": 1.5, "ttft_least": 0.05},
    {"ttft_above": 1.5, "ttft_least": 0.05, "spreads": 3},
    {"decode_above": 1.1, "decode_least": 0.001},
    {"errors_least": 0.02, "spreads": 4},
)


Figure = tuple[float, float]


@dataclass(frozen=True)
class Shown:
    """What a replica shows at a moment beside its first tokens; None where it had too few events."""

    decode: Figure | None  # seconds a gap, and by second at its ceiling
    errors: Figure | None  # that failed, that ended


@dataclass(frozen=True)
class Replica:
    """One of the simulated ones, block by block."""

    blocks: Sequence[Block]
    shown: Sequence[Shown]  # at the end of each block; the first hour is the last one's


def watch(blocks: Sequence[Block], events: float) -> Replica:
    """A replica that goes on from its last block to its first one."""
    around = [*blocks[-SPANS[-1] :], *blocks]

    def over(number: int, counted: str, seconds: str, work: str) -> Figure | None:
        for span in SPANS:
            last = around[number + 1 - span : number + 1]
            count, divisor, total = (sum(getattr(block, name) for block in last) for name in (counted, work, seconds))
            if count >= events and divisor > 0:
                return (total, count) if counted == work else (total / count, total / divisor)
        return None

    shown = [
        Shown(over(number, "gaps", "gap_seconds", "gap_ceiling_seconds"), over(number, "ended", "failed", "ended"))
        for number in range(SPANS[-1], len(around))
    ]
    return Replica(blocks, shown)


class FirstTokens:
    """First tokens of a fleet's replicas as blocks come: a queue counts unless its replica was given more than its peers."""

    def __init__(self, replicas: int, events: float) -> None:
        self._events = events
        self._sums = [[(0.0, 0.0, 0.0)] for _ in range(replicas)]
        self._loaded: set[int] = set()

    def take(self, blocks: Sequence[Block]) -> dict[int, Figure]:
        """One block of each replica; the paces of those with events enough."""
        most = MORE_LOAD * statistics.median(block.prompt_tokens for block in blocks)
        loaded = {number for number, block in enumerate(blocks) if block.prompt_tokens > most}
        found = {}
        for number, (block, sums) in enumerate(zip(blocks, self._sums, strict=True)):
            excused = block.queue_seconds if number in loaded or number in self._loaded else 0.0
            waited = max(block.first_token_seconds - excused, 0.0)
            last = sums[-1]
            sums.append((last[0] + block.first_tokens, last[1] + waited, last[2] + block.prompt_tokens))
            del sums[: -SPANS[-1] - 1]
            for span in SPANS:
                begin = sums[max(len(sums) - 1 - span, 0)]
                count, seconds, tokens = (now - then for now, then in zip(sums[-1], begin, strict=True))
                if count >= self._events and tokens > 0:
                    found[number] = (seconds / count, seconds / tokens)
                    break
        self._loaded = loaded
        return found


def median_of_others(values: Sequence[float]) -> float:
    """As `records.outliers.median_of_others`."""
    ordered = sorted(values)
    rank = QUANTILE_OF_OTHERS.get(len(ordered), 0.5) * (len(ordered) - 1)
    low = int(rank + 1e-9)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


def find_slow(paces: Mapping[int, tuple[float, float]], above: float, least: float, spreads: float) -> set[int]:
    """Replicas that are slower than their peers, as the alert has it."""
    if len(paces) < LEAST_REPLICAS:
        return set()
    middles = [median_of_others([pace[which] for pace in paces.values()]) for which in (0, 1)]
    against = {one: min(pace[0] / middles[0], pace[1] / middles[1]) for one, pace in paces.items()}
    candidates = {one: times for one, times in against.items() if times > above}
    if not candidates:
        return set()
    usual = median_of_others([*against.values()])
    spread = NORMAL * median_of_others([abs(one - usual) for one in against.values()])
    return {
        one
        for one, times in candidates.items()
        if times > usual + spreads * spread and paces[one][0] * (1 - 1 / times) > least
    }


def find_failing(errors: Mapping[int, tuple[float, float]], above: float, least: float, spreads: float) -> set[int]:
    """Replicas whose requests fail more often than their peers', likewise."""
    if len(errors) < LEAST_REPLICAS:
        return set()
    failed, ended = (sum(one[which] for one in errors.values()) for which in (0, 1))
    share, found = failed / ended, set()
    for one, (own_failed, own_ended) in errors.items():
        others = (failed - own_failed) / (ended - own_ended)
        noise = ((share * (1 - share) + 1 / own_ended) / own_ended) ** 0.5
        own = own_failed / own_ended
        if own > least and own > above * others and own - others > spreads * noise:
            found.add(one)
    return found


def count_alarms(
    pool: Sequence[Replica], replicas: int, weeks: int, settings: Mapping[str, float], held: int
) -> dict[str, float]:
    """How often a week something fires, by what it is of. `held`: blocks for which it must hold."""
    rng, alarms = random.Random(f"outliers/{replicas}"), dict.fromkeys((TTFT, DECODE, ERRORS), 0.0)
    for _ in range(weeks):
        members = [pool[number % len(pool)] for number in rng.sample(range(replicas + len(pool)), replicas)]
        begins = [rng.randrange(len(one.blocks)) for one in members]
        lasted: dict[tuple[str, int], int] = {}
        first_tokens = FirstTokens(replicas, settings["events"])
        for number in range(WEEK_BLOCKS):
            places = [(begin + number) % len(one.blocks) for one, begin in zip(members, begins, strict=True)]
            shown = [one.shown[place] for one, place in zip(members, places, strict=True)]
            paces = first_tokens.take([one.blocks[place] for one, place in zip(members, places, strict=True)])
            figures = {
                TTFT: paces,
                DECODE: {who: one.decode for who, one in enumerate(shown) if one.decode is not None},
                ERRORS: {who: one.errors for who, one in enumerate(shown) if one.errors is not None},
            }
            lasted = {
                (of, who): lasted.get((of, who), 0) + 1 for of in figures for who in _find(of, figures[of], settings)
            }
            for (of, _), blocks in lasted.items():
                alarms[of] += blocks == held
    return {of: count / weeks for of, count in alarms.items()}


def _find(of: str, figures: Mapping[int, Figure], settings: Mapping[str, float]) -> set[int]:
    find = find_failing if of == ERRORS else find_slow
    return find(figures, settings[f"{of}_above"], settings[f"{of}_least"], settings["spreads"])


def main(argv: list[str]) -> int:
    """Prints a table as Markdown."""
    own = default_settings().alerts["ReplicaOutlier"]
    held = 1 + int(own.for_seconds / BLOCK_SECONDS)
    pools = {
        name: [watch([Block(*block) for block in one], own["events"]) for one in pool]
        for name, pool in json.loads(Path(argv[1]).read_text()).items()
    }
    print("| replicas | settings | false alarms a week: ttft, decode, errors, of a fleet of |\n|---|---|---|")
    for changed in TRIED:
        text = ", ".join(f"{name} {value:g}" for name, value in changed.items()) or "default"
        for name, pool in pools.items():
            for replicas, weeks in (TRIED_WEEKS if changed else WEEKS).items():
                alarms = count_alarms(pool, replicas, weeks, {**own.values, **changed}, held)
                rates = ", ".join(f"{alarms[of]:.3g}" for of in (TTFT, DECODE, ERRORS))
                print(f"| {name} | {text} | {replicas} ({weeks} weeks): {rates} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
