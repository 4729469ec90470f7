"""What an engine works on: the KV cache in blocks, runs of decode steps, and the decoding batch.

Every sequence of the batch gets a token in every decode step, so that nothing has to be done for each of them as steps go by.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections import OrderedDict
from typing import NamedTuple

from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct
from llm_serving_simulator.fleet.spec import Ramp, Work
from llm_serving_simulator.fleet.workload import Record, Request

# --- Paged KV cache: blocks of running requests, and whole blocks of what was computed before, kept until somebody needs the room.
#
# Blocks are counted, not named. What is free is a queue in order of disuse, as vLLM's free list: allocation takes its head; a request that
# ends puts its blocks at the tail, its last ones first, so that beginnings live longest. Blocks that nobody can ask for again (the own
# part of a prompt that has ended) merge into one entry, so that the queue stays as short as there are prefixes.
#
# Approximated: a shared prefix counts as cached from the admission of the request that computes it, not chunk by chunk.


class Cached:
    """Content that may be found again: `present` blocks of it from its beginning, free where nobody holds it.

    `size`: blocks that it has when whole; `key` by which others find it, None for what a request left behind for itself.
    """

    __slots__ = ("holders", "key", "present", "reachable", "size", "slot")

    def __init__(self, size: int, key: str | None = None) -> None:
        self.size, self.key = size, key
        self.present = 0
        self.holders = 0
        self.reachable = True
        self.slot: int | None = None  # its place in the queue


class Holding(Struct):
    """KV blocks of one running request."""

    shared: Cached | None  # the shared prefix that it reads; None: none
    own_blocks: int
    hit_tokens: int  # that it found in the cache at its admission


class KvCache:
    """`blocks` usable blocks of `block_tokens` tokens. `caching` off: nothing is ever found again."""

    def __init__(self, blocks: int, block_tokens: int, *, caching: bool = True) -> None:
        self.blocks, self.block_tokens, self.caching = blocks, block_tokens, caching
        self.free = blocks
        self._prefixes: dict[str, Cached] = {}
        self._queue: OrderedDict[int, tuple[int, Cached | None]] = OrderedDict({0: (blocks, None)})
        self._next_slot = 1

    @property
    def usage_ratio(self) -> float:
        """Blocks that running requests hold, over all; blocks that only the cache keeps are free."""
        return (self.blocks - self.free) / self.blocks

    @property
    def cached_blocks(self) -> int:
        """Free blocks whose content could be found again."""
        return add_up(count for count, content in self._queue.values() if content is not None)

    def blocks_of(self, tokens: int) -> int:
        """Blocks that so many tokens need."""
        return -(-tokens // self.block_tokens)

    def admit(
        self, tokens: int, prefix: str | None, prefix_tokens: int, left: Cached | None, reserve_blocks: int
    ) -> Holding | None:
        """Blocks for `tokens` tokens of a request, what the cache has of them included; None where there is not enough room.

        `left`: what the request itself left behind when it was preempted. `reserve_blocks` stay free. The last token is never
        taken from the cache: its logits are what the answer begins with.
        """
        shared = self._shared(prefix, prefix_tokens // self.block_tokens) if prefix is not None else None
        size = shared.size if shared else 0
        findable = (tokens - 1) // self.block_tokens
        hits = shared.present if shared else 0
        own_hits = min(left.present, findable - size) if left and hits == size else 0
        waking = own_hits + (hits if shared and not shared.holders else 0)
        new = self.blocks_of(tokens) - hits - own_hits
        if new + reserve_blocks > self.free - waking:
            return None
        if shared:
            if not shared.holders:
                self._wake(shared, hits)
            shared.holders += 1
            shared.present = size
        if left:
            self._wake(left, own_hits)
        self.allocate(new)
        return Holding(shared, self.blocks_of(tokens) - size, (hits + own_hits) * self.block_tokens)

    def allocate(self, count: int) -> None:
        """Allocates free blocks, those that were unused longest first. There must be as many."""
        self.free -= count
        assert self.free >= 0
        while count:
            slot, (there, content) = next(iter(self._queue.items()))
            taken = min(there, count)
            count -= taken
            if taken == there:
                del self._queue[slot]
            else:
                self._queue[slot] = there - taken, content
            if content is not None:
                content.present -= taken  # from its end
                if not content.present:
                    content.slot = None
                    if content.key is not None:
                        del self._prefixes[content.key]

    def release(self, holding: Holding, own_blocks: int, findable_blocks: int = 0) -> Cached | None:
        """Gives back a request's blocks, of which it has `own_blocks` of its own by now.

        `findable_blocks` of these, from the beginning, may be found again by the request itself: what is returned stands for them.
        """
        left = None
        findable = min(findable_blocks, own_blocks) if self.caching else 0
        self._release_blocks(own_blocks - findable, None)
        if findable:
            left = Cached(findable)
            self._release_blocks(findable, left)
        shared = holding.shared
        if shared:
            shared.holders -= 1
            if not shared.holders:
                self._release_blocks(shared.size, shared if shared.reachable else None)
        return left

    def forget(self, left: Cached) -> None:
        """Nobody will ask for it again."""
        self._wake(left, 0)

    def reset(self) -> None:
        """Drops everything that is cached. Requests keep their blocks; what they hold is not found by others any more."""
        for slot, (count, content) in self._queue.items():
            self._queue[slot] = count, None
            if content is not None:
                content.present, content.slot = 0, None
        for shared in self._prefixes.values():
            shared.reachable = False
        self._prefixes.clear()

    def _shared(self, prefix: str, size: int) -> Cached | None:
        if not self.caching or not size:
            return None
        key = f"{prefix}/{size}"
        content = self._prefixes.get(key)
        if content is None:
            content = self._prefixes[key] = Cached(size, key)
        return content

    def _wake(self, content: Cached, wanted: int) -> None:
        """Takes `wanted` blocks of a content out of the queue; what remains of it there nobody can find any more."""
        if content.slot is None:
            return
        there, _ = self._queue[content.slot]
        self.free -= wanted
        if there == wanted:
            del self._queue[content.slot]
        else:
            self._queue[content.slot] = there - wanted, None
        content.slot, content.present = None, 0

    def _release_blocks(self, count: int, content: Cached | None) -> None:
        if not count:
            return
        self.free += count
        if content is None and self._queue:
            last = next(reversed(self._queue))
            there, behind = self._queue[last]
            if behind is None:
                self._queue[last] = there + count, None
                return
        self._queue[self._next_slot] = count, content
        if content is not None:
            content.slot, content.present = self._next_slot, count
        self._next_slot += 1


# --- A run of decode steps of one batch, as one computation.
#
# Each step adds a token to every context, so that its bytes and FLOPs, and with them its time, are linear in its number; where both arms
# of the roof take part, the larger one changes once at most. Times are worked out from the run's start, never from where somebody last
# looked: how often the engine is advanced changes no digit.


class DecodeRun:
    """`limit` steps of `batch` sequences from `start_seconds` on, the last of which ends at `over_seconds`; `done` of them are booked.
    `slowdown` stretches every step."""

    __slots__ = (
        "_early", "_late", "_ramp", "_switch", "batch", "done", "limit", "over_seconds", "slowdown", "start_seconds",
    )  # fmt: skip

    def __init__(self, start_seconds: float, batch: int, limit: int, ramp: Ramp, slowdown: float) -> None:
        self.start_seconds, self.batch, self.limit, self.slowdown = start_seconds, batch, limit, slowdown
        self.done = 0
        self._ramp = ramp
        memory, computing = (ramp.memory, ramp.memory_more), (ramp.computing, ramp.computing_more)
        self._early = max(memory, computing)
        self._late, self._switch = self._early, math.inf
        for arm in (memory, computing):
            steeper = arm[1] - self._early[1]
            if steeper > 0:
                # the first step of which this arm is the larger
                crossing = math.floor((self._early[0] - arm[0]) / steeper) + 1
                if crossing < limit:
                    self._late, self._switch = arm, crossing
        self.over_seconds = self.end_seconds(limit)

    def shorten(self, limit: int) -> None:
        """It ends after so many steps, if not before."""
        if limit < self.limit:
            self.limit, self.over_seconds = limit, self.end_seconds(limit)

    def step_seconds(self, number: int) -> float:
        """How long step `number` takes, the first being 0."""
        first, more = self._early if number < self._switch else self._late
        return (first + more * number + self._ramp.overhead) * self.slowdown

    def elapsed_seconds(self, steps: int) -> float:
        """From the run's start to the end of its first `steps` steps."""
        turn = min(steps, self._switch)
        total = _sum(self._early, turn)
        if steps > turn:
            total += _sum(self._late, steps) - _sum(self._late, turn)
        return (total + self._ramp.overhead * steps) * self.slowdown

    def end_seconds(self, steps: int) -> float:
        """When its first `steps` steps are over."""
        return self.start_seconds + self.elapsed_seconds(steps)

    def steps_by(self, at_seconds: float) -> int:
        """Steps that are over at a time."""
        if at_seconds >= self.over_seconds:
            return self.limit
        steps = self.done + 1
        next_end = self.end_seconds(steps)
        if at_seconds < next_end:
            return self.done
        # as many as if all took as long, or a few more: they lengthen slowly
        steps += int((self.limit - steps) * (at_seconds - next_end) / (self.over_seconds - next_end))
        while self.end_seconds(steps) > at_seconds:
            steps -= 1
        while self.end_seconds(steps + 1) <= at_seconds:
            steps += 1
        return steps

    def first_longer(self, seconds: float, begin: int, end: int) -> int:
        """The first of the steps begin ... end - 1 that takes longer than that, `end` where none does."""
        if self.step_seconds(end - 1) <= seconds:
            return end
        return bisect_right(range(end), seconds, lo=begin, key=self.step_seconds)

    def moved_bytes(self, steps: int) -> float:
        """Bytes that its first `steps` steps move."""
        return _sum((self._ramp.moved_bytes, self._ramp.moved_bytes_more), steps)

    def compute_seconds(self, steps: int) -> float:
        """Time at the dense peak that their FLOPs need."""
        return _sum((self._ramp.compute_seconds, self._ramp.compute_seconds_more), steps)

    @property
    def micro_batches(self) -> int:
        """Parts in which the batch goes through the pipeline stages."""
        return self._ramp.micro_batches


def _sum(line: tuple[float, float], steps: float) -> float:
    """line(0) + line(1) + ... over the first `steps` numbers."""
    first, more = line
    return first * steps + more * steps * (steps - 1) / 2


# --- The decoding batch: how far each sequence is, told by the number of steps since it joined.


class Sequence(Struct, eq=False):
    """A request inside the engine. `generated` and `stored` stand still while it decodes: the batch's steps since `joined` count."""

    record: Record  # what became of the request so far
    target: int  # tokens that its prefill ends at
    generated: int = 0  # tokens
    stored: int = 0  # tokens in the KV cache
    joined: int | None = None  # the batch's step at which it began to decode
    order: int = 0  # of admission
    holding: Holding | None = None  # its blocks of the KV cache; None: it holds none
    left: Cached | None = None  # blocks that it left in the cache when it was preempted, to find again; None: none
    scheduled_seconds: float | None = None  # first admission; None: it still waits for it
    last_token_seconds: float = 0.0  # when its last token came

    @property
    def request(self) -> Request:
        """What was asked for."""
        return self.record.request


class PromptStep(Struct, frozen=True):
    """A step with prompts in it, under way."""

    start_seconds: float  # simulated time
    over_seconds: float  # simulated time
    work: Work  # of the whole step
    chunks: tuple[tuple[Sequence, int], ...]  # the tokens of each prompt that it computes


class Shown(NamedTuple):
    """Gauges of a page, written by the scheduler as it steps."""

    running: int  # requests
    waiting: int  # requests
    kv_usage_ratio: float  # blocks in use over usable blocks


class DecodeBatch:
    """`size` sequences that have `stored` tokens in the KV cache, after `step` decode steps since the engine began."""

    __slots__ = ("_block_steps", "_block_tokens", "_ends", "size", "step", "stored")

    def __init__(self, block_tokens: int) -> None:
        self.step = self.size = self.stored = 0
        self._block_tokens = block_tokens
        self._ends: list[tuple[int, int]] = []
        # sequences that need a block at steps of each remainder by the block's size
        self._block_steps = [0] * block_tokens

    def join(self, sequence: Sequence) -> None:
        """From the next step on it decodes."""
        sequence.joined = self.step
        self.size += 1
        self.stored += sequence.stored
        # a step stores one token more, and needs a block where the last one is full
        self._block_steps[(self.step - sequence.stored) % self._block_tokens] += 1
        end = self.step + sequence.request.output_tokens - sequence.generated
        heapq.heappush(self._ends, (end, sequence.order))

    def leave(self, sequence: Sequence) -> None:
        """It decodes no more, and is told what it has by now."""
        assert sequence.joined is not None
        steps = self.step - sequence.joined
        self._block_steps[(sequence.joined - sequence.stored) % self._block_tokens] -= 1
        sequence.generated += steps
        sequence.stored += steps
        sequence.joined = None
        self.size -= 1
        self.stored -= sequence.stored

    def generated(self, sequence: Sequence) -> int:
        """Tokens that a sequence has by now, whether it is in the batch or not."""
        return sequence.generated + (self.step - sequence.joined if sequence.joined is not None else 0)

    def steps_to_next_end(self) -> int:
        """Decode steps until a sequence may have its last token; one that has left meanwhile may be meant."""
        return self._ends[0][0] - self.step

    def ended(self) -> int | None:
        """The order of admission of one that may have its last token by now, each told once; None where there is none."""
        if self._ends and self._ends[0][0] <= self.step:
            return heapq.heappop(self._ends)[1]
        return None

    def blocks_needed(self, steps: int = 1) -> int:
        """New blocks of the next `steps` decode steps."""
        if steps == 1:
            return self._block_steps[self.step % self._block_tokens]
        rounds, rest = divmod(steps, self._block_tokens)
        return rounds * self.size + add_up(
            self._block_steps[step % self._block_tokens] for step in range(self.step, self.step + rest)
        )

    def steps_that_fit(self, free_blocks: int, most: int) -> int:
        """Decode steps for which so many blocks are enough, `most` at most."""
        rounds, free = divmod(free_blocks, self.size)
        steps = rounds * self._block_tokens
        if steps >= most:
            return most
        for step in range(self.step, self.step + self._block_tokens):
            free -= self._block_steps[step % self._block_tokens]
            if free < 0:
                break
            steps += 1
        return min(steps, most)

    def decoded(self, steps: int) -> None:
        """`steps` decode steps are over."""
        self.step += steps
        self.stored += steps * self.size
