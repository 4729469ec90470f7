"""Whether a model fits its GPUs, and how many sequences then do."""

from __future__ import annotations

import math

from llm_serving_exporter.derive.reads import Roof, kv_stored_bytes, weight_held_bytes
from llm_serving_exporter.model.record import Struct


class Fit(Struct, frozen=True):
    """Bytes over all GPUs of one replica."""

    # whether the weights and one sequence of the context asked for do
    fits: bool
    # what the weights and the overhead leave; negative: that much is missing
    free_kv_bytes: float
    # sequences of that context that fit at once; None for a model that keeps nothing of them
    max_batch: int | None
    # of all the weights
    weight_bytes: float
    # of one such sequence
    kv_bytes_per_sequence: float
    # data-parallel ranks
    ranks: int = 1
    # of `free_kv_bytes`, and what of recurrent state is taken before a sequence runs
    unreserved_bytes: float = 0.0

    @property
    def shortfall_bytes(self) -> float:
        """What is missing for the weights and one sequence of each rank; 0 where they fit."""
        return max(0.0, self.ranks * self.kv_bytes_per_sequence - self.free_kv_bytes)


def check_fit(
    roof: Roof,
    memory_bytes_per_gpu: float,
    *,
    utilisation: float = 1.0,
    overhead_bytes: float = 0.0,
    context_tokens: float,
    all_full: bool = False,
    reserved: int = 0,
) -> Fit:
    """What is left for KV when each GPU gives `utilisation` of its memory, less `overhead_bytes` a GPU (activations, CUDA graphs,
    buffers). Weights and KV count as evenly spread over the GPUs of a data-parallel rank; a sequence stays within its rank.
    `all_full` as for `kv_stored_bytes`. `reserved`: sequences of all ranks whose recurrent state is taken before one runs."""
    ranks = roof.parallel.data
    weights = ranks * weight_held_bytes(roof)
    unreserved = roof.parallel.gpus * (memory_bytes_per_gpu * utilisation - overhead_bytes) - weights
    sequence = kv_stored_bytes(roof, context_tokens, all_full=all_full)
    free = unreserved - reserved * roof.model.state_bytes_per_sequence()
    if sequence <= 0:
        return Fit(free >= 0, free, None if free >= 0 else 0, weights, 0.0, ranks, unreserved)
    batch = count_sequences(roof, free, sequence, reserved)
    return Fit(batch > 0, free, batch, weights, sequence, ranks, unreserved)


def count_sequences(roof: Roof, free_bytes: float, sequence_bytes: float, reserved: int = 0) -> int:
    """Sequences of all ranks that what is free of all GPUs holds. `sequence_bytes`: of one, recurrent state included; `free_bytes`: without
    the state of the `reserved` ones."""
    ranks = roof.parallel.data
    each = sequence_bytes - (roof.model.state_bytes_per_sequence() if reserved else 0.0)
    if each <= 0:
        return reserved if free_bytes >= 0 else 0
    return ranks * max(0, math.floor(free_bytes / ranks / each))


def least_gpus(weight_bytes: float, memory_bytes_per_gpu: float) -> int | None:
    """GPUs whose memory the weights alone need; None without memory."""
    if memory_bytes_per_gpu <= 0:
        return None
    return max(1, math.ceil(weight_bytes / memory_bytes_per_gpu))
