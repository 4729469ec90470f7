"""Which targets have the same GPU, and whether they state how they share it."""

from __future__ import annotations

from collections.abc import Sequence

from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.target import Target


def claim_of(target: Target, gpu: str | int) -> str:
    """A key that is the same for two targets with the same configured GPU: its UUID, or its nodes and its index."""
    return gpu if isinstance(gpu, str) else f"{'+'.join(target.nodes)} {gpu}"


def shared(owners: Sequence[Target]) -> bool:
    """Whether all targets of one GPU state a share of it, and the shares are at most 1 together."""
    stated = [owner.gpu_share for owner in owners]
    # thirds add up to a little more
    return None not in stated and add_up(share or 0.0 for share in stated) <= 1 + 1e-9
