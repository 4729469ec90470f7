"""Which replica a request goes to."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from llm_serving_simulator.fleet.replica import Replica, ReplicaState
from llm_serving_simulator.fleet.request import Request


def least_loaded(replicas: Iterable[Replica]) -> Replica | None:
    """The ready replica with the fewest requests, of several the one that has had the fewest so far; None where none is ready."""
    ready = [
        (len(engine.running) + len(engine.waiting) + replica.held, engine.books.counts.submitted, replica.name, replica)
        for replica in replicas
        # asked for each request: most of what it costs to pass one on
        if (engine := replica.engine) is not None and replica.state is ReplicaState.READY
    ]
    return min(ready)[3] if ready else None


class Router:
    """The least loaded replica gets a request, unless it is pinned to another one. A pin counts while its replica is ready."""

    def __init__(self) -> None:
        self._shares: dict[str, float] = {}
        self._longest: dict[str, int] = {}  # least tokens of a prompt
        # since a share was pinned last
        self._routed = 0
        self._pinned: dict[str, int] = {}

    def pin_share(self, name: str, share: float) -> None:
        """A replica gets that share of the requests, evenly, from now on."""
        self._shares[name] = share
        self._routed, self._pinned = 0, {}

    def pin_long_prompts(self, name: str, tokens: int) -> None:
        """A replica gets the prompts of at least so many tokens, and nothing else."""
        self._longest[name] = tokens

    def choose(self, replicas: Collection[Replica], request: Request) -> Replica | None:
        """Where a request goes; None where no replica is ready."""
        if not self._shares and not self._longest:
            return least_loaded(replicas)
        pinned = {
            one.name: one for one in replicas if one.ready and (one.name in self._shares or one.name in self._longest)
        }
        for name, tokens in self._longest.items():
            if name in pinned and request.prompt_tokens >= tokens:
                return pinned[name]
        self._routed += 1
        for name, share in self._shares.items():
            if name in pinned and self._pinned.get(name, 0) < int(share * self._routed):
                self._pinned[name] = self._pinned.get(name, 0) + 1
                return pinned[name]
        return least_loaded(one for one in replicas if one.name not in pinned) or least_loaded(replicas)
