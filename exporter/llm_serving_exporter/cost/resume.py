"""Whether a target's counting goes on from what an earlier process kept of it, and whether the time between is booked."""

from __future__ import annotations

import hashlib
from enum import Enum

from llm_serving_exporter.model.cost import KeptCost
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.target import Target


class Between(Enum):
    """What becomes of the time between the last tick that was kept and the first of this process."""

    BOOKED = "booked"  # it is the target's, though nobody saw what its GPUs did
    LEFT_OUT = "left out"  # it was too long, or the target is on other GPUs or at another address
    UNDECIDED = "undecided"  # the target's GPUs have not been seen yet


def describe_server(target: Target) -> tuple[str, str]:
    """Digests of a target's address, and of its address and the GPUs that are stated for it. They hold no secret."""
    sizes = (target.tensor_parallel_size, target.pipeline_parallel_size, target.data_parallel_size)
    address = (target.url, target.metrics_path)
    whole = (*address, target.gpus, target.gpu_count, target.gpu_model, *sizes)
    return _digest(address), _digest(whole)


def _digest(words: tuple[object, ...]) -> str:
    return hashlib.sha256(repr(words).encode(errors="backslashreplace")).hexdigest()[:32]


class Resume(Struct, frozen=True):
    """What a target was when an earlier process counted it last."""

    kept: KeptCost  # what that process left
    counted_at: (
        float | None
    )  # when it counted the target last, by this process' monotonic clock; None: on another boot of the host
    limit_seconds: float  # the longest time between that is booked

    def decide(self, reading: TargetReading, now: float) -> Between:
        """What becomes of the time between, as of a tick at `now`."""
        kept = self.kept
        if self.counted_at is None or not 0 <= now - self.counted_at <= self.limit_seconds:
            return Between.LEFT_OUT
        if describe_server(reading.target) != kept.server:
            return Between.LEFT_OUT
        if set(reading.gpu_uuids) == set(kept.gpu_uuids):
            return Between.BOOKED
        # the first pass over the GPUs may come after the first tick
        return Between.LEFT_OUT if reading.gpu_uuids else Between.UNDECIDED
