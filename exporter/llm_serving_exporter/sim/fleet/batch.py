"""The decoding batch of an engine: how far each sequence is, told by the number of steps since it joined.

Every sequence of the batch gets a token in every decode step, so that nothing has to be done for each of them as steps go by.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.sim.fleet.cost import Work
from llm_serving_exporter.sim.fleet.kv import Cached, Holding
from llm_serving_exporter.sim.fleet.request import Record, Request


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
