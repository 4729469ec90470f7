"""Which of all known targets this exporter reads: those of its shard, and no more than it can."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from llm_serving_exporter.errors import Problem
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.target import Shard, Target
from llm_serving_exporter.settings.checks import MOST_TARGETS, SHARE_THEM, holds_target

# how long the targets of the shard of before are read on after the shard changed: two scrapes at the 15 s that our examples of Prometheus
# set, so that the exporter that takes a target over has a rate of it before it ends here
HANDOVER_SECONDS = 30.0


class Held(Struct, frozen=True):
    """The targets that this exporter reads, and how many others there are."""

    targets: tuple[Target, ...]  # in the order in which they were given
    elsewhere: int = 0  # targets that belong to other shards
    left_out: int = 0  # targets of this shard beyond what one exporter reads

    def list_problems(self) -> list[Problem]:
        """What is wrong with it."""
        if not self.left_out:
            return []
        what = f"{self.left_out} of {len(self.targets) + self.left_out} targets are left out, one exporter reads {MOST_TARGETS}"
        return [Problem("discovery", "", what, SHARE_THEM)]


class Holder:
    """Chooses targets by shard, over time. Used by one thread at a time. `shard`: None for all targets."""

    def __init__(self, shard: Shard | None, monotonic: Callable[[], float]) -> None:
        self._shard, self._monotonic = shard, monotonic
        # the shard of before, and when its targets are let go; None where none is being let go
        self._leaving: tuple[Shard | None, float] | None = None

    def change_shard(self, shard: Shard | None) -> None:
        """Takes another shard. The targets of the one before are held for `HANDOVER_SECONDS` more."""
        if shard != self._shard:
            self._leaving = self._shard, self._monotonic() + HANDOVER_SECONDS
            self._shard = shard

    def is_due(self) -> bool:
        """Whether targets of the shard of before are to be let go now."""
        return self._leaving is not None and self._monotonic() >= self._leaving[1]

    def holds(self, name: str) -> bool:
        """Whether something of this name, which has no address yet, belongs here."""
        return self._shard is None or self._shard.holds(name)

    def choose(self, known: Iterable[Target]) -> Held:
        """The targets to read now, out of all that are known, each once."""
        if self.is_due():
            self._leaving = None
        mine, elsewhere = [], 0
        for target in known:
            if holds_target(self._shard, target) or (
                self._leaving is not None and holds_target(self._leaving[0], target)
            ):
                mine.append(target)
            else:
                elsewhere += 1
        return Held(tuple(mine[:MOST_TARGETS]), elsewhere, max(0, len(mine) - MOST_TARGETS))
