"""Which replica a request goes to."""

from __future__ import annotations

from collections.abc import Iterable

from llm_serving_exporter.sim.fleet.replica import Replica


def least_loaded(replicas: Iterable[Replica]) -> Replica | None:
    """The ready replica with the fewest requests, of several the one that has had the fewest so far; None where none is ready."""
    ready = (replica for replica in replicas if replica.ready and replica.engine is not None)
    return min(ready, key=_order, default=None)


def _order(replica: Replica) -> tuple[int, int, str]:
    assert replica.engine is not None
    return replica.load, replica.engine.books.counts.submitted, replica.name
