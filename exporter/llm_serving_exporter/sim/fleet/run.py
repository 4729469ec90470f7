"""A run of decode steps of one batch, as one computation.

Each step adds a token to every context, so that its bytes and FLOPs, and with them its time, are linear in its number; where both arms
of the roof take part, the larger one changes once at most. Times are worked out from the run's start, never from where somebody last
looked: how often the engine is advanced changes no digit.
"""

from __future__ import annotations

import math
from bisect import bisect_right

from llm_serving_exporter.sim.fleet.cost import Ramp


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
