"""ReplicaOutlier, worked out on blocks of five minutes as the rules do (`llm_serving_alerts.records.outliers`)."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bench.outlier_blocks import BLOCK_SECONDS, Block
from llm_serving_alerts.records.outliers import (
    DECODE,
    ERRORS,
    FULL,
    KV_FULL,
    LEAST_REPLICAS,
    MORE_LOAD,
    MOST_QUEUED,
    NORMAL,
    QUANTILE_OF_OTHERS,
    QUEUE,
    QUEUE_SECONDS,
    RECENT_EVENTS,
    SHORT_SECONDS,
    SPANS_SECONDS,
    TTFT,
    USUAL_SECONDS,
)

MEASURES = (TTFT, DECODE, ERRORS, QUEUE)
SPANS = tuple(int(seconds / BLOCK_SECONDS) for seconds in SPANS_SECONDS)
SHORT, QUEUED, USUAL = (int(seconds / BLOCK_SECONDS) for seconds in (SHORT_SECONDS, QUEUE_SECONDS, USUAL_SECONDS))
HISTORY = SPANS[-1]

# two numbers of a replica: seconds an event and by work, or events that failed and that ended
Figure = tuple[float, float]


@dataclass(frozen=True)
class Shown:
    """What a replica shows at a moment beside its first tokens; None where it had too few events."""

    decode: Figure | None
    errors: Figure | None  # that failed, that ended
    work: float  # mean of a quarter of an hour
    queues: bool  # requests wait, and it has room for them and does something
    usual_tokens: float  # computed, of a block in its last hour
    has_no_room: bool  # for those who wait
    decode_of_late: float | None  # seconds a gap


@dataclass(frozen=True)
class Replica:
    """One of the simulated ones, block by block."""

    blocks: Sequence[Block]
    shown: Sequence[Shown]  # at the end of each block; what is before the first one is what the last ones were


def watch(blocks: Sequence[Block], events: float) -> Replica:
    """A replica that goes on from its last block to its first one. `events`: that are enough."""
    around = [*blocks[-HISTORY:], *blocks]

    def over(number: int, counted: str, seconds: str, work: str) -> Figure | None:
        for span in SPANS:
            last = around[number + 1 - span : number + 1]
            count, divisor, total = (sum(getattr(block, name) for block in last) for name in (counted, work, seconds))
            if count >= events and divisor > 0:
                return (total, count) if counted == work else (total / count, total / divisor)
        return None

    def show(number: int) -> Shown:
        last = around[: number + 1]
        return Shown(
            over(number, "gaps", "gap_seconds", "gap_ceiling_seconds"),
            over(number, "ended", "failed", "ended"),
            sum(block.work for block in last[-SHORT:]) / (SHORT * BLOCK_SECONDS),
            all(block.least_waiting > 0 for block in last[-QUEUED:])
            and last[-1].kv_usage < KV_FULL
            and last[-1].tokens >= events,
            statistics.median(block.prompt_tokens for block in last[-USUAL:]),
            max(last[-1].kv_usage, last[-1].most_batch_usage) > FULL,
            _of_late([(block.gap_seconds, block.gaps) for block in last[-SHORT:]]),
        )

    return Replica(blocks, [show(number) for number in range(HISTORY, len(around))])


class Fleet:
    """Replicas as their blocks come: `go_on` takes a block of each and says who is told of from now on."""

    def __init__(self, members: Sequence[tuple[Replica, int]], rule: Mapping[str, float]) -> None:
        """`members`: each with the block that it begins with; `rule`: the settings, and the blocks for which it must hold."""
        self._members, self._rule, self._number = members, rule, 0
        self._sums = [[(0.0, 0.0, 0.0)] for _ in members]
        self._excused: set[int] = set()
        self._lasted: dict[int, int] = {}

    def go_on(self) -> dict[int, str]:
        """Who begins to be told of with this block -> of what at first."""
        places = [(one, (begin + self._number) % len(one.blocks)) for one, begin in self._members]
        self._number += 1
        shown = [one.shown[place] for one, place in places]
        slow = self._rule
        found: dict[str, set[int]] = {}
        first_tokens, late = self._take([one.blocks[place] for one, place in places], shown)
        decode = {who: one.decode for who, one in enumerate(shown) if one.decode is not None}
        of_late = {TTFT: late, DECODE: {who: one.decode_of_late for who, one in enumerate(shown)}}
        for of, paces in ((TTFT, first_tokens), (DECODE, decode)):
            theirs = find_slow(paces, slow[f"{of}_above"], slow[f"{of}_least"], slow["spreads"])
            found[of] = {
                who
                for who, would in theirs.items()
                if (now := of_late[of].get(who)) is None or now > slow[f"{of}_above"] * would
            }
        errors = {who: one.errors for who, one in enumerate(shown) if one.errors is not None}
        found[ERRORS] = find_failing(errors, slow["errors_above"], slow["errors_least"], slow["spreads"])
        found[QUEUE] = find_idle(shown, slow["work_below"])
        now = {who: of for of in reversed(MEASURES) for who in found[of]}
        self._lasted = {who: self._lasted.get(who, 0) + 1 for who in now}
        return {who: now[who] for who, blocks in self._lasted.items() if blocks == slow["held"]}

    def _take(
        self, blocks: Sequence[Block], shown: Sequence[Shown]
    ) -> tuple[dict[int, Figure], dict[int, float | None]]:
        """Paces of those with first tokens enough, and seconds a first token of late."""
        most = MORE_LOAD * statistics.median(block.prompt_tokens for block in blocks)
        excused_now = {
            who
            for who, block in enumerate(blocks)
            if block.prompt_tokens > most
            or block.prompt_tokens > MORE_LOAD * shown[who].usual_tokens
            or shown[who].has_no_room
        }
        paces: dict[int, Figure] = {}
        recent: dict[int, float | None] = {}
        for who, (block, sums) in enumerate(zip(blocks, self._sums, strict=True)):
            excused = who in excused_now or who in self._excused
            last, left_out = sums[-1], excused and block.queue_seconds > MOST_QUEUED * block.first_token_seconds
            counted = (
                (0.0, 0.0, 0.0) if left_out else (block.first_tokens, block.first_token_seconds, block.prompt_tokens)
            )
            sums.append((last[0] + counted[0], last[1] + counted[1], last[2] + counted[2]))
            del sums[: -HISTORY - 1]
            blocks_of_late = [(now[1] - then[1], now[0] - then[0]) for then, now in pairwise(sums[-SHORT - 1 :])]
            recent[who] = _of_late(blocks_of_late)
            for span in SPANS:
                begin = sums[max(len(sums) - 1 - span, 0)]
                count, seconds, tokens = sums[-1][0] - begin[0], sums[-1][1] - begin[1], sums[-1][2] - begin[2]
                if count >= self._rule["events"] and tokens > 0:
                    paces[who] = (seconds / count, seconds / tokens)
                    break
        self._excused = excused_now
        return paces, recent


def _of_late(blocks: Sequence[Figure]) -> float | None:
    """Seconds an event of the last block, else of these, where events are enough to say whether it goes on. `blocks`: seconds, events."""
    for seconds, events in (blocks[-1], tuple(map(sum, zip(*blocks, strict=True)))):
        if events >= RECENT_EVENTS:
            return seconds / events
    return None


def median_of_others(values: Sequence[float]) -> float:
    """As `records.outlier_blocks.median_of_others`."""
    ordered = sorted(values)
    return _rank(ordered, QUANTILE_OF_OTHERS.get(len(ordered), 0.5))


def _rank(ordered: Sequence[float], quantile: float) -> float:
    rank = quantile * (len(ordered) - 1)
    low = int(rank + 1e-9)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


def find_slow(paces: Mapping[int, Figure], above: float, least: float, spreads: float) -> dict[int, float]:
    """Replicas that are slower than their peers, as the alert has it, with the seconds that their peers would take."""
    if len(paces) < LEAST_REPLICAS:
        return {}
    middles = [median_of_others([pace[which] for pace in paces.values()]) for which in (0, 1)]
    against = {one: min(pace[0] / middles[0], pace[1] / middles[1]) for one, pace in paces.items()}
    candidates = {one: times for one, times in against.items() if times > above}
    if not candidates:
        return {}
    usual = median_of_others([*against.values()])
    spread = NORMAL * median_of_others([abs(one - usual) for one in against.values()])
    return {
        one: paces[one][0] / times
        for one, times in candidates.items()
        if times > usual + spreads * spread and paces[one][0] * (1 - 1 / times) > least
    }


def find_failing(errors: Mapping[int, Figure], above: float, least: float, spreads: float) -> set[int]:
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


def find_idle(shown: Sequence[Shown], below: float) -> set[int]:
    """Replicas that do little work under a queue, likewise."""
    queued = [who for who, one in enumerate(shown) if one.queues]
    if not queued or len(shown) < LEAST_REPLICAS:
        return set()
    # of the others, where the replica itself is the lowest
    ordered = sorted(one.work for one in shown)
    middle = _rank(ordered, 1 - QUANTILE_OF_OTHERS.get(len(ordered), 0.5))
    return {who for who in queued if shown[who].work < below * middle}
